# What the stories of clients have in common: the server is the host's; the guest has a network, a
# block device of the array by the kernel's own client, and a file system on it.

. "$guest/modules.sh"
. "$guest/exercise.sh"
mkdir /run/fs

# The network of a guest of QEMU's: the host is 10.0.2.2.
network() {
	need virtio_net
	until_so [ -e /sys/class/net/eth0 ]
	"$busybox" ip address add 10.0.2.15/24 dev eth0
	"$busybox" ip link set eth0 up
}

is_connected() {
	[ "$(cat /sys/block/nbd0/size)" -gt 0 ]
}

# So many connections to the server are open.
connections() {
	grep -c ":$(printf %04X "$port") 01 " /proc/net/tcp
}

# Four connections by nbd-client; ended by `disconnect`.
connect() {
	nbd-client 10.0.2.2 "$port" /dev/nbd0 -name tank -connections 4 -block-size 4096
	until_so is_connected
	[ "$(connections)" = 4 ] || fail "$(connections) connections"
}

# The same, and requests wait for a server that has gone.
connect_again_and_again() {
	"$vm" attach "10.0.2.2:$port" tank 0 4 >attached 2>&1 &
	until_so is_connected
	[ "$(connections)" = 4 ] || fail "$(connections) connections"
}

# No request has failed until here.
disconnect() {
	! dmesg | grep 'I/O error' || fail "a request has failed"
	nbd-client -d /dev/nbd0
}

make_fs() {
	case $fs in
	ext4) mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 /dev/nbd0 ;;
	xfs) mkfs.xfs -q /dev/nbd0 ;;
	esac
	mount_fs
}

mount_fs() {
	mount -t "$fs" /dev/nbd0 /run/fs
}

# The file system's own checker finds nothing that it would mend.
check_fs() {
	umount /run/fs
	case $fs in
	ext4) e2fsck -f -n /dev/nbd0 ;;
	xfs) xfs_repair -n /dev/nbd0 ;;
	esac || fail "the file system is not in order"
}
