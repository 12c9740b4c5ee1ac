# The kernel makes an array, takes the second member out of it, and writes a little.
. ./cell
create
forget $devices
set -- $devices
mdadm /dev/md0 --fail "$2"
mdadm /dev/md0 --remove "$2"
write_some before 100
write_some before 1500
stop
