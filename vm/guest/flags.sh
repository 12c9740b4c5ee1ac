# The kernel makes an array whose second member is to be read only if it must, and to fail fast.
. ./cell
create
name=$(basename "$(device_of m1)")
for word in writemostly failfast; do echo $word >"/sys/block/md0/md/dev-$name/state"; done
write_some before 100
stop
