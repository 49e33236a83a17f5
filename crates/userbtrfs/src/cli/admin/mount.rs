//! `mount`: an image as a directory, by FUSE.
//!
//! 1. The image is opened first: who cannot have it leaves no mount behind. A block device that
//!    root mounts is the exception: the kernel claims it as it mounts it, and only then is anything
//!    read of it, or written.
//! 2. It returns when the directory can be used; with `-f` when it is unmounted.
//! 3. A signal ends the mount as umount(8) does, whoever uses it: everything is durable after. One
//!    that was ignored when it started stays so, and before anything is mounted it just ends.
//! 4. Who still has the image is waited for a while. When the mount is gone, this server says so at
//!    once, and who opens the image from then on waits for its end; until then it says which mount
//!    it serves, so that a reader who cannot find that any more waits as well.
//! 5. While it is mounted, who mounted it may ask through the control socket.
//! 6. Nothing is looked up by a path once it is mounted: the path may lie below the mount point,
//!    and the server would wait for itself.
//! 7. A server in the background keeps no descriptor that its caller left open.

pub(in crate::cli) mod helper;
mod loop_device;
mod options;
mod questions;
mod ready;
mod shared;
mod signals;

use std::ffi::OsString;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use rustix::io::Errno;
use signal_hook::iterator::Signals;
use userbtrfs::device::{DeviceError, DropWritesDevice, FileDevice, FileOptions, mount_of_holder};
use userbtrfs::mount::control::{self, AskError};
use userbtrfs::mount::{KIND, Mount, MountError, MountGroup, MountOptions, Mounted, Options};
use userbtrfs::{Error, Filesystem, Warning};

use crate::cli::args::Global;
use crate::cli::host::image::ImageArgs;
use crate::cli::host::retry::{is_in_use, patiently};
use crate::cli::host::signals::raise_open_files;
use crate::cli::report::{complain, message, remark};
use loop_device::LoopDevice;
use options::OptionList;
use shared::{HandedOver, SharedMounts};

#[derive(clap::Args)]
#[command(after_help = options::HELP)]
pub(crate) struct MountArgs {
    /// Mount options, with commas between them
    #[arg(short, long, value_name = "OPTS")]
    options: Vec<OsString>,
    /// Stay in the foreground until it is unmounted
    #[arg(short, long)]
    foreground: bool,
    /// Say on stdout when it is mounted, and let go of the terminal
    #[arg(long, hide = true)]
    say_ready: bool,
    /// Take options that are not known
    #[arg(long, hide = true)]
    sloppy: bool,
    #[command(flatten)]
    image: ImageArgs,
    /// The directory to mount it at
    dir: PathBuf,
}

/// The size of blocks of a block device that the kernel mounts, in bytes.
const BLOCK: u32 = 4096;
/// Bytes of memory that writes may take which are dropped, for a test.
const DROPPED_MAX: usize = 1 << 30;

/// A block device that the kernel has mounted, and the signals that end the mount.
type Claimed = (Signals, Mount);

/// What is mounted.
struct MountTarget<'a> {
    global: &'a Global,
    args: &'a MountArgs,
    wishes: OptionList,
    image: ImageArgs,
    /// The image, for messages.
    name: String,
    /// It is a block device that the kernel claims.
    is_claimed: bool,
    /// The loop device that stands for an image file, so that the kernel mounts a block device.
    loop_device: Option<LoopDevice>,
}

pub(crate) fn run(global: &Global, args: &MountArgs) -> Result<ExitCode> {
    // Each thread that serves has a descriptor of the device.
    if args.say_ready {
        ready::close_inherited();
    }
    raise_open_files();
    let mut site = MountTarget::new(global, args)?;
    match args.foreground || args.say_ready {
        true => site.serve(),
        false => ready::in_background(global, args),
    }
}

impl<'a> MountTarget<'a> {
    fn new(global: &'a Global, args: &'a MountArgs) -> Result<Self> {
        let wishes = OptionList::parse(&args.options, args.sloppy)?;
        let image = wishes.image(&args.image)?;
        let name = image.name();
        let is_root = rustix::process::geteuid().is_root();
        ensure!(
            !(wishes.auto_unmount && is_block_device(&image.image)),
            "{name}: mount option auto_unmount: not for block devices"
        );
        // Of what is only read there may be several mounts, which the kernel would take for one.
        let is_claimed = is_root && !wishes.is_read_only() && is_block_device(&args.image.image);
        Ok(Self { global, args, wishes, image, name, is_claimed, loop_device: None })
    }

    /// Mounts, and serves to the end.
    fn serve(&mut self) -> Result<ExitCode> {
        if let Some(code) = self.hand_over()? {
            return Ok(code);
        }
        let (mounted, shared, mut signals) = self.begin()?;
        self.complain_of_failure(&mounted);
        let control = shared.listen(&mounted);
        if self.global.verbose > 0 && !self.is_claimed {
            remark(
                self.global,
                "mount: umount(8) returns before the image is closed, and sync(2) does not commit; \
                 use \"userbtrfs umount\" and \"userbtrfs filesystem sync\"",
            );
        }
        if self.args.say_ready {
            ready::say()?;
        }
        let (of_thread, handle) = (Arc::clone(&shared), signals.handle());
        let ender = move || {
            for _ in signals.forever() {
                of_thread.stop();
            }
        };
        let ender = thread::Builder::new().spawn(ender).context("cannot start a thread")?;
        let ended = shared.serve_with(mounted, control);
        let others = shared.join_others();
        handle.close();
        ender.join().map_err(|_| anyhow!("a signal made a thread panic"))?;
        ended?;
        Ok(if others { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Hands the mount to a server of this user that has the image open, if there is one. Returns
    /// `None` if there is none, or it cannot be reached.
    fn hand_over(&self) -> Result<Option<ExitCode>> {
        let image = &self.image.image;
        let opened = FileDevice::open(image, self.device_options());
        let number = opened.err().filter(is_in_use).and_then(|_| mount_of_holder(image));
        let Some(number) = number.filter(|number| control::is_mounted(*number)) else {
            return Ok(None);
        };
        let dir = self.args.dir.canonicalize();
        let dir = dir.with_context(|| self.args.dir.display().to_string())?;
        let number = match shared::hand_over(number, self.args, &dir) {
            Ok(HandedOver::Mounted) => None,
            Ok(HandedOver::Bind(number, path)) => {
                shared::bind(number, &path, &dir, &self.wishes)
                    .with_context(|| self.name.clone())?;
                Some(number)
            }
            Err(AskError::Refused(why)) if why == shared::ENDING => return Ok(None),
            Err(AskError::Refused(why)) => bail!("{}: {why}", self.name),
            Err(_) => return Ok(None),
        };
        if self.args.say_ready {
            ready::say()?;
        } else {
            // In the foreground: as long as it is mounted.
            let number = number.map_or_else(|| control::device_at(&dir), Ok)?;
            let _ = control::ask_device(number, &[b"wait"], &mut Vec::new());
        }
        Ok(Some(ExitCode::SUCCESS))
    }

    /// Says on stderr, as soon as that is so, why nothing is written any more. In the background
    /// there is none; `stats` says it anyway.
    fn complain_of_failure(&self, mounted: &Mounted) {
        let (tell, told) = channel::<Error>();
        // Who is told has ended when the filesystem is not there any more, and lets go of this.
        mounted.stats_handle().filesystem().tell_failure(move |error| drop(tell.send(error)));
        let name = self.name.clone();
        thread::spawn(move || {
            for error in told {
                complain(&message(&anyhow::Error::from(error).context(name.clone())));
            }
        });
    }

    fn begin(&mut self) -> Result<(Mounted, Arc<SharedMounts>, Signals)> {
        self.tell_wishes();
        let path = source(&self.image.image).into();
        let (device, claimed) = self.claim()?;
        let (filesystem, switch) = self.open(&device)?;
        let (signals, mount) = match claimed {
            Some(claimed) => claimed,
            None => (signals::heed()?, self.mount()?),
        };
        let group = MountGroup::default();
        let options = Options { threads: self.wishes.threads, device: path, group: group.clone() };
        let mounted = Mounted::start(mount, filesystem, &options)?;
        let of = (self.global, &self.image);
        let shared = SharedMounts::new(of, &device, switch.as_ref(), group);
        shared.add(&mounted);
        Ok((mounted, shared, signals))
    }

    /// Opens the device; mounts a block device that the kernel claims.
    ///
    /// A write-protected image is mounted read-only, with the warning of mount(8). Where the kernel
    /// allows no `fuseblk`, as in a user namespace, it is mounted as an image file is.
    fn claim(&mut self) -> Result<(Arc<FileDevice>, Option<Claimed>)> {
        let mut opened = self.open_device();
        if !self.wishes.is_read_only() && opened.as_ref().is_err_and(is_write_protected) {
            remark(self.global, "WARNING: source write-protected, mounted read-only");
            self.wishes.set_read_only();
            self.is_claimed = false;
            opened = self.open_device();
        }
        let device = Arc::new(opened.map_err(|error| self.explain(error))?);
        if self.wishes.loop_device && !self.wishes.is_read_only() && !self.is_claimed {
            self.loop_device = Some(LoopDevice::attach(&self.image.image)?);
            self.is_claimed = true;
        }
        if !self.is_claimed {
            return Ok((device, None));
        }
        let signals = signals::heed()?;
        let mounted = self.mount();
        // From now on it goes with the mount; if there is none, it goes at once.
        self.loop_device = None;
        match mounted {
            Ok(mount) => Ok((device, Some((signals, mount)))),
            Err(error) if is_not_permitted(&error) => {
                drop(device);
                self.is_claimed = false;
                let device = self.open_device().map_err(|error| self.explain(error))?;
                Ok((Arc::new(device), None))
            }
            Err(error) => Err(error),
        }
    }

    fn tell_wishes(&self) {
        if self.global.verbose > 0 {
            // Of a block device the kernel wants the path.
            let name = self.wishes.name.as_ref().filter(|_| self.is_claimed);
            let name = name.map(|name| format!("fsname={}", name.display()));
            for option in self.wishes.meaningless.iter().chain(&name) {
                remark(self.global, &format!("mount: option {option} has no meaning here"));
            }
        }
    }

    fn device_options(&self) -> FileOptions {
        FileOptions {
            writable: !self.wishes.is_read_only(),
            in_peace: true,
            io_uring: self.wishes.io_uring,
            claim: !self.is_claimed,
            ..self.image.file_options()
        }
    }

    fn open_device(&self) -> Result<FileDevice, DeviceError> {
        patiently(|| FileDevice::open(&self.image.image, self.device_options()), is_in_use)
    }

    fn explain(&self, error: impl Into<anyhow::Error>) -> anyhow::Error {
        self.image.explain(error)
    }

    /// Opens the filesystem; where it is written, with a switch in the way to its device.
    fn open(
        &self,
        device: &Arc<FileDevice>,
    ) -> Result<(Filesystem, Option<Arc<DropWritesDevice>>)> {
        let options = self.wishes.to_open();
        let switched = || Arc::new(DropWritesDevice::new(device.clone(), DROPPED_MAX));
        let switch = (!self.wishes.is_read_only()).then(switched);
        let opened = options.open_devices(vec![match &switch {
            Some(switch) => switch.clone(),
            None => device.clone(),
        }]);
        let filesystem = opened.map_err(|error| self.explain(error))?;
        // A root directory that cannot be read is no mount.
        filesystem.root().inode().metadata().with_context(|| self.name.clone())?;
        let opened = filesystem.root().inode().id().subvolume;
        self.wishes.check_subvolume(opened).with_context(|| self.name.clone())?;
        let say = |notice: &Warning| remark(self.global, &format!("{}: {notice}", self.name));
        filesystem.notices().iter().for_each(say);
        if self.global.verbose > 0 && filesystem.replayed().is_some() {
            remark(self.global, &format!("{}: a log was replayed", self.name));
        }
        Ok((filesystem, switch))
    }

    fn mount(&self) -> Result<Mount> {
        // The kernel would take a file, whose content is a directory then.
        let is_file = self.args.dir.metadata().is_ok_and(|metadata| !metadata.is_dir());
        ensure!(!is_file, "{}: {}", self.args.dir.display(), Errno::NOTDIR);
        let shown = self.wishes.name.clone().unwrap_or_else(|| source(&self.image.image));
        let claimed = self.loop_device.as_ref().map(LoopDevice::path);
        let claimed = source(claimed.unwrap_or(&self.image.image));
        let options = MountOptions {
            source: if self.is_claimed { claimed } else { shown },
            subtype: KIND.to_owned(),
            block_size: self.is_claimed.then_some(BLOCK),
            flags: self.wishes.flags,
            auto_unmount: self.wishes.auto_unmount,
            security: self.wishes.security.clone(),
            ..MountOptions::default()
        };
        let mounted = patiently(
            || Mount::new(&self.args.dir, &options),
            |error| self.is_claimed && MountError::is_busy(error),
        );
        // That it may not be written, say, is of the device and not of the directory.
        if self.is_claimed { mounted.with_context(|| self.name.clone()) } else { Ok(mounted?) }
    }
}

/// The image as the table of mounts shows it.
fn source(image: &Path) -> OsString {
    image.canonicalize().map_or_else(|_| image.into(), PathBuf::into_os_string)
}

/// Whether an image may be read and not be written.
fn is_write_protected(error: &DeviceError) -> bool {
    match error {
        DeviceError::WriteProtected { .. } => true,
        DeviceError::Open { source, .. } => Errno::from_io_error(source) == Some(Errno::ACCESS),
        _ => false,
    }
}

/// Whether the kernel does not let this process mount in this way.
fn is_not_permitted(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<MountError>();
    matches!(error, Some(MountError::System { error: Errno::PERM, .. }))
}

fn is_block_device(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.file_type().is_block_device())
}
