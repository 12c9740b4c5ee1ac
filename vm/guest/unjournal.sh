# The kernel takes the journal device, `spare`, out of the array, as Parapet has said.
. ./cell
assemble $(attach_all $files)
mdadm /dev/md0 --fail "$(device_of spare)" --remove "$(device_of spare)"
tell_md consistency_policy resync
holds before
check
stop
