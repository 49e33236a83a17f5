//! `get`: copies trees out of the image.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, Result, bail, ensure};
use userbtrfs::Inode;
use userbtrfs::copy::{CopyOptions, ImageSource};

use crate::cli::args::GetArgs;
use crate::cli::host::image::image_file;
use crate::cli::host::meter::Total;
use crate::cli::host::totals::of_image_trees;
use crate::cli::paths::{Destination, Placement, have_namesakes, last_name};
use crate::cli::report::ExitStatus;
use crate::cli::session::Session;
use crate::cli::text::shown;
use crate::cli::verbs::cat;
use crate::cli::verbs::copy_target::copy;

pub(crate) fn run(session: &Session, args: &GetArgs) -> Result<ExitCode> {
    let filesystem = &session.filesystem;
    let dir_at = |path: &OsStr| Ok(Path::new(path).is_dir().then_some(()));
    let (patterns, _) = Destination::split_by(&args.paths, |_| Ok(Some(())))?;
    let mut paths = session.expand(patterns);
    if let Some(path) = args.paths.last() {
        paths.push(session.host_path(path)?);
    }
    let (sources, destination) = Destination::split_by(&paths, dir_at)?;
    let mut options = CopyOptions {
        one_subvolume: args.one_subvolume,
        except: image_file(&session.image),
        filter: args.filter.filter(),
        keep_made: have_namesakes(sources),
        ..CopyOptions::default()
    };
    options.workers = args.jobs.unwrap_or(options.workers);
    let failures = ExitStatus::default();
    let is_all = options.filter.is_none() && !options.one_subvolume;
    let total = |stop: &AtomicBool| {
        let find = |path: &OsString| filesystem.lookup_no_follow(path.as_encoded_bytes());
        of_image_trees(sources.iter().map(find).collect::<Result<Vec<_>, _>>().ok()?, stop)
    };
    let total = if is_all { Total::Measured(&total) } else { Total::Unknown };
    let code = copy("get", &session.global, options, true, total, |copier, report| {
        for source in sources {
            let path = source.as_encoded_bytes();
            let placement = destination.place_of(path);
            let is_new = matches!(placement, Placement::New);
            let target = target(destination.path(), placement)?;
            let copied = || -> Result<()> {
                let inode = filesystem.lookup_no_follow(path)?;
                if let Some(name) = last_name(path)
                    && !args
                        .filter
                        .takes(Path::new(OsStr::from_bytes(name)), inode.metadata()?.is_dir())
                {
                    return Ok(());
                }
                // A missing destination that ends with a slash is accepted only for a directory.
                if is_new && ends_with_slash(&target) && !inode.metadata()?.is_dir() {
                    bail!("{}: not a directory", shown(destination.path()));
                }
                // As in cp(1), a link at the target is followed, and a pipe or device is written.
                let found = ImageSource { inode: &inode, path };
                match inode.metadata()?.is_file().then(|| through(&target)).transpose()?.flatten() {
                    Some(Through::File(real)) => copier.get(&found, &real, report),
                    Some(Through::Stream(real)) => {
                        ensure!(!is_image(session, &real), "{}: is the image", real.display());
                        write_into(&inode, &real)?;
                    }
                    None => copier.get(&found, &target, report),
                }
                Ok(())
            };
            failures.continue_after(copied().with_context(|| shown(source)))?;
        }
        Ok(())
    })?;
    Ok(if code == ExitCode::SUCCESS { failures.code() } else { code })
}

/// The file to which an existing destination on the host leads.
enum Through {
    /// A regular file, by its path without links.
    File(PathBuf),
    /// A pipe, a device or the like, or an open file, to which only the content is written.
    Stream(PathBuf),
}

/// The maximum number of symbolic links that are followed.
const LINKS_MAX: usize = 40;

/// Returns the file to write to if the destination of a file is a link or no regular file.
fn through(target: &Path) -> Result<Option<Through>> {
    let Ok(found) = target.symlink_metadata() else { return Ok(None) };
    let named = || target.display().to_string();
    let dangling = || format!("{}: not writing through dangling symlink", named());
    let kind = target.metadata().with_context(dangling)?.file_type();
    Ok(match () {
        () if kind.is_dir() => None,
        () if !kind.is_file() || descriptor(target).is_some() => {
            Some(Through::Stream(target.to_path_buf()))
        }
        () if found.is_symlink() => Some(Through::File(target.canonicalize().with_context(named)?)),
        () => None,
    })
}

/// Writes the content of a file into a pipe, a device or an open file.
fn write_into(inode: &Inode, target: &Path) -> Result<()> {
    let named = || target.display().to_string();
    let mut out = open_stream(target).with_context(named)?;
    cat::copy(inode.open()?.reader(), &mut out).with_context(named)
}

/// Opens what is written into. Standard output and error are written where they are, after what
/// they hold.
fn open_stream(target: &Path) -> io::Result<File> {
    let descriptor = descriptor(target);
    Ok(match descriptor {
        Some(1) => io::stdout().as_fd().try_clone_to_owned()?.into(),
        Some(2) => io::stderr().as_fd().try_clone_to_owned()?.into(),
        _ => File::options().write(true).truncate(descriptor.is_some()).open(target)?,
    })
}

/// Returns the number of the descriptor of this process to which a link leads, as `/dev/stdout`
/// does; `None` if it does not lead to one.
fn descriptor(link: &Path) -> Option<u32> {
    let descriptors = Path::new("/proc/self/fd").canonicalize().ok()?;
    let mut path = link.to_path_buf();
    for _ in 0..LINKS_MAX {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let dir = parent.unwrap_or(Path::new(".")).canonicalize().ok()?;
        if dir == descriptors {
            return path.file_name()?.to_str()?.parse().ok();
        }
        path = dir.join(path.read_link().ok()?);
    }
    None
}

/// Returns true if a path leads to the image file, or to the block device that the image is.
fn is_image(session: &Session, path: &Path) -> bool {
    let Ok(there) = path.metadata() else { return false };
    let device = session.image.metadata().map_or(0, |image| image.rdev());
    image_file(&session.image) == Some((there.dev(), there.ino()))
        || there.file_type().is_block_device() && there.rdev() == device
}

fn ends_with_slash(path: &Path) -> bool {
    path.as_os_str().as_bytes().ends_with(b"/")
}

/// Returns the path of a place at a destination. The root of the image has no name: its entries are
/// copied into the destination itself, as with `cp -a /. DEST`.
fn target(destination: &OsStr, placement: Placement<'_, ()>) -> Result<PathBuf> {
    Ok(match placement {
        Placement::New => PathBuf::from(destination),
        Placement::Within { path, .. } => PathBuf::from(OsString::from_vec(path)),
        Placement::Directory(()) => Path::new(destination).canonicalize()?,
    })
}
