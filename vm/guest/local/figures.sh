# The same array by ublk and by the kernel's NBD client, in turn: I/O operations per second. RAID 0,
# where the array itself costs least.
need ublk_drv nbd
create 0
serve

# measure WAY NAME OPTION...: a line `NAME WAY IOPS` for figures.
measure() {
	way=$1 name=$2
	shift 2
	fio --name=f --filename="$disk" --ioengine=libaio --direct=1 --runtime=2 --time_based \
		--output-format=terse --terse-version=3 "$@" >fio.out
	# Operations per second of reads and of writes.
	echo "$name $way $(awk -F ';' '{ print $8 + $49 }' fio.out)" >>figures
}

for round in 1 2 3 4 5; do
	for way in ublk nbd; do
		order attach tank --how "$way"
		measure "$way" read-4k-32 --rw=randread --bs=4k --iodepth=32
		measure "$way" write-4k-32 --rw=randwrite --bs=4k --iodepth=32
		measure "$way" read-512k-8 --rw=read --bs=512k --iodepth=8
		order detach tank
	done
done
order stop tank
wait "$server"
