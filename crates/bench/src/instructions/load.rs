//! The iterations of each operation, on a filesystem in memory.
//!
//! 1. The state before the iterations is the same for any number of them, and committed.
//! 2. No commit begins by age, and memory is large enough that none begins by it.
//! 3. After the iterations the filesystem is neither closed nor dropped: that would count as well.

use std::hint::black_box;
use std::mem::forget;
use std::sync::Arc;

use anyhow::{Result, ensure};
use userbtrfs::device::MemoryDevice;
use userbtrfs::mkfs::{self, Options};
use userbtrfs::{Dir, File, Filesystem, OpenOptions, RenameMode};
use userbtrfs_testkit::random::Random;

use crate::args::Operation;
use crate::content::Content;

/// The seed of all names, offsets and contents.
const SEED: u64 = 0x7573_6572_6274_7266;
/// The size of the device, and the memory limit, in bytes.
const DEVICE: usize = 1 << 30;
const MEMORY: u64 = 512 << 20;
/// The bytes of a read or write, of a cloned extent, and of the file that is read.
const BLOCK: u64 = 4 << 10;
const CLONED: u64 = 128 << 10;
const CACHED: u64 = 4 << 20;
/// The number of files in a directory, and in a subvolume.
const FILES: u64 = 1000;
const FILES_IN_SUBVOLUME: u64 = 100;
/// The permissions of new files and directories.
const FILE_MODE: u32 = 0o644;
const DIR_MODE: u32 = 0o755;

/// Returns the default number of iterations, by what an iteration takes.
pub(crate) fn iterations(operation: Operation) -> u64 {
    match operation {
        Operation::Lookup | Operation::Read => 2000,
        Operation::Create | Operation::CreateCommit | Operation::Rename => 1000,
        Operation::Write | Operation::WriteCommit | Operation::Clone => 500,
        Operation::AppendFsync => 100,
        Operation::Snapshot => 20,
        Operation::Readdir => 10,
    }
}

/// Runs the iterations of an operation.
pub(crate) fn run(operation: Operation, iterations: u64) -> Result<()> {
    let lab = Lab::new()?;
    match operation {
        Operation::Create => lab.create(iterations)?,
        Operation::CreateCommit => {
            lab.create(iterations)?;
            lab.filesystem.commit()?;
        }
        Operation::Lookup => lab.look_up(iterations)?,
        Operation::Rename => lab.rename(iterations)?,
        Operation::Write => forget(lab.write(iterations)?),
        Operation::WriteCommit => {
            let file = lab.write(iterations)?;
            lab.filesystem.commit()?;
            forget(file);
        }
        Operation::AppendFsync => lab.append_and_sync(iterations)?,
        Operation::Snapshot => lab.snapshot(iterations)?,
        Operation::Clone => lab.clone_extents(iterations)?,
        Operation::Readdir => lab.list(iterations)?,
        Operation::Read => lab.read(iterations)?,
    }
    forget(lab);
    Ok(())
}

/// Returns a name of fixed length.
fn name(number: u64) -> Vec<u8> {
    format!("file-{number:08}").into_bytes()
}

fn content(len: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    Content::new(SEED).fill(&mut bytes, usize::try_from(len)?);
    Ok(bytes)
}

/// A filesystem in memory, and a directory in it.
struct Lab {
    filesystem: Filesystem,
    dir: Dir,
}

impl Lab {
    fn new() -> Result<Self> {
        let device = Arc::new(MemoryDevice::new(DEVICE));
        mkfs::make(&*device, &Options::default())?;
        let mut options = OpenOptions::new();
        options.write(true).memory(MEMORY).commit_seconds(0);
        let filesystem = options.open_devices(vec![device])?;
        let dir = filesystem.root().create_dir(b"dir", DIR_MODE)?;
        filesystem.commit()?;
        Ok(Self { filesystem, dir })
    }

    fn new_file(&self, name: &[u8]) -> Result<File> {
        Ok(self.dir.create(name, FILE_MODE)?.open()?)
    }

    /// Creates a committed file with this content.
    fn committed_file(&self, name: &[u8], content: &[u8]) -> Result<File> {
        let file = self.new_file(name)?;
        file.write_all_at(content, 0)?;
        self.filesystem.commit()?;
        Ok(file)
    }

    /// Creates the committed files of the directory.
    fn fill(&self) -> Result<()> {
        for number in 0..FILES {
            self.dir.create(&name(number), FILE_MODE)?;
        }
        Ok(self.filesystem.commit()?)
    }

    fn create(&self, iterations: u64) -> Result<()> {
        for number in 0..iterations {
            self.dir.create(&name(number), FILE_MODE)?;
        }
        Ok(())
    }

    fn look_up(&self, iterations: u64) -> Result<()> {
        self.fill()?;
        let mut random = Random::new(SEED);
        for _ in 0..iterations {
            black_box(self.dir.lookup(&name(random.below(FILES)))?);
        }
        Ok(())
    }

    /// Renames each file in turn to a new name.
    fn rename(&self, iterations: u64) -> Result<()> {
        self.fill()?;
        for number in 0..iterations {
            let from = name(number);
            let to = name(number + FILES);
            self.dir.rename(&from, &self.dir, &to, RenameMode::Replace)?;
        }
        Ok(())
    }

    fn write(&self, iterations: u64) -> Result<File> {
        let block = content(BLOCK)?;
        let file = self.committed_file(b"written", &[])?;
        for number in 0..iterations {
            file.write_all_at(&block, number * BLOCK)?;
        }
        Ok(file)
    }

    fn append_and_sync(&self, iterations: u64) -> Result<()> {
        let block = content(BLOCK)?;
        let file = self.committed_file(b"appended", &block)?;
        for _ in 0..iterations {
            file.append(&block)?;
            file.sync_all()?;
        }
        forget(file);
        Ok(())
    }

    fn snapshot(&self, iterations: u64) -> Result<()> {
        let subvolume = self.dir.create_subvolume(b"subvolume", DIR_MODE)?;
        for number in 0..FILES_IN_SUBVOLUME {
            subvolume.create(&name(number), FILE_MODE)?;
        }
        self.filesystem.commit()?;
        let source = subvolume.inode().id().subvolume;
        for number in 0..iterations {
            self.dir.snapshot(&name(number), source, true)?;
        }
        forget(subvolume);
        Ok(())
    }

    fn clone_extents(&self, iterations: u64) -> Result<()> {
        let source = self.committed_file(b"source", &content(CLONED)?)?;
        let target = self.committed_file(b"target", &[])?;
        for number in 0..iterations {
            target.clone_range(&source, 0, CLONED, number * CLONED)?;
        }
        forget(source);
        forget(target);
        Ok(())
    }

    fn list(&self, iterations: u64) -> Result<()> {
        self.fill()?;
        for _ in 0..iterations {
            let mut listed = 0;
            for entry in self.dir.entries() {
                black_box(entry?);
                listed += 1;
            }
            ensure!(listed == FILES, "{listed} entries");
        }
        Ok(())
    }

    fn read(&self, iterations: u64) -> Result<()> {
        let file = self.committed_file(b"read", &content(CACHED)?)?;
        ensure!(file.read_all()?.len() as u64 == CACHED, "the file was not written");
        let mut random = Random::new(SEED);
        let mut block = content(BLOCK)?;
        for _ in 0..iterations {
            let offset = random.below(CACHED / BLOCK) * BLOCK;
            let read = file.read_at(&mut block, offset)?;
            ensure!(read as u64 == BLOCK, "read {read} bytes");
        }
        forget(file);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    #[test]
    fn every_operation_runs() {
        for operation in Operation::value_variants() {
            run(*operation, 3).unwrap_or_else(|error| panic!("{operation:?}: {error:#}"));
        }
    }
}
