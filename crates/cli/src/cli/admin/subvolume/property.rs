//! `property get`, `property set` and `property list`.
//!
//! 1. A subvolume that was received stays read-only, since incremental receives rely on its
//!    content; with `--force` it loses the UUID that says so, and becomes writable.

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Subcommand;
use userbtrfs::{Error, Filesystem, SubvolumeInfo};
use uuid::Uuid;

use super::mounted;
use super::object;
use super::object::{InImage, InMount, Kind, Property, write_read_only};
use super::place::{change, once, print, refuse_options};
use crate::cli::admin::filesystem::label;
use crate::cli::args::{Global, RootArgs, WriteArgs};
use crate::cli::session::{Access, Session};
use crate::cli::text::shown;

/// The operations on properties.
#[derive(Subcommand)]
pub(crate) enum PropertyVerb {
    /// Show a property
    Get(GetArgs),
    /// Set a property
    Set(SetArgs),
    /// List the properties of an object
    List(ListArgs),
}

#[derive(clap::Args)]
pub(crate) struct GetArgs {
    #[command(flatten)]
    root: RootArgs,
    /// Path of the object (none after a path in a mount, which takes the place of IMAGE), and
    /// property
    #[arg(num_args = 0..=2, value_name = "PATH [NAME]")]
    words: Vec<OsString>,
    #[command(flatten)]
    kind: KindArgs,
}

#[derive(clap::Args)]
pub(crate) struct SetArgs {
    #[command(flatten)]
    image: WriteArgs,
    /// Path of the object (none after a path in a mount, which takes the place of IMAGE),
    /// property, and value
    #[arg(required = true, num_args = 2..=3, value_name = "PATH NAME VALUE")]
    words: Vec<OsString>,
    /// Make a received subvolume writable; it loses its received UUID
    #[arg(short, long)]
    force: bool,
    #[command(flatten)]
    kind: KindArgs,
}

#[derive(clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    root: RootArgs,
    /// Path of the object (none after a path in a mount, which takes the place of IMAGE)
    path: Option<OsString>,
    #[command(flatten)]
    kind: KindArgs,
}

#[derive(clap::Args)]
pub(crate) struct KindArgs {
    /// Type of the object: s, subvolume (property ro), i, inode (property compression), f,
    /// filesystem (property label), or any (all that the object has)
    #[arg(
        short = 't',
        value_name = "TYPE",
        value_enum,
        default_value = "any",
        hide_possible_values = true
    )]
    kind: Kind,
}

pub(crate) fn run(global: &Global, verb: &PropertyVerb) -> Result<ExitCode> {
    match verb {
        PropertyVerb::Get(args) => get(global, args),
        PropertyVerb::Set(args) => set(global, args),
        PropertyVerb::List(args) => list(global, args),
    }
}

fn get(global: &Global, args: &GetArgs) -> Result<ExitCode> {
    let first = &args.root.image.image;
    let kind = args.kind.kind;
    if mounted::is_in_mount(first) || kind != Kind::Subvolume && mounted::has_object(first) {
        refuse_options(&args.root)?;
        ensure!(args.words.len() < 2, "{}: too many arguments for a mount", first.display());
        if kind != Kind::Subvolume {
            let name = args.words.first().map(AsRef::as_ref);
            return object::get(global, &InMount(first), kind, name);
        }
        check_name(args.words.first())?;
        return mounted::property_get(global, first);
    }
    let (path, rest) = args.words.split_first().context("no path in the image is given")?;
    if kind != Kind::Subvolume {
        let filesystem = Session::open(global, &args.root, Access::Read)?.filesystem;
        let object = InImage::at(&filesystem, path)?;
        return object::get(global, &object, kind, rest.first().map(AsRef::as_ref));
    }
    check_name(rest.first())?;
    print(global, &args.root, |out, filesystem| {
        write_read_only(out, &subvolume(filesystem, path)?, global.format)
    })
}

fn set(global: &Global, args: &SetArgs) -> Result<ExitCode> {
    let first = &args.image.root.image.image;
    let kind = args.kind.kind;
    if mounted::is_in_mount(first) || kind != Kind::Subvolume && mounted::has_object(first) {
        refuse_options(&args.image.root)?;
        let [name, value] = args.words.as_slice() else {
            bail!("{}: too many arguments for a mount", first.display());
        };
        let set = || mounted::property_set(global, first, read_only(value)?, args.force);
        if kind != Kind::Subvolume {
            return object::set(global, first, kind, name, value, set);
        }
        check_name(Some(name))?;
        return set();
    }
    let [path, name, value] = args.words.as_slice() else {
        bail!("{}: a path in the image, a property and a value are needed", first.display());
    };
    if kind != Kind::Subvolume {
        return set_in_image(global, args, path, name, value);
    }
    check_name(Some(name))?;
    let read_only = read_only(value)?;
    change(global, &args.image, once(&args.image), |session| {
        let subvolume = subvolume(&session.filesystem, path)?;
        set_read_only(&session.filesystem, &subvolume, read_only, args.force)
            .with_context(|| shown(path))?;
        Ok(ExitCode::SUCCESS)
    })
}

/// Sets a property of an object in an image.
fn set_in_image(
    global: &Global,
    args: &SetArgs,
    path: &OsStr,
    name: &OsStr,
    value: &OsStr,
) -> Result<ExitCode> {
    change(global, &args.image, once(&args.image), |session| {
        let object = InImage::at(&session.filesystem, path)?;
        match object::named(name, args.kind.kind, &object)? {
            Property::ReadOnly => {
                let subvolume = subvolume(&session.filesystem, path)?;
                set_read_only(&session.filesystem, &subvolume, read_only(value)?, args.force)
                    .with_context(|| shown(path))?;
            }
            Property::Label => {
                label::check(value)?;
                object.set(Property::Label, value)?;
            }
            Property::Compression => object.set(Property::Compression, value)?,
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Lists the properties of an object.
fn list(global: &Global, args: &ListArgs) -> Result<ExitCode> {
    let kind = args.kind.kind;
    let Some(path) = &args.path else {
        refuse_options(&args.root)?;
        return object::list(global, &InMount(&args.root.image.image), kind);
    };
    let filesystem = Session::open(global, &args.root, Access::Read)?.filesystem;
    object::list(global, &InImage::at(&filesystem, path)?, kind)
}

fn read_only(value: &OsStr) -> Result<bool> {
    match value.as_encoded_bytes() {
        b"true" => Ok(true),
        b"false" => Ok(false),
        _ => bail!("invalid value for property: {}", shown(value)),
    }
}

/// Fails if a property is given that is not known; `ro` is the only one.
fn check_name(name: Option<&OsString>) -> Result<()> {
    let name = name.map_or(OsStr::new("ro"), OsString::as_os_str);
    ensure!(name == "ro", "unknown property: {}", shown(name));
    Ok(())
}

fn subvolume(filesystem: &Filesystem, path: &OsStr) -> Result<SubvolumeInfo> {
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
