//! The parts of a recipe.

use std::path::Path;

use super::progs::Progs;
use super::tree::Tree;

/// The steps that make one golden image.
pub(crate) struct Recipe {
    /// The name of the image.
    pub(crate) name: &'static str,
    /// The features that only this image covers, for README.md.
    pub(crate) covers: &'static str,
    /// The btrfs-progs to use.
    pub(crate) progs: Progs,
    /// The size of each device in MiB.
    pub(crate) size: u64,
    /// The number of devices given to mkfs.btrfs; the first is kept.
    pub(crate) devices: usize,
    /// The arguments of mkfs.btrfs besides the id and the devices.
    pub(crate) mkfs: &'static [&'static str],
    /// The mounts, one after the other.
    pub(crate) sessions: &'static [Session],
    /// The last change, made to the unmounted image.
    pub(crate) after: fn(&Path) -> anyhow::Result<()>,
    /// The maximum number of tries, if the recipe may fail by chance.
    pub(crate) tries: u32,
    /// The manifests to write.
    pub(crate) shows: Shows,
    /// Parts of the kernel messages that are expected.
    pub(crate) complaints: &'static [&'static str],
}

/// One mount.
pub(crate) struct Session {
    /// Mount options.
    pub(crate) options: &'static str,
    /// The changes made while mounted.
    pub(crate) fill: fn(&Tree) -> anyhow::Result<()>,
    /// How the session ends.
    pub(crate) leave: Leave,
}

impl Session {
    /// Returns a mount that is unmounted cleanly.
    pub(crate) const fn clean(
        options: &'static str,
        fill: fn(&Tree) -> anyhow::Result<()>,
    ) -> Self {
        Self { options, fill, leave: Leave::Clean }
    }

    /// Returns a mount that ends as by a crash: with no commits except those that `fill` makes.
    pub(crate) const fn crash(fill: fn(&Tree) -> anyhow::Result<()>) -> Self {
        Self { options: "commit=300", fill, leave: Leave::Crash }
    }
}

/// How a session ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leave {
    /// Free space is discarded, and the image is unmounted.
    Clean,
    /// The image is unmounted at once, whatever is in progress.
    AtOnce,
    /// The image is copied while mounted; the copy is used from then on.
    Crash,
}

/// The manifests of an image.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shows {
    /// One manifest.
    Content,
    /// Two manifests: with the log replayed, and without.
    Log,
    /// None: the image cannot be mounted alone, or not by this kernel.
    Nothing,
}

impl Recipe {
    /// The defaults of most recipes.
    pub(crate) const USUAL: Self = Self {
        name: "",
        covers: "",
        progs: Progs::Installed,
        size: 128,
        devices: 1,
        mkfs: &[],
        sessions: &[],
        after: |_| Ok(()),
        tries: 1,
        shows: Shows::Content,
        complaints: &[],
    };
}
