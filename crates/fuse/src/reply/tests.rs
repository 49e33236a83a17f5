//! Tests of the replies and notifications that are sent to the kernel. A SEQPACKET socket, which
//! keeps messages separate, replaces the device.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::read;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use userbtrfs_sync::atomic::{AtomicUsize, Ordering};
use zerocopy::FromBytes;

use super::*;
use crate::answer::*;
use crate::counts::Counts;
use crate::dispatch::dispatch;
use crate::flags::{InitFlags, OpenedFlags};
use crate::notify::{Invalidation, Notifier};
use crate::operation::{Lock, LockKind};
use crate::server::Server;
use crate::values::{DeviceNumber, FOREVER, Handle, Name, NodeId, Timestamp};

/// The kernel's side of the device.
struct Kernel {
    socket: OwnedFd,
    channel: Arc<Channel>,
}

impl Kernel {
    fn new() -> Self {
        let family = AddressFamily::UNIX;
        let kind = SocketType::SEQPACKET;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (socket, device) = socketpair(family, kind, flags, None).unwrap();
        let channel = Arc::new(Channel::new(device));
        Self { socket, channel }
    }

    /// Returns the reply of a request of this kind.
    fn ask<T>(&self, opcode: Opcode) -> Reply<T> {
        Reply::new(&self.channel, 6, opcode)
    }

    /// Receives the next message, and returns its error and its body.
    fn hear(&self) -> (i32, Vec<u8>) {
        let (unique, error, body) = self.hear_all();
        assert_eq!(unique, 6);
        (error, body)
    }

    fn hear_all(&self) -> (u64, i32, Vec<u8>) {
        let mut buffer = vec![0; 1 << 16];
        let count = read(&self.socket, &mut buffer).unwrap();
        let (header, body) = wire::OutHeader::read_from_prefix(&buffer[..count]).unwrap();
        assert_eq!(usize::try_from(header.len).unwrap(), count);
        (header.unique, header.error, body.to_vec())
    }

    fn is_silent(&self) -> bool {
        read(&self.socket, &mut [0; 16]).is_err()
    }

    /// Sends an answer and returns its bytes.
    fn answered<T: Answer>(&self, opcode: Opcode, answer: &T) -> Vec<u8> {
        self.ask(opcode).succeed(answer);
        let (error, body) = self.hear();
        assert_eq!(error, 0);
        body
    }
}

/// Decodes the value at this offset.
fn at<T: FromBytes>(body: &[u8], offset: usize) -> T {
    T::read_from_prefix(&body[offset..]).unwrap().0
}

fn attributes() -> Attributes {
    Attributes {
        ino: 257,
        size: 10,
        blocks: 8,
        atime: Timestamp::new(-2, 3).unwrap(),
        mtime: Timestamp::new(4, 5).unwrap(),
        ctime: Timestamp::new(1 << 33, 7).unwrap(),
        mode: 0o020_644,
        nlink: 2,
        uid: 1000,
        gid: 100,
        rdev: DeviceNumber { major: 259, minor: 256 },
        block_size: 4096,
    }
}

fn entry() -> Entry {
    Entry {
        node: NodeId(77),
        generation: 5,
        attributes: attributes(),
        attributes_valid: Duration::new(1, 2),
        entry_valid: FOREVER,
    }
}

#[test]
fn attributes_are_encoded_as_in_fuse_h() {
    let kernel = Kernel::new();
    let valid = Duration::new(9, 8);
    let stat = Stat { attributes: attributes(), valid };
    let body = kernel.answered(Opcode::Getattr, &stat);
    assert_eq!(body.len(), 104);
    assert_eq!((at::<u64>(&body, 0), at::<u32>(&body, 8)), (9, 8));
    let attr = &body[16..];
    assert_eq!([0, 8, 16].map(|offset| at::<u64>(attr, offset)), [257, 10, 8]);
    assert_eq!([24, 32, 40].map(|offset| at::<i64>(attr, offset)), [-2, 4, 1 << 33]);
    let words = [48, 52, 56, 60, 64, 68, 72, 76, 80].map(|offset| at::<u32>(attr, offset));
    assert_eq!(words, [3, 5, 7, 0o020_644, 2, 1000, 100, 0x0011_0300, 4096]);
}

#[test]
fn entries_carry_their_validity() {
    let kernel = Kernel::new();
    let body = kernel.answered(Opcode::Lookup, &entry());
    assert_eq!(body.len(), 128);
    let longs = [0, 8, 16, 24].map(|offset| at::<u64>(&body, offset));
    assert_eq!(longs, [77, 5, u64::MAX, 1]);
    assert_eq!((at::<u32>(&body, 32), at::<u32>(&body, 36)), (999_999_999, 2));
    assert_eq!(at::<u64>(&body, 40), 257);
    let absent = kernel.answered(Opcode::Lookup, &Entry::absent(Duration::from_secs(3)));
    assert_eq!((at::<u64>(&absent, 0), at::<u64>(&absent, 16)), (0, 3));
}

#[test]
fn create_answers_entry_and_open_file() {
    let kernel = Kernel::new();
    let flags = OpenedFlags::KEEP_CACHE | OpenedFlags::NOFLUSH;
    let opened = Opened { handle: Handle(3), flags };
    let body = kernel.answered(Opcode::Create, &Created { entry: entry(), opened });
    assert_eq!(body.len(), 144);
    assert_eq!((at::<u64>(&body, 128), at::<u32>(&body, 136)), (3, 0b10_0010));
    assert_eq!(kernel.answered(Opcode::Open, &opened), body[128..]);
}

#[test]
fn statx_has_time_of_birth_if_known() {
    let kernel = Kernel::new();
    let stat = Stat { attributes: attributes(), valid: Duration::ZERO };
    let born = Timestamp::new(-5, 6);
    let body = kernel.answered(Opcode::Statx, &ExtendedStat { stat, born });
    assert_eq!(body.len(), 288);
    let statx = &body[32..];
    assert_eq!((at::<u32>(statx, 0), at::<u16>(statx, 28)), (0xfff, 0o020_644));
    assert_eq!((at::<u64>(statx, 32), at::<i64>(statx, 80)), (257, -5));
    assert_eq!((at::<u32>(statx, 88), at::<i64>(statx, 96)), (6, 1 << 33));
    assert_eq!((at::<u32>(statx, 128), at::<u32>(statx, 132)), (259, 256));
    let body = kernel.answered(Opcode::Statx, &ExtendedStat { stat, born: None });
    assert_eq!(at::<u32>(&body, 32), 0x7ff);
}

#[test]
fn statfs_answers_all_numbers() {
    let statistics = Statistics {
        blocks: 1,
        blocks_free: 2,
        blocks_available: 3,
        files: 4,
        files_free: 5,
        block_size: 6,
        name_max: 7,
        fragment_size: 8,
    };
    let body = Kernel::new().answered(Opcode::Statfs, &statistics);
    assert_eq!(body.len(), 80);
    assert_eq!([0, 8, 16, 24, 32].map(|offset| at::<u64>(&body, offset)), [1, 2, 3, 4, 5]);
    assert_eq!([40, 44, 48].map(|offset| at::<u32>(&body, offset)), [6, 7, 8]);
}

#[test]
fn copied_length_has_as_many_bits_as_the_kind() {
    let kernel = Kernel::new();
    let copied = Copied(0x1234);
    assert_eq!(kernel.answered(Opcode::CopyFileRange64, &copied), 0x1234_u64.as_bytes());
    let body = kernel.answered(Opcode::CopyFileRange, &copied);
    assert_eq!((at::<u32>(&body, 0), at::<u32>(&body, 4)), (0x1234, 0));
    assert_eq!(kernel.answered(Opcode::Write, &Written(9)), [9_u32, 0].as_bytes());
    assert_eq!(kernel.answered(Opcode::Lseek, &Position(9)), 9_u64.as_bytes());
    assert_eq!(kernel.answered(Opcode::Bmap, &Block(9)), 9_u64.as_bytes());
    assert_eq!(kernel.answered(Opcode::Poll, &Events(9)), [9_u32, 0].as_bytes());
    let lock = Lock { start: 1, end: 2, kind: LockKind::None, pid: 3 };
    let body = kernel.answered(Opcode::Getlk, &lock);
    assert_eq!((at::<u32>(&body, 16), at::<u32>(&body, 20)), (2, 3));
    assert!(kernel.answered(Opcode::Fsync, &()).is_empty());
}

#[test]
fn bytes_of_many_slices_are_one_answer() {
    let kernel = Kernel::new();
    for count in [0, 1, 7, 8, 100] {
        let slices = vec![IoSlice::new(b"abc"); count];
        kernel.ask::<Bytes>(Opcode::Read).at_most(300).send_slices(&slices);
        assert_eq!(kernel.hear(), (0, b"abc".repeat(count)));
    }
}

#[test]
#[should_panic(expected = "asked for")]
fn no_more_bytes_are_sent_than_were_asked_for() {
    Kernel::new().ask::<Bytes>(Opcode::Read).at_most(2).send(Ok(b"abc"));
}

#[test]
fn value_is_sent_or_its_length_or_erange() {
    let kernel = Kernel::new();
    let ask = |size| kernel.ask::<Value>(Opcode::Getxattr).at_most(size);
    ask(3).send(Ok(b"abc"));
    assert_eq!(kernel.hear(), (0, b"abc".to_vec()));
    ask(2).send(Ok(b"abc"));
    assert_eq!(kernel.hear(), (-34, vec![]));
    ask(0).send(Ok(b"abc"));
    assert_eq!(kernel.hear(), (0, [3_u32, 0].as_bytes().to_vec()));
    ask(9).send(Err(Errno::NODATA));
    assert_eq!(kernel.hear().0, -61);
}

#[test]
fn ioctls_return_a_number_and_bytes() {
    let kernel = Kernel::new();
    kernel.ask::<IoctlData>(Opcode::Ioctl).at_most(4).send(Ok((7, b"data")));
    assert_eq!(kernel.hear(), (0, [[7_u32, 0, 0, 0].as_bytes(), b"data"].concat()));
}

#[test]
fn errors_of_512_or_more_are_sent_as_eio() {
    let kernel = Kernel::new();
    kernel.ask::<()>(Opcode::Fsync).fail(Errno::NOSPC);
    assert_eq!(kernel.hear(), (-28, vec![]));
    for raw in [512, 4000] {
        kernel.ask::<()>(Opcode::Fsync).fail(Errno::from_raw_os_error(raw));
        assert_eq!(kernel.hear(), (-5, vec![]));
    }
}

#[test]
fn dropped_reply_fails_with_eio() {
    let kernel = Kernel::new();
    drop(kernel.ask::<Entry>(Opcode::Lookup));
    assert_eq!(kernel.hear(), (-5, vec![]));
    assert!(kernel.is_silent());
}

#[test]
fn interrupt_after_the_answer_runs_no_action() {
    let kernel = Kernel::new();
    let count = Arc::new(AtomicUsize::new(0));
    let reply = kernel.ask::<()>(Opcode::Setlkw);
    let counted = count.clone();
    reply.on_interrupt(move || _ = counted.fetch_add(1, Ordering::Relaxed));
    reply.succeed(&());
    kernel.channel.interrupts().interrupt(6);
    assert_eq!(count.load(Ordering::Relaxed), 0);
    assert_eq!(Arc::strong_count(&count), 1);
}

#[test]
fn notices_have_no_number_and_a_kind() {
    let kernel = Kernel::new();
    let notifier = Notifier::new(kernel.channel.clone());
    let name = Name::new(b"gone").unwrap();
    assert!(notifier.delete(NodeId(1), NodeId(2), name).unwrap());
    let expected = [[1_u64, 2, 4].as_bytes(), b"gone\0"].concat();
    assert_eq!(kernel.hear_all(), (0, 6, expected));
    assert!(notifier.invalidate_entry(NodeId(1), name, true).unwrap());
    let expected = [1_u64.as_bytes(), [4_u32, 1].as_bytes(), b"gone\0"].concat();
    assert_eq!(kernel.hear_all(), (0, 3, expected));
    for (stale, numbers) in [
        (Invalidation::Attributes, [9, -1, 0]),
        (Invalidation::Contents { offset: 4096, length: None }, [9, 4096, 0]),
        (Invalidation::Contents { offset: 0, length: Some(u64::MAX) }, [9, 0, i64::MAX]),
    ] {
        assert!(notifier.invalidate_inode(NodeId(9), stale).unwrap());
        assert_eq!(kernel.hear_all(), (0, 2, numbers.as_bytes().to_vec()));
    }
    assert!(notifier.wake_poll(5).unwrap());
    assert_eq!(kernel.hear_all(), (0, 1, 5_u64.as_bytes().to_vec()));
}

struct Nothing;
impl Server for Nothing {}

/// Builds a message of this kind with this body.
fn message(opcode: Opcode, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(40 + body.len()).unwrap();
    let header = wire::InHeader {
        len,
        opcode: opcode.number(),
        unique: 6,
        nodeid: 1,
        uid: 0,
        gid: 0,
        pid: 0,
        extensions: 0,
        padding: 0,
    };
    [header.as_bytes(), body].concat()
}

#[test]
fn default_server_answers_every_kind() {
    let kernel = Kernel::new();
    let counts = Counts::default();
    let body = [b"a\0b\0", &[0; 252][..]].concat();
    for &opcode in Opcode::ALL.iter().chain(&[Opcode::Unknown(54)]) {
        // Structures of zeros, except for names, and for enums without a zero.
        let body = match opcode {
            Opcode::Lookup
            | Opcode::Symlink
            | Opcode::Unlink
            | Opcode::Rmdir
            | Opcode::Removexattr => &body[..],
            Opcode::Interrupt | Opcode::Lseek => &[0; 64],
            _ => &[&[0; 16][..], &body].concat(),
        };
        dispatch(
            &Nothing,
            &kernel.channel,
            &message(opcode, body),
            InitFlags::SETXATTR_EXT,
            &counts,
        );
        assert_eq!(kernel.is_silent(), !opcode.is_answered(), "{opcode:?}");
    }
}

#[test]
fn malformed_request_fails_if_it_can_be_answered() {
    let kernel = Kernel::new();
    let counts = Counts::default();
    let ask = |message: &[u8]| {
        dispatch(&Nothing, &kernel.channel, message, InitFlags::empty(), &counts);
    };
    ask(&message(Opcode::Read, &[0; 8]));
    assert_eq!(kernel.hear(), (-5, vec![]));
    ask(&message(Opcode::Forget, &[]));
    ask(&message(Opcode::Read, &[0; 8])[..30]);
    assert!(kernel.is_silent());
    ask(&message(Opcode::Unknown(99), &[]));
    assert_eq!(kernel.hear(), (-38, vec![]));
}
