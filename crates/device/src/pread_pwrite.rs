//! The engine of plain calls: `pread`, `pwritev2`, `fdatasync`, `fallocate`, for where io_uring is
//! not allowed, and for what gains nothing by it.
//!
//! 1. Writes, flushes and discards are done at once in `submit`, so a dropped ticket loses none.
//! 2. Reads are done in `wait`; `submit` only tells the kernel to fetch the bytes, where they go
//!    through its page cache.

use std::fs::File;
use std::num::NonZeroU64;

use rustix::fs::{Advice, fadvise, fallocate, fdatasync};
use rustix::io::{Errno, ReadWriteFlags, pread, pwritev2};

use crate::batch::Admitted;
use crate::request::Completion;
use crate::transfer::{Call, PUNCH_HOLE, Transfer};

/// Starts a batch.
pub(crate) fn submit(batch: Vec<Admitted>) -> Vec<Admitted> {
    each(batch, begin)
}

/// Does what a batch copies into the kernel's page cache, and leaves the rest.
pub(crate) fn copy(batch: Vec<Admitted>) -> Vec<Admitted> {
    each(batch, |admitted, followers| match admitted {
        Admitted::Pending(transfer) if transfer.copied().is_some() => {
            Admitted::Completed(run_for(transfer, followers))
        }
        other => other,
    })
}

/// Has something done with each request of a batch, which may complete others, too.
fn each(
    batch: Vec<Admitted>,
    work: impl Fn(Admitted, &mut Vec<(usize, Completion)>) -> Admitted,
) -> Vec<Admitted> {
    let mut followers = Vec::new();
    let mut done: Vec<_> = batch.into_iter().map(|it| work(it, &mut followers)).collect();
    for (index, completion) in followers {
        done[index] = Admitted::Completed(completion);
    }
    done
}

fn begin(admitted: Admitted, followers: &mut Vec<(usize, Completion)>) -> Admitted {
    match admitted {
        Admitted::Pending(mut transfer) if transfer.is_read() => {
            announce(&mut transfer);
            Admitted::Pending(transfer)
        }
        Admitted::Pending(transfer) => Admitted::Completed(run_for(transfer, followers)),
        done => done,
    }
}

/// Starts the kernel's own reading, where the bytes pass its page cache. Only advice: errors do
/// not matter.
fn announce(transfer: &mut Transfer) {
    if transfer.is_direct() {
        return;
    }
    let (file, call) = transfer.next();
    if let Call::Read { offset, target } = call
        && let Some(len) = NonZeroU64::new(target.len() as u64)
    {
        fadvise(file, offset, Some(len), Advice::WillNeed).ok();
    }
}

/// The completion of a request, doing it first if need be.
pub(crate) fn finish(admitted: Admitted) -> Completion {
    match admitted {
        Admitted::Completed(completion) => completion,
        Admitted::Pending(transfer) => run(transfer),
        Admitted::Followed => unreachable!("who does it was run in `submit`"),
    }
}

/// Does a transfer to its end.
pub(crate) fn run(transfer: Transfer) -> Completion {
    run_for(transfer, &mut Vec::new())
}

/// As [`run`], and adds the completions of those that the transfer does, too.
fn run_for(mut transfer: Transfer, followers: &mut Vec<(usize, Completion)>) -> Completion {
    loop {
        let outcome = perform_next(&mut transfer);
        if let Some(result) = transfer.advance(outcome) {
            followers.extend(transfer.follow(&result));
            return transfer.finish(result);
        }
    }
}

/// Does the next call of a transfer, and returns its outcome.
pub(crate) fn perform_next(transfer: &mut Transfer) -> Result<usize, Errno> {
    let (file, call) = transfer.next();
    perform(file, call)
}

fn perform(file: &File, call: Call<'_>) -> Result<usize, Errno> {
    match call {
        Call::Read { offset, target } => pread(file, target, offset),
        Call::Write { offset, bytes, fua } => {
            let flags = if fua { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
            pwritev2(file, &bytes, offset, flags)
        }
        Call::Flush => fdatasync(file).map(|()| 0),
        Call::Discard { offset, len } => fallocate(file, PUNCH_HOLE, offset, len).map(|()| 0),
    }
}
