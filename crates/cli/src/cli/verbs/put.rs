//! `put`: copies trees into the image.

use std::ffi::OsString;
use std::io::{self, Read as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Context as _, Result, bail, ensure};
use userbtrfs::copy::CopyOptions;
use userbtrfs::{Attributes, Error, File, Filesystem, PathError, Quoted};

use crate::cli::args::ArchiveArgs;
use crate::cli::compression::CompressArg;
use crate::cli::host::image::image_file;
use crate::cli::host::meter::{Total, watch_bytes};
use crate::cli::host::totals::of_host_trees;
use crate::cli::owners::{Names, Owner, OwnerArg};
use crate::cli::paths::have_namesakes;
use crate::cli::session::{RunVerb, Session};
use crate::cli::verbs::copy_target::{SourceKind, Target, copy};
use crate::cli::verbs::filter::FilterArgs;

/// The permissions of a new file with the content of standard input.
const FILE_MODE: u32 = 0o644;

/// The bytes that are read from standard input at once.
const BUFFER: usize = 1 << 20;

#[derive(clap::Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is an option of put")]
pub(crate) struct PutArgs {
    /// Sources, or - for standard input, then a directory or a new name
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    paths: Vec<OsString>,
    /// Owner of all copied files, by name or number: USER, USER:GROUP, USER: or :GROUP
    #[arg(long)]
    owner: Option<OwnerArg>,
    /// Look up names in /etc/passwd and /etc/group of the image [default: on this machine]
    #[arg(long, requires = "owner")]
    names_from_image: bool,
    /// Do not descend into other filesystems
    #[arg(short = 'x', long)]
    one_file_system: bool,
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    archive: ArchiveArgs,
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
        let owner = self.owner(session)?;
        let put = || {
            if self.paths.first().is_some_and(|source| source == "-") {
                return self.put_stdin(session, owner);
            }
            self.put_trees(session, owner)
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
    fn owner(&self, session: &Session) -> Result<Owner> {
        let Some(owner) = &self.owner else { return Ok(Owner::default()) };
        owner.resolve(&Names::new(&session.filesystem, self.names_from_image))
    }

    fn put_trees(&self, session: &Session, owner: Owner) -> Result<ExitCode> {
        let (destination, sources) = self.paths.split_last().context("no destination")?;
        let sources = sources.iter().map(|path| session.host_path(path));
        let paths = sources.chain([Ok(destination.clone())]).collect::<Result<Vec<_>>>()?;
        let (sources, target) = Target::split(&session.filesystem, &paths, false)?;
        let keep_made = have_namesakes(sources);
        let options = CopyOptions { keep_made, ..self.options(&session.image, owner) };
        let is_all = options.filter.is_none() && !options.one_subvolume;
        let total = |stop: &AtomicBool| of_host_trees(sources.iter().map(Path::new), stop);
        let total = if is_all { Total::Measured(&total) } else { Total::Unknown };
        copy("put", &session.global, options, true, total, |copier, report| {
            for source in sources {
                let source = Path::new(source);
                let kind = kind_of(source);
                if let Some(name) = source.file_name()
                    && !self.filter.takes(Path::new(name), kind == SourceKind::Directory)
                {
                    continue;
                }
                let place = target.of(source.as_os_str(), kind)?;
                copier.put(source, &place.target(), report);
            }
            Ok(())
        })
    }

    /// Writes standard input to a file. If reading it fails, a new file is removed, and an existing
    /// one stays as it was.
    fn put_stdin(&self, session: &Session, owner: Owner) -> Result<ExitCode> {
        ensure!(session.may_read_stdin, "-: standard input holds the commands");
        let [_, path] = &self.paths[..] else {
            bail!("-: standard input goes into one file");
        };
        let path = path.as_encoded_bytes();
        let named = || Quoted(path).to_string();
        let filesystem = &session.filesystem;
        let there = match filesystem.lookup(path) {
            Err(PathError { error: Error::NotFound, .. }) => None,
            found => Some(found.with_context(named)?),
        };
        if let Some(there) = &there {
            let metadata = there.metadata()?;
            ensure!(!metadata.is_dir(), "{}: is a directory", named());
            ensure!(metadata.is_file(), "{}: not a regular file", named());
        }
        let (dir, name) = filesystem.open_parent_of_file(path).with_context(named)?;
        let new = dir.create_unnamed(FILE_MODE).with_context(named)?;
        let file = new.open()?;
        watch_bytes(&session.global, "copying", Total::Unknown, |copied| copy_stdin(&file, copied))
            .with_context(named)?;
        let inode = if let Some(there) = there {
            replace_content(&there.open()?, &new.open()?).with_context(named)?;
            there
        } else {
            dir.link(&name, &new).with_context(named)?;
            new
        };
        let Owner { uid, gid } = owner;
        if uid.is_some() || gid.is_some() {
            inode.set_attributes(&Attributes { uid, gid, ..Attributes::default() })?;
        }
        if self.fsync {
            inode.sync_all().with_context(named)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn options(&self, image: &Path, owner: Owner) -> CopyOptions {
        let Owner { uid, gid } = owner;
        let except = image_file(image);
        CopyOptions {
            uid,
            gid,
            fsync: self.fsync,
            keep_shared: self.reflink,
            except,
            one_subvolume: self.one_file_system,
            filter: self.filter.filter(),
            ..CopyOptions::default()
        }
    }
}

/// Gives a file the content of another one, whose extents it shares if it can.
fn replace_content(file: &File, source: &File) -> Result<()> {
    let size = source.len();
    let shared = file.share_from(source, 0, 0, size)?;
    let copied = file.copy_from(source, shared, shared, size - shared)?;
    ensure!(shared + copied == size, "not all of standard input was written");
    // At the end, so that the old content is not lost if there is no space for the new one.
    Ok(file.set_len(size)?)
}

/// Writes all of standard input to the end of a file, and counts the bytes in `copied`.
fn copy_stdin(file: &File, copied: &AtomicU64) -> Result<()> {
    let mut buffer = vec![0; BUFFER];
    let mut stdin = io::stdin().lock();
    loop {
        let len = match stdin.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read.context("standard input")?,
        };
        if len == 0 {
            return Ok(());
        }
        file.append(&buffer[..len])?;
        copied.fetch_add(len as u64, Ordering::Relaxed);
    }
}

fn kind_of(source: &Path) -> SourceKind {
    match source.symlink_metadata().map(|metadata| metadata.file_type()) {
        Ok(kind) if kind.is_file() => SourceKind::File,
        Ok(kind) if kind.is_dir() => SourceKind::Directory,
        _ => SourceKind::Other,
    }
}
