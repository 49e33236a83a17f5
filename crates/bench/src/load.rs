//! Loads of dbench, fio and fs_mark in this process: on the library, or on a directory.
//!
//! 1. The loads do what the programs do: dbench's is read from dbench's own loadfile. On a
//!    directory the calls can be compared with those of the program.
//! 2. An experiment is switched on before the filesystem is opened, and for the whole process. So
//!    `seeds` runs each load in a process of its own.

mod client;
mod dbench;
mod experiment;
mod files;
mod host;
mod jobs;
mod latency;
mod library;
mod loadfile;
pub(crate) mod outcome;

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};

use self::dbench::Length;
use self::files::Files;
use self::host::Host;
use self::library::Library;
use self::loadfile::Loadfile;
use self::outcome::Outcome;
use crate::args::{LoadArgs, Program};

pub(crate) use self::jobs::{BLOCK, FSYNC};

/// Runs a load.
pub(crate) fn run(args: &LoadArgs) -> Result<Outcome> {
    match (&args.image, &args.directory) {
        (Some(image), None) => on_library(image, args),
        (None, Some(directory)) => {
            if args.experiment.is_some() {
                bail!("--experiment needs --image");
            }
            load(&Host::new(directory), args)
        }
        _ => bail!("either --image or --directory is needed"),
    }
}

fn on_library(image: &Path, args: &LoadArgs) -> Result<Outcome> {
    let filesystem = experiment::open(image, args.experiment.as_deref(), args.commit_seconds)?;
    let library = Library::new(filesystem);
    let outcome = load(&library, args)?;
    library.close()?;
    Ok(outcome)
}

fn load<F: Files>(files: &F, args: &LoadArgs) -> Result<Outcome> {
    let clients = args.clients.get();
    match args.program {
        Program::Dbench => {
            let load = Loadfile::read(&args.loadfile)?;
            let time = Length::Time(Duration::from_secs(args.seconds.get()));
            let length = args.passes.map_or(time, |passes| Length::Passes(passes.get()));
            dbench::run(files, &load, clients, length)
        }
        Program::Fio => jobs::fio(files, clients, args.each.get()),
        Program::Fsmark => jobs::fsmark(files, clients, args.each.get()),
    }
}
