# The kernel knows the bad blocks of `m1` that are left ($left, as the kernel tells them).
. ./cell
assemble $(attach_all $files)
is_whole || fail "a member is missing"
found=$(member m1 bad_blocks)
[ "$found" = "$left" ] || fail "m1's bad blocks are: $found"
holds before
check
stop
