# The MTU of the link changes again and again while a file system is used. The host asks by the
# file `asked`: the port's MTU, and the payload that the driver must agree on then; `followed`
# repeats it.

has_payload() {
	[ "$(payload)" = "$1" ]
}

# follow: does what is asked, until the host has had enough.
follow() {
	last=none
	until [ -e enough ]; do
		read -r next <asked
		if [ "$next" != "$last" ]; then
			set -- $next
			ip link set "$ports" mtu "$1"
			[ "$1" = "$mtu" ] || aoe-discover
			until_so has_payload "$2"
			last=$next
			echo "$next" >followed
		fi
		sleep 0.1
	done
}

connect
make_fs
follow &
follower=$!
exercise 40 enough
wait "$follower" || fail "the port's MTU cannot be changed"
check_fs
mount_fs
echo 3 >/proc/sys/vm/drop_caches
still_exercised
check_fs
disconnect
