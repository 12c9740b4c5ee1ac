# The kernel assembles an array with a spare and members that were given up ($out): they stay out.
# If $lost fails, the spare takes its place.
. ./cell
assemble $(attach_all $files)
is_whole || fail "a member is missing"
for file in $out; do
	[ -z "$(member "$file" state | grep in_sync)" ] || fail "$file is a member again"
done
holds before
if [ -n "$lost" ]; then
	mdadm /dev/md0 --fail "$(device_of "$lost")"
	idle
	is_whole || fail "no spare has taken its place"
	write_some before 700
fi
check
holds before
stop
