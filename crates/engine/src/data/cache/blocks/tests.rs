//! Blocks against plain bytes, with a fake file on disk.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// Sectors of the files of these tests: a few units, so that blocks meet their boundaries.
const SECTORS: u64 = 80;
const BYTES: usize = 80 * SECTOR_LEN;

fn blocks() -> CacheBlocks {
    CacheBlocks::new(Arc::new(Buffer::zeroed(bytes(SECTORS_MAX))))
}

#[derive(Clone, Debug)]
enum Step {
    Write {
        at: usize,
        len: usize,
        byte: u8,
    },
    /// Fills missing sectors from disk: as whole buffers or copied.
    Fill {
        range: Range<u64>,
        whole: bool,
    },
    Take {
        range: Range<u64>,
        max: u64,
    },
    /// Ends the writing of one of the taken runs.
    Written(usize),
    Failed(usize),
    Discard(Range<u64>),
    Evict,
}

fn range() -> impl Strategy<Value = Range<u64>> {
    (0..SECTORS, 1..40_u64).prop_map(|(at, len)| at..(at + len).min(SECTORS))
}

fn step() -> impl Strategy<Value = Step> {
    let write = prop_oneof![
        (0..BYTES, 1..3 * SECTOR_LEN),
        (0..80_usize, 1..70_usize).prop_map(|(at, len)| (at * SECTOR_LEN, len * SECTOR_LEN)),
    ];
    prop_oneof![
        4 => (write, 1..=u8::MAX).prop_map(|((at, len), byte)| {
            Step::Write { at, len: len.min(BYTES - at), byte }
        }),
        2 => (range(), any::<bool>()).prop_map(|(range, whole)| Step::Fill { range, whole }),
        2 => (range(), 1..50_u64).prop_map(|(range, max)| Step::Take { range, max }),
        2 => any::<usize>().prop_map(Step::Written),
        1 => any::<usize>().prop_map(Step::Failed),
        1 => range().prop_map(Step::Discard),
        1 => Just(Step::Evict),
    ]
}

/// The same file as plain bytes: its present data, and the data on disk.
struct Model {
    blocks: CacheBlocks,
    now: Vec<u8>,
    on_disk: Vec<u8>,
    dirty: Vec<bool>,
    writing: Vec<bool>,
    /// Runs in flight, and their bytes when they were taken.
    taken: Vec<(DirtyRun, Vec<u8>)>,
    listed: Vec<(u64, u64)>,
}

fn places(range: &Range<u64>) -> Range<usize> {
    to_bytes(range.start)..to_bytes(range.end)
}

impl Model {
    fn new() -> Self {
        let mut on_disk = vec![0; BYTES];
        // Zeros in the middle, like a hole.
        for (place, byte) in on_disk.iter_mut().enumerate() {
            let sector = place / SECTOR_LEN;
            *byte = if (20..50).contains(&sector) { 0 } else { u8::try_from(sector).unwrap() + 1 };
        }
        let none = || vec![false; usize::try_from(SECTORS).unwrap()];
        let dirty = none();
        let writing = none();
        let taken = Vec::new();
        let listed = Vec::new();
        Self { blocks: blocks(), now: on_disk.clone(), on_disk, dirty, writing, taken, listed }
    }

    fn run(&mut self, step: Step) {
        let before = self.blocks.dirty;
        let delta = match step {
            Step::Write { at, len, byte } => self.write(at, len, byte),
            Step::Fill { range, whole } => self.fill(range, whole),
            Step::Take { range, max } => self.take(range, max),
            Step::Written(which) => self.end(which, Self::written),
            Step::Failed(which) => self.end(which, Self::failed),
            Step::Discard(range) => self.discard(range),
            Step::Evict => self.evict(),
        };
        assert_eq!(self.blocks.dirty.since(before), delta, "the delta that was returned");
    }

    fn write(&mut self, at: usize, len: usize, byte: u8) -> Delta {
        let range = sectors_of(at as u64, len);
        for edge in [range.start, range.end - 1] {
            let bytes = &self.on_disk[places(&(edge..edge + 1))];
            self.blocks.fill_from(edge, bytes);
        }
        let told = self.blocks.new_dirty(range.clone());
        self.now[at..at + len].fill(byte);
        self.dirty[to_usize(range.start)..to_usize(range.end)].fill(true);
        let delta = self.blocks.write(at as u64, &vec![byte; len]);
        assert_eq!(told, delta);
        delta
    }

    fn fill(&mut self, range: Range<u64>, whole: bool) -> Delta {
        for missing in self.blocks.missing(range) {
            let bytes = &self.on_disk[places(&missing)];
            if bytes.iter().all(|&byte| byte == 0) {
                self.blocks.fill_zeros(missing);
            } else if whole {
                self.blocks.fill(missing.start, &Arc::new(Buffer::from(bytes)));
            } else {
                self.blocks.fill_from(missing.start, bytes);
            }
        }
        // Cached data is never replaced by that on disk.
        self.blocks.fill_from(0, &self.on_disk);
        Delta::default()
    }

    fn take(&mut self, range: Range<u64>, max: u64) -> Delta {
        let (runs, delta) = self.blocks.take_dirty(range.clone(), max * SECTOR);
        let mut wanted = range.filter(|&at| {
            let at = to_usize(at);
            self.dirty[at] && !self.writing[at]
        });
        let wanted: Vec<u64> = wanted.by_ref().take(to_usize(max)).collect();
        let sectors = |run: &DirtyRun| run.start / 4096..run.end / 4096;
        let taken: Vec<u64> = runs.iter().flat_map(sectors).collect();
        assert_eq!(taken, wanted);
        assert!(runs.windows(2).all(|pair| pair[0].end < pair[1].start), "maximal runs");
        for run in runs {
            let bytes = self.now[to_usize(run.start)..to_usize(run.end)].to_vec();
            for sector in sectors(&run) {
                let at = to_usize(sector);
                (self.dirty[at], self.writing[at]) = (false, true);
            }
            self.taken.push((run, bytes));
        }
        delta
    }

    fn end(&mut self, which: usize, end: fn(&mut Self, Range<u64>, &[u8])) -> Delta {
        if self.taken.is_empty() {
            return Delta::default();
        }
        let (run, bytes) = self.taken.swap_remove(which % self.taken.len());
        let range = sectors_of(run.start, bytes.len());
        end(self, range.clone(), &bytes);
        self.writing[to_usize(range.start)..to_usize(range.end)].fill(false);
        Delta::default()
    }

    fn written(&mut self, range: Range<u64>, bytes: &[u8]) {
        self.on_disk[places(&range)].copy_from_slice(bytes);
        self.blocks.written(range);
    }

    fn failed(&mut self, range: Range<u64>, _: &[u8]) {
        for sector in range.clone().filter(|&at| !self.dirty[to_usize(at)]) {
            let place = places(&(sector..sector + 1));
            self.now[place.clone()].copy_from_slice(&self.on_disk[place]);
        }
        self.blocks.failed(range);
    }

    fn discard(&mut self, range: Range<u64>) -> Delta {
        if range.clone().any(|at| self.writing[to_usize(at)]) {
            return Delta::default();
        }
        let place = places(&range);
        self.now[place.clone()].copy_from_slice(&self.on_disk[place]);
        self.dirty[to_usize(range.start)..to_usize(range.end)].fill(false);
        self.blocks.discard(range)
    }

    fn evict(&mut self) -> Delta {
        self.listed.extend(self.blocks.take_newcomers());
        for _ in 0..2 {
            let listed = std::mem::take(&mut self.listed);
            let kept =
                |(first, ticket): &(u64, u64)| self.blocks.evict(*first, *ticket) == Evicted::Kept;
            self.listed = listed.into_iter().filter(kept).collect();
        }
        assert!(self.blocks.by_first.values().all(|block| {
            block.unfinished() != 0 || (block.in_use() && !block.shares(&self.blocks.zeros))
        }));
        Delta::default()
    }

    fn check(&mut self) {
        for (at, dirty) in self.dirty.clone().into_iter().enumerate() {
            self.check_sector(at, dirty);
        }
        self.check_counts();
        for (run, bytes) in &self.taken {
            let parts: Vec<u8> = run.parts.iter().flat_map(|part| part.iter().copied()).collect();
            assert_eq!(&parts, bytes, "what was taken never changes");
        }
    }

    fn check_sector(&mut self, at: usize, dirty: bool) {
        let sector = at as u64;
        let unfinished = !self.blocks.unfinished(sector..sector + 1, 1).is_empty();
        assert_eq!(unfinished, dirty || self.writing[at], "sector {at}");
        assert_eq!(self.blocks.is_dirty(sector), dirty, "sector {at}");
        let slice = self.blocks.slice(sector);
        let missing = !self.blocks.missing(sector..sector + 1).is_empty();
        assert_eq!(missing, slice.is_none(), "sector {at}");
        match slice {
            Some(slice) => assert_eq!(slice[..], self.now[at * SECTOR_LEN..][..slice.len()]),
            None => assert!(!unfinished),
        }
    }

    fn check_counts(&self) {
        let blocks = &self.blocks;
        let count = |bits: &[bool]| bits.iter().filter(|bit| **bit).count() as u64;
        let unfinished: Vec<bool> =
            self.dirty.iter().zip(&self.writing).map(|(dirty, writing)| dirty | writing).collect();
        let starts = |bits: &[bool]| bits.chunk_by(|a, b| a == b).filter(|run| run[0]).count();
        let dirty = Delta {
            sectors: to_i64(count(&self.dirty)),
            runs: i64::try_from(starts(&self.dirty)).unwrap(),
        };
        assert_eq!(blocks.dirty, dirty);
        assert_eq!(blocks.unfinished(0..SECTORS, usize::MAX).len(), starts(&unfinished));
        let usage = blocks
            .by_first
            .values()
            .fold(Usage::default(), |usage, block| usage.with(Usage::of(block, &blocks.zeros)));
        assert_eq!(blocks.usage(), usage);
        assert_eq!((usage.dirty, usage.unfinished), (count(&self.dirty), count(&unfinished)));
        let mut end = 0;
        for (first, block) in &blocks.by_first {
            assert!(*first >= end && block.valid != 0);
            assert_eq!(first / UNIT, (first + u64::from(block.len) - 1) / UNIT);
            end = first + u64::from(block.len);
        }
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn blocks_are_as_plain_bytes(steps in vec(step(), 1..60)) {
        let mut model = Model::new();
        for step in steps {
            model.run(step);
            model.check();
        }
    }
}

fn config() -> ProptestConfig {
    let torture = std::env::var_os("USERBTRFS_TORTURE").is_some();
    let cases = if torture { 5_000 } else { 100 };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

#[test]
fn a_file_written_in_order_is_in_large_blocks_and_one_sector_alone_in_a_small_one() {
    let mut blocks = blocks();
    blocks.write(1000 * 4096, &[1; SECTOR_LEN]);
    assert_eq!(blocks.usage().bytes, (BLOCK_BYTES + SECTOR_LEN) as u64);
    for sector in 0..64 {
        blocks.write(sector * 4096, &[2; SECTOR_LEN]);
    }
    assert_eq!(blocks.usage().blocks, 3);
    let (runs, delta) = blocks.take_dirty(0..u64::MAX, u64::MAX);
    assert_eq!(delta, Delta { sectors: -65, runs: -2 });
    let runs: Vec<_> = runs.iter().map(|run| (run.start, run.end, run.parts.len())).collect();
    assert_eq!(runs, [(0, 64 * 4096, 2), (1000 * 4096, 1001 * 4096, 1)]);
}

/// A block is not copied to make room for a large write after it.
#[test]
fn large_writes_are_in_blocks_of_their_own() {
    let mut blocks = blocks();
    let piece = bytes(APART);
    let at = |number: usize| (number * bytes(APART)) as u64;
    blocks.write(at(0), &vec![1; piece]);
    let first = blocks.slice(0).unwrap().as_ptr();
    blocks.write(at(1), &vec![2; piece]);
    assert_eq!((blocks.usage().blocks, blocks.slice(0).unwrap().as_ptr()), (2, first));
    let (runs, _) = blocks.take_dirty(0..u64::MAX, u64::MAX);
    assert_eq!(runs.len(), 1, "they are one run");
}

#[test]
fn a_whole_buffer_is_taken_as_it_is_and_zeros_take_no_memory() {
    let mut blocks = blocks();
    let buffer = Arc::new(Buffer::from(&[7; 3 * SECTOR_LEN][..]));
    blocks.fill(8, &buffer);
    assert_eq!(blocks.slice(9).unwrap().as_ptr(), buffer[SECTOR_LEN..].as_ptr());
    blocks.fill_zeros(32..96);
    let expected =
        Usage { bytes: (3 * BLOCK_BYTES + 3 * SECTOR_LEN) as u64, blocks: 3, ..Usage::default() };
    assert_eq!(blocks.usage(), expected);
    blocks.write(40 * 4096, &[1; SECTOR_LEN]);
    assert_eq!(blocks.slice(39).unwrap()[..SECTOR_LEN], [0; SECTOR_LEN]);
    assert_eq!(blocks.usage().bytes, expected.bytes + 32 * 4096);
}

#[test]
fn a_run_is_cut_where_an_extent_ends() {
    let mut blocks = blocks();
    blocks.write(31 * 4096, &[[1; SECTOR_LEN], [2; SECTOR_LEN], [3; SECTOR_LEN]].concat());
    let mut run = blocks.take_dirty(0..u64::MAX, u64::MAX).0.remove(0);
    let last = run.split_off(33 * 4096);
    assert_eq!(
        (run.start, run.end, last.start, last.end),
        (31 * 4096, 33 * 4096, 33 * 4096, 34 * 4096)
    );
    let bytes =
        |run: &DirtyRun| run.parts.iter().flat_map(|part| part.to_vec()).collect::<Vec<u8>>();
    assert_eq!(bytes(&run), [[1; SECTOR_LEN], [2; SECTOR_LEN]].concat());
    assert_eq!(bytes(&last), [3; SECTOR_LEN]);
}
