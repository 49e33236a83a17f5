//! A mount for a test, which is unmounted when the test ends or fails.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;
use userbtrfs_fuse::{Config, InitFlags, Mount, MountFlags, MountOptions, NodeId, Session};
use userbtrfs_sync::Arc;
use userbtrfs_testkit::test_env::{fuse_or_skip, until};

use crate::memory::{Behavior, Memory};

/// A mounted filesystem in memory. It is unmounted before its directory is removed.
pub(crate) struct Mounted {
    pub(crate) session: Session,
    pub(crate) memory: Arc<Memory>,
    _directory: TempDir,
}

impl Mounted {
    /// Mounts with all caches and without OPEN; `None` if FUSE is not available.
    pub(crate) fn new() -> Option<Self> {
        Self::with(Behavior::default(), &config(), &options())
    }

    pub(crate) fn with(
        behavior: Behavior,
        config: &Config,
        options: &MountOptions,
    ) -> Option<Self> {
        if !fuse_or_skip() {
            return None;
        }
        let directory = TempDir::new().unwrap();
        let mount = Mount::new(directory.path(), options).unwrap();
        let memory = Arc::new(Memory::new(behavior));
        let session = Session::start(mount, memory.clone(), config).unwrap();
        Some(Self { session, memory, _directory: directory })
    }

    /// Mounts with OPEN.
    pub(crate) fn with_open() -> Option<Self> {
        let behavior = Behavior { opens: true, ..Behavior::default() };
        let flags =
            InitFlags::LOCAL_DISK & !(InitFlags::NO_OPEN_SUPPORT | InitFlags::NO_OPENDIR_SUPPORT);
        Self::with(behavior, &Config { flags, ..config() }, &options())
    }

    /// Unmounts, and retries while busy: a program that another test is starting may have
    /// inherited open files, for a moment.
    pub(crate) fn unmount(&self) {
        until("nobody to use it", || match self.session.unmount() {
            Err(error) if error.is_busy() => false,
            done => done.is_ok(),
        });
    }

    /// Unmounts with umount(8).
    pub(crate) fn run_umount(&self) {
        let umount = || Command::new("umount").arg(self.root()).output().unwrap();
        until("nobody to use it", || umount().status.success());
    }

    /// Returns the server's contents of a file in the root, without the kernel's dirty data.
    pub(crate) fn bytes_there(&self, name: &str) -> Vec<u8> {
        self.memory.with(|tree| {
            let lines = tree.list(NodeId::ROOT, 2).unwrap();
            let line = lines.iter().find(|line| line.name == name.as_bytes()).unwrap();
            tree.file(NodeId(line.node)).unwrap().read(0, u64::MAX)
        })
    }

    pub(crate) fn root(&self) -> &Path {
        self.session.point()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }
}

impl Drop for Mounted {
    /// Releases all requests that wait for the test, also if the test failed.
    fn drop(&mut self) {
        let held = self.memory.seen.change(|state| {
            state.sleepers_may_go = true;
            state.held.take()
        });
        drop(held);
    }
}

/// The configuration of most tests.
pub(crate) fn config() -> Config {
    // Idle threads do not end while a test counts them.
    Config { threads: 2, idle: Duration::from_hours(1), ..Config::default() }
}

/// The options of most tests.
pub(crate) fn options() -> MountOptions {
    MountOptions {
        source: "memory, in a test".into(),
        subtype: "memory".to_owned(),
        flags: MountFlags::DEFAULT_PERMISSIONS,
        ..MountOptions::default()
    }
}
