//! A client that executes the operations of a loadfile as dbench does.
//!
//! 1. A name is looked up before it is used. If it does not exist, its directory is listed, to find
//!    it in another case: dbench imitates a server whose names have no case.
//! 2. An operation that does not return what it returned in the recording is an error, except a
//!    query of a path: after the first pass, directories exist that did not in the recording.
//! 3. A tree is deleted without its directories.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use super::files::Files;
use super::loadfile::{How, Loadfile, Operation, PathId, Slot};

/// A kind of operations in dbench's table.
pub(crate) const KINDS: [&str; 16] = [
    "NTCreateX",
    "Close",
    "Rename",
    "Unlink",
    "Deltree",
    "Mkdir",
    "Qpathinfo",
    "Qfileinfo",
    "Qfsinfo",
    "Sfileinfo",
    "Find",
    "WriteX",
    "ReadX",
    "LockX",
    "UnlockX",
    "Flush",
];

/// Returns the index in `KINDS` of an operation.
fn kind(operation: &Operation) -> usize {
    match operation {
        Operation::Open { .. } => 0,
        Operation::Close(_) => 1,
        Operation::Rename(..) => 2,
        Operation::Unlink(_) => 3,
        Operation::DeleteTree(_) => 4,
        Operation::Mkdir(_) => 5,
        Operation::QueryPath(..) => 6,
        Operation::QueryFile(_) => 7,
        Operation::QueryFilesystem => 8,
        Operation::SetFile(_) => 9,
        Operation::Find(_) => 10,
        Operation::Write(..) => 11,
        Operation::Read(..) => 12,
        Operation::Lock(_) => 13,
        Operation::Unlock(_) => 14,
        Operation::Flush(_) => 15,
    }
}

/// A client of a filesystem.
pub(crate) struct Client<'a, F: Files> {
    files: &'a F,
    load: &'a Loadfile,
    paths: Vec<Vec<u8>>,
    open: Vec<Option<(F::File, PathId)>>,
    buffer: Vec<u8>,
}

/// An operation that was executed.
pub(crate) struct Done {
    /// Its index in `KINDS`.
    pub(crate) kind: usize,
    /// The moment at which it began.
    pub(crate) began: Instant,
    /// The time that it took.
    pub(crate) latency: Duration,
    /// The number of bytes that it read or wrote.
    pub(crate) bytes: u64,
}

impl<'a, F: Files> Client<'a, F> {
    /// Makes the client of this number.
    pub(crate) fn new(files: &'a F, load: &'a Loadfile, number: u64) -> Self {
        let open = (0..load.slots).map(|_| None).collect();
        let buffer = vec![0; load.longest];
        Self { files, load, paths: load.paths_of(number), open, buffer }
    }

    /// Executes the whole loadfile once; calls `done` after each operation, until it returns false.
    /// Returns false then.
    pub(crate) fn pass(&mut self, done: &mut impl FnMut(Done) -> bool) -> Result<bool> {
        for (index, operation) in self.load.operations.iter().enumerate() {
            let began = Instant::now();
            let bytes = self.execute(operation);
            let latency = began.elapsed();
            let bytes = bytes.with_context(|| format!("operation {}: {operation:?}", index + 1))?;
            if !done(Done { kind: kind(operation), began, latency, bytes }) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Executes an operation; returns the number of bytes that it read or wrote.
    fn execute(&mut self, operation: &Operation) -> Result<u64> {
        match *operation {
            Operation::DeleteTree(path) => self.delete_tree(&self.paths[path.0])?,
            Operation::Mkdir(path) => self.files.make_dir(&self.resolve(path)?)?,
            Operation::Open { path, how, slot } => self.open(path, how, slot)?,
            Operation::Close(slot) => self.open[slot.0] = None,
            Operation::Write(slot, offset, count) => {
                self.files.write(&self.file(slot)?.0, &self.buffer[..count], offset)?;
                return Ok(u64::try_from(count)?);
            }
            Operation::Read(slot, offset, count) => return self.read(slot, offset, count),
            Operation::Flush(slot) => self.files.sync(&self.file(slot)?.0)?,
            Operation::Lock(slot) => self.files.lock(&self.file(slot)?.0, true)?,
            Operation::Unlock(slot) => self.files.lock(&self.file(slot)?.0, false)?,
            Operation::Rename(from, to) => {
                let from = self.resolve(from)?;
                let to = self.resolve(to)?;
                self.files.rename(&from, &to)?;
            }
            Operation::Unlink(path) => self.files.remove(&self.resolve(path)?)?,
            Operation::QueryPath(path) => drop(self.resolve(path)?),
            Operation::QueryFile(slot) => self.files.attributes(&self.file(slot)?.0)?,
            Operation::QueryFilesystem => self.files.space()?,
            Operation::SetFile(slot) => {
                let (file, path) = self.file(slot)?;
                self.files.touch(file, &self.paths[path.0])?;
            }
            Operation::Find(pattern) => {
                let pattern = self.resolve(pattern)?;
                self.files.list(parted(&pattern).0, &mut |_| Ok(()))?;
            }
        }
        Ok(0)
    }

    fn file(&self, slot: Slot) -> Result<&(F::File, PathId)> {
        self.open[slot.0].as_ref().context("the file is not open")
    }

    fn read(&mut self, slot: Slot, offset: u64, count: usize) -> Result<u64> {
        let (file, _) = self.open[slot.0].as_ref().context("the file is not open")?;
        let read = self.files.read(file, &mut self.buffer[..count], offset)?;
        ensure!(read == count, "{read} bytes read");
        Ok(u64::try_from(count)?)
    }

    fn open(&mut self, path: PathId, how: How, slot: Option<Slot>) -> Result<()> {
        let resolved = self.resolve(path)?;
        if how == How::Directory {
            self.files.make_dir(&resolved)?;
        }
        let file = self.files.open(&resolved, how)?;
        match (file, slot) {
            (Some(file), Some(slot)) => self.open[slot.0] = Some((file, path)),
            (None, None) => {}
            _ => bail!("it exists, or not, unlike recorded"),
        }
        Ok(())
    }

    /// Looks up a path, also in another case. Returns the path that exists, or the given one.
    fn resolve(&self, path: PathId) -> Result<Cow<'_, [u8]>> {
        let path = &self.paths[path.0];
        if self.files.stat(path)?.is_some() {
            return Ok(path.into());
        }
        let (directory, name) = parted(path);
        let mut found = None;
        self.files.list(directory, &mut |other| {
            if other.eq_ignore_ascii_case(name) {
                found = Some(joined(directory, other));
            }
            Ok(())
        })?;
        Ok(found.map_or(path.into(), Cow::from))
    }

    fn delete_tree(&self, path: &[u8]) -> Result<()> {
        // dbench deletes while it lists.
        let listed = self.files.list(path, &mut |name| {
            if name == b"." || name == b".." {
                return Ok(());
            }
            let child = joined(path, name);
            if self.files.stat(&child)?.context("a name that was listed")? {
                self.delete_tree(&child)
            } else {
                self.files.remove(&child)
            }
        });
        listed.map(drop)
    }
}

/// Returns the directory and the last name of a path.
fn parted(path: &[u8]) -> (&[u8], &[u8]) {
    let slash = path.iter().rposition(|byte| *byte == b'/').expect("paths are absolute");
    (&path[..slash.max(1)], &path[slash + 1..])
}

fn joined(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if directory.ends_with(b"/") { b"" } else { b"/" };
    [directory, slash, name].concat()
}
