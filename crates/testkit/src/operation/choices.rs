//! Random choices among the objects of a filesystem, and of new names and attributes.

use crate::manifest::{Kind, Mode, Time};
use crate::model::Model;
use crate::random::Random;

use super::drivers::Drivers;
use super::names::NAME_MAX;
use super::{Algorithm, Object, Operation, join};

/// The number of handles.
const HANDLES: u64 = 4;

/// A function that draws an operation of one kind.
pub(super) type Draw = fn(&mut Choices) -> Operation;

/// The state that operations are drawn from.
pub(super) struct Choices {
    pub(super) random: Random,
    pub(super) node_size: u32,
    pub(super) model: Model,
    pub(super) names: Vec<Vec<u8>>,
    /// The chance to stop at each level when a directory is chosen is one in `depth`.
    pub(super) depth: u64,
    pub(super) large_xattrs: u64,
    /// Whether all names are from the pool, so that none is too long.
    pub(super) is_crowded: bool,
    /// The drivers that execute the operations.
    pub(super) drivers: Drivers,
    /// Whether the root is a subvolume, not only a directory.
    pub(super) is_root_subvolume: bool,
    /// Whether snapshots may be made of a subvolume with open files that have no name.
    pub(super) copies_deleted_files: bool,
    /// The algorithms that a defragmentation may compress with.
    pub(super) algorithms: &'static [Algorithm],
}

impl Choices {
    /// Draws a directory; those near the root are more likely.
    pub(super) fn dir(&mut self) -> Vec<u8> {
        let mut dir = Vec::new();
        while !self.random.one_in(self.depth) {
            let Some(child) = self.child(&dir, is_dir) else { break };
            dir = join(&dir, &child);
        }
        dir
    }

    /// Draws a name of a given kind in a directory, if there is one.
    pub(super) fn child(&mut self, dir: &[u8], is: fn(Kind) -> bool) -> Option<Vec<u8>> {
        let all = self.model.list(dir).into_iter().flatten();
        let fitting: Vec<_> = all.filter(|(_, kind)| is(*kind)).map(|(name, _)| name).collect();
        self.random.pick(&fitting).map(|name| name.to_vec())
    }

    pub(super) fn name(&mut self) -> Vec<u8> {
        match self.random.below(100) {
            _ if self.is_crowded => self.random.pick(&self.names).expect("there are some").clone(),
            0 => vec![b'n'; NAME_MAX + 1],
            1..40 => format!("{}", self.random.below(1000)).into(),
            _ => self.random.pick(&self.names).expect("there are some").clone(),
        }
    }

    /// Draws a path to create: usually in a directory, usually unused.
    pub(super) fn place(&mut self) -> Vec<u8> {
        let dir = match self.random.below(40) {
            0 => return Vec::new(),
            1 => self.some(|_| true),
            2 => join(&self.dir(), &self.name()),
            _ => self.dir(),
        };
        join(&dir, &self.name())
    }

    /// Draws a path of a given kind; sometimes, or if none is found, any path.
    pub(super) fn some(&mut self, is: fn(Kind) -> bool) -> Vec<u8> {
        if self.random.one_in(20) {
            return join(&self.dir(), &self.name());
        }
        for _ in 0..4 {
            let dir = self.dir();
            if let Some(name) = self.child(&dir, is) {
                return join(&dir, &name);
            }
        }
        self.place()
    }

    pub(super) fn handle(&mut self) -> u8 {
        u8::try_from(self.random.below(HANDLES)).expect("a few")
    }

    pub(super) fn object(&mut self, is: fn(Kind) -> bool) -> Object {
        match self.random.below(10) {
            0..3 => Object::Handle(self.handle()),
            3 => Object::Path(self.dir().into()),
            4 => Object::Path(self.some(|_| true).into()),
            _ => Object::Path(self.some(is).into()),
        }
    }

    pub(super) fn mode(&mut self) -> Mode {
        const USUAL: [u32; 5] = [0o644, 0o755, 0o2775, 0o6755, 0o1777];
        let any = u32::try_from(self.random.below(0o10000)).expect("twelve bits");
        Mode::new(if self.random.one_in(2) { any } else { USUAL[self.random.index(5)] })
    }

    /// Draws a time: usually within a few centuries of 1970, sometimes any.
    pub(super) fn time(&mut self) -> Time {
        let shift = if self.random.one_in(4) { 0 } else { 30 };
        let seconds = self.random.number().cast_signed() >> shift;
        let nanoseconds = u32::try_from(self.random.below(1_000_000_000)).expect("below a second");
        Time { seconds, nanoseconds }
    }

    /// Draws a user or group. The highest number means none.
    pub(super) fn id(&mut self) -> u32 {
        let highest = u64::from(u32::MAX);
        let number = match self.random.below(4) {
            0 => 0,
            1 => highest - 1,
            _ => self.random.length(30).min(highest - 1),
        };
        u32::try_from(number).expect("32 bits")
    }

    pub(super) fn maybe<T>(&mut self, some: fn(&mut Self) -> T) -> Option<T> {
        self.random.one_in(3).then(|| some(self))
    }
}

pub(super) fn is_dir(kind: Kind) -> bool {
    kind == Kind::Dir
}

pub(super) fn is_no_dir(kind: Kind) -> bool {
    kind != Kind::Dir
}

pub(super) fn is_file(kind: Kind) -> bool {
    kind == Kind::File
}
