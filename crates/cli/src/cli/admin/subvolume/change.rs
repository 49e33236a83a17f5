//! `subvolume create`, `snapshot` and `set-default`.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail, ensure};
use userbtrfs::{Error, Filesystem, Quoted, SubvolumeInfo, TreeId};

use super::mounted;
use super::place::{change, made_snapshot, mountpoint, once, refuse_options};
use crate::cli::admin::mounted::request_at;
use crate::cli::args::{Global, WriteArgs};
use crate::cli::paths::{Destination, each};
use crate::cli::report::announce;
use crate::cli::text::shown;

#[derive(clap::Args)]
pub(crate) struct CreateArgs {
    #[command(flatten)]
    image: WriteArgs,
    /// Paths of the new subvolumes (none after a path in a mount, which takes the place of IMAGE)
    paths: Vec<OsString>,
    /// Make parent directories as needed
    #[arg(short, long)]
    parents: bool,
    /// Quota group to inherit from (not supported)
    #[arg(short = 'i', value_name = "QGROUP", hide = true)]
    quota_group: Vec<String>,
}

#[derive(clap::Args)]
pub(crate) struct SnapshotArgs {
    #[command(flatten)]
    image: WriteArgs,
    /// Subvolume, then a directory or a new name (in a mount: the subvolume takes the place of
    /// IMAGE)
    #[arg(required = true, num_args = 1..=2, value_name = "PATH")]
    paths: Vec<OsString>,
    /// Make a read-only snapshot
    #[arg(short = 'r')]
    read_only: bool,
    /// Quota group to inherit from (not supported)
    #[arg(short = 'i', value_name = "QGROUP", hide = true)]
    quota_group: Vec<String>,
}

#[derive(clap::Args)]
pub(crate) struct SetDefaultArgs {
    #[command(flatten)]
    image: WriteArgs,
    /// Id or path of the subvolume (may be omitted after the path of a subvolume in a mount, which
    /// takes the place of IMAGE)
    subvolume: Option<OsString>,
}

/// The permissions of new directories.
const DIR_MODE: u32 = 0o755;

pub(super) fn create(global: &Global, args: &CreateArgs) -> Result<ExitCode> {
    refuse_quota_groups(&args.quota_group)?;
    let first = &args.image.root.image.image;
    if mounted::is_in_mount(first) {
        refuse_options(&args.image.root)?;
        let paths = [first.as_os_str()].into_iter().chain(args.paths.iter().map(AsRef::as_ref));
        return Ok(mounted::create(global, paths, args.parents));
    }
    ensure!(!args.paths.is_empty(), "{}: no path in the image is given", first.display());
    change(global, &args.image, once(&args.image), |session| {
        each(&args.paths, |path| {
            create_at(&session.filesystem, path, args.parents)?;
            announce(global, || format!("Create subvolume '{}'", Quoted(path)))
        })
    })
}

fn create_at(filesystem: &Filesystem, path: &[u8], parents: bool) -> Result<(), Error> {
    if parents && let Some(end) = parent_end(path) {
        filesystem.create_dir_all(&path[..end], DIR_MODE).map_err(|failed| failed.error)?;
    }
    let (dir, name) = filesystem.open_parent(path)?;
    dir.create_subvolume(&name, DIR_MODE).map(drop)
}

/// Returns the end of the path of the parent directory; `None` if the path has no parent.
fn parent_end(path: &[u8]) -> Option<usize> {
    let end = path.iter().rposition(|byte| *byte != b'/')?;
    path[..end].iter().rposition(|byte| *byte == b'/')
}

pub(super) fn refuse_quota_groups(given: &[String]) -> Result<()> {
    match given.first() {
        Some(_) => bail!("-i: quota groups are not supported"),
        None => Ok(()),
    }
}

pub(super) fn snapshot(global: &Global, args: &SnapshotArgs) -> Result<ExitCode> {
    refuse_quota_groups(&args.quota_group)?;
    let first = &args.image.root.image.image;
    let (name, paths) = match args.paths.as_slice() {
        [dest] => {
            refuse_options(&args.image.root)?;
            return mounted::snapshot(global, first, Path::new(dest), args.read_only);
        }
        paths => (&paths[0], paths),
    };
    change(global, &args.image, once(&args.image), |session| {
        let filesystem = &session.filesystem;
        let source = subvolume_at(filesystem, name)?;
        let (_, dest) = Destination::split(filesystem, paths, false)?;
        let dest = dest.of(name.as_encoded_bytes()).with_context(|| shown(name))?;
        let make = || {
            let (dir, name) = filesystem.open_parent(&dest)?;
            dir.snapshot(&name, source.id, args.read_only)
        };
        make().with_context(|| Quoted(&dest).to_string())?;
        announce(global, || made_snapshot(args.read_only, &shown(name), &dest))?;
        Ok(ExitCode::SUCCESS)
    })
}

/// Returns the subvolume at a path.
pub(super) fn subvolume_at(filesystem: &Filesystem, path: &OsStr) -> Result<SubvolumeInfo> {
    let find = || filesystem.subvolume_at(&filesystem.lookup(path.as_encoded_bytes())?);
    find().with_context(|| shown(path))
}

pub(super) fn set_default(global: &Global, args: &SetDefaultArgs) -> Result<ExitCode> {
    let SetDefaultArgs { image, subvolume } = args;
    let first = &image.root.image.image;
    if let Some(point) = mountpoint(&image.root)? {
        return match subvolume {
            Some(subvolume) => {
                let words = ["subvolume-set-default".into(), "--".into(), subvolume.clone()];
                request_at(global, point, &words)
            }
            None => mounted::set_default(global, point),
        };
    }
    let subvolume = subvolume.as_ref();
    let subvolume =
        subvolume.with_context(|| format!("{}: no id or path is given", first.display()))?;
    change(global, image, once(image), |session| {
        set_default_to(&session.filesystem, subvolume)?;
        Ok(ExitCode::SUCCESS)
    })
}

/// Sets the default subvolume, by its id or its path in the filesystem.
pub(in crate::cli) fn set_default_to(filesystem: &Filesystem, subvolume: &OsStr) -> Result<()> {
    let id = match subvolume.to_str().and_then(|text| text.parse().ok()) {
        // As BTRFS_IOC_DEFAULT_SUBVOL.
        Some(0) => TreeId::FS,
        Some(id) => TreeId(id),
        None => subvolume_at(filesystem, subvolume)?.id,
    };
    filesystem.set_default_subvolume(id).with_context(|| shown(subvolume))
}
