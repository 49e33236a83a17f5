//! Defragmentation by the ioctl, with its errno.

use std::path::Path;
use std::process::Command;

use rustix::io::Errno;

/// Calls `BTRFS_IOC_DEFRAG_RANGE`; prints the errno, 0 for none.
const DEFRAGMENT: &str = r#"
my ($path, $threshold) = @ARGV;
open(my $file, "<", $path) or die "open: $!\n";
my $range = pack("QQQLLx16", 0, ~0, 0, $threshold, 0);
print ioctl($file, 0x40309410, $range) ? 0 : $! + 0;
"#;

/// Defragments all of a file: its extents of fewer bytes than `threshold`.
pub fn defragment(path: &Path, threshold: u32) -> Result<(), Errno> {
    let mut perl = Command::new("perl");
    perl.env("LC_ALL", "C").args(["-e", DEFRAGMENT]).arg(path).arg(threshold.to_string());
    let output = perl.output().expect("perl runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    match text.trim().parse().unwrap_or_else(|_| panic!("perl: {errors}")) {
        0 => Ok(()),
        errno => Err(Errno::from_raw_os_error(errno)),
    }
}
