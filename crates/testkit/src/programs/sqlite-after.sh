# Rows that were committed are there.
for mode in wal delete; do
    # The first lines are answers to its settings.
    committed=$(grep -x '[0-9]*' "$OUTSIDE/sqlite-$mode" 2>/dev/null | tail -n 1)
    test -n "$committed" || continue
    test "$(sqlite3 $mode.db 'PRAGMA integrity_check')" = ok
    last=$(sqlite3 $mode.db 'SELECT max(n) FROM t')
    echo "$mode: $committed rows were committed, $last are there"
    test $last -ge $committed
    test "$(sqlite3 $mode.db 'SELECT count(*) FROM t')" = $last
done
