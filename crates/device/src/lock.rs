//! The lock of an image that is open for writing, or for reading with writers excluded.
//!
//! A writer locks two bytes of the file: `OPEN_BYTE`, byte 0, and `USE_BYTE`, byte 1. They are open
//! file description locks (`fcntl(2)`, `F_OFD_SETLK`): advisory; they conflict with the locks of
//! every other open file description, of this process and of others; and they end with the
//! description, so that a process that dies leaves none behind.
//!
//! 1. A writer holds `USE_BYTE` from before its first read of the image until its last request is
//!    done. There are therefore never two writers.
//! 2. A holder of `USE_BYTE` is *open* while it holds `OPEN_BYTE`, and *closing* once it has
//!    released `OPEN_BYTE`, which it never takes again.
//! 3. An opener takes `OPEN_BYTE` first, and does not wait for it: its holder is open, or will be
//!    when the holder of `USE_BYTE` is gone. The opener is refused if `OPEN_BYTE` is held.
//! 4. An opener that holds `OPEN_BYTE` waits for `USE_BYTE`: the holder of `USE_BYTE` has released
//!    `OPEN_BYTE`, so it is closing. At most one opener waits, and only for the holder to end.
//! 5. Every opener takes `OPEN_BYTE` before `USE_BYTE`, so there is no deadlock.
//! 6. A reader that excludes writers (`exclude_writers`) takes shared locks of both bytes: a writer
//!    is refused meanwhile, and such a reader is refused while a writer is open.
//! 7. A plain reader takes neither, and waits only for a holder that is closing, so that it reads
//!    what the holder leaves. (It does not wait if another opener, which holds `OPEN_BYTE`, is
//!    already waiting.)
//! 8. A holder that serves a mount publishes the device number of the mount, by a lock of the byte
//!    at that number, counted from byte 3, until it is *closing*. A mount may be gone before its
//!    server notices: an opener that finds the number can wait for the server to do so.
//! 9. A file and each loop device over it have separate locks, and are one image: the holder of the
//!    locks of one checks for a conflicting lock of the others, and gives up if there is one.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;

use crate::error::DeviceError;
use crate::loop_device;

const OPEN_BYTE: libc::off_t = 0;
const USE_BYTE: libc::off_t = 1;
/// The byte of mount number 0: not adjacent to `USE_BYTE`, since the kernel merges adjacent locks.
const MOUNT_BYTES: libc::off_t = 3;
/// The length of a range that has no end.
const ALL: libc::off_t = 0;

/// The interval at which a reader checks whether a holder is still closing.
const PAUSE: Duration = Duration::from_millis(1);

/// The kind of a lock of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockKind {
    /// For reading, with writers excluded.
    Shared,
    /// For writing, with all other locks excluded.
    Exclusive,
}

/// A held lock: no other open file description gets a conflicting one. Released when dropped.
pub(crate) struct ImageLock {
    /// The open file description that holds the locks; opened for writing if they are exclusive,
    /// and used for nothing else.
    file: File,
    kind: LockKind,
}

impl LockKind {
    fn of_bytes(self) -> libc::c_int {
        match self {
            Self::Shared => libc::F_RDLCK,
            Self::Exclusive => libc::F_WRLCK,
        }
    }
}

impl ImageLock {
    /// Takes the lock through `file`, an open file description of the image `name` that is used
    /// for nothing else. Waits for a holder that is closing; fails if a conflicting one is open.
    pub(crate) fn take(file: File, name: &str, kind: LockKind) -> Result<ImageLock, DeviceError> {
        let failed = |errno| match errno {
            // Linux returns the first; POSIX also allows the second.
            Errno::EAGAIN | Errno::EACCES => DeviceError::Locked { device: name.into() },
            other => DeviceError::NoLocks { device: name.into(), source: io::Error::from(other) },
        };
        let bytes = |start| bytes(kind.of_bytes(), start, 1);
        set(&file, &bytes(OPEN_BYTE)).map_err(failed)?;
        wait(&file, &bytes(USE_BYTE)).map_err(failed)?;
        Ok(ImageLock { file, kind })
    }

    /// Returns whether a conflicting lock is held through another path to the image.
    pub(crate) fn conflicts_elsewhere(&self, paths: &[PathBuf]) -> bool {
        let is_held = |file: File| blocking(&file, self.kind, OPEN_BYTE, 2).is_some();
        paths.iter().any(|path| loop_device::open_path(path).is_some_and(is_held))
    }

    /// Marks the image as *closing*: openers wait from now on.
    pub(crate) fn mark_closing(&self) {
        // If it fails `OPEN_BYTE` stays locked: openers are refused until the end, which is safe.
        let _ = set(&self.file, &bytes(libc::F_UNLCK, OPEN_BYTE, 1));
        let _ = set(&self.file, &bytes(libc::F_UNLCK, MOUNT_BYTES, ALL));
    }

    /// Publishes the device number of the mount that is served.
    pub(crate) fn publish_mount(&self, mount: u64) {
        // If it fails, openers do not wait for the server to notice the end of the mount.
        if let Some(at) = place_of(mount) {
            let _ = set(&self.file, &bytes(self.kind.of_bytes(), at, 1));
        }
    }

    /// Withdraws what [`Self::publish_mount`] published.
    pub(crate) fn withdraw_mount(&self, mount: u64) {
        if let Some(at) = place_of(mount) {
            let _ = set(&self.file, &bytes(libc::F_UNLCK, at, 1));
        }
    }
}

fn place_of(mount: u64) -> Option<libc::off_t> {
    libc::off_t::try_from(mount).ok()?.checked_add(MOUNT_BYTES)
}

/// Waits while another holder of the file is closing; `file` is open for reading.
pub(crate) fn wait_while_closing(file: &File) {
    while !is_held(file, OPEN_BYTE) && is_held(file, USE_BYTE) {
        thread::sleep(PAUSE);
    }
}

/// Returns the device number of the mount that the holder of an image serves, the first if there
/// are several; `None` if there is none, or if the image cannot be read. The holder may have opened
/// it by another path: a loop device, or the file of one.
pub fn mount_of_holder(image: &Path) -> Option<u64> {
    let metadata = image.metadata().ok()?;
    let kind = metadata.file_type();
    let file = (kind.is_file() || kind.is_block_device()).then(|| File::open(image))?.ok()?;
    mount_of_locks(&file).or_else(|| {
        let others = loop_device::other_paths(&metadata);
        let mut files = others.iter().filter_map(|path| loop_device::open_path(path));
        files.find_map(|file| mount_of_locks(&file))
    })
}

/// Returns the device number of a mount that a lock of an image publishes.
fn mount_of_locks(file: &File) -> Option<u64> {
    let place = blocking(file, LockKind::Exclusive, MOUNT_BYTES, ALL)?;
    u64::try_from(place - MOUNT_BYTES).ok()
}

/// Returns whether a writer has locked this byte.
fn is_held(file: &File, byte: libc::off_t) -> bool {
    blocking(file, LockKind::Shared, byte, 1).is_some()
}

/// Returns the start of a lock that conflicts with one of this kind on these bytes; `None` if there
/// is none, or if locks cannot be queried.
fn blocking(
    file: &File,
    kind: LockKind,
    start: libc::off_t,
    len: libc::off_t,
) -> Option<libc::off_t> {
    let mut found = bytes(kind.of_bytes(), start, len);
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut found)).ok()?;
    (libc::c_int::from(found.l_type) != libc::F_UNLCK).then_some(found.l_start)
}

impl Drop for ImageLock {
    /// Unlocks explicitly. Closing the description does not release the locks while a forked
    /// process that has not called `exec` yet shares it.
    fn drop(&mut self) {
        let _ = set(&self.file, &bytes(libc::F_UNLCK, OPEN_BYTE, ALL));
    }
}

fn set(file: &File, lock: &libc::flock) -> Result<(), Errno> {
    fcntl(file, FcntlArg::F_OFD_SETLK(lock)).map(drop)
}

fn wait(file: &File, lock: &libc::flock) -> Result<(), Errno> {
    loop {
        match fcntl(file, FcntlArg::F_OFD_SETLKW(lock)) {
            Err(Errno::EINTR) => {}
            other => return other.map(drop),
        }
    }
}

fn bytes(kind: libc::c_int, start: libc::off_t, len: libc::off_t) -> libc::flock {
    let small = |number| libc::c_short::try_from(number).expect("a small constant of the system");
    libc::flock {
        l_type: small(kind),
        l_whence: small(libc::SEEK_SET),
        l_start: start,
        l_len: len,
        // Must be 0 for this kind of lock.
        l_pid: 0,
    }
}

#[cfg(test)]
mod tests;
