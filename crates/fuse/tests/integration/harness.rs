//! A mount for a test, undone when the test ends, however it ends.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;
use userbtrfs_fuse::{Config, InitFlags, Mount, MountFlags, MountOptions, NodeId, Session};
use userbtrfs_sync::Arc;
use userbtrfs_testkit::test_env::{fuse_or_skip, until};

use crate::memory::{Memory, Ways};

/// A filesystem in memory that is mounted. It is unmounted before its directory goes.
pub(crate) struct Mounted {
    pub(crate) session: Session,
    pub(crate) memory: Arc<Memory>,
    _directory: TempDir,
}

impl Mounted {
    /// Mounts with all caches and without OPEN, if that can be done here.
    pub(crate) fn new() -> Option<Self> {
        Self::with(Ways::default(), &config(), &options())
    }

    pub(crate) fn with(ways: Ways, config: &Config, options: &MountOptions) -> Option<Self> {
        if !fuse_or_skip() {
            return None;
        }
        let directory = TempDir::new().unwrap();
        let mount = Mount::new(directory.path(), options).unwrap();
        let memory = Arc::new(Memory::new(ways));
        let session = Session::start(mount, memory.clone(), config).unwrap();
        Some(Self { session, memory, _directory: directory })
    }

    /// Mounts so that files are opened, by OPEN.
    pub(crate) fn with_open() -> Option<Self> {
        let ways = Ways { opens: true, ..Ways::default() };
        let flags =
            InitFlags::LOCAL_DISK & !(InitFlags::NO_OPEN_SUPPORT | InitFlags::NO_OPENDIR_SUPPORT);
        Self::with(ways, &Config { flags, ..config() }, &options())
    }

    /// Unmounts what nobody here uses. A program that another test is just starting may still have
    /// copies of what was open, for a moment.
    pub(crate) fn unmount(&self) {
        until("nobody to use it", || match self.session.unmount() {
            Err(error) if error.is_busy() => false,
            done => done.is_ok(),
        });
    }

    /// Has umount(8) unmount it.
    pub(crate) fn run_umount(&self) {
        let umount = || Command::new("umount").arg(self.root()).output().unwrap();
        until("nobody to use it", || umount().status.success());
    }

    /// What the server has of a file in the root, whatever the kernel still keeps.
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
    /// Whatever waits for the test goes on, also where the test failed.
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
    // Threads that nobody needs stay for as long as a test counts them.
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
