//! Block groups that are relocated, and the size of the device.
//!
//! 1. A frozen group has no free space in the counters, and none that an allocation finds.
//! 2. While there is a limit, the free space of the device has nothing beyond it.

use userbtrfs_format::{Chunk, Logical};

use super::{BlockGroup, BlockGroups, SpaceKind, SpaceTotals, kind_of};

impl BlockGroups {
    /// Excludes a group from allocation; returns false if a reservation relies on it.
    pub(in crate::space) fn freeze(&mut self, start: Logical) -> bool {
        self.release_preallocated();
        let Some(group) = self.groups.get_mut(&start) else { return true };
        let before = group.totals();
        if !self.counters.try_take(kind_of(group), before, 0) {
            return false;
        }
        group.is_frozen = true;
        self.counters.replace(kind_of(group), SpaceTotals::default(), group.totals());
        true
    }

    /// Allows allocation in a group again.
    pub(in crate::space) fn unfreeze(&mut self, start: Logical) {
        if self.groups.contains_key(&start) {
            self.change(start, |group| group.is_frozen = false);
        }
    }

    /// Returns true if all that is allocated in a group is in the extent tree.
    pub(in crate::space) fn is_all_counted(&self, start: Logical) -> bool {
        self.groups.get(&start).is_none_or(BlockGroup::is_all_counted)
    }

    /// Returns true if there is a group at this address.
    pub(in crate::space) fn has(&self, start: Logical) -> bool {
        self.groups.contains_key(&start)
    }

    /// Returns the kind of a group, and its length.
    pub(in crate::space) fn kind_and_len(&self, start: Logical) -> Option<(SpaceKind, u64)> {
        self.groups.get(&start).map(|group| (kind_of(group), group.chunk.len))
    }

    /// Returns the starts of the groups that take space of the device beyond `len`.
    pub(in crate::space) fn groups_beyond(&self, len: u64) -> Vec<Logical> {
        self.beyond(len).map(BlockGroup::start).collect()
    }

    /// Returns the bytes of these groups that are used.
    pub(in crate::space) fn used_beyond(&self, len: u64) -> u64 {
        self.beyond(len).map(|group| group.used).sum()
    }

    fn beyond(&self, len: u64) -> impl Iterator<Item = &BlockGroup> {
        self.groups.values().filter(move |group| ends_beyond(&group.chunk, len))
    }

    /// Keeps new chunks below `limit`, until the length of the device is set or `clear_limit` is
    /// called. Space that is set aside beyond it, for reservations, is set aside below it instead,
    /// if there is enough.
    pub(in crate::space) fn set_limit(&mut self, limit: u64) {
        self.release_preallocated();
        self.device.set_limit(limit);
        let (beyond, below) = std::mem::take(&mut self.preallocated)
            .into_iter()
            .partition(|chunk| ends_beyond(chunk, limit));
        self.preallocated = below;
        self.replace_preallocated(beyond);
    }

    /// Sets other space aside for chunks. Those for which there is none stay.
    fn replace_preallocated(&mut self, chunks: Vec<Chunk>) {
        let kept: u64 = chunks.iter().map(|chunk| self.free_bytes_of(chunk)).sum();
        let mut placed = Vec::new();
        let mut replaced = 0;
        while replaced < kept
            && let Some(chunk) = self.place(SpaceKind::Metadata)
        {
            replaced += self.free_bytes_of(&chunk);
            placed.push(chunk);
        }
        let mut set_aside = chunks;
        let mut unused = placed;
        if replaced >= kept {
            // Counted at once: a reservation may rely on the one or the other, not on both.
            self.counters.replace_preallocated(SpaceKind::Metadata, kept, replaced);
            std::mem::swap(&mut set_aside, &mut unused);
        }
        self.preallocated.append(&mut set_aside);
        for chunk in &unused {
            self.device.vacate(chunk);
        }
    }

    /// Allows chunks up to the end of the device again.
    pub(in crate::space) fn clear_limit(&mut self) {
        let chunks = self.groups.values().map(|group| &group.chunk);
        let others = self.preallocated.iter().chain(&self.being_removed);
        let chunks: Vec<_> = chunks.chain(others).cloned().collect();
        self.device.clear_limit(&chunks);
    }

    pub(in crate::space) fn device_len(&self) -> u64 {
        self.device.len()
    }

    /// Sets the length of the device; returns false if chunks take space beyond it, made or
    /// preallocated ones.
    pub(in crate::space) fn set_device_len(&mut self, len: u64) -> bool {
        self.release_preallocated();
        // Under the same lock, so that no chunk is made beyond the new end.
        self.clear_limit();
        self.device.set_len(len)
    }
}

/// Returns true if a chunk takes space of the device beyond `len`.
fn ends_beyond(chunk: &Chunk, len: u64) -> bool {
    chunk.stripes.iter().any(|stripe| stripe.physical.0 + chunk.len > len)
}
