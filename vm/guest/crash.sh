# The kernel makes an array, fills it, and writes until the power is cut: what was there before
# (`before`) turns into `after`, at random, some blocks at a time. Blocks whose number is 3 more
# than a multiple of 4 stay as they were, and so does the second half of the array.
. ./cell

# Numbers that look random, the same each time.
seed=1
below() {
	seed=$(((seed * 1103515245 + 12345) % 2147483648))
	number=$((seed / 65536 % $1))
}

create
tr '\000-\377' '\200-\377\000-\177' <before >after
if [ -n "$lost" ]; then
	set -- $devices
	mdadm /dev/md0 --fail "$2"
	mdadm /dev/md0 --remove "$2"
fi
# Nothing but what is written from here on is to be on record.
forget $devices
sync
blocks=$(($(bytes) / 8192))
: >writing
while :; do
	below $((blocks / 4))
	first=$((number * 4))
	below 3
	dd if=after of=/dev/md0 bs=4096 count=$((number + 1)) skip=$first seek=$first \
		oflag=direct conv=notrunc status=none
	echo . >>writing
done
