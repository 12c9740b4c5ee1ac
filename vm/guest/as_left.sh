# The kernel finds the array as it has left it: whole, with the bad blocks of `m1` that are still to
# be written ($left, as the kernel tells them), and with what it keeps on record. A check makes bad
# blocks good ($check).
. ./cell
assemble $(attach_all $files)
is_whole || fail "a member is missing"
has_policy
found=$(member m1 bad_blocks)
[ "$found" = "$left" ] || fail "m1's bad blocks are: $found"
holds before
[ -z "$check" ] || check
stop
