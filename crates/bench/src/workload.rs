//! The trees in images; the same in every run, by fixed seeds.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::Result;
use userbtrfs_testkit::random::Random;

use crate::args::Tree;
use crate::content::Content;
use crate::interrupt::Interrupt;

const SEED: u64 = 0x7573_6572_6274_7266;
/// The number of files in a large tree.
const LARGE_FILES: u64 = 8;
/// The number of files in a directory, on average or exactly.
const SMALL_PER_DIR: u64 = 12;
const EMPTY_PER_DIR: u64 = 10_000;
/// The number of small files for each symbolic link.
const SMALL_PER_LINK: u64 = 50;
/// The maximum size in bytes of a file that every target stores inline.
const INLINE_MAX: usize = 2000;
/// The maximum depth of directories of small files.
const DEPTH_MAX: usize = 7;
/// The size of one write, in bytes.
const STEP: u64 = 1 << 20;

/// A tree to generate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workload {
    /// Files as in a source tree: of about 18 KB, half of them below 5 KB.
    Small { files: u64 },
    /// A few files with this total size.
    Large { bytes: u64 },
    /// Empty files, 10,000 in each directory.
    Empty { files: u64 },
    /// Files in directories as those of `Small`, but small enough to be stored inline.
    Inline { files: u64 },
}

impl Workload {
    /// Returns a tree to copy out, smaller by the factor `scale`.
    pub(crate) fn tree(tree: Tree, scale: u64) -> Self {
        match tree {
            Tree::Small => Self::Small { files: (25_000 / scale).max(1) },
            Tree::Large => Self::Large { bytes: ((4 << 30) / scale).max(LARGE_FILES) },
        }
    }

    /// Returns a name that contains the size.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Small { files } => format!("small-{files}"),
            Self::Large { bytes } => format!("large-{}M", bytes >> 20),
            Self::Empty { files } => format!("empty-{files}"),
            Self::Inline { files } => format!("inline-{files}"),
        }
    }

    /// Returns the size of a filesystem with room for the tree, in bytes.
    pub(crate) fn room(self) -> u64 {
        match self {
            Self::Small { files } => (1 << 30) + files * (64 << 10),
            Self::Large { bytes } => (1 << 30) + bytes / 4 * 5,
            Self::Empty { files } => (1 << 30) + files * (6 << 10),
            Self::Inline { files } => (1 << 30) + files * (16 << 10),
        }
    }

    /// The path of a file in a large tree.
    pub(crate) const LARGE_FILE: &str = "/large-0";

    /// Generates the tree in an empty directory.
    pub(crate) fn fill(self, root: &Path, interrupt: &Interrupt) -> Result<()> {
        match self {
            Self::Small { files } => fill_small(root, files, small_size, interrupt),
            Self::Inline { files } => fill_small(root, files, inline_size, interrupt),
            Self::Large { bytes } => fill_large(root, bytes / LARGE_FILES, interrupt),
            Self::Empty { files } => fill_empty(root, files, interrupt),
        }
    }
}

fn fill_small(
    root: &Path,
    files: u64,
    size: fn(&mut Random) -> usize,
    interrupt: &Interrupt,
) -> Result<()> {
    let mut random = Random::new(SEED);
    let mut content = Content::new(SEED);
    let dirs = make_dirs(root, files / SMALL_PER_DIR, &mut random)?;
    let mut bytes = Vec::new();
    for number in 0..files {
        interrupt.check()?;
        let dir = &dirs[random.index(dirs.len())];
        let name =
            format!("{}-{number}.{}", word(&mut random), ["c", "h", "rs", "md"][random.index(4)]);
        content.fill(&mut bytes, size(&mut random));
        fs::write(dir.join(&name), &bytes)?;
        if number % SMALL_PER_LINK == 0 {
            symlink(&name, dir.join(format!("link-{number}")))?;
        }
    }
    Ok(())
}

/// Makes directories, each in one made before it; returns all of them and `root`.
fn make_dirs(root: &Path, count: u64, random: &mut Random) -> Result<Vec<PathBuf>> {
    let mut dirs = vec![(root.to_owned(), 0)];
    for number in 0..count {
        let (parent, depth) = &dirs[random.index(dirs.len())];
        if *depth == DEPTH_MAX {
            continue;
        }
        let child = (parent.join(format!("{}-{number}", word(random))), depth + 1);
        fs::create_dir(&child.0)?;
        dirs.push(child);
    }
    Ok(dirs.into_iter().map(|(path, _)| path).collect())
}

/// Returns a size between 16 bytes and 1 MiB, about log-normally distributed.
fn small_size(random: &mut Random) -> usize {
    let shift = 4 + (0..5).map(|_| random.below(4)).sum::<u64>();
    let size = (1 << shift) + random.below(1 << shift);
    usize::try_from(size).expect("at most 1 MiB")
}

/// Returns a size between 1 and 2000 bytes.
fn inline_size(random: &mut Random) -> usize {
    1 + random.index(INLINE_MAX)
}

fn word(random: &mut Random) -> String {
    let syllables = ["ba", "co", "di", "fe", "gu", "ka", "lo", "mi", "ne", "su"];
    (0..2 + random.index(4)).map(|_| syllables[random.index(syllables.len())]).collect()
}

fn fill_large(root: &Path, bytes_each: u64, interrupt: &Interrupt) -> Result<()> {
    let mut content = Content::new(SEED);
    let mut bytes = Vec::new();
    for number in 0..LARGE_FILES {
        let mut file = File::create(root.join(format!("large-{number}")))?;
        let mut left = bytes_each;
        while left > 0 {
            interrupt.check()?;
            let step = left.min(STEP);
            content.fill(&mut bytes, usize::try_from(step)?);
            file.write_all(&bytes)?;
            left -= step;
        }
    }
    Ok(())
}

fn fill_empty(root: &Path, files: u64, interrupt: &Interrupt) -> Result<()> {
    let mut dir = root.to_owned();
    for number in 0..files {
        if number % EMPTY_PER_DIR == 0 {
            interrupt.check()?;
            dir = root.join(format!("dir-{:04}", number / EMPTY_PER_DIR));
            fs::create_dir(&dir)?;
        }
        File::create_new(dir.join(format!("file-{number:08}.dat")))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::Tally;

    fn made(workload: Workload) -> Tally {
        let root = tempfile::tempdir().unwrap();
        workload.fill(root.path(), &Interrupt::never()).unwrap();
        Tally::of(root.path()).unwrap()
    }

    #[test]
    fn small_files_are_small_and_have_directories_and_links() {
        let tally = made(Workload::Small { files: 500 });
        assert_eq!(tally.files, 500);
        assert!((5_000..40_000).contains(&(tally.bytes / 500)), "{tally:?}");
        assert!((40..=51).contains(&tally.others), "{tally:?}");
        assert_eq!(tally, made(Workload::Small { files: 500 }));
    }

    #[test]
    fn inline_files_are_smaller_still() {
        let tally = made(Workload::Inline { files: 500 });
        assert_eq!(tally.files, 500);
        assert!((800..1200).contains(&(tally.bytes / 500)), "{tally:?}");
        assert!((40..=51).contains(&tally.others), "{tally:?}");
    }

    #[test]
    fn large_files_have_the_bytes_asked_for() {
        let tally = made(Workload::tree(Tree::Large, 512));
        assert_eq!(tally, Tally { files: LARGE_FILES, others: 0, bytes: 8 << 20 });
    }

    #[test]
    fn empty_files_fill_one_directory_after_another() {
        let tally = made(Workload::Empty { files: EMPTY_PER_DIR + 1 });
        assert_eq!(tally, Tally { files: EMPTY_PER_DIR + 1, others: 2, bytes: 0 });
    }
}
