# mdadm makes a small array, fills it, and leaves it in the state that its image is to show.
. ./cell
devices=$(attach_all $files)
mdadm --create /dev/md0 --run --homehost=none --name=golden --uuid="$uuid" \
	--metadata="$metadata" --level="$level" $flags --raid-devices="$members" $devices
head -c "$(bytes)" pattern >expected
dd if=expected of=/dev/md0 bs=1M conv=fsync status=none
idle
case $state in
degraded)
	set -- $devices
	mdadm /dev/md0 --fail "$2"
	mdadm /dev/md0 --remove "$2"
	;;
dirty)
	# The same bytes once more, and nobody calls it clean before the power is cut.
	tell_md safe_mode_delay 1000
	dd if=expected of=/dev/md0 bs=64K count=4 conv=fsync,notrunc status=none
	: >written
	while :; do sleep 1; done
	;;
esac
stop
