# Small files, each synced, by several at once, each in a directory of its own: two of them may give
# all of their files the same names. The rounds of which all files are synced stand in
# $OUTSIDE/rounds.
needs fs_mark
mkdir files
phase files
for round in $(seq 10); do
    dirs=
    for dir in 1 2 3 4; do
        mkdir -p files/$round/$dir
        dirs="$dirs -d files/$round/$dir"
    done
    fs_mark -k $dirs -l "$OUTSIDE/fs_mark" -s 10000 -n $((25 * SCALE)) -t 4 -D 8 -S 1 -L 1
    echo $round >>"$OUTSIDE/rounds"
done
test "$(find files -type f -size 10000c | wc -l)" = $((1000 * SCALE))
