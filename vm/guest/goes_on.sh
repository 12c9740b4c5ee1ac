# The kernel goes on with what Parapet has begun to fill, `spare`: from sector $from of its data on.
. ./cell
# Nothing is done before it is looked at.
echo 1 >/sys/module/md_mod/parameters/start_ro
mdadm --assemble --run /dev/md0 $(attach_all $files)
found=$(member spare recovery_start)
[ "$found" = "$from" ] || fail "it would go on from $found"
mdadm --readwrite /dev/md0
while grep -Eqs 'spare|replacement' /sys/block/md0/md/dev-*/state; do sleep 0.1; done
idle
is_whole || fail "not rebuilt"
[ "$(member spare state)" = in_sync ] || fail "the new member is $(member spare state)"
[ "$(written spare)" -lt "$most" ] || fail "$(written spare) bytes were written, not $most at most"
holds before
check
stop
