# After `killed.sh` was cut off: the journal is replayed, every durable file is there, and the file
# system is in order.

connect
dumpe2fs -h "$disk" | grep needs_recovery || fail "the file system was not in use"
mount_fs
dmesg | grep 'recovery complete' || fail "the journal was not replayed"
read -r last <durable
number=$((last > 38 ? last - 38 : 1))
[ "$number" -lt "$last" ] || fail "only $last files were written"
while [ "$number" -le "$last" ]; do
	tail -c +"$number" pattern | head -c 300000 | cmp - "/run/fs/durable.$number" ||
		fail "durable.$number of $last is not as written"
	number=$((number + 1))
done
check_fs
mount_fs
exercise 40
check_fs
disconnect
