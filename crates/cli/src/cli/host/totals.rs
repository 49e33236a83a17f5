//! The totals of copies and removals, which are measured while they are in progress.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use userbtrfs::{Filesystem, Inode};

use crate::cli::host::meter::Amount;

/// Returns the regular files and their bytes in trees of the host; `None` if that fails, or once
/// `stop` is set. A file with several names counts once; a hole does not count.
pub(in crate::cli) fn of_host_trees<'a>(
    tops: impl IntoIterator<Item = &'a Path>,
    stop: &AtomicBool,
) -> Option<Amount> {
    let mut paths: Vec<PathBuf> = tops.into_iter().map(Path::to_owned).collect();
    let mut seen = HashSet::new();
    let [mut files, mut bytes] = [0_u64; 2];
    while let Some(path) = paths.pop() {
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        let found = path.symlink_metadata().ok()?;
        if found.is_dir() {
            for entry in fs::read_dir(&path).ok()? {
                paths.push(entry.ok()?.path());
            }
        } else if found.is_file() && (found.nlink() == 1 || seen.insert((found.dev(), found.ino())))
        {
            files += 1;
            bytes += found.len().min(found.blocks().saturating_mul(512));
        }
    }
    Some(Amount { files: Some(files), bytes: Some(bytes) })
}

/// Returns the regular files and their bytes in trees of an image, as [`of_host_trees`] does; a
/// file counts with its size.
pub(in crate::cli) fn of_image_trees(
    tops: impl IntoIterator<Item = Inode>,
    stop: &AtomicBool,
) -> Option<Amount> {
    let mut seen = HashSet::new();
    let [mut files, mut bytes] = [0_u64; 2];
    for top in tops {
        for entry in top.walk(b"/") {
            if stop.load(Ordering::Relaxed) {
                return None;
            }
            let inode = entry.ok()?.inode;
            let found = inode.metadata().ok()?;
            if found.is_file() && (found.nlink == 1 || seen.insert(inode.id())) {
                files += 1;
                bytes = bytes.saturating_add(found.size);
            }
        }
    }
    Some(Amount { files: Some(files), bytes: Some(bytes) })
}

/// Returns the bytes of the files at paths of an image. The verb reports those that it cannot open.
pub(in crate::cli) fn of_image_files<'a>(
    filesystem: &Filesystem,
    paths: impl IntoIterator<Item = &'a OsString>,
) -> Amount {
    let sizes = paths.into_iter().filter_map(|path| {
        let found = filesystem.metadata(path.as_encoded_bytes()).ok()?;
        found.is_file().then_some(found.size)
    });
    Amount { files: None, bytes: Some(sizes.fold(0, u64::saturating_add)) }
}

/// Returns the names in a tree of an image that is being removed, with those in `removed`.
pub(in crate::cli) fn of_removed_tree(
    top: &Inode,
    removed: &AtomicU64,
    stop: &AtomicBool,
) -> Option<Amount> {
    // A directory that was removed meanwhile is an error.
    of_removed_names(top.walk(b"/").flatten(), removed, stop)
}

/// Returns the number of names that a walk finds, with those that were removed before it. The walk
/// has the order of the removal, and is faster: what it finds is removed later, so that adding what
/// is removed at its end would count that twice.
fn of_removed_names(
    names: impl Iterator,
    removed: &AtomicU64,
    stop: &AtomicBool,
) -> Option<Amount> {
    let mut count = removed.load(Ordering::Relaxed);
    for _name in names {
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        count += 1;
    }
    Some(Amount { files: Some(count), bytes: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_files_count_once_and_without_holes() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("dir")).unwrap();
        fs::write(at("dir/a"), vec![1; 10_000]).unwrap();
        fs::hard_link(at("dir/a"), at("b")).unwrap();
        fs::File::create(at("hole")).unwrap().set_len(1 << 40).unwrap();
        let found = of_host_trees([folder.path()], &AtomicBool::new(false)).unwrap();
        assert_eq!(found, Amount { files: Some(2), bytes: Some(10_000) });
        assert_eq!(of_host_trees([folder.path()], &AtomicBool::new(true)), None);
        assert_eq!(of_host_trees([at("none").as_path()], &AtomicBool::new(false)), None);
    }

    #[test]
    fn names_that_are_removed_while_they_are_counted_count_once() {
        let removed = AtomicU64::new(4);
        let names = (0..6).inspect(|_| {
            removed.fetch_add(1, Ordering::Relaxed);
        });
        let found = of_removed_names(names, &removed, &AtomicBool::new(false));
        assert_eq!(found, Some(Amount { files: Some(10), bytes: None }));
        assert_eq!(of_removed_names(0..6, &removed, &AtomicBool::new(true)), None);
    }
}
