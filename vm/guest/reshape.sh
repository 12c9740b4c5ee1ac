# The kernel makes an array, and is stopped while it reshapes it to one member more, `spare`.
. ./cell
create
mdadm /dev/md0 --add "$(attach spare)"
tell_md sync_max "$until"
mdadm --grow /dev/md0 --raid-devices=$((members + 1))
while [ "$(md sync_completed | cut -d ' ' -f 1)" != "$until" ]; do sleep 0.1; done
mdadm --stop /dev/md0
