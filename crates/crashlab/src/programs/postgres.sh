# A database server: what it counts agrees, and each block of it has its checksum.
programs=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -n 1)
PATH=$programs:$PATH
needs initdb postgres pgbench setpriv
chmod 777 "$OUTSIDE"
mkdir data
chown postgres data
chmod 700 data
as() { setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; }
as initdb -k -D data >"$OUTSIDE/initdb"
as pg_ctl -w -D data -l "$OUTSIDE/server" -o "-c listen_addresses= -k '$OUTSIDE'" start
trap 'as pg_ctl -w -m immediate -D data stop' EXIT
as pgbench -q -h "$OUTSIDE" -i -s 5 postgres
as pgbench -h "$OUTSIDE" -c 8 -T 30 postgres
sums='SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM
    pgbench_history) AND (SELECT sum(bbalance) FROM pgbench_branches) = (SELECT sum(delta) FROM
    pgbench_history)'
test "$(as psql -h "$OUTSIDE" -At -c "$sums" postgres)" = t
trap - EXIT
as pg_ctl -w -m fast -D data stop
as pg_checksums --check -D data
