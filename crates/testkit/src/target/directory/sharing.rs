//! Clone and dedupe, by the ioctls that programs use.

use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::process::Command;

use rustix::fs::{self, FileType, Mode as OpenMode, OFlags};
use rustix::io::Errno;

use crate::model::Outcome;
use crate::operation::Operation;

use super::descriptor::{by_itself, kind};

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

/// Clones a range, or shares it if it is equal; a dedupe returns as one byte whether it is.
pub(super) fn share(
    source: BorrowedFd<'_>,
    target: BorrowedFd<'_>,
    operation: &Operation,
) -> Outcome<Vec<u8>> {
    let kinds = [kind(source)?, kind(target)?];
    if kinds.contains(&FileType::Directory) {
        return Err(Errno::ISDIR);
    }
    if kinds != [FileType::RegularFile; 2] {
        return Err(Errno::INVAL);
    }
    let open = |object: BorrowedFd<'_>| {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        fs::open(by_itself(object), flags, OpenMode::empty()).map(File::from)
    };
    let source = open(source)?;
    let target = open(target)?;
    match *operation {
        Operation::Clone { offset, length, at, .. } => {
            call(CLONE, &source, &target, [offset, length, at]).map(|_| Vec::new())
        }
        Operation::Dedupe { offset, length, at, .. } => {
            let differs = call(DEDUPE, &source, &target, [offset, length, at])?;
            Ok(vec![u8::from(differs == [0])])
        }
        _ => unreachable!("an operation that shares bytes"),
    }
}

/// Runs a program on two files; returns what it prints behind the errno.
fn call(program: &str, source: &File, target: &File, range: [u64; 3]) -> Outcome<Vec<i32>> {
    let path = |file: &File| format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let mut perl = Command::new("perl");
    perl.env("LC_ALL", "C").args(["-e", program, &path(source), &path(target)]);
    let output = perl.args(range.map(|number| number.to_string())).output().expect("perl runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut numbers = text.split_whitespace().map(|word| word.parse().expect("a number"));
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    match numbers.next().unwrap_or_else(|| panic!("perl: {errors}")) {
        0 => Ok(numbers.collect()),
        errno => Err(Errno::from_raw_os_error(errno)),
    }
}
