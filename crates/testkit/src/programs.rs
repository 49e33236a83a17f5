//! Programs as people use them: scripts that work in an empty directory, and fail where they find
//! something wrong.
//!
//! 1. A script is run by `sh -e`. It has `SCALE` (1, or 10 where every count is done in full),
//!    `OUTSIDE`, a directory on another filesystem, and `PROJECT`, the sources of this project.
//! 2. What it lacks it says, with status 77: then it is skipped.
//! 3. It says when each of its phases begins: a line in `OUTSIDE/phases`.
//! 4. What it knows to be durable it says in `OUTSIDE`, too. A second script, for the directory as
//!    a crash left it, fails where that is not there. Files that are not changed any more are in
//!    `OUTSIDE/durable`, with their checksums, and looked at after every script.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context as _, bail, ensure};

/// The status by which a script says that something is not here.
const LACKS: i32 = 77;

/// What each script begins with.
const HEAD: &str = include_str!("programs/head.sh");

/// What a look at what a crash left begins with.
const HEAD_AFTER: &str =
    "test ! -e \"$OUTSIDE/durable\" || sha256sum --quiet -c \"$OUTSIDE/durable\"\n";

/// Something that programs do.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Its name.
    pub name: &'static str,
    /// Whether it takes minutes.
    pub is_long: bool,
    script: &'static str,
    /// What fails where something is not there after a crash that was durable before.
    after: &'static str,
}

/// How a script ended that found nothing wrong.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// It did all.
    Done,
    /// Something is not here.
    Skipped(String),
}

macro_rules! programs {
    ($($name:literal $is_long:literal $after:expr,)*) => {
        /// All of them.
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

    /// The one of a name.
    pub fn named(name: &str) -> Self {
        *Self::ALL.iter().find(|program| program.name == name).expect("a name of the list")
    }

    /// What it does one after the other.
    pub fn phases(&self) -> Vec<&'static str> {
        let name = |line: &'static str| Some(line.strip_prefix("phase ")?.trim_matches('\''));
        self.script.lines().filter_map(name).collect()
    }

    /// How many of its phases have begun.
    pub fn begun(outside: &Path) -> io::Result<usize> {
        match fs::read_to_string(outside.join("phases")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            said => Ok(said?.lines().count()),
        }
    }

    /// What runs it in a directory, ready to be started.
    pub fn command(&self, directory: &Path, outside: &Path, in_full: bool) -> Command {
        shell(&[HEAD, self.script].concat(), directory, outside, in_full)
    }

    /// Runs it in a directory; an error with what it said where it fails.
    pub fn run(&self, directory: &Path, outside: &Path, in_full: bool) -> anyhow::Result<End> {
        self.end(&self.command(directory, outside, in_full).output().context("running sh")?)
    }

    /// How it ended that said this; an error with that where it failed.
    pub fn end(&self, output: &Output) -> anyhow::Result<End> {
        match output.status.code() {
            Some(0) => Ok(End::Done),
            Some(LACKS) => Ok(End::Skipped(text(&output.stdout))),
            _ => bail!("{}: {}", self.name, told(output)),
        }
    }

    /// Looks at its directory as a crash left it, and may change it; gives what there is to say. An
    /// error where something is not there that was durable.
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
    fn what_was_durable_is_missed() {
        let [place, outside] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let (place, outside) = (place.path(), outside.path());
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
