# The kernel reads the same bytes of each set of members ($sets: one set a word, commas between its
# files), and writes nothing: who is left out of one is in the next.
. ./cell
for set in $sets; do
	mdadm --assemble --readonly --run /dev/md0 $(attach_all $(echo "$set" | tr , ' '))
	holds before
	mdadm --stop /dev/md0
	detach_all
done
