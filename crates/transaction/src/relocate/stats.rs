//! Counters of relocations.

/// Counters of the relocation of block groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelocationStats {
    /// Bytes that were moved since the filesystem was opened.
    pub moved: u64,
    /// Bytes that the running relocation has still to move; 0 if there is none.
    pub left: u64,
}

impl RelocationStats {
    /// Counts bytes that are moved. There may be more of them than were left: data that was being
    /// written when the relocation began.
    pub(super) fn add_moved(&mut self, bytes: u64) {
        self.moved += bytes;
        self.left = self.left.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moved_bytes_are_not_left() {
        let mut stats = RelocationStats { moved: 1, left: 10 };
        stats.add_moved(4);
        assert_eq!(stats, RelocationStats { moved: 5, left: 6 });
        stats.add_moved(9);
        assert_eq!(stats, RelocationStats { moved: 14, left: 0 });
    }
}
