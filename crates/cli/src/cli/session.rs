//! An image that is open, and the verbs that act on it.
//!
//! 1. The changes of a verb are committed once, at its end, even if a part of them failed.

use std::borrow::Cow;
use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use userbtrfs::{Direct, Filesystem, OpenOptions, PendingLog, TreeId};

use super::args::{DirectIo, Global, RootArgs};
use super::globs;
use super::host::meter::{close_watched, open_watched};
use super::host::retry::{open_when_free, wait_until_closing};
use super::quoted::QuotedWords;
use super::report::warn;

/// An open image and the global options: the context of a verb.
pub(crate) struct Session {
    pub(crate) global: Global,
    pub(crate) filesystem: Filesystem,
    /// The image, for messages.
    pub(crate) name: String,
    /// The path of the image.
    pub(crate) image: PathBuf,
    /// The directory at which verbs start if no path is given.
    pub(crate) start: OsString,
    /// True if stdin holds no commands, so that a verb may read it.
    pub(crate) may_read_stdin: bool,
    /// The words of the line that are not what they look like; empty outside of the shell.
    pub(in crate::cli) quoted: QuotedWords,
    /// The generation of the last commit when the verb began.
    generation: u64,
}

/// A verb with its arguments.
pub(crate) trait RunVerb {
    /// Runs the verb, and returns the exit status.
    fn run(&self, session: &Session) -> Result<ExitCode>;
}

/// The access for which an image is opened.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Reading only.
    Read,
    /// One verb that changes the image, with one commit at its end.
    Once {
        /// True if freed space is discarded.
        discard: bool,
    },
    /// Several verbs that change the image, with commits in between.
    Write {
        /// True if freed space is discarded.
        discard: bool,
    },
}

impl Session {
    /// Returns a path on the host that was given. In a line of the shell it may begin with the home
    /// directory.
    pub(in crate::cli) fn host_path(&self, path: &OsStr) -> Result<OsString> {
        let bytes = path.as_bytes();
        let Some(rest) = bytes.strip_prefix(b"~").filter(|_| self.quoted.is_home(bytes)) else {
            return Ok(path.to_owned());
        };
        let mut home = env::var_os("HOME").context("HOME is not set")?;
        home.push(OsStr::from_bytes(rest));
        Ok(home)
    }

    /// Returns the paths that match the given ones: see [`globs`].
    pub(in crate::cli) fn expand(&self, paths: &[OsString]) -> Vec<OsString> {
        globs::expand_all(&self.filesystem, paths, &self.quoted)
    }

    /// Opens an image, and prints its warnings.
    pub(crate) fn open(global: &Global, root: &RootArgs, access: Access) -> Result<Self> {
        let name = root.image.name();
        let mut options = options(root);
        match access {
            Access::Read => &mut options,
            Access::Once { discard } => options.write(true).discard(discard).commit_seconds(0),
            Access::Write { discard } => options.write(true).discard(discard),
        };
        if access == Access::Read {
            wait_until_closing(&root.image.image);
        }
        let opened =
            open_watched(global, options, |options| open_when_free(&root.image.image, options));
        let filesystem = opened.map_err(|error| root.image.explain(error))?;
        for warning in filesystem.warnings() {
            warn(global, &format!("{name}: {warning}"));
        }
        let generation = filesystem.superblock().generation;
        let image = root.image.image.clone();
        Ok(Self {
            global: global.clone(),
            filesystem,
            name,
            image,
            start: "/".into(),
            may_read_stdin: true,
            quoted: QuotedWords::default(),
            generation,
        })
    }

    /// Returns the paths that were given, or the directory at which verbs start.
    pub(crate) fn paths_or_start<'a>(&self, paths: &'a [OsString]) -> Cow<'a, [OsString]> {
        if paths.is_empty() { vec![self.start.clone()].into() } else { paths.into() }
    }

    /// Begins another verb.
    pub(crate) fn begin(&mut self, global: &Global) {
        self.global = global.clone();
        self.generation = self.filesystem.superblock().generation;
    }

    /// Closes the image after a verb that a signal stopped: its changes are dropped. If a part of
    /// them was committed meanwhile, the removal of incomplete files is committed too.
    pub(crate) fn stop(self) -> Result<()> {
        if self.filesystem.superblock().generation != self.generation {
            return self.close();
        }
        self.filesystem.abandon();
        Ok(())
    }

    /// Commits all changes, and closes the image.
    pub(crate) fn close(self) -> Result<()> {
        let Self { name, global, filesystem, .. } = self;
        close_watched(&global, filesystem).with_context(|| name)
    }
}

fn options(root: &RootArgs) -> OpenOptions {
    let mut options = OpenOptions::new();
    root.image.apply(&mut options);
    options.memory(root.memory).direct(match root.direct {
        DirectIo::Auto => Direct::Auto,
        DirectIo::On => Direct::On,
        DirectIo::Off => Direct::Off,
    });
    if root.no_log_replay {
        options.pending_log(PendingLog::Leave);
    }
    match (&root.subvol, root.subvolid) {
        (Some(path), _) => options.subvolume_path(path.as_encoded_bytes()),
        (None, Some(id)) => options.subvolume_id(TreeId(id)),
        (None, None) => &mut options,
    };
    options
}
