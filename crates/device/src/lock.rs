//! The lock of an image that is open for writing, or for reading with writers excluded.
//!
//! A writer locks two bytes of the file: `DOOR`, byte 0, and `ROOM`, byte 1. They are open file
//! description locks (`fcntl(2)`, `F_OFD_SETLK`): advisory; they conflict with the locks of every
//! other open file description, of this process and of others; and they end with the description,
//! so that a process that dies leaves none behind.
//!
//! 1. A writer holds `ROOM` from before its first read of the image until its last request is
//!    done. There are therefore never two writers.
//! 2. A holder of `ROOM` is *open* while it holds `DOOR`, and *closing* once it has released
//!    `DOOR`, which it never takes again.
//! 3. An opener takes `DOOR` first, and does not wait for it: its holder is open, or will be when
//!    the holder of `ROOM` is gone. The opener is refused if `DOOR` is held.
//! 4. An opener that holds `DOOR` waits for `ROOM`: the holder of `ROOM` has released `DOOR`, so it
//!    is closing. At most one opener waits, and only for the holder to end.
//! 5. Every opener takes `DOOR` before `ROOM`, so there is no deadlock.
//! 6. A reader that excludes writers (`in_peace`) takes shared locks of both bytes: a writer is
//!    refused meanwhile, and such a reader is refused while a writer is open.
//! 7. A plain reader takes neither, and waits only for a holder that is closing, so that it reads
//!    what the holder leaves. (It does not wait if another opener, which holds `DOOR`, is already
//!    waiting.)
//! 8. A holder that serves a mount publishes the device number of the mount, by a lock of the byte
//!    at that number, counted from byte 3, until it is *closing*. A mount may be gone before its
//!    server notices: an opener that finds the number can wait for the server to do so.
//! 9. A loop device and the file behind it have separate locks, and are one image: the holder of
//!    the locks of one checks for a conflicting lock of the other, and gives up if there is one.

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

const DOOR: libc::off_t = 0;
const ROOM: libc::off_t = 1;
/// The byte of mount number 0: not adjacent to `ROOM`, since the kernel merges adjacent locks.
const MOUNTS: libc::off_t = 3;
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
        set(&file, &bytes(DOOR)).map_err(failed)?;
        wait(&file, &bytes(ROOM)).map_err(failed)?;
        Ok(ImageLock { file, kind })
    }

    /// Returns whether a conflicting lock is held through another path to the image.
    pub(crate) fn meets_another(&self, ways: &[PathBuf]) -> bool {
        let is_held = |file: File| blocking(&file, self.kind, DOOR, 2).is_some();
        ways.iter().any(|way| loop_device::open_way(way).is_some_and(is_held))
    }

    /// Marks the image as *closing*: openers wait from now on.
    pub(crate) fn closing(&self) {
        // If it fails `DOOR` stays locked: openers are refused until the end, which is safe.
        let _ = set(&self.file, &bytes(libc::F_UNLCK, DOOR, 1));
        let _ = set(&self.file, &bytes(libc::F_UNLCK, MOUNTS, ALL));
    }

    /// Publishes the device number of the mount that is served.
    pub(crate) fn serves(&self, mount: u64) {
        // If it fails, openers do not wait for the server to notice the end of the mount.
        if let Some(at) = place_of(mount) {
            let _ = set(&self.file, &bytes(self.kind.of_bytes(), at, 1));
        }
    }

    /// Withdraws what [`Self::serves`] published.
    pub(crate) fn serves_no_more(&self, mount: u64) {
        if let Some(at) = place_of(mount) {
            let _ = set(&self.file, &bytes(libc::F_UNLCK, at, 1));
        }
    }
}

fn place_of(mount: u64) -> Option<libc::off_t> {
    libc::off_t::try_from(mount).ok()?.checked_add(MOUNTS)
}

/// Waits while another holder of the file is closing; `file` is open for reading.
pub(crate) fn wait_while_closing(file: &File) {
    while !is_held(file, DOOR) && is_held(file, ROOM) {
        thread::sleep(PAUSE);
    }
}

/// Returns the device number of the mount that the holder of an image serves, the first if there
/// are several; `None` if there is none, or if the image cannot be read.
pub fn mount_of_holder(image: &Path) -> Option<u64> {
    let kind = image.metadata().ok()?.file_type();
    let file = (kind.is_file() || kind.is_block_device()).then(|| File::open(image))?.ok()?;
    let place = blocking(&file, LockKind::Exclusive, MOUNTS, ALL)?;
    u64::try_from(place - MOUNTS).ok()
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
        let _ = set(&self.file, &bytes(libc::F_UNLCK, DOOR, ALL));
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
