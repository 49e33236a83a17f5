//! The state that all cases share: the lock on Linux, the folder of files, and the options.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use userbtrfs_testkit::linux::{self, Linux, Mount};

use crate::args::Common;
use crate::interrupt::Interrupt;
use crate::sample::timed;
use crate::target::Target;

/// The state that all cases share.
pub(crate) struct Bench {
    linux: Linux,
    interrupt: Interrupt,
    folder: PathBuf,
    cli: PathBuf,
    common: Common,
}

impl Bench {
    /// Takes the lock on Linux, which is held until this is dropped.
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

    /// Returns the folder of images and copies.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns true if images are kept.
    pub(crate) fn keeps(&self) -> bool {
        self.common.keep
    }

    /// Returns how often each target runs.
    pub(crate) fn runs(&self) -> u32 {
        self.common.runs.get()
    }

    /// Returns true if the times to durable copies are compared.
    pub(crate) fn compares_durable(&self) -> bool {
        self.common.sync
    }

    /// Returns those targets of a case that were requested.
    pub(crate) fn chosen(&self, targets: &[Target]) -> Result<Vec<Target>> {
        let wanted = &self.common.targets;
        let is_wanted = |target: &Target| wanted.is_empty() || wanted.contains(target);
        let chosen: Vec<_> = targets.iter().copied().filter(is_wanted).collect();
        let missing = chosen.contains(&Target::Cli) && !self.cli.is_file();
        ensure!(!missing, "{}: build it first, by `make bench`", self.cli.display());
        Ok(chosen)
    }

    /// Returns the command `userbtrfs`.
    pub(crate) fn cli(&self) -> Command {
        Command::new(&self.cli)
    }

    /// Mounts an image read-only with Linux.
    pub(crate) fn mount(&self, image: &Path) -> Result<Mount> {
        self.mount_with(image, "ro,noatime")
    }

    /// Mounts an image with Linux. Its loop device has direct I/O: without, threads of the kernel's
    /// btrfs wait for one request after another.
    pub(crate) fn mount_with(&self, image: &Path, options: &str) -> Result<Mount> {
        let mount = self.linux.mount(image, options)?;
        for device in mount.devices() {
            linux::run(Command::new("losetup").arg("--direct-io=on").arg(device.path()))?;
        }
        Ok(mount)
    }

    /// Runs `act` with an image mounted; also returns the time of mounting and unmounting.
    pub(crate) fn mounted<T>(
        &self,
        image: &Path,
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

    /// Prepares for a turn: writes back dirty data, drops caches and touches free memory.
    pub(crate) fn settle(&self) -> Result<()> {
        self.interrupt.check()?;
        rustix::fs::syncfs(File::open(&self.folder)?)?;
        if !self.common.warm {
            fs::write("/proc/sys/vm/drop_caches", "3").context("dropping caches")?;
            self.touch_free_memory()?;
        }
        Ok(())
    }

    /// Touches free memory. The host of a virtual machine reclaims free memory, and provides it
    /// again more slowly than disks write: the first target that needs it would pay for that.
    fn touch_free_memory(&self) -> Result<()> {
        let bytes = format!("bs={}", ((1 << 30) / self.common.scale).max(1));
        self.call(Command::new("dd").args(["if=/dev/zero", "of=/dev/null", "count=1", &bytes]))
    }

    /// Runs a program; returns an error with its stderr if it fails.
    pub(crate) fn call(&self, command: &mut Command) -> Result<()> {
        let output = command.stdout(Stdio::null()).output();
        let output = output.with_context(|| format!("running {command:?}"))?;
        self.interrupt.check()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{command:?}: {}\n{said}", output.status);
        Ok(())
    }
}

/// Prints a progress message.
pub(crate) fn say(what: &str) {
    eprintln!("userbtrfs-bench: {what}");
}

/// A directory into which a target copies. Dropping this removes it.
pub(crate) struct Destination(PathBuf);

impl Destination {
    /// Makes an empty directory.
    pub(crate) fn new(bench: &Bench) -> Result<Self> {
        let path = bench.folder().join("destination");
        if path.exists() {
            fs::remove_dir_all(&path).context("removing an older copy")?;
        }
        fs::create_dir(&path).with_context(|| path.display().to_string())?;
        Ok(Self(path))
    }

    /// Returns the path of a name in the directory.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Makes the files in it durable; returns the time that took.
    pub(crate) fn sync(&self) -> Result<Duration> {
        let dir = File::open(&self.0)?;
        let (time, ()) = timed(|| Ok(rustix::fs::syncfs(dir)?))?;
        Ok(time)
    }
}

impl Drop for Destination {
    fn drop(&mut self) {
        // If this fails, the next turn removes the directory, or reports the error.
        let _ = fs::remove_dir_all(&self.0);
    }
}
