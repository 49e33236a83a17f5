//! Contents of files that are in the tree itself.
//!
//! Files with extents on disk are read elsewhere, and not yet changed.

use userbtrfs_format::{FileKind, SECTOR_SIZE, Timestamp};

use super::attributes::ATTRIBUTE_ITEMS;
use super::inode::State;
use super::operation::lock_operations;
use super::stored::{self, StoredContent};
use super::{Content, Inode, Nodes, check_mutable};
use crate::error::{Error, InodeId, Result};

/// The longest content that is kept in the tree, in bytes.
const INLINE_MAX: usize = 2048;

impl Nodes {
    /// Replaces all the content of a file.
    pub(crate) fn write_inline(&self, id: InodeId, bytes: &[u8]) -> Result<()> {
        let inode = self.inode_to_change(id)?;
        check_mutable(&inode)?;
        match inode.kind() {
            FileKind::Regular => {}
            FileKind::Directory => return Err(Error::IsADirectory),
            _ => return Err(Error::NotAFile),
        }
        if !self.is_inline_len(bytes.len()) {
            return Err(Error::Unsupported("writing files that are not inline"));
        }
        let reservation = self.reserve(ATTRIBUTE_ITEMS)?;
        let _locked = lock_operations(&[&inode]);
        self.check_replaceable(&inode)?;
        let content = match bytes {
            [] => Content::Empty,
            bytes => Content::Inline(bytes.into()),
        };
        let operation = self.begin()?;
        operation.change(&inode, |state| {
            state.item.ctime = operation.now;
            state.replace_content(content, operation.now);
        });
        operation.hold(&inode, Some(reservation));
        Ok(())
    }

    /// Whether content of this length may be kept in the tree: it is below a sector, too.
    pub(super) fn is_inline_len(&self, len: usize) -> bool {
        let fits = len + 21 <= self.item_max();
        fits && len <= INLINE_MAX && len < SECTOR_SIZE as usize
    }

    /// Checks that all the content of a file may be replaced.
    pub(super) fn check_replaceable(&self, inode: &Inode) -> Result<()> {
        match self.stored_content(inode)? {
            StoredContent::Extents => {
                Err(Error::Unsupported("changing files with extents on disk"))
            }
            _ => Ok(()),
        }
    }

    /// The bytes of a file that has all of them in the tree.
    pub(super) fn inline_content(&self, inode: &Inode) -> Result<Vec<u8>> {
        match self.stored_content(inode)? {
            StoredContent::Empty if inode.item().size == 0 => Ok(Vec::new()),
            StoredContent::Inline(bytes) => Ok(bytes.to_vec()),
            StoredContent::Compressed => Err(Error::Unsupported("changing compressed files")),
            _ => Err(Error::Unsupported("changing files with extents on disk")),
        }
    }

    fn stored_content(&self, inode: &Inode) -> Result<StoredContent> {
        match inode.pending_content() {
            Some(Content::Empty) => Ok(StoredContent::Empty),
            Some(Content::Inline(bytes)) => Ok(StoredContent::Inline(bytes)),
            None => stored::content(&self.forest, inode.tree(), inode.number()),
        }
    }
}

impl State {
    /// The file has this content, and no other.
    pub(super) fn replace_content(&mut self, content: Content, now: Timestamp) {
        let len = match &content {
            Content::Empty => 0,
            Content::Inline(bytes) => bytes.len() as u64,
        };
        (self.item.size, self.item.nbytes) = (len, len);
        self.item.mtime = now;
        self.pending().set_content(content);
    }
}
