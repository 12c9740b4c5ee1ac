# The kernel makes an array, is told to resync it, and is stopped at sector $until.
. ./cell
create
stop
# Nothing is done before there is a limit.
echo 1 >/sys/module/md_mod/parameters/start_ro
mdadm --assemble --run --update=resync /dev/md0 $devices
tell_md sync_max "$until"
mdadm --readwrite /dev/md0
while [ "$(md sync_completed | cut -d ' ' -f 1)" != "$until" ]; do sleep 0.1; done
mdadm --stop /dev/md0
