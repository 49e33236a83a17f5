//! Runs the `btrfs` of btrfs-progs.
//!
//! 1. The program is the first executable file `btrfs` in PATH, then in the usual folders, that is
//!    not this program.
//! 2. A copy of this program, or a script that calls it, cannot be told apart from btrfs-progs. So
//!    that these do not call each other forever, a variable of the environment numbers the programs
//!    tried so far, and a program that runs below another one continues after these.

use std::env;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};

/// The folders that are searched after those of PATH.
const USUAL: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// The variable with the number of programs that were tried.
const TRIED: &str = "USERBTRFS_BTRFS_TRIED";

/// Replaces this process by the other `btrfs`. Returns only if that fails.
pub(super) fn hand_over(arguments: &[OsString]) -> Result<ExitCode> {
    // Output that cannot be written is of no concern to the other program.
    let _ = io::stdout().flush();
    let mut failure = None;
    for (tried, program) in others().into_iter().skip(tried()) {
        let error = command(&program, tried).args(arguments).exec();
        failure = failure.or(Some((program, error)));
    }
    match failure {
        Some((program, error)) => Err(error).context(program.display().to_string()),
        None => none_found(),
    }
}

/// Runs the other `btrfs`, and returns its exit status.
pub(super) fn run_and_wait(arguments: &[OsString]) -> Result<ExitCode> {
    let _ = io::stdout().flush();
    let Some((tried, program)) = others().into_iter().nth(tried()) else { return none_found() };
    let status = command(&program, tried).args(arguments).status();
    let status = status.with_context(|| program.display().to_string())?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

fn none_found() -> Result<ExitCode> {
    bail!(
        "not a command for a mount or an image of userbtrfs, and btrfs-progs is not installed (no \
         other btrfs in PATH)"
    )
}

/// Returns the number of programs that the programs above this one tried.
fn tried() -> usize {
    let tried = env::var(TRIED).ok();
    tried.and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn command(program: &Path, tried: usize) -> Command {
    let mut command = Command::new(program);
    command.env(TRIED, (tried + 1).to_string());
    command
}

/// Returns the programs of the name `btrfs` other than this one, each once, with their numbers.
fn others() -> Vec<(usize, PathBuf)> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(USUAL.map(PathBuf::from));
    let own = env::current_exe().and_then(fs::metadata).map(|own| identity(&own)).ok();
    others_in(folders, own).into_iter().enumerate().collect()
}

fn others_in(folders: impl Iterator<Item = PathBuf>, own: Option<(u64, u64)>) -> Vec<PathBuf> {
    let mut seen: Vec<(u64, u64)> = own.into_iter().collect();
    let mut found = Vec::new();
    for folder in folders {
        let program = folder.join("btrfs");
        let Ok(file) = fs::metadata(&program) else { continue };
        let is_program = file.is_file() && file.permissions().mode() & 0o111 != 0;
        if is_program && !seen.contains(&identity(&file)) {
            seen.push(identity(&file));
            found.push(program);
        }
    }
    found
}

fn identity(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_to_this_program_and_repeated_folders_are_passed_over() {
        let base = tempfile::tempdir().unwrap();
        let folder = |name: &str| base.path().join(name);
        let program = |name: &str, mode: u32| {
            fs::create_dir(folder(name)).unwrap();
            let path = folder(name).join("btrfs");
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        };
        program("own", 0o755);
        program("plain", 0o644);
        program("other", 0o755);
        fs::create_dir(folder("link")).unwrap();
        symlink(folder("own").join("btrfs"), folder("link").join("btrfs")).unwrap();
        fs::create_dir_all(folder("directory").join("btrfs")).unwrap();
        let own = identity(&fs::metadata(folder("own").join("btrfs")).unwrap());
        let names = ["link", "own", "missing", "plain", "directory", "other", "other"];
        let found = others_in(names.map(folder).into_iter(), Some(own));
        assert_eq!(found, [folder("other").join("btrfs")]);
    }
}
