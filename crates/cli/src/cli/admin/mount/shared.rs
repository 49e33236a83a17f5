//! The mounts of one image by one server: a further mount of an image that a server of the same
//! user has open is handed to that server.
//!
//! 1. No inode is visible in two mounts with a page cache each: the kernel would show old data in
//!    one of them. A mount of a subvolume that is visible in another mount is therefore a bind
//!    mount of its directory there, and a subvolume that contains a mounted one is refused.
//! 2. A mount of any other subvolume is a FUSE session of its own, on the same open filesystem.
//! 3. No mount is added to a filesystem that is closing: the group of the mounts, which marks the
//!    filesystem as closing when the last one leaves it, refuses another from then on.
//! 4. The image is closed when the last mount has ended, before the asker of its unmount is
//!    answered.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::thread::{self, JoinHandle};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use rustix::mount::MountFlags as SystemFlags;
use userbtrfs::device::{DropWritesDevice, FileDevice};
use userbtrfs::mount::control::{self, Control};
use userbtrfs::mount::{
    KIND, Mount, MountFlags, MountGroup, MountOptions, Mounted, Options, StartError, UnmountHandle,
};
use userbtrfs::{Filesystem, TreeId};

use super::args::{MountArgs, source};
use super::options::OptionList;
use crate::cli::args::Global;
use crate::cli::host::image::ImageArgs;
use crate::cli::host::meter::to_write;
use crate::cli::report::{message, print_error};

/// The mounts of one image.
pub(super) struct SharedMounts {
    pub(super) global: Global,
    pub(super) image: ImageArgs,
    /// The image, for messages.
    pub(super) name: String,
    /// Not kept open: the image is closed with its filesystem.
    pub(super) device: Weak<FileDevice>,
    /// The switch between the filesystem and the device; none if it is open read-only.
    pub(super) switch: Weak<DropWritesDevice>,
    pub(super) group: MountGroup,
    live: Mutex<Live>,
    threads: Mutex<Vec<JoinHandle<Result<()>>>>,
}

/// The mounts that have not ended.
#[derive(Default)]
struct Live {
    mounts: Vec<LiveMount>,
}

struct LiveMount {
    number: Option<u64>,
    subvolume: TreeId,
    handle: UnmountHandle,
}

/// The refusal of a server whose last mount has ended.
pub(super) const BEING_UNMOUNTED: &str = "is being unmounted";

/// How a mount that was handed over is to be completed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HandedOver {
    /// It is complete.
    Mounted,
    /// By a bind mount of this directory, which is in the mount with this device number.
    Bind(u64, PathBuf),
}

impl SharedMounts {
    pub(super) fn new(
        global: &Global,
        image: &ImageArgs,
        device: &Arc<FileDevice>,
        switch: Option<&Arc<DropWritesDevice>>,
        group: MountGroup,
    ) -> Arc<Self> {
        Arc::new(Self {
            global: global.clone(),
            image: image.clone(),
            name: image.name(),
            device: Arc::downgrade(device),
            switch: switch.map(Arc::downgrade).unwrap_or_default(),
            group,
            live: Mutex::default(),
            threads: Mutex::default(),
        })
    }

    fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().expect("no holder panics")
    }

    /// Adds a mount that has begun.
    pub(super) fn add(&self, mounted: &Mounted) {
        self.add_to(&mut self.live(), mounted);
    }

    fn add_to(&self, live: &mut Live, mounted: &Mounted) {
        let number = mounted.number();
        let handle = mounted.unmount_handle();
        let subvolume = mounted.stats_handle().filesystem().root().inode().id().subvolume;
        if let (Some(device), Some(number)) = (self.device.upgrade(), number) {
            device.publish_mount(number);
        }
        live.mounts.push(LiveMount { number, subvolume, handle });
    }

    /// Serves a mount to its end, whose questions are answered.
    pub(super) fn serve_with(&self, mounted: Mounted, control: Option<Control>) -> Result<()> {
        mounted.wait();
        let number = mounted.number();
        let mut live = self.live();
        live.mounts
            .retain(|mount| mount.number != number || mount.handle.point() != mounted.point());
        let is_over = live.mounts.is_empty();
        if let (false, Some(device), Some(number)) = (is_over, self.device.upgrade(), number) {
            device.withdraw_mount(number);
        }
        drop(live);
        let waiting = control.map(Control::close).unwrap_or_default();
        {
            let handle = mounted.stats_handle();
            let progress = || to_write(handle.filesystem());
            waiting.report(&progress, || mounted.finish());
        }
        let ended = mounted.end().with_context(|| self.name.clone());
        let why = ended.as_ref().err().map(message);
        waiting.tell(why.as_deref().map_or(Ok(()), Err));
        ended
    }

    /// Waits for the mounts that were handed over. Returns whether all ended well.
    pub(super) fn join_others(&self) -> bool {
        let mut is_good = true;
        loop {
            let thread = self.threads.lock().expect("no holder panics").pop();
            let Some(thread) = thread else { return is_good };
            match thread.join() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    print_error(&message(&error));
                    is_good = false;
                }
                Err(_) => is_good = false,
            }
        }
    }

    /// Ends all mounts, though they are in use.
    pub(super) fn stop(&self) {
        for mount in &self.live().mounts {
            if let Err(error) = mount.handle.stop() {
                print_error(&error.to_string());
            }
        }
    }

    /// Mounts a subvolume of the open filesystem, of which `filesystem` is a handle. `listen`
    /// begins to answer requests about the mount.
    pub(super) fn mount_another(
        self: &Arc<Self>,
        filesystem: &Filesystem,
        args: &MountArgs,
        listen: impl FnOnce(&Mounted) -> Option<Control>,
    ) -> Result<Vec<u8>> {
        let option_list = OptionList::parse(&args.options, args.sloppy)?;
        let image = option_list.image(&args.image)?;
        let is_same = image.image_offset == self.image.image_offset
            && image.partition == self.image.partition;
        ensure!(is_same, "is locked: another part of it is mounted");
        ensure!(filesystem.is_writable() || option_list.is_read_only(), "is mounted read-only");
        let mut live = self.live();
        ensure!(!self.group.is_over(), BEING_UNMOUNTED);
        let filesystem = filesystem.reopened(&option_list.to_open())?;
        let subvolume = filesystem.root().inode().id().subvolume;
        option_list.check_subvolume(subvolume)?;
        if let Some((number, path)) = find_visible(&live, &filesystem, subvolume)? {
            let mut answer = format!("bind {number} ").into_bytes();
            answer.extend_from_slice(path.as_os_str().as_bytes());
            return Ok(answer);
        }
        let mounted = self.start(filesystem, &option_list, &args.dir)?;
        self.add_to(&mut live, &mounted);
        let control = listen(&mounted);
        let shared = Arc::clone(self);
        let served = thread::Builder::new().spawn(move || shared.serve_with(mounted, control));
        self.threads
            .lock()
            .expect("no holder panics")
            .push(served.context("cannot start a thread")?);
        Ok(b"mounted".to_vec())
    }

    fn start(
        &self,
        filesystem: Filesystem,
        option_list: &OptionList,
        dir: &Path,
    ) -> Result<Mounted> {
        let device = source(&self.image.image);
        let options = MountOptions {
            source: option_list.name.clone().unwrap_or_else(|| device.clone()),
            subtype: KIND.to_owned(),
            flags: option_list.flags,
            auto_unmount: option_list.auto_unmount,
            security: option_list.security.clone(),
            ..MountOptions::default()
        };
        let mount = Mount::new(dir, &options)?;
        let options = Options {
            threads: option_list.threads,
            device: device.into(),
            group: self.group.clone(),
            users_delete_subvolumes: option_list.users_delete_subvolumes,
        };
        Mounted::start(mount, filesystem, &options).map_err(|error| match error {
            StartError::Closing => anyhow!(BEING_UNMOUNTED),
            StartError::Session(error) => error.into(),
        })
    }
}

/// Returns where a subvolume is visible in one of the mounts, if it is: the device number of the
/// mount, and the path. Fails if the subvolume contains one that is mounted.
fn find_visible(
    live: &Live,
    filesystem: &Filesystem,
    subvolume: TreeId,
) -> Result<Option<(u64, PathBuf)>> {
    let path = |id| Ok::<_, anyhow::Error>(filesystem.subvolume(id)?.path);
    let ours = path(subvolume)?;
    for mount in &live.mounts {
        let theirs = path(mount.subvolume)?;
        if let (Some(below), Some(number)) = (path_below(&theirs, &ours), mount.number) {
            let below = Path::new(std::ffi::OsStr::from_bytes(below));
            return Ok(Some((number, mount.handle.point().join(below))));
        }
        if path_below(&ours, &theirs).is_some() {
            let mut what = String::new();
            write!(what, "{}", userbtrfs::Quoted(&theirs))?;
            bail!("the subvolume contains {what}, which is mounted already; mount it first");
        }
    }
    Ok(None)
}

/// Returns the path of `path` relative to `above`, if it is the same or lies below.
fn path_below<'a>(above: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(above)?;
    match rest {
        [] => Some(rest),
        _ if above.is_empty() => Some(rest),
        [b'/', rest @ ..] => Some(rest),
        _ => None,
    }
}

/// Hands a mount to the server of the mount with this device number.
pub(super) fn hand_over(
    number: u64,
    args: &MountArgs,
    dir: &Path,
) -> Result<HandedOver, control::AskError> {
    let words: Vec<OsString> = ["mount".into()].into_iter().chain(args.words(dir)).collect();
    let words: Vec<_> = words.iter().map(|word| word.as_bytes()).collect();
    let mut answer = Vec::new();
    control::ask_device(number, &words, &mut answer)?;
    let bind = answer.strip_prefix(b"bind ").and_then(|rest| {
        let space = rest.iter().position(|byte| *byte == b' ')?;
        let number = std::str::from_utf8(&rest[..space]).ok()?.parse().ok()?;
        Some(HandedOver::Bind(number, OsString::from_vec(rest[space + 1..].to_vec()).into()))
    });
    Ok(bind.unwrap_or(HandedOver::Mounted))
}

/// Completes a mount that was handed over: as root, by a bind mount with its flags.
pub(super) fn bind(number: u64, path: &Path, dir: &Path, option_list: &OptionList) -> Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "is mounted at {}; only root can mount it again",
        path.display()
    );
    let found = control::device_at(path).with_context(|| path.display().to_string())?;
    ensure!(found == number, "is mounted at {}, where something else is found", path.display());
    ensure!(path != dir, "is mounted at {} already", path.display());
    rustix::mount::mount_bind(path, dir).with_context(|| dir.display().to_string())?;
    // The other flags are those of the filesystem, and not of a mount of it.
    let of_filesystem = MountFlags::SYNCHRONOUS | MountFlags::LAZY_TIME;
    let flags = (option_list.flags - of_filesystem).to_system();
    if !flags.is_empty() {
        let done = rustix::mount::mount_remount(dir, SystemFlags::BIND | flags, c"");
        done.with_context(|| dir.display().to_string())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::path_below;

    #[test]
    fn path_is_below_another_by_whole_names() {
        assert_eq!(path_below(b"", b"@home"), Some(&b"@home"[..]));
        assert_eq!(path_below(b"@", b"@"), Some(&b""[..]));
        assert_eq!(path_below(b"@", b"@/var"), Some(&b"var"[..]));
        assert_eq!(path_below(b"@", b"@home"), None);
        assert_eq!(path_below(b"@/var", b"@"), None);
    }
}
