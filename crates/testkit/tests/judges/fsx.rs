//! One file compared with plain memory, in the manner of fsx: all kinds of reads and writes at
//! random overlapping ranges, with equal content after each.
//!
//! 1. A failing list of steps is shrunk; the effect of a step only depends on itself and the file.
//! 2. The data ranges found by seeks contain all non-zero bytes, and the holes read as zeros.

use std::fmt;

use userbtrfs::device::Buffer;
use userbtrfs::mkfs::Options;
use userbtrfs::{Allocate, Compress, Error, File, Filesystem, InodeFlags, OpenOptions, TreeId};
use userbtrfs_format::SECTOR;
use userbtrfs_sync::Arc;
use userbtrfs_testkit::devices::{SparseDevice, SparseImage};
use userbtrfs_testkit::random::Random;
use userbtrfs_testkit::{pattern, skip_unless_linux};

use super::made::{MIB, Made, check_image, forced};
use super::ours::assert_holds;
use super::{is_torture, seed};

/// The number of steps in a list.
const LENGTH: usize = 10_000;
/// The maximum size of the file, in bytes.
const SIZE_MAX: u64 = 640 << 10;
const NAME: &[u8] = b"file";

/// The kind of a step.
#[derive(Clone, Copy, Debug)]
enum Act {
    Read,
    ReadDirect,
    Slice,
    Seek,
    Write { seed: u32 },
    WriteDirect { seed: u32 },
    Modify { seed: u32 },
    Append { seed: u32 },
    Truncate,
    Punch,
    Zero { keep_size: bool },
    Reserve { keep_size: bool },
    Sync,
    Commit,
    Reopen,
}

/// A step: an act on a range.
#[derive(Clone, Copy)]
struct Step {
    act: Act,
    offset: u64,
    length: u64,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} from {}", self.act, self.length, self.offset)
    }
}

impl Step {
    fn draw(random: &mut Random) -> Self {
        let offset = place(random);
        let length = match random.below(6) {
            0 => place(random),
            1 => SECTOR << random.below(6),
            _ => random.length(16),
        };
        Self { act: draw_act(random), offset, length: length.clamp(1, SIZE_MAX - offset) }
    }

    fn simpler(&self) -> Vec<Self> {
        let less = [1, SECTOR, self.length / 2, self.length - self.length / 8];
        let less = less.into_iter().filter(|less| (1..self.length).contains(less));
        less.map(|length| Self { length, ..*self }).collect()
    }

    fn end(&self) -> u64 {
        self.offset + self.length
    }

    /// Returns the step, or another one in place of an allocation: data of a file that has
    /// preallocated extents is not compressed.
    fn unreserved(self) -> Self {
        let act = match self.act {
            Act::Reserve { .. } => Act::Truncate,
            Act::Zero { .. } => Act::Write { seed: 0 },
            act => act,
        };
        Self { act, ..self }
    }

    /// Returns the step on whole sectors.
    fn aligned(self) -> Self {
        let offset = self.offset / SECTOR * SECTOR;
        Self { offset, length: self.length.next_multiple_of(SECTOR), ..self }
    }
}

/// Returns an offset at a boundary, or any offset.
fn place(random: &mut Random) -> u64 {
    let near = match random.below(8) {
        0 => 0,
        1 => 2048,
        2 => 128 << 10,
        3..6 => SECTOR * random.below(SIZE_MAX / SECTOR),
        _ => return random.below(SIZE_MAX - 1),
    };
    (near + random.below(3)).saturating_sub(1).min(SIZE_MAX - 1)
}

fn draw_act(random: &mut Random) -> Act {
    let seed = u32::try_from(1 + random.below(1 << 31)).unwrap();
    let keep_size = random.one_in(2);
    match random.below(64) {
        0..14 => Act::Read,
        14..17 => Act::ReadDirect,
        17..19 => Act::Slice,
        19..23 => Act::Seek,
        23..36 => Act::Write { seed },
        36..39 => Act::WriteDirect { seed },
        39..42 => Act::Modify { seed },
        42..45 => Act::Append { seed },
        45..49 => Act::Truncate,
        49..53 => Act::Punch,
        53..56 => Act::Zero { keep_size },
        56..59 => Act::Reserve { keep_size },
        59 => Act::Sync,
        60..62 => Act::Commit,
        62 if random.one_in(4) => Act::Reopen,
        _ => Act::Write { seed: 0 },
    }
}

/// A file and its expected content.
struct Exercise {
    device: Arc<SparseDevice>,
    memory: u64,
    compress: Option<Compress>,
    /// `None` only during a reopen.
    open: Option<(Filesystem, File)>,
    flat: Vec<u8>,
}

impl Exercise {
    fn new(image: &SparseImage, kind: &Kind) -> Result<Self, Error> {
        let device = Arc::new(image.to_device());
        let memory = kind.memory;
        let compress = kind.compress.map(forced);
        let mut exercise = Self { device, memory, compress, open: None, flat: Vec::new() };
        let filesystem = exercise.filesystem()?;
        let inode = filesystem.root().create(NAME, 0o644)?;
        if kind.in_place {
            inode.set_flags(InodeFlags::NODATACOW)?;
        }
        exercise.open = Some((filesystem, inode.open()?));
        Ok(exercise)
    }

    fn filesystem(&self) -> Result<Filesystem, Error> {
        let mut options = OpenOptions::new();
        options.write(true).subvolume_id(TreeId::FS).commit_seconds(0).memory(self.memory << 20);
        options.compress(self.compress);
        options.open_devices(vec![self.device.clone()])
    }

    fn reopen(&mut self) -> Result<(), Error> {
        if let Some((filesystem, file)) = self.open.take() {
            file.close()?;
            filesystem.close()?;
        }
        let filesystem = self.filesystem()?;
        let file = filesystem.root().lookup(NAME)?.open()?;
        self.open = Some((filesystem, file));
        Ok(())
    }

    fn file(&self) -> &File {
        &self.open.as_ref().expect("open but while it is reopened").1
    }

    fn step(&mut self, step: Step) -> Result<(), String> {
        let said = |error: Error| error.to_string();
        match step.act {
            Act::Read => self.read(step.offset, step.length)?,
            Act::ReadDirect => self.read_direct(step.aligned())?,
            Act::Slice => self.slice(step.offset)?,
            Act::Seek => self.seek(step.offset)?,
            Act::Commit => self.open.as_ref().expect("open").0.commit().map_err(said)?,
            Act::Reopen => self.reopen().map_err(said)?,
            Act::Sync => self.file().sync_all().map_err(said)?,
            _ => self.change(step).map_err(said)?,
        }
        if self.file().len() == self.flat.len() as u64 {
            Ok(())
        } else {
            Err(format!("its size is {}, not {}", self.file().len(), self.flat.len()))
        }
    }

    fn change(&mut self, step: Step) -> Result<(), Error> {
        let Step { offset, length, .. } = step;
        match step.act {
            Act::Write { seed } => self.write(seed, offset, length)?,
            Act::WriteDirect { seed } => self.write_direct(seed, step.aligned())?,
            Act::Modify { seed } => self.modify(seed, offset, length)?,
            Act::Append { seed } => self.append(seed, length)?,
            Act::Truncate => {
                self.file().set_len(offset)?;
                self.flat.resize(index(offset), 0);
            }
            Act::Punch => {
                self.file().allocate(offset, length, Allocate::PunchHole)?;
                self.clear(step, true);
            }
            Act::Zero { keep_size } => {
                self.file().allocate(offset, length, Allocate::ZeroRange { keep_size })?;
                self.clear(step, keep_size);
            }
            Act::Reserve { keep_size } => {
                self.file().allocate(offset, length, Allocate::Reserve { keep_size })?;
                if !keep_size {
                    self.grow(step.end());
                }
            }
            other => unreachable!("{other:?} is no change"),
        }
        Ok(())
    }

    fn grow(&mut self, end: u64) {
        self.flat.resize(self.flat.len().max(index(end)), 0);
    }

    fn clear(&mut self, step: Step, keep_size: bool) {
        if !keep_size {
            self.grow(step.end());
        }
        let size = self.flat.len();
        self.flat[index(step.offset).min(size)..index(step.end()).min(size)].fill(0);
    }

    fn write(&mut self, seed: u32, offset: u64, length: u64) -> Result<(), Error> {
        let bytes = pattern::bytes(seed, offset, index(length));
        assert_eq!(self.file().write_at(&bytes, offset)?, bytes.len(), "a short write");
        self.put(offset, &bytes);
        Ok(())
    }

    fn put(&mut self, offset: u64, bytes: &[u8]) {
        self.grow(offset + bytes.len() as u64);
        self.flat[index(offset)..][..bytes.len()].copy_from_slice(bytes);
    }

    fn write_direct(&mut self, seed: u32, step: Step) -> Result<(), Error> {
        let bytes = pattern::bytes(seed, step.offset, index(step.length));
        self.file().write_direct(&Arc::new(Buffer::from(&bytes[..])), step.offset)?;
        self.put(step.offset, &bytes);
        Ok(())
    }

    /// Modifies existing bytes in place.
    fn modify(&mut self, seed: u32, offset: u64, length: u64) -> Result<(), Error> {
        let end = (offset + length).min(self.flat.len() as u64);
        if offset >= end {
            return Ok(());
        }
        let mut at = offset;
        let modified = self.file().modify(offset, index(end - offset), |part| {
            pattern::fill(seed, at, part);
            at += part.len() as u64;
        })?;
        assert_eq!((at, modified), (end, index(end - offset)), "all of the range is handed out");
        self.put(offset, &pattern::bytes(seed, offset, index(end - offset)));
        Ok(())
    }

    fn append(&mut self, seed: u32, length: u64) -> Result<(), Error> {
        let end = self.flat.len() as u64;
        let bytes = pattern::bytes(seed, end, index(length.min(SIZE_MAX.saturating_sub(end))));
        assert_eq!(self.file().append(&bytes)?, end, "where it was put");
        self.put(end, &bytes);
        Ok(())
    }

    fn read(&self, offset: u64, length: u64) -> Result<(), String> {
        let mut found = vec![0x55; index(length)];
        let read = self.file().read_at(&mut found, offset).map_err(|error| error.to_string())?;
        let expected = self.part(offset, length);
        if read != expected.len() {
            return Err(format!("{read} bytes are read, not {}", expected.len()));
        }
        same(&found[..read], expected, offset)
    }

    fn read_direct(&self, step: Step) -> Result<(), String> {
        let read = self.file().read_direct(step.offset, index(step.length));
        let mut expected = self.part(step.offset, step.length).to_vec();
        expected.resize(index(step.length), 0);
        same(&read.map_err(|error| error.to_string())?, &expected, step.offset)
    }

    fn slice(&self, offset: u64) -> Result<(), String> {
        match self.file().slice(offset).map_err(|error| error.to_string())? {
            None if offset >= self.flat.len() as u64 => Ok(()),
            None => Err("no slice".to_owned()),
            Some(slice) => {
                let expected = self.part(offset, slice.len() as u64);
                if slice.is_empty() || expected.len() != slice.len() {
                    return Err(format!("a slice of {} bytes", slice.len()));
                }
                same(&slice, expected, offset)
            }
        }
    }

    fn seek(&self, offset: u64) -> Result<(), String> {
        let size = self.flat.len() as u64;
        let start = match self.file().seek_data(offset) {
            Err(Error::NoMoreData) => size,
            found => found.map_err(|error| error.to_string())?,
        };
        let hole = match self.file().seek_hole(offset) {
            Err(Error::NoMoreData) if offset >= size => return Ok(()),
            found => found.map_err(|error| error.to_string())?,
        };
        if start < offset || start > size.max(offset) || hole < offset || hole > size {
            return Err(format!("from {offset}, data is at {start} and a hole at {hole}"));
        }
        let end = match self.file().seek_data(hole) {
            Err(Error::NoMoreData) => size,
            found => found.map_err(|error| error.to_string())?,
        };
        if hole < size && end == hole {
            return Err(format!("both data and a hole are at {hole}"));
        }
        self.is_hole(offset, start)?;
        self.is_hole(hole, end)
    }

    /// Returns an error unless a range reads as zeros, and is expected to.
    fn is_hole(&self, start: u64, end: u64) -> Result<(), String> {
        let length = end.saturating_sub(start);
        self.read(start, length)?;
        match self.part(start, length).iter().position(|byte| *byte != 0) {
            Some(at) => Err(format!("there is data at {}, in no hole", start + at as u64)),
            None => Ok(()),
        }
    }

    /// Returns a range of the expected content, up to its end.
    fn part(&self, offset: u64, length: u64) -> &[u8] {
        let within = |at: u64| index(at).min(self.flat.len());
        &self.flat[within(offset)..within(offset + length)]
    }
}

fn index(offset: u64) -> usize {
    usize::try_from(offset).unwrap()
}

fn same(found: &[u8], expected: &[u8], offset: u64) -> Result<(), String> {
    match found.iter().zip(expected).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(at) => {
            let offset = offset + at as u64;
            let found = found[at];
            let expected = expected[at];
            Err(format!("at {offset} is {found:#x}, not {expected:#x}"))
        }
    }
}

/// A kind of filesystem for the test.
struct Kind {
    made: Made,
    in_place: bool,
    memory: u64,
    /// How data is compressed.
    compress: Option<&'static str>,
}

fn kinds() -> Vec<Kind> {
    let plain = || Options { nodesize: 4096, ..Options::default() };
    let of = |made, in_place, memory| Kind { made, in_place, memory, compress: None };
    let compressed = |name, memory, method| {
        let made = Made::new(name, 128 * MIB, plain());
        Kind { made, in_place: false, memory, compress: Some(method) }
    };
    vec![
        of(Made::new("default", 128 * MIB, Options::default()), false, 64),
        of(Made::new("little memory", 128 * MIB, plain()), false, 4),
        of(Made::new("in place", 128 * MIB, plain()), true, 64),
        of(Made::new("mixed", 64 * MIB, Options::mixed()), false, 64),
        of(Made::by_progs("hole items", 128 * MIB, plain(), &["-O", "^no-holes"]), false, 64),
        compressed("zlib", 64, "zlib:1"),
        compressed("lzo, little memory", 4, "lzo"),
        compressed("zstd", 64, "zstd:-3"),
    ]
}

#[test]
fn a_file_is_what_plain_memory_is() {
    skip_unless_linux!();
    let seed = seed();
    let rounds = if is_torture() { 200 } else { 1 };
    for kind in kinds() {
        let image = kind.made.image();
        for seed in seed..seed + rounds {
            let mut random = Random::new(seed);
            let steps: Vec<Step> = (0..LENGTH).map(|_| Step::draw(&mut random)).collect();
            let what = format!("{}, seed {seed}", kind.made.name);
            let run = |steps: &[Step]| exercise(&kind, &image, steps);
            let text = |steps: &[Step]| {
                steps.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
            };
            assert_holds(&what, &steps, run, Step::simpler, text);
        }
    }
}

fn exercise(kind: &Kind, image: &SparseImage, steps: &[Step]) -> Result<(), String> {
    let said = |error: Error| error.to_string();
    let mut exercise = Exercise::new(image, kind).map_err(said)?;
    for step in steps {
        let step = if kind.compress.is_some() { step.unreserved() } else { *step };
        exercise.step(step).map_err(|error| format!("{step}: {error}"))?;
    }
    exercise.read(0, SIZE_MAX + 1)?;
    exercise.reopen().map_err(said)?;
    exercise.read(0, SIZE_MAX + 1)?;
    check_image(kind.made.name, &exercise.device.image());
    Ok(())
}
