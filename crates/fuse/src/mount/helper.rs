//! Mounting as any user, by `fusermount3`.
//!
//! The helper mounts, and sends the descriptor of the FUSE device through a socket whose number it
//! reads from its environment. Here the socket is its standard input.

use std::ffi::OsString;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
    recvmsg, socketpair,
};

use super::error::MountError;
use super::options::{MountFlags, MountOptions};

const HELPER: &str = "fusermount3";
/// The environment variable with the descriptor number of the helper's socket.
const SOCKET_VARIABLE: &str = "_FUSE_COMMFD";

/// Mounts, and returns the descriptor of the FUSE device; and, if the helper is to unmount when
/// this process ends, the socket by which it notices that.
pub(super) fn mount(
    point: &Path,
    options: &MountOptions,
) -> Result<(OwnedFd, Option<OwnedFd>), MountError> {
    if options.block_size.is_some() {
        return Err(MountError::BlockDevice);
    }
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(MountError::Device)?;
    let mut command = helper();
    command.arg("-o").arg(text(options)).arg("--").arg(point);
    let child = command.env(SOCKET_VARIABLE, "0").stdin(theirs).stderr(Stdio::piped()).spawn();
    let child = child.map_err(|error| no_helper(&error))?;
    // Closes our copy of the helper's end, so that `receive` ends when the helper does.
    drop(command);
    let device = receive(&ours);
    if options.auto_unmount
        && let Ok(Some(device)) = device
    {
        // It ends after this process, or after the socket is closed.
        return Ok((device, Some(ours)));
    }
    let output = child.wait_with_output().map_err(|error| no_helper(&error))?;
    match device {
        Ok(Some(device)) if output.status.success() => Ok((device, None)),
        _ => Err(refused(&output)),
    }
}

/// Unmounts.
pub(super) fn unmount(point: &Path, detach: bool) -> Result<(), MountError> {
    let mut command = helper();
    command.arg("-u").args(detach.then_some("-z")).arg("--").arg(point);
    let output = command.stdin(Stdio::null()).output().map_err(|error| no_helper(&error))?;
    if output.status.success() { Ok(()) } else { Err(refused(&output)) }
}

/// Returns the helper's command, in the C locale: errors can only be told apart by its messages.
fn helper() -> Command {
    let mut command = Command::new(HELPER);
    command.env("LC_ALL", "C");
    command
}

fn no_helper(error: &io::Error) -> MountError {
    MountError::NoHelper(error.to_string())
}

/// Returns the helper's message, or its exit status if it printed none.
fn refused(output: &Output) -> MountError {
    let message = String::from_utf8_lossy(&output.stderr);
    MountError::Helper(match message.trim() {
        "" => format!("{HELPER}: {}", output.status),
        message => message.to_owned(),
    })
}

/// Receives the descriptor that the helper sends; `None` if it ends without sending one.
fn receive(socket: &OwnedFd) -> Result<Option<OwnedFd>, Errno> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [IoSliceMut::new(&mut byte)];
    retry_on_intr(|| recvmsg(socket, &mut bytes, &mut control, RecvFlags::CMSG_CLOEXEC))?;
    let mut descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok(descriptors.next())
}

/// Returns the options in the form that the helper parses.
fn text(options: &MountOptions) -> OsString {
    let names = [
        (MountFlags::READ_ONLY, "ro"),
        (MountFlags::NO_SUID, "nosuid"),
        (MountFlags::NO_DEV, "nodev"),
        (MountFlags::NO_EXEC, "noexec"),
        (MountFlags::NO_ATIME, "noatime"),
        (MountFlags::SYNCHRONOUS, "sync"),
        (MountFlags::ALLOW_OTHER, "allow_other"),
        (MountFlags::DEFAULT_PERMISSIONS, "default_permissions"),
        (MountFlags::NO_SYMLINK_FOLLOW, "nosymfollow"),
        (MountFlags::LAZY_TIME, "lazytime"),
    ];
    let set = names.into_iter().filter(|(flag, _)| options.flags.contains(*flag));
    let mut parts: Vec<String> = set.map(|(_, name)| name.to_owned()).collect();
    if rustix::process::getuid().is_root() {
        // Unlike mount(2), the helper denies them to root, too, unless they are named.
        let named = [(MountFlags::NO_SUID, "suid"), (MountFlags::NO_DEV, "dev")];
        let allowed = named.iter().filter(|(flag, _)| !options.flags.contains(*flag));
        parts.extend(allowed.map(|(_, name)| (*name).to_owned()));
    }
    parts.extend(options.auto_unmount.then(|| "auto_unmount".to_owned()));
    parts.extend(options.security.iter().map(|option| escaped(option)));
    parts.extend(options.max_read.map(|bytes| format!("max_read={bytes}")));
    if !options.subtype.is_empty() {
        parts.push(format!("subtype={}", escaped(&options.subtype)));
    }
    parts.push(format!("fsname={}", escaped(&options.shown_source().to_string_lossy())));
    parts.join(",").into()
}

/// Escapes backslashes and commas, which separate options.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace(',', "\\,")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_separated_by_commas_that_are_not_escaped() {
        let options = MountOptions {
            source: "a,b\\c".into(),
            subtype: "x".to_owned(),
            flags: MountFlags::READ_ONLY | MountFlags::ALLOW_OTHER,
            max_read: Some(4096),
            ..MountOptions::default()
        };
        let of_root = if rustix::process::getuid().is_root() { "suid,dev," } else { "" };
        let rest = "max_read=4096,subtype=x,fsname=a\\,b\\\\c";
        assert_eq!(text(&options).to_str(), Some(&*format!("ro,allow_other,{of_root}{rest}")));
    }

    #[test]
    fn a_block_device_is_not_for_the_helper() {
        let options = MountOptions { block_size: Some(512), ..MountOptions::default() };
        assert_eq!(mount(Path::new("/"), &options).unwrap_err(), MountError::BlockDevice);
    }
}
