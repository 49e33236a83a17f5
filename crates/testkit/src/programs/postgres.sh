# A database server: what it counts agrees, and each block of it has its checksum. pgbench writes a
# line into $OUTSIDE/transactions.* for each transaction that was committed.
programs=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -n 1)
PATH=$programs:$PATH
needs initdb postgres pgbench setpriv
chmod 777 "$OUTSIDE"
phase initdb
mkdir data
chown postgres data
chmod 700 data
as() { setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; }
as initdb -k -D data >"$OUTSIDE/initdb"
phase start
# pg_ctl finds the server by what is in the mount, which may be gone. Until it has ended nobody else
# can have its socket.
end_server() {
    kill -QUIT $(cat "$OUTSIDE/pid")
    for _ in $(seq 100); do
        test -e "$OUTSIDE/pid" || break
        sleep 0.1
    done
}
trap end_server EXIT
as pg_ctl -w -D data -l "$OUTSIDE/server" \
    -o "-c listen_addresses= -k '$OUTSIDE' -c external_pid_file='$OUTSIDE/pid'" start
phase fill
as pgbench -q -h "$OUTSIDE" -i -s 5 postgres
phase transactions
as pgbench -h "$OUTSIDE" -c 8 -T 30 --log --log-prefix="$OUTSIDE/transactions" postgres
phase sums
sums='SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM
    pgbench_history) AND (SELECT sum(bbalance) FROM pgbench_branches) = (SELECT sum(delta) FROM
    pgbench_history)'
test "$(as psql -h "$OUTSIDE" -At -c "$sums" postgres)" = t
phase stop
trap - EXIT
as pg_ctl -w -m fast -D data stop
phase checksums
as pg_checksums --check -D data
