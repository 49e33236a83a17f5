//! The verb `demo`: shows the command `userbtrfs` on real images, and verifies every file.
//!
//! 1. If there is `mkfs.btrfs`, it makes an image of part of a real directory, which is listed,
//!    extracted and compared with that directory. No privilege is needed.
//! 2. The command makes its own image of that directory, changes it, mounts it if there is FUSE,
//!    and copies it out again; `btrfs check` and Linux check it if they are available.
//! 3. Every golden image is unpacked, extracted and compared with its manifest, made by Linux.
//! 4. Images named on the command line are listed and extracted, without a comparison.
//! 5. All files are made in one temporary folder, which is removed at the end.
//!
//! The demo calls the command as a user does, and reads no image itself.

mod golden;
mod mounted;
mod tree;
mod written;

use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use userbtrfs_testkit::manifest::{Difference, Kind, Manifest, diff};
use userbtrfs_testkit::walk_linux::walk;

/// The size of the tree in the image made here, in bytes.
const TREE_BYTES: u64 = 48 << 20;
/// The number of lines shown of a long listing.
const LINES_SHOWN: usize = 12;
/// The maximum number of differences that are shown.
const DIFFERENCES_SHOWN: usize = 20;
/// Attributes that cannot be copied, or that the filesystem of the copy determines.
const NOT_COPIED: &[&str] = &["inode", "subvolume", "ctime", "atime", "btime", "segments", "flags"];
/// Attributes that only the superuser can set.
const PRIVILEGED: &[&str] = &["uid", "gid", "xattrs"];

/// The times that every filesystem can store, in seconds since 1970.
const TIMES_KEPT: RangeInclusive<i64> = -(1 << 31)..=(1 << 31) - 1;

/// The options of `demo`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Images to show instead of those that the demo makes.
    images: Vec<PathBuf>,
    /// The command to show (default: the one built beside this program).
    #[arg(long)]
    userbtrfs: Option<PathBuf>,
}

/// Runs the demo; returns an error if any file differs.
pub(crate) fn run(args: &Args) -> Result<()> {
    let demo = Demo::new(args)?;
    let start = Instant::now();
    for image in &args.images {
        demo.list(image)?;
        demo.extract(image)?;
    }
    if args.images.is_empty() {
        let source = demo.path("source");
        let copied = tree::copy_some(&source, TREE_BYTES)?;
        println!("A directory with {copied}");
        demo.show_fresh(&source)?;
        written::show(&demo, &source)?;
        golden::show(&demo)?;
    }
    println!("\nAll of it in {:.1} s.", start.elapsed().as_secs_f64());
    Ok(())
}

/// The command to show, and the folder to work in.
struct Demo {
    program: PathBuf,
    folder: TempDir,
    /// The start time, in seconds since 1970.
    begun: i64,
}

/// The files extracted from an image.
struct Extracted {
    folder: PathBuf,
    /// The filesystem of the folder supports all owners and attributes.
    all_kept: bool,
    /// The time that took; `None` if the image was not extracted but mounted.
    time: Option<Duration>,
}

impl Demo {
    fn new(args: &Args) -> Result<Self> {
        let program = match &args.userbtrfs {
            Some(program) => program.clone(),
            None => std::env::current_exe()?.with_file_name("userbtrfs"),
        };
        let program = program
            .canonicalize()
            .with_context(|| format!("{}: build it first, by `make run`", program.display()))?;
        let folder = TempDir::with_prefix("userbtrfs-demo-")?;
        let begun = folder.path().metadata()?.mtime();
        Ok(Self { program, folder, begun })
    }

    /// Makes an image with `mkfs.btrfs` and reads it, if that program exists.
    fn show_fresh(&self, source: &Path) -> Result<()> {
        let Some(mkfs) = find_program("mkfs.btrfs") else {
            println!("mkfs.btrfs is not here.");
            return Ok(());
        };
        println!("An image of it by mkfs.btrfs");
        let image = self.path("made-here.img");
        make_image(&mkfs, source, &image)?;

        self.list(&image)?;
        let extracted = self.extract(&image)?;
        verify("the directory", &walk(source)?, &extracted, self.begun)
    }

    /// Lists the contents of the image.
    fn list(&self, image: &Path) -> Result<()> {
        self.call(&["ls", "-lR"], &[image, Path::new("/")])?;
        self.call(&["df"], &[image])?;
        self.call(&["subvolume", "list"], &[image])
    }

    /// Extracts the whole image.
    fn extract(&self, image: &Path) -> Result<Extracted> {
        let name = image.file_stem().context("an image has a name")?;
        let folder = self.path("out").join(name);
        std::fs::create_dir_all(self.path("out"))?;
        let start = Instant::now();
        let top = ["get", "--subvolid", "5"];
        let output = self.show_call(&top, &[image, Path::new("/"), &folder])?;
        let (status, time) = (output.status, Some(start.elapsed()));
        // Without privilege no device can be made; the comparison finds any other missing file.
        ensure!(status.success() || !is_superuser(), "userbtrfs get: {status}");
        let all_kept = !String::from_utf8_lossy(&output.stderr).contains("could not be kept");
        Ok(Extracted { folder, all_kept, time })
    }

    /// Calls the command, which must succeed.
    fn call(&self, verb: &[&str], paths: &[&Path]) -> Result<()> {
        let status = self.show_call(verb, paths)?.status;
        ensure!(status.success(), "userbtrfs {}: {status}", verb.join(" "));
        Ok(())
    }

    /// Calls the command and shows the call with the beginning of its output.
    fn show_call(&self, verb: &[&str], paths: &[&Path]) -> Result<Output> {
        let shown: Vec<_> = paths.iter().map(|path| self.short(path)).collect();
        println!("\n$ userbtrfs {} {}", verb.join(" "), shown.join(" "));
        let output = Command::new(&self.program).args(verb).args(paths).output()?;
        show_beginning(&String::from_utf8_lossy(&output.stdout));
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        Ok(output)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the path without the temporary folder.
    fn short(&self, path: &Path) -> String {
        path.strip_prefix(self.folder.path()).unwrap_or(path).display().to_string()
    }
}

/// Compares the extracted files with the expected ones, and prints the speed. Modification times
/// since the demo has `begun` are not compared: changes were made at different times.
fn verify(
    expected_name: &str,
    expected: &Manifest,
    extracted: &Extracted,
    begun: i64,
) -> Result<()> {
    let found = walk(&extracted.folder)?;
    let mut differences = diff(expected, &found, &ignored());
    differences.retain(|difference| is_of_copy(difference, expected, begun));
    if !extracted.all_kept {
        println!("Not all attributes can be kept here, so they are not compared.");
        differences.retain(|difference| difference.attribute != "xattrs");
    }
    for difference in differences.iter().take(DIFFERENCES_SHOWN) {
        println!("{difference}");
    }
    ensure!(differences.is_empty(), "{} difference(s) from {expected_name}", differences.len());
    println!("{}; same as {expected_name}", summary(&found, extracted.time));
    Ok(())
}

fn ignored() -> Vec<&'static str> {
    let privileged = if is_superuser() { &[] } else { PRIVILEGED };
    [NOT_COPIED, privileged].concat()
}

fn is_superuser() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns true if a difference is an error of the copy. Five are not: the filesystem determines
/// size and link count of a directory, the program that makes the image makes the root, only the
/// superuser can make a device, few filesystems support as wide a range of times as btrfs, and
/// files changed since the demo has `begun` were not changed at the same time.
fn is_of_copy(difference: &Difference, expected: &Manifest, begun: i64) -> bool {
    let attribute = difference.attribute.as_str();
    let path = difference.path.as_slice();
    let entry = expected.get(path);
    let time = entry.map_or(0, |entry| entry.mtime.seconds);
    let other = !TIMES_KEPT.contains(&time) || time >= begun;
    match entry.map(|entry| entry.kind) {
        _ if other && attribute == "mtime" => false,
        Some(Kind::Dir) if path == b"/" => attribute == "path",
        Some(Kind::Dir) => !matches!(attribute, "size" | "nlink"),
        Some(Kind::Block | Kind::Char) => is_superuser() || attribute != "path",
        _ => true,
    }
}

fn summary(manifest: &Manifest, time: Option<Duration>) -> String {
    let files = manifest.entries().iter().filter(|entry| entry.kind == Kind::File);
    let data = files.clone().filter(|file| file.link.is_none()).flat_map(|file| &file.segments);
    let amount = mebibytes(data.map(|(_, len)| len).sum());
    let (entries, files) = (manifest.entries().len(), files.count());
    let speed = time.map_or(String::new(), |time| {
        let seconds = time.as_secs_f64();
        format!(" in {seconds:.2} s ({:.0} MiB/s)", amount / seconds.max(0.001))
    });
    format!("{entries} entries, {files} of them files, {amount:.1} MiB{speed}")
}

#[expect(clippy::cast_precision_loss, reason = "a figure to look at")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn show_beginning(text: &str) {
    for line in text.lines().take(LINES_SHOWN) {
        println!("{line}");
    }
    let more = text.lines().count().saturating_sub(LINES_SHOWN);
    if more > 0 {
        println!("... and {more} lines more");
    }
}

fn make_image(mkfs: &Path, source: &Path, image: &Path) -> Result<()> {
    std::fs::File::create(image)?.set_len(512 << 20)?;
    let output = Command::new(mkfs).arg("--rootdir").arg(source).arg(image).output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {errors}", mkfs.display());
    Ok(())
}

/// Finds a program in PATH or in the `sbin` folders.
fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let administrators = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    let folders = std::env::split_paths(&path).chain(administrators);
    folders.map(|folder| folder.join(name)).find(|program| program.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extracted(folder: &Path) -> Extracted {
        Extracted { folder: folder.to_owned(), all_kept: true, time: Some(Duration::from_secs(1)) }
    }

    #[test]
    fn copied_tree_equals_itself() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("source");
        tree::copy_some(&source, 1 << 20).unwrap();
        let manifest = walk(&source).unwrap();
        assert!(manifest.entries().len() > 1);
        verify("itself", &manifest, &extracted(&source), i64::MAX).unwrap();
    }

    #[test]
    fn a_changed_byte_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        std::fs::write(&file, "before").unwrap();
        let manifest = walk(folder.path()).unwrap();
        let changed = file.metadata().unwrap().modified().unwrap();
        std::fs::write(&file, "behind").unwrap();
        std::fs::File::options().write(true).open(&file).unwrap().set_modified(changed).unwrap();
        let error = verify("before", &manifest, &extracted(folder.path()), i64::MAX).unwrap_err();
        assert_eq!(error.to_string(), "1 difference(s) from before");
    }

    #[test]
    fn attributes_set_by_the_filesystem_are_no_difference() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("d")).unwrap();
        std::fs::write(folder.path().join("f"), "").unwrap();
        let expected = walk(folder.path()).unwrap();
        let counts = |path: &str, attribute: &str| {
            let (left, right) = (String::new(), String::new());
            let (path, attribute) = (path.into(), attribute.into());
            is_of_copy(&Difference { path, attribute, left, right }, &expected, i64::MAX)
        };
        assert!(!counts("/d", "size") && !counts("/d", "nlink") && !counts("/", "mtime"));
        assert!(counts("/d", "mtime") && counts("/f", "size") && counts("/f", "nlink"));
        assert!(counts("/d", "path") && counts("/f", "path") && counts("/extra", "path"));
    }

    #[test]
    fn program_in_path_is_found() {
        assert!(find_program("sh").is_some());
        assert!(find_program("no-such-program").is_none());
    }
}
