# As soon as nobody has an array's disks, mdadm's rules give them to the kernel, as on every machine
# that has them. Parapet says who has them and how to free them; then it goes on where it was.

# refused WHEN: Parapet cannot have the members, and says what to do; that is done.
refused() {
	md=$(taker)
	[ "$md" ] || fail "$1: udev has not taken the members; does it do nothing?"
	! serve || fail "$1: $md has the members, and Parapet serves them"
	tee refusal <ready
	grep -q "member of the kernel's array $md" ready || fail "$1: not said who has them"
	grep -q "mdadm --stop /dev/$md" ready || fail "$1: not said how to free them"
	wait "$server" || true
	mdadm --stop "/dev/$md"
	settle
}

"$parapet" create tank --yes --level 5 --chunk 64K $members
refused "after create"
serve
nbdcopy pattern "$export_of_tank"
# Whoever has the members keeps them.
udevadm trigger --type=devices --subsystem-match=block --action=change
md=$(taker)
[ -z "$md" ] || fail "udev has given members that are in use to $md"
stop
refused "after stop"
serve
nbdcopy "$export_of_tank" held
cmp -n "$(stat -c %s pattern)" held pattern || fail "something has changed after stop"
kill -KILL "$server"
wait "$server" || true
refused "after a crash"
serve
"$parapet" wait tank --control unix:/run/control --for whole --timeout 120 --quiet
nbdcopy "$export_of_tank" held
cmp -n "$(stat -c %s pattern)" held pattern || fail "something has changed after a crash"

# What the message says beside: then nobody takes them.
line=$(grep -o 'ARRAY <ignore> UUID=[0-9a-f:]*' refusal | head -n 1)
[ "$line" ] || fail "not said how to keep them"
echo "$line" >/etc/mdadm/mdadm.conf
stop
md=$(taker)
[ -z "$md" ] || fail "udev has given what it was told to leave to $md"
serve
stop
