//! `filesystem df`, in the format of btrfs-progs.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use userbtrfs::Usage;

use crate::cli::admin::mounted::request_at;
use crate::cli::admin::subvolume::place::{mountpoint, print};
use crate::cli::args::{Format, Global, RootArgs};
use crate::cli::block_groups::{Row, document, rows};
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

/// Writes the use of space by type and profile.
pub(super) fn write_df(
    out: &mut dyn Write,
    usage: &Usage,
    units: Units,
    format: Format,
) -> Result<()> {
    match format {
        Format::Text => {
            for Row { kind, profile, total, used } in rows(usage) {
                let total = units.text(total);
                let used = units.text(used);
                writeln!(out, "{kind}, {profile}: total={total}, used={used}")?;
            }
            Ok(())
        }
        Format::Json => write_json(out, "filesystem-df", &document(usage)),
    }
}
