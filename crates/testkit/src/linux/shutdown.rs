//! Asking a mounted filesystem to end all writing.

use std::path::Path;
use std::process::Command;

/// `FS_IOC_SHUTDOWN` as a program of C would call it; what is wrong is said on stderr.
const ASK: &str = r#"
open(my $at, "<", $ARGV[0]) or die "open: $!\n";
my $flag = pack("L", $ARGV[1]);
ioctl($at, 0x8004587d, $flag) or die "$!\n";
"#;

/// The program that asks for it, of what is mounted at `point`: with flag 0 everything is synced
/// before, with 1 the journal is, with 2 nothing.
pub fn shutdown(point: &Path, flag: u32) -> Command {
    let mut command = Command::new("perl");
    command.env("LC_ALL", "C").args(["-e", ASK]).arg(point).arg(flag.to_string());
    command
}
