//! Random changes to a mounted filesystem, from a seed.
//!
//! 1. The changes that are tried, and their targets, depend on the seed and the initial tree.
//! 2. A change that the system refuses (a directory is not empty, the target is in another
//!    subvolume ...) is skipped. A device error, no space, or detected damage is an error.
//! 3. Each kind of change (`KINDS`) succeeds at least once.

mod content;
mod names;
mod subvolumes;
mod tree;

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use rustix::io::Errno;

use self::tree::Tree;

/// A kind of change: its weight, its name, and its function.
type KindOfChange = (u64, &'static str, fn(&mut Tree) -> io::Result<()>);

/// All kinds of changes, each before those that need its results.
const KINDS: &[KindOfChange] = &[
    (20, "overwrite", content::overwrite),
    (8, "truncate", content::truncate),
    (8, "punch", content::punch),
    (4, "zero", content::zero),
    (8, "preallocate", content::preallocate),
    (12, "share a range", content::share_range),
    (6, "share all", content::share_all),
    (6, "write far", content::write_far),
    (6, "nocow", content::nocow),
    (4, "wish compression", content::wish_compression),
    (3, "fsync", content::fsync),
    (10, "create", names::create),
    (4, "make directory", names::make_dir),
    (8, "rename", names::rename),
    (3, "rename directory", names::rename_dir),
    (3, "exchange", names::exchange),
    (8, "unlink", names::unlink),
    (8, "link", names::link),
    (4, "symlink", names::symlink),
    (2, "special file", names::special),
    (8, "set xattr", names::set_xattr),
    (4, "remove xattr", names::remove_xattr),
    (4, "mode and owner", names::mode_and_owner),
    (4, "times", names::times),
    (2, "commit", subvolumes::commit),
    (1, "make subvolume", subvolumes::make),
    (1, "snapshot", subvolumes::snapshot),
    (1, "read-only snapshot", subvolumes::snapshot_read_only),
    (1, "delete subvolume", subvolumes::delete),
];

/// The number of attempts until each kind succeeds once: with one directory to move and one
/// possible target, the chance is one in sixteen.
const TRIES: u32 = 1000;

/// A file tree under random changes.
pub struct RandomWorkload(Tree);

impl RandomWorkload {
    /// Starts with the tree below `root`. `sources` are its subvolumes that may be snapshotted.
    pub fn new(root: &Path, sources: Vec<PathBuf>, seed: u64) -> io::Result<Self> {
        Ok(Self(Tree::new(root, sources, seed)?))
    }

    /// Makes each kind of change once, in their order, and then `changes` random ones.
    pub fn run(&mut self, changes: u64) -> anyhow::Result<()> {
        for (_, name, change) in KINDS {
            let mut tries = (0..TRIES).map(|_| self.attempt(*change));
            let done = tries.find(|done| !matches!(done, Ok(false)));
            let done = done.unwrap_or(Ok(false)).with_context(|| (*name).to_owned())?;
            ensure!(done, "{name}: not once in {TRIES} tries");
        }
        for _ in 0..changes {
            let (name, change) = self.kind();
            self.attempt(change).with_context(|| name.to_owned())?;
        }
        Ok(())
    }

    fn kind(&mut self) -> (&'static str, fn(&mut Tree) -> io::Result<()>) {
        let mut left = self.0.random.below(KINDS.iter().map(|(weight, ..)| weight).sum());
        for (weight, name, change) in KINDS {
            if left < *weight {
                return (name, *change);
            }
            left -= weight;
        }
        unreachable!("a number below the sum of the weights")
    }

    /// Tries a change; returns whether it succeeded.
    fn attempt(&mut self, change: fn(&mut Tree) -> io::Result<()>) -> anyhow::Result<bool> {
        const FATAL: &[Errno] = &[Errno::IO, Errno::NOSPC, Errno::UCLEAN];
        match change(&mut self.0) {
            Ok(()) => Ok(true),
            Err(e) if Errno::from_io_error(&e).is_some_and(|e| FATAL.contains(&e)) => Err(e.into()),
            Err(_) => Ok(false),
        }
    }
}
