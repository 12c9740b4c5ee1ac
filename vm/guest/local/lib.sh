# What the stories of local disks have in common: Parapet runs in the guest, on members in its
# memory, and the guest's kernel has a block device of the array.

. "$guest/modules.sh"
. "$guest/exercise.sh"
mkdir /run/fs /run/members /run/parapet
export PARAPET_STATE=/run/parapet PARAPET_RUNTIME=/run/parapet
disk=/dev/parapet/tank
members=
for number in 0 1 2 3; do
	members="$members /run/members/m$number"
done

case $how in
ublk) need ublk_drv ;;
nbd) need nbd ;;
esac

order() {
	"$parapet" "$@" --control unix:/run/control
}

# create LEVEL: the array tank.
create() {
	"$parapet" create tank --yes --level "$1" --chunk 64K --new-files 112M $members
}

# serve OPTION...
serve() {
	: >ready
	"$parapet" serve tank $members "$@" --control unix:/run/control --json >ready 2>>server.log &
	server=$!
	until_so [ -s ready ]
	! grep -q '"error":{' ready || fail "no server: $(cat ready)"
}

# says TEXT: the status has this text.
says() {
	order status tank --json >status.tank
	grep -q "$1" status.tank || fail "the status does not say $1: $(cat status.tank)"
}

make_fs() {
	case $fs in
	ext4) mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 "$disk" ;;
	xfs) mkfs.xfs -q "$disk" ;;
	btrfs) mkfs.btrfs -q "$disk" ;;
	esac
	mount -t "$fs" "$disk" /run/fs
}

# The file system's own checker finds nothing that it would mend.
check_fs() {
	umount /run/fs
	case $fs in
	ext4) e2fsck -f -n "$disk" ;;
	xfs) xfs_repair -n "$disk" ;;
	btrfs) btrfs check --readonly "$disk" ;;
	esac || fail "the file system is not in order"
}

# The slowest worker has done so many steps.
steps() {
	least=1000000
	for seed in 1 2 3 4; do
		done=
		{ read -r done <"progress.$seed"; } 2>/dev/null || true
		[ "${done:-0}" -gt "$least" ] || least=${done:-0}
	done
	echo "$least"
}

goes_on() {
	[ -e enough ] || [ "$(steps)" -ge "$goal" ]
}

# Until each worker has done some more; what it found is said at its end.
work_on() {
	goal=$(($(steps) + 20))
	until_so goes_on
}
