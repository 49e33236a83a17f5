//! The contents that a crash may leave of the files of a model.
//!
//! 1. A history has all contents of each file since a moment at which everything was durable, that
//!    of this moment first.
//! 2. Data is written back at any time, in units of one sector. So a file may have any length
//!    between the smallest and the largest that it had since, and each sector is as it was at some
//!    time when the file reached it, cut or padded with zeros to the length found.
//! 3. After an error, data that was not written may be dropped, and later writes over it mix with
//!    the old content: then rule 2 applies to each byte independently.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use anyhow::{Context, ensure};
use userbtrfs::File;
use userbtrfs_format::SECTOR;

use crate::model::{Content, FileId, Model};
use crate::operation::{Operation, join};

/// The number of bytes per comparison.
const PART: usize = 4096;

/// The contents of files since a moment at which everything was durable.
#[derive(Clone, Debug, Default)]
pub struct History {
    files: HashMap<FileId, Vec<Content>>,
}

impl History {
    /// Starts a history; everything in the model is durable now.
    pub fn from(model: &Model) -> Self {
        let mut history = Self::default();
        for (id, content) in model.contents() {
            history.files.insert(id, vec![content.clone()]);
        }
        history
    }

    /// Records the effect of an operation; `model` is the state after it.
    pub fn note(&mut self, model: &Model, operation: &Operation) {
        if matches!(operation, Operation::Snapshot { .. }) {
            // The files of a snapshot are durable as soon as they are there.
            for (id, content) in model.contents() {
                self.files.entry(id).or_insert_with(|| vec![content.clone()]);
            }
        }
        let Some(id) = operation.object().and_then(|object| model.file_id(&object)) else { return };
        // A file that was never durable was empty at first.
        let contents = self.files.entry(id).or_insert_with(|| vec![Content::default()]);
        if matches!(operation, Operation::Replace { .. }) {
            contents.push(Content::default());
        }
        contents.push(model.content_of(id).clone());
    }

    /// Records that the files of a snapshot may have all contents that those of its source had:
    /// for a snapshot that is made when errors may have dropped data. `model` is the state after
    /// it.
    pub fn note_copies(&mut self, model: &Model, operation: &Operation) {
        let Operation::Snapshot { source, path, .. } = operation else { return };
        let files = model.files();
        let ids: HashMap<_, _> = files.iter().map(|(path, id)| (&path[..], *id)).collect();
        for (copy, id) in &files {
            let source = below(copy, path.as_slice()).map(|rest| join(source.as_slice(), rest));
            let source = source.and_then(|source| ids.get(&source[..]));
            if let Some(contents) = source.and_then(|source| self.files.get(source)).cloned() {
                self.files.entry(*id).or_default().extend(contents);
            }
        }
    }

    /// Checks the bytes read from a range of a file, if errors may have dropped data.
    pub fn check_read(&self, id: FileId, range: Range<u64>, found: &[u8]) -> anyhow::Result<()> {
        let empty = [Content::default()];
        let contents = self.files.get(&id).map_or(&empty[..], Vec::as_slice);
        check_answer(contents, range, found)
    }

    /// Checks the content of a file after a crash; `by_bytes` if errors may have dropped data.
    pub fn check(&self, id: FileId, file: &File, by_bytes: bool) -> anyhow::Result<()> {
        let empty = [Content::default()];
        let contents = self.files.get(&id).map_or(&empty[..], Vec::as_slice);
        check_content(contents, file, by_bytes)
    }
}

/// Returns the part of a path below a directory.
fn below<'a>(path: &'a [u8], dir: &[u8]) -> Option<&'a [u8]> {
    path.strip_prefix(dir)?.strip_prefix(b"/")
}

/// Checks a read of a range: the file had a matching length at some time, and each byte was there
/// at some time.
fn check_answer(contents: &[Content], range: Range<u64>, found: &[u8]) -> anyhow::Result<()> {
    let start = range.start;
    let end = range.start + found.len() as u64;
    let sizes = contents.iter().map(Content::size);
    let least = sizes.clone().min().unwrap_or(0);
    let most = sizes.max().unwrap_or(0);
    ensure!(found.is_empty() || end <= most, "read up to {end}, never was longer than {most}");
    ensure!(end >= range.end.min(least), "read up to {end} of {least} at least");
    let mut at = start;
    for part in found.chunks(PART) {
        check_sector(contents, at, part, 1).with_context(|| format!("of {contents:?}"))?;
        at += part.len() as u64;
    }
    Ok(())
}

/// Checks that a crash may have left this content of a file with these contents; `by_bytes` if
/// errors may have dropped data. Fastest if the likely contents are first.
pub fn check_content(contents: &[Content], file: &File, by_bytes: bool) -> anyhow::Result<()> {
    let sizes = contents.iter().map(Content::size);
    let size = file.len();
    let unit = if by_bytes { 1 } else { SECTOR };
    let least = sizes.clone().min().unwrap_or(0);
    let most = sizes.max().unwrap_or(0);
    ensure!((least..=most).contains(&size), "its size is {size}, not {least} to {most}");
    for start in sectors(contents, file)? {
        let end = size.min(start + SECTOR);
        let mut found = vec![0; usize::try_from(end - start)?];
        ensure!(file.read_at(&mut found, start)? == found.len(), "a short read at {start}");
        check_sector(contents, start, &found, unit)
            .with_context(|| format!("in {size} bytes, of {contents:?}"))?;
    }
    Ok(())
}

/// Returns the sectors that may have data, in the contents or in the file.
fn sectors(contents: &[Content], file: &File) -> anyhow::Result<BTreeSet<u64>> {
    let mut ranges: Vec<(u64, u64)> = contents.iter().flat_map(Content::runs).collect();
    let found = crate::walk_ours::segments(file)?;
    ranges.extend(found.into_iter().map(|(start, length)| (start, start + length)));
    let size = file.len();
    let within = |(start, end): (u64, u64)| {
        (start / SECTOR..end.min(size).div_ceil(SECTOR)).map(|sector| sector * SECTOR)
    };
    Ok(ranges.into_iter().flat_map(within).collect())
}

/// Checks that each unit of a sector was there at some time.
fn check_sector(contents: &[Content], start: u64, found: &[u8], unit: u64) -> anyhow::Result<()> {
    let end = start + found.len() as u64;
    let candidates = || {
        let reaching = contents.iter().filter(|content| unit == 1 || content.size() > start);
        reaching.map(|content| {
            let mut bytes = content.read(start, end);
            bytes.resize(found.len(), 0);
            bytes
        })
    };
    if candidates().any(|bytes| bytes == found) {
        return Ok(());
    }
    let candidates: Vec<_> = candidates().collect();
    let unit = usize::try_from(unit)?;
    for (index, part) in found.chunks(unit).enumerate() {
        let at = index * unit;
        let was_there = candidates.iter().any(|bytes| bytes[at..at + part.len()] == *part);
        ensure!(was_there, "what is at {} never was there", start + at as u64);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern;

    #[test]
    fn read_may_return_any_earlier_content() {
        let mut old = Content::default();
        let mut new = Content::default();
        old.write(0, 10_000, 1);
        new.write(0, 6000, 2);
        let contents = [old.clone(), new];
        let read = |range, found: &[u8]| check_answer(&contents, range, found).is_ok();
        let mixed = [pattern::bytes(1, 0, 5000), pattern::bytes(2, 5000, 1000), vec![0; 500]];
        assert!(read(0..10_000, &old.read(0, 10_000)), "the old one");
        assert!(read(0..6500, &mixed.concat()), "some of each, and zeros where it was shorter");
        assert!(!read(0..6500, &pattern::bytes(3, 0, 6500)), "what never was there");
        assert!(!read(0..10_000, &vec![0; 10_000]), "zeros where there never were any");
        assert!(!read(0..10_000, &old.read(0, 5999)), "less than there ever was");
        assert!(!read(9000..20_000, &[&old.read(9000, 10_000)[..], &[0]].concat()), "more");
        assert!(read(12_000..20_000, &[]), "nothing behind the end");
    }
}
