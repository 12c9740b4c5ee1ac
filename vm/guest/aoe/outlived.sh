# The server is away for longer than the driver waits: requests fail, the device is down, and it is
# usable again when the server is back.

connect
dd if=pattern of="$disk" bs=64k oflag=direct
: >written
until_so [ -e gone ]
! dd if="$disk" of=/dev/null bs=4k count=1 iflag=direct || fail "a read without a server succeeded"
[ "$(state)" = down ] || fail "the device is $(state)"
: >failed
until_so [ -e back ]
until_so is_back
echo 3 >/proc/sys/vm/drop_caches
cmp -n "$(stat -c %s pattern)" pattern "$disk" || fail "the device has other bytes"
