//! Inodes, their names, directory entries and extended attributes.

use userbtrfs_format::{
    DirEntry, DirEntryKind, InodeItem, InodeName, dir_entries, dir_log_end, inode_extrefs,
    inode_refs,
};

use crate::dump::flags::Flags;
use crate::dump::record::{Described, Record, Show};

pub(super) fn inode(record: &mut Record, data: &[u8]) -> Described {
    let inode = InodeItem::parse(data)?;
    let line = record.line();
    line.field("generation", &inode.generation).field("transid", &inode.transid);
    line.field("size", &inode.size).field("nbytes", &inode.nbytes);
    let line = record.line();
    line.labelled("block group", "block_group", &inode.block_group);
    line.words("mode").shown("mode", &inode.mode, |mode| format!("{mode:o}"));
    line.labelled("links", "nlink", &inode.nlink);
    line.field("uid", &inode.uid).field("gid", &inode.gid).field("rdev", &inode.rdev);
    let flags = Flags::of(&inode.flags);
    record.line().field("sequence", &inode.sequence).field("flags", &flags);
    record.line().field("atime", &inode.atime);
    record.line().field("ctime", &inode.ctime);
    record.line().field("mtime", &inode.mtime);
    record.line().field("otime", &inode.otime);
    Ok(())
}

pub(super) fn refs(record: &mut Record, parent: u64, data: &[u8]) -> Described {
    let refs = inode_refs(parent, data).collect::<Result<Vec<_>, _>>()?;
    record.list("names", refs, |record, inode| {
        record.line().field("index", &inode.index);
        name(record, &inode);
    });
    Ok(())
}

pub(super) fn extrefs(record: &mut Record, data: &[u8]) -> Described {
    let refs = inode_extrefs(data).collect::<Result<Vec<_>, _>>()?;
    record.list("names", refs, |record, inode| {
        record.line().field("index", &inode.index).field("parent", &inode.parent);
        name(record, &inode);
    });
    Ok(())
}

fn name(record: &mut Record, inode: &InodeName<'_>) {
    record.field("namelen", &inode.name.len()).bytes("name:", "name", inode.name);
}

pub(super) fn entries(record: &mut Record, data: &[u8]) -> Described {
    let entries = dir_entries(data).collect::<Result<Vec<_>, _>>()?;
    record.list("entries", entries, |record, entry| describe_entry(record, &entry));
    Ok(())
}

fn describe_entry(record: &mut Record, entry: &DirEntry<'_>) {
    let line = record.line();
    line.labelled("location key", "location", &entry.target).field("type", &kind(entry.kind));
    let line = record.line().field("transid", &entry.transid);
    line.field("data_len", &entry.data.len()).field("name_len", &entry.name.len());
    record.line().bytes("name:", "name", entry.name);
    if !entry.data.is_empty() {
        record.line().bytes("data", "data", entry.data);
    }
}

fn kind(kind: DirEntryKind) -> &'static str {
    match kind {
        DirEntryKind::Regular => "FILE",
        DirEntryKind::Directory => "DIR",
        DirEntryKind::CharDevice => "CHRDEV",
        DirEntryKind::BlockDevice => "BLKDEV",
        DirEntryKind::Fifo => "FIFO",
        DirEntryKind::Socket => "SOCK",
        DirEntryKind::Symlink => "SYMLINK",
        DirEntryKind::Xattr => "XATTR",
    }
}

pub(super) fn log_range(record: &mut Record, data: &[u8]) -> Described {
    let end = dir_log_end(data)?;
    record.line().words("dir log").shown("end", &end, |end| format!("end {}", end.text()));
    Ok(())
}
