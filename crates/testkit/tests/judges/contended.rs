//! Directories in which many threads do everything concurrently.
//!
//! 1. In the arena any thread creates, links, replaces, moves, exchanges, changes and removes
//!    entries, at a few names in a few directories that move, too. Each inode found there was
//!    created by a thread, has as many names as links and lists exactly those, and has content
//!    written by threads. The number of names is the number created minus the number removed or
//!    replaced.
//! 2. Tokens are only moved and exchanged: at the end each of them exists, once, with its original
//!    content.
//! 3. An operation that loses a race fails with an errno of [`LATE`], and with no other.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use userbtrfs::{
    Attributes, Dir, Error, FileKind, Filesystem, Inode, InodeId, RenameMode, Result, XattrMode,
};
use userbtrfs_testkit::engine_target::errno;
use userbtrfs_testkit::pattern;
use userbtrfs_testkit::random::Random;

/// The directory of the tokens, and the arena.
const TOKENS: &str = "tokens";
const ARENA: &str = "arena";
/// The number of directories in each, and of names in a directory.
const DIRS: u64 = 3;
const NAMES: u64 = 6;
/// The initial number of tokens per directory; every third is a directory with a file in it.
const HELD: u64 = 4;
/// The maximum size of a file, in bytes.
const SIZE_MAX: u64 = 12_000;
/// The xattr with the thread that created the inode.
const MAKER: &[u8] = b"user.maker";
/// Errors that an operation may get because of other threads.
const LATE: &[Errno] = &[
    Errno::NOENT,
    Errno::EXIST,
    Errno::NOTEMPTY,
    Errno::ISDIR,
    Errno::NOTDIR,
    // A directory would move into itself.
    Errno::INVAL,
    // A hard link to a directory.
    Errno::PERM,
];

/// Numbers of names created, removed, and possibly replaced.
#[derive(Default)]
struct Counts {
    made: AtomicU64,
    removed: AtomicU64,
    replacing: AtomicU64,
}

/// The state shared by all threads.
pub(crate) struct Contended {
    tokens: Vec<Dir>,
    arena: Vec<Dir>,
    /// The initial tokens with their contents.
    made: BTreeMap<InodeId, Vec<u8>>,
    counts: Counts,
    threads: u8,
}

impl Contended {
    pub(crate) fn new(filesystem: &Filesystem, threads: u8) -> Self {
        let dirs = |name: &str| -> Vec<Dir> {
            let above = filesystem.root().create_dir(name.as_bytes(), 0o755).unwrap();
            let one = |number| above.create_dir(&name_of(number), 0o755).unwrap();
            (0..DIRS).map(one).collect()
        };
        let tokens = dirs(TOKENS);
        let arena = dirs(ARENA);
        for (dir, number) in tokens.iter().flat_map(|dir| (0..HELD).map(move |name| (dir, name))) {
            let name = name_of(number);
            let file = match number % 3 {
                0 => dir.create_dir(&name, 0o755).and_then(|dir| dir.create(b"in it", 0o644)),
                _ => dir.create(&name, 0o644),
            };
            file.unwrap().write_content(&pattern::bytes(1, number, 3000)).unwrap();
        }
        let made = found(&tokens);
        let counts = Counts::default();
        Self { tokens, arena, made, counts, threads }
    }

    /// Makes one change in the arena and one to a token.
    pub(crate) fn step(&self, random: &mut Random, thread: u8) {
        for done in [self.contend(random, thread), self.move_token(random)] {
            if let Err(error) = done {
                assert!(LATE.contains(&errno(&error)), "thread {thread}: {error}");
            }
        }
    }

    fn move_token(&self, random: &mut Random) -> Result<()> {
        let [from, to] = [(); 2].map(|()| self.tokens[index(random.below(DIRS))].clone());
        let [old, new] = [(); 2].map(|()| name_of(random.below(NAMES)));
        let mode = if random.one_in(2) { RenameMode::Exchange } else { RenameMode::NoReplace };
        from.rename(&old, &to, &new, mode)
    }

    /// Returns a random directory and name, in the arena or below it.
    fn place(&self, random: &mut Random) -> (Dir, Vec<u8>) {
        let mut dir = self.arena[index(random.below(DIRS))].clone();
        while random.one_in(3) {
            let below = dir.lookup(&name_of(random.below(NAMES))).and_then(|dir| dir.open_dir());
            let Ok(below) = below else { break };
            dir = below;
        }
        (dir, name_of(random.below(NAMES)))
    }

    fn contend(&self, random: &mut Random, thread: u8) -> Result<()> {
        let (dir, name) = self.place(random);
        let (to, new) = self.place(random);
        let Counts { made, removed, replacing } = &self.counts;
        let add = |count: &AtomicU64| count.fetch_add(1, Ordering::Relaxed);
        match random.below(16) {
            0..3 => {
                let inode = dir.create(&name, 0o600)?;
                add(made);
                mark(&inode, thread)?;
            }
            3..5 => {
                let below = dir.create_dir(&name, 0o700)?;
                add(made);
                mark(below.inode(), thread)?;
            }
            5 => {
                to.link(&new, &dir.lookup(&name)?)?;
                add(made);
            }
            6 => {
                dir.remove_file(&name)?;
                add(removed);
            }
            7 => {
                dir.remove_dir(&name)?;
                add(removed);
            }
            8..10 => {
                dir.rename(&name, &to, &new, RenameMode::Replace)?;
                add(replacing);
            }
            10 => dir.rename(&name, &to, &new, RenameMode::NoReplace)?,
            11..13 => dir.rename(&name, &to, &new, RenameMode::Exchange)?,
            13 => {
                let mode = Some(if random.one_in(2) { 0o640 } else { 0o755 });
                let attributes = Attributes { mode, ..Attributes::default() };
                dir.lookup(&name)?.set_attributes(&attributes)?;
            }
            14 => {
                let value = random.length(8);
                let value = vec![thread; index(value)];
                dir.lookup(&name)?.set_xattr(b"user.value", &value, XattrMode::Either)?;
            }
            _ => {
                let offset = random.below(SIZE_MAX / 2);
                let length = index(random.below(SIZE_MAX / 2));
                let bytes = pattern::bytes(seed_of(thread), offset, length);
                dir.lookup(&name)?.open()?.write_at(&bytes, offset)?;
            }
        }
        Ok(())
    }

    /// Checks the state while no thread changes anything.
    pub(crate) fn judge(&self, what: &str) {
        assert!(found(&self.tokens) == self.made, "{what}: tokens are lost, or changed");
        let mut names: BTreeMap<InodeId, Vec<(InodeId, Vec<u8>)>> = BTreeMap::new();
        let mut inodes = BTreeMap::new();
        for dir in &self.arena {
            each_below(dir, &mut |dir, name, inode| {
                names.entry(inode.id()).or_default().push((dir.inode().id(), name.to_vec()));
                inodes.insert(inode.id(), inode);
            });
        }
        for (id, inode) in &inodes {
            self.judge_inode(&format!("{what}, {id:?}"), inode, &mut names[id].clone());
        }
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let most = count(&self.counts.made) - count(&self.counts.removed);
        let least = most.saturating_sub(count(&self.counts.replacing));
        let there = names.values().map(Vec::len).sum::<usize>() as u64;
        assert!((least..=most).contains(&there), "{what}: {there} names, not {least} to {most}");
    }

    fn judge_inode(&self, what: &str, inode: &Inode, names: &mut [(InodeId, Vec<u8>)]) {
        let metadata = inode.metadata().unwrap();
        let maker = inode.xattr(MAKER).unwrap_or_else(|error| panic!("{what}: maker: {error}"));
        assert!(matches!(maker[..], [maker] if maker < self.threads), "{what}: made by {maker:?}");
        assert!(
            [0o600, 0o700, 0o640, 0o755].contains(&(metadata.mode & 0o7777)),
            "{what}: {metadata:?}"
        );
        assert_eq!(metadata.nlink as usize, names.len(), "{what}: links, {names:?}");
        let known = inode.names().unwrap().into_iter();
        let mut known: Vec<_> = known.map(|(dir, name)| (dir.id(), name)).collect();
        known.sort();
        names.sort();
        assert_eq!(known, names, "{what}: names that it knows, and that know it");
        if metadata.kind == FileKind::Regular {
            let content = inode.open().unwrap().read_all().unwrap();
            super::writers::assert_known(&content, 0, self.threads.into());
        }
    }
}

fn name_of(number: u64) -> Vec<u8> {
    format!("name-{number}").into_bytes()
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap()
}

/// Returns the seed of the data that a thread writes.
fn seed_of(thread: u8) -> u32 {
    u32::from(thread) + 1
}

/// Sets the xattr of the creating thread; fails if the inode is already removed.
fn mark(inode: &Inode, thread: u8) -> Result<()> {
    inode.set_xattr(MAKER, &[thread], XattrMode::Either)
}

/// Returns all inodes in these directories, which have one name each, with their contents.
fn found(dirs: &[Dir]) -> BTreeMap<InodeId, Vec<u8>> {
    let mut found = BTreeMap::new();
    for dir in dirs {
        each_below(dir, &mut |_, name, inode| {
            let content = match inode.open() {
                Err(Error::IsADirectory) => Vec::new(),
                file => file.unwrap().read_all().unwrap(),
            };
            let before = found.insert(inode.id(), content);
            assert!(before.is_none(), "twice: {}", String::from_utf8_lossy(name));
        });
    }
    found
}

/// Calls `each` with directory, name and inode of everything below a directory.
fn each_below(dir: &Dir, each: &mut impl FnMut(&Dir, &[u8], Inode)) {
    let mut names = Vec::new();
    for entry in dir.entries() {
        let entry = entry.unwrap();
        let inode = dir.follow(&entry).unwrap();
        names.push(entry.name().to_vec());
        if let Ok(below) = inode.open_dir() {
            each_below(&below, each);
        }
        each(dir, entry.name(), inode);
    }
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count, "a name is there twice");
}
