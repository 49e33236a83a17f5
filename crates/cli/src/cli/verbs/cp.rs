//! `cp`: copies files and trees within the image.

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use anyhow::Result;
use userbtrfs::copy::{CopyOptions, ImageSource, Keep, Reflink};
use userbtrfs::{Error, Filesystem, Inode};

use crate::cli::host::meter::Total;
use crate::cli::host::totals::of_image_trees;
use crate::cli::paths::have_namesakes;
use crate::cli::report::ExitStatus;
use crate::cli::session::{RunVerb, Session};
use crate::cli::text::shown;
use crate::cli::verbs::copy_target::{SourceKind, Target, copy};
use crate::cli::verbs::destination::DestinationArgs;

#[derive(clap::Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is an option of cp")]
pub(crate) struct CpArgs {
    #[command(flatten)]
    destination: DestinationArgs,
    /// Skip files that exist
    #[arg(short, long)]
    no_clobber: bool,
    /// Replace existing files that cannot be opened (all can be opened)
    #[arg(short, long)]
    force: bool,
    /// Replace existing files by new ones, instead of writing into them
    #[arg(long)]
    remove_destination: bool,
    /// Do not descend into other subvolumes
    #[arg(short = 'x', long, visible_alias = "one-subvolume")]
    one_file_system: bool,
    /// Copy directories recursively; copy links as links
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// Preserve permissions, owners and times
    #[arg(short, long)]
    preserve: bool,
    /// Same as -r -p, with hard links and xattrs
    #[arg(short, long)]
    archive: bool,
    /// Share the data of files instead of copying it
    #[arg(
        long,
        value_name = "WHEN",
        num_args = 0..=1,
        require_equals = true,
        default_value = "auto",
        default_missing_value = "always"
    )]
    reflink: When,
}

/// When a copy shares the data of its source.
#[derive(Clone, Copy, clap::ValueEnum)]
enum When {
    /// If it can; otherwise the data is copied
    Auto,
    /// Always; fail if it cannot
    Always,
    /// Never
    Never,
}

impl RunVerb for CpArgs {
    fn run(&self, session: &Session) -> Result<ExitCode> {
        let filesystem = &session.filesystem;
        let paths = self.destination.expanded_paths(session)?;
        let plain = self.destination.no_target_directory;
        let (sources, target) = Target::split(filesystem, &paths, plain)?;
        let failures = ExitStatus::default();
        let total = |stop: &AtomicBool| {
            let find = |path: &OsString| self.find(filesystem, path.as_encoded_bytes());
            of_image_trees(sources.iter().map(find).collect::<Result<Vec<_>, _>>().ok()?, stop)
        };
        let total = if self.one_file_system { Total::Unknown } else { Total::Measured(&total) };
        let options = CopyOptions { keep_made: have_namesakes(sources), ..self.options() };
        let copied = copy("cp", &session.global, options, true, total, |copier, report| {
            for source in sources {
                let path = source.as_encoded_bytes();
                let inode = match self.find(filesystem, path) {
                    Ok(inode) => inode,
                    Err(error) => {
                        failures.report(&anyhow::Error::from(error).context(shown(source)));
                        continue;
                    }
                };
                let place = target.of(source, self.kind_of(&inode)?)?;
                copier.copy(&ImageSource { inode: &inode, path }, &place.target(), report);
            }
            Ok(())
        })?;
        Ok(if copied == ExitCode::SUCCESS { failures.code() } else { copied })
    }
}

impl CpArgs {
    fn options(&self) -> CopyOptions {
        let keep = match (self.archive, self.preserve) {
            (true, _) => Keep::Everything,
            (false, true) => Keep::Attributes,
            (false, false) => Keep::Mode,
        };
        let reflink = match self.reflink {
            When::Auto => Reflink::Auto,
            When::Always => Reflink::Always,
            When::Never => Reflink::Never,
        };
        CopyOptions {
            keep,
            reflink,
            in_place: keep == Keep::Mode && !self.remove_destination,
            no_clobber: self.no_clobber,
            one_subvolume: self.one_file_system,
            ..CopyOptions::default()
        }
    }

    /// Returns the inode of a source.
    fn find(&self, filesystem: &Filesystem, path: &[u8]) -> Result<Inode, Error> {
        if self.recursive || self.archive {
            return Ok(filesystem.lookup_no_follow(path)?);
        }
        let inode = filesystem.lookup(path)?;
        if inode.metadata()?.is_dir() { Err(Error::IsADirectory) } else { Ok(inode) }
    }

    fn kind_of(&self, source: &Inode) -> Result<SourceKind, Error> {
        let metadata = source.metadata()?;
        Ok(match () {
            () if metadata.is_dir() => SourceKind::Directory,
            // A link at the destination is replaced, and not followed.
            () if metadata.is_file() && !self.remove_destination => SourceKind::File,
            () => SourceKind::Other,
        })
    }
}
