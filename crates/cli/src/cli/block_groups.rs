//! The use of space by the type and profile of block groups, as `btrfs filesystem df` shows it.

use serde_json::{Value, json};
use userbtrfs::{BlockGroupFlags, Usage};

/// The use of space of one type and profile.
pub(super) struct Row {
    pub(super) kind: &'static str,
    pub(super) profile: &'static str,
    pub(super) total: u64,
    pub(super) used: u64,
}

/// Returns a row for each type and profile. Linux shows the global reserve like a type of its own.
pub(super) fn rows(usage: &Usage) -> Vec<Row> {
    let kinds = usage.kinds.iter().map(|it| Row {
        kind: kind_name(it.flags),
        profile: it.profile.name(),
        total: it.total,
        used: it.used,
    });
    let total = usage.global_reserve;
    let reserve = Row { kind: "GlobalReserve", profile: "single", total, used: 0 };
    kinds.chain([reserve]).collect()
}

/// Returns the rows as JSON: btrfs-progs makes the numbers strings.
pub(super) fn document(usage: &Usage) -> Value {
    let row = |row: Row| {
        json!({
            "bg-type": row.kind,
            "bg-profile": row.profile,
            "total": row.total.to_string(),
            "used": row.used.to_string(),
        })
    };
    rows(usage).into_iter().map(row).collect()
}

/// Returns the name of a type of block groups.
pub(super) fn kind_name(flags: BlockGroupFlags) -> &'static str {
    match flags {
        BlockGroupFlags::DATA => "Data",
        BlockGroupFlags::SYSTEM => "System",
        BlockGroupFlags::METADATA => "Metadata",
        _ => "Data+Metadata",
    }
}
