//! Common filesystem benchmarks on mounted filesystems: dbench, fs_mark and fio.
//!
//! 1. Each turn has a new filesystem; the time for mounting, and for unmounting with all data made
//!    durable, is reported separately.
//! 2. dbench runs for a fixed time, and its row has the time for one GiB; the others do a fixed
//!    amount of work.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use userbtrfs_testkit::linux;

use crate::args::{DbenchArgs, FioArgs, FsmarkArgs};
use crate::bench::Bench;
use crate::case::{Step, take_turns};
use crate::mounts::Mounted;
use crate::report::{Amount, Report};
use crate::sample::{Sample, timed};
use crate::target::Target;

/// The targets that can be mounted.
const TARGETS: &[Target] =
    &[Target::Fuse, Target::Btrfs, Target::Fuse2fs, Target::Nothing, Target::Floor];

/// The amount that dbench's reported times are for, in bytes.
const DBENCH_BYTES: u64 = 1 << 30;
/// The size of one write of fio, in bytes.
const FIO_BLOCK: u64 = 64 << 10;

/// Returns an error that names a missing program, if these benchmarks and their targets need it.
pub(crate) fn all_are_here(bench: &Bench) -> Result<()> {
    let mut needed = vec!["dbench", "fs_mark", "fio"];
    if bench.chosen(TARGETS)?.contains(&Target::Fuse2fs) {
        needed.push("fuse2fs");
    }
    let script = "for program; do command -v $program || { echo no $program >&2; exit 1; }; done";
    linux::run(Command::new("sh").args(["-c", script, "sh"]).args(needed)).map(drop)
}

/// Runs dbench with each number of clients.
pub(crate) fn dbench(bench: &Bench, args: &DbenchArgs, report: &mut Report) -> Result<()> {
    for clients in &args.clients {
        let case = format!("dbench {clients}");
        let amount = Amount { bytes: DBENCH_BYTES, ..Amount::default() };
        measure(bench, &case, amount, report, |point| {
            let mut command = dbench_command(point, clients.get(), args.seconds.get());
            let rate = dbench_rate(&said(bench, &mut command)?)?;
            Ok(Duration::from_secs_f64(1024.0 * 1.024 * 1.024 / rate))
        })?;
    }
    Ok(())
}

/// Runs fs_mark: empty files, made by several threads at once, each in its own directory.
pub(crate) fn fsmark(bench: &Bench, args: &FsmarkArgs, report: &mut Report) -> Result<()> {
    let each = (args.files.get() / args.common.scale.get()).max(1);
    for threads in &args.threads {
        let files = each * threads.get();
        let amount = Amount { items: files, ..Amount::default() };
        measure(bench, &format!("fs_mark x{threads} {files}"), amount, report, |point| {
            let mut command = fsmark_command(point, threads.get(), each);
            let (time, _) = timed(|| said(bench, &mut command))?;
            Ok(time)
        })?;
    }
    Ok(())
}

/// Runs fio: each job writes its own file, with an fsync after each write.
pub(crate) fn fio(bench: &Bench, args: &FioArgs, report: &mut Report) -> Result<()> {
    let bytes = (args.mebibytes.get() << 20) / args.common.scale.get();
    for jobs in &args.jobs {
        let each = (bytes / jobs.get()).max(FIO_BLOCK) / FIO_BLOCK * FIO_BLOCK;
        let bytes = each * jobs.get();
        let amount = Amount { bytes, items: bytes / FIO_BLOCK, writes: false };
        measure(bench, &format!("fio fsync x{jobs}"), amount, report, |point| {
            fio_time(&said(bench, &mut fio_command(point, jobs.get(), each))?)
        })?;
    }
    Ok(())
}

/// Returns the command that runs dbench in a directory.
pub(crate) fn dbench_command(point: &Path, clients: u64, seconds: u64) -> Command {
    let mut command = Command::new("dbench");
    command.arg("-t").arg(seconds.to_string()).arg("-D").arg(point).arg(clients.to_string());
    command
}

/// Returns the command by which threads of fs_mark make `each` files.
pub(crate) fn fsmark_command(point: &Path, threads: u64, each: u64) -> Command {
    let mut command = Command::new("fs_mark");
    // fs_mark does not accept long paths.
    command.current_dir(point);
    for thread in 0..threads {
        command.arg("-d").arg(format!("d{thread}"));
    }
    command.args(["-S", "0", "-s", "0", "-L", "1", "-k", "-n", &each.to_string()]);
    command.args(["-t", &threads.to_string()]).args(["-l", "/dev/null"]);
    command
}

/// Returns the command by which jobs of fio write `each` bytes.
pub(crate) fn fio_command(point: &Path, jobs: u64, each: u64) -> Command {
    let mut command = Command::new("fio");
    command.args(["--output-format=json", "--name=writers", "--rw=write", "--fsync=1"]);
    command.args(["--fallocate=none", "--group_reporting=1", "--direct=0"]);
    command.args(["--ioengine=sync", &format!("--bs={FIO_BLOCK}")]);
    command.args([format!("--size={each}"), format!("--numjobs={jobs}")]);
    command.arg(format!("--directory={}", point.display()));
    command
}

/// Runs the turns of all targets with one program; `work` returns the time of its work.
fn measure(
    bench: &Bench,
    case: &str,
    amount: Amount,
    report: &mut Report,
    work: impl Fn(&Path) -> Result<Duration>,
) -> Result<()> {
    let targets = bench.chosen(TARGETS)?;
    let rows = take_turns(bench, case, targets, |target| {
        let (before, mounted) = Mounted::new(bench, target)?;
        bench.settle()?;
        let work = work(mounted.path())?;
        let requests = mounted.requests();
        let after = mounted.end()?;
        let sample = Sample { mount: Some(before + after), ..Sample::of_work(work) };
        Ok([Step { case: case.to_owned(), amount, sample, requests, ..Step::default() }])
    })?;
    report.add(rows, bench.compares_durable());
    Ok(())
}

/// Runs a program, and returns its output.
pub(crate) fn said(bench: &Bench, command: &mut Command) -> Result<String> {
    let output = linux::run(command)?;
    bench.interrupt().check()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the throughput that dbench prints, in units of 10^6 bytes a second.
fn dbench_rate(said: &str) -> Result<f64> {
    let line = said.lines().find_map(|line| line.strip_prefix("Throughput "));
    let rate = line.and_then(|line| line.split(' ').next());
    let rate: f64 = rate.context("dbench says no throughput")?.parse()?;
    ensure!(rate > 0.0, "dbench did nothing in this time");
    Ok(rate)
}

/// Returns the time that all jobs together wrote.
fn fio_time(said: &str) -> Result<Duration> {
    // fio may print notes before the JSON.
    let json = &said[said.find('{').context("fio gives no report")?..];
    let report: Value = serde_json::from_str(json)?;
    let time = report["jobs"][0]["write"]["runtime"].as_u64().context("fio gives no time")?;
    Ok(Duration::from_millis(time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_parsed_from_program_output() {
        let said = " 4     92340   216.10 MB/sec  execute  59 sec  latency 12.3 ms\n\n\
            Throughput 216.056 MB/sec  4 clients  4 procs  max_latency=147.197 ms\n";
        assert!((dbench_rate(said).unwrap() - 216.056).abs() < 1e-9);
        assert!(dbench_rate("no").is_err() && dbench_rate("Throughput 0 MB/sec").is_err());
        let said = "fio: a remark\n{\"jobs\": [{\"write\": {\"runtime\": 1500}}]}";
        assert_eq!(fio_time(said).unwrap(), Duration::from_millis(1500));
    }
}
