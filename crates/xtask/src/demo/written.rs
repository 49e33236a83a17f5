//! An image in the demo that the command makes of a real directory, changes, and checks.
//!
//! 1. Each change is made twice: by the command in the image, and by the machine's own tool of the
//!    same name in the directory. If there is FUSE, the image is also changed through a mount.
//! 2. The image is compared with the directory twice: mounted by Linux, if possible, and extracted
//!    by the command.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use userbtrfs_testkit::linux::{self, Linux};
use userbtrfs_testkit::manifest::{Kind, Manifest};
use userbtrfs_testkit::walk_linux::walk;

use super::command::{Demo, Extracted, find_program};
use super::mounted;
use super::verify::verify;

/// A change: a verb with its options, and paths from the top of the tree.
struct Edit {
    words: &'static str,
    paths: Vec<OsString>,
}

/// Makes the image, changes it and compares it.
pub(super) fn show(demo: &Demo, source: &Path) -> Result<()> {
    add_sparse_file(source)?;
    println!("\nAn image of our own, made of that directory and changed as the directory is");
    let image = demo.path("written.img");
    let start = Instant::now();
    demo.call(&["mkfs", "-q", "--rootdir"], &[source, &image])?;
    println!("Made in {:.2} s.", start.elapsed().as_secs_f64());
    demo.call(&["put"], &[&image, &demo.program, Path::new("/program")])?;
    Edit::new("cp -a", &[demo.program.as_os_str(), OsStr::new("program")]).of_directory(source)?;
    for edit in edits(&walk(source)?) {
        edit.of_image(demo, &image)?;
        edit.of_directory(source)?;
    }
    demo.call(&["ls", "-l"], &[&image, Path::new("/edited")])?;
    show_compression(demo, &image, source)?;
    show_resize(demo, &image)?;
    show_reflink(demo, &image)?;
    show_snapshot(demo, &image)?;
    mounted::show(demo, &image, source)?;
    let expected = walk(source)?;
    judge(demo, &image, &expected)?;
    let extracted = demo.extract(&image)?;
    verify("the directory", &expected, &extracted, demo.begun)
}

/// Copies a tree compressed, which takes less space; it stays in the image and the directory.
fn show_compression(demo: &Demo, image: &Path, source: &Path) -> Result<()> {
    let tree = source.join("edited");
    let before = data_in_use(demo, image)?;
    demo.call(&["put", "--compress", "zstd:3"], &[image, &tree, Path::new("/compressed")])?;
    let taken = data_in_use(demo, image)?.saturating_sub(before);
    let len = space_of(&tree)?;
    ensure!(taken < len / 10 * 9, "{len} bytes take {taken}, though compressed");
    println!("The {len} bytes of the tree take {taken}.");
    Edit::new("cp -a", &["edited", "compressed"]).of_directory(source)
}

/// Returns the bytes that the files of a tree take.
fn space_of(tree: &Path) -> Result<u64> {
    const UNIT: u64 = 512;
    let manifest = walk(tree)?;
    let files = manifest.entries().iter().filter(|entry| entry.kind == Kind::File);
    let space =
        |path: &[u8]| Ok(tree.join(OsStr::from_bytes(&path[1..])).metadata()?.blocks() * UNIT);
    files.map(|entry| space(entry.path.as_slice())).sum()
}

/// Grows the filesystem with its file, and shrinks it again, but not as far.
fn show_resize(demo: &Demo, image: &Path) -> Result<()> {
    let before = image.metadata()?.len();
    for (size, bytes) in [("+512M", before + (512 << 20)), ("-256M", before + (256 << 20))] {
        demo.call(&["filesystem", "resize", size], &[image])?;
        let after = image.metadata()?.len();
        ensure!(after == bytes, "the image has {after} bytes after a resize, not {bytes}");
    }
    println!("The image has {} MiB now.", image.metadata()?.len() >> 20);
    Ok(())
}

/// Makes a copy that shares the data of its source, and so takes no space for data; removes it.
fn show_reflink(demo: &Demo, image: &Path) -> Result<()> {
    let copy = Path::new("/reflink");
    let before = data_in_use(demo, image)?;
    demo.call(&["cp", "--reflink=always"], &[image, Path::new("/program"), copy])?;
    let after = data_in_use(demo, image)?;
    ensure!(after == before, "a reflink takes space: {after} bytes of data, {before} before");
    println!("The copy takes no space for data.");
    demo.call(&["rm"], &[image, copy])
}

/// Shows the use of space; returns the bytes of data.
fn data_in_use(demo: &Demo, image: &Path) -> Result<u64> {
    let output = demo.show_call(&["df", "--raw"], &[image])?;
    ensure!(output.status.success(), "userbtrfs df: {}", output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    let data = text.lines().find(|line| line.starts_with("Data, "));
    let used = data.and_then(|line| line.split_once("used=")).context("df shows data")?.1;
    used.parse().with_context(|| format!("df shows {used} bytes"))
}

/// Makes a snapshot, lists it, and deletes it.
fn show_snapshot(demo: &Demo, image: &Path) -> Result<()> {
    let snapshot = Path::new("/snapshot");
    demo.call(&["subvolume", "snapshot", "-r"], &[image, Path::new("/"), snapshot])?;
    demo.call(&["subvolume", "list", "-s"], &[image])?;
    demo.call(&["ls", "-l"], &[image, &snapshot.join("edited")])?;
    demo.call(&["subvolume", "delete"], &[image, snapshot])
}

/// Makes a file that is mostly holes.
fn add_sparse_file(source: &Path) -> Result<()> {
    let file = File::create_new(source.join("sparse"))?;
    file.set_len(1 << 30)?;
    Ok(file.write_all_at(&vec![b'x'; 100_000], 1 << 29)?)
}

/// Returns the changes to make: to a large file and to top-level directories, if there are any.
fn edits(tree: &Manifest) -> Vec<Edit> {
    let text = |path: &[u8]| OsStr::from_bytes(&path[1..]).to_owned();
    let largest = tree.entries().iter().filter(|entry| entry.kind == Kind::File);
    let largest = largest.filter(|entry| entry.size < 1 << 30).max_by_key(|entry| entry.size);
    let is_top = |path: &[u8]| path.len() > 1 && !path[1..].contains(&b'/');
    let mut dirs = tree
        .entries()
        .iter()
        .filter(|entry| entry.kind == Kind::Dir && is_top(entry.path.as_slice()))
        .map(|entry| text(entry.path.as_slice()));
    let mut edits = vec![Edit::new("mkdir -m 755", &["edited"])];
    if let Some(largest) = largest {
        let largest = text(largest.path.as_slice());
        edits.push(Edit::new("cp -a", &[&*largest, OsStr::new("edited/changed")]));
        edits.push(Edit::new("truncate -s -1000", &["edited/changed"]));
        edits.push(Edit::new("fallocate -p -o 4KiB -l 9KiB", &["edited/changed"]));
    }
    edits.push(Edit::new("cp -a", &["sparse", "edited/sparse"]));
    edits.extend(dirs.next().map(|dir| Edit::new("cp -a", &[&*dir, OsStr::new("edited/copied")])));
    edits.extend(dirs.next().map(|dir| Edit::new("mv", &[&*dir, OsStr::new("edited/moved")])));
    edits.extend(dirs.next().map(|dir| Edit::new("rm -r", &[&*dir])));
    edits
}

impl Edit {
    fn new(words: &'static str, paths: &[impl AsRef<OsStr>]) -> Self {
        Self { words, paths: paths.iter().map(|path| path.as_ref().to_owned()).collect() }
    }

    fn of_image(&self, demo: &Demo, image: &Path) -> Result<()> {
        let words: Vec<_> = self.words.split(' ').collect();
        let paths: Vec<_> = self.paths.iter().map(|path| Path::new("/").join(path)).collect();
        let paths: Vec<_> = [image].into_iter().chain(paths.iter().map(PathBuf::as_path)).collect();
        demo.call(&words, &paths)
    }

    fn of_directory(&self, source: &Path) -> Result<()> {
        let mut words = self.words.split(' ');
        let mut command = Command::new(words.next().context("an edit has a verb")?);
        linux::run(command.args(words).args(&self.paths).current_dir(source)).map(drop)
    }
}

/// Checks the image with `btrfs check` and Linux, if they are available.
fn judge(demo: &Demo, image: &Path, expected: &Manifest) -> Result<()> {
    if let Some(btrfs) = find_program("btrfs") {
        let output = Command::new(btrfs).args(["check", "--readonly"]).arg(image).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "btrfs check: {said}");
        println!("\n`btrfs check` finds no error in it.");
    }
    if let Err(lack) = linux::available() {
        println!("Linux is not asked: {lack}.");
        return Ok(());
    }
    let linux = Linux::lock()?;
    let mount = linux.mount(image, "ro,noatime")?;
    let scrub = ["scrub", "start", "-Bqr"];
    linux::run(Command::new("btrfs").args(scrub).arg(mount.path()))?;
    println!("\nLinux mounts it, and its scrub finds no error. It shows");
    let folder = mount.path().to_owned();
    let mounted = Extracted { folder, all_kept: true, time: None };
    verify("the directory", expected, &mounted, demo.begun)?;
    drop(mount);
    linux.assert_no_complaints()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_limited_to_existing_directories() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path();
        add_sparse_file(source).unwrap();
        for part in 0..4 {
            std::fs::create_dir(source.join(part.to_string())).unwrap();
            std::fs::write(source.join(format!("{part}/file")), vec![1; 20_000 + part]).unwrap();
            let edits = edits(&walk(source).unwrap());
            assert_eq!(edits.len(), 5 + (part + 1).min(3));
        }
        for edit in edits(&walk(source).unwrap()) {
            edit.of_directory(source).unwrap();
        }
        let changed = source.join("edited/changed").metadata().unwrap();
        assert_eq!(changed.len(), 20_003 - 1000);
        assert!(source.join("edited/moved/file").is_file() && !source.join("2").exists());
    }
}
