# A file system on a local disk is used while a member fails, the server is killed, ended and
# started again, and a spare is rebuilt. No request may fail.
need "$fs"
create 5
serve
order attach tank --how "$how"
says "\"how\":\"$how\""
says '"survives_restart":true'
make_fs
tar -x -f tree.tar -C /run/fs
exercise 60 enough &
workers=$!
work_on
order fail tank 1
work_on
kill -KILL "$server"
wait "$server" || true
serve
says "\"how\":\"$how\""
work_on
kill -TERM "$server"
wait "$server" || fail "the server does not end in order"
serve
work_on
truncate -s 112M /run/members/spare
order add tank /run/members/spare
members="/run/members/m0 /run/members/m2 /run/members/m3 /run/members/spare"
order wait tank --for whole --timeout 200 --quiet
work_on
: >enough
wait "$workers" || fail "the work on the file system has failed"

for verb in detach stop; do
	! order "$verb" tank 2>refusal || fail "$verb takes a mounted disk away"
	grep -q "mounted at /run/fs" refusal || fail "$verb does not say who uses it: $(cat refusal)"
done
check_fs
mount -t "$fs" "$disk" /run/fs
tar --compare -f tree.tar -C /run/fs || fail "the tree has changed"
still_exercised
fstrim -v /run/fs
echo 3 >/proc/sys/vm/drop_caches
still_exercised
check_fs
! dmesg | grep 'I/O error' || fail "a request has failed"

order detach tank
[ ! -e "$disk" ] || fail "$disk is still there"
order scrub tank
order wait tank --timeout 200 --quiet
says '"mismatches":0'
order stop tank
wait "$server"
