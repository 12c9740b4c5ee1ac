# A file system on the kernel's AoE initiator, used while the host does what it does to the server.

connect
[ "$(payload)" = "$expected" ] || fail "a payload of $(payload), not $expected"
make_fs
exercise 40 enough
check_fs
mount_fs
echo 3 >/proc/sys/vm/drop_caches
still_exercised
check_fs
disconnect
