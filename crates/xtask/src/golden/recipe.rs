//! What a recipe is.

use std::path::Path;

use super::progs::Progs;
use super::tree::Tree;

/// How one golden image is made.
pub(crate) struct Recipe {
    /// The image's name.
    pub(crate) name: &'static str,
    /// What it has that others lack, for README.md.
    pub(crate) covers: &'static str,
    /// Whose mkfs.btrfs, checker and printers.
    pub(crate) progs: Progs,
    /// Size of each device in MiB.
    pub(crate) size: u64,
    /// How many devices mkfs.btrfs is given; the first is kept.
    pub(crate) devices: usize,
    /// Arguments of mkfs.btrfs besides the id and the devices.
    pub(crate) mkfs: &'static [&'static str],
    /// One mount after the other.
    pub(crate) sessions: &'static [Session],
    /// What is done to the unmounted image at the end.
    pub(crate) after: fn(&Path) -> anyhow::Result<()>,
    /// How often all this may be tried, where it may fail by chance.
    pub(crate) tries: u32,
    /// What Linux is asked to show.
    pub(crate) shows: Shows,
    /// Parts of the complaints that Linux is known to make meanwhile.
    pub(crate) complaints: &'static [&'static str],
}

/// One mount.
pub(crate) struct Session {
    /// Mount options.
    pub(crate) options: &'static str,
    /// What is done while mounted.
    pub(crate) fill: fn(&Tree) -> anyhow::Result<()>,
    /// How it ends.
    pub(crate) leave: Leave,
}

impl Session {
    /// A mount that ends well.
    pub(crate) const fn clean(
        options: &'static str,
        fill: fn(&Tree) -> anyhow::Result<()>,
    ) -> Self {
        Self { options, fill, leave: Leave::Clean }
    }

    /// A mount of which the image as it is at the end is kept: no commit but those asked for.
    pub(crate) const fn crash(fill: fn(&Tree) -> anyhow::Result<()>) -> Self {
        Self { options: "commit=300", fill, leave: Leave::Crash }
    }
}

/// How a session ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leave {
    /// Free space discarded, unmounted.
    Clean,
    /// Unmounted without delay, whatever is under way.
    AtOnce,
    /// The image is copied while mounted; the copy goes on.
    Crash,
}

/// What Linux is asked to show of an image.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shows {
    /// Its one manifest.
    Content,
    /// Two manifests: with the log replayed, and without.
    Log,
    /// Nothing: not to be opened alone, or not by Linux here.
    Nothing,
}

impl Recipe {
    /// What most recipes have.
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
