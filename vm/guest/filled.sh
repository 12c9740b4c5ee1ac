# The kernel makes an array, fills it, and knows of nothing that would have to be synced.
. ./cell
create
forget $devices
stop
