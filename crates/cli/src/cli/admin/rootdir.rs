//! `mkfs --rootdir`: fills a new filesystem with the content of a directory, and estimates the size
//! that it needs.

use std::collections::HashSet;
use std::fs::{self, DirEntry, File, Metadata};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, Result, ensure};
use rustix::fs::SeekFrom;
use userbtrfs::copy::{CopyOptions, ImageTarget};
use userbtrfs::device::Device;
use userbtrfs::mkfs::Options;
use userbtrfs::{OpenOptions, Profile};

use crate::cli::args::{Format, Global};
use crate::cli::host::meter::{Total, close_watched};
use crate::cli::host::totals::of_host_trees;
use crate::cli::owners::Owner;
use crate::cli::verbs::copy_target::copy;

/// Copies the content of `dir` into the new filesystem. If a part of it cannot be copied, the
/// filesystem stays empty.
pub(in crate::cli) fn fill(
    global: &Global,
    dir: &Path,
    device: &Arc<dyn Device>,
    owner: Owner,
    open: &OpenOptions,
) -> Result<()> {
    let filesystem = open.open_devices(vec![Arc::clone(device)])?;
    // Only mkfs prints JSON.
    let global = Global { format: Format::Text, ..global.clone() };
    let options = CopyOptions { uid: owner.uid, gid: owner.gid, ..CopyOptions::default() };
    let total = |stop: &AtomicBool| of_host_trees([dir], stop);
    let copied =
        copy("mkfs", &global, options, false, Total::Measured(&total), |copier, report| {
            let target = ImageTarget { dir: &filesystem.root(), name: None, path: b"/" };
            copier.put(dir, &target, report);
            Ok(())
        });
    match copied {
        Ok(code) if code == ExitCode::SUCCESS => Ok(close_watched(&global, filesystem)?),
        other => {
            filesystem.abandon();
            other.and_then(|_| Err(anyhow::anyhow!("not all of {} was copied", dir.display())))
        }
    }
}

/// Fails if `dir` is not a directory, or contains the image itself.
pub(in crate::cli) fn check(dir: &Path, image: &Path) -> Result<()> {
    let named = || dir.display().to_string();
    let real = dir.canonicalize().with_context(named)?;
    ensure!(real.is_dir(), "{}: not a directory", named());
    let is_device = fs::metadata(image).is_ok_and(|there| !there.is_file());
    let inside = !is_device && real_path(image)?.starts_with(real);
    ensure!(!inside, "image is inside {}", named());
    Ok(())
}

/// Returns the real path of a file that exists or will be made.
fn real_path(path: &Path) -> std::io::Result<PathBuf> {
    if path.exists() {
        return path.canonicalize();
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new(".")).canonicalize()
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const SECTOR: u64 = 4 * KIB;

/// The size of the part that holds no files: system chunks, and free space for changes.
const ROOM: u64 = 128 * MIB;

/// The maximum size of an inline file.
const INLINE_MAX: u64 = 2 * KIB;

/// The size of the items of an inode: itself, its directory entries and its back reference.
const INODE: u64 = 340;
/// The number of items that hold its name.
const NAMES: u64 = 3;
/// The size of the items of an extent: in the file, and in the extent tree.
const EXTENT: u64 = 160;
/// The size of the item of an extended attribute without its name and value.
const XATTR: u64 = 60;
/// The size of the largest checksum of a sector.
const CHECKSUM: u64 = 32;

/// The space that the content of a directory needs in a filesystem.
#[derive(Debug, Default)]
struct Measure {
    /// Bytes of data in whole sectors.
    data: u64,
    /// Bytes in trees whose nodes are full.
    metadata: u64,
    /// Inodes with several names that were counted.
    seen: HashSet<(u64, u64)>,
    /// Whether attributes are not counted, which takes several system calls for each inode.
    without_xattrs: bool,
}

/// Returns the size in bytes of a filesystem into which the content of a directory fits, with half
/// of that size in addition. A file of that size is mostly a hole.
pub(in crate::cli) fn size_for(dir: &Path, options: &Options) -> Result<u64> {
    let measure = Measure::of(dir)?;
    // In the worst case nodes are half full.
    let metadata = 2 * measure.metadata * copies(options.metadata);
    let need = metadata + measure.data * copies(options.data);
    Ok((need + need / 2 + ROOM).next_multiple_of(MIB))
}

/// Fails if the data of the files in a directory exceeds `size` bytes, or if a file or directory
/// cannot be read. The copy itself fails if the metadata does not fit.
pub(in crate::cli) fn check_size(dir: &Path, options: &Options, size: u64) -> Result<()> {
    let need = Measure::of_data(dir)?.data * copies(options.data);
    let named = dir.display();
    ensure!(need <= size, "not enough space: data in {named} needs {need} bytes, image has {size}");
    Ok(())
}

fn copies(profile: Profile) -> u64 {
    if profile == Profile::Dup { 2 } else { 1 }
}

impl Measure {
    fn of(dir: &Path) -> Result<Self> {
        Self::default().filled(dir)
    }

    /// Like `of`, but attributes are not part of `metadata`.
    fn of_data(dir: &Path) -> Result<Self> {
        Self { without_xattrs: true, ..Self::default() }.filled(dir)
    }

    fn filled(mut self, dir: &Path) -> Result<Self> {
        self.add_dir(dir, dir)?;
        self.add_xattrs(dir);
        Ok(self)
    }

    /// Adds the content of a directory, which messages call `name`. A directory is reached by its
    /// open descriptor: its path may be longer than a path may be.
    fn add_dir(&mut self, dir: &Path, name: &Path) -> Result<()> {
        let named = || name.display().to_string();
        let held = File::open(dir).with_context(named)?;
        let base = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()));
        for entry in fs::read_dir(&base).with_context(named)? {
            let entry = entry.with_context(named)?;
            let name = name.join(entry.file_name());
            let metadata = entry.metadata().with_context(|| name.display().to_string())?;
            self.metadata += INODE + NAMES * entry.file_name().len() as u64;
            self.add_xattrs(&entry.path());
            if metadata.is_dir() {
                self.add_dir(&entry.path(), &name)?;
            } else if metadata.is_symlink() {
                self.metadata += EXTENT + metadata.len();
            } else if metadata.is_file() && self.is_new(&metadata) {
                let added = self.add_file(&entry, &metadata);
                added.with_context(|| name.display().to_string())?;
            }
        }
        Ok(())
    }

    /// Adds the extended attributes of the file at a path, except those that cannot be read.
    fn add_xattrs(&mut self, path: &Path) {
        if self.without_xattrs {
            return;
        }
        // Most files have none.
        let mut names = vec![0; rustix::fs::llistxattr_query(path).unwrap_or(0)];
        let len = rustix::fs::llistxattr(path, &mut names).unwrap_or(0);
        for name in names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let value = rustix::fs::lgetxattr_query(path, name).unwrap_or(0);
            self.metadata += XATTR + name.len() as u64 + value as u64;
        }
    }

    fn is_new(&mut self, metadata: &Metadata) -> bool {
        metadata.nlink() == 1 || self.seen.insert((metadata.dev(), metadata.ino()))
    }

    fn add_file(&mut self, entry: &DirEntry, metadata: &Metadata) -> std::io::Result<()> {
        // An error of the copy would come after an image is overwritten.
        let file = File::open(entry.path())?;
        let size = metadata.len();
        if size <= INLINE_MAX {
            self.metadata += EXTENT + size;
            return Ok(());
        }
        if metadata.blocks() * 512 >= size {
            self.add_data(0, size);
            return Ok(());
        }
        let mut at = 0;
        while let Ok(start) = rustix::fs::seek(&file, SeekFrom::Data(at)) {
            at = rustix::fs::seek(&file, SeekFrom::Hole(start))?;
            self.add_data(start, at);
        }
        Ok(())
    }

    /// Adds data of a file between two offsets.
    fn add_data(&mut self, start: u64, end: u64) {
        let bytes = end.next_multiple_of(SECTOR) - start / SECTOR * SECTOR;
        self.data += bytes;
        self.metadata += EXTENT + bytes / SECTOR * CHECKSUM;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(dir: &Path) -> u64 {
        size_for(dir, &Options::default()).unwrap()
    }

    #[test]
    fn size_follows_data_and_not_holes() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(size(folder.path()), ROOM);
        fs::create_dir(folder.path().join("a")).unwrap();
        let file = File::create(folder.path().join("a/b")).unwrap();
        file.set_len(1 << 40).unwrap();
        assert!(size(folder.path()) <= ROOM + MIB);
        fs::write(folder.path().join("c"), vec![1; 10 << 20]).unwrap();
        let one = size(folder.path());
        assert!((ROOM + 15 * MIB..ROOM + 20 * MIB).contains(&one), "{one}");
        fs::hard_link(folder.path().join("c"), folder.path().join("d")).unwrap();
        assert_eq!(size(folder.path()), one);
    }

    #[test]
    fn extended_attributes_count_as_metadata() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, b"").unwrap();
        let before = Measure::of(folder.path()).unwrap().metadata;
        let flags = rustix::fs::XattrFlags::empty();
        if let Err(error) = rustix::fs::setxattr(&file, "user.a", &[1; 3000], flags) {
            return println!("SKIPPED: no user attributes here: {error}");
        }
        let with = Measure::of(folder.path()).unwrap().metadata;
        assert_eq!(with - before, XATTR + 6 + 3000);
    }

    #[test]
    fn directory_that_contains_the_image_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("dir");
        let image = folder.path().join("image");
        fs::create_dir(&dir).unwrap();
        for there in [false, true] {
            check(&dir, &image).unwrap();
            assert!(check(folder.path(), &image).is_err(), "{there}");
            assert!(check(&folder.path().join("none"), &image).is_err());
            File::create(&image).unwrap();
        }
        assert!(check(&image, &image).is_err());
        check(Path::new("/dev"), Path::new("/dev/zero")).unwrap();
    }
}
