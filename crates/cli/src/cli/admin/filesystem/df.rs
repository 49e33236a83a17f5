//! `filesystem df`, in the format of btrfs-progs.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use serde_json::{Value, json};
use userbtrfs::{BlockGroupFlags, Usage};

use crate::cli::admin::mounted::request_at;
use crate::cli::admin::subvolume::place::{mountpoint, print};
use crate::cli::args::{Format, Global, RootArgs};
use crate::cli::output::write_json;
use crate::cli::size_units::{SizeArgs, Units};

#[derive(clap::Args)]
pub(crate) struct DfArgs {
    #[command(flatten)]
    root: RootArgs,
    #[command(flatten)]
    sizes: SizeArgs,
}

pub(super) fn run(global: &Global, args: &DfArgs) -> Result<ExitCode> {
    if let Some(point) = mountpoint(&args.root)? {
        let mut words: Vec<OsString> = vec!["filesystem-df".into()];
        words.extend(args.sizes.words());
        return request_at(global, point, &words);
    }
    print(global, &args.root, |out, filesystem| {
        write_df(out, &filesystem.usage()?, args.sizes.units(), global.format)
    })
}

/// Returns the name of a kind of block groups.
pub(super) fn kind_name(flags: BlockGroupFlags) -> &'static str {
    match flags {
        BlockGroupFlags::DATA => "Data",
        BlockGroupFlags::SYSTEM => "System",
        BlockGroupFlags::METADATA => "Metadata",
        _ => "Data+Metadata",
    }
}

/// A line: the type, the profile, the total and the used bytes.
struct Row(&'static str, &'static str, u64, u64);

/// Writes the use of space by type and profile.
pub(super) fn write_df(
    out: &mut dyn Write,
    usage: &Usage,
    units: Units,
    format: Format,
) -> Result<()> {
    let kinds = usage.kinds.iter();
    let rows = kinds.map(|it| Row(kind_name(it.flags), it.profile.name(), it.total, it.used));
    // Linux shows the global reserve like a type of its own.
    let rows = rows.chain([Row("GlobalReserve", "single", usage.global_reserve, 0)]);
    match format {
        Format::Text => {
            for Row(kind, profile, total, used) in rows {
                let total = units.text(total);
                let used = units.text(used);
                writeln!(out, "{kind}, {profile}: total={total}, used={used}")?;
            }
            Ok(())
        }
        Format::Json => {
            let rows: Value = rows.map(|row| document(&row)).collect();
            write_json(out, "filesystem-df", &rows)
        }
    }
}

/// Returns a line as JSON: btrfs-progs makes the numbers strings.
fn document(Row(kind, profile, total, used): &Row) -> Value {
    json!({
        "bg-type": kind,
        "bg-profile": profile,
        "total": total.to_string(),
        "used": used.to_string(),
    })
}
