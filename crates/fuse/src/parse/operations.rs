//! Parsing of the body of each kind of request.

use rustix::fs::{Access, FallocateFlags, OFlags, RenameFlags, XattrFlags};

use super::body::{Body, offset, time};
use super::fault::Fault;
use crate::flags::InitFlags;
use crate::opcode::Opcode;
use crate::operation::{
    Changes, CopyFileRange, Create, Fallocate, Flush, Forgotten, ForgottenNodes, Fsync, Getxattr,
    InitOffer, Ioctl, IoctlFlags, Link, Lock, LockKind, LockRequest, Lseek, Mkdir, Mknod, NewTime,
    Open, Operation, Poll, Read, Release, Rename, Request, Setxattr, Statx, Symlink, Tmpfile,
    Whence, Write,
};
use crate::values::{DeviceNumber, Handle, LockOwner, NodeId};
use crate::wire::{self, SetattrValid};

/// Parses the body of a request.
pub(super) fn operation<'a>(
    request: &Request,
    mut body: Body<'a>,
    agreed: InitFlags,
) -> Result<Operation<'a>, Fault> {
    let body = &mut body;
    Ok(match request.opcode {
        Opcode::Lookup => Operation::Lookup(body.name()?),
        Opcode::Forget => Operation::Forget(forget(request.node, body)?),
        Opcode::BatchForget => Operation::Forget(batch_forget(body)?),
        Opcode::Getattr => Operation::Getattr(getattr(body)?),
        Opcode::Statx => Operation::Statx(statx(body)?),
        Opcode::Setattr => Operation::Setattr(setattr(body)?),
        Opcode::Readlink => Operation::Readlink,
        Opcode::Symlink => Operation::Symlink(symlink(body)?),
        Opcode::Mknod => Operation::Mknod(mknod(body)?),
        Opcode::Mkdir => Operation::Mkdir(mkdir(body)?),
        Opcode::Unlink => Operation::Unlink(body.name()?),
        Opcode::Rmdir => Operation::Rmdir(body.name()?),
        Opcode::Rename => Operation::Rename(rename(body)?),
        Opcode::Rename2 => Operation::Rename(rename2(body)?),
        Opcode::Link => Operation::Link(link(body)?),
        Opcode::Open => Operation::Open(open(body)?),
        Opcode::Opendir => Operation::Opendir(open(body)?),
        Opcode::Create => Operation::Create(create(body)?),
        Opcode::Tmpfile => Operation::Tmpfile(tmpfile(body)?),
        Opcode::Read => Operation::Read(file_read(body)?),
        Opcode::Readdir => Operation::Readdir(read(body)?),
        Opcode::Readdirplus => Operation::Readdirplus(read(body)?),
        Opcode::Write => Operation::Write(write(body)?),
        Opcode::Statfs => Operation::Statfs,
        Opcode::Release => Operation::Release(release(body)?),
        Opcode::Releasedir => Operation::Releasedir(release(body)?),
        Opcode::Fsync => Operation::Fsync(fsync(body)?),
        Opcode::Fsyncdir => Operation::Fsyncdir(fsync(body)?),
        Opcode::Setxattr => Operation::Setxattr(setxattr(body, agreed)?),
        Opcode::Getxattr => Operation::Getxattr(getxattr(body)?),
        Opcode::Listxattr => Operation::Listxattr { size: body.take::<wire::GetxattrIn>()?.size },
        Opcode::Removexattr => Operation::Removexattr(body.string()?),
        Opcode::Flush => Operation::Flush(flush(body)?),
        Opcode::Init => Operation::Init(init(body)?),
        Opcode::Getlk => Operation::Getlk(lock(body)?),
        Opcode::Setlk => Operation::Setlk(lock(body)?),
        Opcode::Setlkw => Operation::Setlkw(lock(body)?),
        Opcode::Access => Operation::Access(access(body)?),
        Opcode::Interrupt => {
            Operation::Interrupt { unique: body.take::<wire::InterruptIn>()?.unique }
        }
        Opcode::Bmap => bmap(body)?,
        Opcode::Destroy => Operation::Destroy,
        Opcode::Ioctl => Operation::Ioctl(ioctl(body)?),
        Opcode::Poll => Operation::Poll(poll(body)?),
        Opcode::Fallocate => Operation::Fallocate(fallocate(body)?),
        Opcode::Lseek => Operation::Lseek(lseek(body)?),
        Opcode::CopyFileRange | Opcode::CopyFileRange64 => {
            Operation::CopyFileRange(copy_file_range(request.opcode, body)?)
        }
        Opcode::Syncfs => body.take::<wire::SyncfsIn>().map(|_| Operation::Syncfs)?,
        Opcode::NotifyReply | Opcode::Unknown(_) => Operation::Unknown(request.opcode),
    })
}

fn forget(node: NodeId, body: &mut Body<'_>) -> Result<Forgotten<'static>, Fault> {
    let wire: wire::ForgetIn = body.take()?;
    Ok(Forgotten(ForgottenNodes::One(node, wire.nlookup)))
}

fn batch_forget<'a>(body: &mut Body<'a>) -> Result<Forgotten<'a>, Fault> {
    const ONE: u32 = 16;
    let wire: wire::BatchForgetIn = body.take()?;
    let value = u64::from(wire.count);
    let fault = Fault::Value { field: "count of nodes", value };
    let nodes = body.bytes(wire.count.checked_mul(ONE).ok_or(fault)?)?;
    Ok(Forgotten(ForgottenNodes::Many(nodes)))
}

fn getattr(body: &mut Body<'_>) -> Result<Option<Handle>, Fault> {
    let wire: wire::GetattrIn = body.take()?;
    Ok((wire.flags & wire::GETATTR_HANDLE != 0).then_some(Handle(wire.fh)))
}

fn statx(body: &mut Body<'_>) -> Result<Statx, Fault> {
    let wire: wire::StatxIn = body.take()?;
    let handle = (wire.flags & wire::GETATTR_HANDLE != 0).then_some(Handle(wire.fh));
    Ok(Statx { handle, flags: wire.sx_flags, mask: wire.sx_mask })
}

fn setattr(body: &mut Body<'_>) -> Result<Changes, Fault> {
    let wire: wire::SetattrIn = body.take()?;
    let valid = SetattrValid::from_bits_retain(wire.valid);
    let has = |flag| valid.contains(flag);
    let new_time = |set, now, seconds, nanoseconds| match (has(set), has(now)) {
        (_, true) => Ok(Some(NewTime::Now)),
        (true, false) => time(seconds, nanoseconds).map(|time| Some(NewTime::At(time))),
        (false, false) => Ok(None),
    };
    let size = has(SetattrValid::SIZE).then(|| offset("size", wire.size));
    let ctime = has(SetattrValid::CTIME).then(|| time(wire.ctime, wire.ctimensec));
    Ok(Changes {
        mode: has(SetattrValid::MODE).then_some(wire.mode),
        uid: has(SetattrValid::UID).then_some(wire.uid),
        gid: has(SetattrValid::GID).then_some(wire.gid),
        size: size.transpose()?,
        atime: new_time(SetattrValid::ATIME, SetattrValid::ATIME_NOW, wire.atime, wire.atimensec)?,
        mtime: new_time(SetattrValid::MTIME, SetattrValid::MTIME_NOW, wire.mtime, wire.mtimensec)?,
        ctime: ctime.transpose()?,
        handle: has(SetattrValid::HANDLE).then_some(Handle(wire.fh)),
        lock_owner: has(SetattrValid::LOCK_OWNER).then_some(LockOwner(wire.lock_owner)),
        kill_suid_sgid: has(SetattrValid::KILL_SUIDGID),
    })
}

fn symlink<'a>(body: &mut Body<'a>) -> Result<Symlink<'a>, Fault> {
    Ok(Symlink { name: body.name()?, target: body.string()? })
}

fn mknod<'a>(body: &mut Body<'a>) -> Result<Mknod<'a>, Fault> {
    let wire: wire::MknodIn = body.take()?;
    let device = DeviceNumber::from_bits(wire.rdev);
    Ok(Mknod { name: body.name()?, mode: wire.mode, umask: wire.umask, device })
}

fn mkdir<'a>(body: &mut Body<'a>) -> Result<Mkdir<'a>, Fault> {
    let wire: wire::MkdirIn = body.take()?;
    Ok(Mkdir { name: body.name()?, mode: wire.mode, umask: wire.umask })
}

fn rename<'a>(body: &mut Body<'a>) -> Result<Rename<'a>, Fault> {
    let wire: wire::RenameIn = body.take()?;
    names_of_rename(body, wire.newdir, RenameFlags::empty())
}

fn rename2<'a>(body: &mut Body<'a>) -> Result<Rename<'a>, Fault> {
    let wire: wire::Rename2In = body.take()?;
    names_of_rename(body, wire.newdir, RenameFlags::from_bits_retain(wire.flags))
}

fn names_of_rename<'a>(
    body: &mut Body<'a>,
    new_parent: u64,
    flags: RenameFlags,
) -> Result<Rename<'a>, Fault> {
    let name = body.name()?;
    Ok(Rename { name, new_parent: NodeId(new_parent), new_name: body.name()?, flags })
}

fn link<'a>(body: &mut Body<'a>) -> Result<Link<'a>, Fault> {
    let wire: wire::LinkIn = body.take()?;
    Ok(Link { target: NodeId(wire.oldnodeid), name: body.name()? })
}

fn open(body: &mut Body<'_>) -> Result<Open, Fault> {
    let wire: wire::OpenIn = body.take()?;
    let kill_suid_sgid = wire.open_flags & wire::OPEN_KILL_SUIDGID != 0;
    Ok(Open { flags: OFlags::from_bits_retain(wire.flags), kill_suid_sgid })
}

fn create<'a>(body: &mut Body<'a>) -> Result<Create<'a>, Fault> {
    let wire: wire::CreateIn = body.take()?;
    Ok(Create {
        name: body.name()?,
        flags: OFlags::from_bits_retain(wire.flags),
        mode: wire.mode,
        umask: wire.umask,
        kill_suid_sgid: wire.open_flags & wire::OPEN_KILL_SUIDGID != 0,
    })
}

/// Parses TMPFILE. A slash follows in place of a name; it is ignored.
fn tmpfile(body: &mut Body<'_>) -> Result<Tmpfile, Fault> {
    let wire: wire::CreateIn = body.take()?;
    let flags = OFlags::from_bits_retain(wire.flags);
    Ok(Tmpfile { flags, mode: wire.mode, umask: wire.umask })
}

fn read(body: &mut Body<'_>) -> Result<Read, Fault> {
    let wire: wire::ReadIn = body.take()?;
    let has_owner = wire.read_flags & wire::LOCK_OWNER != 0;
    Ok(Read {
        handle: Handle(wire.fh),
        offset: wire.offset,
        size: wire.size,
        lock_owner: has_owner.then_some(LockOwner(wire.lock_owner)),
        flags: OFlags::from_bits_retain(wire.flags),
    })
}

fn file_read(body: &mut Body<'_>) -> Result<Read, Fault> {
    let read = read(body)?;
    offset("offset", read.offset)?;
    Ok(read)
}

fn write<'a>(body: &mut Body<'a>) -> Result<Write<'a>, Fault> {
    let wire: wire::WriteIn = body.take()?;
    let has = |flag| wire.write_flags & flag != 0;
    Ok(Write {
        handle: Handle(wire.fh),
        offset: offset("offset", wire.offset)?,
        data: body.bytes(wire.size)?,
        from_cache: has(wire::WRITE_CACHE),
        kill_suid_sgid: has(wire::WRITE_KILL_SUIDGID),
        lock_owner: has(wire::LOCK_OWNER).then_some(LockOwner(wire.lock_owner)),
        flags: OFlags::from_bits_retain(wire.flags),
    })
}

fn release(body: &mut Body<'_>) -> Result<Release, Fault> {
    let wire: wire::ReleaseIn = body.take()?;
    let unlocks = wire.release_flags & wire::RELEASE_FLOCK_UNLOCK != 0;
    Ok(Release {
        handle: Handle(wire.fh),
        flags: OFlags::from_bits_retain(wire.flags),
        flock_owner: unlocks.then_some(LockOwner(wire.lock_owner)),
    })
}

fn flush(body: &mut Body<'_>) -> Result<Flush, Fault> {
    let wire: wire::FlushIn = body.take()?;
    Ok(Flush { handle: Handle(wire.fh), lock_owner: LockOwner(wire.lock_owner) })
}

fn fsync(body: &mut Body<'_>) -> Result<Fsync, Fault> {
    let wire: wire::FsyncIn = body.take()?;
    let data_only = wire.fsync_flags & wire::FSYNC_DATA != 0;
    Ok(Fsync { handle: Handle(wire.fh), data_only })
}

fn setxattr<'a>(body: &mut Body<'a>, agreed: InitFlags) -> Result<Setxattr<'a>, Fault> {
    let (wire, more) = if agreed.contains(InitFlags::SETXATTR_EXT) {
        let wire: wire::SetxattrIn = body.take()?;
        (wire.old, wire.setxattr_flags)
    } else {
        (body.take()?, 0)
    };
    Ok(Setxattr {
        name: body.string()?,
        value: body.bytes(wire.size)?,
        flags: XattrFlags::from_bits_retain(wire.flags),
        kill_sgid: more & wire::SETXATTR_KILL_SGID != 0,
    })
}

fn getxattr<'a>(body: &mut Body<'a>) -> Result<Getxattr<'a>, Fault> {
    let wire: wire::GetxattrIn = body.take()?;
    Ok(Getxattr { name: body.string()?, size: wire.size })
}

fn init(body: &mut Body<'_>) -> Result<InitOffer, Fault> {
    let wire: wire::InitIn = body.take()?;
    let low = InitFlags::from_bits_retain(u64::from(wire.flags));
    let high = if low.contains(InitFlags::INIT_EXT) { body.take::<u32>()? } else { 0 };
    Ok(InitOffer {
        major: wire.major,
        minor: wire.minor,
        max_readahead: wire.max_readahead,
        flags: low | InitFlags::from_bits_retain(u64::from(high) << 32),
    })
}

fn lock(body: &mut Body<'_>) -> Result<LockRequest, Fault> {
    let wire: wire::LkIn = body.take()?;
    let kind = match wire.lock.kind {
        wire::LOCK_READ => LockKind::Read,
        wire::LOCK_WRITE => LockKind::Write,
        wire::LOCK_NONE => LockKind::None,
        other => return Err(Fault::Value { field: "kind of lock", value: u64::from(other) }),
    };
    let start = wire.lock.start;
    let end = wire.lock.end;
    Ok(LockRequest {
        handle: Handle(wire.fh),
        owner: LockOwner(wire.owner),
        lock: Lock { start, end, kind, pid: wire.lock.pid },
        is_flock: wire.flags & wire::LOCK_FLOCK != 0,
    })
}

fn access(body: &mut Body<'_>) -> Result<Access, Fault> {
    let wire: wire::AccessIn = body.take()?;
    Ok(Access::from_bits_retain(wire.mask.cast_signed()))
}

fn bmap<'a>(body: &mut Body<'_>) -> Result<Operation<'a>, Fault> {
    let wire: wire::BmapIn = body.take()?;
    Ok(Operation::Bmap { block: wire.block, block_size: wire.blocksize })
}

fn ioctl<'a>(body: &mut Body<'a>) -> Result<Ioctl<'a>, Fault> {
    let wire: wire::IoctlIn = body.take()?;
    Ok(Ioctl {
        handle: Handle(wire.fh),
        flags: IoctlFlags::from_bits_retain(wire.flags),
        command: wire.cmd,
        argument: wire.arg,
        input: body.bytes(wire.in_size)?,
        output_size: wire.out_size,
    })
}

fn poll(body: &mut Body<'_>) -> Result<Poll, Fault> {
    let wire: wire::PollIn = body.take()?;
    let notify = (wire.flags & wire::POLL_NOTIFY != 0).then_some(wire.kh);
    Ok(Poll { handle: Handle(wire.fh), notify, events: wire.events })
}

fn fallocate(body: &mut Body<'_>) -> Result<Fallocate, Fault> {
    let wire: wire::FallocateIn = body.take()?;
    let end = offset("offset", wire.offset)?.saturating_add(wire.length);
    offset("end of the range", end)?;
    let mode = FallocateFlags::from_bits_retain(wire.mode);
    Ok(Fallocate { handle: Handle(wire.fh), offset: wire.offset, length: wire.length, mode })
}

fn lseek(body: &mut Body<'_>) -> Result<Lseek, Fault> {
    let wire: wire::LseekIn = body.take()?;
    let whence = match wire.whence {
        wire::SEEK_DATA => Whence::Data,
        wire::SEEK_HOLE => Whence::Hole,
        other => return Err(Fault::Value { field: "whence", value: u64::from(other) }),
    };
    Ok(Lseek { handle: Handle(wire.fh), offset: wire.offset.cast_signed(), whence })
}

fn copy_file_range(opcode: Opcode, body: &mut Body<'_>) -> Result<CopyFileRange, Fault> {
    /// The maximum of a 32-bit answer, rounded down to a multiple of any page size.
    const LENGTH_MAX: u64 = 0xffff_0000;
    let wire: wire::CopyFileRangeIn = body.take()?;
    let longest = if opcode == Opcode::CopyFileRange { LENGTH_MAX } else { u64::MAX };
    Ok(CopyFileRange {
        handle: Handle(wire.fh_in),
        offset: offset("offset", wire.off_in)?,
        target: NodeId(wire.nodeid_out),
        target_handle: Handle(wire.fh_out),
        target_offset: offset("offset of the target", wire.off_out)?,
        length: wire.len.min(longest),
        flags: wire.flags,
    })
}
