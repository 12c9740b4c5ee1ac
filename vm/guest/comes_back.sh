# The kernel takes back `m1`, which was out of the array while Parapet wrote to it.
. ./cell
devices=$(attach_all $files)
assemble $devices
back=$(attach m1)
mdadm /dev/md0 --re-add "$back"
idle
is_whole || fail "not rebuilt"
[ "$(written m1)" -lt "$most" ] || fail "$(written m1) bytes were written, not $most at most"
holds before
check
stop
