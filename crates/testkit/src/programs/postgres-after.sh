# A server that starts again has all that was committed.
was() { grep -qx $1 "$OUTSIDE/phases"; }
was start || exit 0
PATH=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1):$PATH
as() { setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; }
# Another process may have the number by now that the server had.
rm -f data/postmaster.pid
trap 'as pg_ctl -w -m immediate -D data stop' EXIT
as pg_ctl -w -D data -l "$OUTSIDE/server-after" -o "-c listen_addresses= -k '$OUTSIDE'" start || {
    cat "$OUTSIDE/server-after"
    exit 1
}
ask() { as psql -h "$OUTSIDE" -At -c "$1" postgres; }
! was transactions || test "$(ask 'SELECT count(*) FROM pgbench_accounts')" = 500000
if was transactions; then
    committed=$(cat "$OUTSIDE"/transactions.* | wc -l)
    there=$(ask 'SELECT count(*) FROM pgbench_history')
    echo "$committed transactions were committed, $there are there"
    test $there -ge $committed
    sums='SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM
        pgbench_history)'
    test $there = 0 || test "$(ask "$sums")" = t
fi
trap - EXIT
as pg_ctl -w -m fast -D data stop
as pg_checksums --check -D data
