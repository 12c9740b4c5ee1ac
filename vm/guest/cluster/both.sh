# Both machines use the file system until the host says `enough`; then each reads what the other has
# written.
join
add &
adds=$!
exercise 100 enough
wait "$adds"
cp added /run/fs
(cd /run/fs && sha256sum file.* >sums.new && sync)
mv /run/fs/sums.new /run/fs/sums
until_so [ -e "$theirs/sums" ]
(cd "$theirs" && sha256sum -c sums) || fail "the other's files are not as it wrote them"
still_exercised
both=$(($(cat added) + $(cat "$theirs/added")))
[ "$(cat /run/disk/number)" = "$both" ] || fail "$both additions: $(cat /run/disk/number)"
lines=$(wc -l </run/disk/lines)
[ "$lines" = "$both" ] || fail "$both additions: $lines lines"
touch /run/fs/read
until_so [ -e "$theirs/read" ]
leave
