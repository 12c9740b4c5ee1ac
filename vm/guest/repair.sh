# The kernel repairs what disagrees, and says what the array holds then (`content`).
. ./cell
assemble $(attach_all $files)
idle
tell_md sync_action repair
idle
check
dd if=/dev/md0 of=content bs=1M status=none
mdadm --stop /dev/md0
