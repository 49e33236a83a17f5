//! Loadfiles of dbench: the recorded operations of a client of a file server.
//!
//! 1. Each line has an operation, its arguments and the status that it returned in the recording.
//!    A path is quoted, has backslashes, and contains the name `client1`, in whose place each
//!    client has its own.
//! 2. Handles become *slots*: an open takes the lowest free slot, and a close frees it. So a
//!    client needs no more slots than it has files open.
//! 3. A line that cannot be parsed, or uses a handle that is not open, is an error: an operation
//!    that is left out would make the load lighter than that of dbench.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};

/// The directory in which all clients have their directories, and that of the recorded client.
const RECORDED: &str = "client1";

/// The status of an operation that succeeded.
const SUCCESS: &str = "NT_STATUS_OK";

/// Bit of the options of an open: the name is that of a directory.
const DIRECTORY: u64 = 0x1;

/// A path of the loadfile, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PathId(pub(crate) usize);

/// An open file, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Slot(pub(crate) usize);

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// It must exist.
    Existing,
    /// It is created if it does not exist.
    Create,
    /// It is created, or truncated.
    Truncate,
    /// It is a directory, which is created if it does not exist.
    Directory,
}

/// An operation of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Removes all files below a directory.
    DeleteTree(PathId),
    /// Creates a directory.
    Mkdir(PathId),
    /// Opens a file; without a slot it does not exist.
    Open {
        /// The name.
        path: PathId,
        /// How it is opened.
        how: How,
        /// The slot of the open file.
        slot: Option<Slot>,
    },
    /// Closes a file.
    Close(Slot),
    /// Writes a number of bytes at an offset.
    Write(Slot, u64, usize),
    /// Reads a number of bytes at an offset.
    Read(Slot, u64, usize),
    /// Makes a file durable.
    Flush(Slot),
    /// Locks a file.
    Lock(Slot),
    /// Unlocks a file.
    Unlock(Slot),
    /// Renames a file.
    Rename(PathId, PathId),
    /// Removes a file.
    Unlink(PathId),
    /// Looks up a name, whether it exists or not.
    QueryPath(PathId),
    /// Reads the attributes of an open file.
    QueryFile(Slot),
    /// Reads the free space.
    QueryFilesystem,
    /// Sets the times of an open file.
    SetFile(Slot),
    /// Lists the directory of a pattern.
    Find(PathId),
}

/// A parsed loadfile.
#[derive(Debug)]
pub(crate) struct Loadfile {
    /// The operations in order.
    pub(crate) operations: Vec<Operation>,
    /// The number of slots in use at most.
    pub(crate) slots: usize,
    /// The size of the longest read or write, in bytes.
    pub(crate) longest: usize,
    /// The paths of the recorded client, with slashes, relative to the root.
    paths: Vec<String>,
}

impl Loadfile {
    /// Reads a loadfile.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path);
        let text = text.with_context(|| format!("{}, of dbench", path.display()))?;
        Self::parse(&text).with_context(|| path.display().to_string())
    }

    /// Parses the text of a loadfile.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut parser = Parser::default();
        let mut operations = Vec::new();
        for (index, line) in text.lines().enumerate() {
            if line.trim().is_empty() {
                continue;
            }
            let operation = parser.line(line);
            operations.push(operation.with_context(|| format!("line {}: {line}", index + 1))?);
        }
        ensure!(!operations.is_empty(), "no operations");
        let Parser { paths, longest, slots, .. } = parser;
        Ok(Self { operations, slots, longest, paths })
    }

    /// Returns the paths of a client, absolute, by their numbers.
    pub(crate) fn paths_of(&self, client: u64) -> Vec<Vec<u8>> {
        let own = format!("client{client}");
        self.paths.iter().map(|path| absolute(path, &own).into_bytes()).collect()
    }
}

/// Returns a path of the recorded client as that of the client called `own`.
fn absolute(path: &str, own: &str) -> String {
    let parts = path.split('/').map(|part| if part == RECORDED { own } else { part });
    parts.fold(String::new(), |whole, part| whole + "/" + part)
}

/// The state of the parser between lines.
#[derive(Default)]
struct Parser {
    numbers: HashMap<String, PathId>,
    paths: Vec<String>,
    open: HashMap<u64, Slot>,
    free: BTreeSet<Slot>,
    slots: usize,
    longest: usize,
}

impl Parser {
    fn line(&mut self, line: &str) -> Result<Operation> {
        let fields = fields(line)?;
        let (name, arguments) = fields.split_first().context("empty")?;
        let (status, arguments) = arguments.split_last().context("no status")?;
        let succeeds = *status == SUCCESS;
        match (*name, arguments) {
            ("Deltree", [path]) => Ok(Operation::DeleteTree(self.path(path)?)),
            ("Mkdir", [path]) => Ok(Operation::Mkdir(self.path(path)?)),
            ("NTCreateX", [path, options, how, handle]) => {
                self.open(path, how_opened(number(options)?, number(how)?)?, handle, succeeds)
            }
            ("Close", [handle]) => Ok(Operation::Close(self.close(handle)?)),
            ("WriteX", [handle, offset, count, _]) => {
                let count = self.count(count)?;
                Ok(Operation::Write(self.slot(handle)?, number(offset)?, count))
            }
            ("ReadX", [handle, offset, _, count]) => {
                let count = self.count(count)?;
                Ok(Operation::Read(self.slot(handle)?, number(offset)?, count))
            }
            ("Flush", [handle]) => Ok(Operation::Flush(self.slot(handle)?)),
            ("LockX", [handle, _, _]) => Ok(Operation::Lock(self.slot(handle)?)),
            ("UnlockX", [handle, _, _]) => Ok(Operation::Unlock(self.slot(handle)?)),
            ("Rename", [from, to]) => Ok(Operation::Rename(self.path(from)?, self.path(to)?)),
            ("Unlink", [path, _]) => Ok(Operation::Unlink(self.path(path)?)),
            ("QUERY_PATH_INFORMATION", [path, _]) => Ok(Operation::QueryPath(self.path(path)?)),
            ("QUERY_FILE_INFORMATION", [handle, _]) => Ok(Operation::QueryFile(self.slot(handle)?)),
            ("QUERY_FS_INFORMATION", [_]) => Ok(Operation::QueryFilesystem),
            ("SET_FILE_INFORMATION", [handle, _]) => Ok(Operation::SetFile(self.slot(handle)?)),
            ("FIND_FIRST", [path, _, _, _]) => Ok(Operation::Find(self.path(path)?)),
            _ => bail!("unknown operation"),
        }
    }

    fn path(&mut self, quoted: &str) -> Result<PathId> {
        let path = quoted.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
        let path = path.context("a path is not quoted")?.trim_matches('\\').replace('\\', "/");
        ensure!(!path.is_empty(), "an empty path");
        let next = PathId(self.paths.len());
        let id = *self.numbers.entry(path.clone()).or_insert(next);
        if id == next {
            self.paths.push(path);
        }
        Ok(id)
    }

    fn open(&mut self, path: &str, how: How, handle: &str, succeeds: bool) -> Result<Operation> {
        let path = self.path(path)?;
        if !succeeds {
            ensure!(how == How::Existing, "a create that fails");
            return Ok(Operation::Open { path, how, slot: None });
        }
        let handle = number(handle)?;
        let slot = match self.open.get(&handle) {
            Some(slot) => *slot,
            None => self.free.pop_first().unwrap_or_else(|| {
                self.slots += 1;
                Slot(self.slots - 1)
            }),
        };
        self.open.insert(handle, slot);
        Ok(Operation::Open { path, how, slot: Some(slot) })
    }

    fn close(&mut self, handle: &str) -> Result<Slot> {
        let slot = self.open.remove(&number(handle)?).context("the handle is not open")?;
        self.free.insert(slot);
        Ok(slot)
    }

    fn slot(&self, handle: &str) -> Result<Slot> {
        self.open.get(&number(handle)?).copied().context("the handle is not open")
    }

    fn count(&mut self, count: &str) -> Result<usize> {
        let count = usize::try_from(number(count)?)?;
        self.longest = self.longest.max(count);
        Ok(count)
    }
}

/// Returns the fields of a line; a quoted one keeps its quotes and may contain spaces.
fn fields(line: &str) -> Result<Vec<&str>> {
    let mut fields = Vec::new();
    let mut rest = line.trim();
    while !rest.is_empty() {
        let end = if let Some(quoted) = rest.strip_prefix('"') {
            quoted.find('"').context("a quote is not closed")? + 2
        } else {
            rest.find(' ').unwrap_or(rest.len())
        };
        let (field, after) = rest.split_at(end);
        fields.push(field);
        rest = after.trim_start();
    }
    Ok(fields)
}

fn number(text: &str) -> Result<u64> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.with_context(|| format!("not a number: {text}"))
}

/// Returns how a file is opened, by the options and the disposition of the request.
fn how_opened(options: u64, disposition: u64) -> Result<How> {
    Ok(match disposition {
        1 => How::Existing,
        2 if options & DIRECTORY != 0 => How::Directory,
        2 | 3 => How::Create,
        4 | 5 => How::Truncate,
        other => bail!("unknown disposition {other}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"Deltree "\clients\client1" NT_STATUS_OK
Mkdir "\clients" NT_STATUS_OK
NTCreateX "\clients\client1" 0x1 0x2 7 NT_STATUS_OK
NTCreateX "\clients\client1\a b" 0x40 0x1 8 NT_STATUS_OBJECT_NAME_NOT_FOUND
NTCreateX "\clients\client1\a b" 0x40 0x2 9 NT_STATUS_OK
Close 7 NT_STATUS_OK
WriteX 9 65534 1 1 NT_STATUS_OK

NTCreateX "\clients\client1\a b" 0x0 0x5 11 NT_STATUS_OK
ReadX 11 0 4096 100 NT_STATUS_OK
QUERY_PATH_INFORMATION "\clients\client1\c" 1004 NT_STATUS_OBJECT_NAME_NOT_FOUND
Rename "\clients\client1\a b" "\clients\client1\c" NT_STATUS_OK
FIND_FIRST "\clients\client1\<.TMP" 260 1366 0 NT_STATUS_NO_SUCH_FILE
"#;

    #[test]
    fn operations_are_parsed_with_paths_and_slots() {
        let load = Loadfile::parse(SMALL).unwrap();
        let open = |path, how, slot: Option<usize>| Operation::Open {
            path: PathId(path),
            how,
            slot: slot.map(Slot),
        };
        let expected = [
            Operation::DeleteTree(PathId(0)),
            Operation::Mkdir(PathId(1)),
            open(0, How::Directory, Some(0)),
            open(2, How::Existing, None),
            open(2, How::Create, Some(1)),
            Operation::Close(Slot(0)),
            Operation::Write(Slot(1), 65534, 1),
            open(2, How::Truncate, Some(0)),
            Operation::Read(Slot(0), 0, 100),
            Operation::QueryPath(PathId(3)),
            Operation::Rename(PathId(2), PathId(3)),
            Operation::Find(PathId(4)),
        ];
        assert_eq!(load.operations, expected);
        assert_eq!(load.slots, 2);
        assert_eq!(load.longest, 100);
        let paths = load.paths_of(0);
        assert_eq!(paths[0], b"/clients/client0");
        assert_eq!(paths[2], b"/clients/client0/a b");
        assert_eq!(load.paths_of(12)[4], b"/clients/client12/<.TMP");
    }

    #[test]
    fn line_that_cannot_be_executed_is_an_error() {
        let error = |text: &str| format!("{:#}", Loadfile::parse(text).unwrap_err());
        assert_eq!(error(""), "no operations");
        assert!(error("Fly 1 NT_STATUS_OK").starts_with("line 1: Fly"));
        assert!(error("Flush 1 NT_STATUS_OK").ends_with("the handle is not open"));
        assert!(error("Unlink \"\\a 0x6 NT_STATUS_OK").ends_with("a quote is not closed"));
        let line = "NTCreateX \"\\a\" 0x40 0x9 1 NT_STATUS_OK";
        assert!(error(line).ends_with("unknown disposition 9"));
    }
}
