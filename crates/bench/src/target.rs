//! The targets of the benchmarks.

use std::fmt;

use clap::ValueEnum;
use serde::Serialize;

/// A system that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// The library, in this process
    Lib,
    /// The command `userbtrfs`
    Cli,
    /// Our mount of a new image
    Fuse,
    /// The kernel's btrfs on a loop device, and the usual tool on top of it
    Btrfs,
    /// The same mount, with the file mapped into memory
    Mmap,
    /// `btrfs restore`, which verifies no checksum of data
    Restore,
    /// `mkfs.btrfs --rootdir`
    Rootdir,
    /// `fuse2fs`: ext4 through FUSE
    Fuse2fs,
    /// A server with the same transport and caches as ours that does nothing
    Nothing,
    /// The same server, which only writes synced data to a file and flushes it
    Floor,
    /// The disk: reading the image from start to end
    #[value(skip)]
    FloorRead,
    /// The disk: writing as many bytes in one file
    #[value(skip)]
    FloorWrite,
}

impl Target {
    /// The targets that ours are compared with.
    pub const REFERENCES: [Self; 6] =
        [Self::Btrfs, Self::Restore, Self::Rootdir, Self::Fuse2fs, Self::Nothing, Self::Floor];

    /// Returns true if this is userbtrfs.
    pub fn is_ours(self) -> bool {
        matches!(self, Self::Lib | Self::Cli | Self::Fuse)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Lib => "lib",
            Self::Cli => "cli",
            Self::Fuse => "fuse",
            Self::Btrfs => "btrfs",
            Self::Mmap => "mmap",
            Self::Restore => "restore",
            Self::Rootdir => "rootdir",
            Self::Fuse2fs => "fuse2fs",
            Self::Nothing => "nothing",
            Self::Floor => "floor",
            Self::FloorRead => "floor-read",
            Self::FloorWrite => "floor-write",
        })
    }
}
