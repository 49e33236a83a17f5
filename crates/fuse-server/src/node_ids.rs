//! Converts inodes to FUSE node ids, and back.
//!
//! A node id and the number that stat(2) shows are computed from the subvolume and the inode's
//! number in it, so that no table is needed:
//!
//! ```text
//!   63           40 39                                0
//!  +---------------+-----------------------------------+
//!  |   subvolume   |  number                           |   0 is the subvolume that is mounted
//!  +---------------+-----------------------------------+
//! ```
//!
//! A snapshot has the names of the subvolumes that were in its source, each as an empty directory:
//! the *place* of a subvolume. All places in a subvolume are one inode, but each has its own node
//! id. Otherwise the kernel would take two of them for one directory, which can have only one path:
//!
//! ```text
//!   63           40 39            24 23                0
//!  +---------------+----------------+-------------------+
//!  |   subvolume   |  all ones      |  of subvolume     |
//!  +---------------+----------------+-------------------+
//! ```
//!
//! 1. The root of the mounted subvolume is node 1, as the kernel requires; stat(2) shows its own
//!    number.
//! 2. Inodes in the mounted subvolume show the numbers that Linux shows. Those in others show
//!    different ones: one mount has one device number, and two inodes with one number would pass
//!    for one.
//! 3. Subvolumes from 2^24 on, and inodes from 2^40 - 2^24 on, have no node id: EOVERFLOW.

use userbtrfs_engine::api::{EMPTY_DIR, InodeId, TreeId};
use userbtrfs_fuse::{Errno, NodeId};

const NUMBER_BITS: u32 = 40;
const SUBVOLUME_BITS: u32 = 24;

/// The first of the numbers that encode a place.
const PLACES: u64 = (1 << NUMBER_BITS) - (1 << SUBVOLUME_BITS);

/// Computes node ids.
pub(crate) struct NodeIds {
    root: InodeId,
}

impl NodeIds {
    /// Creates the conversion for a mount whose root is this directory.
    pub(crate) fn new(root: InodeId) -> Self {
        Self { root }
    }

    /// Returns the inode number that stat(2) shows.
    pub(crate) fn shown(&self, id: InodeId) -> Result<u64, Errno> {
        let subvolume = if id.subvolume == self.root.subvolume { 0 } else { id.subvolume.0 };
        if subvolume >> SUBVOLUME_BITS == 0 && id.number < PLACES {
            Ok(subvolume << NUMBER_BITS | id.number)
        } else {
            Err(Errno::OVERFLOW)
        }
    }

    /// Returns the node id of an inode.
    pub(crate) fn node(&self, id: InodeId) -> Result<NodeId, Errno> {
        if id == self.root {
            return Ok(NodeId::ROOT);
        }
        self.shown(id).map(NodeId)
    }

    /// Returns the node id of the place of another subvolume.
    pub(crate) fn place(&self, id: InodeId, of: TreeId) -> Result<NodeId, Errno> {
        let first = self.shown(InodeId { number: 0, ..id })?;
        match of.0 >> SUBVOLUME_BITS {
            0 => Ok(NodeId(first | PLACES | of.0)),
            _ => Err(Errno::OVERFLOW),
        }
    }

    /// Returns the inode of a node id.
    pub(crate) fn inode(&self, node: NodeId) -> InodeId {
        if node == NodeId::ROOT {
            return self.root;
        }
        let number = match node.0 & ((1 << NUMBER_BITS) - 1) {
            PLACES.. => EMPTY_DIR,
            number => number,
        };
        match node.0 >> NUMBER_BITS {
            0 => InodeId { number, ..self.root },
            subvolume => InodeId { subvolume: TreeId(subvolume), number },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn id(subvolume: u64, number: u64) -> InodeId {
        InodeId { subvolume: TreeId(subvolume), number }
    }

    #[test]
    fn nodes_lead_back_to_their_inodes() {
        let ids = NodeIds::new(id(5, 256));
        let last = (1 << 40) - (1 << 24) - 1;
        for inode in [id(5, 256), id(5, 257), id(5, last), id(256, 256), id((1 << 24) - 1, last)] {
            assert_eq!(ids.inode(ids.node(inode).unwrap()), inode);
        }
        assert_eq!(ids.node(id(5, 256)), Ok(NodeId::ROOT));
    }

    #[test]
    fn places_have_nodes_of_their_own() {
        let ids = NodeIds::new(id(5, 256));
        let mut nodes = HashSet::new();
        for within in [5, 6, (1 << 24) - 1] {
            for of in [256, 257, (1 << 24) - 1] {
                let node = ids.place(id(within, EMPTY_DIR), TreeId(of)).unwrap();
                assert!(nodes.insert(node.0));
                assert_eq!(ids.inode(node), id(within, EMPTY_DIR));
            }
        }
        assert_eq!(ids.place(id(5, EMPTY_DIR), TreeId(1 << 24)), Err(Errno::OVERFLOW));
        assert_eq!(ids.shown(id(5, EMPTY_DIR)), Ok(2));
    }

    #[test]
    fn no_two_inodes_show_one_number() {
        let ids = NodeIds::new(id(256, 256));
        assert_eq!(ids.shown(id(256, 256)), Ok(256));
        assert_eq!(ids.shown(id(256, 300)), Ok(300));
        assert_eq!(ids.shown(id(257, 0x300)), Ok(257 << 40 | 0x300));
    }

    #[test]
    fn numbers_that_are_too_large_are_refused() {
        let ids = NodeIds::new(id(5, 256));
        for inode in
            [id(5, 1 << 40), id(5, (1 << 40) - (1 << 24)), id(1 << 24, 256), id(256, u64::MAX)]
        {
            assert_eq!(ids.node(inode), Err(Errno::OVERFLOW));
        }
    }
}
