# This project, built where it is tested.
needs cargo git
phase unpack
mkdir project
git -C "$PROJECT" archive HEAD | tar -xf - -C project
cd project
phase build
unset CARGO_TARGET_DIR
cargo build --quiet --offline --locked -p userbtrfs-cli
target/debug/userbtrfs --version
cd ..
durable project/target/debug/userbtrfs $(find project/crates -name '*.rs')
phase 'build again'
cd project
cargo build --offline --locked -p userbtrfs-cli 2>"$OUTSIDE/second"
! grep Compiling "$OUTSIDE/second"
