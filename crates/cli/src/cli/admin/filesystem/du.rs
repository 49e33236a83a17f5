//! `filesystem du`: the space that files take, alone or shared with others, in the format of
//! btrfs-progs.
//!
//! 1. A file with several names is counted once in each argument.
//! 2. Of a directory, the shared space is counted once for each address; of a file that is an
//!    argument, once for each range of the file.
//! 3. The server of a mount finds an argument by its inode number, and answers with its rows, which
//!    it holds in memory: about 100 bytes a file, and with `--summarize` one row.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use userbtrfs::{FileKind, Filesystem, Inode, SharedRange};

use crate::cli::admin::mounted::answer_at;
use crate::cli::admin::subvolume::mounted::is_in_mount;
use crate::cli::admin::subvolume::place::refuse_options;
use crate::cli::args::{Format, Global, RootArgs};
use crate::cli::output::{stdout, with_name, write_json, write_listed};
use crate::cli::report::ExitStatus;
use crate::cli::session::{Access, Session};
use crate::cli::size_units::{SizeArgs, Units};
use crate::cli::text::shown;

#[derive(clap::Args)]
pub(crate) struct DuArgs {
    #[command(flatten)]
    root: RootArgs,
    /// Paths in the image, or more paths in mounts
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,
    /// Show only one line for each path
    #[arg(short, long)]
    summarize: bool,
    #[command(flatten)]
    sizes: SizeArgs,
}

/// A line of the output.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Row {
    total: u64,
    exclusive: u64,
    /// `None` below an argument.
    set_shared: Option<u64>,
    path: Vec<u8>,
}

/// The lines of one argument.
struct Rows {
    summarize: bool,
    rows: Vec<Row>,
}

impl Rows {
    /// Adds a row, unless only that of the argument is wanted.
    fn push(&mut self, row: Row) {
        if !self.summarize || row.set_shared.is_some() {
            self.rows.push(row);
        }
    }
}

pub(super) fn run(global: &Global, args: &DuArgs) -> Result<ExitCode> {
    let first = &args.root.image.image;
    let failures = ExitStatus::default();
    let mut all = Vec::new();
    let mut add = |path: &OsStr, rows: Result<Vec<Row>>| match rows {
        Ok(rows) => all.extend(rows),
        Err(error) => failures.report(&error.context(shown(path))),
    };
    if is_path_in_mount(first) {
        refuse_options(&args.root)?;
        for path in [first.as_os_str()].into_iter().chain(args.paths.iter().map(|it| &**it)) {
            add(path, rows_at(Path::new(path), args.summarize));
        }
    } else {
        ensure!(!args.paths.is_empty(), "{}: no path in the image is given", first.display());
        let filesystem = Session::open(global, &args.root, Access::Read)?.filesystem;
        for path in &args.paths {
            let bytes = path.as_encoded_bytes();
            let inode = filesystem.lookup(bytes).map_err(anyhow::Error::from);
            add(path, inode.and_then(|it| rows(&filesystem, &it, bytes, args.summarize)));
        }
    }
    let mut out = stdout();
    write_rows(&mut out, &all, args.sizes.units(), global)?;
    out.flush()?;
    Ok(failures.code())
}

/// Returns true if a path is in a mount of ours; a file of a mount is no image.
fn is_path_in_mount(path: &Path) -> bool {
    match path.canonicalize() {
        Ok(path) if path.is_dir() => is_in_mount(&path),
        Ok(path) => path.parent().is_some_and(is_in_mount),
        Err(_) => is_in_mount(path),
    }
}

/// Returns the rows of a path in a mount, from its server.
fn rows_at(path: &Path, summarize: bool) -> Result<Vec<Row>> {
    let canonical = path.canonicalize()?;
    let number = canonical.metadata()?.ino();
    let mut words: Vec<OsString> = vec!["filesystem-du".into()];
    words.extend(summarize.then(|| "-s".into()));
    words.extend(["--".into(), number.to_string().into(), path.into()]);
    let dir = if canonical.is_dir() { Some(&*canonical) } else { canonical.parent() };
    let answer = answer_at(dir.context("path has no directory")?, &words)?;
    let rows = answer.split_inclusive(|byte| *byte == 0).map(Row::decode);
    rows.collect::<Option<_>>().context("invalid answer")
}

/// Returns the rows of everything at and below an inode, whose path is `path`; none if it is
/// neither a file nor a directory.
pub(super) fn rows(
    filesystem: &Filesystem,
    inode: &Inode,
    path: &[u8],
    summarize: bool,
) -> Result<Vec<Row>> {
    let mut sharing = filesystem.extent_sharing()?;
    let mut seen = HashSet::new();
    let mut rows = Rows { summarize, rows: Vec::new() };
    let mut dirs: Vec<Row> = Vec::new();
    let mut shared = Vec::new();
    for entry in inode.walk(path) {
        let entry = entry?;
        while dirs.len() > entry.depth {
            leave(&mut dirs, &mut rows);
        }
        let mut row = Row { total: 0, exclusive: 0, set_shared: None, path: entry.path };
        match entry.kind {
            FileKind::Directory => dirs.push(row),
            FileKind::Regular if seen.insert(entry.inode.id()) => {
                let found = sharing.file_use(entry.inode.id())?;
                row.total = found.total;
                row.exclusive = found.exclusive_bytes();
                match dirs.last_mut() {
                    Some(dir) => dir.add(&row),
                    None => row.set_shared = Some(found.shared_bytes()),
                }
                shared.extend(found.shared);
                rows.push(row);
            }
            _ => {}
        }
    }
    while !dirs.is_empty() {
        if let [top] = dirs.as_mut_slice() {
            top.set_shared = Some(covered(std::mem::take(&mut shared)));
        }
        leave(&mut dirs, &mut rows);
    }
    Ok(rows.rows)
}

/// Completes the innermost directory.
fn leave(dirs: &mut Vec<Row>, rows: &mut Rows) {
    if let Some(dir) = dirs.pop() {
        if let Some(above) = dirs.last_mut() {
            above.add(&dir);
        }
        rows.push(dir);
    }
}

/// Returns the number of addresses in ranges that may overlap.
fn covered(mut ranges: Vec<SharedRange>) -> u64 {
    ranges.sort_by_key(|range| range.logical);
    let mut end = 0;
    let mut sum: u64 = 0;
    for range in ranges {
        let until = range.logical.saturating_add(range.len);
        sum = sum.saturating_add(until.saturating_sub(range.logical.max(end)));
        end = until.max(end);
    }
    sum
}

fn write_rows(out: &mut dyn Write, rows: &[Row], units: Units, global: &Global) -> Result<()> {
    if global.format == Format::Json {
        let rows: Value = rows.iter().map(Row::document).collect();
        return write_json(out, "filesystem-du", &rows);
    }
    writeln!(out, "{:>10}  {:>10}  {:>10}  Filename", "Total", "Exclusive", "Set shared")?;
    for row in rows {
        let total = units.text(row.total);
        let exclusive = units.text(row.exclusive);
        let shared = row.set_shared.map_or_else(|| "-".to_owned(), |bytes| units.text(bytes));
        let sizes = format!("{total:>10}  {exclusive:>10}  {shared:>10}  ");
        write_listed(out, &sizes, &row.path, global)?;
    }
    Ok(())
}

impl Row {
    fn add(&mut self, inner: &Self) {
        self.total = self.total.saturating_add(inner.total);
        self.exclusive = self.exclusive.saturating_add(inner.exclusive);
    }

    /// Appends the row to an answer of a server.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let shared = self.set_shared.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string());
        out.extend_from_slice(format!("{} {} {shared} ", self.total, self.exclusive).as_bytes());
        out.extend_from_slice(&self.path);
        out.push(0);
    }

    /// Parses a row with the NUL at its end.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut parts = bytes.strip_suffix(&[0])?.splitn(4, |byte| *byte == b' ');
        let mut text = || str::from_utf8(parts.next()?).ok();
        let total = text()?.parse().ok()?;
        let exclusive = text()?.parse().ok()?;
        let set_shared = match text()? {
            "-" => None,
            bytes => Some(bytes.parse().ok()?),
        };
        Some(Self { total, exclusive, set_shared, path: parts.next()?.to_vec() })
    }

    fn document(&self) -> Value {
        let document = json!({
            "total": self.total,
            "exclusive": self.exclusive,
            "set_shared": self.set_shared,
        });
        with_name(document, "path", &self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_in_several_ranges_are_counted_once() {
        let range = |logical, len| SharedRange { logical, len };
        assert_eq!(covered(Vec::new()), 0);
        let ranges = vec![range(100, 50), range(0, 10), range(120, 10), range(140, 20)];
        assert_eq!(covered(ranges), 70);
        assert_eq!(covered(vec![range(u64::MAX - 1, 5), range(7, 1)]), 2);
    }

    #[test]
    fn rows_survive_the_answer_of_a_server() {
        for set_shared in [None, Some(7)] {
            let row = Row { total: 9, exclusive: 2, set_shared, path: b"a b \xff\n-".to_vec() };
            let mut bytes = Vec::new();
            row.encode(&mut bytes);
            assert_eq!(Row::decode(&bytes), Some(row));
        }
        for bytes in [&b""[..], b"\0", b"1 2 3\0", b"1 x - p\0", b"1 2 - p"] {
            assert_eq!(Row::decode(bytes), None);
        }
    }
}
