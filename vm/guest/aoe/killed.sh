# Files are written, each durable before `durable` counts it, and others are used beside them, until
# the power is cut.

connect
make_fs
exercise 40 never &
number=0
while :; do
	number=$((number + 1))
	file=/run/fs/durable.$number
	tail -c +"$number" pattern | head -c 300000 >/run/part
	dd if=/run/part of="$file" bs=50000 conv=fsync status=none || fail "$file cannot be written"
	[ "$number" -lt 40 ] || rm "/run/fs/durable.$((number - 39))"
	echo "$number" >durable
	# Whoever finds a fault makes it.
	[ ! -e enough ] || fail "a file does not hold what was put there"
done
