//! What a recipe is.

use std::path::Path;

use super::{progs::Progs, tree::Tree};

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
    /// One mount after the other, each with its options and what is done in it.
    pub(crate) sessions: &'static [Session],
    /// How the last session ends.
    pub(crate) leave: Leave,
    /// What is done to the unmounted image at the end.
    pub(crate) after: fn(&Path) -> anyhow::Result<()>,
    /// What Linux is asked to show.
    pub(crate) shows: Shows,
    /// Parts of the complaints that Linux is known to make meanwhile.
    pub(crate) complaints: &'static [&'static str],
}

/// Mount options and what is done under them.
pub(crate) type Session = (&'static str, fn(&Tree) -> anyhow::Result<()>);

/// How an image is left.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leave {
    /// Free space discarded, unmounted.
    Clean,
    /// Copied while mounted, with whatever the device has at that moment.
    Live,
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
        leave: Leave::Clean,
        after: |_| Ok(()),
        shows: Shows::Content,
        complaints: &[],
    };
}
