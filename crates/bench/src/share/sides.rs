//! Snapshots, clones and deletions: in the library, and on the kernel's mount.
//!
//! 1. Each method returns the time of the calls alone; opening files and starting processes is not
//!    part of it.
//! 2. The kernel's ioctls are called by perl, which measures them itself.
//! 3. Perl looks every 2 ms whether the cleaner has removed the root item of a deleted subvolume.
//!    `btrfs subvolume sync` looks once in a second.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use userbtrfs::{Filesystem, OpenOptions};
use userbtrfs_testkit::linux::{self, Mount};

use super::base::{FILE, SOURCE};
use crate::bench::Bench;
use crate::fresh::Fresh;
use crate::sample::timed;
use crate::tally::Tally;

/// The name of the clone.
pub(super) const CLONE: &str = "clone";

/// A filesystem that is open for these operations.
pub(super) trait Side {
    /// Lists all files of the subvolume, with their attributes.
    fn warm(&self) -> Result<()>;

    /// Makes snapshots of the subvolume, one after the other, each durable.
    fn snapshot(&self, count: u64) -> Result<Duration>;

    /// Clones the file.
    fn clone_file(&self) -> Result<Duration>;

    /// Makes all changes durable.
    fn commit(&self) -> Result<Duration>;

    /// Deletes a subvolume, waits until it is cleaned, and makes that durable.
    fn delete(&self, name: &str) -> Result<Duration>;

    /// Closes the filesystem.
    fn close(self: Box<Self>) -> Result<()>;
}

/// Returns the name of a snapshot.
pub(super) fn snapshot_name(number: u64) -> String {
    format!("snapshot-{number}")
}

/// The library.
pub(super) struct Library(Filesystem);

impl Library {
    /// Opens an image, with a memory limit in bytes.
    pub(super) fn open(image: &Fresh, memory: u64) -> Result<Self> {
        Ok(Self(OpenOptions::new().write(true).memory(memory).open(image.path())?))
    }
}

impl Side for Library {
    fn warm(&self) -> Result<()> {
        for entry in self.0.walk(SOURCE)? {
            entry?.inode.metadata()?;
        }
        Ok(())
    }

    fn snapshot(&self, count: u64) -> Result<Duration> {
        let source = self.0.subvolume_at(&self.0.lookup(SOURCE)?)?.id;
        let root = self.0.root();
        let (time, ()) = timed(|| {
            for number in 0..count {
                root.snapshot(snapshot_name(number).as_bytes(), source, false)?;
            }
            Ok(())
        })?;
        Ok(time)
    }

    fn clone_file(&self) -> Result<Duration> {
        let source = self.0.open_file(FILE)?;
        let target = self.0.root().create(CLONE.as_bytes(), 0o644)?.open()?;
        Ok(timed(|| Ok(target.clone_range(&source, 0, 0, 0)?))?.0)
    }

    fn commit(&self) -> Result<Duration> {
        Ok(timed(|| Ok(self.0.commit()?))?.0)
    }

    fn delete(&self, name: &str) -> Result<Duration> {
        let root = self.0.root();
        let (time, ()) = timed(|| {
            let id = root.delete_subvolume(name.as_bytes())?;
            self.0.wait_for_deleted(&[id], || true)?;
            Ok(self.0.commit()?)
        })?;
        ensure!(self.0.deleted_subvolumes()?.is_empty(), "{name} is not cleaned");
        Ok(time)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.0.close()?)
    }
}

/// Calls `BTRFS_IOC_SNAP_CREATE_V2`; prints the seconds.
const SNAPSHOT: &str = r#"
use Time::HiRes qw(time);
my ($mount, $from, $count) = @ARGV;
open(my $dir, "<", $mount) or die "open: $!\n";
open(my $source, "<", "$mount/$from") or die "open: $!\n";
my $start = time;
for my $number (0 .. $count - 1) {
    my $arguments = pack("qQQQ4a4040", fileno($source), 0, 0, 0, 0, 0, 0, "snapshot-$number");
    ioctl($dir, 0x50009417, $arguments) or die "snapshot: $!\n";
}
printf "%.6f", time - $start;
"#;

/// Calls `BTRFS_IOC_SNAP_DESTROY` and `BTRFS_IOC_SYNC`, which starts the cleaner, looks for the
/// root item by `BTRFS_IOC_TREE_SEARCH` until it is gone, and syncs again; prints the seconds.
const DELETE: &str = r#"
use Time::HiRes qw(time);
my ($mount, $name) = @ARGV;
open(my $dir, "<", $mount) or die "open: $!\n";
open(my $deleted, "<", "$mount/$name") or die "open: $!\n";
my $lookup = pack("QQa4080", 0, 256, "");
ioctl($deleted, 0xd0009412, $lookup) or die "lookup: $!\n";
my ($id) = unpack("Q", $lookup);
close($deleted);
my $start = time;
my $destroy = pack("qa4088", 0, $name);
ioctl($dir, 0x5000940f, $destroy) or die "delete: $!\n";
ioctl($dir, 0x9408, 0) or die "sync: $!\n";
while (1) {
    my $search = pack("Q7L4Q4a3992", 1, $id, $id, 0, ~0, 0, ~0, 132, 132, 1, 0, 0, 0, 0, 0, "");
    ioctl($dir, 0xd0009411, $search) or die "search: $!\n";
    last unless (unpack("Q7L4", $search))[9];
    select(undef, undef, undef, 0.002);
}
ioctl($dir, 0x9408, 0) or die "sync: $!\n";
printf "%.6f", time - $start;
"#;

/// The kernel's mount.
pub(super) struct OnMount(Mount);

impl OnMount {
    /// Mounts an image.
    pub(super) fn new(bench: &Bench, image: &Fresh) -> Result<Self> {
        Ok(Self(bench.mount_with(image.path(), "noatime")?))
    }

    fn ask(&self, script: &str, arguments: &[&str]) -> Result<Duration> {
        let mut perl = Command::new("perl");
        let said = linux::run(perl.args(["-e", script]).arg(self.0.path()).args(arguments))?;
        let seconds = String::from_utf8_lossy(&said.stdout).trim().parse();
        Ok(Duration::from_secs_f64(seconds.context("the seconds that perl measured")?))
    }
}

impl Side for OnMount {
    fn warm(&self) -> Result<()> {
        Tally::of(&self.0.path().join(SOURCE)).map(drop)
    }

    fn snapshot(&self, count: u64) -> Result<Duration> {
        self.ask(SNAPSHOT, &[SOURCE, &count.to_string()])
    }

    fn clone_file(&self) -> Result<Duration> {
        let source = fs::File::open(self.0.path().join(FILE))?;
        let target = fs::File::create_new(self.0.path().join(CLONE))?;
        Ok(timed(|| Ok(rustix::fs::ioctl_ficlone(&target, &source)?))?.0)
    }

    fn commit(&self) -> Result<Duration> {
        let root = fs::File::open(self.0.path())?;
        Ok(timed(|| Ok(rustix::fs::syncfs(&root)?))?.0)
    }

    fn delete(&self, name: &str) -> Result<Duration> {
        self.ask(DELETE, &[name])
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// Returns the names in the root directory of an image, in order, and the used bytes, by Linux.
pub(super) fn look(mount: &Path) -> Result<(Vec<String>, u64)> {
    let mut names = Vec::new();
    for entry in fs::read_dir(mount)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    let stat = rustix::fs::statvfs(mount)?;
    Ok((names, (stat.f_blocks - stat.f_bfree) * stat.f_frsize))
}
