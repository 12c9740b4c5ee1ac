# The array of a cluster is the local disk of a client. A file system is used while a member is
# killed and rebuilt, and a coordinator is replaced. The client ends when nobody uses its disk. One
# that is killed ends all requests; its successor does not join while the disk is there and mounted.
need "$fs"
cluster=/run/tank.toml

member() {
	rm -f "/run/s$1"
	"$parapet" serve-disk "/run/members/m$1" --listen "unix:/run/s$1" 2>>"member$1.log" &
	member=$!
	until_so [ -S "/run/s$1" ]
}

coordinator() {
	rm -f "/run/c$1"
	"$parapet" cluster coordinator "$cluster" --listen "unix:/run/c$1" 2>>"coordinator$1.log" &
	coordinator=$!
	until_so [ -S "/run/c$1" ]
}

client() {
	: >ready
	"$parapet" cluster client "$cluster" --id 1 --attach --how "$how" --json >ready 2>>client.log &
	client=$!
	until_so [ -s ready ]
	grep -q "\"how\":\"$how\"" ready || fail "no local disk: $(cat ready)"
}

# is TEXT: the status has this text.
is() {
	"$parapet" cluster status "$cluster" --json >status.tank || true
	grep -q "$1" status.tank
}

for number in 0 1 2; do
	truncate -s 112M "/run/members/m$number"
	member "$number"
done
"$parapet" cluster create tank --yes --level 3.5 --region 4M --file "$cluster" \
	--coordinator unix:/run/c0 --coordinator unix:/run/c1 unix:/run/s0 unix:/run/s1 unix:/run/s2
coordinator 0
leader=$coordinator
until_so is '"state":"leads"'
coordinator 1
client
make_fs
exercise 60 enough &
workers=$!
work_on
kill -KILL "$member"
wait "$member" || true
until_so is '"state":"degraded"'
work_on
member 2
until_so is '"state":"optimal"'
kill -KILL "$leader"
wait "$leader" || true
until_so is '"state":"leads"'
coordinator 0
work_on
: >enough
wait "$workers" || fail "the work on the file system has failed"
check_fs
mount -t "$fs" "$disk" /run/fs
still_exercised
! dmesg | grep 'I/O error' || fail "a request has failed"

kill -TERM "$client"
until_so grep -q "mounted at /run/fs" client.log
still_exercised
umount /run/fs
wait "$client" || fail "the client does not end in order"
[ ! -e "$disk" ] || fail "$disk is still there"

client
mount -t "$fs" "$disk" /run/fs
kill -KILL "$client"
wait "$client" || true
! dd if=/dev/zero of=/run/fs/file.1 bs=4k count=1 conv=notrunc,fsync || fail "a dead client writes"
# The kernel has removed the disk of a dead ublk server: nothing of the old mount reaches a new one.
if [ "$how" = nbd ]; then
	! "$parapet" cluster client "$cluster" --id 1 --attach --how "$how" 2>refusal ||
		fail "a client joins while the disk of a killed one is mounted"
	grep -q "mounted at /run/fs" refusal || fail "no user of the disk: $(cat refusal)"
fi
umount /run/fs
client
e2fsck -f -p "$disk" || fail "the file system is not in order"
mount -t "$fs" "$disk" /run/fs
for seed in 2 3 4; do
	cmp "model.$seed" "/run/fs/file.$seed" || fail "file.$seed has changed"
done
umount /run/fs
kill -TERM "$client"
wait "$client" || fail "the client does not end in order"
