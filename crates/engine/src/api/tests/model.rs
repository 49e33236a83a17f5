//! Random operations on a few files, compared with flat memory.

use userbtrfs_mkfs::ChecksumKind;

use super::*;

/// The largest size of a file, in bytes.
const END: u64 = 600 << 10;

const FILES: [&str; 3] = ["a", "b", "c"];

struct Model {
    lab: Option<Lab>,
    random: Random,
    pages: [Vec<u8>; FILES.len()],
    step: u64,
}

impl Model {
    fn new(lab: Lab, seed: u64) -> Self {
        for name in FILES {
            drop(lab.create(name));
        }
        Self { lab: Some(lab), random: Random(seed), pages: Default::default(), step: 0 }
    }

    fn lab(&self) -> &Lab {
        self.lab.as_ref().expect("open")
    }

    /// Returns a range, often short, often not aligned to sectors.
    fn range(&mut self) -> (u64, u64) {
        let mut offset = self.random.below(END);
        let mut len = 1 + match self.random.below(4) {
            0 => self.random.below(100),
            1 => self.random.below(9000),
            2 => self.random.below(60_000),
            _ => self.random.below(300_000),
        };
        if self.random.below(3) == 0 {
            (offset, len) = (offset / 4096 * 4096, len.next_multiple_of(4096));
        }
        (offset, len)
    }

    fn step(&mut self) {
        self.step += 1;
        let which = usize::try_from(self.random.below(FILES.len() as u64)).unwrap();
        let file = self.lab().file(FILES[which]);
        match self.random.below(26) {
            0..=9 => self.write(&file, which),
            10..=14 => self.allocate(&file, which),
            15 | 16 => self.resize(&file, which),
            17 => self.lab().fs.commit().unwrap(),
            18 => file.sync_all().unwrap(),
            19 => drop(file.extents().unwrap()),
            20 | 21 => self.dedupe(&file, which),
            _ => self.clone_range(&file, which),
        }
        drop(file);
        self.compare(which);
        if self.step.is_multiple_of(150) {
            self.reopen();
        }
    }

    fn write(&mut self, file: &File, which: usize) {
        let (mut offset, len) = self.range();
        let mut bytes = pattern(self.step, usize::try_from(len).unwrap());
        let content = &mut self.pages[which];
        match self.random.below(10) {
            0 if content.len() < 1 << 20 => {
                offset = file.append(&bytes).unwrap();
                assert_eq!(offset, content.len() as u64);
            }
            1 => {
                let left = (content.len() as u64).saturating_sub(offset);
                bytes.truncate(usize::try_from(left).unwrap());
                let mut rest = &bytes[..];
                let change = |part: &mut [u8]| {
                    let (now, later) = rest.split_at(part.len());
                    part.copy_from_slice(now);
                    rest = later;
                };
                let done = file.modify(offset, usize::try_from(len).unwrap(), change).unwrap();
                assert_eq!(done, bytes.len());
            }
            2 => {
                bytes.truncate(bytes.len() / 4096 * 4096);
                offset = offset / 4096 * 4096;
                file.write_direct(&Arc::new(Buffer::from(&bytes[..])), offset).unwrap();
            }
            _ => assert_eq!(file.write_at(&bytes, offset).unwrap(), bytes.len()),
        }
        let at = usize::try_from(offset).unwrap();
        if !bytes.is_empty() {
            content.resize(content.len().max(at + bytes.len()), 0);
            content[at..][..bytes.len()].copy_from_slice(&bytes);
        }
    }

    fn resize(&mut self, file: &File, which: usize) {
        let small = if self.random.below(3) == 0 { 300 } else { 1 };
        let size = self.range().0 / small;
        file.set_len(size).unwrap();
        self.pages[which].resize(usize::try_from(size).unwrap(), 0);
    }

    fn allocate(&mut self, file: &File, which: usize) {
        let (offset, len) = self.range();
        let at = usize::try_from(offset).unwrap();
        let count = usize::try_from(len).unwrap();
        let keep_size = self.random.below(2) == 0;
        let content = &mut self.pages[which];
        let start = at.min(content.len());
        let end = (at + count).min(content.len());
        let (what, zeros, grows) = match self.random.below(3) {
            0 => (Allocate::PunchHole, true, false),
            1 => (Allocate::ZeroRange { keep_size }, true, !keep_size),
            _ => (Allocate::Reserve { keep_size }, false, !keep_size),
        };
        file.allocate(offset, len, what).unwrap();
        if zeros {
            content[start..end].fill(0);
        }
        if grows {
            content.resize(content.len().max(at + count), 0);
        }
    }

    /// Clones a range of any file to this one, or meets the error that it must.
    fn clone_range(&mut self, file: &File, which: usize) {
        let from_which = usize::try_from(self.random.below(FILES.len() as u64)).unwrap();
        let source = self.lab().file(FILES[from_which]);
        let (from, len) = self.range();
        let (to, _) = self.range();
        let from = from / 4096 * 4096;
        let to = to / 4096 * 4096;
        let size = self.pages[from_which].len() as u64;
        // Often up to the end, and from the start of a small file.
        let from = if size < 8192 || self.random.below(4) == 0 { 0 } else { from };
        let to = if self.random.below(4) == 0 { 0 } else { to };
        let len = match self.random.below(3) {
            0 => 0,
            1 => len.next_multiple_of(4096).min(size.saturating_sub(from)),
            _ => len.next_multiple_of(4096),
        };
        let bytes = if len == 0 { size.saturating_sub(from) } else { len };
        let end = to + bytes;
        let is_whole = bytes.is_multiple_of(4096)
            || (from + bytes == size && end >= self.pages[which].len() as u64);
        let overlaps = which == from_which && from.abs_diff(to) < bytes.next_multiple_of(4096);
        let is_right = from <= size && from + bytes <= size && is_whole && !overlaps;
        let cloned = file.clone_range(&source, from, len, to);
        assert_eq!(cloned.is_ok(), is_right, "{from} {len} {to}: {cloned:?}");
        let Ok(()) = cloned else { return };
        let range = |start: u64| usize::try_from(start).unwrap();
        let copied = self.pages[from_which][range(from)..range(from + bytes)].to_vec();
        let content = &mut self.pages[which];
        if bytes > 0 {
            content.resize(content.len().max(range(end)), 0);
            content[range(to)..range(end)].copy_from_slice(&copied);
        }
    }

    /// Shares what two ranges have in common; the content stays.
    fn dedupe(&mut self, file: &File, which: usize) {
        let from_which = usize::try_from(self.random.below(FILES.len() as u64)).unwrap();
        let source = self.lab().file(FILES[from_which]);
        let (from, len) = self.range();
        let (to, _) = self.range();
        let from = from / 4096 * 4096;
        let to = if which != from_which && self.random.below(2) == 0 { from } else { to };
        let to = to / 4096 * 4096;
        let ours = &self.pages[which];
        let theirs = &self.pages[from_which];
        let left = |content: &[u8], at: u64| (content.len() as u64).saturating_sub(at);
        let most = left(ours, to).min(left(theirs, from));
        let overlaps = which == from_which && from.abs_diff(to) < len.next_multiple_of(4096);
        if most == 0 || overlaps {
            return;
        }
        let len = len.min(most);
        let part = |content: &[u8], at: u64, len: u64| {
            let at = usize::try_from(at).unwrap();
            content[at..][..usize::try_from(len).unwrap()].to_vec()
        };
        match file.dedupe_range(&source, from, len, to).unwrap() {
            Deduped::Same { len: same, .. } => {
                assert!(same + 4096 > len);
                assert!(part(ours, to, same) == part(theirs, from, same));
            }
            Deduped::Differs => assert!(part(ours, to, len) != part(theirs, from, len)),
        }
    }

    /// Reads a range, or all.
    fn compare(&mut self, which: usize) {
        let file = self.lab().file(FILES[which]);
        assert_eq!(file.len(), self.pages[which].len() as u64);
        if self.random.below(8) == 0 {
            assert!(file.read_all().unwrap() == self.pages[which], "step {}", self.step);
            return;
        }
        let (offset, len) = self.range();
        let mut found = vec![1; usize::try_from(len).unwrap()];
        let count = file.read_at(&mut found, offset).unwrap();
        let content = &self.pages[which];
        let start = usize::try_from(offset).unwrap().min(content.len());
        let end = (start + found.len()).min(content.len());
        assert_eq!(count, end - start);
        let differs = found.iter().zip(&content[start..end]).position(|(a, b)| a != b);
        assert_eq!(differs.map(|at| start + at), None, "step {}", self.step);
    }

    fn reopen(&mut self) {
        let lab = self.lab.take().expect("open").reopened();
        for (name, content) in FILES.iter().zip(&self.pages) {
            assert!(lab.fs.read(name).unwrap() == *content, "{name} at step {}", self.step);
        }
        self.lab = Some(lab);
    }

    fn run(mut self, steps: u64) {
        while self.step < steps {
            self.step();
        }
        self.reopen();
    }
}

fn run(options: &Options, memory: u64, seed: u64) {
    Model::new(Lab::of(128 << 20, options, memory), seed).run(600);
}

#[test]
fn default_options() {
    run(&Options::default(), 64 << 20, 1);
}

#[test]
fn little_memory() {
    run(&Options::default(), 4 << 20, 2);
}

#[test]
fn small_nodes_and_large_checksums() {
    let nodesize = 4096;
    let checksum = ChecksumKind::Sha256;
    run(&Options { nodesize, checksum, ..Options::default() }, 16 << 20, 3);
}

#[test]
fn large_nodes() {
    run(&Options { nodesize: 65536, ..Options::default() }, 16 << 20, 4);
}

#[test]
fn mixed_groups() {
    run(&Options::mixed(), 16 << 20, 5);
}
