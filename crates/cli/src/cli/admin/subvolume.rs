//! `subvolume` and `property`: show, make and change subvolumes of an image, or of a mount.
//!
//! 1. The first path decides: an image is a file or a block device, and the paths after it are in
//!    it. If it is a directory of a mount, or a new path there, all paths are in a mount.
//! 2. The server of a mount runs the verb; its answer is what it prints.

mod change;
mod delete;
mod list;
pub(in crate::cli::admin) mod mounted;
pub(in crate::cli) mod object;
pub(in crate::cli::admin) mod place;
pub(in crate::cli) mod property;
mod show;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Arg, Subcommand};
use userbtrfs::Filesystem;

use crate::cli::admin::mounted::{request, request_at};
use crate::cli::args::{Global, RootArgs};
use crate::cli::output::stdout;
use crate::cli::session::{Access, Session};
use place::{mountpoint, print};

pub(in crate::cli) use change::set_default_to;
pub(in crate::cli) use delete::write_deleted;
pub(in crate::cli) use list::{ListOptions, write_list, write_list_of};
pub(in crate::cli) use show::{Identity, write_info, write_shown};

/// The operations on subvolumes.
#[derive(Subcommand)]
pub(crate) enum SubvolumeVerb {
    /// Create empty subvolumes
    Create(change::CreateArgs),
    /// Make a snapshot of a subvolume
    Snapshot(change::SnapshotArgs),
    /// Delete subvolumes with their contents
    #[command(mut_args(rename_root_subvolid))]
    Delete(delete::DeleteArgs),
    /// List subvolumes
    List(ListArgs),
    /// Show one subvolume
    Show(SubvolumeShowArgs),
    /// Show the default subvolume, which is mounted if none is named
    GetDefault(GetDefaultArgs),
    /// Set the default subvolume
    SetDefault(change::SetDefaultArgs),
    /// Wait until deleted subvolumes are gone
    Sync(delete::SyncArgs),
}

#[derive(clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) root: RootArgs,
    #[command(flatten)]
    options: ListOptions,
    /// Show paths relative to the subvolume that contains PATH
    #[arg(default_value = "/")]
    path: OsString,
}

#[derive(clap::Args)]
pub(crate) struct SubvolumeShowArgs {
    #[command(flatten)]
    pub(crate) root: RootArgs,
    /// Path of the subvolume in the image, or below a mount point (none after the path of a
    /// subvolume in a mount, which takes the place of IMAGE)
    #[arg(default_value = "/", conflicts_with_all = ["rootid", "uuid"])]
    pub(crate) path: OsString,
    #[command(flatten)]
    identity: Identity,
}

#[derive(clap::Args)]
pub(crate) struct GetDefaultArgs {
    #[command(flatten)]
    root: RootArgs,
}

/// Renames `--subvolid` of the image for a verb with an option of that name, as in btrfs-progs.
fn rename_root_subvolid(arg: Arg) -> Arg {
    if arg.get_id() == "subvolid" { arg.long("root-subvolid") } else { arg }
}

pub(crate) fn run(global: &Global, verb: &SubvolumeVerb) -> Result<ExitCode> {
    match verb {
        SubvolumeVerb::Create(args) => change::create(global, args),
        SubvolumeVerb::Snapshot(args) => change::snapshot(global, args),
        SubvolumeVerb::Delete(args) => delete::delete(global, args),
        SubvolumeVerb::List(args) => list(global, args),
        SubvolumeVerb::Show(args) => show(global, args),
        SubvolumeVerb::GetDefault(args) => get_default(global, args),
        SubvolumeVerb::SetDefault(args) => change::set_default(global, args),
        SubvolumeVerb::Sync(args) => delete::sync(global, args),
    }
}

fn list(global: &Global, args: &ListArgs) -> Result<ExitCode> {
    if let Some(point) = mountpoint(&args.root)? {
        if args.path == "/" {
            return mounted::list(global, point, &args.options);
        }
        let mut words = vec!["subvolume-list".into()];
        words.extend(args.options.words(global));
        words.extend(["--".into(), args.path.clone()]);
        return request_at(global, point, &words);
    }
    let filesystem = Session::open(global, &args.root, Access::Read)?.filesystem;
    let listed = write_list(&mut stdout(), &filesystem, &args.options, &args.path, global);
    listed.with_context(|| args.root.image.name())?;
    Ok(ExitCode::SUCCESS)
}

fn show(global: &Global, args: &SubvolumeShowArgs) -> Result<ExitCode> {
    let identity = &args.identity;
    if let Some(point) = mountpoint(&args.root)? {
        if identity.is_given() {
            return mounted::show_by(global, point, identity);
        }
        if args.path == "/" {
            return mounted::show(global, point);
        }
        return request(global, point, &["subvolume-show".into(), "--".into(), args.path.clone()]);
    }
    print(global, &args.root, |out, filesystem| {
        if identity.is_given() {
            return write_info(out, filesystem, &identity.find(filesystem)?, global);
        }
        write_shown(out, filesystem, &args.path, global)
    })
}

fn get_default(global: &Global, args: &GetDefaultArgs) -> Result<ExitCode> {
    if let Some(point) = mountpoint(&args.root)? {
        return request_at(global, point, &["subvolume-get-default".into()]);
    }
    print(global, &args.root, |out, filesystem| write_default(out, filesystem, global))
}

/// Writes the default subvolume.
pub(in crate::cli) fn write_default(
    out: &mut dyn std::io::Write,
    filesystem: &Filesystem,
    global: &Global,
) -> Result<()> {
    list::write_one(out, &filesystem.subvolume(filesystem.default_subvolume()?)?, global)
}
