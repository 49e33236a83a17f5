//! The copies of the superblock: which of them to believe, and how they are replaced.
//!
//! 1. The primary copy is believed if it is good, whatever the mirrors say: only it can name a
//!    log, and Linux reads no other.
//! 2. Otherwise the good mirror of the highest generation is, and the volume is read-only.
//! 3. No mirror is newer than a primary that could still be lost: a mirror is written once the
//!    primary is durable. It is durable itself with the next flush.
//! 4. No mirror names a log: with one the primary alone is written.

use std::fmt;

use userbtrfs_device::{Buffer, Device, Request};
use userbtrfs_format::{Logical, Physical, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock};

use crate::Volume;
use crate::error::{OpenError, SuperblockMirrorError, WriteError};

/// What the one who opens a volume must be told.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// The primary superblock is damaged.
    Mirror {
        /// What is wrong with it.
        primary: SuperblockMirrorError,
        /// The copy that is used instead.
        used: Physical,
        /// The generation of that copy.
        generation: u64,
    },
    /// A log waits to be replayed.
    PendingLog {
        /// The generation of the commit it follows.
        generation: u64,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mirror { primary, used, generation } => write!(
                f,
                "the primary superblock is damaged ({primary}); reading generation \
                 {generation} from the copy at {used}, read-only",
            ),
            Self::PendingLog { generation } => write!(
                f,
                "a log is pending after generation {generation} and is not replayed: \
                 what was fsynced since then is not shown",
            ),
        }
    }
}

/// Reads the copy at `at`; nothing where the device does not reach so far.
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
            let notices = pending_log(&superblock).into_iter().collect();
            return Ok((superblock, notices));
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
    let (used, generation) = (superblock.physical, superblock.generation);
    Ok((superblock, vec![Warning::Mirror { primary, used, generation }]))
}

fn pending_log(superblock: &Superblock) -> Option<Warning> {
    superblock.log_root.map(|_| Warning::PendingLog { generation: superblock.generation })
}

impl Volume {
    /// Replaces the superblock by one without a log, durably; what it points to must be durable
    /// before. The caller sees to it that one is written at a time.
    ///
    /// It is the [current](Volume::superblock) one from the moment the primary copy is durable,
    /// also where a mirror then fails: an error that names a mirror says no more than that.
    pub fn write_superblock(&self, superblock: &Superblock) -> Result<(), WriteError> {
        assert!(superblock.log_root.is_none(), "a log comes by a call of its own");
        self.check_writable()?;
        let [primary, mirrors @ ..] = SUPERBLOCK_OFFSETS;
        let current = self.write_primary(superblock, primary)?;
        self.set_superblock(current.expect("the primary lies on every device"));
        self.write_copies(superblock, &mirrors, false).map(drop)
    }

    /// Writes the primary copy of the superblock anew, durably, with a log of the transaction after
    /// it, and nothing else changed; what the log consists of must be durable before. The caller
    /// sees to it that one superblock is written at a time.
    ///
    /// The [current](Volume::superblock) one names no log: what is written next replaces it.
    pub fn write_log_superblock(&self, root: Logical, level: u8) -> Result<(), WriteError> {
        self.check_writable()?;
        let mut superblock = (*self.superblock()).clone();
        (superblock.log_root, superblock.log_root_level) = (Some(root), level);
        let [primary, ..] = SUPERBLOCK_OFFSETS;
        self.write_primary(&superblock, primary).map(drop)
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

    /// Writes the copies that lie on the device; the last of them as it can be read there.
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
