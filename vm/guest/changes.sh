# mdadm changes what lies beside the data of an array: while it assembles it ($updates), and while
# it runs ($grow). It gets bad blocks ($bad) where it can.
. ./cell
devices=$(attach_all $files)
for update in $updates; do
	mdadm --assemble --run --update="$update" /dev/md0 $devices
	mdadm --stop /dev/md0
done
assemble $devices
holds before
[ -z "$grow" ] || mdadm --grow $grow /dev/md0
has_policy
check
# A check makes bad blocks good.
list_bad m1 "$bad"
write_some before 100
stop
