# A file system on the kernel's NBD client is used while the host does something to the array, which
# says by the file `enough` that it is done. No request may fail.
need nbd "$fs"
network
"$connect"
make_fs
tar -x -f tree.tar -C /run/fs
exercise 100 enough
check_fs

mount_fs
tar --compare -f tree.tar -C /run/fs || fail "the tree has changed"
still_exercised
check_fs
disconnect
