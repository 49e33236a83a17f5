//! What can be done to the files of an image: by the command on one that it opens, and by the
//! shell on the one that is open.
//!
//! 1. There is one list of these verbs, [`FileVerb`]; where they find the image is its parameter.
//! 2. What a verb changes is committed once, at its end, also where a part of it failed.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Subcommand;
use userbtrfs::{Direct, Filesystem, OpenOptions, TreeId};

use super::args::{DfArgs, DirectIo, FindArgs, GetArgs, Global, LsArgs, PathsArgs, RootArgs};
use super::chmod::ChmodArgs;
use super::chown::ChownArgs;
use super::cp::CpArgs;
use super::fallocate::FallocateArgs;
use super::getfattr::GetfattrArgs;
use super::ln::LnArgs;
use super::mkdir::MkdirArgs;
use super::mv::MvArgs;
use super::put::PutArgs;
use super::rm::RmArgs;
use super::setfattr::SetfattrArgs;
use super::truncate::TruncateArgs;
use super::watch::Stopped;
use super::{cat, df, find, get, ls, remark, stat};

/// What verbs work with.
pub(crate) struct Session {
    pub(crate) global: Global,
    pub(crate) filesystem: Filesystem,
    /// The image, for messages.
    pub(crate) name: String,
    /// The last commit when it was opened.
    generation: u64,
}

/// A verb with its arguments.
pub(crate) trait Act {
    /// Does it, and tells how it ended.
    fn act(&self, session: &Session) -> Result<ExitCode>;

    /// Whether it changes the filesystem.
    fn changes(&self) -> bool {
        true
    }
}

/// Arguments that start with where the image is.
#[derive(clap::Args)]
pub(crate) struct In<R: clap::Args, V: clap::Args> {
    #[command(flatten)]
    root: R,
    #[command(flatten)]
    verb: V,
}

/// The verbs. `R` is how the image is given: [`RootArgs`] to the command, nothing to the shell.
#[derive(Subcommand)]
pub(crate) enum FileVerb<R: clap::Args> {
    /// List directories
    Ls(In<R, LsArgs>),
    /// Show the attributes of files
    Stat(In<R, StatArgs>),
    /// Print the content of files
    Cat(In<R, CatArgs>),
    /// List everything below a path, a path a line
    Find(In<R, FindArgs>),
    /// Show how full it is, by kind of space
    Df(In<R, DfArgs>),
    /// Copy trees out, as `cp -a` does
    Get(In<R, GetArgs>),
    /// Copy trees in, as `cp -a` does
    Put(In<R, PutArgs>),
    /// Copy files and trees within the image
    Cp(In<R, CpArgs>),
    /// Make directories
    Mkdir(In<R, MkdirArgs>),
    /// Remove files, and directories with what is in them
    Rm(In<R, RmArgs>),
    /// Give files other names
    Mv(In<R, MvArgs>),
    /// Give files more names, or make symbolic links
    Ln(In<R, LnArgs>),
    /// Change permissions
    Chmod(In<R, ChmodArgs>),
    /// Change owners
    Chown(In<R, ChownArgs>),
    /// Make files longer or shorter; those that are not there are made
    Truncate(In<R, TruncateArgs>),
    /// Set space of files aside, or give it back
    Fallocate(In<R, FallocateArgs>),
    /// Show extended attributes
    Getfattr(In<R, GetfattrArgs>),
    /// Set or remove extended attributes
    Setfattr(In<R, SetfattrArgs>),
}

#[derive(clap::Args)]
pub(crate) struct StatArgs {
    #[command(flatten)]
    paths: PathsArgs,
}

#[derive(clap::Args)]
pub(crate) struct CatArgs {
    #[command(flatten)]
    paths: PathsArgs,
}

impl<R: clap::Args, V: clap::Args + Act> In<R, V> {
    fn parts(&self) -> (&R, &dyn Act) {
        (&self.root, &self.verb)
    }
}

impl<R: clap::Args> FileVerb<R> {
    /// Where the image is, and what to do.
    pub(crate) fn parts(&self) -> (&R, &dyn Act) {
        match self {
            Self::Ls(verb) => verb.parts(),
            Self::Stat(verb) => verb.parts(),
            Self::Cat(verb) => verb.parts(),
            Self::Find(verb) => verb.parts(),
            Self::Df(verb) => verb.parts(),
            Self::Get(verb) => verb.parts(),
            Self::Put(verb) => verb.parts(),
            Self::Cp(verb) => verb.parts(),
            Self::Mkdir(verb) => verb.parts(),
            Self::Rm(verb) => verb.parts(),
            Self::Mv(verb) => verb.parts(),
            Self::Ln(verb) => verb.parts(),
            Self::Chmod(verb) => verb.parts(),
            Self::Chown(verb) => verb.parts(),
            Self::Truncate(verb) => verb.parts(),
            Self::Fallocate(verb) => verb.parts(),
            Self::Getfattr(verb) => verb.parts(),
            Self::Setfattr(verb) => verb.parts(),
        }
    }
}

/// Verbs that only read.
macro_rules! readers {
    ($($args:ty => $run:expr),* $(,)?) => {
        $(impl Act for $args {
            fn act(&self, session: &Session) -> Result<ExitCode> {
                $run(session, self)
            }

            fn changes(&self) -> bool {
                false
            }
        })*
    };
}

readers! {
    LsArgs => ls::run,
    StatArgs => |session, args: &StatArgs| stat::run(session, &args.paths),
    CatArgs => |session, args: &CatArgs| cat::run(session, &args.paths),
    FindArgs => find::run,
    DfArgs => df::run,
    GetArgs => get::run,
}

/// Opens the image, does a verb, and closes the image.
pub(crate) fn run(global: &Global, verb: &FileVerb<RootArgs>) -> Result<ExitCode> {
    let (root, verb) = verb.parts();
    let access = if verb.changes() { Access::Once } else { Access::Read };
    let session = Session::open(global, root, access)?;
    let done = verb.act(&session);
    match &done {
        // Nothing half-done stays.
        Err(error) if error.is::<Stopped>() && !session.has_committed() => {
            session.filesystem.abandon();
        }
        _ => session.close()?,
    }
    done
}

/// What an image is opened for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// To be looked at.
    Read,
    /// For one change, with one commit at its end.
    Once,
    /// For changes, with commits in between.
    Write,
}

impl Session {
    /// Opens an image, and says what must be said of it.
    pub(crate) fn open(global: &Global, root: &RootArgs, access: Access) -> Result<Self> {
        let name = root.image.display().to_string();
        let mut options = options(root);
        options.write(access != Access::Read);
        if access == Access::Once {
            options.commit_seconds(0);
        }
        let filesystem = options.open(&root.image).with_context(|| name.clone())?;
        for notice in filesystem.notices() {
            remark(global, &format!("{name}: {notice}"));
        }
        let generation = filesystem.superblock().generation;
        Ok(Self { global: global.clone(), filesystem, name, generation })
    }

    /// Whether anything was made durable since it was opened.
    fn has_committed(&self) -> bool {
        self.filesystem.superblock().generation != self.generation
    }

    /// Makes everything durable.
    pub(crate) fn close(self) -> Result<()> {
        let name = self.name;
        self.filesystem.close().with_context(|| name)
    }
}

fn options(root: &RootArgs) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.memory(root.memory).direct(match root.direct {
        DirectIo::Auto => Direct::Auto,
        DirectIo::On => Direct::On,
        DirectIo::Off => Direct::Off,
    });
    match (&root.subvol, root.subvolid) {
        (Some(path), _) => options.subvolume_path(path.as_encoded_bytes()),
        (None, Some(id)) => options.subvolume_id(TreeId(id)),
        (None, None) => &mut options,
    };
    options
}
