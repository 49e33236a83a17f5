//! `mkfs`: makes a filesystem, empty or with the content of a directory, and prints its parameters.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::{Context as _, Result, bail, ensure};
use clap::ValueEnum;
use nix::unistd::{getegid, geteuid};
use serde_json::json;
use userbtrfs::device::{Device, FileDevice, FileOptions};
use userbtrfs::mkfs::{ChecksumKind, Options, Superblock, Uuid, make, unmake};
use userbtrfs::{OpenOptions, Profile, Quoted, mkfs};

use crate::cli::admin::rootdir;
use crate::cli::args::{Format, Global};
use crate::cli::compression::CompressArg;
use crate::cli::host::image::ImageArgs;
use crate::cli::host::signals::{Interrupted, Signals};
use crate::cli::output::{print_json, stdout, with_name};
use crate::cli::owners::{Names, Owner, OwnerArg};
use crate::cli::report::ignore_closed_pipe;
use crate::cli::sizes::size as parse_size;
use crate::cli::text;

#[derive(clap::Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is an option of mkfs")]
pub(crate) struct MkfsArgs {
    #[command(flatten)]
    pub(crate) image: ImageArgs,
    /// Size of a new file, or with --force of an existing one [default with --rootdir: 1.5 times
    /// the content]
    #[arg(short = 'b', long, alias = "byte-count", value_name = "SIZE", value_parser = parse_size)]
    pub(crate) size: Option<u64>,
    /// Label
    #[arg(short = 'L', long)]
    pub(crate) label: Option<OsString>,
    /// UUID [default: random]
    #[arg(short = 'U', long)]
    pub(crate) uuid: Option<uuid::Uuid>,
    /// Checksum algorithm
    #[arg(long, alias = "checksum", value_enum, default_value_t = Csum::Crc32c)]
    pub(crate) csum: Csum,
    /// Size of a tree block, 4k to 64k [default: 16k; mixed-bg: 4k]
    #[arg(short, long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) nodesize: Option<u64>,
    /// Metadata profile [default: dup; mixed-bg: single]
    #[arg(short, long, value_enum, value_name = "PROFILE")]
    pub(crate) metadata: Option<ProfileArg>,
    /// Data profile [default: single]
    #[arg(short, long, value_enum, value_name = "PROFILE")]
    pub(crate) data: Option<ProfileArg>,
    /// Features to enable, or disable with ^: mixed-bg, block-group-tree, free-space-tree
    #[arg(short = 'O', long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) features: Vec<String>,
    /// Copy the content of DIR; if that fails no filesystem is made (one overwritten by --force is
    /// lost)
    #[arg(short, long, value_name = "DIR")]
    pub(crate) rootdir: Option<PathBuf>,
    /// Compress the copied data with this algorithm: zlib, lzo, zstd or no
    #[arg(long, value_name = "ALGO[:LEVEL]", requires = "rootdir")]
    pub(crate) compress: Option<CompressArg>,
    /// Owner of the root directory and of all copied files, by name or number: USER, USER:GROUP,
    /// USER: or :GROUP [default: root, or as in DIR]
    #[arg(long)]
    pub(crate) owner: Option<OwnerArg>,
    /// Look up names in etc/passwd and etc/group of DIR [default: on this machine]
    #[arg(long, requires = "owner", requires = "rootdir")]
    names_from_image: bool,
    /// (not supported)
    #[arg(long, hide = true)]
    pub(crate) shrink: bool,
    /// Overwrite an existing filesystem
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Discard the whole device first (an image file becomes one hole)
    #[arg(long)]
    pub(crate) discard: bool,
    /// Do not discard (default)
    #[arg(short = 'K', long, conflicts_with = "discard")]
    nodiscard: bool,
}

/// A checksum algorithm.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Csum {
    Crc32c,
    #[value(alias = "xxhash64")]
    Xxhash,
    Sha256,
    #[value(alias = "blake2b")]
    Blake2,
}

/// The number of copies.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProfileArg {
    /// One copy
    Single,
    /// Two copies
    Dup,
}

pub(crate) fn run(global: &Global, args: &MkfsArgs) -> Result<ExitCode> {
    let options = options(args)?;
    let made = on_file(global, args, &options);
    let superblock = made.map_err(|error| args.image.explain(error))?;
    ignore_closed_pipe(match global.format {
        _ if global.quiet => Ok(()),
        Format::Text => print(args, &superblock),
        Format::Json => print_json("mkfs", &document(&superblock)),
    })?;
    Ok(ExitCode::SUCCESS)
}

fn options(args: &MkfsArgs) -> Result<Options> {
    let mut features = Features::default();
    args.features.iter().try_for_each(|name| features.switch(name))?;
    let mut options = if features.mixed { Options::mixed() } else { Options::default() };
    if features.mixed {
        // One of the two options applies to both.
        options.metadata = profile(args.metadata.or(args.data)).unwrap_or(options.metadata);
        options.data = profile(args.data.or(args.metadata)).unwrap_or(options.data);
    } else {
        options.metadata = profile(args.metadata).unwrap_or(options.metadata);
        options.data = profile(args.data).unwrap_or(options.data);
    }
    if let Some(nodesize) = args.nodesize {
        options.nodesize = u32::try_from(nodesize).unwrap_or(u32::MAX);
    }
    options.label = args.label.as_ref().map_or_else(Vec::new, |label| label.as_bytes().to_vec());
    options.fsid = args.uuid;
    let owner = owner(args)?;
    options.owner = (owner.uid.unwrap_or(0), owner.gid.unwrap_or(0));
    options.checksum = checksum(args.csum);
    options.block_group_tree = features.block_group_tree;
    options.free_space_tree = features.free_space_tree;
    options.force = args.force;
    options.discard = args.discard;
    Ok(options)
}

/// Returns the numbers of `--owner`.
fn owner(args: &MkfsArgs) -> Result<Owner> {
    let Some(owner) = &args.owner else { return Ok(Owner::default()) };
    owner.resolve(&match &args.rootdir {
        Some(dir) if args.names_from_image => Names::of_tree(dir),
        _ => Names::Machine,
    })
}

/// The features that can be chosen.
struct Features {
    mixed: bool,
    block_group_tree: bool,
    free_space_tree: bool,
}

impl Default for Features {
    fn default() -> Self {
        Self { mixed: false, block_group_tree: false, free_space_tree: true }
    }
}

impl Features {
    fn switch(&mut self, name: &str) -> Result<()> {
        let (name, on) = match name.strip_prefix('^') {
            Some(name) => (name, false),
            None => (name, true),
        };
        match name {
            "mixed-bg" => self.mixed = on,
            "block-group-tree" => self.block_group_tree = on,
            "free-space-tree" => self.free_space_tree = on,
            "extref" | "skinny-metadata" | "no-holes" if on => {}
            "extref" | "skinny-metadata" | "no-holes" => bail!("feature {name} is always on"),
            other => bail!("unknown feature {other}"),
        }
        Ok(())
    }
}

fn profile(arg: Option<ProfileArg>) -> Option<Profile> {
    arg.map(|arg| match arg {
        ProfileArg::Single => Profile::Single,
        ProfileArg::Dup => Profile::Dup,
    })
}

fn checksum(csum: Csum) -> ChecksumKind {
    match csum {
        Csum::Crc32c => ChecksumKind::Crc32c,
        Csum::Xxhash => ChecksumKind::Xxhash64,
        Csum::Sha256 => ChecksumKind::Sha256,
        Csum::Blake2 => ChecksumKind::Blake2b,
    }
}

/// Makes the filesystem. If that fails, a new file is removed, and a file that was empty is empty
/// again unless another process has written to it. A file with content is unchanged if a check
/// fails, or if the host refuses its new size.
fn on_file(global: &Global, args: &MkfsArgs, options: &Options) -> Result<Superblock> {
    ensure!(!args.shrink, "--shrink is not supported; holes take no space in an image file");
    let new = match fs::metadata(&args.image.image) {
        Ok(metadata) => {
            check(args)?;
            of_existing(args, options, &metadata)?
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            check(args)?;
            let part = args.image.given_option().filter(|option| *option != "--no-lock");
            if let Some(option) = part {
                bail!("no such file; {option} applies to existing images only");
            }
            let size = size(args, options)?.context("no such file; use --size to create it")?;
            check_size(size)?;
            File::create_new(&args.image.image)?;
            New { size: Some(size), before: Before::Missing }
        }
        Err(error) => return Err(error.into()),
    };
    let image = &args.image.image;
    let made = new.extend(image).and_then(|()| make_and_fill(global, args, options, &new));
    if made.is_err() {
        new.undo(image)?;
    }
    made
}

/// The new size of the image, and its state before.
struct New {
    /// The new size; `None` if the size stays.
    size: Option<u64>,
    before: Before,
}

/// The state of an image before.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Missing,
    /// A file of length 0.
    Empty,
    /// A file of another length, or a block device.
    Content,
}

impl New {
    /// Gives a file without content its size. One with content gets it by [`Self::replace`].
    fn extend(&self, image: &Path) -> Result<()> {
        match self.size {
            Some(size) if self.before != Before::Content => set_len(image, size),
            _ => Ok(()),
        }
    }

    /// Gives a file with content its new size, and discards the content. If the host refuses the
    /// size, the content and the length stay.
    fn replace(&self, device: &dyn Device) -> Result<()> {
        let Some(size) = self.size.filter(|_| self.before == Before::Content) else {
            return Ok(());
        };
        // The length is never 0 in between: the host could refuse to extend the file after that.
        let old = device.len();
        if let Err(error) = device.set_len(size) {
            // A host without holes may have extended it in part. The first error is reported.
            if old < size {
                let _ = device.set_len(old);
            }
            return Err(error.into());
        }
        // On a host without holes the old content keeps its space; mkfs clears its signatures.
        let _ = device.discard(0, size);
        Ok(())
    }

    fn undo(&self, image: &Path) -> Result<()> {
        // Keep data that another process has written to it meanwhile.
        let is_hole = || fs::metadata(image).is_ok_and(|metadata| metadata.blocks() == 0);
        match (self.before, self.size) {
            (Before::Missing, _) => fs::remove_file(image)?,
            (Before::Empty, Some(_)) if is_hole() => set_len(image, 0)?,
            (Before::Empty | Before::Content, _) => {}
        }
        Ok(())
    }

    /// Removes a filesystem that could not be filled. No other process can write to the image,
    /// since the caller has it open for writing.
    fn unmake(&self, image: &Path, device: &dyn Device, fsid: Uuid) -> Result<()> {
        let had_other_size = self.before != Before::Missing && self.size.is_some();
        if unmake(device, fsid)? && had_other_size {
            set_len(image, 0)?;
        }
        Ok(())
    }
}

fn set_len(image: &Path, len: u64) -> Result<()> {
    Ok(File::options().write(true).open(image)?.set_len(len)?)
}

fn check_size(size: u64) -> Result<()> {
    ensure!(i64::try_from(size).is_ok(), "file too large: {size} bytes");
    Ok(())
}

fn check(args: &MkfsArgs) -> Result<()> {
    args.rootdir.as_ref().map_or(Ok(()), |dir| rootdir::check(dir, &args.image.image))
}

/// Returns the size of a new file: that of `--size`, or one into which the content fits.
fn size(args: &MkfsArgs, options: &Options) -> Result<Option<u64>> {
    match (args.size, &args.rootdir) {
        (None, Some(dir)) => rootdir::size_for(dir, options).map(Some),
        (size, _) => Ok(size),
    }
}

/// Returns the new size of an existing image, which is unchanged so far.
fn of_existing(args: &MkfsArgs, options: &Options, metadata: &Metadata) -> Result<New> {
    if metadata.is_file() && metadata.len() == 0 {
        let size = size(args, options)?;
        size.map_or(Ok(()), check_size)?;
        return Ok(New { size, before: Before::Empty });
    }
    let size = args.size.filter(|size| !metadata.is_file() || metadata.len() != *size);
    if let Some(size) = size {
        ensure!(metadata.is_file(), "not a regular file; its size cannot be set");
        ensure!(args.force, "file exists and has another size (use --force to overwrite)");
        check_replacement(args, options, size)?;
    }
    Ok(New { size, before: Before::Content })
}

/// Fails if no filesystem of another size can replace that of an image.
fn check_replacement(args: &MkfsArgs, options: &Options, size: u64) -> Result<()> {
    check_size(size)?;
    if let Some(option) = args.image.given_option().filter(|option| *option != "--no-lock") {
        bail!("{option} excludes a new size");
    }
    Ok(mkfs::check(options, size)?)
}

/// Makes the filesystem and copies the content; the image stays open and locked all the time.
fn make_and_fill(
    global: &Global,
    args: &MkfsArgs,
    options: &Options,
    new: &New,
) -> Result<Superblock> {
    let image = &args.image.image;
    let writable = FileOptions { writable: true, ..args.image.file_options() };
    let device: Arc<dyn Device> = Arc::new(FileDevice::open(image, writable)?);
    let Some(dir) = &args.rootdir else {
        new.replace(&*device)?;
        return Ok(make(&*device, options)?);
    };
    if args.size.is_some() || new.size.is_none() {
        rootdir::check_size(dir, options, new.size.unwrap_or_else(|| device.len()))?;
    }
    let owner = owner(args)?;
    // A signal before or after the copy leaves no filesystem either.
    let stop = Arc::default();
    let _signals = Signals::set(&stop)?;
    // Everything that can be checked beforehand is checked: the old content is lost from here on.
    new.replace(&*device)?;
    let superblock = make(&*device, options)?;
    let check_stopped =
        || if stop.load(Ordering::SeqCst) { Err(Interrupted.into()) } else { Ok(()) };
    let mut open = OpenOptions::new();
    open.write(true).commit_seconds(0).discard(args.discard);
    open.compress(args.compress.and_then(CompressArg::option));
    let fill = |()| rootdir::fill(global, dir, &device, owner, &open);
    let filled = check_stopped().and_then(fill);
    let Err(error) = filled.and_then(|()| check_stopped()) else { return Ok(superblock) };
    Err(match new.unmake(image, &*device, superblock.fsid) {
        Ok(()) => error,
        Err(why) => error.context(format!("an empty filesystem remains ({why})")),
    })
}

fn print(args: &MkfsArgs, superblock: &Superblock) -> Result<()> {
    let mut out = stdout();
    writeln!(out, "Label:              {}", Quoted(&superblock.label))?;
    writeln!(out, "UUID:               {}", superblock.fsid)?;
    writeln!(out, "Node size:          {}", superblock.nodesize)?;
    writeln!(out, "Sector size:        {}", superblock.sectorsize)?;
    writeln!(out, "Filesystem size:    {}", text::size(superblock.total_bytes))?;
    writeln!(out, "Checksum:           {}", superblock.checksum_kind)?;
    let user = geteuid();
    if args.owner.is_none() && args.rootdir.is_none() && !user.is_root() {
        let group = getegid();
        writeln!(out, "Owner:              root; only root can write to it when it is mounted")?;
        writeln!(out, "                    (use --owner {user}:{group} to change that)")?;
    }
    out.flush()?;
    Ok(())
}

fn document(superblock: &Superblock) -> serde_json::Value {
    let document = json!({
        "uuid": superblock.fsid.to_string(),
        "nodesize": superblock.nodesize,
        "sectorsize": superblock.sectorsize,
        "total_bytes": superblock.total_bytes,
        "csum_type": superblock.checksum_kind.name(),
    });
    with_name(document, "label", &superblock.label)
}
