//! The verbs on the files of an image: the command opens an image for one of them, and the shell
//! runs them on the image that is open.
//!
//! 1. There is one list of these verbs, [`FileVerb`]; the arguments for the image are a parameter
//!    of it.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use clap::error::ErrorKind;
use clap::{Arg, Command, Parser, Subcommand};

use super::admin::df as mounted_df;
use super::args::{DfArgs, FindArgs, GetArgs, Global, LsArgs, PathsArgs};
use super::args::{RootArgs, WriteArgs};
use super::predicates;
use super::session::{Access, RunVerb, Session};
use super::tips;
use super::verbs::chmod::ChmodArgs;
use super::verbs::chown::ChownArgs;
use super::verbs::cp::CpArgs;
use super::verbs::dedupe::DedupeArgs;
use super::verbs::du::DuArgs;
use super::verbs::fallocate::FallocateArgs;
use super::verbs::getfattr::GetfattrArgs;
use super::verbs::ln::LnArgs;
use super::verbs::mkdir::MkdirArgs;
use super::verbs::mv::MvArgs;
use super::verbs::put::PutArgs;
use super::verbs::rm::RmArgs;
use super::verbs::rmdir::RmdirArgs;
use super::verbs::setfattr::SetfattrArgs;
use super::verbs::stat::StatArgs;
use super::verbs::stat_format;
use super::verbs::touch::TouchArgs;
use super::verbs::tree::TreeArgs;
use super::verbs::truncate::TruncateArgs;
use super::verbs::{cat, df, find, get, ls};

/// The arguments for the image, and those of a verb.
#[derive(clap::Args)]
pub(crate) struct WithImage<I: clap::Args, V: clap::Args> {
    #[command(flatten)]
    image: I,
    #[command(flatten)]
    verb: V,
}

/// The arguments for the image, by the access that the verb needs.
pub(crate) enum Image<'a, R, W> {
    /// The verb only reads.
    Read(&'a R),
    /// The verb changes the image.
    Write(&'a W),
}

/// The verbs. `R` is the type of the arguments for the image of verbs that read, `W` that of verbs
/// that write: [`RootArgs`] and [`WriteArgs`] in the command, empty in the shell.
#[derive(Subcommand)]
pub(crate) enum FileVerb<R: clap::Args, W: clap::Args> {
    /// List directories
    Ls(WithImage<R, LsArgs>),
    /// Show the attributes of files
    Stat(WithImage<R, StatArgs>),
    /// Print the content of files
    Cat(WithImage<R, CatArgs>),
    /// List all paths below a path, one per line
    Find(WithImage<R, FindArgs>),
    /// Draw the tree below a path
    Tree(WithImage<R, TreeArgs>),
    /// Show space usage by block group type
    Df(WithImage<R, DfArgs>),
    /// Show the space that files take
    Du(WithImage<R, DuArgs>),
    /// Copy trees out, as `cp -a` does
    Get(WithImage<R, GetArgs>),
    /// Copy trees in, as `cp -a` does
    Put(WithImage<W, PutArgs>),
    /// Copy files and trees within the image
    Cp(WithImage<W, CpArgs>),
    /// Make directories
    Mkdir(WithImage<W, MkdirArgs>),
    /// Remove files and directories
    Rm(WithImage<W, RmArgs>),
    /// Remove empty directories
    Rmdir(WithImage<W, RmdirArgs>),
    /// Set the times of files; create missing files
    Touch(WithImage<W, TouchArgs>),
    /// Rename files
    Mv(WithImage<W, MvArgs>),
    /// Make hard links or symbolic links
    Ln(WithImage<W, LnArgs>),
    /// Change permissions
    Chmod(WithImage<W, ChmodArgs>),
    /// Change owners
    Chown(WithImage<W, ChownArgs>),
    /// Change file sizes; create missing files
    Truncate(WithImage<W, TruncateArgs>),
    /// Allocate or free space of files
    #[command(mut_args(rename_image_offset))]
    Fallocate(WithImage<W, FallocateArgs>),
    /// Share equal data of files
    Dedupe(WithImage<W, DedupeArgs>),
    /// Show extended attributes
    Getfattr(WithImage<R, GetfattrArgs>),
    /// Set or remove extended attributes
    Setfattr(WithImage<W, SetfattrArgs>),
}

#[derive(clap::Args)]
pub(crate) struct CatArgs {
    #[command(flatten)]
    paths: PathsArgs,
}

impl<R: clap::Args, W: clap::Args> FileVerb<R, W> {
    /// Returns the arguments for the image, and the verb.
    pub(crate) fn parts(&self) -> (Image<'_, R, W>, &dyn RunVerb) {
        match self {
            Self::Ls(verb) => reads(verb),
            Self::Stat(verb) => reads(verb),
            Self::Cat(verb) => reads(verb),
            Self::Find(verb) => reads(verb),
            Self::Tree(verb) => reads(verb),
            Self::Df(verb) => reads(verb),
            Self::Du(verb) => reads(verb),
            Self::Get(verb) => reads(verb),
            Self::Put(verb) => writes(verb),
            Self::Cp(verb) => writes(verb),
            Self::Mkdir(verb) => writes(verb),
            Self::Rm(verb) => writes(verb),
            Self::Rmdir(verb) => writes(verb),
            Self::Touch(verb) => writes(verb),
            Self::Mv(verb) => writes(verb),
            Self::Ln(verb) => writes(verb),
            Self::Chmod(verb) => writes(verb),
            Self::Chown(verb) => writes(verb),
            Self::Truncate(verb) => writes(verb),
            Self::Fallocate(verb) => writes(verb),
            Self::Dedupe(verb) => writes(verb),
            Self::Getfattr(verb) => reads(verb),
            Self::Setfattr(verb) => writes(verb),
        }
    }
}

/// Renames `--offset` of the image for a verb that has an option of that name, as fallocate(1) has.
fn rename_image_offset(arg: Arg) -> Arg {
    if arg.get_id() == "image_offset" { arg.long("image-offset") } else { arg }
}

fn reads<R: clap::Args, W, V: clap::Args + RunVerb>(
    verb: &WithImage<R, V>,
) -> (Image<'_, R, W>, &dyn RunVerb) {
    (Image::Read(&verb.image), &verb.verb)
}

fn writes<R, W: clap::Args, V: clap::Args + RunVerb>(
    verb: &WithImage<W, V>,
) -> (Image<'_, R, W>, &dyn RunVerb) {
    (Image::Write(&verb.image), &verb.verb)
}

/// Implements [`RunVerb`] by a function.
macro_rules! readers {
    ($($args:ty => $run:expr),* $(,)?) => {
        $(impl RunVerb for $args {
            fn run(&self, session: &Session) -> Result<ExitCode> {
                $run(session, self)
            }
        })*
    };
}

readers! {
    LsArgs => ls::run,
    CatArgs => |session, args: &CatArgs| cat::run(session, &args.paths),
    FindArgs => find::run,
    DfArgs => df::run,
    GetArgs => get::run,
}

/// The verbs whose last path is the destination, and the name of their other paths.
const WITH_DESTINATION: [(&str, &str); 5] =
    [("get", "SRC"), ("put", "SRC"), ("cp", "SRC"), ("mv", "SRC"), ("ln", "TARGET")];

/// Parses a command line. The usage of a verb with a destination is that of coreutils; `program`
/// and `image` are the words before and after the name of the verb, which the shell does not have.
/// Of an option that is given several times, the last one has effect, unless it is a list.
pub(crate) fn parse<P: Parser>(
    words: impl IntoIterator<Item = OsString>,
    program: &str,
    image: &str,
) -> Result<P, clap::Error> {
    let mut command = with_usages(P::command(), program, image).args_override_self(true);
    let words: Vec<_> = words.into_iter().collect();
    let words = match with_options(words.clone(), !program.is_empty()) {
        Ok(words) => words,
        Err(message) => {
            let verb = tips::verb_of(&mut command, &words);
            return Err(verb.error(ErrorKind::ValueValidation, message));
        }
    };
    let matches = command.try_get_matches_from_mut(&words);
    let mut matches =
        matches.map_err(|error| tips::without_misleading(error, &mut command, &words))?;
    P::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

/// Returns a command line in which the words that the parser cannot know, those of find(1) and
/// stat(1), are options; or a message. With `has_program` the first word is the name of the
/// program.
fn with_options(mut words: Vec<OsString>, has_program: bool) -> Result<Vec<OsString>, String> {
    let mut is_value = has_program;
    let is_verb = |word: &OsString| {
        let is_other = std::mem::take(&mut is_value) || word.as_encoded_bytes().starts_with(b"-");
        is_value = word == "--format";
        !is_other
    };
    let Some(verb) = words.iter().position(is_verb) else { return Ok(words) };
    let after = words.split_off(verb + 1);
    words.extend(match words[verb].as_encoded_bytes() {
        b"find" => predicates::with_long_names(after)?,
        b"stat" => stat_format::with_short_format(after),
        _ => after,
    });
    Ok(words)
}

/// Sets the usage of the verbs with a destination.
pub(crate) fn with_usages(command: Command, program: &str, image: &str) -> Command {
    let usage = |command: Command, (verb, paths): (&str, &str)| {
        let usage = format!("{program}{verb} [OPTIONS] {image}<{paths}>... <DEST>");
        command.mut_subcommand(verb, |verb| verb.override_usage(usage))
    };
    WITH_DESTINATION.into_iter().fold(command, usage)
}

/// Opens the image, runs a verb, and closes the image.
pub(crate) fn run(global: &Global, verb: &FileVerb<RootArgs, WriteArgs>) -> Result<ExitCode> {
    if let FileVerb::Df(WithImage { image, verb }) = verb
        && let Some(mount) = mounted_df::mount_of(&image.image)
    {
        return mounted_df::run(global, verb, &mount);
    }
    let (image, verb) = verb.parts();
    let session = match image {
        Image::Read(root) => Session::open(global, root, Access::Read)?,
        Image::Write(WriteArgs { root, discard }) => {
            Session::open(global, root, Access::Once { discard: *discard })?
        }
    };
    let done = verb.run(&session);
    // Also after a signal: incomplete files were removed, and what is complete stays.
    session.close()?;
    done
}
