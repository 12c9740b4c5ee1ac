# The kernel makes an array with two spares; one takes the place of the second member, which fails,
# and stays faulty.
. ./cell
create
mdadm /dev/md0 --add "$(attach s0)"
mdadm /dev/md0 --add "$(attach s1)"
set -- $devices
mdadm /dev/md0 --fail "$2"
idle
is_whole || fail "no spare has taken its place"
write_some before 100
stop
