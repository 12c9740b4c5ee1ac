# Debian's aoetools, and fio. The server first refuses the commands that change something; then it
# is another one, which lets them in, and the array is degraded.

# says FILE WORD...: a line of the file has these words.
says() {
	file=$1
	shift
	tr -s ' \t' ' ' <"$file" | grep -q -- "$*" || fail "$file does not say $*: $(cat "$file")"
}

# config COMMAND STRING: what aoecfg prints. It does not know how many will answer: it waits for all
# of its time.
config() {
	aoecfg -t 2 -c "$1" -s "$2" 1 0 "$ports"
}

# configured STRING: so the target says that it is.
configured() {
	[ "$(config read '')" = "$1" ] || fail "the config string is $(config read ''), not $1"
}

# smart STATUS: the registers of SMART's status, LBA Mid and High.
smart() {
	timeout 20 aoeping -s 10 -S return_status 1 0 "$ports" >smart || fail "SMART is not answered"
	says smart "LBA Mid: $1"
	says smart "LBA High: $2"
	says smart "Status: 0x40"
}

connect
aoe-discover || fail "aoe-discover does not discover"
aoe-stat >stat
says stat "e1.0 0.[0-9]*GB $ports $expected up"
timeout 20 aoeping -s 10 -I 1 0 "$ports" >identity || fail "IDENTIFY is not answered"
read -r uuid <uuid
says identity "serial_number: $(echo "$uuid" | tr -d : | cut -c 1-20)"
says identity "model: Parapet raid5"
smart 0x4f 0xc2
timeout 60 aoe-sancheck >sane
says sane "$ports UP $mtu"
# It is the last line: there is no advice below it.
tail -n 1 sane >verdict
says verdict "e1.0 1 $expected $ports"

configured ''
[ "$(config set rack-7)" = '*badcmd*' ] || fail "whoever is on the wire can configure the target"
configured ''
: >refused
until_so [ -e allowed ]

[ "$(config set rack-7)" = rack-7 ] || fail "an empty config string cannot be set"
[ "$(config set rack-8)" != rack-8 ] || fail "a config string that is set can be set"
configured rack-7
[ "$(config test rack-7)" = rack-7 ] || fail "the whole string is not compared"
[ -z "$(config test rack)" ] || fail "a part of it is taken for the whole string"
[ "$(config prefix rack)" = rack-7 ] || fail "the prefix is not compared"
[ -z "$(config prefix cellar)" ] || fail "another prefix is taken for it"
[ "$(config fset rack-8)" = rack-8 ] || fail "a config string cannot be replaced"
configured rack-8
smart 0xf4 0x2c

# Blocks of all sizes at random, and large ones in order, each with its checksum.
fio --output=fio --thread --filename="$disk" --direct=1 --ioengine=libaio --iodepth=16 \
	--verify=crc32c --verify_fatal=1 --size=32m \
	--name=random --rw=randwrite --bsrange=512-64k --bs_unaligned=0 \
	--name=large --offset=64m --rw=write --bs=256k || fail "fio: $(cat fio)"
says fio "err= 0"
disconnect
