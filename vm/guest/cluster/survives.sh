# This machine uses the file system while the other one ends. It replays the journal of that, goes
# on, and finds what the other has made durable: the sums in `theirs`.
join
# What the kernel says, for the host.
while :; do dmesg | grep ocfs2 >kernel || true; sleep 1; done &
exercise 100 enough
dmesg | grep 'Begin replay journal (node 2' || fail "no journal was replayed"
[ -s theirs ] || fail "the other one has made nothing durable"
(cd "$theirs" && sha256sum -c) <theirs || fail "a durable file of the other one has changed"
still_exercised
: >/run/fs/after
leave
