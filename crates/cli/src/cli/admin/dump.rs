//! `dump`: prints on-disk structures.

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use clap::Subcommand;
use userbtrfs::TreeId;
use userbtrfs::dump::{self, TreeSelection};
use userbtrfs_device::Device;
use userbtrfs_format::{SUPERBLOCK_OFFSETS, Superblock};
use userbtrfs_volume::{Volume, read_superblock_copy};

use crate::cli::admin::log::LogArgs;
use crate::cli::args::{Format, Global};
use crate::cli::host::image::ImageArgs;
use crate::cli::host::retry::device_to_read;
use crate::cli::output::{stdout, write_member};
use crate::cli::report::{fail, warn};

/// The structures to print.
#[derive(Subcommand)]
pub(crate) enum DumpVerb {
    /// Print the superblock
    Super(DumpSuperArgs),
    /// Print trees
    Tree(DumpTreeArgs),
    /// Print what a replay of the pending log would restore
    Log(LogArgs),
}

#[derive(clap::Args)]
pub(crate) struct DumpSuperArgs {
    #[command(flatten)]
    pub(crate) image: ImageArgs,
    /// Include system chunks and backup roots
    #[arg(short, long)]
    pub(crate) full: bool,
    /// Superblock copy to print, 0 to 2
    #[arg(short = 's', long = "super", value_name = "N", value_parser = copy_number())]
    pub(crate) copy: Option<u8>,
}

#[derive(clap::Args)]
pub(crate) struct DumpTreeArgs {
    #[command(flatten)]
    pub(crate) image: ImageArgs,
    /// Print this tree only, by number or name (fs, root, chunk, extent, ...)
    #[arg(short, long, value_name = "N")]
    pub(crate) tree: Option<String>,
}

/// The number of a copy of the superblock.
fn copy_number() -> clap::builder::RangedI64ValueParser<u8> {
    clap::value_parser!(u8).range(0..=2)
}

pub(crate) fn run(global: &Global, verb: &DumpVerb) -> Result<ExitCode> {
    match verb {
        DumpVerb::Super(args) => show_super(global, args),
        DumpVerb::Tree(args) => show_tree(global, args),
        DumpVerb::Log(args) => crate::cli::admin::log::show(global, args, "dump-log"),
    }
}

fn show_super(global: &Global, args: &DumpSuperArgs) -> Result<ExitCode> {
    let explain = |error| args.image.explain(error);
    let device = open_device(&args.image)?;
    let superblock = read_super(&*device, args.copy.unwrap_or(0)).map_err(explain)?;
    let mut out = stdout();
    let name = args.image.name();
    write_member(&mut out, global.format, "dump-super", |out| {
        Ok(dump::dump_super(&superblock, &name, args.full, format(global), out)?)
    })?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn read_super(device: &dyn Device, copy: u8) -> Result<Superblock> {
    let at = SUPERBLOCK_OFFSETS[usize::from(copy)];
    match read_superblock_copy(device, at) {
        None => bail!("the device does not reach copy {copy} of the superblock, at {at}"),
        Some(read) => Ok(read?),
    }
}

fn show_tree(global: &Global, args: &DumpTreeArgs) -> Result<ExitCode> {
    let named = || args.image.name();
    let volume = Volume::open(vec![open_device(&args.image)?]);
    let volume = volume.map_err(|error| args.image.explain(error))?;
    for warning in volume.warnings() {
        warn(global, &format!("{}: {warning}", args.image.name()));
    }
    let which = match &args.tree {
        None => TreeSelection::All,
        Some(tree) => TreeSelection::One(tree_id(tree)?),
    };
    let mut code = ExitCode::SUCCESS;
    let mut damaged = |error: &userbtrfs_volume::ReadError| {
        fail(&format!("{}: {error}", args.image.name()));
        code = ExitCode::FAILURE;
    };
    let mut out = stdout();
    write_member(&mut out, global.format, "dump-tree", |out| {
        dump::dump_tree(&volume, which, format(global), out, &mut damaged).with_context(named)
    })?;
    out.flush()?;
    Ok(code)
}

fn open_device(image: &ImageArgs) -> Result<Arc<dyn Device>> {
    Ok(Arc::new(device_to_read(image).map_err(|error| image.explain(error))?))
}

fn format(global: &Global) -> dump::Format {
    match global.format {
        Format::Text => dump::Format::Text,
        Format::Json => dump::Format::Json,
    }
}

/// Returns the ID of a tree by its number, which may be negative, or by its name in lower case.
fn tree_id(text: &str) -> Result<TreeId> {
    let by_number = text
        .parse()
        .map(TreeId)
        .or_else(|_| text.parse::<i64>().map(|number| TreeId(number.cast_unsigned())));
    if let Ok(id) = by_number {
        return Ok(id);
    }
    Ok(match text.to_ascii_lowercase().replace('-', "_").trim_end_matches("_tree") {
        "root" => TreeId::ROOT,
        "extent" => TreeId::EXTENT,
        "chunk" => TreeId::CHUNK,
        "dev" | "device" => TreeId::DEV,
        "fs" => TreeId::FS,
        "csum" | "checksum" => TreeId::CSUM,
        "quota" => TreeId::QUOTA,
        "uuid" => TreeId::UUID,
        "free_space" => TreeId::FREE_SPACE,
        "block_group" => TreeId::BLOCK_GROUP,
        "raid_stripe" => TreeId::RAID_STRIPE,
        "log" | "tree_log" => TreeId::TREE_LOG,
        "data_reloc" => TreeId::DATA_RELOC,
        _ => bail!("{text}: no such tree"),
    })
}
