//! The engine of plain calls: `pread`, `pwritev2`, `fdatasync`, `fallocate`. It is used if io_uring
//! is not allowed, and for batches that gain nothing by it.
//!
//! 1. Writes, flushes and discards are done at once in `submit`, so a dropped ticket loses none.
//! 2. Reads are done in `wait`; `submit` only advises the kernel to read ahead, if they use its
//!    page cache.

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

/// Does the writes of a batch that are copied into the kernel's page cache, and leaves the rest.
pub(crate) fn copy(batch: Vec<Admitted>) -> Vec<Admitted> {
    each(batch, |admitted, followers| match admitted {
        Admitted::Pending(transfer) if transfer.copied().is_some() => {
            Admitted::Completed(run_for(transfer, followers))
        }
        other => other,
    })
}

/// Applies `work` to each request of a batch; it may complete other requests of the batch, too.
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

/// Starts the kernel's read-ahead, if the file uses its page cache. Only advice: errors do not
/// matter.
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

/// Returns the completion of a request; does it first if it is pending.
pub(crate) fn finish(admitted: Admitted) -> Completion {
    match admitted {
        Admitted::Completed(completion) => completion,
        Admitted::Pending(transfer) => run(transfer),
        Admitted::Followed => unreachable!("who does it was run in `submit`"),
    }
}

/// Does a transfer, and returns its completion.
pub(crate) fn run(transfer: Transfer) -> Completion {
    run_for(transfer, &mut Vec::new())
}

/// Like [`run`]; adds the completions of writes that were merged into the transfer to `followers`.
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
