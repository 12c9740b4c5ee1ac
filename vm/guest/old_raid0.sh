# The kernel makes a RAID 0 of version 0.90, which mdadm does not: of a RAID 4 without its parity.
. ./cell
devices=$(attach_all $files)
mdadm --create /dev/md0 --run --metadata=0.90 --level=4 --bitmap=none --chunk=64 \
	--raid-devices=$((members + 1)) $devices missing
tell_md level raid0
head -c "$(bytes)" "$pattern" >before
dd if=before of=/dev/md0 bs=1M conv=fsync status=none
stop
