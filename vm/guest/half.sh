# The kernel makes an array and begins to fill `spare`: in place of the second member, which is
# lost, or as a copy of it ($how). It is stopped at sector $until of each member.
. ./cell
create
set -- $devices
if [ "$how" = rebuild ]; then
	mdadm /dev/md0 --fail "$2"
	mdadm /dev/md0 --remove "$2"
	write_some before 100
fi
tell_md sync_max "$until"
spare=$(attach spare)
mdadm /dev/md0 --add "$spare"
[ "$how" = rebuild ] || mdadm /dev/md0 --replace "$2" --with "$spare"
while [ "$(md sync_completed | cut -d ' ' -f 1)" != "$until" ]; do sleep 0.1; done
mdadm --stop /dev/md0
