# What the stories of udev have in common: its daemon runs with the host's rules, mdadm's among
# them, and Parapet runs in the guest. Members are loop devices.

. "$guest/modules.sh"

# All that udev was told of has been done.
settle() {
	udevadm settle --timeout=120 || fail "udev does not come to rest"
}

# The kernel's array that has the members; nothing if none of them is taken. All are, or none.
taker() {
	settle >&2
	takers=
	for member in $members; do
		for holder in "/sys/block/$(basename "$member")/holders/md"*; do
			[ ! -e "$holder" ] || takers="$takers $(basename "$holder")"
		done
	done
	set -- $takers
	[ $# = 0 ] || [ "$*" = "$1 $1 $1" ] || fail "udev has given the members to: $*" >&2
	echo "${1-}"
}

# Serves the array, and waits until it is there.
serve() {
	: >ready
	"$parapet" serve tank $members --nbd unix:/run/nbd --control unix:/run/control --json \
		>ready 2>>server.log &
	server=$!
	until_so [ -s ready ]
	! grep -q '"error":{' ready
}

stop() {
	"$parapet" stop tank --control unix:/run/control
	wait "$server"
}


export_of_tank='nbd+unix:///tank?socket=/run/nbd'

need loop md-mod raid456
export PARAPET_STATE=/run/parapet PARAPET_RUNTIME=/run/parapet
mkdir /run/parapet
mount -t tmpfs tmpfs /etc/mdadm
/lib/systemd/systemd-udevd --daemon --resolve-names=never
udevadm trigger --type=all --action=add
settle
members=
for file in m0 m1 m2; do
	members="$members $(losetup --find --show "$file")"
done
settle
