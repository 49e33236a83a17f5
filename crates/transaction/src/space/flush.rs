//! Reservations of space, and the steps that free space when it is short.
//!
//! 1. The steps are taken in order, the cheapest first, and only if they can help.
//! 2. A reservation may wait for a commit: the caller is in no transaction and holds no lock that a
//!    commit, a merge or writeback takes; it may hold operation locks of inodes.
//! 3. A thread that got no space once after all steps, since others took what became free, queues
//!    for a ticket, and no thread gets ahead of it: see [`crate::space::tickets`].
//! 4. A commit is made for metadata only if it frees enough for many reservations, not for one:
//!    otherwise there is no space. So a full filesystem does not commit all the time.
//! 5. The next commit finds what it takes for the global reserve trees: references may lie in as
//!    many leaves as there are of them, but no commit changes more than all leaves of these trees.

use userbtrfs_sync::Arc;

use crate::commit::{Committer, DelayedFlusher, FlushScope, Hooks};
use crate::context::TransactionContext;
use crate::error::{Error, Result};
use crate::log::SubvolumeLogs;
use crate::space::file_data::FileData;
use crate::space::tickets::ReserveTickets;
use crate::space::{FlushHint, Reservation, ReservePolicy, SpaceKind};

/// How often space is freed for one reservation, while others may take it.
const ATTEMPTS: u32 = 16;

/// The number of commits that data may need: one that frees it, one that removes an empty block
/// group of another kind, and one more, since others freed space meanwhile.
const DATA_COMMITS: u32 = 3;

/// The bytes that a commit for metadata must free beyond the request: this part of all metadata, at
/// most `SLACK_MAX` bytes.
const SLACK_PART: u64 = 32;
const SLACK_MAX: u64 = 4 << 20;

/// Freed bytes of another kind that may leave a block group empty, and so space for a chunk.
const WORTH_A_CHUNK: u64 = 1 << 20;

/// The steps that free space, in order.
#[derive(Clone, Copy)]
enum FlushState {
    Merge,
    WriteBack,
    Commit,
}

impl FlushState {
    const ALL: [Self; 3] = [Self::Merge, Self::WriteBack, Self::Commit];
}

/// Reserves space, and has space freed if it is short.
pub(crate) struct SpaceReserver {
    pub(crate) context: Arc<TransactionContext>,
    pub(crate) hooks: Arc<Hooks>,
    pub(crate) logs: Arc<SubvolumeLogs>,
    pub(crate) committer: Arc<Committer>,
    pub(crate) flusher: Arc<DelayedFlusher>,
    pub(crate) file_data: Arc<FileData>,
    pub(crate) tickets: ReserveTickets,
}

impl SpaceReserver {
    /// Reserves space for changes of `items` items; waits for space if that helps.
    pub(crate) fn reserve(&self, items: u64, policy: ReservePolicy) -> Result<Reservation> {
        let bytes = self.context.bytes_for(items);
        self.context.check()?;
        let mut ticket = None;
        for _ in 0..ATTEMPTS {
            if ticket.is_none() && !self.tickets.is_idle() {
                ticket = Some(self.tickets.take());
            }
            for step in FlushState::ALL {
                if let Some(reservation) = self.context.reserve_now(bytes, 0, policy) {
                    return Ok(reservation);
                }
                self.flush_space(step, bytes, policy)?;
            }
            if !self.may_come_back(policy) {
                break;
            }
            ticket.get_or_insert_with(|| self.tickets.take());
        }
        self.context.reserve_now(bytes, 0, policy).ok_or(Error::NoSpace)
    }

    /// Returns true if space may be released: what other threads hold, when it is merged; and what
    /// they freed meanwhile, with the next commit that is made for a removal.
    fn may_come_back(&self, policy: ReservePolicy) -> bool {
        let usage = self.context.space.usage(SpaceKind::Metadata);
        let is_held = usage.reserved > 0 || self.context.space.expects_any();
        is_held || (policy == ReservePolicy::Steal && usage.pinned > 0)
    }

    fn flush_space(&self, step: FlushState, bytes: u64, policy: ReservePolicy) -> Result<()> {
        match step {
            FlushState::Merge => self.flusher.merge(FlushScope::All),
            FlushState::WriteBack => {
                self.hooks.write_back()?;
                self.flusher.merge(FlushScope::All)
            }
            FlushState::Commit if policy == ReservePolicy::Steal || self.commit_pays(bytes) => {
                self.committer.commit_for_space().map(drop)
            }
            FlushState::Commit => Ok(()),
        }
    }

    /// Returns true if a commit frees metadata for this reservation, and then for others; or if
    /// much of what is kept is for the commit itself.
    fn commit_pays(&self, bytes: u64) -> bool {
        let slack =
            (self.context.space.usage(SpaceKind::Metadata).total / SLACK_PART).min(SLACK_MAX);
        let policy = ReservePolicy::Normal;
        let is_enough = || self.context.space.lack(SpaceKind::Metadata, bytes, policy) == 0;
        self.commit_may_free(SpaceKind::Metadata, bytes.saturating_add(slack), policy)
            || (self.context.commit_overhead(0, policy) >= slack && is_enough())
    }

    /// Reserves `bytes` bytes for data, whole sectors; reads and commits if that helps. Writing
    /// back data for which others hold reservations is left to the caller.
    pub(crate) fn reserve_data(&self, bytes: u64) -> Result<Reservation> {
        self.context.check()?;
        for _ in 0..DATA_COMMITS {
            if let Some(reservation) = self.reserve_data_now(bytes)? {
                return Ok(reservation);
            }
            self.flusher.merge(FlushScope::All)?;
            if !self.commit_may_free(SpaceKind::Data, bytes, ReservePolicy::Normal) {
                break;
            }
            self.committer.commit_for_space()?;
        }
        self.reserve_data_now(bytes)?.ok_or(Error::NoSpace)
    }

    /// Like [`Self::reserve_data`], but without commits.
    fn reserve_data_now(&self, bytes: u64) -> Result<Option<Reservation>> {
        loop {
            match self.context.space.reserve_data(bytes) {
                Ok(reservation) => return Ok(Some(reservation)),
                Err(FlushHint::Unloaded | FlushHint::Chunk) if self.file_data.open_up()? => {}
                Err(_) => return Ok(None),
            }
        }
    }

    /// Returns true if a commit may free what a reservation lacks, or space for a chunk.
    fn commit_may_free(&self, kind: SpaceKind, bytes: u64, policy: ReservePolicy) -> bool {
        let lack = self.context.space.lack(kind, bytes, policy);
        let (blocks, data) = self.context.refs.freeable();
        let blocks = blocks + self.logs.freeable();
        let blocks = blocks * u64::from(self.context.nodesize());
        let pinned = |kind| self.context.space.usage(kind).pinned;
        let metadata = pinned(SpaceKind::Metadata) + blocks;
        let data = pinned(SpaceKind::Data) + data;
        let (own, other) = match kind {
            _ if self.context.space.is_mixed() => (pinned(SpaceKind::Data) + blocks + data, 0),
            SpaceKind::Data => (data, metadata),
            SpaceKind::Metadata | SpaceKind::System => (metadata, data),
        };
        let chunks = self.context.space.has_groups_being_removed()
            || !self.context.space.empty_groups().is_empty();
        own >= lack || other >= WORTH_A_CHUNK || chunks
    }
}
