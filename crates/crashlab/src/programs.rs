//! Programs as people use them: scripts that work in an empty directory, and fail where they find
//! something wrong.
//!
//! 1. A script is run by `sh -e`. It has `SCALE` (1, or 10 where every count is done in full),
//!    `OUTSIDE`, a directory on another filesystem, and `PROJECT`, the sources of this project.
//! 2. What it lacks it says, with status 77: then it is skipped.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};

/// The status by which a script says that something is not here.
const LACKS: i32 = 77;

/// What each script begins with.
const HEAD: &str = "needs() {\n\
    for program; do\n\
        command -v $program >/dev/null || { echo no $program; exit 77; }\n\
    done\n}\n";

/// Something that programs do.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Its name.
    pub name: &'static str,
    /// Whether it takes minutes.
    pub is_long: bool,
    script: &'static str,
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
    ($($name:literal $is_long:literal,)*) => {
        /// All of them.
        pub const ALL: &[Self] = &[$(Self {
            name: $name,
            is_long: $is_long,
            script: include_str!(concat!("programs/", $name, ".sh")),
        },)*];
    };
}

impl Program {
    programs! {
        "git" false,
        "archive" false,
        "sqlite" false,
        "dbench" false,
        "fio" false,
        "fs_mark" false,
        "processes" false,
        "postgres" true,
        "cargo" true,
    }

    /// The one of a name.
    pub fn named(name: &str) -> Self {
        *Self::ALL.iter().find(|program| program.name == name).expect("a name of the list")
    }

    /// What runs it in a directory, ready to be started.
    pub fn command(&self, directory: &Path, outside: &Path, in_full: bool) -> Command {
        let mut command = Command::new("sh");
        command.args(["-ec", &[HEAD, self.script].concat()]).current_dir(directory);
        command.env("SCALE", if in_full { "10" } else { "1" }).env("OUTSIDE", outside);
        command.env("PROJECT", concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        command
    }

    /// Runs it in a directory; an error with what it said where it fails.
    pub fn run(&self, directory: &Path, outside: &Path, in_full: bool) -> anyhow::Result<End> {
        let output = self.command(directory, outside, in_full).output().context("running sh")?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        let (said, complained) = (text(&output.stdout), text(&output.stderr));
        match output.status.code() {
            Some(0) => Ok(End::Done),
            Some(LACKS) => Ok(End::Skipped(said)),
            _ => bail!("{}: {}\n{said}\n{complained}", self.name, output.status),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &'static str) -> anyhow::Result<End> {
        let place = tempfile::tempdir().unwrap();
        Program { name: "test", is_long: false, script }.run(place.path(), place.path(), false)
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
}
