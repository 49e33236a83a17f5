//! Operations on file contents.

use rustix::io::Errno;
use userbtrfs::{Allocate, Compression, Deduped, Defragment, File, Recompress};

use crate::model::Outcome;
use crate::operation::{Algorithm, AllocateKind, FILE_MAX, Operation};
use crate::pattern::{self, in_memory};

use super::outcome::outcome;

pub(super) fn change(file: &File, operation: &Operation) -> Outcome {
    match *operation {
        Operation::Truncate { size, .. } => outcome(file.set_len(size)),
        Operation::Write { offset, length, seed, .. } => write(file, offset, length, seed),
        Operation::Append { length, seed, .. } => append(file, length, seed),
        Operation::Replace { length, seed, .. } => {
            outcome(file.inode().write_content(&pattern::bytes(seed, 0, in_memory(length))))
        }
        Operation::Allocate { offset, length, kind, .. } => {
            // Checks that Linux makes before it calls the filesystem.
            if length == 0 || length > FILE_MAX {
                return Err(Errno::INVAL);
            }
            end(offset, length).ok_or(Errno::FBIG)?;
            outcome(file.allocate(offset, length, allocate(kind)))
        }
        Operation::Defragment { offset, length, threshold, compression, .. } => {
            let request = Defragment {
                start: offset,
                len: if length == 0 { u64::MAX } else { length },
                threshold: threshold.into(),
                compression: compression.map_or(Recompress::Usual, recompress),
            };
            outcome(file.defragment(&request)).map(drop)
        }
        Operation::Sync { .. } => outcome(file.sync_all()),
        _ => unreachable!("an operation on the content of a file"),
    }
}

/// Clones a range, or shares it if it is equal; a dedupe returns as one byte whether it is.
pub(super) fn share(source: &File, target: &File, operation: &Operation) -> Outcome<Vec<u8>> {
    match *operation {
        Operation::Clone { offset, length, at, .. } => {
            outcome(target.clone_range(source, offset, length, at)).map(|()| Vec::new())
        }
        Operation::Dedupe { offset, length, at, .. } => {
            let done = outcome(target.dedupe_range(source, offset, length, at))?;
            Ok(vec![u8::from(done != Deduped::Differs)])
        }
        _ => unreachable!("an operation that shares bytes"),
    }
}

/// Reads a range of a file, up to its end.
pub(super) fn read(file: &File, offset: u64, length: u64) -> Outcome<Vec<u8>> {
    let mut bytes = vec![0; in_memory(length)];
    let done = outcome(file.read_at(&mut bytes, offset))?;
    bytes.truncate(done);
    Ok(bytes)
}

fn write(file: &File, offset: u64, length: u64, seed: u32) -> Outcome {
    end(offset, length).ok_or(Errno::INVAL)?;
    let bytes = pattern::bytes(seed, offset, in_memory(length));
    let mut done = 0;
    // Once without bytes, too: a file that cannot be written refuses that.
    loop {
        done += outcome(file.write_at(&bytes[done..], offset + done as u64))?;
        if done == bytes.len() {
            return Ok(());
        }
    }
}

fn append(file: &File, length: u64, seed: u32) -> Outcome {
    let end = file.len();
    let put = outcome(file.append(&pattern::bytes(seed, end, in_memory(length))))?;
    assert_eq!(put, end, "nobody else writes to it");
    Ok(())
}

fn recompress(algorithm: Algorithm) -> Recompress {
    let algorithm = match algorithm {
        Algorithm::Zlib => Compression::Zlib,
        Algorithm::Lzo => Compression::Lzo,
        Algorithm::Zstd => Compression::Zstd,
    };
    Recompress::With(algorithm.into())
}

fn allocate(kind: AllocateKind) -> Allocate {
    match kind {
        AllocateKind::Reserve => Allocate::Reserve { keep_size: false },
        AllocateKind::ReserveKeepSize => Allocate::Reserve { keep_size: true },
        AllocateKind::Punch => Allocate::PunchHole,
        AllocateKind::Zero => Allocate::ZeroRange { keep_size: false },
        AllocateKind::ZeroKeepSize => Allocate::ZeroRange { keep_size: true },
    }
}

/// Returns the end of a range, `None` if it exceeds the maximum file size.
fn end(offset: u64, length: u64) -> Option<u64> {
    offset.checked_add(length).filter(|end| *end <= FILE_MAX)
}
