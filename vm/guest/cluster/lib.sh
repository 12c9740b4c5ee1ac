# What the two machines of a cluster have in common: a disk that both use, a wire between them, and
# OCFS2 with its own cluster stack. `number` is 1 here and `other` is 2 on the first machine.

. "$guest/modules.sh"
. "$guest/exercise.sh"
mkdir /run/disk
# Each uses its own folder.
ln -s "/run/disk/host$number" /run/fs
theirs="/run/disk/host$other"
tree=/sys/kernel/config/cluster/pool

# The cluster stack knows both, and mounts.
join() {
	need virtio_net virtio_blk ocfs2 ocfs2_stack_o2cb
	until_so [ -e /sys/class/net/eth1 ]
	until_so [ -b /dev/vda ]
	"$busybox" ip address add "192.168.9.$number/24" dev eth1
	"$busybox" ip link set eth1 up
	"$busybox" hostname "host$number"
	mount -t configfs configfs /sys/kernel/config
	mkdir "$tree"
	for host in 1 2; do
		mkdir "$tree/node/host$host"
		echo 7777 >"$tree/node/host$host/ipv4_port"
		echo "192.168.9.$host" >"$tree/node/host$host/ipv4_address"
		echo "$host" >"$tree/node/host$host/num"
	done
	echo 1 >"$tree/node/host$number/local"
	mount -t ocfs2 /dev/vda /run/disk
	mkdir "/run/disk/host$number"
	touch /run/fs/here
	until_so [ -e "$theirs/here" ]
}

# Both add to one number, and a line to one file, one at a time by a lock of the cluster. `added` is
# this machine's part.
add() {
	added=0
	until [ -e enough ]; do
		flock /run/disk/lock sh -c \
			'echo $(($(cat "$0" || true) + 1)) >"$0" && echo >>"$1"' /run/disk/number /run/disk/lines
		added=$((added + 1))
		echo "$added" >added
	done
}

# No request has failed until here.
leave() {
	umount /run/disk
	! dmesg | grep 'I/O error' || fail "a request has failed"
}
