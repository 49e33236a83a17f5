//! Makes the copy on the host, each name relative to its opened directory.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Timespec, Timestamps, linkat, lstat, statat,
};
use rustix::io::{Errno, pwrite, retry_on_intr};
use userbtrfs_engine::api::{Attributes, InodeId, Timestamp};

use super::{Item, Sink};
use crate::copy::error::SideError;
use crate::copy::host_object::HostObject;
use crate::copy::options::Keep;
use crate::copy::shared::SharedRange;
use crate::copy::source::{Kind, Origin};

/// A tree of the host.
pub(in crate::copy) enum HostSink {}

/// Opens an existing directory; symbolic links in the path are followed.
pub(in crate::copy) fn open_dir(path: &Path) -> Result<OwnedFd, SideError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map_err(SideError::host("open"))
}

impl Sink for HostSink {
    type Dir = OwnedFd;
    type File = OwnedFd;
    type Other = ();
    type Object<'a> = HostObject<'a>;
    /// Paths, since an open directory for each name would take too many descriptors.
    type Links = Vec<PathBuf>;

    const INHERITS_ACLS: bool = true;

    fn make_dir(item: &Item<Self>, mode: u32, _: Keep) -> Result<(OwnedFd, bool), SideError> {
        let is_new = match rustix::fs::mkdirat(&*item.dir, &item.name, Mode::from_raw_mode(mode)) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(SideError::host("make directory")(error)),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&*item.dir, &item.name, flags, Mode::empty())
            .map_err(SideError::host("open directory"))?;
        Ok((fd, is_new))
    }

    fn make_file(item: &Item<Self>, mode: u32) -> Result<OwnedFd, SideError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        rustix::fs::openat(&*item.dir, item.made_name(), flags, Mode::from_raw_mode(mode))
            .map_err(SideError::host("make file"))
    }

    fn open_existing(_: &Item<Self>) -> Result<Option<OwnedFd>, SideError> {
        Ok(None)
    }

    fn make_unnamed(_: &Item<Self>, _: u32) -> Result<OwnedFd, SideError> {
        unreachable!("no existing file is opened")
    }

    fn replace_content(_: &OwnedFd, _: &OwnedFd) -> Result<(), SideError> {
        unreachable!("no existing file is opened")
    }

    fn make_other(item: &Item<Self>, mode: u32) -> Result<(), SideError> {
        match &item.entry.kind {
            Kind::Symlink(target) => {
                rustix::fs::symlinkat(&target[..], &*item.dir, item.made_name())
                    .map_err(SideError::host("make link"))
            }
            Kind::Special((major, minor)) => {
                let kind = FileType::from_raw_mode(mode);
                let device = rustix::fs::makedev(*major, *minor);
                let mode = Mode::from_raw_mode(mode);
                rustix::fs::mknodat(&*item.dir, item.made_name(), kind, mode, device)
                    .map_err(SideError::host("make special file"))
            }
            Kind::Directory | Kind::File => unreachable!("they have events of their own"),
        }
    }

    fn links(item: &Item<Self>, _: HostObject<'_>) -> Vec<PathBuf> {
        vec![item.made_path()]
    }

    fn make_link(item: &Item<Self>, links: &mut Vec<PathBuf>) -> Result<(), SideError> {
        let first = &links[0];
        let linked = match linkat(CWD, first, &*item.dir, item.made_name(), AtFlags::empty()) {
            Err(Errno::EXIST) => match is_same(item, first) {
                Ok(true) => Ok(()),
                Ok(false) => Err(Errno::EXIST),
                Err(error) => Err(error),
            },
            linked => linked,
        };
        linked.map_err(SideError::host("link"))?;
        links.push(item.made_path());
        Ok(())
    }

    fn remove_links(links: &Vec<PathBuf>) {
        for path in links {
            // Best effort: it may be gone already.
            let _ = std::fs::remove_file(path);
        }
    }

    fn remove(item: &Item<Self>) -> Result<(), SideError> {
        rustix::fs::unlinkat(&*item.dir, item.made_name(), AtFlags::empty())
            .map_err(SideError::host("remove"))
    }

    fn check_replaceable(item: &Item<Self>) -> Result<(), SideError> {
        let there = statat(&*item.dir, &item.name, AtFlags::SYMLINK_NOFOLLOW);
        let there = there.map_err(SideError::host("examine"))?;
        match FileType::from_raw_mode(there.st_mode) {
            FileType::Directory => Err(SideError::host("replace")(Errno::ISDIR)),
            _ => Ok(()),
        }
    }

    fn replace(item: &Item<Self>) -> Result<(), SideError> {
        rustix::fs::renameat(&*item.dir, item.made_name(), &*item.dir, &item.name)
            .map_err(SideError::host("replace"))
    }

    fn rename_link(item: &Item<Self>, links: &mut Vec<PathBuf>) {
        let temporary = item.made_path();
        for path in links.iter_mut().filter(|path| **path == temporary) {
            path.clone_from(&item.path);
        }
    }

    fn is_image(item: &Item<Self>, image: (u64, u64)) -> Result<bool, SideError> {
        let there = statat(&*item.dir, &item.name, AtFlags::SYMLINK_NOFOLLOW);
        let there = there.map_err(SideError::host("examine"))?;
        Ok((there.st_dev, there.st_ino) == image)
    }

    fn is_source(_: &Item<Self>) -> Result<bool, SideError> {
        Ok(false)
    }

    fn is_dir(_: &OwnedFd, _: Origin) -> bool {
        false
    }

    fn object_of_dir(dir: &OwnedFd) -> HostObject<'_> {
        HostObject::Open(dir.as_fd())
    }

    fn object_of_file(file: &OwnedFd) -> HostObject<'_> {
        HostObject::Open(file.as_fd())
    }

    fn object_of_other<'a>(item: &'a Item<Self>, (): &'a ()) -> HostObject<'a> {
        HostObject::Named(item.dir.as_fd(), item.made_name())
    }

    fn share(_: &OwnedFd, _: Origin) -> Result<Option<u64>, SideError> {
        Ok(None)
    }

    fn share_range(_: &OwnedFd, _: InodeId, _: SharedRange) -> Result<u64, SideError> {
        Ok(0)
    }

    fn id(_: &OwnedFd) -> Option<InodeId> {
        None
    }

    fn write(file: &OwnedFd, mut bytes: &[u8], mut offset: u64) -> Result<(), SideError> {
        while !bytes.is_empty() {
            let written = retry_on_intr(|| pwrite(file, bytes, offset));
            let written = written.map_err(SideError::host("write"))?;
            bytes = &bytes[written..];
            offset += written as u64;
        }
        Ok(())
    }

    fn set_len(file: &OwnedFd, size: u64) -> Result<(), SideError> {
        rustix::fs::ftruncate(file, size).map_err(SideError::host("set size"))
    }

    fn sync(file: &OwnedFd) -> Result<(), SideError> {
        rustix::fs::fsync(file).map_err(SideError::host("sync"))
    }

    fn sync_dir(dir: &OwnedFd) -> Result<(), SideError> {
        rustix::fs::fsync(dir).map_err(SideError::host("sync"))
    }

    fn close(_: OwnedFd) -> Result<(), SideError> {
        Ok(())
    }

    fn set_owner(object: HostObject<'_>, attributes: &Attributes) -> Result<(), SideError> {
        object.set_owner(attributes.uid, attributes.gid).map_err(SideError::host("set owner"))
    }

    fn set_xattr(object: HostObject<'_>, name: &[u8], value: &[u8]) -> Result<(), SideError> {
        object.set_xattr(name, value).map_err(SideError::host("set attribute"))
    }

    fn remove_xattr(object: HostObject<'_>, name: &[u8]) -> Result<(), SideError> {
        match object.remove_xattr(name) {
            Ok(()) | Err(Errno::NODATA | Errno::NOTSUP) => Ok(()),
            // The file was just made, so it is `/proc` that is missing.
            Err(Errno::NOENT) if matches!(object, HostObject::Named(..)) => Ok(()),
            Err(error) => Err(SideError::host("remove access list")(error)),
        }
    }

    fn set_attributes(object: HostObject<'_>, attributes: &Attributes) -> Result<(), SideError> {
        let mode = attributes.mode.map_or(Ok(()), |mode| object.set_mode(mode));
        let times = attributes.accessed.zip(attributes.modified);
        let times = times.map_or(Ok(()), |(accessed, modified)| {
            let last_access = timespec(accessed);
            let last_modification = timespec(modified);
            object.set_times(&Timestamps { last_access, last_modification })
        });
        let mode = mode.map_err(SideError::host("set mode"));
        mode.and(times.map_err(SideError::host("set times")))
    }
}

/// Returns true if the name of an item and a path lead to the same inode.
fn is_same(item: &Item<HostSink>, path: &Path) -> Result<bool, Errno> {
    let there = statat(&*item.dir, &item.name, AtFlags::SYMLINK_NOFOLLOW)?;
    let wanted = lstat(path)?;
    Ok((there.st_dev, there.st_ino) == (wanted.st_dev, wanted.st_ino))
}

fn timespec(time: Timestamp) -> Timespec {
    Timespec { tv_sec: time.sec, tv_nsec: i64::from(time.nsec) }
}
