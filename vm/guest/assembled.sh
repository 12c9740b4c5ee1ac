# The kernel makes an array, and another one beside it; then mdadm puts the first together by what
# people know of it: its members in any order, its UUID, its name, what a configuration says. With
# as few members as it can do ($lost of them missing), never with fewer.
. ./cell

# works HOW...: mdadm assembles it so, and it is the array.
works() {
	mdadm --assemble --readonly "$@" || fail "not assembled: $*"
	holds before
	mdadm --stop /dev/md0
}

# refused HOW...: mdadm does not start it so.
refused() {
	! mdadm --assemble --readonly "$@" || fail "assembled: $*"
	[ ! -e /sys/block/md0 ] || mdadm --stop /dev/md0 || true
}

create
forget $devices
stop
others=$(attach_all o0 o1)
mdadm --create /dev/md1 --run --homehost=none --name=other --metadata="$metadata" --level=1 \
	--bitmap=none --assume-clean --raid-devices=2 $others
mdadm --stop /dev/md1

set -- $devices
uuid=$(mdadm --examine --export "$1" | sed -n 's/^MD_UUID=//p')
works /dev/md0 "$3" "$1" "$2"
works /dev/md0 --uuid="$uuid" $others $devices
works /dev/md0 --homehost=none --name=tank $others $devices
printf 'DEVICE %s\nARRAY /dev/md0 UUID=%s\n' "$(echo $others $devices)" "$uuid" >conf
works --scan --config=conf
if [ "$lost" = 1 ]; then
	refused /dev/md0 "$1" "$2"
	works --run /dev/md0 "$1" "$2"
	refused --run /dev/md0 "$1"
else
	refused --run /dev/md0 "$1" "$2"
fi
