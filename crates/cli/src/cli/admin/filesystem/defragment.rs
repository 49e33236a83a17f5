//! `filesystem defragment`: rewrites the small extents of files of an image, or of a mount.
//!
//! 1. As in btrfs-progs, a directory is only descended into with `-r`; subvolumes below it, and
//!    other mounts there, are left out. Without `-r` nothing is done for it.
//! 2. A failure is reported, and the next file follows.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use userbtrfs::{CompressionMethod, Defragment, Inode, Quoted, Recompress};

use crate::cli::admin::mounted::request_at;
use crate::cli::admin::subvolume::mounted::is_in_mount;
use crate::cli::admin::subvolume::place::{change, once, refuse_options};
use crate::cli::args::{Global, WriteArgs};
use crate::cli::host::meter::{Amount, Total, Watched, watch};
use crate::cli::report::{ExitStatus, progress, warn};
use crate::cli::session::Session;
use crate::cli::sizes::size;
use crate::cli::text::shown;

/// The number that the root directory of a subvolume has in it, and the bits of an inode number in
/// a mount that are the number in the subvolume.
const ROOT_NUMBER: u64 = 256;
const NUMBER_BITS: u32 = 40;

#[derive(Args)]
pub(crate) struct DefragmentArgs {
    #[command(flatten)]
    image: WriteArgs,
    /// Paths in the image (in a mount: more paths; the first one takes the place of IMAGE)
    paths: Vec<OsString>,
    /// Defragment the files below directories, too
    #[arg(short, long)]
    recursive: bool,
    /// Write the data at once (it always is)
    #[arg(short, long)]
    flush: bool,
    #[command(flatten)]
    rules: Rules,
}

/// The range of each file, and how it is rewritten.
#[derive(Args)]
pub(in crate::cli) struct Rules {
    /// Compress the data [default: zlib]
    #[arg(short, long, value_name = "ALGO", num_args = 0..=1, require_equals = true,
        default_missing_value = "zlib")]
    compress: Option<CompressionMethod>,
    /// Compression level, for -c
    #[arg(
        short = 'L',
        long,
        value_name = "LEVEL",
        requires = "compress",
        allow_negative_numbers = true
    )]
    level: Option<i32>,
    /// Start of the range in each file
    #[arg(short, long, value_name = "START", default_value = "0", value_parser = size,
        hide_default_value = true)]
    start: u64,
    /// Length of the range
    #[arg(short, long, value_name = "LEN", value_parser = size)]
    len: Option<u64>,
    /// Size from which on extents are large enough
    #[arg(short, long, value_name = "SIZE", default_value = "32M", value_parser = size)]
    target: u64,
}

impl Rules {
    fn request(&self) -> Result<Defragment> {
        let method = self.compress.map(|method| CompressionMethod {
            level: self.level.or(method.level).filter(|level| *level != 0),
            ..method
        });
        method.map_or(Ok(()), CompressionMethod::check_level)?;
        Ok(Defragment {
            start: self.start,
            len: self.len.filter(|len| *len > 0).unwrap_or(u64::MAX),
            threshold: self.target,
            compression: method.map_or(Recompress::Usual, Recompress::With),
        })
    }

    /// Returns the words of a request to the server of a mount about a file with this number.
    fn words(&self, number: u64) -> Result<Vec<OsString>> {
        let Defragment { start, len, threshold, compression } = self.request()?;
        let mut words = vec!["defragment".to_owned()];
        words.extend([format!("--start={start}"), format!("--len={len}")]);
        words.push(format!("--target={threshold}"));
        if let Recompress::With(method) = compression {
            words.push(format!("--compress={method}"));
        }
        words.push(number.to_string());
        Ok(words.into_iter().map(OsString::from).collect())
    }
}

/// A request to the server of a mount.
#[derive(Args)]
pub(in crate::cli) struct DefragmentRequest {
    #[command(flatten)]
    rules: Rules,
    /// The inode number of the file.
    pub(in crate::cli) number: u64,
}

impl DefragmentRequest {
    /// Returns the request about the file.
    pub(in crate::cli) fn request(&self) -> Result<Defragment> {
        self.rules.request()
    }
}

/// Inserts `=` between the option `-c` of this verb and an algorithm that follows it directly, as
/// btrfs-progs has it.
pub(in crate::cli) fn with_equals(words: Vec<OsString>) -> Vec<OsString> {
    let is_verb = |pair: &[OsString]| {
        let [group, verb] = pair else { return false };
        let group = group.as_encoded_bytes();
        let verb = verb.as_encoded_bytes();
        let is_group = !group.is_empty() && b"filesystem".starts_with(group);
        is_group && verb.starts_with(b"defrag") && b"defragment".starts_with(verb)
    };
    let Some(at) = words.windows(2).position(is_verb) else { return words };
    let is_option = |word: &OsString| word != "--";
    let end =
        words.iter().skip(at).position(|word| !is_option(word)).map_or(words.len(), |n| at + n);
    let change = |(place, word): (usize, OsString)| {
        if (at + 2..end).contains(&place) { split_algorithm(&word).unwrap_or(word) } else { word }
    };
    words.into_iter().enumerate().map(change).collect()
}

/// Returns `-rc=zstd` for `-rczstd`.
fn split_algorithm(word: &OsStr) -> Option<OsString> {
    let letters = word.to_str()?.strip_prefix('-')?;
    let (flags, algorithm) = letters.split_once('c')?;
    let is_flag = |letter: char| "rvfq".contains(letter);
    let is_given = !algorithm.is_empty() && !algorithm.starts_with('=');
    (flags.chars().all(is_flag) && is_given).then(|| format!("-{flags}c={algorithm}").into())
}

pub(super) fn run(global: &Global, args: &DefragmentArgs) -> Result<ExitCode> {
    let first = &args.image.root.image.image;
    if is_place_in_mount(first) {
        refuse_options(&args.image.root)?;
        args.rules.request()?;
        let failures = ExitStatus::default();
        let files = AtomicU64::new(0);
        let mounted = Mounted { global, args, failures: &failures, files: &files };
        let paths = [first.as_os_str()].into_iter().chain(args.paths.iter().map(AsRef::as_ref));
        watch_files(global, &files, || paths.for_each(|path| mounted.top(Path::new(path))));
        return Ok(failures.code());
    }
    ensure!(!args.paths.is_empty(), "{}: no path in the image is given", first.display());
    let request = args.rules.request()?;
    change(global, &args.image, once(&args.image), |session| {
        let failures = ExitStatus::default();
        let files = AtomicU64::new(0);
        watch_files(global, &files, || {
            args.paths.iter().try_for_each(|path| {
                let done = args.in_image(session, path, &request, &failures, &files);
                failures.continue_after(done.with_context(|| shown(path)))
            })
        })?;
        Ok(failures.code())
    })
}

/// Runs `work`, and shows how many files are done.
fn watch_files<T>(global: &Global, files: &AtomicU64, work: impl FnOnce() -> T) -> T {
    let done = || Amount { files: Some(files.load(Ordering::Relaxed)), bytes: None };
    watch(global, &Watched { name: "defragmenting", done: &done, total: Total::Unknown }, work)
}

/// Returns true if a path is in a mount of ours: an image may be in one, too, but is then named as
/// an image with paths in it.
fn is_place_in_mount(path: &Path) -> bool {
    is_in_mount(path)
        || path.parent().is_some_and(|dir| path.is_file() && is_in_mount(&or_here(dir)))
}

fn or_here(dir: &Path) -> std::path::PathBuf {
    if dir.as_os_str().is_empty() { ".".into() } else { dir.to_owned() }
}

/// The note about a directory that is not descended into.
fn note(global: &Global, shown: &str) {
    warn(global, &format!("{shown}: is a directory; -r defragments the files below it"));
}

impl DefragmentArgs {
    fn in_image(
        &self,
        session: &Session,
        path: &OsStr,
        request: &Defragment,
        failures: &ExitStatus,
        files: &AtomicU64,
    ) -> Result<()> {
        let bytes = path.as_encoded_bytes();
        let inode = session.filesystem.lookup(bytes)?;
        if !inode.metadata()?.is_dir() {
            return defragment(session, bytes, &inode, request, files);
        }
        if !self.recursive {
            note(&session.global, &shown(path));
            return Ok(());
        }
        let subvolume = inode.id().subvolume;
        // The slash names the directory even if the path is a link.
        for met in session.filesystem.walk([bytes, b"/"].concat())?.skip(1) {
            let done = met.map_err(anyhow::Error::from).and_then(|met| {
                let is_here = met.inode.id().subvolume == subvolume;
                if !is_here || !met.inode.metadata()?.is_file() {
                    return Ok(());
                }
                defragment(session, &met.path, &met.inode, request, files)
                    .with_context(|| Quoted(&met.path).to_string())
            });
            failures.continue_after(done)?;
        }
        Ok(())
    }
}

fn defragment(
    session: &Session,
    path: &[u8],
    inode: &Inode,
    request: &Defragment,
    files: &AtomicU64,
) -> Result<()> {
    progress(&session.global, || Quoted(path).to_string())?;
    inode.open()?.defragment(request)?;
    files.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Defragments files of a mount: the kernel resolves the paths, and the server gets inode numbers.
struct Mounted<'a> {
    global: &'a Global,
    args: &'a DefragmentArgs,
    failures: &'a ExitStatus,
    files: &'a AtomicU64,
}

impl Mounted<'_> {
    fn top(&self, path: &Path) {
        let done = || -> Result<()> {
            let found = path.metadata()?;
            if !found.is_dir() {
                // The server that has the file, not the one that has a link to it.
                let path = path.canonicalize()?;
                let dir = or_here(path.parent().unwrap_or(&path));
                ensure!(dir.metadata()?.dev() == found.dev(), "is mounted from elsewhere");
                return self.file(&path, &dir, found.ino());
            }
            if !self.args.recursive {
                note(self.global, &path.display().to_string());
                return Ok(());
            }
            self.below(path, found.dev());
            Ok(())
        };
        self.report(path, done());
    }

    fn below(&self, dir: &Path, device: u64) {
        let entries = match dir.read_dir() {
            Ok(entries) => entries,
            Err(error) => return self.report(dir, Err(error.into())),
        };
        for entry in entries.flatten() {
            let path = entry.path();
            let done = path.symlink_metadata().map_err(anyhow::Error::from).and_then(|found| {
                let is_root = found.ino() & ((1 << NUMBER_BITS) - 1) == ROOT_NUMBER;
                if found.is_dir() && found.dev() == device && !is_root {
                    self.below(&path, device);
                }
                if found.is_file() && found.dev() == device {
                    self.file(&path, dir, found.ino())
                } else {
                    Ok(())
                }
            });
            self.report(&path, done);
        }
    }

    /// Asks the server of a directory to defragment a file in it.
    fn file(&self, path: &Path, dir: &Path, number: u64) -> Result<()> {
        progress(self.global, || path.display().to_string())?;
        request_at(self.global, dir, &self.args.rules.words(number)?)?;
        self.files.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn report(&self, path: &Path, done: Result<()>) {
        if let Err(error) = done {
            self.failures.report(&error.context(path.display().to_string()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn algorithm_directly_after_the_option_is_its_value() {
        let changed = |line: &str| {
            let words = line.split(' ').map(OsString::from).collect();
            with_equals(words).join(OsStr::new(" ")).into_string().unwrap()
        };
        for (line, expected) in [
            ("u filesystem defragment -czstd x", "u filesystem defragment -c=zstd x"),
            ("u -q fi defrag -rvczlib:9 -f x", "u -q fi defrag -rvc=zlib:9 -f x"),
            ("u filesystem defrag -c x", "u filesystem defrag -c x"),
            ("u filesystem defrag -c=lzo -s 4c x", "u filesystem defrag -c=lzo -s 4c x"),
            ("u filesystem defrag x -- -czstd", "u filesystem defrag x -- -czstd"),
            ("u ls -czstd", "u ls -czstd"),
        ] {
            assert_eq!(changed(line), expected);
        }
    }
}
