# The kernel ends a reshape to more members, one of which is `spare`, or begins and ends it; what
# there was is there still, and the new room is filled.
. ./cell
assemble $(attach_all $files)
old=$(stat -c %s before)
if [ -n "$grow" ]; then
	mdadm /dev/md0 --add "$(attach spare)"
	mdadm --grow /dev/md0 --raid-devices="$grow"
fi
idle
while [ "$(md reshape_position)" != none ] || [ "$(bytes)" -le "$old" ]; do sleep 0.1; done
is_whole || fail "a member is missing"
head -c "$(bytes)" "$pattern" >before
cmp --bytes="$old" before /dev/md0 || fail "what there was has changed"
dd if=before of=/dev/md0 bs=1M conv=fsync status=none
check
stop
