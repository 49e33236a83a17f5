# Ends the script where a program is not here.
needs() {
    for program; do
        command -v $program >/dev/null || { echo no $program; exit 77; }
    done
}
# Says what begins.
phase() { echo "$1" >>"$OUTSIDE/phases"; }
# Makes files durable that are not changed any more, and says so.
durable() {
    sync "$@"
    sha256sum "$@" >>"$OUTSIDE/durable"
}
