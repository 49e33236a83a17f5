//! The btrfs-progs that make an image: the installed ones, or newer ones in a temporary folder.
//!
//! The newer ones are packages of Debian's suite `sid`. apt fetches them with its own lists and
//! folders from the archive of this machine's apt. They are unpacked (never installed) with the
//! libraries they need, and run through their own loader. Only making images needs them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::Context;
use userbtrfs_testkit::linux::run;

/// The folder of the libraries, within the unpacked folder.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// The keyring of Debian's archive.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// A set of btrfs-progs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progs {
    /// The installed ones.
    Installed,
    /// Newer ones, unpacked in a temporary folder.
    Newer,
}

impl Progs {
    /// Returns a command of this set, for example `mkfs.btrfs`.
    pub(crate) fn command(self, name: &str) -> anyhow::Result<Command> {
        match self {
            Self::Installed => Ok(Command::new(name)),
            Self::Newer => newer(name),
        }
    }
}

fn newer(name: &str) -> anyhow::Result<Command> {
    let home = env::temp_dir().join("userbtrfs-newer-btrfs-progs");
    let root = home.join("root");
    if !root.exists() {
        fetch(&home).context("fetching newer btrfs-progs")?;
        unpack(&home.join("cache/archives"), &root).context("unpacking newer btrfs-progs")?;
    }
    let libraries = root.join(LIBRARIES);
    let mut command = Command::new(libraries.join("ld-linux-x86-64.so.2"));
    let folders = ["usr/bin", "usr/sbin"];
    let program = folders.iter().map(|folder| root.join(folder).join(name)).find(|p| p.exists());
    command.arg("--library-path").arg(&libraries);
    command.arg(program.with_context(|| format!("newer btrfs-progs have no {name}"))?);
    Ok(command)
}

/// Downloads the packages: with an empty list of installed packages apt fetches every library.
fn fetch(home: &Path) -> anyhow::Result<()> {
    for folder in ["lists/partial", "cache/archives/partial", "state"] {
        fs::create_dir_all(home.join(folder))?;
    }
    fs::write(home.join("status"), "")?;
    fs::write(home.join("sources.list"), source()?)?;
    run(apt(home).arg("update"))?;
    let install = ["--yes", "--no-install-recommends", "--download-only", "install", "btrfs-progs"];
    run(apt(home).args(install)).map(drop)
}

fn apt(home: &Path) -> Command {
    let mut apt = Command::new("apt-get");
    let mut option = |name: &str, path: PathBuf| {
        apt.arg("-o").arg(format!("{name}={}", path.display()));
    };
    option("Dir::State", home.join("state"));
    option("Dir::State::lists", home.join("lists"));
    option("Dir::State::status", home.join("status"));
    option("Dir::Cache", home.join("cache"));
    option("Dir::Etc::sourcelist", home.join("sources.list"));
    option("Dir::Etc::sourceparts", PathBuf::from("-"));
    apt.args(["-o", "APT::Sandbox::User=root"]);
    apt
}

/// Returns the source line for `sid` of the first archive of this machine's apt.
fn source() -> anyhow::Result<String> {
    let format = ["indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"];
    let listed = String::from_utf8(run(Command::new("apt-get").args(format))?.stdout)?;
    let archive = listed.lines().next().context("apt has no sources here")?;
    Ok(format!("deb [signed-by={KEYS}] {archive} sid main\n"))
}

fn unpack(archives: &Path, root: &Path) -> anyhow::Result<()> {
    let part = root.with_extension("part");
    for archive in fs::read_dir(archives)? {
        let archive = archive?.path();
        if archive.extension().is_some_and(|extension| extension == "deb") {
            run(Command::new("dpkg").arg("-x").arg(&archive).arg(&part))?;
        }
    }
    Ok(fs::rename(part, root)?)
}
