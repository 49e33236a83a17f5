//! The model against expectations that were checked with Linux.

use super::*;
use crate::manifest::{Entry, Manifest, SubvolumeId, Time};
use crate::operation::{Attributes, RenameKind};

fn tell(model: &mut Model, operations: &[Operation]) -> Vec<Outcome> {
    operations.iter().map(|operation| model.apply(operation).map(drop)).collect()
}

/// Returns a model after operations none of which may fail.
fn with(operations: &[Operation]) -> Model {
    let mut model = Model::new(16384);
    for operation in operations {
        model.apply(operation).unwrap_or_else(|errno| panic!("{operation}: {errno}"));
    }
    model
}

fn rename(from: &str, to: &str, kind: RenameKind) -> Operation {
    Operation::Rename { from: from.into(), to: to.into(), kind }
}

fn mkdir(path: &str) -> Operation {
    Operation::Mkdir { path: path.into(), mode: Mode::new(0o755) }
}

fn create(path: &str) -> Operation {
    Operation::Create { path: path.into(), mode: Mode::new(0o644) }
}

fn link(from: Object, to: &str) -> Operation {
    Operation::Link { from, to: to.into() }
}

fn path(path: &str) -> Object {
    Object::Path(path.into())
}

#[test]
fn names_are_refused_for_their_first_reason() {
    let mut model = with(&[mkdir("d"), create("f"), create("d/g"), link(path("f"), "h")]);
    let long = "n".repeat(256);
    let refused = [
        (create("f"), Errno::EXIST),
        (create("x/y"), Errno::NOENT),
        (create("f/y"), Errno::NOTDIR),
        (create(&long), Errno::NAMETOOLONG),
        (mkdir(""), Errno::INVAL),
        (Operation::Unlink { path: "d".into() }, Errno::ISDIR),
        (Operation::Rmdir { path: "f".into() }, Errno::NOTDIR),
        (Operation::Rmdir { path: "d".into() }, Errno::NOTEMPTY),
        (Operation::Symlink { path: "f".into(), target: "".into() }, Errno::NOENT),
        (link(path("none"), "x/y"), Errno::NOENT),
        (link(path("d"), "f"), Errno::EXIST),
        (link(path("d"), "e"), Errno::PERM),
        (link(Object::Handle(1), "e"), Errno::BADF),
        (rename("f", "h", RenameKind::NoReplace), Errno::EXIST),
        (rename("f", "x", RenameKind::Exchange), Errno::NOENT),
        (rename("f", "d", RenameKind::Plain), Errno::ISDIR),
        (rename("d", "f", RenameKind::Plain), Errno::NOTDIR),
        (rename("none", &long, RenameKind::Plain), Errno::NOENT),
    ];
    let before = model.manifest();
    for (operation, errno) in refused {
        assert_eq!(model.apply(&operation), Err(errno), "{operation}");
        assert_eq!(model.manifest(), before, "{operation}");
    }
    model.apply(&rename("f", "h", RenameKind::Plain)).unwrap();
    assert_eq!(model.manifest(), before, "two names of one inode stay");
}

#[test]
fn a_directory_does_not_move_below_itself() {
    let mut model = with(&[mkdir("a"), mkdir("a/b"), mkdir("a/b/c")]);
    let cases = [
        ("a", "a/b/d", RenameKind::Plain, Err(Errno::INVAL)),
        ("a", "a/d", RenameKind::Whiteout, Err(Errno::INVAL)),
        ("a/b/c", "a", RenameKind::Plain, Err(Errno::NOTEMPTY)),
        ("a/b/c", "a", RenameKind::Exchange, Err(Errno::INVAL)),
        ("a", "a", RenameKind::Plain, Ok(())),
        ("a/b", "b", RenameKind::Plain, Ok(())),
        ("a", "b/c/a", RenameKind::Plain, Ok(())),
        ("b", "b/c/a/b", RenameKind::Plain, Err(Errno::INVAL)),
    ];
    for (from, to, kind, expected) in cases {
        assert_eq!(model.apply(&rename(from, to, kind)).map(drop), expected, "{from} {to}");
    }
    let shown = model.manifest();
    let paths: Vec<_> = shown.entries().iter().map(|entry| entry.path.to_string()).collect();
    assert_eq!(paths, ["/", "/b", "/b/c", "/b/c/a"]);
}

#[test]
fn an_exchange_and_a_whiteout_leave_both_names() {
    let mut model = with(&[mkdir("d"), mkdir("d/in"), create("f")]);
    model.apply(&rename("d", "f", RenameKind::Exchange)).unwrap();
    model.apply(&rename("f/in", "d", RenameKind::WhiteoutNoReplace)).unwrap_err();
    model.apply(&rename("d", "f/g", RenameKind::Whiteout)).unwrap();
    let list = |dir: &[u8]| -> Vec<_> {
        model.list(dir).unwrap().map(|(name, kind)| (name.to_vec(), kind)).collect()
    };
    assert_eq!(list(b""), [(b"d".to_vec(), Kind::Char), (b"f".to_vec(), Kind::Dir)]);
    assert_eq!(list(b"f"), [(b"g".to_vec(), Kind::File), (b"in".to_vec(), Kind::Dir)]);
}

#[test]
fn a_file_without_a_name_lives_until_its_handle_is_closed() {
    let tmpfile = Operation::Tmpfile { dir: "".into(), handle: 1, mode: Mode::new(0o600) };
    let write = Operation::Append { object: Object::Handle(1), length: 5, seed: 1 };
    let mut model = with(&[tmpfile, write]);
    assert_eq!((model.inodes(), model.manifest().entries().len()), (2, 1));
    model.apply(&link(Object::Handle(1), "f")).unwrap();
    assert_eq!(model.read(&path("f"), 0, 9), Ok(crate::pattern::bytes(1, 0, 5)));
    let unlink = Operation::Unlink { path: "f".into() };
    let again = link(Object::Handle(1), "g");
    assert_eq!(tell(&mut model, &[unlink, again]), [Ok(()), Err(Errno::NOENT)]);
    assert_eq!(model.inodes(), 2);
    assert_eq!(
        tell(&mut model, &[Operation::Reopen, Operation::Close { handle: 1 }]),
        [Ok(()), Err(Errno::BADF)]
    );
    assert_eq!(model.inodes(), 1);
}

#[test]
fn size_is_in_sectors_between_256_mib_and_the_device() {
    const MIB: u64 = 1 << 20;
    let mut model = Model::new(4096).on_device(600 * MIB);
    let mut resize = |bytes| {
        let end = model.apply(&Operation::Resize { bytes });
        (end.map(drop), model.size().unwrap())
    };
    assert_eq!(resize(256 * MIB - 1), (Err(Errno::INVAL), 600 * MIB));
    assert_eq!(resize(600 * MIB + 1), (Err(Errno::FBIG), 600 * MIB));
    assert_eq!(resize(256 * MIB + 4095), (Ok(()), 256 * MIB));
    assert_eq!(resize(600 * MIB), (Ok(()), 600 * MIB));
}

#[test]
fn an_owner_drops_set_id_bits_of_what_is_no_directory() {
    let mut model = with(&[create("f"), mkdir("d")]);
    let mut mode_after = |name: &str, mode: u32, uid: Option<u32>, given: Option<u32>| {
        let set = |mode: Option<u32>, uid| Operation::Setattr {
            object: path(name),
            attributes: Attributes { mode: mode.map(Mode::new), uid, ..Attributes::default() },
        };
        model.apply(&set(Some(mode), None)).unwrap();
        model.apply(&set(given, uid)).unwrap();
        model.manifest().get(format!("/{name}").as_bytes()).unwrap().mode.bits()
    };
    assert_eq!(mode_after("f", 0o6755, Some(1), None), 0o755);
    assert_eq!(mode_after("f", 0o6745, Some(1), None), 0o2745);
    assert_eq!(mode_after("f", 0o6755, Some(1), Some(0o4700)), 0o4700);
    assert_eq!(mode_after("d", 0o7755, Some(1), None), 0o7755);
}

#[test]
fn differences_leave_out_what_is_not_known() {
    let set = |mtime| Operation::Setattr {
        object: path("f"),
        attributes: Attributes { mtime: Some(mtime), ..Attributes::default() },
    };
    let mut model = with(&[create("f")]);
    let changed = |change: fn(&mut Entry)| {
        let mut entries = with(&[create("f")]).manifest().entries().to_vec();
        entries.iter_mut().for_each(change);
        Manifest::new(entries.into_iter().map(|entry| (SubvolumeId(0), entry)).collect())
    };
    let time = Time { seconds: 7, nanoseconds: 9 };
    let others = changed(|entry| {
        entry.inode += 1000;
        entry.subvolume = false;
        entry.btime = Some(Time::default());
        entry.mtime.seconds = 7;
        entry.mtime.nanoseconds = 9;
        entry.ctime.seconds = 8;
    });
    assert_eq!(model.differences(&others), []);
    model.apply(&set(time)).unwrap();
    assert_eq!(model.differences(&others), []);
    model.apply(&set(Time { seconds: 8, ..time })).unwrap();
    assert_eq!(model.differences(&others).len(), 1);
    assert_eq!(model.differences(&changed(|entry| entry.uid = 1)).len(), 3);
}

#[test]
fn a_directory_is_compared_as_if_it_were_all() {
    let operations = [create("f"), mkdir("d"), link(path("f"), "d/g"), create("d/h")];
    let below = |operation: &Operation| operation.clone().below(b"t/1", 0);
    let others = [mkdir("t"), mkdir("t/1"), create("t/10"), create("a")];
    let all = with(&[&others[..], &operations.each_ref().map(below)[..]].concat());
    let part = all.manifest().below(b"/t/1");
    assert_eq!(part.entries().len(), 5);
    assert_eq!(with(&operations).differences(&part), []);
    assert_eq!(with(&operations[1..2]).differences(&part).len(), 5);
}
