//! Random operations.
//!
//! 1. A stream only depends on its seed and node size. It knows the state from the model, so most
//!    operations succeed; the others fail, for every possible reason.
//! 2. Each seed leaves out some kinds of operations, so that others occur in long runs, and has its
//!    own names, depth of the tree and number of inodes.
//! 3. Names of large xattrs are never reused: whether Linux can replace one, or add one with the
//!    same hash as another, depends on the other items of the leaf.

use crate::manifest::{Bytes, Kind};
use crate::model::Model;
use crate::random::Random;

use super::choices::{Choices, Draw, is_dir, is_file, is_no_dir};
use super::{
    Algorithm, Attributes, Operation, RenameKind, XattrKind, data, join, names, resizing,
    subvolumes,
};

pub use super::drivers::Drivers;

/// The kinds that are always drawn, with their weights; without them nothing could be changed.
const ALWAYS: &[(u64, Draw)] = &[(10, create), (6, mkdir), (8, unlink), (3, rmdir)];
/// The kinds that a seed may leave out, with their weights.
const SOMETIMES: &[(u64, Draw)] = &[
    (3, mknod),
    (4, symlink),
    (8, link),
    (8, rename),
    (8, rename_specially),
    (3, tmpfile),
    (4, open),
    (3, close),
    (8, setattr),
    (3, set_flags),
    (5, data::truncate),
    (12, data::write),
    (4, data::append),
    (2, data::replace),
    (6, data::allocate),
    (6, data::clone),
    (3, data::dedupe),
    (4, data::defragment),
    (6, data::read),
    (1, data::sync),
    (8, set_xattr),
    (4, remove_xattr),
];

/// The maximum length of the value of a small xattr, in bytes.
const SMALL_XATTR_MAX: u64 = 200;
/// The average number of operations per commit without [`Generator::commit_every`].
const COMMIT_EVERY: u64 = 100;
/// The average number of commits per reopening.
const COMMITS_PER_REOPEN: u64 = 8;

/// An infinite stream of operations.
pub struct Generator {
    choices: Choices,
    kinds: Vec<(u64, Draw)>,
    /// Above this number of inodes, about every second operation removes or closes something.
    inodes_max: usize,
    commit_every: u64,
}

impl Generator {
    /// Creates the stream of this seed, for an empty filesystem with this node size in bytes.
    pub fn new(seed: u64, node_size: u32) -> Self {
        let mut random = Random::new(seed);
        let sometimes = SOMETIMES.iter().filter(|_| !random.one_in(4));
        let kinds = ALWAYS.iter().chain(sometimes).copied().collect();
        let names = names::pool(&mut random);
        let depth = [2, 2, 3, 20][random.index(4)];
        let inodes_max = [20, 100, 1000][random.index(3)];
        let choices = Choices {
            random,
            node_size,
            model: Model::new(node_size),
            names,
            depth,
            large_xattrs: 0,
            is_crowded: false,
            drivers: Drivers::Ours,
            is_root_subvolume: true,
            copies_deleted_files: true,
            algorithms: &[],
        };
        Self { choices, kinds, inodes_max, commit_every: COMMIT_EVERY }
    }

    /// Sets the average number of operations per commit, and per reopening to eight times that; 0
    /// for no commits and reopenings. The default is 100.
    #[must_use]
    pub fn commit_every(self, operations: u64) -> Self {
        Self { commit_every: operations, ..self }
    }

    /// Restricts the stream to operations that a FUSE mount executes as the kernel's btrfs does: no
    /// clone and no dedupe, and no defragmentation, of which it does not know the data and the size
    /// that only the kernel has.
    #[must_use]
    pub fn for_fuse(mut self) -> Self {
        let is_offered = |(_, draw): &(u64, Draw)| {
            let others: [Draw; 3] = [data::clone, data::dedupe, data::defragment];
            !others.iter().any(|it| std::ptr::fn_addr_eq(*it, *draw))
        };
        self.kinds.retain(is_offered);
        self
    }

    /// Sets the state of the filesystem to that of this model.
    #[must_use]
    pub fn on(self, model: Model) -> Self {
        Self { choices: Choices { model, ..self.choices }, ..self }
    }

    /// Restricts the stream to few inodes and few names, which are used again and again.
    #[must_use]
    pub fn crowded(mut self) -> Self {
        let choices = &mut self.choices;
        let count = 3 + choices.random.index(4);
        choices.names.truncate(count);
        if choices.random.one_in(4) {
            // So long that the names of an inode need more than one item.
            choices.names = (0..24).map(|number| format!("{number:n>240}").into_bytes()).collect();
        }
        choices.depth = 2;
        choices.is_crowded = true;
        // These kinds may be in the list twice, with different weights.
        self.kinds.extend([(8, rename as Draw), (4, rename_specially), (6, link), (4, unlink)]);
        Self { inodes_max: 14, ..self }
    }

    /// Adds subvolumes and snapshots, for these drivers. The filesystem is empty again.
    #[must_use]
    pub fn with_subvolumes(mut self, drivers: Drivers) -> Self {
        self.kinds.extend(subvolumes::KINDS);
        self.choices.drivers = drivers;
        self
    }

    /// Makes the root an ordinary directory: it has no snapshots, and never is read-only.
    #[must_use]
    pub fn below_directory(mut self) -> Self {
        self.choices.is_root_subvolume = false;
        self
    }

    /// Leaves out snapshots of a subvolume with open files that have no name. A snapshot copies
    /// these, and removes them in the next transaction; `btrfs check` (6.2) takes the image of a
    /// crash in between for damaged, since two trees share the leaf that has such a file.
    #[must_use]
    pub fn without_copies_of_deleted_files(mut self) -> Self {
        self.choices.copies_deleted_files = false;
        self
    }

    /// Lets defragmentations compress. That sets the flag NOCOMPRESS of a file that does not become
    /// smaller, as on Linux, which the model does not know.
    #[must_use]
    pub fn with_compression(mut self) -> Self {
        self.choices.algorithms = &[Algorithm::Zlib, Algorithm::Lzo, Algorithm::Zstd];
        self
    }

    /// Adds resizes. The filesystem takes all of a device of this size in bytes; half of it must be
    /// enough for all that is stored.
    #[must_use]
    pub fn with_resizing(mut self, device: u64) -> Self {
        self.kinds.extend(resizing::KINDS);
        let model = self.choices.model.on_device(device);
        Self { choices: Choices { model, ..self.choices }, ..self }
    }

    /// Returns the state after all operations drawn so far.
    pub fn model(&self) -> &Model {
        &self.choices.model
    }

    fn draw(&mut self) -> Operation {
        let choices = &mut self.choices;
        if self.commit_every > 0 && choices.random.one_in(self.commit_every) {
            let reopens = choices.random.one_in(COMMITS_PER_REOPEN);
            return if reopens { Operation::Reopen } else { Operation::Commit };
        }
        if choices.model.inodes() > self.inodes_max && choices.random.one_in(2) {
            let removals: [Draw; 3] = [unlink, rmdir, close];
            return removals[choices.random.index(3)](choices);
        }
        let mut left = choices.random.below(self.kinds.iter().map(|(weight, _)| weight).sum());
        let chosen = self.kinds.iter().find(|(weight, _)| match left.checked_sub(*weight) {
            Some(rest) => {
                left = rest;
                false
            }
            None => true,
        });
        chosen.expect("a number below the sum of the weights").1(choices)
    }
}

impl Iterator for Generator {
    type Item = Operation;

    fn next(&mut self) -> Option<Operation> {
        let mut operation = self.draw();
        while self.choices.avoids(&operation) {
            operation = self.draw();
        }
        // The operation may fail; in both cases the model is the expected state.
        let _ = self.choices.model.apply(&operation);
        Some(operation)
    }
}

fn create(g: &mut Choices) -> Operation {
    Operation::Create { path: g.place().into(), mode: g.mode() }
}

fn mkdir(g: &mut Choices) -> Operation {
    Operation::Mkdir { path: g.place().into(), mode: g.mode() }
}

fn mknod(g: &mut Choices) -> Operation {
    const KINDS: [Kind; 5] = [Kind::File, Kind::Block, Kind::Char, Kind::Fifo, Kind::Socket];
    let [major, minor] = [12, 20].map(|bits| {
        let highest = (1 << bits) - 1;
        let number = if g.random.one_in(4) { highest } else { g.random.below(highest) };
        u32::try_from(number).expect("twenty bits")
    });
    let kind = KINDS[g.random.index(KINDS.len())];
    Operation::Mknod { path: g.place().into(), kind, mode: g.mode(), rdev: (major, minor) }
}

/// Draws a target of any length, including empty ones and one byte too long.
fn symlink(g: &mut Choices) -> Operation {
    let longest = Model::symlink_max(g.node_size);
    let length = match g.random.below(20) {
        0 => 0,
        1 => longest,
        2 => longest + 1,
        3 => 5000,
        _ => 1 + g.random.index(longest).min(g.random.index(longest)),
    };
    let letters = g.random.bytes(length as u64).into_iter().map(|byte| byte.max(1));
    let target: Vec<u8> = letters.collect();
    Operation::Symlink { path: g.place().into(), target: target.into() }
}

fn link(g: &mut Choices) -> Operation {
    Operation::Link { from: g.object(is_no_dir), to: g.place().into() }
}

fn unlink(g: &mut Choices) -> Operation {
    Operation::Unlink { path: g.some(is_no_dir).into() }
}

fn rmdir(g: &mut Choices) -> Operation {
    Operation::Rmdir { path: g.some(is_dir).into() }
}

/// Draws a rename to a new name, or over an existing one, usually of the same kind.
fn rename(g: &mut Choices) -> Operation {
    let is: fn(Kind) -> bool = if g.random.one_in(2) { is_dir } else { is_no_dir };
    let from = g.some(is);
    let to = match g.random.below(8) {
        0 => sibling(g, &from),
        1 => g.some(|_| true),
        2..4 => g.some(is),
        _ => g.place(),
    };
    Operation::Rename { from: from.into(), to: to.into(), kind: RenameKind::Plain }
}

/// Draws a path at, above, next to or below another.
fn sibling(g: &mut Choices, path: &[u8]) -> Vec<u8> {
    let above = super::split(path).unwrap_or_default().0;
    match g.random.below(4) {
        0 => above.to_vec(),
        1 => path.to_vec(),
        2 => join(path, &g.name()),
        _ => join(above, &g.name()),
    }
}

fn rename_specially(g: &mut Choices) -> Operation {
    const KINDS: [RenameKind; 4] = [
        RenameKind::NoReplace,
        RenameKind::Exchange,
        RenameKind::Whiteout,
        RenameKind::WhiteoutNoReplace,
    ];
    let kind = KINDS[g.random.index(KINDS.len())];
    let from = g.some(|_| true);
    let to = match g.random.below(6) {
        0 => sibling(g, &from),
        1..4 if kind == RenameKind::Exchange => g.some(|_| true),
        _ => g.place(),
    };
    Operation::Rename { from: from.into(), to: to.into(), kind }
}

fn tmpfile(g: &mut Choices) -> Operation {
    let dir = if g.random.one_in(8) { g.some(|_| true) } else { g.dir() };
    Operation::Tmpfile { dir: dir.into(), handle: g.handle(), mode: g.mode() }
}

fn open(g: &mut Choices) -> Operation {
    let path = if g.random.one_in(4) { g.some(|_| true) } else { g.some(is_file) };
    Operation::Open { path: path.into(), handle: g.handle() }
}

fn close(g: &mut Choices) -> Operation {
    Operation::Close { handle: g.handle() }
}

fn setattr(g: &mut Choices) -> Operation {
    let attributes = Attributes {
        mode: g.maybe(Choices::mode),
        uid: g.maybe(Choices::id),
        gid: g.maybe(Choices::id),
        atime: g.maybe(Choices::time),
        mtime: g.maybe(Choices::time),
    };
    Operation::Setattr { object: g.object(|_| true), attributes }
}

fn set_flags(g: &mut Choices) -> Operation {
    let mut flags = 0;
    for flag in [0x8, 0x40, 0x80, 0x1_0000, 0x80_0000] {
        flags |= if g.random.one_in(2) { flag } else { 0 };
    }
    Operation::SetFlags { object: g.object(is_file), flags }
}

fn set_xattr(g: &mut Choices) -> Operation {
    let object = g.object(|_| true);
    let (name, value) = if g.random.one_in(8) { large_xattr(g) } else { small_xattr(g) };
    let kind = match g.random.below(4) {
        0 => XattrKind::Create,
        1 => XattrKind::Replace,
        _ => XattrKind::Any,
    };
    Operation::SetXattr { object, name: name.into(), value: value.into(), kind }
}

fn small_xattr(g: &mut Choices) -> (Vec<u8>, Vec<u8>) {
    let length = if g.random.one_in(8) { 0 } else { g.random.below(SMALL_XATTR_MAX) };
    (names::xattr(&mut g.random), g.random.bytes(length))
}

/// Draws an xattr of up to the maximum size, or larger.
fn large_xattr(g: &mut Choices) -> (Vec<u8>, Vec<u8>) {
    g.large_xattrs += 1;
    let name = format!("trusted.large{}", g.large_xattrs).into_bytes();
    let longest = Model::xattr_max(g.node_size) - name.len();
    let length = match g.random.below(8) {
        0 => longest,
        1 => longest + 1,
        2 => 70_000,
        _ => g.random.index(longest),
    };
    (name, g.random.bytes(length as u64))
}

/// Draws the removal of an xattr that usually exists.
fn remove_xattr(g: &mut Choices) -> Operation {
    let object = g.object(|_| true);
    let there: Vec<Bytes> = g.model.xattrs(&object).into_iter().flatten().cloned().collect();
    let name = match g.random.pick(&there) {
        Some(name) if !g.random.clone().one_in(8) => name.clone(),
        _ => names::xattr(&mut g.random).into(),
    };
    Operation::RemoveXattr { object, name }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};
    use std::mem::discriminant;

    use super::*;

    const DEVICE: u64 = 1 << 30;

    #[test]
    fn a_seed_decides_everything() {
        let draw = |seed| Generator::new(seed, 4096).take(300).collect::<Vec<_>>();
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn every_kind_succeeds_and_fails_somewhere() {
        let mut ends: HashMap<_, HashSet<bool>> = HashMap::new();
        let mut errors = HashSet::new();
        for seed in 0..20 {
            let mut model = Model::new(4096).on_device(DEVICE);
            let generator = Generator::new(seed, 4096).with_subvolumes(Drivers::Linux);
            for operation in generator.with_resizing(DEVICE).take(2000) {
                let end = model.apply(&operation);
                ends.entry(discriminant(&operation)).or_default().insert(end.is_ok());
                errors.extend(end.err());
            }
        }
        assert_eq!(ends.len(), 32, "all kinds");
        // Commits and reopenings do not fail.
        assert_eq!(ends.values().filter(|ends| ends.len() == 2).count(), 30, "{ends:?}");
        assert!(errors.len() >= 15, "{errors:?}");
    }

    #[test]
    fn resizes_go_up_and_down_and_are_sometimes_refused() {
        let mut model = Model::new(4096).on_device(DEVICE);
        let mut sizes = Vec::new();
        let mut refused = 0;
        for operation in Generator::new(1, 4096).with_resizing(DEVICE).take(8000) {
            let end = model.apply(&operation);
            match operation {
                Operation::Resize { .. } if end.is_ok() => sizes.push(model.size().unwrap()),
                Operation::Resize { .. } => refused += 1,
                _ => {}
            }
        }
        let shrinks = sizes.windows(2).filter(|pair| pair[1] < pair[0]).count();
        let grows = sizes.windows(2).filter(|pair| pair[1] > pair[0]).count();
        assert!(refused >= 10 && shrinks >= 20 && grows >= 20, "{refused}, {shrinks}, {grows}");
        assert!(sizes.iter().all(|size| (DEVICE / 2..=DEVICE).contains(size)), "{sizes:?}");
    }

    #[test]
    fn commits_have_the_requested_frequency() {
        let count = |every| {
            let operations = Generator::new(3, 4096).commit_every(every).take(4000);
            let commits = operations.filter(|one| *one == Operation::Commit);
            commits.count()
        };
        assert_eq!(count(0), 0);
        assert!((250..500).contains(&count(10)), "{}", count(10));
    }

    #[test]
    fn a_long_stream_keeps_the_tree_within_bounds() {
        for seed in 0..8 {
            let mut generator = Generator::new(seed, 4096).with_subvolumes(Drivers::Linux);
            generator.by_ref().take(20_000).for_each(drop);
            assert!(generator.model().inodes() < 3000, "{}", generator.model().inodes());
        }
    }
}
