//! Dispatch of messages to the server's methods.
//!
//! 1. All messages of the kernel are handled here.
//! 2. A malformed message or one of an unknown kind is answered with an error if the kernel expects
//!    an answer and its number could be read.

use rustix::io::Errno;
use userbtrfs_sync::Arc;

use crate::channel::Channel;
use crate::counts::Counts;
use crate::flags::InitFlags;
use crate::opcode::Opcode;
use crate::operation::{Operation, Request};
use crate::parse::{Malformed, parse};
use crate::reply::Reply;
use crate::server::Server;

/// Calls the server's method for a message, and counts the request.
pub(crate) fn dispatch<S: Server + ?Sized>(
    server: &S,
    channel: &Arc<Channel>,
    message: &[u8],
    agreed: InitFlags,
    counts: &Counts,
) {
    match parse(message, agreed) {
        Ok((request, operation)) => {
            counts.count(request.opcode);
            call(server, channel, &request, operation);
        }
        Err(malformed) => refuse_malformed(channel, &malformed),
    }
}

/// Answers a message with an error, without the server.
pub(crate) fn refuse(channel: &Channel, message: &[u8], agreed: InitFlags, error: Errno) {
    match parse(message, agreed) {
        Ok((request, _)) if request.opcode.is_answered() => channel.refuse(request.unique, error),
        Ok(_) => {}
        Err(malformed) => refuse_malformed(channel, &malformed),
    }
}

fn refuse_malformed(channel: &Channel, malformed: &Malformed) {
    let is_answered = malformed.opcode.is_some_and(Opcode::is_answered);
    if let (Some(unique), true) = (malformed.unique, is_answered) {
        channel.refuse(unique, Errno::IO);
    }
}

fn call<S: Server + ?Sized>(
    server: &S,
    channel: &Arc<Channel>,
    request: &Request,
    operation: Operation<'_>,
) {
    /// The reply of the request, for any type of answer.
    macro_rules! reply {
        () => {
            Reply::new(channel, request.unique, request.opcode)
        };
    }
    match operation {
        Operation::Lookup(name) => server.lookup(request, name, reply!()),
        Operation::Forget(nodes) => {
            nodes.for_each(|node, lookups| server.forget(node, lookups));
        }
        Operation::Getattr(handle) => server.getattr(request, handle, reply!()),
        Operation::Statx(it) => server.statx(request, &it, reply!()),
        Operation::Setattr(it) => server.setattr(request, &it, reply!()),
        Operation::Readlink => server.readlink(request, reply!().at_most(Opcode::READLINK_SIZE)),
        Operation::Symlink(it) => server.symlink(request, &it, reply!()),
        Operation::Mknod(it) => server.mknod(request, &it, reply!()),
        Operation::Mkdir(it) => server.mkdir(request, &it, reply!()),
        Operation::Unlink(name) => server.unlink(request, name, reply!()),
        Operation::Rmdir(name) => server.rmdir(request, name, reply!()),
        Operation::Rename(it) => server.rename(request, &it, reply!()),
        Operation::Link(it) => server.link(request, &it, reply!()),
        Operation::Open(it) => server.open(request, &it, reply!()),
        Operation::Create(it) => server.create(request, &it, reply!()),
        Operation::Tmpfile(it) => server.tmpfile(request, &it, reply!()),
        Operation::Read(it) => server.read(request, &it, reply!().at_most(it.size)),
        Operation::Write(it) => server.write(request, &it, reply!()),
        Operation::Flush(it) => server.flush(request, &it, reply!()),
        Operation::Release(it) => server.release(request, &it, reply!()),
        Operation::Fsync(it) => server.fsync(request, &it, reply!()),
        Operation::Opendir(it) => server.opendir(request, &it, reply!()),
        Operation::Readdir(it) => server.readdir(request, &it, reply!().at_most(it.size)),
        Operation::Readdirplus(it) => server.readdirplus(request, &it, reply!().at_most(it.size)),
        Operation::Releasedir(it) => server.releasedir(request, &it, reply!()),
        Operation::Fsyncdir(it) => server.fsyncdir(request, &it, reply!()),
        Operation::Syncfs => server.syncfs(request, reply!()),
        Operation::Statfs => server.statfs(request, reply!()),
        Operation::Setxattr(it) => server.setxattr(request, &it, reply!()),
        Operation::Getxattr(it) => server.getxattr(request, &it, reply!().at_most(it.size)),
        Operation::Listxattr { size } => server.listxattr(request, reply!().at_most(size)),
        Operation::Removexattr(name) => server.removexattr(request, name, reply!()),
        Operation::Access(mask) => server.access(request, mask, reply!()),
        Operation::Getlk(it) => server.getlk(request, &it, reply!()),
        Operation::Setlk(it) => server.setlk(request, &it, false, reply!()),
        Operation::Setlkw(it) => server.setlk(request, &it, true, reply!()),
        Operation::Bmap { block, block_size } => {
            server.bmap(request, block, block_size, reply!());
        }
        Operation::Ioctl(it) => server.ioctl(request, &it, reply!().at_most(it.output_size)),
        Operation::Poll(it) => server.poll(request, &it, reply!()),
        Operation::Fallocate(it) => server.fallocate(request, &it, reply!()),
        Operation::Lseek(it) => server.lseek(request, &it, reply!()),
        Operation::CopyFileRange(it) => server.copy_file_range(request, &it, reply!()),
        Operation::Destroy => server.destroy(request, reply!()),
        Operation::Interrupt { unique } => channel.interrupts().interrupt(unique),
        // INIT was answered when the mount began.
        Operation::Init(_) => channel.refuse(request.unique, Errno::IO),
        Operation::Unknown(Opcode::NotifyReply) => {}
        Operation::Unknown(_) => channel.refuse(request.unique, Errno::NOSYS),
    }
}
