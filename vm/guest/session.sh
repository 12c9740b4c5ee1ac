# The kernel runs an array of Parapet's for a while: makes right what a crash has left, writes the
# file `theirs` where $at says (a block), and stops in order; or dies, if $dies, when it is written.
. ./cell
assemble $(attach_all $files)
idle
# Until it is stopped the array is not clean.
tell_md safe_mode_delay 1000
dd if=theirs of=/dev/md0 bs=4096 seek="$at" conv=notrunc,fsync status=none
if [ -n "$dies" ]; then
	: >written
	while :; do sleep 1; done
fi
stop
