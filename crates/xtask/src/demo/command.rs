//! Calls of the command, and their output.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

/// The number of lines shown of a long listing.
const LINES_SHOWN: usize = 12;

/// The command to show, and the folder to work in.
pub(super) struct Demo {
    pub(super) program: PathBuf,
    folder: TempDir,
    /// The start time, in seconds since 1970.
    pub(super) begun: i64,
}

/// The files extracted from an image.
pub(super) struct Extracted {
    pub(super) folder: PathBuf,
    /// The filesystem of the folder supports all owners and attributes.
    pub(super) all_kept: bool,
    /// The time that took; `None` if the image was not extracted but mounted.
    pub(super) time: Option<Duration>,
}

impl Demo {
    /// Creates the folder; `program` is the command, the one beside this program by default.
    pub(super) fn new(program: Option<&Path>) -> Result<Self> {
        let program = match program {
            Some(program) => program.to_owned(),
            None => std::env::current_exe()?.with_file_name("userbtrfs"),
        };
        let program = program
            .canonicalize()
            .with_context(|| format!("{}: build it first, by `make run`", program.display()))?;
        let folder = TempDir::with_prefix("userbtrfs-demo-")?;
        let begun = folder.path().metadata()?.mtime();
        Ok(Self { program, folder, begun })
    }

    /// Lists the contents of the image.
    pub(super) fn list(&self, image: &Path) -> Result<()> {
        self.call(&["ls", "-lR"], &[image, Path::new("/")])?;
        self.call(&["df"], &[image])?;
        self.call(&["subvolume", "list"], &[image])
    }

    /// Extracts the whole image.
    pub(super) fn extract(&self, image: &Path) -> Result<Extracted> {
        let name = image.file_stem().context("an image has a name")?;
        let folder = self.path("out").join(name);
        std::fs::create_dir_all(self.path("out"))?;
        let start = Instant::now();
        let top = ["get", "--subvolid", "5"];
        let output = self.show_call(&top, &[image, Path::new("/"), &folder])?;
        let status = output.status;
        let time = Some(start.elapsed());
        // Without privilege no device can be made; the comparison finds any other missing file.
        ensure!(status.success() || !is_superuser(), "userbtrfs get: {status}");
        let all_kept = !String::from_utf8_lossy(&output.stderr).contains("not preserved");
        Ok(Extracted { folder, all_kept, time })
    }

    /// Calls the command, which must succeed.
    pub(super) fn call(&self, verb: &[&str], paths: &[&Path]) -> Result<()> {
        let status = self.show_call(verb, paths)?.status;
        ensure!(status.success(), "userbtrfs {}: {status}", verb.join(" "));
        Ok(())
    }

    /// Calls the command and shows the call with the beginning of its output.
    pub(super) fn show_call(&self, verb: &[&str], paths: &[&Path]) -> Result<Output> {
        let shown: Vec<_> = paths.iter().map(|path| self.short(path)).collect();
        println!("\n$ userbtrfs {} {}", verb.join(" "), shown.join(" "));
        let output = Command::new(&self.program).args(verb).args(paths).output()?;
        show_beginning(&String::from_utf8_lossy(&output.stdout));
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        Ok(output)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the path without the temporary folder.
    pub(super) fn short(&self, path: &Path) -> String {
        path.strip_prefix(self.folder.path()).unwrap_or(path).display().to_string()
    }
}

/// Returns true if this process is the superuser's.
pub(super) fn is_superuser() -> bool {
    rustix::process::geteuid().is_root()
}

/// Shows the first lines of a text.
pub(super) fn show_beginning(text: &str) {
    for line in text.lines().take(LINES_SHOWN) {
        println!("{line}");
    }
    let more = text.lines().count().saturating_sub(LINES_SHOWN);
    if more > 0 {
        println!("... and {more} lines more");
    }
}

/// Finds a program in PATH or in the `sbin` folders.
pub(super) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let administrators = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    let folders = std::env::split_paths(&path).chain(administrators);
    folders.map(|folder| folder.join(name)).find(|program| program.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_in_path_is_found() {
        assert!(find_program("sh").is_some());
        assert!(find_program("no-such-program").is_none());
    }
}
