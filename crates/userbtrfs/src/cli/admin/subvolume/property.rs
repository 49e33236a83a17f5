//! `property get` and `property set` of the property `ro` of subvolumes.
//!
//! 1. A subvolume that was received stays read-only, since incremental receives rely on its
//!    content; with `--force` it loses the UUID that says so, and becomes writable.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Subcommand;
use serde_json::json;
use userbtrfs::{Error, Filesystem, SubvolumeInfo};
use uuid::Uuid;

use super::place::{change, once, print};
use crate::cli::args::{Format, Global, RootArgs, WriteArgs};
use crate::cli::output::write_json;
use crate::cli::text::shown;

/// The operations on properties.
#[derive(Subcommand)]
pub(crate) enum PropertyVerb {
    /// Show a property
    Get(GetArgs),
    /// Set a property
    Set(SetArgs),
}

#[derive(clap::Args)]
pub(crate) struct GetArgs {
    #[command(flatten)]
    root: RootArgs,
    /// Path of the subvolume
    path: OsString,
    /// Property
    #[arg(default_value = "ro")]
    name: String,
    #[command(flatten)]
    kind: KindArgs,
}

#[derive(clap::Args)]
pub(crate) struct SetArgs {
    #[command(flatten)]
    image: WriteArgs,
    /// Path of the subvolume
    path: OsString,
    /// Property
    name: String,
    /// Value
    value: String,
    /// Make a received subvolume writable; it loses its received UUID
    #[arg(short, long)]
    force: bool,
    #[command(flatten)]
    kind: KindArgs,
}

#[derive(clap::Args)]
pub(crate) struct KindArgs {
    /// Type of the object: s, subvolume
    #[arg(short = 't', value_name = "TYPE", default_value = "s", value_parser = ["s", "subvol",
        "subvolume"], hide_possible_values = true)]
    kind: String,
}

pub(crate) fn run(global: &Global, verb: &PropertyVerb) -> Result<ExitCode> {
    match verb {
        PropertyVerb::Get(args) => get(global, args),
        PropertyVerb::Set(args) => set(global, args),
    }
}

fn get(global: &Global, args: &GetArgs) -> Result<ExitCode> {
    check_name(&args.name)?;
    print(global, &args.root, |out, filesystem| {
        let read_only = subvolume(filesystem, &args.path)?.is_read_only();
        match global.format {
            Format::Text => writeln!(out, "ro={read_only}")?,
            Format::Json => write_json(out, "property-get", &json!({ "ro": read_only }))?,
        }
        Ok(())
    })
}

fn set(global: &Global, args: &SetArgs) -> Result<ExitCode> {
    check_name(&args.name)?;
    let read_only = match args.value.as_str() {
        "true" => true,
        "false" => false,
        other => bail!("invalid value for property: {other}"),
    };
    change(global, &args.image, once(&args.image), |session| {
        let subvolume = subvolume(&session.filesystem, &args.path)?;
        set_read_only(&session.filesystem, &subvolume, read_only, args.force)
            .with_context(|| shown(&args.path))?;
        Ok(ExitCode::SUCCESS)
    })
}

fn check_name(name: &str) -> Result<()> {
    ensure!(name == "ro", "unknown property: {name}");
    Ok(())
}

fn subvolume(filesystem: &Filesystem, path: &OsString) -> Result<SubvolumeInfo> {
    let inode = filesystem.lookup(path.as_encoded_bytes()).with_context(|| shown(path))?;
    match filesystem.subvolume_at(&inode) {
        Err(Error::NoSubvolume) => {
            bail!("{}: object is not compatible with property: ro", shown(path))
        }
        found => found.with_context(|| shown(path)),
    }
}

/// Sets whether a subvolume is read-only.
pub(in crate::cli) fn set_read_only(
    filesystem: &Filesystem,
    subvolume: &SubvolumeInfo,
    read_only: bool,
    force: bool,
) -> Result<()> {
    let extended = subvolume.root.extended.as_ref();
    let is_received = extended.is_some_and(|extended| !extended.received_uuid.is_nil());
    if subvolume.is_read_only() && !read_only && is_received {
        ensure!(
            force,
            "cannot flip ro->rw with received_uuid set, use force option -f if you really want to \
             unset the read-only status"
        );
        filesystem.set_received_uuid(subvolume.id, Uuid::nil())?;
    }
    filesystem.set_subvolume_read_only(subvolume.id, read_only)?;
    Ok(())
}
