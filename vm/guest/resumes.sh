# The kernel goes on with a resync that Parapet has begun, from sector $from on; `content` is what
# the array holds.
. ./cell
echo 1 >/sys/module/md_mod/parameters/start_ro
mdadm --assemble --run /dev/md0 $(attach_all $files)
[ "$(md resync_start)" = "$from" ] || fail "it would go on from $(md resync_start)"
mdadm --readwrite /dev/md0
idle
dd if=/dev/md0 of=content bs=1M status=none
check
stop
