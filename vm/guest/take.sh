# The kernel takes over an array, and says what it holds (`content`). What it prints stands in
# `told`.
. ./cell
dmesg --clear
assemble $(attach_all $files) || {
	dmesg >told
	fail "the kernel does not take it"
}
dd if=/dev/md0 of=content bs=1M status=none
idle
if [ "$(md degraded)" = 0 ]; then
	check
fi
mdadm --stop /dev/md0
dmesg >told
