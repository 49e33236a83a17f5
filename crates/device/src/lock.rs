//! The lock of an image that is open for writing, or for reading in peace.
//!
//! A writer locks two bytes of the file: the *door*, byte 0, and the *room*, byte 1. They are open
//! file description locks (`fcntl(2)`, `F_OFD_SETLK`): advisory; in the way of every other
//! description, of this process as of others; and gone with the description, so that a process
//! which dies leaves none behind.
//!
//! 1. Who writes has the room, from before its first look at the image until its last request is
//!    done. Two can therefore never write.
//! 2. A holder of the room says *open* while it has the door, and *closing* once it gave the door
//!    back. It never takes it again.
//! 3. An opener takes the door first, and does not wait for it: whoever has it is open, or will be
//!    when the one in the room is gone. The opener is refused.
//! 4. With the door in hand it takes the room, and waits for it: whoever is there has given the
//!    door back, so is closing. At most one waits, and only for the holder's end.
//! 5. Everyone takes the door before the room, so nobody waits in a circle.
//! 6. Who reads in peace takes the same two, but shares them with others who do: a writer is
//!    refused meanwhile, and so is who would read in peace while a writer is open.
//! 7. Who only reads takes neither, and waits for nobody but a holder that is closing: so it finds
//!    what that leaves. (With another opener waiting already, who has the door, it does not wait.)
//! 8. A holder that serves a mount says which one, by a lock of the byte of the mount's number as a
//!    device, counted from byte 3 on, until it says *closing*. A mount may be gone before its
//!    server knows; so who wants to see the end of it can wait for the server to notice.
//! 9. A loop device and the file behind it have locks of their own, and are one image: who has
//!    the locks of the one looks whether somebody has those of the other, and gives up where so.

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
/// Where the numbers of mounts begin: not next to the room, since the kernel makes one lock of
/// neighbours.
const MOUNTS: libc::off_t = 3;
/// To the end of all, as the length of a range.
const ALL: libc::off_t = 0;

/// How often a reader looks whether a holder is still closing.
const PAUSE: Duration = Duration::from_millis(1);

/// What the image is locked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockKind {
    /// To be read, while nobody writes.
    Shared,
    /// To be written, while nobody else is here.
    Exclusive,
}

/// Held: no other description of the file gets what is in its way. Given back when it is dropped.
pub(crate) struct ImageLock {
    /// The description that holds the locks; opened for writing where they are exclusive, and used
    /// for nothing else.
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
    /// Takes the lock through `file`, a description of its own of the image called `name`. Waits
    /// for a holder that is closing; refuses where one is open that is in the way.
    pub(crate) fn take(file: File, name: &str, kind: LockKind) -> Result<ImageLock, DeviceError> {
        let failed = |errno| match errno {
            // The first is what Linux says, the second what POSIX allows.
            Errno::EAGAIN | Errno::EACCES => DeviceError::Locked { device: name.into() },
            other => DeviceError::NoLocks { device: name.into(), source: io::Error::from(other) },
        };
        let bytes = |start| bytes(kind.of_bytes(), start, 1);
        set(&file, &bytes(DOOR)).map_err(failed)?;
        wait(&file, &bytes(ROOM)).map_err(failed)?;
        Ok(ImageLock { file, kind })
    }

    /// Whether somebody has the locks of another way to the image, and is in the way of this one.
    pub(crate) fn meets_another(&self, ways: &[PathBuf]) -> bool {
        let is_held = |file: File| blocking(&file, self.kind, DOOR, 2).is_some();
        ways.iter().any(|way| loop_device::open_way(way).is_some_and(is_held))
    }

    /// Says *closing*: who opens from now on waits.
    pub(crate) fn closing(&self) {
        // If it fails the door stays shut: openers are refused until the end, which is safe.
        let _ = set(&self.file, &bytes(libc::F_UNLCK, DOOR, 1));
        let _ = set(&self.file, &bytes(libc::F_UNLCK, MOUNTS, ALL));
    }

    /// Says that it serves the mount of this number as a device.
    pub(crate) fn serves(&self, mount: u64) {
        // Where it cannot be said, nobody waits for that.
        if let Some(at) = place_of(mount) {
            let _ = set(&self.file, &bytes(self.kind.of_bytes(), at, 1));
        }
    }
}

fn place_of(mount: u64) -> Option<libc::off_t> {
    libc::off_t::try_from(mount).ok()?.checked_add(MOUNTS)
}

/// Waits, with a file open for reading, while somebody else has it who is closing.
pub(crate) fn wait_while_closing(file: &File) {
    while !is_held(file, DOOR) && is_held(file, ROOM) {
        thread::sleep(PAUSE);
    }
}

/// The number as a device of the mount that the holder of an image serves, the first of several, if
/// one does and the image can be read.
pub fn mount_of_holder(image: &Path) -> Option<u64> {
    let kind = image.metadata().ok()?.file_type();
    let file = (kind.is_file() || kind.is_block_device()).then(|| File::open(image))?.ok()?;
    let place = blocking(&file, LockKind::Exclusive, MOUNTS, ALL)?;
    u64::try_from(place - MOUNTS).ok()
}

/// Whether a writer has this byte.
fn is_held(file: &File, byte: libc::off_t) -> bool {
    blocking(file, LockKind::Shared, byte, 1).is_some()
}

/// Where the lock begins that is in the way of one of this kind on these bytes. Where locks cannot
/// be asked for, there is none.
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
    /// Closing the description does it too, but not while a process that was forked and has not
    /// come to its `exec` shares it.
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
