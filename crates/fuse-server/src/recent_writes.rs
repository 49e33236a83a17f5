//! Which files were written lately.
//!
//! 1. What a file takes on disk changes when it is written, and again when that comes to the disk.
//!    So attributes of a file that is noted here are given for [`SOON`] only; and when it is
//!    written again, the kernel has none for longer, and need not be told that they are old.
//! 2. A file is noted when it has what was written: before, it is not known to wait, and from then
//!    on it is, or has come to the disk. Its note is over when it was not written for [`SOON`]: the
//!    time is looked at under the lock, so that all see that in one order.
//! 3. Notes that are over are thrown away each [`SOON`] in which there are new ones.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use userbtrfs_engine::api::InodeId;
use userbtrfs_sync::{Class, Mutex};

/// How long the kernel keeps attributes that are about to change by themselves.
pub(crate) const SOON: Duration = Duration::from_secs(1);

const SHARDS: usize = 16;

/// See the module's text.
#[derive(Default)]
pub(crate) struct RecentWrites {
    shards: [Shard; SHARDS],
}

struct Shard(Mutex<Written>);

struct Written {
    /// When each was written last.
    times: HashMap<InodeId, Instant>,
    cleared: Instant,
}

impl Default for Shard {
    fn default() -> Self {
        let written = Written { times: HashMap::new(), cleared: Instant::now() };
        Self(Mutex::new(Class::FuseSession, written))
    }
}

impl RecentWrites {
    fn shard(&self, file: InodeId) -> &Mutex<Written> {
        &self.shards[usize::from(file.number.to_le_bytes()[0]) % SHARDS].0
    }

    /// A file was written just now. Says whether it was not before, lately: then attributes may
    /// have been given for longer.
    pub(crate) fn note(&self, file: InodeId) -> bool {
        let mut written = self.shard(file).lock();
        let now = Instant::now();
        let last = written.times.insert(file, now);
        if last.is_none() {
            written.clear(now);
        }
        last.is_none_or(|last| is_over(last, now))
    }

    /// Whether a file was written lately.
    pub(crate) fn has(&self, file: InodeId) -> bool {
        let written = self.shard(file).lock();
        written.times.get(&file).is_some_and(|last| !is_over(*last, Instant::now()))
    }
}

impl Written {
    fn clear(&mut self, now: Instant) {
        if is_over(self.cleared, now) {
            self.times.retain(|_, last| !is_over(*last, now));
            self.times.shrink_to(2 * self.times.len());
            self.cleared = now;
        }
    }
}

fn is_over(last: Instant, now: Instant) -> bool {
    now.saturating_duration_since(last) >= SOON
}
