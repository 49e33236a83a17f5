//! Resolution of paths to inodes.
//!
//! 1. The path from the root is kept as a stack, so that `..` needs no disk access and cannot leave
//!    the root.
//! 2. At most [`LINKS_MAX`] symbolic links are followed.

use userbtrfs_format::{DirEntryKind, FileKind};

use crate::data::{BackingExtents, fetch, pieces};
use crate::error::{Error, InodeId, Result};
use crate::inode::dir;
use crate::inode::{EMPTY_DIR, Inodes};

/// The most symbolic links on a path.
pub(super) const LINKS_MAX: usize = 40;

/// The longest target of a symbolic link, in bytes.
const TARGET_MAX: u64 = 4095;

/// The treatment of a symbolic link at the end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FinalSymlink {
    /// Follow it.
    Follow,
    /// Return the link itself.
    Keep,
}

/// Returns the inode at `path`, relative to `root`.
pub(crate) fn resolve(
    nodes: &Inodes,
    root: InodeId,
    path: &[u8],
    last: FinalSymlink,
) -> Result<InodeId> {
    let mut way = vec![root];
    // The remaining components, the next one last.
    let mut parts = split(path);
    let directory_wanted = path.ends_with(b"/");
    let mut links = 0;
    while let Some(part) = parts.pop() {
        let dir = *way.last().expect("the way starts with the root");
        match part.as_slice() {
            b"." => check_directory(nodes, dir)?,
            b".." => {
                check_directory(nodes, dir)?;
                way.truncate(way.len().saturating_sub(1).max(1));
            }
            name => {
                let (child, kind) = step(nodes, dir, name)?;
                let follow = !parts.is_empty() || last == FinalSymlink::Follow || directory_wanted;
                if kind != DirEntryKind::Symlink || !follow {
                    way.push(child);
                    continue;
                }
                links += 1;
                if links > LINKS_MAX {
                    return Err(Error::SymlinkLoop);
                }
                let target = read_link(nodes, child)?;
                if target.starts_with(b"/") {
                    way.truncate(1);
                }
                parts.extend(split(&target));
            }
        }
    }
    let found = *way.last().expect("the way starts with the root");
    if directory_wanted {
        check_directory(nodes, found)?;
    }
    Ok(found)
}

/// Returns the components of a path, the first one last.
fn split(path: &[u8]) -> Vec<Vec<u8>> {
    let parts = path.split(|&b| b == b'/').filter(|part| !part.is_empty());
    parts.rev().map(<[u8]>::to_vec).collect()
}

/// Looks up `name` in a directory.
pub(crate) fn step(nodes: &Inodes, dir: InodeId, name: &[u8]) -> Result<(InodeId, DirEntryKind)> {
    check_directory(nodes, dir)?;
    if name.contains(&0) {
        return Err(Error::BadName(name.to_vec()));
    }
    let found = dir::lookup(nodes, dir, name)?.ok_or(Error::NotFound)?;
    Ok((found.target.resolve(nodes.tree_roots(), dir, name)?, found.kind))
}

fn check_directory(nodes: &Inodes, id: InodeId) -> Result<()> {
    if id.number == EMPTY_DIR {
        return Ok(());
    }
    match nodes.inode(id)?.kind() {
        FileKind::Directory => Ok(()),
        _ => Err(Error::NotADirectory),
    }
}

/// Returns the target of a symbolic link.
pub(crate) fn read_link(nodes: &Inodes, id: InodeId) -> Result<Vec<u8>> {
    let inode = nodes.inode(id)?;
    if inode.kind() != FileKind::Symlink {
        return Err(Error::NotASymlink);
    }
    let mut file = BackingExtents::new(&inode, None);
    file.size = file.size.min(TARGET_MAX);
    let size = file.size;
    let pieces = pieces(nodes.tree_roots(), &file, 0, size, size.max(1), u64::MAX)?;
    let mut target = Vec::new();
    for (_, bytes) in fetch(nodes.tree_roots(), &file, pieces)? {
        target.extend_from_slice(bytes.bytes().unwrap_or_default());
    }
    Ok(target)
}

/// Returns the path of a name in a directory.
pub fn join_path(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let separator: &[u8] = if dir.is_empty() || dir.ends_with(b"/") { b"" } else { b"/" };
    [dir, separator, name].concat()
}
