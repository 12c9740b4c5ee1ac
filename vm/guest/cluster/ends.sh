# This machine is going to end in the midst of it: the host learns which files are durable.
join
{
	number=0
	while :; do
		name="durable.$number"
		head -c 65536 /dev/urandom >"/run/fs/$name"
		sync "/run/fs/$name"
		(cd /run/fs && sha256sum "$name") >>durable
		number=$((number + 1))
	done
} &
# A fenced disk fails all requests. Programs may learn of it first; the file system ends the
# machine.
(exercise 1000000000) || while :; do sleep 60; done
