//! Resizing a filesystem while it is open.
//!
//! 1. The new size is in the commit that this waits for: a crash leaves the old size or the new
//!    one.
//! 2. An image file is extended before the filesystem grows, and truncated after the commit that
//!    shrank it is durable: the filesystem always lies in the file.
//! 3. The sizes that are refused, and their errors, are those of Linux.

use std::time::{Duration, Instant};

use userbtrfs_format::SECTOR_SIZE;
use userbtrfs_sync::atomic::{AtomicBool, Ordering};
use userbtrfs_transaction::{Error as TransactionError, HandleKind, TransactionManager};

use super::Filesystem;
use crate::error::{Error, Result};
use crate::share::Cleaner;

/// The least size of a filesystem after it was resized, in bytes.
const SIZE_MIN: u64 = 256 << 20;
/// The number of times that empty block groups are removed before a shrink: the removal of one can
/// make that of another possible.
const REMOVALS: usize = 2;
/// The longest wait for deleted subvolumes of which a part is dropped.
const DROP_PATIENCE: Duration = Duration::from_mins(1);

/// Whether an image file has the length of the filesystem in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageLength {
    /// The file keeps its length.
    Keep,
    /// The file is extended for a filesystem that grows, and truncated behind one that shrinks.
    Follow,
}

/// The size that a filesystem is resized to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewSize {
    /// A size in bytes.
    Bytes(u64),
    /// That many bytes more.
    More(u64),
    /// That many bytes less.
    Less(u64),
    /// That of the device.
    Max,
}

impl Filesystem {
    /// Parses `[DEVID:][+-]SIZE` or `[DEVID:]max`, as `BTRFS_IOC_RESIZE` does. A size is in bytes,
    /// or has a suffix K, M, G, T, P or E. A number that starts with `0x` is hexadecimal, another
    /// one that starts with `0` octal; what does not fit in 64 bits wraps.
    pub fn parse_size(&self, text: &str) -> Result<NewSize> {
        let (device, size) = text.split_once(':').unwrap_or(("1", text));
        let id: u64 = device.parse().map_err(|_| Error::Invalid("device id"))?;
        if id == 0 {
            return Err(Error::Invalid("device id"));
        }
        if id != self.superblock().device.id {
            return Err(Error::NoDevice(id));
        }
        if size == "max" {
            return Ok(NewSize::Max);
        }
        let signed = |kind: fn(u64) -> NewSize, digits| bytes_of(digits).map(kind);
        match size.split_at_checked(1) {
            Some(("+", digits)) => signed(NewSize::More, digits),
            Some(("-", digits)) => signed(NewSize::Less, digits),
            _ => signed(NewSize::Bytes, size),
        }
    }

    /// Resizes the filesystem, in whole sectors, and waits until that is durable; returns the new
    /// size in bytes. New space can be used at once.
    ///
    /// Fails with [`Error::Invalid`] if the size is below 256 MiB, with [`Error::BeyondDevice`] if
    /// the device is smaller, and with [`Error::NoSpace`] if what is stored does not fit.
    /// Shrinking relocates the block groups beyond the new size; [`Stats::relocation`] shows how
    /// much of them is left.
    ///
    /// [`Stats::relocation`]: super::Stats::relocation
    pub fn resize(&self, size: NewSize, image: ImageLength) -> Result<u64> {
        let transactions = self.inner.transactions.as_ref().ok_or(Error::ReadOnly)?;
        let _alone = ResizeGuard::new(&self.inner.resizing)?;
        let old = transactions.device_size();
        let bytes = self.bytes_of_size(size, old)?;
        if bytes < SIZE_MIN {
            return Err(Error::Invalid("a filesystem is not resized to less than 256 MiB"));
        }
        let new = bytes - bytes % u64::from(SECTOR_SIZE);
        if bytes > old {
            self.ensure_device_len(bytes, image)?;
        }
        match new.cmp(&old) {
            std::cmp::Ordering::Greater => assert!(set(transactions, new)?, "nothing is beyond"),
            std::cmp::Ordering::Less => self.shrink(transactions, new)?,
            std::cmp::Ordering::Equal => {}
        }
        transactions.commit()?;
        if image == ImageLength::Follow && new < old {
            transactions.wait_completed()?;
            self.volume().device().set_len(new)?;
        }
        Ok(new)
    }

    fn bytes_of_size(&self, size: NewSize, old: u64) -> Result<u64> {
        match size {
            NewSize::Bytes(bytes) => Ok(bytes),
            NewSize::More(more) => old.checked_add(more).ok_or(Error::OutOfRange),
            NewSize::Less(less) => {
                old.checked_sub(less).ok_or(Error::Invalid("more than the filesystem has"))
            }
            NewSize::Max => Ok(self.volume().device().measure()?),
        }
    }

    /// Makes sure that the device has `bytes` bytes.
    fn ensure_device_len(&self, bytes: u64, image: ImageLength) -> Result<()> {
        let device = self.volume().device();
        let have = device.measure()?;
        // No file is longer than this.
        let may_follow = image == ImageLength::Follow && i64::try_from(bytes).is_ok();
        let fits = bytes <= have || may_follow && device.set_len(bytes)?;
        if fits { Ok(()) } else { Err(Error::BeyondDevice { size: bytes, device: have }) }
    }

    fn shrink(&self, transactions: &TransactionManager, new: u64) -> Result<()> {
        // What was freed is not in use, and empty block groups can be removed.
        self.commit()?;
        for _ in 0..REMOVALS {
            if set(transactions, new)? {
                return Ok(());
            }
            transactions.remove_empty_groups()?;
        }
        if set(transactions, new)? {
            return Ok(());
        }
        let relocated = self.relocate_beyond(transactions, new);
        let is_set = relocated.and_then(|()| set(transactions, new));
        transactions.allow_all_chunks();
        if is_set? { Ok(()) } else { Err(Error::NoSpace) }
    }

    /// Relocates the block groups beyond a size; first waits a while for the subvolumes of which a
    /// part was dropped by an earlier mount.
    fn relocate_beyond(&self, transactions: &TransactionManager, new: u64) -> Result<()> {
        let mut began = None;
        loop {
            let dropping = {
                let _whole_trees = self.inner.cleaner.as_ref().map(Cleaner::pause);
                match transactions.relocate_beyond(new) {
                    Err(TransactionError::TreeBeingDropped) => transactions.dead_roots()?,
                    relocated => return Ok(relocated?),
                }
            };
            let began = *began.get_or_insert_with(Instant::now);
            let is_patient = || began.elapsed() < DROP_PATIENCE;
            self.wait_for_deleted(&dropping, is_patient)?;
            let left = transactions.dead_roots()?;
            // A tree that cannot be dropped stays.
            if !is_patient() || dropping.iter().any(|id| left.contains(id)) {
                return Err(TransactionError::TreeBeingDropped.into());
            }
        }
    }
}

/// Sets the size in a transaction; returns false if space beyond it is in use.
fn set(transactions: &TransactionManager, bytes: u64) -> Result<bool> {
    let handle = transactions.start(HandleKind::Operation)?;
    Ok(transactions.set_device_size(&handle, bytes))
}

/// Returns the bytes of a size that is not 0.
fn bytes_of(text: &str) -> Result<u64> {
    let (digits, base) = match text.strip_prefix('0') {
        Some(rest) => match rest.strip_prefix(['x', 'X']) {
            Some(rest) if rest.starts_with(|c: char| c.is_ascii_hexdigit()) => (rest, 16),
            _ => (text, 8),
        },
        None => (text, 10),
    };
    let end = digits.find(|c: char| !c.is_digit(base)).unwrap_or(digits.len());
    let (digits, suffix) = digits.split_at(end);
    let shift = match suffix.to_ascii_uppercase().as_str() {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        "P" => 50,
        "E" => 60,
        _ => return Err(Error::Invalid("size")),
    };
    let add = |number: u64, digit| number.wrapping_mul(base.into()).wrapping_add(digit);
    let values = digits.chars().filter_map(|digit| digit.to_digit(base)).map(u64::from);
    let bytes = values.fold(0, add) << shift;
    if bytes == 0 { Err(Error::Invalid("size")) } else { Ok(bytes) }
}

/// Excludes other resizes until it is dropped.
struct ResizeGuard<'a>(&'a AtomicBool);

impl<'a> ResizeGuard<'a> {
    fn new(is_running: &'a AtomicBool) -> Result<Self> {
        if is_running.swap(true, Ordering::SeqCst) {
            return Err(Error::ResizeInProgress);
        }
        Ok(Self(is_running))
    }
}

impl Drop for ResizeGuard<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}
