//! The verb `fuzz`: runs each target for a given time, after the canary has failed as it must.
//!
//! 1. libFuzzer runs the targets if it can be built: on any toolchain, by LLVM's own coverage
//!    pass. Otherwise the driver of `userbtrfs-fuzzing` does, without coverage, and prints that.
//! 2. The canary must fail first: a fuzzer that misses it would miss every failure.
//! 3. A failing input is kept in `fuzz/artifacts/TARGET/`, and the command to reproduce it is
//!    printed.
//! 4. The corpus of libFuzzer is kept in `fuzz/corpus/TARGET/`, for the next run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use userbtrfs_fuzzing::driver::{self, Outcome};
use userbtrfs_fuzzing::{CANARY, TARGETS, Target};

/// The options of `fuzz`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The total time for all targets in seconds, in equal shares.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// The target to run (default: all).
    #[arg(long)]
    target: Option<String>,
    /// The random seed; the same seed repeats a run of the driver without coverage.
    #[arg(long, default_value_t = 1)]
    seed: u32,
    /// Do not try libFuzzer.
    #[arg(long)]
    plain: bool,
    /// Run the target on this file once, and nothing else.
    #[arg(long, requires = "target")]
    input: Option<PathBuf>,
}

/// The flags for the coverage that libFuzzer needs, by LLVM's pass, which stable compilers have.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Ccodegen-units=1 --cfg fuzzing";

/// The maximum time until the canary fails, in seconds.
const CANARY_SECONDS: u64 = 60;

/// Runs the targets that `args` names.
pub(crate) fn run(args: &Args) -> Result<()> {
    let targets = chosen(args.target.as_deref())?;
    if let (Some(input), [target]) = (&args.input, targets.as_slice()) {
        return reproduce(target, input);
    }
    let engine = if args.plain { Engine::Plain } else { Engine::find() };
    println!("fuzz: {}", engine.describe());
    ensure!(!engine.run(&CANARY, args.seed, CANARY_SECONDS)?, "the canary was not heard");
    println!("fuzz: the canary was heard");
    let share = (args.seconds / targets.len() as u64).max(1);
    let mut failed = Vec::new();
    for target in targets {
        if !engine.run(target, args.seed, share)? {
            failed.push(target.name);
        }
    }
    ensure!(failed.is_empty(), "fuzz: failed: {}", failed.join(", "));
    Ok(())
}

fn chosen(name: Option<&str>) -> Result<Vec<&'static Target>> {
    match name {
        None => Ok(TARGETS.iter().collect()),
        Some(name) => {
            let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
            let found = userbtrfs_fuzzing::find(name);
            Ok(vec![found.with_context(|| format!("the targets are {}", names.join(", ")))?])
        }
    }
}

fn reproduce(target: &Target, input: &Path) -> Result<()> {
    (target.run)(&fs::read(input).with_context(|| input.display().to_string())?);
    println!("fuzz: {} bears {}", target.name, input.display());
    Ok(())
}

/// The generator of inputs.
enum Engine {
    /// libFuzzer; the binaries are in this folder.
    LibFuzzer(PathBuf),
    /// The driver without coverage.
    Plain,
}

impl Engine {
    fn find() -> Self {
        match build() {
            Ok(folder) => Self::LibFuzzer(folder),
            Err(error) => {
                println!("fuzz: libFuzzer cannot be built here: {error:#}");
                Self::Plain
            }
        }
    }

    fn describe(&self) -> &'static str {
        match self {
            Self::LibFuzzer(_) => "libFuzzer, guided by coverage",
            Self::Plain => "the plain driver: inputs by chance, without coverage",
        }
    }

    /// Runs a target; returns true if it passed.
    fn run(&self, target: &Target, seed: u32, seconds: u64) -> Result<bool> {
        match self {
            Self::LibFuzzer(folder) => lib_fuzzer(folder, target, seed, seconds),
            Self::Plain => plain(target, seed, seconds),
        }
    }
}

fn fuzz_folder() -> Result<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    folder.canonicalize().context("the folder fuzz/")
}

/// Builds all targets with coverage. With a target triple, build scripts are built without it.
fn build() -> Result<PathBuf> {
    let folder = fuzz_folder()?;
    let host = host()?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let target = folder.join("target");
    let mut command = Command::new(cargo);
    command.current_dir(&folder).args(["build", "--release", "--quiet", "--bins"]);
    command.args(["--target", &host]).arg("--target-dir").arg(&target);
    command.env("RUSTFLAGS", COVERAGE);
    let built = command.output().context("cargo")?;
    if !built.status.success() {
        let text = String::from_utf8_lossy(&built.stderr);
        let reason = text.lines().find(|line| line.starts_with("error"));
        bail!("{}", reason.unwrap_or("the build failed"));
    }
    Ok(target.join(host).join("release"))
}

/// Returns the host triple of the compiler.
fn host() -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("-vV").output().context("rustc")?;
    let text = String::from_utf8(output.stdout)?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc names no host")?.to_owned())
}

fn lib_fuzzer(folder: &Path, target: &Target, seed: u32, seconds: u64) -> Result<bool> {
    let name = target.name;
    let fuzz = fuzz_folder()?;
    let corpus = fuzz.join("corpus").join(name);
    let kept = artifacts(name)?;
    fs::create_dir_all(&corpus)?;
    let mut command = Command::new(folder.join(name));
    command.arg(&corpus).arg(format!("-artifact_prefix={}/", kept.display()));
    command.args([format!("-max_total_time={seconds}"), format!("-seed={seed}")]);
    command.args([format!("-max_len={}", target.max_len), "-rss_limit_mb=1024".to_owned()]);
    // A short run must not be limited to short inputs.
    command.args(["-timeout=10", "-print_final_stats=1", "-len_control=0"]);
    let run = command.stdin(Stdio::null()).output().with_context(|| format!("run {name}"))?;
    let text = String::from_utf8_lossy(&run.stderr);
    let passed = run.status.success();
    if passed {
        let runs = text.lines().find_map(|l| l.strip_prefix("stat::number_of_executed_units:"));
        let coverage = text.lines().rev().find_map(|line| line.split_once(" cov: "));
        let edges = coverage.and_then(|(_, rest)| rest.split(' ').next()).unwrap_or("?");
        println!("fuzz: {name}: {} inputs, {edges} edges", runs.unwrap_or("?").trim());
    } else if name != CANARY.name {
        print!("{text}");
        let written = text.lines().find_map(|line| line.split_once("Test unit written to "));
        report(name, written.map_or("the file above", |(_, path)| path));
    }
    Ok(passed)
}

fn plain(target: &Target, seed: u32, seconds: u64) -> Result<bool> {
    let name = target.name;
    match driver::run(target, u64::from(seed), Duration::from_secs(seconds)) {
        Outcome::Passed(count) => println!("fuzz: {name}: {count} inputs"),
        Outcome::Failed(_) if name == CANARY.name => return Ok(false),
        Outcome::Failed(input) => {
            let path = artifacts(name)?.join(format!("seed-{seed}"));
            fs::write(&path, input)?;
            report(name, &path.display().to_string());
            return Ok(false);
        }
    }
    Ok(true)
}

fn artifacts(name: &str) -> Result<PathBuf> {
    let folder = fuzz_folder()?.join("artifacts").join(name);
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

fn report(name: &str, path: &str) {
    println!("fuzz: {name} failed; again with: cargo xtask fuzz --target {name} --input {path}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_driver_detects_the_canary() {
        assert!(!Engine::Plain.run(&CANARY, 1, CANARY_SECONDS).unwrap());
    }

    #[test]
    fn every_target_has_its_binary() {
        let folder = fuzz_folder().unwrap();
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        for Target { name, .. } in TARGETS.iter().chain([&CANARY]) {
            assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
            assert!(folder.join(format!("fuzz_targets/{name}.rs")).exists(), "{name}");
        }
    }
}
