//! `put`: copies trees into the image.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use rustix::fs::{major, minor};
use userbtrfs::Filesystem;
use userbtrfs::copy::CopyOptions;

use crate::cli::compression::CompressArg;
use crate::cli::session::{RunVerb, Session};
use crate::cli::verbs::chown::Owner;
use crate::cli::verbs::copy_target::{SourceKind, Target, copy};

#[derive(clap::Args)]
pub(crate) struct PutArgs {
    /// Sources, then a directory or a new name
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    paths: Vec<OsString>,
    /// Owner of all copied files: UID, UID:GID or :GID
    #[arg(long)]
    owner: Option<Owner>,
    /// fsync each file when complete [default: one commit at the end]
    #[arg(long)]
    fsync: bool,
    /// Share data in the image that the files share on the host (btrfs, xfs)
    #[arg(long)]
    reflink: bool,
    /// Compress data with this algorithm: zlib, lzo, zstd or no
    #[arg(long, value_name = "ALGO[:LEVEL]")]
    compress: Option<CompressArg>,
}

impl RunVerb for PutArgs {
    fn run(&self, session: &Session) -> Result<ExitCode> {
        let (sources, target) = Target::split(&session.filesystem, &self.paths)?;
        let options = self.options(&session.image);
        let put = || {
            copy("put", &session.global, options, true, |copier, report| {
                for source in sources {
                    let source = Path::new(source);
                    let place = target.of(source.as_os_str(), kind_of(source))?;
                    copier.put(source, &place.target(), report);
                }
                Ok(())
            })
        };
        match self.compress {
            Some(compress) => compressing(&session.filesystem, compress, put),
            None => put(),
        }
    }
}

/// Copies with compression. Data is compressed when it is written back, so it is committed before
/// the option ends.
fn compressing(
    filesystem: &Filesystem,
    compress: CompressArg,
    put: impl FnOnce() -> Result<ExitCode>,
) -> Result<ExitCode> {
    filesystem.set_compress(compress.option());
    let done = put();
    let committed = if done.is_ok() { filesystem.commit() } else { Ok(()) };
    filesystem.set_compress(None);
    let code = done?;
    committed?;
    Ok(code)
}

impl PutArgs {
    fn options(&self, image: &Path) -> CopyOptions {
        let (uid, gid) = self.owner.map_or((None, None), |owner| (owner.uid, owner.gid));
        let except = image_file(image);
        CopyOptions {
            uid,
            gid,
            fsync: self.fsync,
            keep_shared: self.reflink,
            except,
            ..CopyOptions::default()
        }
    }
}

fn kind_of(source: &Path) -> SourceKind {
    match source.symlink_metadata().map(|metadata| metadata.file_type()) {
        Ok(kind) if kind.is_file() => SourceKind::File,
        Ok(kind) if kind.is_dir() => SourceKind::Directory,
        _ => SourceKind::Other,
    }
}

/// Returns the device and inode number of an image file, also if it is given by a loop device.
fn image_file(image: &Path) -> Option<(u64, u64)> {
    let mut metadata = fs::metadata(image).ok()?;
    if metadata.file_type().is_block_device() {
        let major = major(metadata.rdev());
        let minor = minor(metadata.rdev());
        let path = format!("/sys/dev/block/{major}:{minor}/loop/backing_file");
        let backing = fs::read_to_string(path).ok()?;
        metadata = fs::metadata(backing.trim_end_matches('\n')).ok()?;
    }
    Some((metadata.dev(), metadata.ino()))
}
