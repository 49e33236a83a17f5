//! `mount`: serves an image at a directory, by FUSE.
//!
//! 1. The image is opened first: if that fails, nothing is mounted. A block device that root mounts
//!    is the exception: the kernel claims it when it mounts it, and only then is the device read or
//!    written.
//! 2. The command returns when the directory can be used; with `-f` when it is unmounted.
//! 3. A signal ends the mount as umount(8) does, even if it is in use: everything is durable then.
//!    A signal that was ignored at the start stays ignored; before the mount it ends the process.
//! 4. Opening retries for one second while another process holds the image. After an unmount the
//!    server marks the image as closing at once, and openers wait for its end; until then the image
//!    names the mount that it is served as, so that a reader that does not find that mount waits
//!    too.
//! 5. While the image is mounted, the user that mounted it may send requests through the control
//!    socket.
//! 6. Nothing is looked up by a path once the image is mounted: the path may lie below the mount
//!    point, and the server would wait for itself.
//! 7. A server in the background keeps no descriptor that its caller left open.

mod args;
pub(in crate::cli) mod helper;
mod loop_device;
mod options;
mod ready;
mod requests;
mod shared;
mod signals;

use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use rustix::io::Errno;
use signal_hook::iterator::Signals;
use userbtrfs::device::{
    Device, DeviceError, DropWritesDevice, FileDevice, FileOptions, mount_of_holder,
};
use userbtrfs::mount::control::{self, AskError};
use userbtrfs::mount::{KIND, Mount, MountError, MountGroup, MountOptions, Mounted, Options};
use userbtrfs::{Error, Filesystem, Warning};

use crate::cli::args::Global;
use crate::cli::host::image::ImageArgs;
use crate::cli::host::meter::open_watched;
use crate::cli::host::retry::{is_in_use, retry};
use crate::cli::host::signals::raise_open_files;
use crate::cli::report::{message, print_error, warn};
pub(in crate::cli) use args::MountArgs;
use args::source;
use loop_device::LoopDevice;
use options::OptionList;
use shared::{HandedOver, SharedMounts};

/// The block size of a block device that the kernel mounts, in bytes.
const BLOCK: u32 = 4096;
/// The maximum size of dropped writes in memory.
const DROPPED_MAX: usize = 1 << 30;

/// A block device that the kernel has mounted, and the signals that end the mount.
type Claimed = (Signals, Mount);

/// A mount to be made.
struct MountTarget<'a> {
    global: &'a Global,
    args: &'a MountArgs,
    option_list: OptionList,
    image: ImageArgs,
    /// The image, for messages.
    name: String,
    /// True for a block device that the kernel claims.
    is_claimed: bool,
    /// The loop device of an image file, so that the kernel mounts a block device.
    loop_device: Option<LoopDevice>,
}

pub(crate) fn run(global: &Global, args: &MountArgs) -> Result<ExitCode> {
    // Each thread that serves has a descriptor of the device.
    if args.notify_ready {
        ready::close_inherited();
    }
    raise_open_files();
    let mut target = MountTarget::new(global, args)?;
    if args.foreground || args.notify_ready {
        target.serve()
    } else {
        ready::in_background(global, args)
    }
}

impl<'a> MountTarget<'a> {
    fn new(global: &'a Global, args: &'a MountArgs) -> Result<Self> {
        let option_list = OptionList::parse(&args.options, args.sloppy)?;
        let image = option_list.image(&args.image)?;
        let name = image.name();
        let is_root = rustix::process::geteuid().is_root();
        ensure!(
            !(option_list.auto_unmount && is_block_device(&image.image)),
            "{name}: mount option auto_unmount: not for block devices"
        );
        // There may be several read-only mounts of a device, which the kernel would take for one.
        let is_claimed =
            is_root && !option_list.is_read_only() && is_block_device(&args.image.image);
        Ok(Self { global, args, option_list, image, name, is_claimed, loop_device: None })
    }

    /// Mounts the image, and serves it until the mount ends.
    fn serve(&mut self) -> Result<ExitCode> {
        if let Some(code) = self.hand_over()? {
            return Ok(code);
        }
        let (mounted, shared, mut signals) = self.begin()?;
        self.report_failure(&mounted);
        let control = requests::listen(&mounted, &shared);
        if self.global.verbose > 0 && !self.is_claimed {
            warn(
                self.global,
                "mount: umount(8) returns before the image is closed, and sync(2) does not commit; \
                 use \"userbtrfs umount\" and \"userbtrfs filesystem sync\"",
            );
        }
        if self.args.notify_ready {
            ready::notify()?;
        }
        let mounts = Arc::clone(&shared);
        let handle = signals.handle();
        let stopper = move || {
            for _ in signals.forever() {
                mounts.stop();
            }
        };
        let stopper = thread::Builder::new().spawn(stopper).context("cannot start a thread")?;
        let ended = shared.serve_with(mounted, control);
        let others = shared.join_others();
        handle.close();
        stopper.join().map_err(|_| anyhow!("a signal made a thread panic"))?;
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
                shared::bind(number, &path, &dir, &self.option_list)
                    .with_context(|| self.name.clone())?;
                Some(number)
            }
            Err(AskError::Refused(why)) if why == shared::BEING_UNMOUNTED => return Ok(None),
            Err(AskError::Refused(why)) => bail!("{}: {why}", self.name),
            Err(_) => return Ok(None),
        };
        if self.args.notify_ready {
            ready::notify()?;
        } else {
            // In the foreground: as long as it is mounted.
            let number = number.map_or_else(|| control::device_at(&dir), Ok)?;
            let _ = control::ask_device(number, &[b"wait"], &mut Vec::new());
        }
        Ok(Some(ExitCode::SUCCESS))
    }

    /// Reports on stderr at once why writing has ended. A server in the background has no stderr;
    /// `stats` shows the reason in any case.
    fn report_failure(&self, mounted: &Mounted) {
        let (sender, receiver) = channel::<Error>();
        // The thread ends when the filesystem, which owns the sender, is dropped.
        mounted.stats_handle().filesystem().on_failure(move |error| drop(sender.send(error)));
        let name = self.name.clone();
        thread::spawn(move || {
            for error in receiver {
                print_error(&message(&anyhow::Error::from(error).context(name.clone())));
            }
        });
    }

    fn begin(&mut self) -> Result<(Mounted, Arc<SharedMounts>, Signals)> {
        self.note_ineffective_options();
        let path = source(&self.image.image).into();
        let (device, claimed) = self.claim()?;
        let (filesystem, switch) = self.open(&device)?;
        let (signals, mount) = match claimed {
            Some(claimed) => claimed,
            None => (signals::catch_signals()?, self.mount()?),
        };
        let group = MountGroup::default();
        let options = Options {
            threads: self.option_list.threads,
            device: path,
            group: group.clone(),
            users_delete_subvolumes: self.option_list.users_delete_subvolumes,
        };
        let mounted = Mounted::start(mount, filesystem, &options)?;
        let shared = SharedMounts::new(self.global, &self.image, &device, switch.as_ref(), group);
        shared.add(&mounted);
        Ok((mounted, shared, signals))
    }

    /// Opens the device; mounts a block device that the kernel claims.
    ///
    /// A write-protected image is mounted read-only, with the warning of mount(8). If the kernel
    /// permits no `fuseblk`, as in a user namespace, a device is mounted as an image file is.
    fn claim(&mut self) -> Result<(Arc<FileDevice>, Option<Claimed>)> {
        let mut opened = self.open_device();
        if !self.option_list.is_read_only() && opened.as_ref().is_err_and(is_write_protected) {
            warn(self.global, "WARNING: source write-protected, mounted read-only");
            self.option_list.set_read_only();
            self.is_claimed = false;
            opened = self.open_device();
        }
        let device = Arc::new(opened.map_err(|error| self.explain(error))?);
        if self.option_list.loop_device && !self.option_list.is_read_only() && !self.is_claimed {
            self.loop_device = Some(LoopDevice::attach(&self.image.image)?);
            self.is_claimed = true;
        }
        if !self.is_claimed {
            return Ok((device, None));
        }
        let signals = signals::catch_signals()?;
        let mounted = self.mount();
        // The loop device is detached with the mount, or at once if there is none.
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

    fn note_ineffective_options(&self) {
        if self.global.verbose > 0 {
            // The source of a block device has to be its path.
            let name = self.option_list.name.as_ref().filter(|_| self.is_claimed);
            let name = name.map(|name| format!("fsname={}", name.display()));
            for option in self.option_list.ineffective.iter().chain(&name) {
                warn(self.global, &format!("mount: option {option} has no effect"));
            }
        }
    }

    fn device_options(&self) -> FileOptions {
        FileOptions {
            writable: !self.option_list.is_read_only(),
            exclude_writers: true,
            io_uring: self.option_list.io_uring,
            claim: !self.is_claimed,
            ..self.image.file_options()
        }
    }

    fn open_device(&self) -> Result<FileDevice, DeviceError> {
        retry(|| FileDevice::open(&self.image.image, self.device_options()), is_in_use)
    }

    fn explain(&self, error: impl Into<anyhow::Error>) -> anyhow::Error {
        self.image.explain(error)
    }

    /// Opens the filesystem; for writing, with a device that can drop writes.
    fn open(
        &self,
        device: &Arc<FileDevice>,
    ) -> Result<(Filesystem, Option<Arc<DropWritesDevice>>)> {
        let switched = || Arc::new(DropWritesDevice::new(device.clone(), DROPPED_MAX));
        let switch = (!self.option_list.is_read_only()).then(switched);
        let used: Arc<dyn Device> = match &switch {
            Some(switch) => switch.clone(),
            None => device.clone(),
        };
        let opened = open_watched(self.global, self.option_list.to_open(), |options| {
            options.open_devices(vec![used])
        });
        let filesystem = opened.map_err(|error| self.explain(error))?;
        // If the root directory cannot be read, nothing is mounted.
        filesystem.root().inode().metadata().with_context(|| self.name.clone())?;
        let opened = filesystem.root().inode().id().subvolume;
        self.option_list.check_subvolume(opened).with_context(|| self.name.clone())?;
        let print = |warning: &Warning| warn(self.global, &format!("{}: {warning}", self.name));
        filesystem.warnings().iter().for_each(print);
        if self.global.verbose > 0 && filesystem.replayed().is_some() {
            warn(self.global, &format!("{}: a log was replayed", self.name));
        }
        Ok((filesystem, switch))
    }

    fn mount(&self) -> Result<Mount> {
        // The kernel would accept a file as the mount point.
        let is_file = self.args.dir.metadata().is_ok_and(|metadata| !metadata.is_dir());
        ensure!(!is_file, "{}: {}", self.args.dir.display(), Errno::NOTDIR);
        let shown = self.option_list.name.clone().unwrap_or_else(|| source(&self.image.image));
        let claimed = self.loop_device.as_ref().map(LoopDevice::path);
        let claimed = source(claimed.unwrap_or(&self.image.image));
        let options = MountOptions {
            source: if self.is_claimed { claimed } else { shown },
            subtype: KIND.to_owned(),
            block_size: self.is_claimed.then_some(BLOCK),
            flags: self.option_list.flags,
            auto_unmount: self.option_list.auto_unmount,
            security: self.option_list.security.clone(),
            ..MountOptions::default()
        };
        let mounted = retry(
            || Mount::new(&self.args.dir, &options),
            |error| self.is_claimed && MountError::is_busy(error),
        );
        // The error, such as write protection, is one of the device, not of the directory.
        if self.is_claimed { mounted.with_context(|| self.name.clone()) } else { Ok(mounted?) }
    }
}

/// Returns true if the image may be read and not written.
fn is_write_protected(error: &DeviceError) -> bool {
    match error {
        DeviceError::WriteProtected { .. } => true,
        DeviceError::Open { source, .. } => Errno::from_io_error(source) == Some(Errno::ACCESS),
        _ => false,
    }
}

/// Returns true if the kernel does not permit this process to mount in this way.
fn is_not_permitted(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<MountError>();
    matches!(error, Some(MountError::System { error: Errno::PERM, .. }))
}

fn is_block_device(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.file_type().is_block_device())
}
