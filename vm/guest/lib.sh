# What the stories have in common. A member is a file of the host's folder behind a loop device, so
# that the guest's memory is its cache: a guest that is killed loses what it has not flushed.

mkdir -p /run/lib/modules
ln -s "$modules" "/run/lib/modules/$(uname -r)"
modprobe -d /run -a loop md-mod linear raid0 raid1 raid10 raid456

# Says what went wrong, and ends the story.
fail() {
	echo "FAILED: $*"
	exit 1
}

# attach FILE: prints the device that it is.
attach() {
	[ -e /dev/loop-control ] || mknod /dev/loop-control c 10 237
	number=$(losetup --find)
	number=${number#/dev/loop}
	[ -e "/dev/loop$number" ] || mknod "/dev/loop$number" b 7 "$number"
	losetup "/dev/loop$number" "$1"
	echo "/dev/loop$number"
}

# attach_all FILE...: their devices, in this order.
attach_all() {
	for file; do attach "$file"; done
}

# Nothing of this story's devices stays.
detach_all() {
	losetup --detach-all
}

md() {
	cat "/sys/block/md0/md/$1"
}

tell_md() {
	echo "$2" >"/sys/block/md0/md/$1"
}

# Until no resync, recovery or check is under way, nor about to be.
idle() {
	while [ -e /sys/block/md0/md/sync_action ] && [ "$(md sync_action)" != idle ]; do sleep 0.1; done
}

# For levels with redundancy: the kernel compares all of it.
check() {
	[ -e /sys/block/md0/md/sync_action ] || return 0
	idle
	tell_md sync_action check
	idle
	[ "$(md mismatch_cnt)" = 0 ] || fail "mismatch_cnt is $(md mismatch_cnt)"
}

bytes() {
	echo $(($(cat /sys/block/md0/size) * 512))
}

# holds FILE: the array reads as this file, to its last byte.
holds() {
	[ "$(stat -c %s "$1")" = "$(bytes)" ] || fail "the array has $(bytes) bytes, $1 $(stat -c %s "$1")"
	# Nothing of it may come from what was written a moment ago.
	blockdev --flushbufs /dev/md0
	cmp "$1" /dev/md0 || fail "the array differs from $1"
}

# write_some FILE AT: a MiB of noise, to the array and to the file that tells what it holds.
write_some() {
	head -c 1048576 /dev/urandom >/run/noise
	dd if=/run/noise of=/dev/md0 bs=4096 seek="$2" conv=notrunc,fsync status=none
	dd if=/run/noise of="$1" bs=4096 seek="$2" conv=notrunc status=none
}

stop() {
	idle
	mdadm --stop /dev/md0
}
