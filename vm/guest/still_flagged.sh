# The kernel knows so still, of that member alone.
. ./cell
assemble $(attach_all $files)
[ "$(member m1 state)" = in_sync,write_mostly,failfast ] || fail "m1 is $(member m1 state)"
[ "$(member m0 state)" = in_sync ] || fail "m0 is $(member m0 state)"
holds before
check
stop
