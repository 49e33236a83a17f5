//! What all cases share: the right to ask Linux, where files lie, how often and how.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use userbtrfs_testkit::linux::{self, Linux, Mount};

use crate::args::Common;
use crate::image::Image;
use crate::interrupt::Interrupt;
use crate::sample::timed;
use crate::target::Target;

/// What all cases share.
pub(crate) struct Bench {
    linux: Linux,
    interrupt: Interrupt,
    folder: PathBuf,
    cli: PathBuf,
    common: Common,
}

impl Bench {
    /// Takes the right to ask Linux, for as long as it lives.
    pub(crate) fn new(common: &Common) -> Result<Self> {
        linux::available().map_err(anyhow::Error::msg).context("the kernel cannot be measured")?;
        let beside = |name: &str| -> Result<PathBuf> {
            Ok(std::env::current_exe().context("this program")?.with_file_name(name))
        };
        let folder = common.dir.clone().map_or_else(|| beside("userbtrfs-bench-images"), Ok)?;
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        Ok(Self {
            linux: Linux::lock()?,
            interrupt: Interrupt::watch()?,
            folder,
            cli: common.cli.clone().map_or_else(|| beside("userbtrfs"), Ok)?,
            common: common.clone(),
        })
    }

    pub(crate) fn linux(&self) -> &Linux {
        &self.linux
    }

    pub(crate) fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    /// Where images and copies lie.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether images are kept.
    pub(crate) fn keeps(&self) -> bool {
        self.common.keep
    }

    /// How often each target has its turn.
    pub(crate) fn runs(&self) -> u32 {
        self.common.runs.get()
    }

    /// Whether times to durable copies are compared.
    pub(crate) fn compares_durable(&self) -> bool {
        self.common.sync
    }

    /// Those of a case's targets that take part.
    pub(crate) fn chosen(&self, targets: &[Target]) -> Result<Vec<Target>> {
        let wanted = &self.common.targets;
        let is_wanted = |target: &Target| wanted.is_empty() || wanted.contains(target);
        let chosen: Vec<_> = targets.iter().copied().filter(is_wanted).collect();
        let missing = chosen.contains(&Target::Cli) && !self.cli.is_file();
        ensure!(!missing, "{}: build it first, by `make bench`", self.cli.display());
        Ok(chosen)
    }

    /// The command `userbtrfs`.
    pub(crate) fn cli(&self) -> Command {
        Command::new(&self.cli)
    }

    /// Mounts an image for reading, as Linux is measured.
    pub(crate) fn mount(&self, image: &Image) -> Result<Mount> {
        self.linux.mount(image.path(), "ro,noatime")
    }

    /// Does something with an image mounted; also gives how long all around it took.
    pub(crate) fn mounted<T>(
        &self,
        image: &Image,
        act: impl FnOnce(&Path) -> Result<T>,
    ) -> Result<(Duration, T)> {
        let (before, mount) = timed(|| self.mount(image))?;
        let value = act(mount.path())?;
        let (after, ()) = timed(|| {
            drop(mount);
            Ok(())
        })?;
        Ok((before + after, value))
    }

    /// Makes the next turn start as every other did.
    pub(crate) fn settle(&self) -> Result<()> {
        self.interrupt.check()?;
        rustix::fs::syncfs(File::open(&self.folder)?)?;
        if !self.common.warm {
            fs::write("/proc/sys/vm/drop_caches", "3").context("dropping caches")?;
            self.touch_free_memory()?;
        }
        Ok(())
    }

    /// The host of a virtual machine takes back what is free there, and gives it again more slowly
    /// than disks write: who needs memory first would pay for it.
    fn touch_free_memory(&self) -> Result<()> {
        let bytes = format!("bs={}", ((1 << 30) / self.common.scale).max(1));
        self.call(Command::new("dd").args(["if=/dev/zero", "of=/dev/null", "count=1", &bytes]))
    }

    /// Runs a program to its end; an error with what it said on stderr unless it succeeds.
    pub(crate) fn call(&self, command: &mut Command) -> Result<()> {
        let output = command.stdout(Stdio::null()).output();
        let output = output.with_context(|| format!("running {command:?}"))?;
        self.interrupt.check()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{command:?}: {}\n{said}", output.status);
        Ok(())
    }
}

/// Says something to who waits.
pub(crate) fn say(what: &str) {
    eprintln!("userbtrfs-bench: {what}");
}

/// A directory into which a target copies; removed with the value.
pub(crate) struct Destination(PathBuf);

impl Destination {
    /// Makes it, empty.
    pub(crate) fn new(bench: &Bench) -> Result<Self> {
        let path = bench.folder().join("destination");
        if path.exists() {
            fs::remove_dir_all(&path).context("removing an older copy")?;
        }
        fs::create_dir(&path).with_context(|| path.display().to_string())?;
        Ok(Self(path))
    }

    /// The path of something in it.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Makes what is in it durable; gives how long that took.
    pub(crate) fn sync(&self) -> Result<Duration> {
        let dir = File::open(&self.0)?;
        let (time, ()) = timed(|| Ok(rustix::fs::syncfs(dir)?))?;
        Ok(time)
    }
}

impl Drop for Destination {
    fn drop(&mut self) {
        // The next one is made over what is left, or says why not.
        let _ = fs::remove_dir_all(&self.0);
    }
}
