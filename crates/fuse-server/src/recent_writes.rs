//! The files that were written recently.
//!
//! 1. The space that a file takes changes when it is written, and again at writeback. So the
//!    attributes of a file that is recorded here are valid for [`SOON`] only; when it is written
//!    again, the kernel caches none for longer, and needs no invalidation.
//! 2. A file is recorded after the engine has the written data: before that, the data is not
//!    counted as unfinished; after that, it is unfinished or on disk. The record expires when the
//!    file was not written for [`SOON`]. The clock is read under the lock, so that all threads see
//!    the writes and the expiry in one order.
//! 3. Expired records are removed at most once per [`SOON`], when a new one is added.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use userbtrfs_engine::api::InodeId;
use userbtrfs_sync::{Class, Mutex};

/// How long the kernel caches attributes that are about to change by themselves.
pub(crate) const SOON: Duration = Duration::from_secs(1);

const SHARDS: usize = 16;

/// The files that were written recently, with the time of the last write.
#[derive(Default)]
pub(crate) struct RecentWrites {
    shards: [Shard; SHARDS],
}

struct Shard(Mutex<Written>);

struct Written {
    /// The time of the last write to each file.
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

    /// Records a write to a file. Returns true if it had not been written recently: then the kernel
    /// may cache attributes for longer.
    pub(crate) fn note(&self, file: InodeId) -> bool {
        let mut written = self.shard(file).lock();
        let now = Instant::now();
        let last = written.times.insert(file, now);
        if last.is_none() {
            written.clear(now);
        }
        last.is_none_or(|last| is_over(last, now))
    }

    /// Returns whether a file was written recently.
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
