//! Changes of one call are atomic: a crash shows all of them or none.

use std::thread;

use super::*;

const LIST: &[u8] = b"user.list";
const OTHER: &[u8] = b"user.other";
const COMPRESSION: &[u8] = b"btrfs.compression";
/// The number of simulated crashes.
const LOOKS: usize = 12;

/// Opens what a crash would leave now.
fn left(lab: &Lab) -> Filesystem {
    let device = MemoryDevice::from_bytes(lab.device.snapshot());
    OpenOptions::new().open_devices(vec![Arc::new(device)]).unwrap()
}

/// Repeats `change` while another thread makes its changes durable; `look` checks what crashes
/// would leave.
fn beside(
    lab: &Lab,
    change: impl Fn(usize),
    make_durable: impl Fn(usize) + Sync,
    look: impl Fn(&Dir) + Sync,
) {
    thread::scope(|scope| {
        let looking = scope.spawn(|| {
            for number in 0..LOOKS {
                make_durable(number);
                look(&left(lab).root());
            }
        });
        let mut number = 0;
        while !looking.is_finished() {
            change(number);
            number += 1;
        }
        looking.join().unwrap();
    });
}

#[test]
fn new_inode_is_never_visible_without_its_attributes() {
    let lab = Lab::of(64 << 20, &Options::default(), 32 << 20);
    let given = [(LIST.to_vec(), vec![7; 60]), (OTHER.to_vec(), Vec::new())];
    let dir = lab.fs.root().giving(given.to_vec());
    let make = |number: usize| {
        // Few, since each look visits all of them.
        let name = format!("{}", number % 50);
        match lab.fs.root().lookup(name.as_bytes()) {
            Ok(there) if there.metadata().unwrap().is_dir() => {
                dir.remove_dir(name.as_bytes()).unwrap();
            }
            Ok(_) => dir.remove_file(name.as_bytes()).unwrap(),
            Err(_) if number.is_multiple_of(3) => drop(dir.create_dir(name.as_bytes(), 0o750)),
            Err(_) if number.is_multiple_of(7) => {
                dir.link(name.as_bytes(), &dir.create_unnamed(0o640).unwrap()).unwrap();
            }
            Err(_) => drop(dir.create(name.as_bytes(), 0o640).unwrap()),
        }
    };
    let make_durable = |number: usize| match number % 2 {
        0 => lab.fs.root().sync_all().unwrap(),
        _ => lab.fs.commit().unwrap(),
    };
    beside(&lab, make, make_durable, |root| {
        for entry in root.entries() {
            let inode = root.follow(&entry.unwrap()).unwrap();
            let mut found = inode.xattrs().unwrap();
            found.sort();
            assert_eq!(found, given, "of {:?}", inode.id());
        }
    });
    check(&lab.device);
}

#[test]
fn attributes_and_xattr_are_set_atomically() {
    let lab = Lab::of(64 << 20, &Options::default(), 32 << 20);
    let file = lab.create("file");
    let set = |number: usize| {
        let mode = [0o600, 0o640, 0o660][number % 3];
        let value = format!("{mode:o}");
        let attributes = Attributes { mode: Some(mode), ..Attributes::default() };
        let value = (mode != 0o600).then_some(value.as_bytes());
        file.inode().set_attributes_with(&attributes, (LIST, value)).unwrap();
    };
    set(0);
    let make_durable = |number: usize| match number % 4 {
        0 => lab.fs.commit().unwrap(),
        _ => file.sync_all().unwrap(),
    };
    beside(&lab, set, make_durable, |root| {
        let inode = root.lookup(b"file").unwrap();
        let mode = format!("{:o}", inode.metadata().unwrap().mode & 0o777);
        match inode.xattr(LIST) {
            Ok(list) => assert_eq!(list, mode.as_bytes()),
            Err(error) => assert!(matches!(error, Error::NoAttribute) && mode == "600", "{mode}"),
        }
    });
    check(&lab.device);
}

/// Returns whether an inode is compressed according to its flags and to its property: `None` if
/// unset.
fn compressed(inode: &Inode) -> [Option<bool>; 2] {
    let flags = inode.metadata().unwrap().flags;
    let by_flags = match flags & (InodeFlags::COMPRESS | InodeFlags::NOCOMPRESS) {
        InodeFlags::COMPRESS => Some(true),
        InodeFlags::NOCOMPRESS => Some(false),
        neither if neither.is_empty() => None,
        both => panic!("{both:?}"),
    };
    let by_property = inode.xattr(COMPRESSION).ok().map(|value| value != b"none");
    [by_flags, by_property]
}

#[test]
fn property_and_its_flags_are_set_atomically() {
    let lab = Lab::of(64 << 20, &Options::default(), 32 << 20);
    let file = lab.create("file");
    let set = |number: usize| match number % 4 {
        0 => file.inode().set_xattr(COMPRESSION, b"zstd", XattrMode::Either).unwrap(),
        1 => file.inode().set_xattr(COMPRESSION, b"none", XattrMode::Either).unwrap(),
        2 => file.inode().set_flags(InodeFlags::COMPRESS).unwrap(),
        _ => file.inode().remove_xattr(COMPRESSION).unwrap(),
    };
    set(0);
    let make_durable = |number: usize| match number % 4 {
        0 => lab.fs.commit().unwrap(),
        _ => file.sync_all().unwrap(),
    };
    beside(&lab, set, make_durable, |root| {
        let [by_flags, by_property] = compressed(&root.lookup(b"file").unwrap());
        assert_eq!(by_flags, by_property);
    });
    check(&lab.device);
}

#[test]
fn new_inode_inherits_property_and_flags_together_while_they_change() {
    let lab = Lab::of(64 << 20, &Options::default(), 32 << 20);
    let dir = lab.fs.root().create_dir(b"dir", 0o755).unwrap();
    let values: [&[u8]; 4] = [b"zstd", b"", b"lzo:3", b"none"];
    thread::scope(|scope| {
        let making = scope.spawn(|| {
            for number in 0..3000 {
                let made = dir.create(format!("{number}").as_bytes(), 0o644).unwrap();
                let [by_flags, by_property] = compressed(&made);
                // An inode that is never compressed inherits only the flag.
                assert!(by_flags == by_property || by_flags == Some(false), "{number}");
                assert!(by_flags != Some(false) || by_property.is_none(), "{number}");
            }
        });
        for value in values.iter().cycle() {
            dir.inode().set_xattr(COMPRESSION, value, XattrMode::Either).unwrap();
            if making.is_finished() {
                break;
            }
        }
        making.join().unwrap();
    });
    lab.close();
}

#[test]
fn create_with_invalid_attributes_creates_nothing() {
    let lab = Lab::of(64 << 20, &Options::default(), 32 << 20);
    let root = lab.fs.root();
    let made = |name: &[u8], value: &[u8]| {
        root.clone().giving(vec![(name.to_vec(), value.to_vec())]).create(b"file", 0o644)
    };
    assert!(matches!(made(LIST, &vec![1; 20_000]), Err(Error::AttributeTooLong)));
    assert!(matches!(made(b"", b""), Err(Error::BadAttributeName(_))));
    assert!(matches!(made(COMPRESSION, b"zstd"), Err(Error::Invalid(_))));
    assert_eq!(root.entries().count(), 0);
    made(LIST, &[1; 10_000]).unwrap();
}
