# What the stories of AoE have in common: the server is the host's, at the other end of a tap; the
# guest has the kernel's own initiator.

. "$guest/modules.sh"
. "$guest/exercise.sh"
mkdir /run/fs
disk=/dev/etherd/e1.0

# connect: the ports up, the driver loaded, and the device there. A device of which nothing is heard
# for so many seconds is down: a server that is killed is back before.
connect() {
	# User-mode Linux has them built in.
	[ "$machine" = uml ] || need virtio_net ext4
	for port in $ports; do
		until_so [ -e "/sys/class/net/$port" ]
		ip link set "$port" mtu "$mtu"
		ip link set "$port" up
	done
	modprobe -d /run aoe aoe_deadsecs="$deadsecs"
	until_so is_there
	until_so [ -b "$disk" ]
}

is_there() {
	[ -e '/sys/block/etherd!e1.0/size' ] && [ "$(cat '/sys/block/etherd!e1.0/size')" -gt 0 ]
}

state() {
	cat '/sys/block/etherd!e1.0/state'
}

# Asks the driver to look for a device that is down.
is_back() {
	echo e1.0 >/dev/etherd/revalidate
	[ "$(state)" = up ] && is_there
}

# The payload that the driver has agreed on, in bytes.
payload() {
	cat '/sys/block/etherd!e1.0/payload'
}

# No request has failed until here, and the device was never down.
disconnect() {
	! dmesg | grep 'I/O error' || fail "a request has failed"
	[ "$(state)" = up ] || fail "the device is not up"
}

make_fs() {
	mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 "$disk"
	mount_fs
}

mount_fs() {
	mount -t ext4 "$disk" /run/fs
}

# The file system's own checker finds nothing that it would mend.
check_fs() {
	umount /run/fs
	e2fsck -f -n "$disk" || fail "the file system is not in order"
}
