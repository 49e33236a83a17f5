//! What could not be written of files, until it is told.
//!
//! 1. Failures are counted through all files. Who uses a file is told of those after he opened it;
//!    of one before that, if no user of the file was told of it. He is told of each once.
//! 2. A sync asks what failed since it began: all who waited for a write are told, also those who
//!    share one open file.
//! 3. What no user of a file was told of stays though the file leaves memory. It goes with the
//!    file, or once it was told and nobody has the file open.
//! 4. Who makes all durable is told of what nobody was told of; users of the file still are.

use std::collections::BTreeMap;

use userbtrfs_sync::atomic::{AtomicU64, Ordering};
use userbtrfs_sync::{Class, Mutex};

use crate::error::{InodeId, Result, Unwritten};

/// See the module's text.
pub(in crate::data) struct WritebackErrors {
    /// How many there were; grows under the lock.
    count: AtomicU64,
    of: Mutex<BTreeMap<InodeId, WritebackError>>,
}

/// What failed of a file.
struct WritebackError {
    /// The number of the last failure.
    number: u64,
    /// The first one that nobody was told of, or else the last.
    what: Unwritten,
    /// Whether a user of the file was told.
    is_told: bool,
    /// Whether somebody was who made all durable.
    is_known: bool,
}

/// Up to which number a user of a file was told of failures.
pub(crate) struct ErrSeq(AtomicU64);

impl ErrSeq {
    fn new(number: u64) -> Self {
        Self(AtomicU64::new(number))
    }

    /// Up to which one now.
    pub(crate) fn number(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

impl WritebackErrors {
    pub(in crate::data) fn new() -> Self {
        let of = Mutex::new(Class::CacheShard, BTreeMap::new());
        Self { count: AtomicU64::new(0), of }
    }

    /// How many there were.
    pub(in crate::data) fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// Something of a file could not be written.
    pub(in crate::data) fn add(&self, file: InodeId, what: Unwritten) {
        let mut of = self.of.lock();
        let number = self.count.fetch_add(1, Ordering::SeqCst) + 1;
        let untold = of.get_mut(&file).filter(|failure| !failure.is_told && !failure.is_known);
        if let Some(untold) = untold {
            untold.number = number;
        } else {
            of.insert(file, WritebackError { number, what, is_told: false, is_known: false });
        }
    }

    /// A file is opened: what its new user counts as told of.
    pub(in crate::data) fn opened(&self, file: InodeId) -> ErrSeq {
        if self.count() == 0 {
            return ErrSeq::new(0);
        }
        let of = self.of.lock();
        let untold = of.get(&file).is_some_and(|failure| !failure.is_told);
        ErrSeq::new(if untold { 0 } else { self.count() })
    }

    /// Tells a user of a file what failed after the failure of this number.
    pub(in crate::data) fn tell(&self, file: InodeId, since: u64, told: &ErrSeq) -> Result<()> {
        if self.count() <= since {
            return Ok(());
        }
        let mut of = self.of.lock();
        let Some(failure) = of.get_mut(&file).filter(|failure| failure.number > since) else {
            return Ok(());
        };
        failure.is_told = true;
        told.0.fetch_max(failure.number, Ordering::SeqCst);
        Err(failure.what.clone().into())
    }

    /// Tells who makes all durable what nobody was told of: the first of it.
    pub(in crate::data) fn tell_of_all(&self) -> Result<()> {
        if self.count() == 0 {
            return Ok(());
        }
        let mut first = Ok(());
        for failure in self.of.lock().values_mut().filter(|failure| !failure.is_told) {
            if !std::mem::replace(&mut failure.is_known, true) {
                first = first.and_then(|()| Err(failure.what.clone().into()));
            }
        }
        first
    }

    /// The file is deleted.
    pub(in crate::data) fn deleted(&self, file: InodeId) {
        if self.count() > 0 {
            self.of.lock().remove(&file);
        }
    }

    /// The file has left memory, after the failure of this number.
    pub(in crate::data) fn closed(&self, file: InodeId, number: u64) {
        if number == 0 {
            return;
        }
        let mut of = self.of.lock();
        if of.get(&file).is_some_and(|failure| failure.is_told && failure.number <= number) {
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

    /// The offset that is told of.
    fn offset(told: Result<()>) -> Option<u64> {
        match told {
            Ok(()) => None,
            Err(Error::Unwritten(Unwritten { offset, .. })) => Some(offset),
            Err(other) => panic!("{other}"),
        }
    }

    fn ask(failures: &WritebackErrors, number: u64, told: &ErrSeq) -> Option<u64> {
        offset(failures.tell(file(number), told.number(), told))
    }

    #[test]
    fn all_syncs_that_began_before_it_are_told_by_one_open_file() {
        let failures = WritebackErrors::new();
        let told = failures.opened(file(1));
        let (first, second) = (told.number(), told.number());
        failures.add(file(1), unwritten(1, 7));
        assert_eq!(offset(failures.tell(file(1), first, &told)), Some(7));
        assert_eq!(offset(failures.tell(file(1), second, &told)), Some(7));
        assert_eq!(ask(&failures, 1, &told), None, "a sync that begins after it");
    }

    #[test]
    fn what_nobody_was_told_of_is_told_to_who_opens_the_file_then_no_more() {
        let failures = WritebackErrors::new();
        failures.add(file(1), unwritten(1, 7));
        failures.add(file(1), unwritten(1, 8));
        failures.closed(file(1), failures.count());
        let (one, two, other) =
            (failures.opened(file(1)), failures.opened(file(1)), failures.opened(file(2)));
        assert_eq!(ask(&failures, 1, &one), Some(7));
        assert_eq!(ask(&failures, 1, &one), None);
        assert_eq!(ask(&failures, 1, &two), Some(7), "open while nobody was told");
        assert_eq!(ask(&failures, 2, &other), None);
        let late = failures.opened(file(1));
        assert_eq!(ask(&failures, 1, &late), None);
        failures.add(file(1), unwritten(1, 9));
        assert_eq!([&one, &two, &late].map(|told| ask(&failures, 1, told)), [Some(9); 3]);
        failures.closed(file(1), failures.count());
        assert!(failures.of.lock().is_empty(), "told, and out of memory");
    }

    #[test]
    fn who_makes_all_durable_is_told_once_and_the_file_still() {
        let failures = WritebackErrors::new();
        let told = failures.opened(file(1));
        failures.add(file(1), unwritten(1, 7));
        failures.add(file(2), unwritten(2, 8));
        assert_eq!(ask(&failures, 1, &told), Some(7));
        assert_eq!(offset(failures.tell_of_all()), Some(8));
        assert_eq!(offset(failures.tell_of_all()), None);
        assert_eq!(ask(&failures, 2, &failures.opened(file(2))), Some(8));
        failures.add(file(3), unwritten(3, 9));
        failures.deleted(file(3));
        assert_eq!(offset(failures.tell_of_all()), None);
    }
}
