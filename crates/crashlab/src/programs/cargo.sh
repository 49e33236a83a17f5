# This project, built where it is tested.
needs cargo git
mkdir project
git -C "$PROJECT" archive HEAD | tar -xf - -C project
cd project
unset CARGO_TARGET_DIR
cargo build --quiet --offline --locked -p userbtrfs
target/debug/userbtrfs --version
cargo build --offline --locked -p userbtrfs 2>"$OUTSIDE/second"
! grep Compiling "$OUTSIDE/second"
