//! `tree`: draws the tree below paths, with sorted names, as tree(1) does. Errors are reported, and
//! the drawing continues.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;
use std::vec::IntoIter;

use anyhow::{Context as _, Result};
use serde_json::json;
use userbtrfs::{Dir, DirEntry, Error, FileKind, Inode, InodeId, Quoted, join_path};

use crate::cli::args::Format;
use crate::cli::output::{JsonList, stdout, with_name};
use crate::cli::report::ExitStatus;
use crate::cli::session::{RunVerb, Session};
use crate::cli::text;
use crate::cli::text::shown;

/// The parts of the drawing: lines past a directory that goes on, to an entry, and to the last one.
const BAR: &str = "\u{2502}   ";
const BRANCH: &str = "\u{251c}\u{2500}\u{2500} ";
const LAST: &str = "\u{2514}\u{2500}\u{2500} ";

#[derive(clap::Args)]
pub(crate) struct TreeArgs {
    /// Paths to start at [default: /]
    paths: Vec<OsString>,
    /// Include names that start with a dot
    #[arg(short)]
    all: bool,
    /// Directories only
    #[arg(short, long = "dirs-only")]
    dirs_only: bool,
    /// Descend at most N levels
    #[arg(short = 'L', long = "level", value_name = "N")]
    level: Option<usize>,
    /// Do not descend into other subvolumes
    #[arg(short = 'x', long)]
    one_subvolume: bool,
}

impl RunVerb for TreeArgs {
    fn run(&self, session: &Session) -> Result<ExitCode> {
        let failures = ExitStatus::default();
        match session.global.format {
            Format::Text => self.draw(session, &failures)?,
            Format::Json => {
                let mut list = JsonList::start(stdout(), "tree")?;
                self.each(session, &failures, |place, inode| {
                    let kind = text::kind(inode.metadata()?.kind);
                    let document = json!({ "type": kind, "depth": place.depth() });
                    list.add(&with_name(document, "path", place.path))
                })?;
                list.end()?;
            }
        }
        Ok(failures.code())
    }
}

/// The place of an entry in the tree.
struct Place<'a> {
    path: &'a [u8],
    name: &'a [u8],
    /// For each level down to the entry, whether it is the last one of its directory.
    is_last: &'a [bool],
}

impl Place<'_> {
    fn depth(&self) -> usize {
        self.is_last.len()
    }

    /// Returns the lines that lead to the entry.
    fn lines(&self) -> String {
        let Some((last, above)) = self.is_last.split_last() else { return String::new() };
        let bars = above.iter().map(|is_last| if *is_last { "    " } else { BAR });
        let corner = if *last { LAST } else { BRANCH };
        bars.chain([corner]).collect()
    }
}

/// A directory whose entries are being visited.
struct Level {
    dir: Dir,
    path: Vec<u8>,
    entries: IntoIter<DirEntry>,
}

impl TreeArgs {
    fn draw(&self, session: &Session, failures: &ExitStatus) -> Result<()> {
        let mut out = stdout();
        let mut dirs = 0_u64;
        let mut files = 0_u64;
        self.each(session, failures, |place, inode| {
            let metadata = inode.metadata()?;
            if place.depth() > 0 {
                *(if metadata.is_dir() { &mut dirs } else { &mut files }) += 1;
            }
            write!(out, "{}{}", place.lines(), Quoted(place.name))?;
            if metadata.is_symlink() {
                write!(out, " -> {}", Quoted(&inode.read_link()?))?;
            }
            Ok(writeln!(out)?)
        })?;
        let count = |number: u64, one: &str, many: &str| {
            format!("{number} {}", if number == 1 { one } else { many })
        };
        write!(out, "\n{}", count(dirs, "directory", "directories"))?;
        if !self.dirs_only {
            write!(out, ", {}", count(files, "file", "files"))?;
        }
        writeln!(out)?;
        Ok(out.flush()?)
    }

    /// Calls `show` with each entry, parents first.
    fn each(
        &self,
        session: &Session,
        failures: &ExitStatus,
        mut show: impl FnMut(&Place<'_>, &Inode) -> Result<()>,
    ) -> Result<()> {
        for path in session.paths_or_start(&self.paths).iter() {
            let mut below = || -> Result<()> {
                let bytes = path.as_encoded_bytes();
                let inode = session.filesystem.lookup(bytes)?;
                show(&Place { path: bytes, name: bytes, is_last: &[] }, &inode)?;
                if inode.metadata()?.is_dir() && self.level != Some(0) {
                    self.below(&inode, bytes, failures, &mut show)?;
                }
                Ok(())
            };
            failures.continue_after(below().with_context(|| shown(path)))?;
        }
        Ok(())
    }

    fn below(
        &self,
        start: &Inode,
        path: &[u8],
        failures: &ExitStatus,
        show: &mut impl FnMut(&Place<'_>, &Inode) -> Result<()>,
    ) -> Result<()> {
        let subvolume = start.id().subvolume;
        let mut levels = vec![self.level(start.open_dir()?, path.to_vec(), failures)];
        let mut is_last = Vec::new();
        while let Some(level) = levels.last_mut() {
            let Some(entry) = level.entries.next() else {
                levels.pop();
                is_last.pop();
                continue;
            };
            is_last.push(level.entries.len() == 0);
            let path = join_path(&level.path, entry.name());
            let place = Place { path: &path, name: entry.name(), is_last: &is_last };
            let mut visit = || -> Result<Option<Dir>> {
                let inode = level.dir.follow(&entry)?;
                show(&place, &inode)?;
                let is_foreign = self.one_subvolume && inode.id().subvolume != subvolume;
                let is_deep = self.level.is_some_and(|most| place.depth() >= most);
                let enters = inode.metadata()?.is_dir() && !is_deep && !is_foreign;
                Ok(if enters { Some(level.dir.enter(&entry)?) } else { None })
            };
            let entered = match visit() {
                Ok(Some(dir)) => loop_free(&levels, dir).map_err(anyhow::Error::from).map(Some),
                other => other,
            };
            match entered {
                Ok(Some(dir)) => levels.push(self.level(dir, path, failures)),
                Ok(None) => drop(is_last.pop()),
                Err(error) => {
                    is_last.pop();
                    let named = || Quoted(&path).to_string();
                    failures.continue_after(Err(error).with_context(named))?;
                }
            }
        }
        Ok(())
    }

    /// Returns the entries of a directory that are shown, sorted by name.
    fn level(&self, dir: Dir, path: Vec<u8>, failures: &ExitStatus) -> Level {
        let mut entries = Vec::new();
        for entry in dir.entries() {
            match entry {
                Ok(entry) => {
                    let is_hidden = !self.all && entry.name().starts_with(b".");
                    let is_dir = || entry.kind().is_none_or(|kind| kind == FileKind::Directory);
                    if !is_hidden && (!self.dirs_only || is_dir()) {
                        entries.push(entry);
                    }
                }
                Err(error) => {
                    failures.report(&anyhow::Error::from(error).context(Quoted(&path).to_string()));
                }
            }
        }
        entries.sort_by(|a, b| a.name().cmp(b.name()));
        Level { dir, path, entries: entries.into_iter() }
    }
}

/// Returns a directory unless it contains itself.
fn loop_free(levels: &[Level], dir: Dir) -> Result<Dir, Error> {
    let id: InodeId = dir.inode().id();
    if levels.iter().any(|level| level.dir.inode().id() == id) {
        return Err(Error::DirectoryLoop(id));
    }
    Ok(dir)
}
