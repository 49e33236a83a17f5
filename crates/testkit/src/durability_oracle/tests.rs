//! Operations are recorded in a journal, and other operations build the filesystem that a crash
//! left. Inode numbers follow the order of creation.

use super::*;
use crate::devices::{Event, Recorded, SparseDevice, SparseImage};
use crate::engine_target::EngineTarget;
use crate::operation::{Attributes, RenameKind, XattrKind};
use crate::target::Target;
use userbtrfs::TreeId;
use userbtrfs::mkfs::{Options, make};
use userbtrfs_sync::Arc;

const MIB: u64 = 1 << 20;
const DEVICE: u64 = 600 * MIB;
/// The inode number of the root.
const ROOT_NUMBER: u64 = 256;

/// A model and its journal: each operation is one write to the device.
struct Done {
    model: Model,
    journal: SyncJournal,
    generation: u64,
    made: u64,
}

impl Done {
    fn new() -> Self {
        let model = Model::new(4096).on_device(DEVICE);
        let generation = 1;
        let journal = SyncJournal::new(&model, OpWindow { before: 0, after: 0, generation });
        let mut done = Self { model, journal, generation, made: 0 };
        done.number();
        done
    }

    fn meanwhile(&self) -> OpWindow {
        let after = self.journal.moments.len();
        OpWindow { before: after - 1, after, generation: self.generation }
    }

    fn number(&mut self) {
        let Self { journal, model, made, .. } = self;
        journal.number(model, |_| {
            *made += 1;
            InodeId { subvolume: TreeId::FS, number: ROOT_NUMBER + *made - 1 }
        });
    }

    fn does(mut self, operations: &[Operation]) -> Self {
        for operation in operations {
            self.model.apply(operation).unwrap();
            let commits = matches!(operation, Operation::Commit | Operation::Resize { .. });
            self.generation += u64::from(commits);
            self.journal.note(&self.model, operation, self.meanwhile());
            self.number();
        }
        self
    }

    fn syncs(mut self, path: &str) -> Self {
        self.journal.note_sync(&self.model, &object(path), false, self.meanwhile());
        self
    }

    fn syncs_data(mut self, path: &str) -> Self {
        self.journal.note_sync(&self.model, &object(path), true, self.meanwhile());
        self
    }

    /// Records an operation that failed because of the device.
    fn fails(mut self, operation: &Operation) -> Self {
        let mut tried = self.model.clone();
        tried.apply(operation).unwrap();
        self.journal.note_failed(&self.model, &tried, operation, self.meanwhile());
        self
    }

    /// Checks what is left after `operations` events; the first moment has no event.
    fn after(&self, operations: usize, left: &[Operation]) -> Result<()> {
        let event = |batch| Recorded { event: Event::Flush { covers: 0 }, batch };
        let events = (1..self.journal.moments.len()).map(|batch| event(batch as u64)).collect();
        let recording = Recording { base: SparseImage::new(0), events, reached: Vec::new() };
        self.journal.check(&recording, operations, made_by(left).filesystem())
    }

    fn check(&self, left: &[Operation]) -> Result<()> {
        self.after(self.journal.moments.len() - 1, left)
    }

    fn may_leave(&self, left: &[Operation]) {
        self.check(left).unwrap_or_else(|error| panic!("{left:?}: {error:#}"));
    }

    fn may_not_leave(&self, left: &[Operation], why: &str) {
        let error = self.check(left).expect_err(why);
        let told = format!("{error:#}");
        assert!(told.contains(why), "{told}");
    }
}

/// Creates a filesystem with just these operations applied.
fn made_by(operations: &[Operation]) -> EngineTarget {
    let device = SparseDevice::new(DEVICE);
    make(&device, &Options { nodesize: 4096, ..Options::default() }).unwrap();
    let mut target = EngineTarget::on_device(Arc::new(device)).unwrap();
    for operation in operations {
        target.apply(operation).unwrap_or_else(|errno| panic!("{operation}: {errno}"));
    }
    target
}

fn object(path: &str) -> Object {
    Object::Path(path.as_bytes().into())
}

fn create(path: &str) -> Operation {
    Operation::Create { path: path.as_bytes().into(), mode: Mode::new(0o644) }
}

fn mkdir(path: &str) -> Operation {
    Operation::Mkdir { path: path.as_bytes().into(), mode: Mode::new(0o755) }
}

fn unlink(path: &str) -> Operation {
    Operation::Unlink { path: path.as_bytes().into() }
}

fn link(from: &str, to: &str) -> Operation {
    Operation::Link { from: object(from), to: to.as_bytes().into() }
}

fn rename(from: &str, to: &str) -> Operation {
    let from = from.as_bytes().into();
    let to = to.as_bytes().into();
    Operation::Rename { from, to, kind: RenameKind::Plain }
}

/// Writes two sectors of this seed.
fn write(path: &str, seed: u32) -> Operation {
    Operation::Write { object: object(path), offset: 0, length: 8192, seed }
}

fn write_at(path: &str, offset: u64, length: u64, seed: u32) -> Operation {
    Operation::Write { object: object(path), offset, length, seed }
}

fn set(path: &str, attributes: Attributes) -> Operation {
    Operation::Setattr { object: object(path), attributes }
}

fn chmod(path: &str, mode: u32) -> Operation {
    set(path, Attributes { mode: Some(Mode::new(mode)), ..Attributes::default() })
}

fn touch(path: &str, seconds: i64) -> Operation {
    let time = Time { seconds, nanoseconds: 0 };
    set(path, Attributes { mtime: Some(time), ..Attributes::default() })
}

fn xattr(path: &str, value: &str) -> Operation {
    let name = b"user.x".as_slice().into();
    let value = value.as_bytes().into();
    Operation::SetXattr { object: object(path), name, value, kind: XattrKind::Any }
}

const COMMIT: Operation = Operation::Commit;

#[test]
fn time_line_returns_values_by_moment() {
    let mut line = TimeLine::default();
    for (moment, value) in [(0, 'a'), (2, 'b'), (3, 'b'), (5, 'c')] {
        line.note(moment, value);
    }
    let within = |from, to| line.within((from, to)).collect::<String>();
    assert_eq!([within(0, 1), within(0, 2), within(1, 4)], ["a", "ba", "ba"]);
    assert_eq!([within(2, 4), within(3, 5), within(5, 9)], ["b", "cb", "c"]);
    let changed = [(0, 1), (0, 2), (2, 4), (4, 5)].map(|span| line.changed(span));
    assert_eq!(changed, [false, true, false, true]);
    assert_eq!([0, 1, 4, 9].map(|moment| *line.at(moment).unwrap()), ['a', 'a', 'b', 'c']);
}

#[test]
fn unsynced_changes_may_be_present_or_missing() {
    let done = Done::new().does(&[create("a"), write("a", 1)]);
    done.may_leave(&[]);
    done.may_leave(&[create("a")]);
    done.may_leave(&[create("a"), write("a", 1)]);
    done.may_not_leave(&[create("b")], "never was");
    done.may_not_leave(&[create("a"), write("a", 2)], "never was there");
    done.may_not_leave(&[create("a"), create("b")], "unknown");
    done.may_not_leave(&[mkdir("a")], "Dir");
}

#[test]
fn synced_changes_are_present() {
    let done = Done::new().does(&[create("a"), write("a", 1)]).syncs("a");
    done.may_leave(&[create("a"), write("a", 1)]);
    done.may_not_leave(&[], "names");
    done.may_not_leave(&[create("a")], "its size is 0");
    done.may_not_leave(&[create("a"), write_at("a", 0, 4096, 1)], "its size is 4096");
    let later = done.does(&[write("a", 2), create("b")]);
    later.may_leave(&[create("a"), write("a", 1)]);
    later.may_leave(&[create("a"), write("a", 2), create("b")]);
    // One sector from before and one from after.
    later.may_leave(&[create("a"), write("a", 1), write_at("a", 4096, 4096, 2)]);
    later.may_not_leave(&[create("a"), write("a", 1), write_at("a", 4096, 2048, 2)], "never was");
    later.may_not_leave(&[], "names");
}

#[test]
fn changes_of_an_unreturned_fsync_may_be_missing() {
    let done = Done::new().does(&[create("a")]).syncs("a");
    done.after(1, &[]).unwrap();
    done.after(1, &[create("a")]).unwrap();
    done.after(2, &[]).unwrap_err();
    // An operation that had not begun has no effect.
    let done = done.does(&[create("b")]);
    done.after(2, &[create("a"), create("b")]).unwrap();
    let done = done.does(&[create("c")]);
    done.after(2, &[create("a"), create("b"), create("c")]).unwrap_err();
}

#[test]
fn a_commit_settles_all() {
    let done = Done::new().does(&[create("a"), write("a", 1), create("b"), COMMIT]);
    let all = [create("a"), write("a", 1), create("b")];
    done.may_leave(&all);
    done.may_not_leave(&[create("a"), write("a", 1)], "[98]) is None");
    done.may_not_leave(&[create("a"), create("b")], "its size");
    let later = done.does(&[unlink("b")]);
    later.may_leave(&all);
    later.may_leave(&all[..2]);
    later.may_not_leave(&[], "[97]) is None");
}

#[test]
fn resize_settles_its_size_and_all_but_the_contents_if_it_grows() {
    const SHRINK: Operation = Operation::Resize { bytes: DEVICE / 2 };
    const GROW: Operation = Operation::Resize { bytes: DEVICE };
    let done = Done::new().does(&[create("a"), write("a", 1), SHRINK]);
    let shrunk = [create("a"), write("a", 1), SHRINK];
    done.may_leave(&shrunk);
    done.may_not_leave(&[create("a"), SHRINK], "its size is 0");
    done.may_not_leave(&shrunk[..2], "a size of 629145600");
    // While it is in flight.
    done.after(2, &shrunk).unwrap();
    done.after(2, &shrunk[..2]).unwrap();
    let done = done.does(&[write("a", 2), create("b"), GROW]);
    done.may_leave(&[create("a"), write("a", 1), create("b")]);
    done.may_leave(&[create("a"), write("a", 2), create("b")]);
    done.may_not_leave(&[create("a"), write("a", 2)], "[98]) is None");
    done.may_not_leave(&[create("a"), write("a", 1), create("b"), SHRINK], "a size of 314572800");
}

#[test]
fn name_resolves_to_an_inode_of_some_moment() {
    let made = [create("a"), create("b")];
    let done = Done::new().does(&made).does(&[COMMIT, rename("a", "b")]);
    done.may_leave(&made);
    done.may_leave(&[create("b")]);
    let swapped = [create("b"), create("a")];
    done.may_not_leave(&swapped, "[97]) is Some");
    // The name was never free.
    done.may_not_leave(&[create("a")], "[98]) is None");
    // Missing, though it always had a name.
    done.may_not_leave(&[create("c"), create("b"), unlink("c")], "lost");
}

#[test]
fn changed_and_synced_inode_has_exactly_its_names() {
    let done = Done::new().does(&[create("a"), COMMIT, rename("a", "b")]).syncs("b");
    done.may_leave(&[create("b")]);
    done.may_not_leave(&[create("a")], "names");
    done.may_not_leave(&[create("a"), link("a", "b")], "names");
    let done = done.does(&[link("b", "c")]);
    done.may_leave(&[create("b")]);
    done.may_leave(&[create("b"), link("b", "c")]);
    done.may_not_leave(&[create("c")], "names");
}

#[test]
fn names_of_all_synced_inodes_are_from_one_moment() {
    let made = [create("a"), create("b")];
    let done = Done::new().does(&made).syncs("a").syncs("b");
    let done = done.does(&[rename("a", "c"), rename("b", "d")]);
    done.may_leave(&made);
    done.may_leave(&[create("c"), create("b")]);
    done.may_leave(&[create("c"), create("d")]);
    done.may_not_leave(&[create("a"), create("d")], "several moments");
}

#[test]
fn a_synced_directory_has_its_names() {
    let made = [mkdir("d"), create("d/a"), create("d/b")];
    let done = Done::new().does(&made).does(&[COMMIT, unlink("d/a")]).syncs("d");
    let left = [&made[..], &[unlink("d/a")]].concat();
    done.may_leave(&left);
    done.may_not_leave(&made, "[97]) is Some");
    done.may_not_leave(&[&left[..], &[unlink("d/b")]].concat(), "[98]) is None");
    let done = done.does(&[create("d/c")]);
    done.may_leave(&left);
    let done = done.syncs("d");
    done.may_not_leave(&left, "[99]) is None");
    done.may_leave(&[&left[..], &[create("d/c")]].concat());
}

#[test]
fn attributes_of_a_synced_inode_are_kept() {
    let changes = [chmod("a", 0o600), xattr("a", "1"), touch("a", 1000)];
    let base = || Done::new().does(&[create("a"), touch("a", 7), COMMIT]).does(&changes);
    let unsynced = base();
    let synced = base().syncs("a");
    let data = base().syncs_data("a");
    let all = [&[create("a")][..], &changes].concat();
    for done in [&unsynced, &synced, &data] {
        done.may_leave(&all);
    }
    let missing = [("mode", [1, 2]), ("xattrs", [0, 2]), ("modified", [0, 1])];
    for (what, kept) in missing {
        let left = [vec![create("a"), touch("a", 7)], kept.map(|at| changes[at].clone()).into()];
        let left = left.concat();
        for done in [&unsynced, &data] {
            done.may_leave(&left);
        }
        synced.may_not_leave(&left, what);
    }
    unsynced.may_not_leave(&[&all[..], &[chmod("a", 0o777)]].concat(), "mode");
    unsynced.may_not_leave(&[&all[..], &[xattr("a", "2")]].concat(), "xattrs");
    unsynced.may_not_leave(&[&all[..], &[touch("a", 3)]].concat(), "modified");
}

#[test]
fn link_counts_and_sizes_match_the_names() {
    let made = [mkdir("d"), create("d/a"), link("d/a", "b")];
    let done = Done::new().does(&made).does(&[COMMIT]);
    done.may_leave(&made);
    let target = made_by(&made);
    let last = done.journal.moments.len() - 1;
    let cut = Cut { all: last, last, ..Cut::default() };
    let found = || Found::new(&done.journal, &cut, target.filesystem(), b"/").unwrap();
    let [dir, file] = ["d", "b"].map(|path| done.model.node(&object(path)).unwrap());
    let error = |found: &Found<'_>, id| found.check_counts(id, &found.nodes[&id]).unwrap_err();
    let mut wrong = found();
    wrong.nodes.get_mut(&file).unwrap().metadata.nlink = 1;
    assert!(error(&wrong, file).to_string().contains("1 links, 2 names"));
    let mut wrong = found();
    wrong.nodes.get_mut(&dir).unwrap().metadata.size = 4;
    assert!(error(&wrong, dir).to_string().contains("a size of 4, not 2"));
    let mut wrong = found();
    let dir_of_two = wrong.nodes.get_mut(&dir).unwrap();
    dir_of_two.names.insert((ROOT_NODE, b"e".to_vec()));
    dir_of_two.metadata.nlink = 2;
    assert!(error(&wrong, dir).to_string().contains("a directory with names"));
}

#[test]
fn dropped_data_may_be_missing_if_an_error_was_reported() {
    let base = || Done::new().does(&[create("a"), write("a", 1), COMMIT, write("a", 2)]);
    let old = [create("a"), write("a", 1)];
    let new = [&old[..], &[write("a", 2)]].concat();
    let suspected = |told: bool| {
        let mut done = base();
        done.journal.suspect();
        if told {
            done.journal.told(done.model.node(&object("a")));
        }
        done
    };
    for untold in [suspected(false).syncs("a"), suspected(false).does(&[COMMIT]), base().syncs("a")]
    {
        untold.may_leave(&new);
        untold.may_not_leave(&old, "never was there");
    }
    for told in [suspected(true).syncs("a"), suspected(true).does(&[COMMIT])] {
        told.may_leave(&new);
        told.may_leave(&old);
        // Later writes may be combined with the content from before the dropped data.
        let told = told.does(&[write_at("a", 100, 100, 3)]).syncs("a");
        told.may_leave(&[&old[..], &[write_at("a", 100, 100, 3)]].concat());
        told.may_not_leave(&[&old[..], &[write_at("a", 100, 100, 4)]].concat(), "never was there");
    }
    // Settled data is not dropped.
    let mut settled = base().syncs("a");
    settled.journal.suspect();
    settled.journal.told(None);
    settled.may_not_leave(&old, "never was there");
}

#[test]
fn failed_operation_may_have_changed_content_but_not_names() {
    let done = Done::new().does(&[create("a"), write("a", 1), COMMIT]).fails(&write("a", 2));
    let old = [create("a"), write("a", 1)];
    done.may_leave(&old);
    done.may_leave(&[&old[..], &[write("a", 2)]].concat());
    done.may_not_leave(&[create("a"), write("a", 3)], "never was there");
    let done = Done::new().does(&[create("a"), COMMIT]).fails(&rename("a", "b"));
    done.may_leave(&[create("a")]);
    done.may_not_leave(&[create("b")], "never was");
}

#[test]
fn failed_change_need_not_be_logged() {
    let made = [create("a"), mkdir("dir")];
    let base = || Done::new().does(&[create("a"), COMMIT]);
    let later = |done: Done| done.syncs("a").does(&[link("a", "b"), mkdir("dir")]).syncs("dir");
    later(base().fails(&write("a", 1))).may_leave(&made);
    let written = [&made[..], &[write("a", 1)]].concat();
    later(base().does(&[write("a", 1)])).may_not_leave(&written, "several moments");
}

#[test]
fn without_logs_commits_alone_settle() {
    let mut done = Done::new().does(&[create("a"), COMMIT, create("b")]).syncs("b");
    done.may_not_leave(&[create("a")], "names");
    done.journal = done.journal.without_logs();
    done.may_leave(&[create("a")]);
    done.may_leave(&[create("a"), create("b")]);
    done.may_not_leave(&[], "[97]) is None");
}
