//! Tests of valid messages, of malformed ones, and of arbitrary bytes.

use proptest::prelude::*;
use rustix::fs::{OFlags, RenameFlags};
use zerocopy::{Immutable, IntoBytes};

use super::*;
use crate::operation::*;
use crate::values::{DeviceNumber, Handle, LockOwner, Name, Timestamp};

/// Builds a message of this kind with this body.
fn message(opcode: Opcode, body: &[u8]) -> Vec<u8> {
    with_extensions(opcode, body, &[])
}

fn with_extensions(opcode: Opcode, body: &[u8], extensions: &[u8]) -> Vec<u8> {
    let length = size_of::<wire::InHeader>() + body.len() + extensions.len();
    let header = wire::InHeader {
        len: u32::try_from(length).unwrap(),
        opcode: opcode.number(),
        unique: 22,
        nodeid: 33,
        uid: 1000,
        gid: 100,
        pid: 4,
        extensions: u16::try_from(extensions.len() / 8).unwrap(),
        padding: 0,
    };
    [header.as_bytes(), body, extensions].concat()
}

/// Builds a message with a structure and `behind` after it.
fn read<T: IntoBytes + Immutable>(opcode: Opcode, wire: &T, behind: &[u8]) -> Vec<u8> {
    message(opcode, &[wire.as_bytes(), behind].concat())
}

fn operation(message: &[u8]) -> Operation<'_> {
    parse(message, InitFlags::SETXATTR_EXT).unwrap().1
}

fn fault(message: &[u8]) -> Fault {
    parse(message, InitFlags::empty()).unwrap_err().fault
}

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).unwrap()
}

#[test]
fn header_has_caller_and_node() {
    let message = message(Opcode::Readlink, &[]);
    let (request, operation) = parse(&message, InitFlags::empty()).unwrap();
    assert_eq!(operation, Operation::Readlink);
    assert_eq!((request.unique, request.node, request.opcode), (22, NodeId(33), Opcode::Readlink));
    let caller = Caller { uid: 1000, gid: 100, pid: 4, group_of_parent: None };
    assert_eq!(request.caller, caller);
}

#[test]
fn names_are_read_up_to_their_nul() {
    let names = message(Opcode::Lookup, b"file\0");
    assert_eq!(operation(&names), Operation::Lookup(name("file")));
    let link = message(Opcode::Symlink, b"link\0../there/x\0");
    let expected = Symlink { name: name("link"), target: b"../there/x" };
    assert_eq!(operation(&link), Operation::Symlink(expected));
    let link = read(Opcode::Link, &wire::LinkIn { oldnodeid: 5 }, b"new\0");
    let expected = Link { target: NodeId(5), name: name("new") };
    assert_eq!(operation(&link), Operation::Link(expected));
    assert_eq!(operation(&message(Opcode::Rmdir, b"d\0")), Operation::Rmdir(name("d")));
}

#[test]
fn invalid_names_are_malformed() {
    assert_eq!(fault(&message(Opcode::Lookup, b"file")), Fault::Endless);
    assert_eq!(fault(&message(Opcode::Unlink, b"")), Fault::Endless);
    assert_eq!(fault(&message(Opcode::Unlink, b"\0")), Fault::Empty);
    assert_eq!(fault(&message(Opcode::Rmdir, b"a/b\0")), Fault::Name);
}

#[test]
fn rename_and_rename2_parse_alike() {
    let old = read(Opcode::Rename, &wire::RenameIn { newdir: 7 }, b"a\0b\0");
    let expected =
        |flags| Rename { name: name("a"), new_parent: NodeId(7), new_name: name("b"), flags };
    assert_eq!(operation(&old), Operation::Rename(expected(RenameFlags::empty())));
    let new = wire::Rename2In { newdir: 7, flags: 2, padding: 0 };
    let new = read(Opcode::Rename2, &new, b"a\0b\0");
    assert_eq!(operation(&new), Operation::Rename(expected(RenameFlags::EXCHANGE)));
}

fn setattr_in(valid: u32) -> wire::SetattrIn {
    wire::SetattrIn {
        valid,
        padding: 0,
        fh: 9,
        size: 4096,
        lock_owner: 8,
        atime: u64::MAX,
        mtime: 5,
        ctime: 6,
        atimensec: 999_999_999,
        mtimensec: 1,
        ctimensec: 2,
        mode: 0o100_644,
        unused4: 0,
        uid: 1,
        gid: 2,
        unused5: 0,
    }
}

#[test]
fn setattr_changes_only_valid_attributes() {
    let nothing = read(Opcode::Setattr, &setattr_in(0), &[]);
    assert_eq!(operation(&nothing), Operation::Setattr(Changes::default()));
    let all = read(Opcode::Setattr, &setattr_in(0xfff & !(3 << 7)), &[]);
    let expected = Changes {
        mode: Some(0o100_644),
        uid: Some(1),
        gid: Some(2),
        size: Some(4096),
        atime: Some(NewTime::At(Timestamp::new(-1, 999_999_999).unwrap())),
        mtime: Some(NewTime::At(Timestamp::new(5, 1).unwrap())),
        ctime: Timestamp::new(6, 2),
        handle: Some(Handle(9)),
        lock_owner: Some(LockOwner(8)),
        kill_suid_sgid: true,
    };
    assert_eq!(operation(&all), Operation::Setattr(expected));
    let now = read(Opcode::Setattr, &setattr_in(1 << 5 | 1 << 8), &[]);
    let expected = Changes { mtime: Some(NewTime::Now), ..Changes::default() };
    assert_eq!(operation(&now), Operation::Setattr(expected));
}

#[test]
fn setattr_with_invalid_value_is_malformed() {
    let size = wire::SetattrIn { size: 1 << 63, ..setattr_in(1 << 3) };
    let found = fault(&read(Opcode::Setattr, &size, &[]));
    assert_eq!(found, Fault::Value { field: "size", value: 1 << 63 });
    let time = wire::SetattrIn { mtimensec: 1_000_000_000, ..setattr_in(1 << 5) };
    let found = fault(&read(Opcode::Setattr, &time, &[]));
    assert_eq!(found, Fault::Value { field: "nanoseconds", value: 1_000_000_000 });
}

fn write_in(size: u32, write_flags: u32) -> wire::WriteIn {
    let flags = OFlags::APPEND.bits();
    wire::WriteIn { fh: 1, offset: 2, size, write_flags, lock_owner: 3, flags, padding: 0 }
}

#[test]
fn write_data_is_borrowed_from_the_message() {
    let message = read(Opcode::Write, &write_in(4, 7), b"data");
    let Operation::Write(write) = operation(&message) else { panic!("a write") };
    assert_eq!((write.handle, write.offset, write.data), (Handle(1), 2, &b"data"[..]));
    assert!(write.from_cache && write.kill_suid_sgid);
    assert_eq!((write.lock_owner, write.flags), (Some(LockOwner(3)), OFlags::APPEND));
    assert!(std::ptr::eq(write.data.as_ptr_range().end, message.as_ptr_range().end));
    assert_eq!(fault(&read(Opcode::Write, &write_in(5, 0), b"data")), Fault::Short { missing: 1 });
}

#[test]
fn offsets_have_63_bits_except_those_of_directories() {
    let wire = wire::ReadIn {
        fh: 1,
        offset: 1 << 63,
        size: 9,
        read_flags: 0,
        lock_owner: 0,
        flags: 0,
        padding: 0,
    };
    let found = fault(&read(Opcode::Read, &wire, &[]));
    assert_eq!(found, Fault::Value { field: "offset", value: 1 << 63 });
    let message = read(Opcode::Readdir, &wire, &[]);
    let Operation::Readdir(found) = operation(&message) else { panic!("a readdir") };
    assert_eq!((found.offset, found.size), (1 << 63, 9));
    let wire = wire::FallocateIn { fh: 1, offset: 1, length: u64::MAX >> 1, mode: 0, padding: 0 };
    assert!(matches!(fault(&read(Opcode::Fallocate, &wire, &[])), Fault::Value { .. }));
}

#[test]
fn setxattr_has_flags_if_agreed_on() {
    let old = wire::SetxattrInOld { size: 3, flags: 1 };
    let message = read(Opcode::Setxattr, &old, b"user.a\0abc");
    let (_, found) = parse(&message, InitFlags::empty()).unwrap();
    let expected = |kill_sgid| {
        let flags = rustix::fs::XattrFlags::CREATE;
        Operation::Setxattr(Setxattr { name: b"user.a", value: b"abc", flags, kill_sgid })
    };
    assert_eq!(found, expected(false));
    let new = wire::SetxattrIn { old, setxattr_flags: 1, padding: 0 };
    let message = read(Opcode::Setxattr, &new, b"user.a\0abc");
    assert_eq!(operation(&message), expected(true));
}

#[test]
fn forgotten_nodes_are_counted() {
    let forgotten = |message: &[u8]| {
        let mut nodes = Vec::new();
        let Operation::Forget(found) = operation(message) else { panic!("a forget") };
        found.for_each(|node, lookups| nodes.push((node.0, lookups)));
        nodes
    };
    let one = read(Opcode::Forget, &wire::ForgetIn { nlookup: 4 }, &[]);
    assert_eq!(forgotten(&one), [(33, 4)]);
    let nodes: [[u64; 2]; 2] = [[5, 1], [6, 2]];
    let batch = wire::BatchForgetIn { count: 2, dummy: 0 };
    let many = read(Opcode::BatchForget, &batch, nodes.as_bytes());
    assert_eq!(forgotten(&many), [(5, 1), (6, 2)]);
    for (count, fits) in [(3, false), (u32::MAX, false), (1 << 28, false), (1, true)] {
        let batch = wire::BatchForgetIn { count, dummy: 0 };
        let message = read(Opcode::BatchForget, &batch, nodes.as_bytes());
        assert_eq!(parse(&message, InitFlags::empty()).is_ok(), fits, "{count}");
    }
}

#[test]
fn requests_that_make_nodes_carry_group_of_parent() {
    let groups: [u32; 4] = [16, wire::EXTENSION_GROUPS, 1, 77];
    let other: [u32; 2] = [8, 5];
    let body = [&[0; 16][..], b"x\0"].concat();
    let extensions = [other.as_bytes(), groups.as_bytes()].concat();
    let message = with_extensions(Opcode::Create, &body, &extensions);
    let (request, operation) = parse(&message, InitFlags::empty()).unwrap();
    assert_eq!(request.caller.group_of_parent, Some(77));
    assert!(matches!(operation, Operation::Create(create) if create.name == name("x")));
    for wrong in [[0, 32], [7, 32], [24, 32]] {
        let message = with_extensions(Opcode::Create, &body, wrong.as_bytes());
        assert!(parse(&message, InitFlags::empty()).is_err());
    }
}

#[test]
fn tmpfile_ignores_its_name() {
    let wire = wire::CreateIn { flags: 2, mode: 0o100_600, umask: 0o77, open_flags: 0 };
    let message = read(Opcode::Tmpfile, &wire, b"/\0");
    let expected = Tmpfile { flags: OFlags::RDWR, mode: 0o100_600, umask: 0o77 };
    assert_eq!(operation(&message), Operation::Tmpfile(expected));
}

#[test]
fn device_nodes_have_their_number() {
    let wire = wire::MknodIn { mode: 0o060_600, rdev: 0x0010_0801, umask: 0o22, padding: 0 };
    let message = read(Opcode::Mknod, &wire, b"sda\0");
    let device = DeviceNumber { major: 8, minor: 0x101 };
    let expected = Mknod { name: name("sda"), mode: 0o060_600, umask: 0o22, device };
    assert_eq!(operation(&message), Operation::Mknod(expected));
}

#[test]
fn init_has_64_flags_with_init_ext() {
    let wire = wire::InitIn { major: 7, minor: 45, max_readahead: 1, flags: 1 << 30 | 1 };
    let found = fault(&read(Opcode::Init, &wire, &[]));
    assert_eq!(found, Fault::Short { missing: 4 });
    let message = read(Opcode::Init, &wire, [4_u32, 0].as_bytes());
    let Operation::Init(offer) = operation(&message) else { panic!("an init") };
    let expected = InitFlags::INIT_EXT | InitFlags::ASYNC_READ | InitFlags::CREATE_SUPP_GROUP;
    assert_eq!((offer.flags, offer.minor), (expected, 45));
    let old = wire::InitIn { flags: 1, ..wire };
    let message = read(Opcode::Init, &old, &[]);
    assert!(matches!(operation(&message), Operation::Init(_)));
}

#[test]
fn locks_are_of_three_kinds() {
    let wire = |kind| wire::LkIn {
        fh: 1,
        owner: 2,
        lock: wire::FileLock { start: 3, end: 4, kind, pid: 5 },
        flags: 1,
        padding: 0,
    };
    let message = read(Opcode::Setlkw, &wire(1), &[]);
    let lock = Lock { start: 3, end: 4, kind: LockKind::Write, pid: 5 };
    let owner = LockOwner(2);
    let expected = LockRequest { handle: Handle(1), owner, lock, is_flock: true };
    assert_eq!(operation(&message), Operation::Setlkw(expected));
    let found = fault(&read(Opcode::Setlk, &wire(3), &[]));
    assert_eq!(found, Fault::Value { field: "kind of lock", value: 3 });
}

#[test]
fn copy_length_is_limited_to_32_bit_answer() {
    let wire = wire::CopyFileRangeIn {
        fh_in: 1,
        off_in: 2,
        nodeid_out: 3,
        fh_out: 4,
        off_out: 5,
        len: 1 << 40,
        flags: 0,
    };
    for (opcode, length) in
        [(Opcode::CopyFileRange, 0xffff_0000), (Opcode::CopyFileRange64, 1 << 40)]
    {
        let message = read(opcode, &wire, &[]);
        let Operation::CopyFileRange(copy) = operation(&message) else { panic!("a copy") };
        assert_eq!((copy.target, copy.target_offset, copy.length), (NodeId(3), 5, length));
    }
}

#[test]
fn ioctl_carries_the_callers_input() {
    let wire = wire::IoctlIn {
        fh: 1,
        flags: 1 << 4,
        cmd: 0x8004_587d,
        arg: 0x1000,
        in_size: 2,
        out_size: 4,
    };
    let message = read(Opcode::Ioctl, &wire, b"ab");
    let Operation::Ioctl(ioctl) = operation(&message) else { panic!("an ioctl") };
    assert_eq!((ioctl.command, ioctl.input, ioctl.output_size), (0x8004_587d, &b"ab"[..], 4));
    assert_eq!(ioctl.flags, IoctlFlags::DIRECTORY);
    assert_eq!(fault(&read(Opcode::Ioctl, &wire, b"a")), Fault::Short { missing: 1 });
}

#[test]
fn seeks_are_for_data_and_holes() {
    let wire = |whence| wire::LseekIn { fh: 1, offset: u64::MAX, whence, padding: 0 };
    let message = read(Opcode::Lseek, &wire(4), &[]);
    let expected = Lseek { handle: Handle(1), offset: -1, whence: Whence::Hole };
    assert_eq!(operation(&message), Operation::Lseek(expected));
    let found = fault(&read(Opcode::Lseek, &wire(2), &[]));
    assert_eq!(found, Fault::Value { field: "whence", value: 2 });
}

#[test]
fn wrong_length_is_malformed_and_keeps_the_number() {
    let mut long = message(Opcode::Statfs, &[]);
    long.push(0);
    let malformed = parse(&long, InitFlags::empty()).unwrap_err();
    assert_eq!(malformed.fault, Fault::Length { said: 40, found: 41 });
    assert_eq!((malformed.unique, malformed.opcode), (Some(22), Some(Opcode::Statfs)));
    let malformed = parse(&long[..39], InitFlags::empty()).unwrap_err();
    assert_eq!(malformed.fault, Fault::Short { missing: 1 });
    assert_eq!(malformed.unique, None);
}

#[test]
fn unknown_kind_is_not_malformed() {
    let unknown = Opcode::Unknown(54);
    assert_eq!(operation(&message(unknown, b"anything")), Operation::Unknown(unknown));
}

/// Generates messages with a valid header, which may end too early.
fn any_message() -> impl Strategy<Value = Vec<u8>> {
    let kinds = prop::sample::select(Opcode::ALL);
    let body = prop::collection::vec(prop_oneof![Just(0_u8), Just(b'a'), any::<u8>()], 0..200);
    let extensions = prop::collection::vec(any::<u64>(), 0..4);
    (kinds, body, extensions).prop_map(|(opcode, body, extensions)| {
        with_extensions(opcode, &body, extensions.as_bytes())
    })
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        flags in any::<u64>(),
    ) {
        let _ = parse(&bytes, InitFlags::from_bits_retain(flags));
    }

    #[test]
    fn no_body_makes_it_panic(message in any_message(), flags in any::<u64>()) {
        if let Ok((_, Operation::Forget(nodes))) =
            parse(&message, InitFlags::from_bits_retain(flags))
        {
            nodes.for_each(|_, _| ());
        }
    }
}
