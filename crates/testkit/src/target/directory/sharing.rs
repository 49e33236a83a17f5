//! Clone and dedupe, by the ioctls that programs use.

use std::fs::File;
use std::os::fd::BorrowedFd;

use rustix::fs::{self, FileType, Mode as OpenMode, OFlags};
use rustix::io::Errno;

use crate::linux;
use crate::model::Outcome;
use crate::operation::Operation;

use super::descriptor::{by_itself, kind, path};

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
    let open = |object: BorrowedFd<'_>, access: OFlags| {
        fs::open(by_itself(object), access | OFlags::CLOEXEC, OpenMode::empty()).map(File::from)
    };
    let source = open(source, OFlags::RDONLY)?;
    let target = open(target, OFlags::RDWR)?;
    match *operation {
        Operation::Clone { offset, length, at, .. } => {
            linux::clone_range(&path(&source), &path(&target), [offset, length, at])
                .map(|()| Vec::new())
        }
        Operation::Dedupe { offset, length, at, .. } => {
            let is_same =
                linux::dedupe_range(&path(&source), &path(&target), [offset, length, at])?;
            Ok(vec![u8::from(is_same)])
        }
        _ => unreachable!("an operation that shares bytes"),
    }
}
