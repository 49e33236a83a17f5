//! A disk whose writes and flushes take a set time: a file on a FUSE filesystem of its own.
//!
//! 1. The filesystem has one file, whose content is in a file on the disk. A write waits for its
//!    latency, and a flush for its own; reads do not wait. Several may be in flight, each of which
//!    waits for itself, as on a disk with a deep queue.
//! 2. A flush makes nothing durable: the latency of the real disk would add to the set one.
//! 3. The kernel caches nothing of the file: its I/O is direct. So a loop device on the file and
//!    the library pay for the same requests.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use userbtrfs_fuse::{
    Attributes, Bytes, Changes, Config, Entry, Errno, FOREVER, Fallocate, Fsync, Handle, InitFlags,
    Mount, MountFlags, MountOptions, Name, NodeId, Open, Opened, OpenedFlags, Read, Reply, Request,
    Server, Session, Stat, Statistics, Write, Written, may_sleep,
};
use userbtrfs_sync::Arc;

/// The name of the file.
const NAME: &str = "disk";
/// The number of the file's node.
const DISK: NodeId = NodeId(2);
const ROOT_MODE: u32 = 0o040_755;
const DISK_MODE: u32 = 0o100_600;
const BLOCK: u32 = 4096;
/// The number of requests in flight at most.
const IN_FLIGHT: u16 = 256;

/// The times that a write and a flush take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Latency {
    /// The time of a write.
    pub(crate) write: Duration,
    /// The time of a flush.
    pub(crate) flush: Duration,
}

/// A mounted disk. Dropping this unmounts and removes it.
pub(crate) struct SlowDisk {
    session: Session,
    point: PathBuf,
    content: PathBuf,
}

impl SlowDisk {
    /// Mounts a disk of this size below a folder.
    pub(crate) fn new(folder: &Path, bytes: u64, latency: Latency) -> Result<Self> {
        let point = folder.join("slow");
        let content = folder.join("slow.content");
        fs::create_dir_all(&point).with_context(|| point.display().to_string())?;
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&content)
            .with_context(|| content.display().to_string())?;
        file.set_len(bytes)?;
        let options = MountOptions {
            source: "slow".into(),
            flags: MountFlags::DEFAULT_PERMISSIONS | MountFlags::NO_ATIME,
            ..MountOptions::default()
        };
        let cached = InitFlags::WRITEBACK_CACHE
            .union(InitFlags::NO_OPEN_SUPPORT)
            .union(InitFlags::EXPORT_SUPPORT);
        let config = Config {
            flags: InitFlags::LOCAL_DISK.difference(cached).union(InitFlags::ASYNC_DIO),
            max_background: IN_FLIGHT,
            congestion_threshold: IN_FLIGHT,
            threads_max: usize::from(IN_FLIGHT),
            ..Config::default()
        };
        let mount = Mount::new(&point, &options)?;
        let session = Session::start(mount, Arc::new(Disk { file, latency }), &config)?;
        Ok(Self { session, point, content })
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> PathBuf {
        self.point.join(NAME)
    }

    fn end(&self) -> Result<()> {
        self.session.stop()?;
        self.session.wait()?;
        fs::remove_dir(&self.point)?;
        Ok(fs::remove_file(&self.content)?)
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("userbtrfs-bench: {}: {error:#}", self.point.display());
        }
    }
}

/// The server.
struct Disk {
    file: File,
    latency: Latency,
}

impl Disk {
    fn stat(&self, node: NodeId) -> Result<Stat, Errno> {
        let size = self.size()?;
        let attributes = match node {
            NodeId::ROOT => Attributes { mode: ROOT_MODE, nlink: 2, ..Attributes::default() },
            _ => Attributes { mode: DISK_MODE, nlink: 1, size, ..Attributes::default() },
        };
        let blocks = attributes.size.div_ceil(512);
        let attributes = Attributes { ino: node.0, blocks, block_size: BLOCK, ..attributes };
        Ok(Stat { attributes, valid: FOREVER })
    }

    fn size(&self) -> Result<u64, Errno> {
        Ok(self.file.metadata().map_err(failed)?.len())
    }

    fn find(&self, name: Name<'_>) -> Result<Entry, Errno> {
        if name.as_bytes() != NAME.as_bytes() {
            return Err(Errno::NOENT);
        }
        let attributes = self.stat(DISK)?.attributes;
        let valid = FOREVER;
        let entry_valid = valid;
        Ok(Entry { node: DISK, generation: 0, attributes, attributes_valid: valid, entry_valid })
    }

    fn read_bytes(&self, read: &Read) -> Result<Vec<u8>, Errno> {
        let left = self.size()?.saturating_sub(read.offset).min(read.size.into());
        let mut bytes = vec![0; usize::try_from(left).map_err(|_| Errno::INVAL)?];
        self.file.read_exact_at(&mut bytes, read.offset).map_err(failed)?;
        Ok(bytes)
    }

    fn write_bytes(&self, write: &Write<'_>) -> Result<Written, Errno> {
        thread::sleep(self.latency.write);
        self.file.write_all_at(write.data, write.offset).map_err(failed)?;
        Ok(Written(u32::try_from(write.data.len()).map_err(|_| Errno::INVAL)?))
    }

    fn change(&self, node: NodeId, changes: &Changes) -> Result<Stat, Errno> {
        if let Some(size) = changes.size {
            self.file.set_len(size).map_err(failed)?;
        }
        self.stat(node)
    }
}

impl Server for Disk {
    fn lookup(&self, _: &Request, name: Name<'_>, reply: Reply<Entry>) {
        reply.send(self.find(name));
    }

    fn getattr(&self, request: &Request, _: Option<Handle>, reply: Reply<Stat>) {
        reply.send(self.stat(request.node));
    }

    fn setattr(&self, request: &Request, changes: &Changes, reply: Reply<Stat>) {
        reply.send(self.change(request.node, changes));
    }

    fn open(&self, _: &Request, _: &Open, reply: Reply<Opened>) {
        let flags = OpenedFlags::DIRECT_IO | OpenedFlags::PARALLEL_DIRECT_WRITES;
        reply.succeed(&Opened { flags: flags | OpenedFlags::NOFLUSH, ..Opened::default() });
    }

    fn read(&self, _: &Request, read: &Read, reply: Reply<Bytes>) {
        match may_sleep(|| self.read_bytes(read)) {
            Ok(bytes) => reply.send(Ok(&bytes)),
            Err(error) => reply.fail(error),
        }
    }

    fn write(&self, _: &Request, write: &Write<'_>, reply: Reply<Written>) {
        reply.send(may_sleep(|| self.write_bytes(write)));
    }

    fn fsync(&self, _: &Request, _: &Fsync, reply: Reply<()>) {
        may_sleep(|| thread::sleep(self.latency.flush));
        reply.succeed(&());
    }

    fn fallocate(&self, _: &Request, range: &Fallocate, reply: Reply<()>) {
        let Fallocate { offset, length, mode, .. } = *range;
        reply.send(rustix::fs::fallocate(&self.file, mode, offset, length));
    }

    fn statfs(&self, _: &Request, reply: Reply<Statistics>) {
        let size = match self.size() {
            Ok(size) => size,
            Err(error) => return reply.fail(error),
        };
        reply.succeed(&Statistics {
            blocks: size / u64::from(BLOCK),
            blocks_free: 0,
            blocks_available: 0,
            files: 1,
            files_free: 0,
            block_size: BLOCK,
            name_max: 255,
            fragment_size: BLOCK,
        });
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn failed(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use userbtrfs_testkit::test_env::fuse_or_skip;

    use super::*;

    #[test]
    fn writes_and_flushes_take_their_time_side_by_side() {
        if !fuse_or_skip() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let write = Duration::from_millis(60);
        let flush = Duration::from_millis(90);
        let disk = SlowDisk::new(folder.path(), 1 << 20, Latency { write, flush }).unwrap();
        let file = File::options().read(true).write(true).open(disk.path()).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 1 << 20);
        let began = Instant::now();
        file.write_all_at(&[7; 4096], 8192).unwrap();
        assert!(began.elapsed() >= write);
        let began = Instant::now();
        file.sync_data().unwrap();
        assert!(began.elapsed() >= flush);
        let sixteen = || {
            thread::scope(|scope| {
                for block in 0..16 {
                    let file = &file;
                    scope.spawn(move || file.write_all_at(&[9; 512], block * 512).unwrap());
                }
            });
        };
        // The machine may be busy, but sixteen writes one after the other never take less.
        let together = (0..5).map(|_| {
            let began = Instant::now();
            sixteen();
            began.elapsed()
        });
        assert!(together.min().unwrap() < 16 * write);
        let mut bytes = [0; 4096];
        file.read_exact_at(&mut bytes, 6144).unwrap();
        assert_eq!((bytes[0], bytes[2048], bytes[4095]), (9, 7, 7));
        drop(file);
        drop(disk);
        assert_eq!(folder.path().read_dir().unwrap().count(), 0);
    }
}
