//! The experiment S1 of docs/seeds.md: a rename or link that concerns a logged inode or directory
//! writes the log before it returns.

use super::{Dir, Error, Result};

/// Writes the log if this new name in `dir` concerns it. The caller holds no lock.
pub(super) fn linked(dir: &Dir, name: &[u8]) -> Result<()> {
    log_name((dir, name), dir, false)
}

/// Writes the log if a rename from one directory and name to another concerns it. The caller holds
/// no lock.
pub(super) fn renamed(from: (&Dir, &[u8]), to: (&Dir, &[u8]), exchanges: bool) -> Result<()> {
    log_name(to, from.0, exchanges)?;
    // The inode that was exchanged, or the whiteout.
    log_name(from, to.0, exchanges)
}

/// Writes the log if the inode of this name is in it, or the directory, or the one that it left.
fn log_name((dir, name): (&Dir, &[u8]), left: &Dir, exchanges: bool) -> Result<()> {
    let Some(log) = &dir.inode().inner().log else { return Ok(()) };
    if !log.writes_new_names() {
        return Ok(());
    }
    let inode = match dir.lookup(name) {
        Ok(inode) => inode.id(),
        Err(Error::NotFound) => return Ok(()),
        Err(error) => return Err(error),
    };
    let dirs = [dir.inode().id(), left.inode().id()];
    if inode.subvolume != dirs[0].subvolume {
        return Ok(());
    }
    log.sync_new_name(inode, &dirs, exchanges)
}
