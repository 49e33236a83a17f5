//! Clone, dedupe and defragmentation by the ioctls, which no usual program calls for any range.

use std::path::Path;
use std::process::Command;

use rustix::io::Errno;

/// Calls `FICLONERANGE` as a C program does; prints the errno, 0 for none.
const CLONE: &str = r#"
my ($from, $to, $offset, $length, $at) = @ARGV;
open(my $source, "<", $from) or die "open: $!\n";
open(my $target, "+<", $to) or die "open: $!\n";
my $range = pack("qQQQ", fileno($source), $offset, $length, $at);
print ioctl($target, 0x4020940d, $range) ? 0 : $! + 0;
"#;

/// Calls `FIDEDUPERANGE`; prints the errno, 0 for none, and whether the ranges differ.
const DEDUPE: &str = r#"
my ($from, $to, $offset, $length, $at) = @ARGV;
open(my $source, "<", $from) or die "open: $!\n";
open(my $target, "+<", $to) or die "open: $!\n";
my $range = pack("QQSSLqQQlL", $offset, $length, 1, 0, 0, fileno($target), $at, 0, 0, 0);
my $done = ioctl($source, 0xc0189436, $range) ? 0 : $! + 0;
my $status = (unpack("QQSSLqQQlL", $range))[8];
print $done || ($status < 0 ? -$status : 0), " ", $status > 0 ? 1 : 0;
"#;

/// Calls `BTRFS_IOC_DEFRAG_RANGE`; prints the errno, 0 for none. The file is synced first: Linux
/// looks at the extents that there are.
const DEFRAGMENT: &str = r#"
my ($path, undef, $offset, $length, $threshold) = @ARGV;
open(my $file, "+<", $path) or die "open: $!\n";
$file->sync or die "sync: $!\n";
my $range = pack("QQQLLL4", $offset, $length, 0, $threshold, 0, 0, 0, 0, 0);
print ioctl($file, 0x40309410, $range) ? 0 : $! + 0;
"#;

/// Clones a range, `[offset, length, offset in the target]`, of a file into another one.
pub fn clone_range(source: &Path, target: &Path, range: [u64; 3]) -> Result<(), Errno> {
    call(CLONE, source, target, range).map(drop)
}

/// Shares a range, `[offset, length, offset in the target]`, of two files if it is equal; returns
/// whether it is.
pub fn dedupe_range(source: &Path, target: &Path, range: [u64; 3]) -> Result<bool, Errno> {
    call(DEDUPE, source, target, range).map(|differs| differs == [0])
}

/// Defragments a range, `[offset, length]`, of a file. A threshold of 0 is the usual one.
pub fn defragment(file: &Path, [offset, length]: [u64; 2], threshold: u32) -> Result<(), Errno> {
    call(DEFRAGMENT, file, file, [offset, length, threshold.into()]).map(drop)
}

/// Runs a program on two files; returns what it prints behind the errno.
fn call(program: &str, source: &Path, target: &Path, range: [u64; 3]) -> Result<Vec<i32>, Errno> {
    let mut perl = Command::new("perl");
    perl.env("LC_ALL", "C").args(["-e", program]).args([source, target]);
    let output = perl.args(range.map(|number| number.to_string())).output().expect("perl runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut numbers = text.split_whitespace().map(|word| word.parse().expect("a number"));
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    match numbers.next().unwrap_or_else(|| panic!("perl: {errors}")) {
        0 => Ok(numbers.collect()),
        errno => Err(Errno::from_raw_os_error(errno)),
    }
}
