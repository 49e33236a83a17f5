# Small files, each synced, by several at once. The rounds of which all files are synced stand in
# $OUTSIDE/rounds.
needs fs_mark
mkdir files
phase files
for round in $(seq 10); do
    fs_mark -k -d files/$round -l "$OUTSIDE/fs_mark" -s 10000 -n $((25 * SCALE)) -t 4 -D 8 -S 1 -L 1
    echo $round >>"$OUTSIDE/rounds"
done
test "$(find files -type f -size 10000c | wc -l)" = $((1000 * SCALE))
