//! The experiment S1 of docs/seeds.md: a rename or link that concerns a logged inode or directory
//! writes the log before it returns.

use super::{Dir, Error, Result};

/// Writes the log if this new name in `dir` concerns it. The caller holds no lock.
pub(super) fn linked(dir: &Dir, name: &[u8]) -> Result<()> {
    log_name(dir, name, dir)
}

/// Writes the log if a rename from one directory and name to another concerns it. The caller holds
/// no lock.
pub(super) fn renamed(from: (&Dir, &[u8]), to: (&Dir, &[u8])) -> Result<()> {
    log_name(to.0, to.1, from.0)?;
    // The inode that was exchanged, or the whiteout.
    log_name(from.0, from.1, to.0)
}

/// Writes the log if the inode of this name is in it, or the directory, or the one that it left.
fn log_name(dir: &Dir, name: &[u8], left: &Dir) -> Result<()> {
    let Some(log) = &dir.inode().inner().log else { return Ok(()) };
    let inode = match dir.lookup(name) {
        Ok(inode) => inode.id(),
        Err(Error::NotFound) => return Ok(()),
        Err(error) => return Err(error),
    };
    let dirs = [dir.inode().id(), left.inode().id()];
    if inode.subvolume == dirs[0].subvolume { log.sync_new_name(inode, &dirs) } else { Ok(()) }
}
