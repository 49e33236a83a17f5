//! Shutdown of a mounted filesystem: ends all writing.

use std::path::Path;
use std::process::Command;

/// Calls `FS_IOC_SHUTDOWN` as a C program does; prints errors to stderr.
const ASK: &str = r#"
open(my $at, "<", $ARGV[0]) or die "open: $!\n";
my $flag = pack("L", $ARGV[1]);
ioctl($at, 0x8004587d, $flag) or die "$!\n";
"#;

/// Returns the command that shuts down the filesystem mounted at `point`: flag 0 syncs everything
/// before, 1 the journal, 2 nothing.
pub fn shutdown(point: &Path, flag: u32) -> Command {
    let mut command = Command::new("perl");
    command.env("LC_ALL", "C").args(["-e", ASK]).arg(point).arg(flag.to_string());
    command
}
