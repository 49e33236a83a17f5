# All files of a round that was over are there.
for round in $(cat "$OUTSIDE/rounds" 2>/dev/null); do
    test "$(find files/$round -type f -size 10000c | wc -l)" = $((100 * SCALE))
done
