//! `du`: shows the space that files take, in the manner of coreutils. Errors are reported, and the
//! walk continues.
//!
//! 1. A size is that of the blocks that stat(2) shows in Linux, which are whole sectors also if the
//!    data is inline; a file with several names counts once.
//! 2. With several paths, every inode counts once: what an earlier path contains is left out of
//!    later ones.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use serde_json::json;
use userbtrfs::{FileKind, InodeId, Metadata, Quoted, WalkEntry};

use crate::cli::args::Format;
use crate::cli::output::{JsonList, stdout, with_name};
use crate::cli::report::ExitStatus;
use crate::cli::session::{RunVerb, Session};
use crate::cli::text::{in_sectors, short_size, shown};

/// The options that choose a unit: the last one has effect.
const UNITS: [&str; 5] = ["bytes", "kilobytes", "megabytes", "human_readable", "si"];

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
#[allow(clippy::struct_excessive_bools, reason = "each is an option of du")]
pub(crate) struct DuArgs {
    /// Paths in the image, which may have the wildcards *, ? and [ [default: /]
    paths: Vec<OsString>,
    /// Show files too, not only directories
    #[arg(short, long)]
    all: bool,
    /// Show only one line for each path
    #[arg(short, long, conflicts_with_all = ["all", "max_depth"])]
    summarize: bool,
    /// Show a total
    #[arg(short = 'c', long)]
    total: bool,
    /// Show only what is at most N levels below a path
    #[arg(short = 'd', long, value_name = "N")]
    max_depth: Option<usize>,
    /// Show the sizes of files and links, not the space that they take
    #[arg(long)]
    apparent_size: bool,
    /// Print apparent sizes in bytes
    #[arg(short, long, overrides_with_all = UNITS)]
    bytes: bool,
    /// Print sizes in KiB (default)
    #[arg(short, overrides_with_all = UNITS)]
    kilobytes: bool,
    /// Print sizes in MiB
    #[arg(short, overrides_with_all = UNITS)]
    megabytes: bool,
    /// Print sizes with a suffix, base 1024
    #[arg(short = 'h', long, overrides_with_all = UNITS)]
    human_readable: bool,
    /// Print sizes with a suffix, base 1000
    #[arg(long, overrides_with_all = UNITS)]
    si: bool,
    /// Count files under each of their names, and under each path
    #[arg(short = 'l', long)]
    count_links: bool,
    /// Do not descend into other subvolumes
    #[arg(short = 'x', long, visible_alias = "one-subvolume")]
    one_file_system: bool,
    /// End each line with NUL, not with a newline, and print names as they are
    #[arg(short = '0', long)]
    null: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

impl RunVerb for DuArgs {
    fn run(&self, session: &Session) -> Result<ExitCode> {
        let failures = ExitStatus::default();
        match session.global.format {
            Format::Text => {
                let mut out = stdout();
                let mut line = |bytes: u64, path: &[u8]| -> Result<()> {
                    write!(out, "{}\t", self.size(bytes))?;
                    if self.null {
                        out.write_all(path)?;
                        out.write_all(b"\0")?;
                    } else {
                        writeln!(out, "{}", Quoted(path))?;
                    }
                    Ok(())
                };
                let total = self.each(session, &failures, &mut line)?;
                if self.total {
                    line(total, b"total")?;
                }
                out.flush()?;
            }
            Format::Json => {
                let mut list = JsonList::start(stdout(), "du")?;
                let total = self.each(session, &failures, |bytes, path| {
                    list.add(&with_name(json!({ "size": bytes }), "path", path))
                })?;
                if self.total {
                    list.add(&json!({ "total": total }))?;
                }
                list.end()?;
            }
        }
        Ok(failures.code())
    }
}

/// A directory that was entered, with what is counted in it until now.
struct Level {
    path: Vec<u8>,
    bytes: u64,
}

/// The inodes that were counted.
struct Seen {
    /// False if only inodes with several names are remembered, since no other is met again.
    is_of_all: bool,
    inodes: HashSet<InodeId>,
}

impl Seen {
    /// Adds an inode; returns false if it was counted before.
    fn add(&mut self, metadata: &Metadata) -> bool {
        let is_met_again = self.is_of_all || (metadata.nlink > 1 && !metadata.is_dir());
        !is_met_again || self.inodes.insert(metadata.id)
    }
}

/// The walk below one path.
struct Walk<'a, F> {
    args: &'a DuArgs,
    levels: Vec<Level>,
    show: F,
}

impl<F: FnMut(u64, &[u8]) -> Result<()>> Walk<'_, F> {
    /// Counts an entry, and shows it if it is no directory.
    fn count(&mut self, entry: WalkEntry, bytes: u64) -> Result<()> {
        if entry.kind == FileKind::Directory {
            self.levels.push(Level { path: entry.path, bytes });
            return Ok(());
        }
        if let Some(level) = self.levels.last_mut() {
            level.bytes = level.bytes.saturating_add(bytes);
        }
        if entry.depth == 0 || self.args.all {
            self.show(&entry.path, bytes, entry.depth)?;
        }
        Ok(())
    }

    /// Shows the directories that are complete: those that have `depth` levels above, or more.
    fn leave(&mut self, depth: usize) -> Result<()> {
        while self.levels.len() > depth {
            let Some(Level { path, bytes }) = self.levels.pop() else { return Ok(()) };
            if let Some(above) = self.levels.last_mut() {
                above.bytes = above.bytes.saturating_add(bytes);
            }
            self.show(&path, bytes, self.levels.len())?;
        }
        Ok(())
    }

    fn show(&mut self, path: &[u8], bytes: u64, depth: usize) -> Result<()> {
        let most = if self.args.summarize { Some(0) } else { self.args.max_depth };
        if most.is_some_and(|most| depth > most) { Ok(()) } else { (self.show)(bytes, path) }
    }
}

impl DuArgs {
    /// Calls `show` with the bytes and the path of each line, and returns the total.
    fn each(
        &self,
        session: &Session,
        failures: &ExitStatus,
        mut show: impl FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<u64> {
        let paths = session.expand(&session.paths_or_start(&self.paths));
        let mut seen = Seen { is_of_all: paths.len() > 1, inodes: HashSet::new() };
        let mut total = 0_u64;
        for path in &paths {
            let bytes = path.as_encoded_bytes();
            let mut below = || -> Result<()> {
                let inode = session.filesystem.lookup_no_follow(bytes)?;
                let subvolume = inode.id().subvolume;
                let mut entries = inode.walk(bytes);
                let mut walk = Walk { args: self, levels: Vec::new(), show: &mut show };
                while let Some(entry) = entries.next() {
                    let entry = match entry {
                        Ok(entry) => entry,
                        Err(error) => {
                            failures.report(&anyhow::Error::from(error).context(shown(path)));
                            continue;
                        }
                    };
                    walk.leave(entry.depth)?;
                    let is_foreign = entry.inode.id().subvolume != subvolume;
                    if is_foreign && self.one_file_system && entry.kind == FileKind::Directory {
                        entries.skip_dir();
                        continue;
                    }
                    let named = Quoted(&entry.path).to_string();
                    let counted = self.bytes_of(&entry, &mut seen).and_then(|bytes| {
                        let Some(bytes) = bytes else {
                            if entry.kind == FileKind::Directory {
                                entries.skip_dir();
                            }
                            return Ok(());
                        };
                        total = total.saturating_add(bytes);
                        walk.count(entry, bytes)
                    });
                    failures.continue_after(counted.context(named))?;
                }
                walk.leave(0)
            };
            failures.continue_after(below().with_context(|| shown(path)))?;
        }
        Ok(total)
    }

    /// Returns the bytes of an entry; `None` if it was counted under another name or path.
    fn bytes_of(&self, entry: &WalkEntry, seen: &mut Seen) -> Result<Option<u64>> {
        let metadata = entry.inode.metadata()?;
        if !self.count_links && !seen.add(&metadata) {
            return Ok(None);
        }
        Ok(Some(if !self.apparent_size && !self.bytes {
            in_sectors(metadata.allocated)
        } else if metadata.is_file() || metadata.is_symlink() {
            metadata.size
        } else {
            0
        }))
    }

    /// Returns a size in the unit of the options, rounded up.
    fn size(&self, bytes: u64) -> String {
        match () {
            () if self.bytes => bytes.to_string(),
            () if self.megabytes => bytes.div_ceil(1 << 20).to_string(),
            () if self.human_readable => short_size(bytes, 1024),
            () if self.si => short_size(bytes, 1000),
            () => bytes.div_ceil(1 << 10).to_string(),
        }
    }
}
