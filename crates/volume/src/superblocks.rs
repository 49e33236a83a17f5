//! The copies of the superblock: how one is selected, and how they are replaced.
//!
//! 1. The primary copy is used if it is valid, independent of the mirrors: only it can refer to a
//!    log, and Linux reads no other.
//! 2. Otherwise the valid mirror with the highest generation is used, and the volume is read-only.
//! 3. No mirror is newer than the durable primary: the mirrors are written after the primary is
//!    durable. They become durable with the next flush.
//! 4. No mirror refers to a log: a superblock with a log is written to the primary only.
//! 5. No superblock is older than the one before it, nor than its chunk root; the log of a
//!    superblock belongs to the transaction after it. A violation panics before a write.

use userbtrfs_device::{Buffer, CrashPoint, Device, Request};
use userbtrfs_format::{
    IncompatFlags, LABEL_LEN_MAX, Logical, Physical, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE,
    Superblock,
};

use userbtrfs_sync::atomic::Ordering;

use crate::error::{OpenError, SuperblockMirrorError, WriteError};
use crate::volume::Volume;
use crate::warning::Warning;

/// Reads the copy at `at`; returns `None` if the device is too short for it.
pub fn read_copy(
    device: &dyn Device,
    at: Physical,
) -> Option<Result<Superblock, SuperblockMirrorError>> {
    let end = at.0 + SUPERBLOCK_SIZE as u64;
    if end > device.len() {
        return None;
    }
    let read = device.read(at.0, SUPERBLOCK_SIZE);
    let bytes = read.map_err(|error| SuperblockMirrorError::Unreadable(error.to_string()));
    Some(bytes.and_then(|bytes| Ok(Superblock::parse(&bytes, at)?)))
}

pub(crate) fn choose(device: &dyn Device) -> Result<(Superblock, Vec<Warning>), OpenError> {
    let [primary_at, mirrors_at @ ..] = SUPERBLOCK_OFFSETS;
    let primary = match read_copy(device, primary_at) {
        None => return Err(OpenError::TooSmall { len: device.len() }),
        Some(Ok(superblock)) => {
            let warnings = pending_log(&superblock).into_iter().collect();
            return Ok((superblock, warnings));
        }
        Some(Err(error)) => error,
    };
    let mut best: Option<Superblock> = None;
    let mut mirrors = Vec::new();
    for at in mirrors_at {
        match read_copy(device, at) {
            None => {}
            Some(Err(error)) => mirrors.push((at, error)),
            Some(Ok(copy)) => {
                best = best.into_iter().chain([copy]).max_by_key(|copy| copy.generation);
            }
        }
    }
    let Some(superblock) = best else {
        return Err(OpenError::Superblock { primary, mirrors });
    };
    let used = superblock.physical;
    let generation = superblock.generation;
    Ok((superblock, vec![Warning::Mirror { primary, used, generation }]))
}

/// Returns the root and the level of the log that a damaged primary copy shows, if it follows the
/// commit of this mirror.
pub(crate) fn log_of_damaged_primary(
    device: &dyn Device,
    mirror: &Superblock,
) -> Option<(Logical, u8)> {
    let [primary, ..] = SUPERBLOCK_OFFSETS;
    let bytes = device.read(primary.0, SUPERBLOCK_SIZE).ok()?;
    mirror.log_of_damaged(&bytes)
}

fn pending_log(superblock: &Superblock) -> Option<Warning> {
    superblock.log_root.map(|_| Warning::PendingLog { generation: superblock.generation })
}

impl Volume {
    /// Replaces the superblock durably by one without a log. The blocks that it refers to must be
    /// durable before. The caller ensures that one superblock is written at a time.
    ///
    /// It becomes the [current](Volume::superblock) superblock when the primary copy is durable,
    /// even if a mirror then fails: an error that names a mirror means only that.
    pub fn write_superblock(&self, superblock: &Superblock) -> Result<(), WriteError> {
        assert!(superblock.log_root.is_none(), "a log comes by a call of its own");
        self.check_writable()?;
        let before = self.superblock().generation;
        let Superblock { generation, chunk_root_generation, .. } = *superblock;
        assert!(generation >= before, "superblock {generation} would replace the newer {before}");
        assert!(
            chunk_root_generation <= generation,
            "superblock {generation} has a chunk root of transaction {chunk_root_generation}"
        );
        let [primary, mirrors @ ..] = SUPERBLOCK_OFFSETS;
        let current = self.write_primary(superblock, primary)?;
        self.set_superblock(current.expect("the primary lies on every device"));
        self.crash_point(CrashPoint::CommitBetweenSuperblocks);
        self.write_copies(superblock, &mirrors, false).map(drop)
    }

    /// Rewrites the primary copy of the superblock durably, with the log of `transaction`, the one
    /// after it, and no other change. The blocks of the log must be durable before. The caller
    /// ensures that one superblock is written at a time.
    ///
    /// The [current](Volume::superblock) superblock stays without a log, so that the next
    /// superblock written drops the log.
    pub fn write_log_superblock(
        &self,
        root: Logical,
        level: u8,
        transaction: u64,
    ) -> Result<(), WriteError> {
        self.check_writable()?;
        let mut superblock = (*self.superblock()).clone();
        assert_eq!(
            superblock.generation.checked_add(1),
            Some(transaction),
            "a superblock leads to a log of the next transaction only"
        );
        superblock.log_root = Some(root);
        superblock.log_root_level = level;
        let [primary, ..] = SUPERBLOCK_OFFSETS;
        self.write_primary(&superblock, primary).map(drop)
    }

    /// Sets the label of the superblock of the next commit. The current superblock keeps its own: a
    /// commit in flight is about to replace it. Panics if the label has more than 255 bytes.
    pub fn set_label(&self, label: &[u8]) {
        assert!(label.len() <= LABEL_LEN_MAX, "the label fits");
        *self.new_label.write() = Some(label.to_vec());
    }

    /// Returns the label that was set since the volume was opened.
    pub fn new_label(&self) -> Option<Vec<u8>> {
        self.new_label.read().clone()
    }

    /// Sets the size of the device in the superblock of the next commit, which is no larger than
    /// the device. The current superblock keeps its own.
    pub fn set_device_size(&self, bytes: u64) {
        assert!(bytes <= self.device().len(), "the filesystem lies on the device");
        *self.new_device_size.write() = Some(bytes);
    }

    /// Returns the size of the device that the superblock of the next commit has.
    pub fn next_device_size(&self) -> u64 {
        let new = *self.new_device_size.read();
        new.unwrap_or_else(|| self.superblock().device.total_bytes)
    }

    /// Adds features to the superblock of the next commit. The current superblock stays without
    /// them: what a log uses must be in the superblock that the log belongs to.
    pub fn add_incompat(&self, flags: IncompatFlags) {
        self.added_incompat.fetch_or(flags.bits(), Ordering::SeqCst);
    }

    /// Returns the features that were added since the volume was opened.
    pub fn added_incompat(&self) -> IncompatFlags {
        IncompatFlags::from_bits_retain(self.added_incompat.load(Ordering::SeqCst))
    }

    /// Returns true if the current superblock has all features that were added.
    pub fn has_added_incompat(&self) -> bool {
        self.superblock().incompat.contains(self.added_incompat())
    }

    fn write_primary(
        &self,
        superblock: &Superblock,
        at: Physical,
    ) -> Result<Option<Superblock>, WriteError> {
        self.check_durable()?;
        let done = self.barriers.run(self.name(), || self.write_copies(superblock, &[at], true))?;
        self.check_durable().map(|()| done)
    }

    /// Writes the copies at `places` that lie on the device; returns the last of them, as parsed.
    fn write_copies(
        &self,
        superblock: &Superblock,
        places: &[Physical],
        fua: bool,
    ) -> Result<Option<Superblock>, WriteError> {
        let len = superblock.device.total_bytes.min(self.device().len());
        let reached = |at: &&Physical| at.0 + SUPERBLOCK_SIZE as u64 <= len;
        let places: Vec<_> = places.iter().copied().filter(|at| reached(&at)).collect();
        let mut last = None;
        let requests = places.iter().map(|&at| {
            let bytes = superblock.encode(at);
            last = Some(Superblock::parse(&bytes, at).expect("what is written can be read"));
            let buffer = Buffer::from(&bytes[..]).into();
            Request::Write { offset: at.0, buffer, fua }
        });
        let ticket = self.device().submit(requests.collect());
        for (at, completion) in places.into_iter().zip(self.device().wait(ticket)) {
            completion.result.map_err(|source| WriteError::Superblock { at, source })?;
        }
        Ok(last)
    }
}
