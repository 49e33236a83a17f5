//! The file of a mount's socket.
//!
//! 1. A directory is used only if the user owns it, and no other user can access it.
//! 2. A socket is named by the device number of its mount, which no other mount has while that
//!    exists: an older file of this name is from a mount that has ended, or is about to. So a new
//!    server removes that file, and the server that made it removes it only while it is still the
//!    same file.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock, major, minor};
use rustix::process::geteuid;
use userbtrfs_sync::Arc;

/// The permissions of the group and others.
const OTHERS: u32 = 0o077;

/// Returns the directories in which sockets of this user may be, best first.
pub(super) fn directories() -> Vec<PathBuf> {
    let user = geteuid();
    let of_system = user.is_root().then(|| PathBuf::from("/run"));
    let named = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let usual = PathBuf::from(format!("/run/user/{}", user.as_raw()));
    let bases = of_system.into_iter().chain(named).chain([usual]);
    let below = bases.filter(|base| base.is_absolute()).map(|base| base.join("userbtrfs"));
    below.chain([PathBuf::from(format!("/tmp/userbtrfs-{}", user.as_raw()))]).collect()
}

/// Returns the name of the socket of the mount with this device number.
pub(super) fn name(device: u64) -> String {
    format!("{}:{}", major(device), minor(device))
}

/// Opens a directory. Fails if it is not private to the user.
pub(super) fn open_own(path: &Path) -> io::Result<File> {
    let flags = (OFlags::DIRECTORY | OFlags::NOFOLLOW).bits().cast_signed();
    let directory = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let metadata = directory.metadata()?;
    if metadata.uid() == geteuid().as_raw() && metadata.mode() & OTHERS == 0 {
        Ok(directory)
    } else {
        Err(io::Error::new(io::ErrorKind::PermissionDenied, "not this user's alone"))
    }
}

/// A socket with a name in a directory; the name is removed when this is dropped.
pub(super) struct Place {
    /// While it is open, no other file gets its inode number.
    listener: Arc<UnixListener>,
    directory: File,
    path: PathBuf,
    /// The device number and the inode number of the file.
    file: (u64, u64),
}

impl Place {
    /// Makes a socket in a private directory of the user, which is created if it does not exist.
    pub(super) fn make(directory: &Path, name: &str) -> io::Result<Self> {
        match DirBuilder::new().mode(0o700).create(directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let path = directory.join(name);
        let directory = open_own(directory)?;
        let alone = DirLock::new(&directory)?;
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        let file = identity(&path)?;
        drop(alone);
        Ok(Self { listener: Arc::new(listener), directory, path, file })
    }

    /// Returns the listening socket.
    pub(super) fn listener(&self) -> &Arc<UnixListener> {
        &self.listener
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Ok(_alone) = DirLock::new(&self.directory) else { return };
        if identity(&self.path).is_ok_and(|file| file == self.file) {
            // If this fails, the next mount with this number removes it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = path.symlink_metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}

/// A lock of a directory, held while its files are added or removed.
struct DirLock<'a>(&'a File);

impl<'a> DirLock<'a> {
    fn new(directory: &'a File) -> io::Result<Self> {
        flock(directory, FlockOperation::LockExclusive)?;
        Ok(Self(directory))
    }
}

impl Drop for DirLock<'_> {
    fn drop(&mut self) {
        // Closing the descriptor releases it, too.
        let _ = flock(self.0, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn drop_of_a_replaced_place_keeps_the_new_socket() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("own");
        let first = Place::make(&directory, "0:7").unwrap();
        let second = Place::make(&directory, "0:7").unwrap();
        drop(first);
        let path = directory.join("0:7");
        UnixStream::connect(&path).unwrap();
        second.listener().accept().unwrap();
        drop(second);
        assert!(!path.exists());
    }

    #[test]
    fn a_directory_that_others_may_look_into_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("open");
        fs::create_dir(&directory).unwrap();
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
        let refused = Place::make(&directory, "0:7").err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        let link = folder.path().join("link");
        fs::create_dir(folder.path().join("own")).unwrap();
        std::os::unix::fs::symlink("own", &link).unwrap();
        Place::make(&link, "0:7").err().unwrap();
    }

    #[test]
    fn socket_is_named_by_the_device_number() {
        assert_eq!(name(rustix::fs::makedev(0, 300)), "0:300");
        assert!(directories().last().unwrap().starts_with("/tmp"));
    }
}
