//! Common programs in use: scripts that work in an empty directory, and fail if they find an error.
//!
//! 1. A script is run by `sh -e` with the variables `SCALE` (1, or 10 for a full run), `OUTSIDE`, a
//!    directory on another filesystem, and `PROJECT`, the sources of this project.
//! 2. If a requirement is missing, the script prints it and exits with status 77: it is skipped.
//! 3. The script reports the start of each phase by a line in `OUTSIDE/phases`.
//! 4. The script also records in `OUTSIDE` what it knows to be durable. A second script, for the
//!    directory as a crash left it, fails if any of that is missing. Files that do not change any
//!    more are in `OUTSIDE/durable`, with their checksums, and are verified after every script.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context as _, bail, ensure};

use crate::time_limit::limit_time;

/// The exit status of a script for a missing requirement.
const LACKS: i32 = 77;

/// The start of each script.
const HEAD: &str = include_str!("programs/head.sh");

/// The start of each check after a crash.
const HEAD_AFTER: &str =
    "test ! -e \"$OUTSIDE/durable\" || sha256sum --quiet -c \"$OUTSIDE/durable\"\n";

/// A script that uses a program.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// The name.
    pub name: &'static str,
    /// Whether it takes minutes.
    pub is_long: bool,
    script: &'static str,
    /// The script that fails after a crash if anything is missing that was durable.
    after: &'static str,
}

/// The end of a script that found no error.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// It completed.
    Done,
    /// A requirement is missing.
    Skipped(String),
}

macro_rules! programs {
    ($($name:literal $is_long:literal $after:expr,)*) => {
        /// All programs.
        pub const ALL: &[Self] = &[$(Self {
            name: $name,
            is_long: $is_long,
            script: include_str!(concat!("programs/", $name, ".sh")),
            after: $after,
        },)*];
    };
}

impl Program {
    programs! {
        "git" false include_str!("programs/git-after.sh"),
        "archive" false "",
        "sqlite" false include_str!("programs/sqlite-after.sh"),
        "dbench" false "",
        "fio" false "",
        "fs_mark" false include_str!("programs/fs_mark-after.sh"),
        "processes" false "",
        "postgres" true include_str!("programs/postgres-after.sh"),
        "cargo" true "",
    }

    /// Returns the program of this name.
    pub fn named(name: &str) -> Self {
        *Self::ALL.iter().find(|program| program.name == name).expect("a name of the list")
    }

    /// Returns the names of its phases, in order.
    pub fn phases(&self) -> Vec<&'static str> {
        let name = |line: &'static str| Some(line.strip_prefix("phase ")?.trim_matches('\''));
        self.script.lines().filter_map(name).collect()
    }

    /// Returns the number of phases that have begun.
    pub fn begun(outside: &Path) -> io::Result<usize> {
        match fs::read_to_string(outside.join("phases")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            said => Ok(said?.lines().count()),
        }
    }

    /// Returns the command that runs the script in a directory.
    pub fn command(&self, directory: &Path, outside: &Path, in_full: bool) -> Command {
        shell(&[HEAD, self.script].concat(), directory, outside, in_full)
    }

    /// Runs the script in a directory; fails with its output if the script fails.
    pub fn run(&self, directory: &Path, outside: &Path, in_full: bool) -> anyhow::Result<End> {
        self.end(&self.command(directory, outside, in_full).output().context("running sh")?)
    }

    /// Returns how the script with this output ended; fails with the output if the script failed.
    pub fn end(&self, output: &Output) -> anyhow::Result<End> {
        match output.status.code() {
            Some(0) => Ok(End::Done),
            Some(LACKS) => Ok(End::Skipped(text(&output.stdout))),
            _ => bail!("{}: {}", self.name, told(output)),
        }
    }

    /// Checks the directory as a crash left it, which may change it; returns the output. Fails if
    /// anything is missing that was durable.
    pub fn look_after(
        &self,
        directory: &Path,
        outside: &Path,
        in_full: bool,
    ) -> anyhow::Result<String> {
        let script = [HEAD_AFTER, self.after].concat();
        let output = shell(&script, directory, outside, in_full).output().context("running sh")?;
        ensure!(output.status.success(), "{}, after a crash: {}", self.name, told(&output));
        Ok(text(&output.stdout))
    }
}

fn shell(script: &str, directory: &Path, outside: &Path, in_full: bool) -> Command {
    limit_time();
    let mut command = Command::new("sh");
    command.args(["-ec", script]).current_dir(directory);
    command.env("SCALE", if in_full { "10" } else { "1" }).env("OUTSIDE", outside);
    command.env("PROJECT", concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

fn told(output: &Output) -> String {
    format!("{}\n{}\n{}", output.status, text(&output.stdout), text(&output.stderr))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(script: &'static str, after: &'static str) -> Program {
        Program { name: "test", is_long: false, script, after }
    }

    fn run(script: &'static str) -> anyhow::Result<End> {
        let place = tempfile::tempdir().unwrap();
        program(script, "").run(place.path(), place.path(), false)
    }

    #[test]
    fn a_script_that_lacks_something_is_skipped_by_name() {
        let lacks = run("needs sh no-such-program\nfalse\n").unwrap();
        assert_eq!(lacks, End::Skipped("no no-such-program".to_owned()));
        assert_eq!(run("needs sh\ntest $SCALE = 1\n").unwrap(), End::Done);
    }

    #[test]
    fn the_first_command_that_fails_ends_a_script() {
        let error = run("echo before; false; echo after").unwrap_err().to_string();
        assert!(error.contains("before") && !error.contains("after"), "{error}");
    }

    #[test]
    fn a_script_says_when_each_of_its_phases_begins() {
        let place = tempfile::tempdir().unwrap();
        let program = program("phase one\nphase 'the last'\nphases=3\n", "");
        assert_eq!(program.phases(), ["one", "the last"]);
        assert_eq!(Program::begun(place.path()).unwrap(), 0);
        program.run(place.path(), place.path(), false).unwrap();
        assert_eq!(Program::begun(place.path()).unwrap(), 2);
        for program in Program::ALL {
            assert!(!program.phases().is_empty(), "{}", program.name);
        }
    }

    #[test]
    fn missing_durable_file_is_reported() {
        let [place, outside] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let place = place.path();
        let outside = outside.path();
        let program = program("echo content >file\ndurable file\n", "echo seen; test -e other");
        let look = || program.look_after(place, outside, false).map_err(|error| error.to_string());
        assert!(look().unwrap_err().contains("seen"));
        fs::write(place.join("other"), "").unwrap();
        assert_eq!(look().unwrap(), "seen");
        program.run(place, outside, false).unwrap();
        assert_eq!(look().unwrap(), "seen");
        fs::write(place.join("file"), "other").unwrap();
        assert!(!look().unwrap_err().contains("seen"));
    }
}
