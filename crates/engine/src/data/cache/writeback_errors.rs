//! Writeback errors of files, until they are reported (Linux: errseq_t).
//!
//! 1. Failures are numbered across all files. An open file reports those after it was opened, and
//!    an earlier one if it was not reported to a user of the file. Each is reported once per open
//!    file.
//! 2. A sync asks for the failures since it began: all syncs that waited for a write report its
//!    failure, also those that share one open file.
//! 3. A failure that was not reported to a user of the file is kept when the file leaves memory. It
//!    is removed when the file is deleted, or when it has been reported and the file is not open.
//! 4. A sync of the filesystem reports the failures that were not reported yet; users of the files
//!    still get them afterwards.

use std::collections::BTreeMap;

use userbtrfs_sync::atomic::{AtomicU64, Ordering};
use userbtrfs_sync::{Class, Mutex};

use crate::error::{InodeId, Result, Unwritten};

/// The writeback errors of all files.
pub(in crate::data) struct WritebackErrors {
    /// The number of failures; grows under the lock.
    count: AtomicU64,
    of: Mutex<BTreeMap<InodeId, WritebackError>>,
}

/// The failure of a file.
struct WritebackError {
    /// The number of the last failure.
    number: u64,
    /// The first failure that was not reported, or else the last one.
    what: Unwritten,
    /// Whether it was reported to a user of the file.
    is_reported: bool,
    /// Whether it was reported to a sync of the filesystem.
    is_reported_to_sync: bool,
}

/// The number up to which an open file has reported failures.
pub(crate) struct ErrSeq(AtomicU64);

impl ErrSeq {
    fn new(number: u64) -> Self {
        Self(AtomicU64::new(number))
    }

    /// Returns the number.
    pub(crate) fn number(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

impl WritebackErrors {
    pub(in crate::data) fn new() -> Self {
        let of = Mutex::new(Class::CacheShard, BTreeMap::new());
        Self { count: AtomicU64::new(0), of }
    }

    /// Returns the number of failures.
    pub(in crate::data) fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// Records a failure of a file.
    pub(in crate::data) fn add(&self, file: InodeId, what: Unwritten) {
        let mut of = self.of.lock();
        let number = self.count.fetch_add(1, Ordering::SeqCst) + 1;
        let unreported = of
            .get_mut(&file)
            .filter(|failure| !failure.is_reported && !failure.is_reported_to_sync);
        if let Some(unreported) = unreported {
            unreported.number = number;
        } else {
            of.insert(
                file,
                WritebackError { number, what, is_reported: false, is_reported_to_sync: false },
            );
        }
    }

    /// Opens a file; returns the number up to which failures count as reported.
    pub(in crate::data) fn opened(&self, file: InodeId) -> ErrSeq {
        if self.count() == 0 {
            return ErrSeq::new(0);
        }
        let of = self.of.lock();
        let unreported = of.get(&file).is_some_and(|failure| !failure.is_reported);
        ErrSeq::new(if unreported { 0 } else { self.count() })
    }

    /// Fails if a file has a failure after the one numbered `since`, and marks it as reported.
    pub(in crate::data) fn check_and_advance(
        &self,
        file: InodeId,
        since: u64,
        reported: &ErrSeq,
    ) -> Result<()> {
        if self.count() <= since {
            return Ok(());
        }
        let mut of = self.of.lock();
        let Some(failure) = of.get_mut(&file).filter(|failure| failure.number > since) else {
            return Ok(());
        };
        failure.is_reported = true;
        reported.0.fetch_max(failure.number, Ordering::SeqCst);
        Err(failure.what.clone().into())
    }

    /// Returns the first failure that was not reported, and marks all as reported to a sync of the
    /// filesystem.
    pub(in crate::data) fn check_all(&self) -> Result<()> {
        if self.count() == 0 {
            return Ok(());
        }
        let mut first = Ok(());
        for failure in self.of.lock().values_mut().filter(|failure| !failure.is_reported) {
            if !std::mem::replace(&mut failure.is_reported_to_sync, true) {
                first = first.and_then(|()| Err(failure.what.clone().into()));
            }
        }
        first
    }

    /// Removes the failure of a file that was deleted.
    pub(in crate::data) fn deleted(&self, file: InodeId) {
        if self.count() > 0 {
            self.of.lock().remove(&file);
        }
    }

    /// Removes the failure of a file that left memory, if it was reported and its number is at
    /// most `number`.
    pub(in crate::data) fn closed(&self, file: InodeId, number: u64) {
        if number == 0 {
            return;
        }
        let mut of = self.of.lock();
        if of.get(&file).is_some_and(|failure| failure.is_reported && failure.number <= number) {
            of.remove(&file);
        }
    }
}

#[cfg(test)]
mod tests {
    use userbtrfs_format::TreeId;
    use userbtrfs_sync::Arc;

    use super::*;
    use crate::error::Error;

    fn file(number: u64) -> InodeId {
        InodeId { subvolume: TreeId::FS, number }
    }

    fn unwritten(number: u64, offset: u64) -> Unwritten {
        Unwritten { file: file(number), offset, why: Arc::new(Error::NoSpace) }
    }

    /// Returns the offset of the failure that is reported.
    fn offset(reported: Result<()>) -> Option<u64> {
        match reported {
            Ok(()) => None,
            Err(Error::Unwritten(Unwritten { offset, .. })) => Some(offset),
            Err(other) => panic!("{other}"),
        }
    }

    fn ask(failures: &WritebackErrors, number: u64, reported: &ErrSeq) -> Option<u64> {
        offset(failures.check_and_advance(file(number), reported.number(), reported))
    }

    #[test]
    fn failure_is_reported_to_all_syncs_of_one_open_file_that_began_before() {
        let failures = WritebackErrors::new();
        let reported = failures.opened(file(1));
        let first = reported.number();
        let second = reported.number();
        failures.add(file(1), unwritten(1, 7));
        assert_eq!(offset(failures.check_and_advance(file(1), first, &reported)), Some(7));
        assert_eq!(offset(failures.check_and_advance(file(1), second, &reported)), Some(7));
        assert_eq!(ask(&failures, 1, &reported), None, "a sync that begins after it");
    }

    #[test]
    fn unreported_failure_is_reported_once_to_the_next_opener() {
        let failures = WritebackErrors::new();
        failures.add(file(1), unwritten(1, 7));
        failures.add(file(1), unwritten(1, 8));
        failures.closed(file(1), failures.count());
        let one = failures.opened(file(1));
        let two = failures.opened(file(1));
        let other = failures.opened(file(2));
        assert_eq!(ask(&failures, 1, &one), Some(7));
        assert_eq!(ask(&failures, 1, &one), None);
        assert_eq!(ask(&failures, 1, &two), Some(7), "open before it was reported");
        assert_eq!(ask(&failures, 2, &other), None);
        let late = failures.opened(file(1));
        assert_eq!(ask(&failures, 1, &late), None);
        failures.add(file(1), unwritten(1, 9));
        assert_eq!([&one, &two, &late].map(|reported| ask(&failures, 1, reported)), [Some(9); 3]);
        failures.closed(file(1), failures.count());
        assert!(failures.of.lock().is_empty(), "reported, and out of memory");
    }

    #[test]
    fn filesystem_sync_reports_failure_once_and_the_file_still_does() {
        let failures = WritebackErrors::new();
        let reported = failures.opened(file(1));
        failures.add(file(1), unwritten(1, 7));
        failures.add(file(2), unwritten(2, 8));
        assert_eq!(ask(&failures, 1, &reported), Some(7));
        assert_eq!(offset(failures.check_all()), Some(8));
        assert_eq!(offset(failures.check_all()), None);
        assert_eq!(ask(&failures, 2, &failures.opened(file(2))), Some(8));
        failures.add(file(3), unwritten(3, 9));
        failures.deleted(file(3));
        assert_eq!(offset(failures.check_all()), None);
    }
}
