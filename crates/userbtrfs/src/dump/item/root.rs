//! Roots of trees, and references between subvolumes.

use userbtrfs_format::{
    ItemError, Key, RootExtension, RootItem, RootRef, uuid_of_key, uuid_subvolumes,
};

use crate::dump::flags::Flags;
use crate::dump::names;
use crate::dump::record::{Described, Record};

pub(super) fn root(record: &mut Record, data: &[u8]) -> Described {
    let root = RootItem::parse(data)?;
    let line = record.line().field("generation", &root.generation);
    line.field("root_dirid", &root.root_dirid).field("bytenr", &root.logical);
    line.field("byte_limit", &root.byte_limit).field("bytes_used", &root.bytes_used);
    let flags = Flags::new(root.flags.bits(), names::ROOT);
    let line = record.line().field("last_snapshot", &root.last_snapshot);
    line.field("flags", &flags).field("refs", &root.refs);
    let line = record.line().labelled("drop_progress key", "drop_progress", &root.drop_progress);
    line.field("drop_level", &root.drop_level);
    let line = record.line().field("level", &root.level);
    line.field("generation_v2", &root.generation_v2.unwrap_or(0));
    if let Some(extension) = &root.extended {
        extended(record, extension);
    }
    Ok(())
}

fn extended(record: &mut Record, root: &RootExtension) {
    record.line().field("uuid", &root.uuid);
    record.line().field("parent_uuid", &root.parent_uuid);
    record.line().field("received_uuid", &root.received_uuid);
    let line = record.line().field("ctransid", &root.ctransid).field("otransid", &root.otransid);
    line.field("stransid", &root.stransid).field("rtransid", &root.rtransid);
    record.line().field("ctime", &root.ctime);
    record.line().field("otime", &root.otime);
    record.line().field("stime", &root.stime);
    record.line().field("rtime", &root.rtime);
}

pub(super) fn reference(record: &mut Record, what: &str, data: &[u8]) -> Described {
    let reference = RootRef::parse(data)?;
    let line = record.line().words(what).labelled("key dirid", "dirid", &reference.dirid);
    line.field("sequence", &reference.sequence).bytes("name", "name", reference.name);
    Ok(())
}

pub(super) fn uuid(record: &mut Record, key: Key, data: &[u8]) -> Result<(), ItemError> {
    let subvolumes = uuid_subvolumes(data)?;
    record.silent("uuid", &uuid_of_key(key)).list("subvolumes", subvolumes, |record, id| {
        record.line().field("subvol_id", &id);
    });
    Ok(())
}
