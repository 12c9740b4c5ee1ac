# The kernel makes an array; its second member has two bad blocks, at $bad (lines: sector of the
# data, sectors).
. ./cell
create
list_bad m1 "$bad"
write_some before 100
stop
