# A file system on the kernel's NBD client: files in every way, a tree, trimming, and its checker.

# The host's files that the array is made of take so many KiB.
stored() {
	du -k -c m? | tail -n 1 | cut -f 1
}

need nbd "$fs"
network
connect
make_fs
tar -x -f tree.tar -C /run/fs
exercise 800
head -c 25165824 /dev/urandom >/run/fs/large
check_fs

mount_fs
tar --compare -f tree.tar -C /run/fs || fail "the tree has changed"
still_exercised
before=$(stored)
rm /run/fs/large
sync
fstrim -v /run/fs
after=$(stored)
echo "the members' files take $before KiB, and $after after trimming"
[ $((before - after)) -gt 24000 ] || fail "nothing is given back"
echo 3 >/proc/sys/vm/drop_caches
still_exercised
tar --compare -f tree.tar -C /run/fs || fail "the tree has changed by trimming"
check_fs
disconnect
