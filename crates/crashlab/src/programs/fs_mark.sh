# Small files, each synced, by several at once.
needs fs_mark
mkdir files
fs_mark -k -d files -l "$OUTSIDE/fs_mark" -s 10000 -n $((250 * SCALE)) -t 4 -D 8 -S 1 -L 1
test "$(find files -type f -size 10000c | wc -l)" = $((1000 * SCALE))
