//! Merging of the writes of a batch that are adjacent on the device into one call.
//!
//! 1. Only requests that are unordered anyway are merged: those of one batch.
//! 2. Each request keeps its own completion.
//! 3. Direct writes are merged apart from those through the page cache.

use crate::batch::Admitted;

/// The maximum number of writes merged into one call.
const WRITES_MAX: usize = 128;

/// The number of bytes from which a call takes no more writes.
const BYTES_MAX: u64 = 2 << 20;

/// Merges adjacent writes, whatever their order in the batch.
pub(crate) fn gather(batch: &mut [Admitted]) {
    let mut writes: Vec<_> =
        (0..).zip(batch.iter()).filter_map(|(index, admitted)| place(index, admitted)).collect();
    writes.sort_unstable();
    // The write that the next may be merged into: its index, its end, the number of its writes.
    let mut last: Option<(usize, (bool, u64), usize)> = None;
    let mut start = 0;
    for (direct, offset, end, index) in writes {
        last = match last {
            Some((first, up_to, count))
                if up_to == (direct, offset) && count < WRITES_MAX && end - start <= BYTES_MAX =>
            {
                take_over(batch, first, index);
                Some((first, (direct, end), count + 1))
            }
            _ => {
                start = offset;
                Some((index, (direct, end), 1))
            }
        };
    }
}

/// Returns whether a write is direct, its start, its end, and its index.
fn place(index: usize, admitted: &Admitted) -> Option<(bool, u64, u64, usize)> {
    let transfer = admitted.pending()?;
    let written = transfer.written();
    written.map(|range| (transfer.is_direct(), range.start, range.end, index))
}

fn take_over(batch: &mut [Admitted], first: usize, index: usize) {
    let other = std::mem::replace(&mut batch[index], Admitted::Followed);
    match (&mut batch[first], other) {
        (Admitted::Pending(first), Admitted::Pending(other)) => first.take_over(index, other),
        _ => unreachable!("only what is pending is gathered"),
    }
}

#[cfg(test)]
mod tests {
    use userbtrfs_sync::Arc;

    use super::*;
    use crate::buffer::Buffer;
    use crate::open::{FileOptions, OpenFile};
    use crate::request::Request;
    use crate::transfer::Transfer;

    #[test]
    fn adjacent_writes_are_merged_in_any_order_except_fua_writes() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let file = Arc::new(OpenFile::open(file.path(), FileOptions::default(), false).unwrap());
        let pending = |request| Admitted::Pending(Transfer::new(&file, request));
        let write = |offset, fua| {
            let buffer = Buffer::zeroed(4096).into();
            pending(Request::Write { offset: offset * 4096, buffer, fua })
        };
        let plain = [7_u64, 1, 8, 2, 4].map(|offset| write(offset, false));
        let mut batch: Vec<_> = plain.into_iter().chain([write(3, true)]).collect();
        batch.push(pending(Request::Flush));
        gather(&mut batch);
        let ranges = |admitted: &Admitted| match admitted {
            Admitted::Pending(transfer) => transfer.written(),
            _ => Some(0..0),
        };
        let of = |pages: std::ops::Range<u64>| Some(pages.start * 4096..pages.end * 4096);
        let expected = [of(7..9), of(1..3), of(0..0), of(0..0), of(4..5), None, None];
        assert_eq!(batch.iter().map(ranges).collect::<Vec<_>>(), expected);
    }
}
