# The kernel makes an array, and fills it.
. ./cell
create
stop
