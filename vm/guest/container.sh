# The kernel makes a mirror in a container of another format, $metadata.
. ./cell
export IMSM_NO_PLATFORM=1 IMSM_DEVNAME_AS_SERIAL=1
devices=$(attach_all $files)
mdadm --create /dev/md127 --run --metadata="$metadata" --raid-devices="$members" $devices
mdadm --create /dev/md0 --run --level="$level" --raid-devices="$members" /dev/md127
dd if="$pattern" of=/dev/md0 bs=1M count=8 conv=fsync status=none
mdadm --stop /dev/md0
mdadm --stop /dev/md127
