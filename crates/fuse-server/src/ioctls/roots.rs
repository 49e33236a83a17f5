//! Describes the subvolumes in a subvolume for callers without rights: the ioctls
//! `BTRFS_IOC_GET_SUBVOL_ROOTREF` and `BTRFS_IOC_INO_LOOKUP_USER`.
//!
//! `struct btrfs_ioctl_get_subvol_rootref_args` and `btrfs_ioctl_ino_lookup_user_args` of
//! `linux/btrfs.h`.

use userbtrfs_engine::api::{Filesystem, Inode, InodeId, ItemKind, Key, TreeId};
use userbtrfs_fuse::{Caller, Errno};

use super::path::{ROOT_DIR, ReversePath, links};
use super::record::{Answer, Reader, Writer};
use crate::errno;
use crate::permissions::{self, READ, SEARCH};

/// The most references in an answer, and the offset of their number.
const REFERENCES: usize = 255;
const COUNT_AT: usize = 4088;
const BYTES: usize = 4096;

/// The sizes of a name and of a path, each with the terminating NUL.
const NAME_BYTES: usize = 256;
const PATH_BYTES: usize = 3824;

/// Returns the ids of the subvolumes in the inode's subvolume, and their directories, from an id
/// on, with the id after the last. If more exist than fit, the answer has the first, and EOVERFLOW.
pub(super) fn get_subvol_rootref(
    filesystem: &Filesystem,
    inode: &Inode,
    input: &[u8],
) -> Result<Answer, Errno> {
    let first = Reader(input).u64()?;
    let own = inode.id().subvolume.0;
    let mut found: Vec<(u64, u64)> = Vec::new();
    let start = Key::new(own, ItemKind::ROOT_REF, first);
    let add = |key: &Key, _, data: &[u8]| {
        let is_reference = (key.objectid, key.kind) == (own, ItemKind::ROOT_REF);
        let Some(dir) = Reader(data).u64().ok().filter(|_| is_reference) else { return false };
        found.push((key.offset, dir));
        found.len() <= REFERENCES
    };
    filesystem.show_items(TreeId::ROOT, &start, add).map_err(errno)?;
    let is_more = found.len() > REFERENCES;
    found.truncate(REFERENCES);
    let mut writer = Writer::default();
    writer.u64(found.last().map_or(first, |(id, _)| id.saturating_add(1)));
    for (id, dir) in &found {
        writer.u64(*id).u64(*dir);
    }
    let count = u8::try_from(found.len()).expect("no more than 255");
    writer.pad_to(COUNT_AT).bytes(&[count]);
    let result = if is_more { -Errno::OVERFLOW.raw_os_error() } else { 0 };
    Ok(Answer { result, bytes: writer.pad_to(BYTES).finish() })
}

/// Returns the name of a subvolume, and the path of its directory from the inode, with a slash
/// after each name.
pub(super) fn ino_lookup_user(
    filesystem: &Filesystem,
    caller: &Caller,
    inode: &Inode,
    input: &[u8],
) -> Result<Vec<u8>, Errno> {
    let mut reader = Reader(input);
    let number = reader.u64()?;
    let id = reader.u64()?;
    let subvolume = inode.id().subvolume;
    let top = inode.id().number;
    // A directory above the inode is not shown.
    if top != ROOT_DIR && number == ROOT_DIR {
        return Err(Errno::ACCESS);
    }
    let path = path_between(filesystem, caller, top, InodeId { subvolume, number })?;
    let found = filesystem.subvolume(TreeId(id)).map_err(errno)?;
    if found.parent != Some(subvolume) {
        return Err(Errno::NOENT);
    }
    if found.dir != Some(number) {
        return Err(Errno::INVAL);
    }
    let mut writer = Writer::default();
    writer.u64(number).u64(id).text(&found.name, NAME_BYTES);
    Ok(writer.text(&path, PATH_BYTES).finish())
}

/// Returns the path from the directory `top` of the subvolume to one below it. The caller must be
/// able to read and to search all directories of the path but the last.
fn path_between(
    filesystem: &Filesystem,
    caller: &Caller,
    top: u64,
    below: InodeId,
) -> Result<Vec<u8>, Errno> {
    let mut path = ReversePath::new(PATH_BYTES);
    let mut inode = filesystem.inode(below);
    while inode.id().number != top {
        if inode.id().number == ROOT_DIR {
            return Err(Errno::ACCESS);
        }
        let (dir, name) = links(&inode)?.pop().ok_or(Errno::NOENT)?;
        permissions::check(caller, &dir, READ | SEARCH)?;
        path.push(&name)?;
        inode = dir;
    }
    Ok(path.finish())
}
