//! The steps of a story, parsed from their text.
//!
//! 1. `;` separates steps. `times N STEP` repeats the step N times, with `#` replaced by the number
//!    of the repetition, from 1.
//! 2. A path is relative to the root, which is `/`; `%N` is the open handle of that number.
//! 3. Each write has different bytes, which compress well, since images of stories are stored. In a
//!    story that sets [`COMPRESSION`], btrfs finds them compressible, too.

use anyhow::{Context, Result, anyhow, bail};

use crate::manifest::{Bytes, Kind, Mode};
use crate::operation::{AllocateKind, Attributes, Object, Operation, RenameKind, XattrKind};
use crate::pattern::COMPRESSIBLE;

/// The extended attribute that turns the compression of a file on or off.
const COMPRESSION: &str = "btrfs.compression";

/// One step.
#[derive(Clone, Debug)]
pub enum Step {
    /// An operation that changes the filesystem.
    Change(Operation),
    /// fsync(2), or fdatasync(2), of a file or directory.
    Sync {
        /// The object to sync.
        object: Object,
        /// Whether the data, and the metadata needed to read it, is enough.
        data_only: bool,
    },
    /// sync(2): a commit.
    Commit,
    /// Evicts everything from memory that is not dirty, as far as possible.
    Evict,
    /// Closes the filesystem cleanly and opens it again.
    Remount,
    /// Writes a new file until there is no space.
    Fill(Bytes),
    /// A write that is durable when it returns: `pwritev2` with `RWF_DSYNC`.
    WriteThrough(Operation),
    /// Shares a range of one file with another: `FICLONERANGE`.
    Clone {
        /// The source file.
        from: Bytes,
        /// The offset in the source.
        offset: u64,
        /// The number of bytes.
        length: u64,
        /// The target file.
        to: Bytes,
        /// The offset in the target.
        at: u64,
    },
    /// Creates a subvolume.
    Subvolume(Bytes),
    /// Creates a snapshot of the first path at the second.
    Snapshot(Bytes, Bytes),
    /// Deletes a subvolume.
    Delete(Bytes),
}

/// Parses the steps of a story.
pub(super) fn read(text: &str) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    let first_seed = if text.contains(COMPRESSION) { COMPRESSIBLE } else { 2 };
    for step in text.split(';') {
        for words in repeated(step)? {
            let seed = first_seed + u32::try_from(steps.len())? * 2;
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let read = one(&words, seed);
            steps.extend(read.with_context(|| format!("the step `{}`", step.trim()))?);
        }
    }
    Ok(steps)
}

fn repeated(step: &str) -> Result<Vec<Vec<String>>> {
    let words: Vec<&str> = step.split_whitespace().collect();
    let (count, words) = match &words[..] {
        ["times", count, step @ ..] => (count.parse()?, step),
        step => (1, step),
    };
    let numbered =
        |number: u32| words.iter().map(move |word| word.replace('#', &number.to_string()));
    Ok((1..=count).map(|number| numbered(number).collect()).collect())
}

fn one(words: &[&str], seed: u32) -> Result<Vec<Step>> {
    let step = match *words {
        ["file", path, length] => {
            let object = Object::Path(self::path(path));
            let write = Operation::Write { object, offset: 0, length: bytes(length)?, seed };
            return Ok(vec![Step::Change(create(path)), Step::Change(write)]);
        }
        ["fsync", on] => Step::Sync { object: object(on)?, data_only: false },
        ["fdatasync", on] => Step::Sync { object: object(on)?, data_only: true },
        ["sync"] => Step::Commit,
        ["evict"] => Step::Evict,
        ["fill", at] => Step::Fill(path(at)),
        ["remount"] => Step::Remount,
        ["write-through", on, length, "at", offset] => {
            Step::WriteThrough(write(object(on)?, length, offset, seed)?)
        }
        ["clone", from, offset, length, to, at] => Step::Clone {
            from: path(from),
            offset: bytes(offset)?,
            length: bytes(length)?,
            to: path(to),
            at: bytes(at)?,
        },
        ["subvolume", at] => Step::Subvolume(path(at)),
        ["snapshot", of, at] => Step::Snapshot(path(of), path(at)),
        ["delete", at] => Step::Delete(path(at)),
        _ => Step::Change(change(words, seed)?),
    };
    Ok(vec![step])
}

fn change(words: &[&str], seed: u32) -> Result<Operation> {
    if let Some(name) = of_name(words)? {
        return Ok(name);
    }
    of_content(words, seed)?.map_or_else(|| of_attributes(words), Ok)
}

fn of_name(words: &[&str]) -> Result<Option<Operation>> {
    let mode = Mode::new(0o644);
    let rename = |from, to, kind| Operation::Rename { from: path(from), to: path(to), kind };
    Ok(Some(match *words {
        ["create", at] => create(at),
        ["mkdir", at] => Operation::Mkdir { path: path(at), mode: Mode::new(0o755) },
        ["fifo", at] => Operation::Mknod { path: path(at), kind: Kind::Fifo, mode, rdev: (0, 0) },
        ["device", at] => Operation::Mknod { path: path(at), kind: Kind::Char, mode, rdev: (1, 3) },
        ["symlink", at, target] => Operation::Symlink { path: path(at), target: raw(target) },
        ["link", from, to] => Operation::Link { from: object(from)?, to: path(to) },
        ["unlink", at] => Operation::Unlink { path: path(at) },
        ["rmdir", at] => Operation::Rmdir { path: path(at) },
        ["rename", from, to] => rename(from, to, RenameKind::Plain),
        ["exchange", from, to] => rename(from, to, RenameKind::Exchange),
        ["whiteout", from, to] => rename(from, to, RenameKind::Whiteout),
        ["tmpfile", number, dir] => {
            Operation::Tmpfile { dir: path(dir), handle: handle(number)?, mode }
        }
        ["open", number, at] => Operation::Open { path: path(at), handle: handle(number)? },
        ["close", number] => Operation::Close { handle: handle(number)? },
        _ => return Ok(None),
    }))
}

fn of_content(words: &[&str], seed: u32) -> Result<Option<Operation>> {
    Ok(Some(match *words {
        ["write", on, length] => write(object(on)?, length, "0", seed)?,
        ["write", on, length, "at", offset] => write(object(on)?, length, offset, seed)?,
        ["append", on, length] => {
            Operation::Append { object: object(on)?, length: bytes(length)?, seed }
        }
        ["truncate", on, size] => Operation::Truncate { object: object(on)?, size: bytes(size)? },
        [kind, on, length, "at", offset] if allocate(kind).is_some() => Operation::Allocate {
            object: object(on)?,
            offset: bytes(offset)?,
            length: bytes(length)?,
            kind: allocate(kind).expect("a kind, as was asked"),
        },
        _ => return Ok(None),
    }))
}

fn of_attributes(words: &[&str]) -> Result<Operation> {
    Ok(match *words {
        ["chmod", on, mode] => {
            let mode = Some(mode.parse().map_err(|error| anyhow!("{error}"))?);
            let attributes = Attributes { mode, ..Attributes::default() };
            Operation::Setattr { object: object(on)?, attributes }
        }
        ["setxattr", on, name, value] => {
            let name = raw(name);
            let value = raw(value);
            Operation::SetXattr { object: object(on)?, name, value, kind: XattrKind::Any }
        }
        ["removexattr", on, name] => {
            Operation::RemoveXattr { object: object(on)?, name: raw(name) }
        }
        _ => bail!("is none"),
    })
}

fn create(at: &str) -> Operation {
    Operation::Create { path: path(at), mode: Mode::new(0o644) }
}

fn write(object: Object, length: &str, offset: &str, seed: u32) -> Result<Operation> {
    Ok(Operation::Write { object, offset: bytes(offset)?, length: bytes(length)?, seed })
}

fn allocate(word: &str) -> Option<AllocateKind> {
    Some(match word {
        "reserve" => AllocateKind::Reserve,
        "prealloc" => AllocateKind::ReserveKeepSize,
        "punch" => AllocateKind::Punch,
        "zero" => AllocateKind::Zero,
        _ => return None,
    })
}

/// Returns a path in the form of operations: without a leading slash.
pub(super) fn path(word: &str) -> Bytes {
    raw(word.trim_matches('/'))
}

fn raw(word: &str) -> Bytes {
    word.as_bytes().into()
}

fn object(word: &str) -> Result<Object> {
    if word.starts_with('%') { Ok(Object::Handle(handle(word)?)) } else { Ok(path_object(word)) }
}

fn path_object(word: &str) -> Object {
    Object::Path(path(word))
}

fn handle(word: &str) -> Result<u8> {
    Ok(word.strip_prefix('%').context("a number of what is open starts with %")?.parse()?)
}

/// Parses a number of bytes with an optional suffix `k` (1024) or `m` (1024 * 1024).
fn bytes(word: &str) -> Result<u64> {
    let (digits, shift) = match (word.strip_suffix('k'), word.strip_suffix('m')) {
        (Some(digits), _) => (digits, 10),
        (_, Some(digits)) => (digits, 20),
        _ => (word, 0),
    };
    Ok(digits.parse::<u64>().with_context(|| format!("bytes: {word}"))? << shift)
}
