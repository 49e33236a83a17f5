//! The whole content of an image, in a form that can be compared.

use std::collections::BTreeMap;

use userbtrfs::{Error, FileKind, Filesystem, Inode};
use userbtrfs_testkit::manifest::ContentDigest;

/// The attributes and the content at each path.
pub(crate) type Shown = BTreeMap<Vec<u8>, String>;

/// Reads everything below the root.
pub(crate) fn shown(filesystem: &Filesystem) -> Result<Shown, Error> {
    let mut shown = Shown::new();
    for entry in filesystem.walk("/")? {
        let entry = entry?;
        shown.insert(entry.path.clone(), describe(&entry.inode)?);
    }
    Ok(shown)
}

fn describe(inode: &Inode) -> Result<String, Error> {
    let metadata = inode.metadata()?;
    let content = match metadata.kind {
        FileKind::Regular => digest(inode)?,
        FileKind::Symlink => format!("{:?}", inode.read_link()?),
        _ => String::new(),
    };
    Ok(format!("{metadata:?} {:?} {:?} {content}", inode.xattrs()?, inode.names()?.len()))
}

fn digest(inode: &Inode) -> Result<String, Error> {
    let mut digest = ContentDigest::default();
    let mut reader = inode.open()?.reader();
    while let Some(chunk) = reader.next_chunk()? {
        if let Some(bytes) = chunk.bytes() {
            digest.update(chunk.offset(), bytes);
        }
    }
    Ok(digest.finish())
}
