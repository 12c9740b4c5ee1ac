# A batch of the matrix's cells: each folder with a file `cell` (variables) is one. Its file `turn`
# says what to do with it; how that went stands in its `status.TURN`, what was said in `log.TURN`.

# mdadm makes and fills an array.
make() {
	devices=$(attach_all $files)
	mdadm --create /dev/md0 --run --homehost=none --name=tank --metadata="$metadata" \
		--level="$level" $flags --raid-devices="$members" $devices
	has_policy
	dd if="$pattern" of=expected bs=1M count="$(bytes)" iflag=count_bytes status=none
	dd if=expected of=/dev/md0 bs=1M conv=fsync status=none
	stop
}

# What Parapet has worked on is as good as new.
check_again() {
	assemble $(attach_all $files)
	has_policy
	is_whole || fail "a member is missing"
	holds expected
	check
	stop
}

# An array that Parapet made and filled is one of the kernel's own.
adopt() {
	devices=$(attach_all $files)
	mdadm --examine $devices >examined
	[ "$(grep -c 'Checksum : .* correct' examined)" = "$members" ] ||
		fail "mdadm --examine finds a wrong checksum"
	# One answer for all of them.
	[ "$(blkid -p -o value -s TYPE $devices | uniq)" = linux_raid_member ] ||
		fail "blkid: not a member"
	[ "$(blkid -p -o value -s UUID $devices | tr -d - | uniq)" = "$uuid" ] ||
		fail "blkid: another UUID"
	assemble $devices
	is_whole || fail "a member is missing"
	mdadm --detail /dev/md0 | tee detail
	grep -q "Raid Level : $level_name\$" detail || fail "another level"
	grep -q "Version : $metadata\$" detail || fail "another version"
	[ "$(grep 'UUID :' detail | sed 's/.*UUID : //' | tr -d :)" = "$uuid" ] || fail "another UUID"
	[ -z "$layout_name" ] || grep -q "Layout : $layout_name\$" detail || fail "another layout"
	[ "$chunk" = 0 ] || grep -q "Chunk Size : ${chunk}K\$" detail || fail "another chunk"
	has_policy
	holds expected
	write_some expected 64
	check
	if [ -n "$spare" ]; then
		set -- $devices
		mdadm /dev/md0 --fail "$2"
		mdadm /dev/md0 --remove "$2"
		write_some expected 500
		mdadm /dev/md0 --add "$(attach "$spare")"
		idle
		is_whole || fail "not rebuilt"
		check
	fi
	holds expected
	stop
}

set +e
for cell in */cell; do
	cell=${cell%/cell}
	turn=$(cat "$cell/turn")
	(
		set -eu
		cd "$cell"
		. ./cell
		"$turn"
	) >"$cell/log.$turn" 2>&1
	echo $? >"$cell/status.$turn"
	# What a failed one has left must not be in the way of the next.
	[ ! -e /sys/block/md0/md ] || mdadm --stop /dev/md0 || true
	detach_all
done
