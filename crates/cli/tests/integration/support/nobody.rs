//! The command, run by an unprivileged user.

use std::ffi::OsStr;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use userbtrfs_testkit::test_env::NOBODY;

use super::command::Ran;
use super::site::Site;

/// The unprivileged user, which owns the image and its folder.
pub(crate) struct Nobody {
    /// A copy of the command, which itself may be in a directory that only root can access.
    program: PathBuf,
}

impl Nobody {
    pub(crate) fn of(site: &Site) -> Self {
        for path in [site.image(), site.point(), site.made.at("")] {
            chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let program = site.made.at("program");
        std::fs::copy(env!("CARGO_BIN_EXE_userbtrfs"), &program).unwrap();
        Self { program }
    }

    /// Returns the command with these arguments, ready to be run.
    pub(crate) fn command<I: IntoIterator<Item: AsRef<OsStr>>>(&self, arguments: I) -> Command {
        let mut command = Self::program(&self.program);
        command.args(arguments).env_remove("XDG_RUNTIME_DIR");
        command
    }

    /// Returns any program, ready to be run.
    pub(crate) fn program(program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir("/").uid(NOBODY).gid(NOBODY);
        command
    }

    /// Runs the command with these arguments.
    pub(crate) fn run<I: IntoIterator<Item: AsRef<OsStr>>>(&self, arguments: I) -> Ran {
        self.command(arguments).output().expect("the command runs").into()
    }
}
