//! The command, run by a user without rights.

use std::ffi::OsStr;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use userbtrfs_testkit::test_env::NOBODY;

use super::command::Ran;
use crate::mount::Site;

/// That user, whose the image and its folder are.
pub(crate) struct Nobody {
    /// The command itself may stand where only root may look.
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

    /// The command with these arguments, ready to be run.
    pub(crate) fn command<I: IntoIterator<Item: AsRef<OsStr>>>(&self, arguments: I) -> Command {
        let mut command = Self::program(&self.program);
        command.args(arguments).env_remove("XDG_RUNTIME_DIR");
        command
    }

    /// Any program, ready to be run.
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
