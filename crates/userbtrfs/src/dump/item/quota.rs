//! Quota groups.

use userbtrfs_format::{QgroupInfo, QgroupLimit, QgroupStatus};

use crate::dump::flags::Flags;
use crate::dump::names;
use crate::dump::record::{Described, Named, Record};

pub(super) fn status(record: &mut Record, data: &[u8]) -> Described {
    let status = QgroupStatus::parse(data)?;
    let simple = status.flags & names::QGROUP_SIMPLE != 0;
    let mut flags = Flags::new(status.flags, names::QGROUP_STATUS);
    flags.names.insert(0, if status.flags & 1 == 0 { "OFF" } else { "ON" });
    let line = record.line().field("version", &status.version);
    line.field("generation", &status.generation).field("flags", &Named(flags));
    line.labelled("scan", "rescan", &status.rescan);
    if let Some(generation) = status.enable_generation.filter(|_| simple) {
        line.labelled("enable_gen", "enable_generation", &generation);
    }
    Ok(())
}

pub(super) fn info(record: &mut Record, data: &[u8]) -> Described {
    let info = QgroupInfo::parse(data)?;
    record.line().field("generation", &info.generation);
    let line = record.line().field("referenced", &info.referenced);
    line.field("referenced_compressed", &info.referenced_compressed);
    let line = record.line().field("exclusive", &info.exclusive);
    line.field("exclusive_compressed", &info.exclusive_compressed);
    Ok(())
}

pub(super) fn limit(record: &mut Record, data: &[u8]) -> Described {
    let limit = QgroupLimit::parse(data)?;
    record.line().words("flags").shown("flags", &limit.flags, |flags| format!("{flags:x}"));
    let line = record.line().field("max_referenced", &limit.max_referenced);
    line.field("max_exclusive", &limit.max_exclusive);
    let line =
        record.line().labelled("rsv_referenced", "rsv_referenced", &limit.reserved_referenced);
    line.field("rsv_exclusive", &limit.reserved_exclusive);
    Ok(())
}
