# A machine for docs/admin.md, in mount and network namespaces of its own: `/dev` with five disks
# (loop devices), empty `/etc/parapet`, `/run`, `/var/lib` and `/srv`; `systemctl` and `reboot` do
# what systemd does with the unit. Arguments: a folder, the program, the unit, and the receivers.

set -euo pipefail
folder=$1 program=$2 unit=$3 receivers=$4
cd "$folder"

disks=()
for number in 1 2 3 4 5; do
    truncate -s 96M "disk$number"
    disks+=("$(losetup --find --show "$folder/disk$number")")
done

finish() {
    umount --quiet /srv/tank || true
    [ ! -e daemon.pid ] || systemctl stop parapet
    kill "$listener"
    losetup --detach "${disks[@]}"
}
trap finish EXIT

numbers() { stat --format='0x%t 0x%T' "$1"; }

mkdir dev dev/shm dev/disk dev/disk/by-id etc bin
mount -t tmpfs tmpfs dev
mkdir -p dev/shm dev/disk/by-id
for node in null zero full random urandom tty fuse loop-control; do
    mknod "dev/$node" c $(numbers "/dev/$node")
done
for index in $(seq 0 255); do mknod "dev/loop$index" b 7 "$index"; done
letters=(b c d e f)
plug() {
    local letter=${letters[$1 - 1]}
    mknod "$2/sd$letter" b $(numbers "${disks[$1 - 1]}")
    ln -s "../../sd$letter" "$2/disk/by-id/ata-SHELF-$1"
}
for number in 1 2 3 4; do plug "$number" dev; done
ln -s /proc/self/fd dev/fd
cp -a /etc/. etc/
: >etc/fstab
mount --rbind /dev/shm dev/shm
mount --rbind "$folder/dev" /dev
mount --bind "$folder/etc" /etc
for place in /run /var/lib /srv; do mount -t tmpfs tmpfs "$place"; done
ip link set lo up

ln -s "$program" bin/parapet
cat >bin/systemctl <<END
#!/bin/bash
set -eu
start() {
    setsid $(sed -n 's/^ExecStart=//p' "$unit" | sed 's:^/usr/bin/::') >>$folder/log 2>&1 &
    echo \$! >$folder/daemon.pid
    until [ -S /run/parapet/daemon.sock ]; do kill -0 \$!; sleep 0.1; done
}
stop() {
    local pid=\$(cat $folder/daemon.pid)
    kill "\$pid"
    while [ -e "/proc/\$pid" ]; do sleep 0.1; done
    rm $folder/daemon.pid
}
case \$1 in
enable | start) start ;;
stop) stop ;;
esac
END
cat >bin/reboot <<END
#!/bin/bash
set -eu
umount /srv/tank
systemctl stop parapet
systemctl start parapet
mount --all
END
chmod +x bin/systemctl bin/reboot
export PATH="$folder/bin:$PATH"

/usr/bin/python3 "$receivers/admin.py" mails posts >listening &
listener=$!
until [ -s listening ]; do sleep 0.1; done

# The directives of docs/admin.md.
told() {
    until grep --quiet "$1" mails && grep --quiet "$1" posts; do sleep 0.2; done
}
page() {
    until /usr/bin/python3 -c "
import sys, urllib.request
text = urllib.request.urlopen('http://127.0.0.1:7580/').read().decode()
sys.exit('$1' not in text)"; do sleep 0.2; done
}
pull() {
    truncate -s 0 "disk$1"
    losetup --set-capacity "${disks[$1 - 1]}"
}
insert() { plug "$1" /dev; }
