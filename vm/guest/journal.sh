# The kernel makes an array with a journal device, `spare`, and writes through it.
. ./cell
flags="$flags --write-journal=$(attach spare)"
create
stop
