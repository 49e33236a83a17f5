# A database in both of its ways, with a transaction for each row. What was committed stands in
# $OUTSIDE: in sqlite-wal and sqlite-delete, a number a line. SQLite reports a commit also if it
# cannot open the directory to sync it, as after the end of the server. So a row counts if the server
# answers a request afterwards.
needs sqlite3
rows=$((200 * SCALE))
rows_by() {
    {
        echo ".bail on"
        # EXTRA, so that with a rollback journal a commit is durable when it returns.
        echo "PRAGMA journal_mode=$1; PRAGMA synchronous=EXTRA;"
        echo "CREATE TABLE t(n INTEGER PRIMARY KEY, text TEXT);"
        for n in $(seq $rows); do
            echo "INSERT INTO t VALUES($n, hex(randomblob(500)));"
            echo ".shell stat --file-system . >/dev/null && echo $n"
        done
    } >"$OUTSIDE/script"
    sqlite3 $1.db <"$OUTSIDE/script" >"$OUTSIDE/sqlite-$1"
    test "$(sqlite3 $1.db 'SELECT count(*), sum(n) FROM t')" = "$rows|$((rows * (rows + 1) / 2))"
    test "$(sqlite3 $1.db 'PRAGMA integrity_check')" = ok
}
phase wal
rows_by wal
phase delete
rows_by delete
