# The kernel makes an array; its second member has two bad blocks, at $bad (lines: sector of the
# data, sectors).
. ./cell
create
name=$(basename "$(device_of m1)")
offset=$(member m1 offset)
echo "$bad" | while read -r sector count; do
	echo "$((offset + sector)) $count" >"/sys/block/md0/md/dev-$name/bad_blocks"
done
# With the next superblock the list is written.
write_some before 100
stop
