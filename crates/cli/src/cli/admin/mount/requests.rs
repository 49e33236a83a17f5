//! The answers of a mount's server to requests through its control socket.
//!
//! 1. A request is a command line, and is parsed as one; the output is the answer.
//! 2. Fsyncs are traced only while there is a follower. A follower that does not read in time loses
//!    lines, and gets their number; no fsync waits for a follower.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Parser, Subcommand};
use userbtrfs::device::DropWritesDevice;
use userbtrfs::mount::control::{Answer, Control, Progress, ReplyStream, Sent};
use userbtrfs::mount::{Mounted, StatsHandle, UnmountHandle};
use userbtrfs::{Filesystem, SyncRecord, TreeId};

use super::args::MountArgs;
use super::shared::SharedMounts;
use crate::cli::admin::filesystem::defragment::DefragmentRequest;
use crate::cli::admin::filesystem::request::{self, FilesystemRequest};
use crate::cli::admin::filesystem::resize;
use crate::cli::admin::stats;
use crate::cli::admin::stats::{MountParts, OnOff};
use crate::cli::admin::subvolume;
use crate::cli::admin::subvolume::{Identity, ListOptions, object, property};
use crate::cli::admin::trace;
use crate::cli::admin::trace::Traced;
use crate::cli::admin::umount;
use crate::cli::args::{Format, Global};
use crate::cli::host::meter::{to_relocate, to_write};
use crate::cli::report::{message, one_line, warn};

/// A request.
#[derive(Parser)]
#[command(name = "", no_binary_name = true)]
struct Request {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    verb: RequestVerb,
}

#[derive(Subcommand)]
enum RequestVerb {
    Stats,
    Sync,
    FilesystemResize {
        /// Send the progress before the answer.
        #[arg(long)]
        progress: bool,
        #[command(flatten)]
        manner: resize::Manner,
        #[arg(allow_hyphen_values = true)]
        size: String,
    },
    /// Another mount of the image.
    Mount(MountArgs),
    /// Answered when the mount has ended.
    Wait,
    Umount {
        /// Unmount even if busy.
        #[arg(long)]
        force: bool,
        /// Send the progress before the answer.
        #[arg(long)]
        progress: bool,
        point: PathBuf,
    },
    DropWrites {
        #[arg(value_enum)]
        toggle: OnOff,
    },
    Trace {
        #[arg(value_enum)]
        what: Traced,
    },
    Defragment(DefragmentRequest),
    #[command(flatten)]
    Filesystem(FilesystemRequest),
    #[command(flatten)]
    Subvolumes(SubvolumeRequest),
    #[command(flatten)]
    Properties(PropertyRequest),
}

/// A request about subvolumes.
#[derive(Subcommand)]
#[expect(clippy::enum_variant_names, reason = "a request is named like its variant")]
enum SubvolumeRequest {
    SubvolumeList {
        #[command(flatten)]
        options: ListOptions,
        path: OsString,
    },
    /// By the inode number of a directory in the subvolume.
    SubvolumeListAt {
        #[command(flatten)]
        options: ListOptions,
        dir: u64,
    },
    SubvolumeGetDefault,
    SubvolumeCreate {
        dir: u64,
        name: OsString,
    },
    SubvolumeSnapshot {
        #[arg(short)]
        read_only: bool,
        source: u64,
        dir: u64,
        name: OsString,
    },
    SubvolumeDelete {
        /// Commit before the answer.
        #[arg(short)]
        commit: bool,
        dir: u64,
        name: OsString,
    },
    /// Answered with the path of the subvolume from the root of the mount.
    SubvolumeDeleteId {
        /// Commit before the answer.
        #[arg(short)]
        commit: bool,
        id: u64,
    },
    SubvolumeShow {
        path: OsString,
    },
    /// By its id or UUID.
    SubvolumeShowBy {
        #[command(flatten)]
        identity: Identity,
    },
    /// By the inode number of the root directory, as the others below.
    SubvolumeShowAt {
        dir: u64,
    },
    /// By id or path.
    SubvolumeSetDefault {
        subvolume: OsString,
    },
    SubvolumeSetDefaultAt {
        dir: u64,
    },
    /// Answered at once, with the ids of those that are not gone.
    SubvolumeSync {
        ids: Vec<u64>,
    },
}

/// A request about a property.
#[derive(Subcommand)]
#[expect(clippy::enum_variant_names, reason = "a request is named like its variant")]
enum PropertyRequest {
    PropertyGet {
        dir: u64,
    },
    /// The label of the filesystem, without a line end.
    PropertyLabel,
    PropertySetLabel {
        label: OsString,
    },
    PropertySet {
        #[arg(short)]
        force: bool,
        #[arg(short)]
        read_only: bool,
        dir: u64,
    },
}

/// The mount that requests are about.
struct ServedMount {
    stats_handle: StatsHandle,
    unmount_handle: UnmountHandle,
    shared: Weak<SharedMounts>,
    /// `None` if the mount is read-only.
    switch: Option<Arc<DropWritesDevice>>,
    followers: Arc<Followers>,
}

/// Answers requests about a mount. The result must be dropped before the mount ends; it is `None`,
/// after a message, if no request can be received: the mount works without that.
pub(super) fn listen(mounted: &Mounted, shared: &Arc<SharedMounts>) -> Option<Control> {
    let listening = try_listen(mounted, shared).context("the control socket");
    listening.map_err(|error| warn(&shared.global, &message(&error))).ok()
}

fn try_listen(mounted: &Mounted, shared: &Arc<SharedMounts>) -> Result<Control> {
    let device = mounted.number().context("the mount is gone")?;
    let served = ServedMount {
        stats_handle: mounted.stats_handle(),
        unmount_handle: mounted.unmount_handle(),
        switch: shared.switch.upgrade(),
        shared: Arc::downgrade(shared),
        followers: Arc::default(),
    };
    let served = Arc::new(served);
    let answer = move |words: &[Vec<u8>]| served.answer(words).map_err(|error| message(&error));
    Ok(Control::listen(device, Box::new(answer))?)
}

impl ServedMount {
    fn answer(self: &Arc<Self>, words: &[Vec<u8>]) -> Result<Answer> {
        let words = words.iter().map(|word| OsStr::from_bytes(word));
        let request = Request::try_parse_from(words).map_err(|error| one_line(&error))?;
        let format = request.global.format;
        let filesystem = self.stats_handle.filesystem();
        let mut out = Vec::new();
        match request.verb {
            RequestVerb::Stats => {
                let of =
                    MountParts { stats_handle: &self.stats_handle, switch: self.switch.as_deref() };
                stats::write(&mut out, filesystem, Some(&of), format)?;
            }
            RequestVerb::Sync => filesystem.commit()?,
            RequestVerb::FilesystemResize { progress: true, manner, size } => {
                return Ok(resize_watched(filesystem, size, manner, request.global));
            }
            RequestVerb::FilesystemResize { progress: false, manner, size } => {
                resize::resize(&mut out, filesystem, &size, manner, &request.global)?;
            }
            RequestVerb::Mount(args) => {
                let shared = self.shared.upgrade().context("the mount is gone")?;
                let listen = |mounted: &Mounted| listen(mounted, &shared);
                out = shared.mount_another(filesystem, &args, listen)?;
            }
            RequestVerb::Wait => {
                return Ok(Answer::AtEnd { begin: Box::new(|| Ok(())), progress: None });
            }
            RequestVerb::Umount { force, progress, point } => {
                return self.umount(force, progress, &point);
            }
            RequestVerb::DropWrites { toggle } => self.drop_writes(toggle)?,
            RequestVerb::Trace { what: Traced::Fsync } => return Ok(self.trace(format)),
            RequestVerb::Filesystem(verb) => {
                request::answer(&mut out, &self.stats_handle, &verb, &request.global)?;
            }
            RequestVerb::Defragment(of) => {
                self.stats_handle.defragment(of.number, &of.request()?)?;
            }
            RequestVerb::Subvolumes(verb) => {
                self.answer_about_subvolumes(&mut out, verb, &request.global)?;
            }
            RequestVerb::Properties(verb) => {
                self.answer_about_properties(&mut out, verb, format)?;
            }
        }
        Ok(Answer::Whole(out))
    }

    fn answer_about_subvolumes(
        &self,
        out: &mut Vec<u8>,
        verb: SubvolumeRequest,
        global: &Global,
    ) -> Result<()> {
        let handle = &self.stats_handle;
        let filesystem = handle.filesystem();
        match verb {
            SubvolumeRequest::SubvolumeList { options, path } => {
                subvolume::write_list(out, filesystem, &options, &path, global)?;
            }
            SubvolumeRequest::SubvolumeListAt { options, dir } => {
                let top = handle.subvolume_of(dir)?;
                subvolume::write_list_of(out, filesystem, &options, &top, global)?;
            }
            SubvolumeRequest::SubvolumeCreate { dir, name } => {
                handle.create_subvolume(dir, name.as_bytes())?;
            }
            SubvolumeRequest::SubvolumeSnapshot { read_only, source, dir, name } => {
                handle.snapshot(source, dir, name.as_bytes(), read_only)?;
            }
            SubvolumeRequest::SubvolumeDelete { commit, dir, name } => {
                handle.delete_subvolume(dir, name.as_bytes())?;
                if commit {
                    filesystem.commit()?;
                }
            }
            SubvolumeRequest::SubvolumeDeleteId { commit, id } => {
                let path = handle.delete_subvolume_by_id(TreeId(id))?;
                let root = filesystem.subvolume(filesystem.root().inode().id().subvolume)?.path;
                out.extend(path.strip_prefix(&root[..]).unwrap_or(&path));
                if commit {
                    filesystem.commit()?;
                }
            }
            SubvolumeRequest::SubvolumeGetDefault => {
                subvolume::write_default(out, filesystem, global)?;
            }
            SubvolumeRequest::SubvolumeShow { path } => {
                subvolume::write_shown(out, filesystem, &path, global)?;
            }
            SubvolumeRequest::SubvolumeShowBy { identity } => {
                subvolume::write_info(out, filesystem, &identity.find(filesystem)?, global)?;
            }
            SubvolumeRequest::SubvolumeShowAt { dir } => {
                subvolume::write_info(out, filesystem, &handle.subvolume_at(dir)?, global)?;
            }
            SubvolumeRequest::SubvolumeSetDefault { subvolume } => {
                subvolume::set_default_to(filesystem, &subvolume)?;
            }
            SubvolumeRequest::SubvolumeSetDefaultAt { dir } => {
                filesystem.set_default_subvolume(handle.subvolume_at(dir)?.id)?;
            }
            SubvolumeRequest::SubvolumeSync { ids } => {
                subvolume::write_deleted(out, filesystem, &ids)?;
            }
        }
        Ok(())
    }

    fn answer_about_properties(
        &self,
        out: &mut Vec<u8>,
        verb: PropertyRequest,
        format: Format,
    ) -> Result<()> {
        let handle = &self.stats_handle;
        let filesystem = handle.filesystem();
        match verb {
            PropertyRequest::PropertyGet { dir } => {
                object::write_read_only(out, &handle.subvolume_at(dir)?, format)?;
            }
            PropertyRequest::PropertyLabel => {
                out.extend_from_slice(&filesystem.superblock().label);
            }
            PropertyRequest::PropertySetLabel { label } => {
                filesystem.set_label(label.as_bytes())?;
            }
            PropertyRequest::PropertySet { force, read_only, dir } => {
                let subvolume = handle.subvolume_at(dir)?;
                handle.write_back();
                property::set_read_only(filesystem, &subvolume, read_only, force)?;
            }
        }
        Ok(())
    }

    /// Ends the mount; if only one of several mount points is removed, answers so at once.
    fn umount(&self, force: bool, progress: bool, point: &Path) -> Result<Answer> {
        let handle = self.unmount_handle.clone();
        ensure!(point == handle.point(), "{}", umount::MOUNTED_ELSEWHERE);
        let stats_handle = self.stats_handle.clone();
        let remaining: Progress = Box::new(move || to_write(stats_handle.filesystem()));
        let begin = Box::new(move || {
            if force {
                handle.stop().map_err(|error| error.to_string())
            } else {
                match handle.unmount() {
                    Ok(true) => Ok(()),
                    Ok(false) => Err(umount::STILL_MOUNTED.to_owned()),
                    Err(error) if error.is_busy() => {
                        Err(format!("{}: target is busy", handle.point().display()))
                    }
                    Err(error) => Err(error.to_string()),
                }
            }
        });
        Ok(Answer::AtEnd { begin, progress: progress.then_some(remaining) })
    }

    fn drop_writes(&self, toggle: OnOff) -> Result<()> {
        let switch = self.switch.as_ref().context("mounted read-only")?;
        match toggle {
            OnOff::On => switch.cut(),
            OnOff::Off if switch.restore() => {}
            OnOff::Off => bail!("cannot resume: {} writes were already dropped", switch.dropped()),
        }
        Ok(())
    }

    fn trace(self: &Arc<Self>, format: Format) -> Answer {
        let served = Arc::clone(self);
        Answer::Parts(Box::new(move |reply_stream| {
            let number = served.follow(Follower { number: 0, format, reply_stream, lost: 0 });
            Box::new(FollowerGuard { served, number })
        }))
    }

    fn follow(&self, follower: Follower) -> u64 {
        let mut list = self.followers.list();
        if list.is_empty() {
            let followers = Arc::clone(&self.followers);
            self.stats_handle.filesystem().trace_syncs(move |record| followers.send(record));
        }
        let number = list.last().map_or(0, |last| last.number + 1);
        list.push(Follower { number, ..follower });
        number
    }
}

/// Resizes a filesystem, and answers with the progress first.
fn resize_watched(
    filesystem: &Filesystem,
    size: String,
    manner: resize::Manner,
    global: Global,
) -> Answer {
    let progress = Box::new(to_relocate(filesystem.clone()));
    let filesystem = filesystem.clone();
    let make = Box::new(move || {
        let mut out = Vec::new();
        let resized = resize::resize(&mut out, &filesystem, &size, manner, &global);
        resized.map(|()| out).map_err(|error| message(&error))
    });
    Answer::Watched { make, progress }
}

/// The followers of the trace.
#[derive(Default)]
struct Followers(Mutex<Vec<Follower>>);

struct Follower {
    number: u64,
    format: Format,
    reply_stream: ReplyStream,
    /// The number of lines lost since the last line that was sent.
    lost: u64,
}

impl Followers {
    fn list(&self) -> MutexGuard<'_, Vec<Follower>> {
        self.0.lock().expect("no holder panics")
    }

    fn send(&self, record: &SyncRecord) {
        self.list().iter_mut().for_each(|follower| follower.send(record));
    }
}

impl Follower {
    fn send(&mut self, record: &SyncRecord) {
        let line = trace::line(record, self.format);
        let lines = match self.lost {
            0 => format!("{line}\n"),
            lost => format!("{}\n{line}\n", trace::lost(lost, self.format)),
        };
        match self.reply_stream.send(lines.as_bytes()) {
            Sent::Whole => self.lost = 0,
            // A follower that has ended is soon removed from the list.
            Sent::Lost | Sent::Gone => self.lost += 1,
        }
    }
}

/// A guard of an entry in the list of followers.
struct FollowerGuard {
    served: Arc<ServedMount>,
    number: u64,
}

impl Drop for FollowerGuard {
    fn drop(&mut self) {
        let mut list = self.served.followers.list();
        list.retain(|follower| follower.number != self.number);
        if list.is_empty() {
            self.served.stats_handle.filesystem().stop_trace();
        }
    }
}
