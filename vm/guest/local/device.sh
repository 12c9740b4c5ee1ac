# The device has the array's size, and flush, FUA, trim and read-only reach it; two threads serve.
need ext4
create 5
serve --threads 2
order attach tank --how "$how"
says "\"how\":\"$how\""
bytes=$(tr ',' '\n' <status.tank | sed -n 's/.*"capacity_bytes":\([0-9]*\).*/\1/p')
[ "$(blockdev --getsize64 "$disk")" = "$bytes" ] || fail "the size is not $bytes"
queue=/sys/block/$(basename "$(readlink -f "$disk")")/queue
[ "$(cat "$queue/write_cache")" = "write back" ] || fail "the kernel sends no flush"
[ "$(cat "$queue/fua")" = 1 ] || fail "the kernel sends no FUA"
[ "$(cat "$queue/discard_max_bytes")" -gt 0 ] || fail "the kernel sends no trim"

# A durable direct write is one request with FUA.
head -c 65536 /dev/urandom >durable
dd if=durable of="$disk" bs=4k oflag=direct,dsync
kill -KILL "$server"
wait "$server" || true
serve --threads 2
echo 3 >/proc/sys/vm/drop_caches
cmp -n 65536 durable "$disk" || fail "a durable write is lost"
blkdiscard --offset 0 --length 1M "$disk"
dd if="$disk" bs=64k count=1 iflag=direct | cmp -n 65536 - /dev/zero || fail "trimmed bytes stay"
order detach tank
order stop tank
wait "$server"

serve --read-only
order attach tank --how "$how"
[ "$(blockdev --getro "$disk")" = 1 ] || fail "the device is not read-only"
! dd if=durable of="$disk" bs=4k count=1 oflag=direct || fail "a read-only device takes writes"
order detach tank
order stop tank
wait "$server"
