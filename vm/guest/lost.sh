# The kernel knows which blocks of `spare` could not be rebuilt ($left, as the kernel tells them):
# `content` is what can be read of the array, and zeros.
. ./cell
assemble $(attach_all $files)
is_whole || fail "a member is missing"
found=$(member spare bad_blocks)
[ "$found" = "$left" ] || fail "the new member's bad blocks are: $found"
dd if=/dev/md0 of=content bs=4096 iflag=direct conv=noerror,sync status=none || true
stop
