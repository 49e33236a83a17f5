//! `mkfs`: makes an empty filesystem, and says what it made.

use std::fs::{self, File, Metadata};
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::json;
use userbtrfs::device::{FileDevice, FileOptions};
use userbtrfs::mkfs::{ChecksumKind, Options, Superblock, make};
use userbtrfs::{Profile, Quoted};

use super::args::{Csum, Format, Global, KeptAs, MkfsArgs};
use super::output::{print_json, stdout};
use super::text;

pub(crate) fn run(global: &Global, args: &MkfsArgs) -> Result<ExitCode> {
    let options = options(args)?;
    let superblock = on_file(args, &options).with_context(|| args.image.display().to_string())?;
    match global.format {
        _ if global.quiet => {}
        Format::Text => print(&superblock)?,
        Format::Json => print_json("mkfs", &document(&superblock))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn options(args: &MkfsArgs) -> Result<Options> {
    ensure!(args.rootdir.is_none(), "--rootdir is not supported yet");
    let mut features = Features::default();
    args.features.iter().try_for_each(|name| features.switch(name))?;
    let mut options = if features.mixed { Options::mixed() } else { Options::default() };
    if features.mixed {
        // What is said of one holds for both.
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
    options.checksum = checksum(args.csum);
    options.block_group_tree = features.block_group_tree;
    options.free_space_tree = features.free_space_tree;
    options.force = args.force;
    Ok(options)
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

fn profile(kept: Option<KeptAs>) -> Option<Profile> {
    kept.map(|kept| match kept {
        KeptAs::Single => Profile::Single,
        KeptAs::Dup => Profile::Dup,
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

/// Makes the filesystem; a file that was made for it goes again where that fails.
fn on_file(args: &MkfsArgs, options: &Options) -> Result<Superblock> {
    let is_new = match fs::metadata(&args.image) {
        Ok(there) => extend(&args.image, &there, args.size).map(|()| false)?,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let size =
                args.size.context("there is no such file; --size says how large to make it")?;
            File::create_new(&args.image)?.set_len(size).map(|()| true)?
        }
        Err(error) => return Err(error.into()),
    };
    let made = on_device(&args.image, options);
    if made.is_err() && is_new {
        fs::remove_file(&args.image)?;
    }
    made
}

/// Gives an empty file its size. That of anything else stays.
fn extend(image: &Path, there: &Metadata, size: Option<u64>) -> Result<()> {
    match size {
        None => Ok(()),
        Some(size) if there.is_file() && there.len() == 0 => {
            Ok(File::options().write(true).open(image)?.set_len(size)?)
        }
        Some(size) => {
            ensure!(
                there.is_file() && there.len() == size,
                "it is there already; --size is for files to be made"
            );
            Ok(())
        }
    }
}

fn on_device(image: &Path, options: &Options) -> Result<Superblock> {
    let device = FileDevice::open(image, FileOptions { writable: true, ..FileOptions::default() })?;
    Ok(make(&device, options)?)
}

fn print(superblock: &Superblock) -> Result<()> {
    let mut out = stdout();
    writeln!(out, "Label:              {}", Quoted(&superblock.label))?;
    writeln!(out, "UUID:               {}", superblock.fsid)?;
    writeln!(out, "Node size:          {}", superblock.nodesize)?;
    writeln!(out, "Sector size:        {}", superblock.sectorsize)?;
    writeln!(out, "Filesystem size:    {}", text::size(superblock.total_bytes))?;
    writeln!(out, "Checksum:           {}", superblock.checksum_kind)?;
    out.flush()?;
    Ok(())
}

fn document(superblock: &Superblock) -> serde_json::Value {
    json!({
        "label": Quoted(&superblock.label).to_string(),
        "uuid": superblock.fsid.to_string(),
        "nodesize": superblock.nodesize,
        "sectorsize": superblock.sectorsize,
        "total_bytes": superblock.total_bytes,
        "csum_type": superblock.checksum_kind.name(),
    })
}
