# What the stories have in common. A member is a file of the host's folder behind a loop device, so
# that the guest's memory is its cache: a guest that is killed loses what it has not flushed.

mkdir -p /run/lib/modules
ln -s "$modules" "/run/lib/modules/$(uname -r)"
modprobe -d /run -a loop md-mod raid0 raid1 raid10 raid456
# Linux 6.8 is without it.
modprobe -d /run linear || true
# Nobody else is to be spared by a resync.
echo 2000000 >/proc/sys/dev/raid/speed_limit_max
echo 2000000 >/proc/sys/dev/raid/speed_limit_min

# Says what went wrong, and ends the story.
fail() {
	echo "FAILED: $*"
	exit 1
}

# attach FILE: prints the device that it is.
attach() {
	losetup --find --show "$1"
}

# attach_all FILE...: their devices, in this order.
attach_all() {
	for file; do attach "$file"; done
}

# device_of FILE: the device that it is attached to.
device_of() {
	losetup --noheadings --output NAME --associated "$1"
}

# member FILE WHAT: what md says of a member; nothing if it is none.
member() {
	cat "/sys/block/md0/md/dev-$(basename "$(device_of "$1")")/$2" 2>/dev/null || true
}

# written FILE: bytes written to its device, by whomever.
written() {
	set -- $(cat "/sys/block/$(basename "$(device_of "$1")")/stat")
	echo $(($7 * 512))
}

# Nothing of this story's devices stays.
detach_all() {
	losetup --detach-all
}

# md NAME: what md says. Programs take long to start in a guest; this one is the shell's own.
md() {
	read -r said <"/sys/block/md0/md/$1"
	echo "$said"
}

tell_md() {
	echo "$2" >"/sys/block/md0/md/$1"
}

# assemble DEVICE...: and lets the kernel write. After mdadm has assembled an array it waits for the
# first write before it begins a resync; a check that is asked for before that comes first, clears
# the bitmap as it goes, and leaves the resync nothing to do.
assemble() {
	mdadm --assemble --run /dev/md0 "$@" || return
	[ "$(md array_state)" != read-auto ] || mdadm --readwrite /dev/md0
}

# create: mdadm makes the array that `cell` tells of, and fills it; `before` is what it holds.
create() {
	devices=$(attach_all $files)
	mdadm --create /dev/md0 --run --homehost=none --name=tank --metadata="$metadata" \
		--level="$level" $flags --raid-devices="$members" $devices
	head -c "$(bytes)" "$pattern" >before
	dd if=before of=/dev/md0 bs=1M conv=fsync status=none
	idle
}

# Is every member there, for levels that can do without?
is_whole() {
	[ ! -e /sys/block/md0/md/degraded ] || [ "$(md degraded)" = 0 ]
}

# list_bad FILE LINES: these are bad blocks of a member: sector of its data, and sectors, a line
# each. The list is written with the next superblock.
list_bad() {
	folder=/sys/block/md0/md/dev-$(basename "$(device_of "$1")")
	echo "$2" | while read -r sector count; do
		[ -z "$sector" ] || echo "$(($(cat "$folder/offset") + sector)) $count" >"$folder/bad_blocks"
	done
}

# has_policy: what the array is to have on record about writes under way, as `mdadm --detail` names
# it ($policy), is there.
has_policy() {
	[ -z "$policy" ] || mdadm --detail /dev/md0 | grep -q "Consistency Policy : $policy\$" ||
		fail "another consistency policy"
}

# Until no resync, recovery or check is under way, nor about to be: `sync_action` says idle, too,
# while the kernel has not yet begun what it knows it must do.
idle() {
	[ -e /sys/block/md0/md/sync_action ] || return 0
	while [ "$(md sync_action)" != idle ] || [ "$(md resync_start)" != none ] || rebuild_is_due; do
		sleep 0.1
	done
}

# Is there a spare to fill?
rebuild_is_due() {
	[ "$(md degraded)" != 0 ] && grep -qx 'spare' /sys/block/md0/md/dev-*/state
}

# forget DEVICE...: until their bitmaps tell of nothing.
forget() {
	for device; do
		while mdadm --examine-bitmap "$device" | grep -q 'Bitmap .* [1-9][0-9]* dirty'; do sleep 0.2; done
	done
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
	read -r sectors </sys/block/md0/size
	echo $((sectors * 512))
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
