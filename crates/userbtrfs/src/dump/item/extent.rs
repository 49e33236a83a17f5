//! Allocated extents and their back references.

use userbtrfs_format::{ExtentItem, InlineRef, ItemKind, Key, KeyedRef, MetadataLevel};

use crate::dump::flags::Flags;
use crate::dump::record::{Described, Named, Record};

pub(super) fn extent(record: &mut Record, key: Key, data: &[u8]) -> Described {
    let extent = ExtentItem::parse(key, data)?;
    let flags = Named(Flags::of(&extent.flags));
    let line = record.line().field("refs", &extent.refs);
    line.labelled("gen", "generation", &extent.generation).field("flags", &flags);
    match extent.level {
        MetadataLevel::None => {}
        MetadataLevel::InItem(first, level) => {
            let line = record.line().labelled("tree block key", "first_key", &first);
            line.field("level", &level);
        }
        MetadataLevel::InKey(level) => {
            record.line().words("tree block skinny").field("level", &level);
        }
    }
    record.list("inline_refs", extent.inline, |record, inline| {
        record.line().silent("type", &inline.kind().name().unwrap_or_default());
        describe_inline(record, &inline);
    });
    Ok(())
}

fn describe_inline(record: &mut Record, inline: &InlineRef) {
    match inline {
        InlineRef::Owner(root) => {
            record.words("extent owner").field("root", &root.0);
        }
        InlineRef::TreeBlock(root) => {
            record.words("tree block backref").field("root", root);
        }
        InlineRef::SharedBlock(parent) => {
            record.words("shared block backref").field("parent", parent);
        }
        InlineRef::ExtentData { root, inode, offset, count } => {
            let line = record.words("extent data backref").field("root", root);
            line.field("objectid", inode).field("offset", offset).field("count", count);
        }
        InlineRef::SharedData { parent, count } => {
            record.words("shared data backref").field("parent", parent).field("count", count);
        }
    }
}

pub(super) fn keyed(record: &mut Record, kind: ItemKind, data: &[u8]) -> Described {
    let keyed = KeyedRef::parse(kind, data)?;
    record.line();
    match keyed {
        KeyedRef::ExtentData(inline) => describe_inline(record, &inline),
        KeyedRef::SharedData(count) => {
            record.words("shared data backref").field("count", &count);
        }
        KeyedRef::Block => {
            let shared = kind == ItemKind::SHARED_BLOCK_REF;
            record.words(if shared { "shared block backref" } else { "tree block backref" });
        }
    }
    Ok(())
}
