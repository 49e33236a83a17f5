//! Benchmarks of the library and the command against Linux, on one image and one disk.
//!
//! 1. A *case* is a benchmark that several *targets* run; targets take turns within each run, and
//!    each run starts with another target.
//! 2. Before each turn the caches are dropped and the destination, or the image to write, is
//!    created, outside the timing unless that is measured; after it, the result is counted, so that
//!    no target wins by doing less.
//! 3. A sample has three parts: the work, making its result durable, and mounting and unmounting.
//!    All three are reported for every target.
//! 4. The raw disk takes turns as well: writing the same bytes, and reading the image.
//! 5. Mounts, loop devices and files are removed on return, on error and on a signal.
//!
//! The benchmarks pass no judgement: people have to interpret the figures.

mod amplify;
pub mod args;
mod bench;
mod case;
mod compress;
mod content;
mod durable;
mod extract;
mod floor;
mod fresh;
mod fsync;
mod image;
mod instructions;
mod interrupt;
mod list;
mod load;
mod machine;
mod mapping;
mod memory;
mod meta;
mod mounts;
mod names;
mod nothing;
mod plot;
mod programs;
mod put;
mod read;
pub mod report;
mod sample;
mod seeds;
mod share;
mod slow;
mod tally;
mod target;
mod workload;
mod write;

use std::fmt;

use anyhow::{Context as _, Result, bail};
use serde::Serialize;

use args::{
    Args, BuildArgs, Common, CompressArgs, DbenchArgs, ExtractArgs, FioArgs, Format, FsmarkArgs,
    FsyncArgs, ListArgs, MetaArgs, PutArgs, ReadArgs, ShareArgs, Verb, WriteArgs,
};
use bench::Bench;
use report::Report;

/// Runs the benchmark given on the command line; returns the text to print.
pub fn run(args: &Args) -> Result<String> {
    match &args.verb {
        Verb::Load(load_args) => print(&load::run(load_args)?, args.format),
        Verb::Seeds(seeds_args) => seeds::run(seeds_args),
        Verb::Instructions(counted) => match instructions::run(counted)? {
            Some(counts) => print(&counts, args.format),
            None => Ok(String::new()),
        },
        verb => {
            let common = verb.common().context("the verb measures targets")?;
            print(&measure(verb, common)?, args.format)
        }
    }
}

fn print(report: &(impl fmt::Display + Serialize), format: Format) -> Result<String> {
    Ok(match format {
        Format::Text => report.to_string(),
        Format::Json => serde_json::to_string_pretty(report)? + "\n",
    })
}

fn measure(verb: &Verb, common: &Common) -> Result<Report> {
    let bench = Bench::new(common)?;
    let mut report = Report::new(machine::head(bench.folder(), common)?);
    match verb {
        Verb::Extract(args) => extract::run(&bench, args, &mut report)?,
        Verb::List(args) => list::run(&bench, args, &mut report)?,
        Verb::Read(args) => read::run(&bench, args, &mut report)?,
        Verb::Meta(args) => meta::run(&bench, args, &mut report)?,
        Verb::Put(args) => put::run(&bench, args, &mut report)?,
        Verb::Build(args) => put::build(&bench, args, &mut report)?,
        Verb::Write(args) => write::run(&bench, args, &mut report)?,
        Verb::Fsync(args) => fsync::run(&bench, args, &mut report)?,
        Verb::Share(args) => share::run(&bench, args, &mut report)?,
        Verb::Compress(args) => compress::run(&bench, args, &mut report)?,
        Verb::Dbench(args) => programs::dbench(&bench, args, &mut report)?,
        Verb::Fsmark(args) => programs::fsmark(&bench, args, &mut report)?,
        Verb::Fio(args) => programs::fio(&bench, args, &mut report)?,
        Verb::All(common) => all(&bench, common, &mut report)?,
        Verb::Load(_) | Verb::Seeds(_) | Verb::Instructions(_) => bail!("it measures no targets"),
    }
    report.sort();
    Ok(report)
}

fn all(bench: &Bench, common: &Common, report: &mut Report) -> Result<()> {
    // Fail now rather than after hours.
    programs::all_are_here(bench)?;
    extract::run(bench, &ExtractArgs::all(common), report)?;
    read::run(bench, &ReadArgs::all(common), report)?;
    list::run(bench, &ListArgs::all(common), report)?;
    meta::run(bench, &MetaArgs::all(common), report)?;
    put::run(bench, &PutArgs::all(common), report)?;
    put::build(bench, &BuildArgs::all(common), report)?;
    write::run(bench, &WriteArgs::all(common), report)?;
    fsync::run(bench, &FsyncArgs::all(common), report)?;
    share::run(bench, &ShareArgs::all(common), report)?;
    compress::run(bench, &CompressArgs::all(common), report)?;
    programs::dbench(bench, &DbenchArgs::all(common), report)?;
    programs::fsmark(bench, &FsmarkArgs::all(common), report)?;
    programs::fio(bench, &FioArgs::all(common), report)
}
