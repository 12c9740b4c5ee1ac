# What stories with a file system at /run/fs do with its files (vm/src/inside/exercise.rs).

# exercise LEAST [UNTIL]: four files at once are used in every way, so many steps each at the least,
# until there is this file. Who finds a fault makes it, too: nothing is to be waited for.
exercise() {
	workers=
	for seed in 1 2 3 4; do
		{
			"$vm" exercise "/run/fs/file.$seed" "$seed" "$@" || {
				: >enough
				false
			}
		} &
		workers="$workers $!"
	done
	for worker in $workers; do
		wait "$worker" || fail "a file does not hold what was put there"
	done
}

# What was exercised is on the disk.
still_exercised() {
	for seed in 1 2 3 4; do
		cmp "model.$seed" "/run/fs/file.$seed" || fail "file.$seed has changed"
	done
}
