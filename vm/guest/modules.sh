# What all stories of the newer kernel begin with: its modules, found where the host has them.

. ./cell
mkdir -p /run/lib/modules
ln -s "$modules" "/run/lib/modules/$(uname -r)"

# Says what went wrong, with the kernel's last words, and ends the story.
fail() {
	dmesg | grep -v audit | tail -n 8
	echo "FAILED: $*"
	exit 1
}

# need MODULE...: loads them. That this kernel has none of this name is not the story's fault.
need() {
	for module; do
		modprobe -d /run "$module" && continue
		modprobe -d /run --dry-run "$module" && fail "$module cannot be loaded"
		echo "SKIPPED: Linux $(uname -r) has no $module"
		exit 77
	done
}

# until_so COMMAND...: asks until it succeeds, seldom: programs take long to start in a guest.
until_so() {
	until "$@"; do sleep 0.5; done
}
