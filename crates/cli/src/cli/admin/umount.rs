//! `umount`: ends mounts, and waits until their images are closed. umount(8) does not wait for the
//! server of an image file.
//!
//! 1. The server unmounts: it knows when the image is closed, and whether its last commit failed.
//! 2. A mount point other than the server's, such as a bind mount, is unmounted here.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, anyhow};
use rustix::mount::UnmountFlags;
use userbtrfs::mount::control::{self, AskError};

use crate::cli::args::Global;
use crate::cli::host::meter::{is_shown, watch_reported};
use crate::cli::report::{fail, message, warn};

#[derive(clap::Args)]
pub(crate) struct UmountArgs {
    /// Unmount even if busy; written data is kept, later requests fail
    #[arg(short, long, conflicts_with = "lazy")]
    force: bool,
    /// Detach now; the mount ends when it is no longer in use
    #[arg(short, long)]
    lazy: bool,
    /// Mount points
    #[arg(required = true, value_name = "DIR")]
    points: Vec<PathBuf>,
}

/// The server's refusal if the directory is not its mount point.
pub(super) const MOUNTED_ELSEWHERE: &str = "mounted elsewhere";
/// The server's answer if the filesystem has another mount point.
pub(super) const STILL_MOUNTED: &str = "still mounted at another place; the image stays open";

pub(crate) fn run(global: &Global, args: &UmountArgs) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for point in &args.points {
        if let Err(error) = umount(global, args, point) {
            fail(&message(&error));
            code = ExitCode::FAILURE;
        }
    }
    code
}

fn umount(global: &Global, args: &UmountArgs, point: &Path) -> Result<()> {
    let named = || point.display().to_string();
    let whole = point.canonicalize().with_context(named)?;
    if args.lazy {
        control::check(&whole)?;
        return unmount_here(&whole, true);
    }
    let mut words = vec![&b"umount"[..]];
    words.extend(args.force.then_some(&b"--force"[..]));
    words.extend(is_shown(global).then_some(&b"--progress"[..]));
    words.extend([&b"--"[..], whole.as_os_str().as_encoded_bytes()]);
    let asked = watch_reported(global, "unmounting", |report| {
        control::ask_watched(&whole, &words, &mut Vec::new(), report)
    });
    match asked {
        Err(AskError::Refused(why)) if why == MOUNTED_ELSEWHERE => unmount_here(&whole, false),
        Err(AskError::Refused(why)) if why == STILL_MOUNTED => {
            warn(global, &format!("{}: {why}", named()));
            Ok(())
        }
        // The server has ended, or belongs to another user: this cannot wait for it.
        Err(AskError::NoServer { .. } | AskError::Stranger { .. }) => {
            unmount_here(&whole, false)?;
            warn(global, &format!("{}: unmounted; its image may still be open", named()));
            Ok(())
        }
        other => Ok(other?),
    }
}

/// Unmounts by the system call as root, or by fusermount3.
fn unmount_here(point: &Path, lazy: bool) -> Result<()> {
    let named = || point.display().to_string();
    if rustix::process::geteuid().is_root() {
        let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
        return rustix::mount::unmount(point, flags | UnmountFlags::NOFOLLOW).with_context(named);
    }
    let mut helper = Command::new("fusermount3");
    helper.arg(if lazy { "-uz" } else { "-u" }).arg("--").arg(point);
    let output = helper.output().context("fusermount3")?;
    if output.status.success() {
        Ok(())
    } else {
        Err(anyhow!("{}", String::from_utf8_lossy(&output.stderr).trim_end()))
    }
}
