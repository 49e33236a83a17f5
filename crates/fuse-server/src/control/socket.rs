//! Where the socket of a mount is.
//!
//! 1. A directory counts only if it is the user's own, and nobody else may look into it.
//! 2. A socket is called by the number of the mount. Who mounts something has that number alone
//!    from then on: a file of this name was left by another, who is gone or about to go. So who
//!    comes removes it, and who made it does so only while it is still the same file.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock, major, minor};
use rustix::process::geteuid;
use userbtrfs_sync::Arc;

/// What group and others may do with a directory.
const OTHERS: u32 = 0o077;

/// The directories in which sockets of this user may be, best first.
pub(super) fn directories() -> Vec<PathBuf> {
    let user = geteuid();
    let of_system = user.is_root().then(|| PathBuf::from("/run"));
    let named = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let usual = PathBuf::from(format!("/run/user/{}", user.as_raw()));
    let bases = of_system.into_iter().chain(named).chain([usual]);
    let below = bases.filter(|base| base.is_absolute()).map(|base| base.join("userbtrfs"));
    below.chain([PathBuf::from(format!("/tmp/userbtrfs-{}", user.as_raw()))]).collect()
}

/// How the socket of the mount is called that has this number as a device.
pub(super) fn name(device: u64) -> String {
    format!("{}:{}", major(device), minor(device))
}

/// Opens a directory that is the user's alone.
pub(super) fn open_own(path: &Path) -> io::Result<File> {
    let flags = (OFlags::DIRECTORY | OFlags::NOFOLLOW).bits().cast_signed();
    let directory = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let metadata = directory.metadata()?;
    match metadata.uid() == geteuid().as_raw() && metadata.mode() & OTHERS == 0 {
        true => Ok(directory),
        false => Err(io::Error::new(io::ErrorKind::PermissionDenied, "not this user's alone")),
    }
}

/// A socket in the tree of names; it is taken out when this is dropped.
pub(super) struct Place {
    /// While it is open, its file's number is nobody else's.
    listener: Arc<UnixListener>,
    directory: File,
    path: PathBuf,
    /// The file: the device it is on, and its number.
    file: (u64, u64),
}

impl Place {
    /// Makes a socket in a directory of this user's, which is made if it is not there.
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

    /// What listens.
    pub(super) fn listener(&self) -> &Arc<UnixListener> {
        &self.listener
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Ok(_alone) = DirLock::new(&self.directory) else { return };
        if identity(&self.path).is_ok_and(|file| file == self.file) {
            // Where it fails, who mounts next removes it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = path.symlink_metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}

/// The right to change which files are in a directory.
struct DirLock<'a>(&'a File);

impl<'a> DirLock<'a> {
    fn new(directory: &'a File) -> io::Result<Self> {
        flock(directory, FlockOperation::LockExclusive)?;
        Ok(Self(directory))
    }
}

impl Drop for DirLock<'_> {
    fn drop(&mut self) {
        // It goes with the descriptor, too.
        let _ = flock(self.0, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_socket_goes_with_its_place_but_not_with_one_that_was_there_before() {
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
    fn a_mount_is_called_by_its_number() {
        assert_eq!(name(rustix::fs::makedev(0, 300)), "0:300");
        assert!(directories().last().unwrap().starts_with("/tmp"));
    }
}
