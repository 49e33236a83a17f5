//! A file with hole items, preallocation past the end, and small holes and extents that often meet;
//! we and Linux take turns, and each replays the log of either.
//!
//! 1. After each commit and each replay, every byte below the size, rounded up to a sector, has
//!    exactly one item. Past the end there are only preallocated extents and, if Linux wrote, the
//!    holes before them.
//! 2. The total size of the items matches the nbytes of the inode.
//! 3. Linux 6.18 loses the size of such a file if it is extended over space that was preallocated
//!    past its end before the mount; so such space is freed at the start of a turn of Linux.

use std::fmt;
use std::path::Path;

use userbtrfs::mkfs::Options;
use userbtrfs::{Filesystem, OpenOptions, TreeId};
use userbtrfs_format::{FileExtent, FileExtentKind, InodeItem, ItemKind, Key, SECTOR};
use userbtrfs_sync::Arc;
use userbtrfs_testkit::devices::{SparseDevice, SparseImage};
use userbtrfs_testkit::engine_target::EngineTarget;
use userbtrfs_testkit::linux::Linux;
use userbtrfs_testkit::manifest::Mode;
use userbtrfs_testkit::model::Model;
use userbtrfs_testkit::operation::{AllocateKind, Object, Operation};
use userbtrfs_testkit::random::Random;
use userbtrfs_testkit::skip_unless_linux;
use userbtrfs_testkit::target::{self, LinuxTarget, Target};

use super::made::{MIB, Made, check_file};
use super::ours::assert_holds;
use super::{is_torture, open_device, seed};

const NAME: &str = "file";
const OTHER: &str = "other";
/// The maximum size of the file, in sectors.
const SECTORS: u64 = 24;
/// The number of steps of a sequence.
const STEPS: usize = 120;

/// A step.
#[derive(Clone, Debug)]
enum Step {
    Do(Operation),
    /// Changes and syncs another file: without a log that commits this file, too, but not its dirty
    /// data.
    SyncOther,
    /// The next steps are executed by the other side.
    Turn,
    /// Syncs the file, and loses everything after that.
    Cut {
        /// Whether the other side replays the log.
        turn: bool,
    },
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Do(operation) => operation.fmt(f),
            other => write!(f, "{other:?}"),
        }
    }
}

impl Step {
    fn draw(random: &mut Random) -> Self {
        match random.below(100) {
            0..3 => Self::Turn,
            3..9 => Self::SyncOther,
            9..14 => Self::Cut { turn: random.one_in(8) },
            _ => Self::Do(draw_operation(random)),
        }
    }

    fn simpler(&self) -> Vec<Self> {
        match self {
            Self::Do(operation) => operation.simpler().into_iter().map(Self::Do).collect(),
            Self::Cut { turn: true } => vec![Self::Cut { turn: false }],
            _ => Vec::new(),
        }
    }
}

fn file() -> Object {
    Object::Path(NAME.into())
}

fn draw_operation(random: &mut Random) -> Operation {
    const KINDS: [AllocateKind; 7] = [
        AllocateKind::Reserve,
        AllocateKind::ReserveKeepSize,
        AllocateKind::ReserveKeepSize,
        AllocateKind::ReserveKeepSize,
        AllocateKind::Punch,
        AllocateKind::Zero,
        AllocateKind::ZeroKeepSize,
    ];
    let object = file();
    let offset = place(random);
    let length = place(random).max(1);
    let seed = u32::try_from(1 + random.below(1 << 31)).unwrap();
    match random.below(20) {
        0..6 => Operation::Truncate { object, size: offset },
        6..9 => Operation::Write { object, offset, length, seed },
        9 => Operation::Append { object, length: 1 + random.below(SECTOR), seed },
        10..17 => {
            let kind = KINDS[random.index(KINDS.len())];
            Operation::Allocate { object, offset, length, kind }
        }
        17..19 => Operation::Sync { object },
        _ => Operation::Commit,
    }
}

/// Draws an offset: usually that of a sector, low ones more often.
fn place(random: &mut Random) -> u64 {
    let sectors = 1 + random.below(SECTORS);
    let sector = SECTOR * random.below(sectors);
    match random.below(4) {
        0 => sector + random.below(SECTOR),
        _ => sector,
    }
}

/// The side that has the filesystem open.
enum Side<'a> {
    Ours(Box<EngineTarget>, Arc<SparseDevice>),
    Linux(LinuxTarget<'a>),
}

impl<'a> Side<'a> {
    fn ours(image: &SparseImage, has_log: bool) -> Self {
        let device = Arc::new(image.to_device());
        let options = OpenOptions::new().tree_log(has_log).clone();
        let target = EngineTarget::with_options(device.clone(), &options).unwrap();
        Self::Ours(Box::new(target), device)
    }

    fn linux(image: &SparseImage, linux: &'a Linux, place: &Path) -> Self {
        image.write_to(place).unwrap();
        Self::Linux(LinuxTarget::new(linux, place).unwrap())
    }

    fn is_ours(&self) -> bool {
        matches!(self, Self::Ours(..))
    }

    fn target(&mut self) -> &mut dyn Target {
        match self {
            Self::Ours(target, _) => &mut **target,
            Self::Linux(target) => target,
        }
    }

    /// Returns the image after a clean close.
    fn close(self, place: &Path) -> SparseImage {
        match self {
            Self::Ours(target, device) => {
                target.close().unwrap();
                device.image()
            }
            Self::Linux(target) => {
                drop(target);
                SparseImage::from_file(place).unwrap()
            }
        }
    }

    /// Returns the image after a crash.
    fn cut(self, place: &Path) -> SparseImage {
        match self {
            Self::Ours(target, device) => {
                let image = device.image();
                target.abandon();
                image
            }
            Self::Linux(target) => {
                let image = SparseImage::from_file(place).unwrap();
                drop(target);
                image
            }
        }
    }
}

/// Panics if the items of the file are invalid.
fn assert_layout(filesystem: &Filesystem) {
    let Ok(found) = filesystem.symlink_metadata(format!("/{NAME}")) else { return };
    let number = found.id.number;
    let mut inode = None;
    let mut items = Vec::new();
    let first = Key::new(number, ItemKind::INODE_ITEM, 0);
    let show = |key: &Key, _, data: &[u8]| {
        match key.kind {
            _ if key.objectid != number => return false,
            ItemKind::INODE_ITEM => inode = Some(InodeItem::parse(data).unwrap()),
            ItemKind::EXTENT_DATA => {
                let extent = FileExtent::parse(key.offset, data).unwrap();
                let is_inline = matches!(extent.kind, FileExtentKind::Inline(_));
                let is_hole = matches!(extent.kind, FileExtentKind::Hole(_));
                let is_space = matches!(extent.kind, FileExtentKind::Prealloc(_));
                let bytes = extent.file_bytes();
                let whole = extent.file_bytes().max(1);
                let end =
                    key.offset + if is_inline { whole.next_multiple_of(SECTOR) } else { bytes };
                items.push((key.offset..end, if is_hole { 0 } else { bytes }, is_hole || is_space));
            }
            _ => {}
        }
        true
    };
    filesystem.show_items(TreeId::FS, &first, show).unwrap();
    let inode = inode.expect("it has an inode");
    let end = inode.size.next_multiple_of(SECTOR);
    let mut at = 0;
    for (range, _, may_be_behind) in &items {
        assert!(range.start >= at, "items overlap at {at}: {items:?}");
        assert!(range.start == at || at >= end, "nothing is at {at} of {end}: {items:?}");
        assert!(*may_be_behind || range.end <= end, "data is behind the end, {end}: {items:?}");
        at = range.end;
    }
    assert!(at >= end, "nothing is at {at} of {end}: {items:?}");
    let bytes: u64 = items.iter().map(|(_, bytes, _)| bytes).sum();
    assert_eq!(inode.nbytes, bytes, "{items:?}");
}

/// Checks an image that was closed, or is replayed in memory.
fn judge(image: &SparseImage) {
    assert_layout(&open_device(Arc::new(image.to_device())).unwrap());
}

fn run(linux: &Linux, image: &SparseImage, has_log: bool, steps: &[Step]) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("image");
    let mut turns = Turns::new(linux, image, &place, has_log)?;
    for (index, step) in steps.iter().enumerate() {
        turns.step(step).map_err(|error| format!("step {index}: {error}"))?;
    }
    turns.end()
}

/// The execution of a sequence.
struct Turns<'a> {
    linux: &'a Linux,
    place: &'a Path,
    /// Whether our side logs.
    has_log: bool,
    model: Model,
    /// `None` only during a change of sides.
    side: Option<Side<'a>>,
}

impl<'a> Turns<'a> {
    fn new(
        linux: &'a Linux,
        image: &SparseImage,
        place: &'a Path,
        has_log: bool,
    ) -> Result<Self, String> {
        let side = Some(Side::ours(image, has_log));
        let mut turns = Self { linux, place, has_log, model: Model::new(4096), side };
        for name in [NAME, OTHER] {
            turns.apply(&Operation::Create { path: name.into(), mode: Mode::new(0o600) })?;
        }
        turns.apply(&Operation::Commit)?;
        Ok(turns)
    }

    fn side(&mut self) -> &mut Side<'a> {
        self.side.as_mut().expect("it does not change")
    }

    fn apply(&mut self, operation: &Operation) -> Result<(), String> {
        let Self { side, model, .. } = self;
        let target = side.as_mut().expect("it does not change").target();
        target::step(target, model, operation, 0).map_err(|error| error.to_string())
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Do(operation) => self.apply(operation)?,
            Step::SyncOther => {
                let object = Object::Path(OTHER.into());
                let write =
                    Operation::Write { object: object.clone(), offset: 0, length: 1, seed: 1 };
                self.apply(&write)?;
                self.apply(&Operation::Sync { object })?;
            }
            Step::Turn => {
                let side = self.side.take().expect("it does not change");
                let next = !side.is_ours();
                self.go_on(&side.close(self.place), next)?;
            }
            Step::Cut { turn } => {
                self.apply(&Operation::Sync { object: file() })?;
                let side = self.side.take().expect("it does not change");
                let next = side.is_ours() != *turn;
                self.go_on(&side.cut(self.place), next)?;
            }
        }
        if let Side::Ours(_, device) = self.side()
            && !matches!(step, Step::Do(operation) if *operation != Operation::Commit)
        {
            judge(&device.image());
        }
        self.apply(&Operation::Read { object: file(), offset: 0, length: 2 * SECTORS * SECTOR })
    }

    fn go_on(&mut self, image: &SparseImage, is_ours: bool) -> Result<(), String> {
        judge(image);
        if is_ours {
            self.side = Some(Side::ours(image, self.has_log));
            return Ok(());
        }
        self.side = Some(Side::linux(image, self.linux, self.place));
        let size = self.model.content(&file()).expect("there is a file").size();
        self.apply(&Operation::Truncate { object: file(), size })
    }

    fn end(mut self) -> Result<(), String> {
        let image = self.side.take().expect("it does not change").close(self.place);
        judge(&image);
        image.write_to(self.place).unwrap();
        check_file("hole items", self.place);
        self.linux.assert_no_complaints().map_err(|error| format!("{error:#}"))
    }
}

#[test]
fn every_byte_of_a_file_has_an_item() {
    skip_unless_linux!();
    let seed = seed();
    let rounds = if is_torture() { 2000 } else { 12 };
    let linux = Linux::lock().unwrap();
    let options = Options { nodesize: 4096, ..Options::default() };
    let image = Made::by_progs("hole items", 128 * MIB, options, &["-O", "^no-holes"]).image();
    for seed in seed..seed + rounds {
        let mut random = Random::new(seed);
        let steps: Vec<_> = (0..STEPS).map(|_| Step::draw(&mut random)).collect();
        let text =
            |steps: &[Step]| steps.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        let has_log = random.one_in(2);
        let run = |steps: &[Step]| run(&linux, &image, has_log, steps);
        assert_holds(&format!("seed {seed}"), &steps, run, Step::simpler, text);
    }
}
