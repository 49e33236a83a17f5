//! The state that all parts of the transactions share: trees, space, references, checksums.
//!
//! 1. It is below handles, logs and commits, and knows none of them.
//! 2. It is the source of blocks for all trees but those of logs: it allocates blocks, and counts
//!    their references.
//! 3. A failure ends all writing here, once for all parts; the crates above learn of it by a
//!    callback.

use userbtrfs_btree::{
    Backref, BlockRefs, BlockSource, Extent, NoSpace, RefChange, SourceError, Tree,
};
use userbtrfs_format::{BlockFlags, Header, Logical, TreeId};
use userbtrfs_sync::{Arc, Class, Mutex};
use userbtrfs_volume::Volume;

use crate::checksums::PendingChecksums;
use crate::commit::{ChangedRoots, TransactionState};
use crate::damage::Damage;
use crate::editor::Editor;
use crate::error::{Error, Result};
use crate::options::TransactionOptions;
use crate::refs::{self, DelayedRefs};
use crate::roots::TreeRoots;
use crate::space::high_water::HighWater;
use crate::space::{Reservation, ReservePolicy, Space, SpaceKind, bytes_for_items};
use crate::subvolume::state::SubvolumeIds;

/// The factor for checksums that are not in their tree yet: leaves may be half empty.
pub(crate) const CHECKSUM_FACTOR: u64 = 2;

/// The trees, the space and the running transaction of a filesystem that is open for writing.
pub(crate) struct TransactionContext {
    pub(crate) tree_roots: Arc<TreeRoots>,
    pub(crate) space: Space,
    pub(crate) refs: DelayedRefs,
    pub(crate) checksums: PendingChecksums,
    pub(crate) state: TransactionState,
    pub(crate) changed: Mutex<ChangedRoots>,
    pub(crate) subvolume_ids: SubvolumeIds,
    pub(crate) high_water: HighWater,
    pub(crate) options: TransactionOptions,
    /// Called at each failure, also at a shutdown.
    on_abort: Box<dyn Fn() + Send + Sync>,
}

impl TransactionContext {
    /// Reads the space of a volume that is open for writing. Nothing is written yet.
    pub(crate) fn open(
        tree_roots: Arc<TreeRoots>,
        options: TransactionOptions,
        on_abort: impl Fn() + Send + Sync + 'static,
    ) -> Result<Self> {
        let space = Space::load(&tree_roots)?;
        // Tree blocks are allocated under locks, where nothing can be read.
        for kind in [SpaceKind::Metadata, SpaceKind::System] {
            space.ensure_loaded(&tree_roots, kind, u64::MAX)?;
        }
        let subvolume_ids = SubvolumeIds::load(&tree_roots)?;
        let volume = tree_roots.store().volume();
        let checksum_size = volume.geometry().checksum_kind.size();
        let next = volume.superblock().generation + 1;
        Ok(Self {
            tree_roots,
            space,
            refs: DelayedRefs::default(),
            checksums: PendingChecksums::new(checksum_size),
            state: TransactionState::new(next),
            changed: Mutex::new(Class::ChangedRoots, ChangedRoots::default()),
            subvolume_ids,
            high_water: HighWater::default(),
            options,
            on_abort: Box::new(on_abort),
        })
    }

    /// The volume below.
    pub(crate) fn volume(&self) -> &Arc<Volume> {
        self.tree_roots.store().volume()
    }

    /// Returns true if the filesystem behaves as before this seed.
    #[cfg(feature = "experiments")]
    pub(crate) fn runs(&self, experiment: crate::Experiment) -> bool {
        self.options.experiment == Some(experiment)
    }

    /// The size of a tree block.
    pub(crate) fn nodesize(&self) -> u32 {
        self.volume().geometry().nodesize
    }

    /// Returns the bytes of metadata to reserve for changes of `items` items.
    pub(crate) fn bytes_for(&self, items: u64) -> u64 {
        bytes_for_items(items, self.nodesize())
    }

    /// Returns an editor of trees in transaction `generation`.
    pub(crate) fn editor(&self, generation: u64) -> Editor<'_> {
        Editor { tree_roots: &self.tree_roots, source: self, generation }
    }

    /// Returns an error if something failed.
    pub(crate) fn check(&self) -> Result<()> {
        Ok(self.state.check()?)
    }

    /// Ends all writing, for this reason.
    pub(crate) fn fail(&self, why: &str) {
        self.state.fail(why);
        self.abort();
    }

    /// Runs a part of a commit, of a log commit or of a merge; if it fails, that is the reason why
    /// nothing is written any more. The error is recorded before the commit drops: dropping it
    /// unfinished would record a less specific one.
    pub(crate) fn fail_on_error<R>(&self, part: impl FnOnce() -> Result<R>) -> Result<R> {
        part().inspect_err(|error| self.fail(&error.to_string()))
    }

    /// Ends all writing at once, like a power cut.
    pub(crate) fn shut_down(&self) {
        // Record the shutdown first, so that later errors report it, not the failed write.
        self.state.shut_down();
        self.volume().stop_writing();
        self.abort();
    }

    fn abort(&self) {
        self.space.abort();
        (self.on_abort)();
    }

    /// Reserves metadata, if there is enough space at once; leaves to the next commit what that
    /// takes, also for references that the change will drop.
    pub(crate) fn reserve_now(
        &self,
        bytes: u64,
        references: u64,
        policy: ReservePolicy,
    ) -> Option<Reservation> {
        let overhead = self.commit_overhead(references, policy);
        let wanted = bytes.saturating_add(overhead);
        let reserved = self.space.reserve_with_policy(SpaceKind::Metadata, wanted, policy);
        let mut reservation = reserved.ok()?;
        if references > 0 {
            // Before another thread can reserve the space for them.
            reservation.merge(self.space.expect(references));
        }
        reservation.shrink(overhead);
        self.high_water.reserved(bytes);
        Some(reservation)
    }

    /// Returns the bytes that the next commit takes beyond what a reservation leaves to it, for
    /// `references` references and for those and the checksums that are not in their trees yet: a
    /// long transaction would outgrow the global reserve.
    pub(crate) fn commit_overhead(&self, references: u64, policy: ReservePolicy) -> u64 {
        let references = references.saturating_add(self.refs.references() as u64);
        let checksums = CHECKSUM_FACTOR * self.checksums.bytes() as u64;
        self.space.commit_overhead(references, checksums, policy)
    }
}

impl BlockSource for TransactionContext {
    fn generation(&self) -> u64 {
        self.state.generation()
    }

    fn allocate(&self, tree: TreeId, level: u8, near: Logical) -> Result<Logical, NoSpace> {
        let kind = if tree == TreeId::CHUNK { SpaceKind::System } else { SpaceKind::Metadata };
        let logical = self.space.allocate_block(kind, near)?;
        self.refs.allocated(logical, level, tree);
        Ok(logical)
    }

    fn free(&self, tree: TreeId, block: &Header) {
        let &Header { logical, level, generation, flags, .. } = block;
        let unwritten = generation == self.generation() && !flags.contains(BlockFlags::WRITTEN);
        if unwritten && self.refs.forget(logical) {
            let len = u64::from(self.nodesize());
            self.space.give_back(logical, len).expect("it was allocated by this transaction");
            return;
        }
        let extent = Extent::Block { logical, level };
        self.refs.change(&RefChange { add: false, extent, backref: Backref::Tree(tree) });
    }

    fn sharing(&self, block: Logical) -> Option<BlockRefs> {
        self.refs.sharing(block)
    }

    fn load_refs(&self, logical: Logical, level: u8) -> Result<(), SourceError> {
        let found = refs::lookup(&self.tree_roots, &Extent::Block { logical, level });
        let missing = || Error::from(Damage::NoExtent(logical));
        let sharing = found.and_then(|found| found.ok_or_else(missing))?;
        self.refs.learn(logical, sharing);
        Ok(())
    }

    fn reference(&self, change: RefChange) {
        self.refs.change(&change);
    }

    fn drop_if_shared(&self, change: RefChange) -> Option<BlockRefs> {
        self.refs.drop_if_shared(&change)
    }

    fn set_full_backref(&self, block: Logical, level: u8) {
        self.refs.set_full_backref(block, level);
    }

    fn root_changed(&self, tree: &Tree) {
        self.changed.lock().change(tree.id());
    }
}

#[cfg(test)]
mod tests {
    use userbtrfs_device::{FileDevice, FileOptions};
    use userbtrfs_testkit::golden::Golden;
    use userbtrfs_volume::Volume;

    use super::*;

    #[test]
    fn references_that_cannot_be_looked_up_are_an_error_of_this_crate() {
        let folder = tempfile::TempDir::new().unwrap();
        let image = folder.path().join("image");
        Golden::named("fresh").unpack(&image).unwrap();
        let options = FileOptions { writable: true, ..FileOptions::default() };
        let device = FileDevice::open(&image, options).unwrap();
        let volume = Arc::new(Volume::open_for_writing(vec![Arc::new(device)]).unwrap());
        let tree_roots = Arc::new(TreeRoots::new(volume, 8 << 20));
        let context = TransactionContext::open(tree_roots, TransactionOptions::default(), || {});
        let nowhere = Logical(1 << 60);
        let error = context.unwrap().load_refs(nowhere, 0).unwrap_err();
        let error = Error::from_source(error);
        assert!(matches!(error, Error::Damaged(Damage::NoExtent(at)) if at == nowhere), "{error}");
    }
}
