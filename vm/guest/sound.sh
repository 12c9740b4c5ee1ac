# The kernel finds the array whole and in order, with what `before` tells in it.
. ./cell
assemble $(attach_all $files)
is_whole || fail "a member is missing"
holds before
check
stop
