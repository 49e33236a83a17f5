//! An image in memory that only stores non-zero blocks, and a device backed by it.
//!
//! 1. An all-zero block is not stored: two images are equal exactly when their bytes are.
//! 2. Copies share blocks until one of them changes.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::SeekFrom;
use rustix::io::Errno;
use userbtrfs_device::{Completion, Device, DeviceError, Request, Ticket};
use userbtrfs_sync::{Class, Mutex};

/// Bytes in a block.
const BLOCK: usize = 4096;
/// `BLOCK` as an offset.
const BLOCK_BYTES: u64 = BLOCK as u64;
/// The number of bytes per read.
const READ: u64 = 1 << 20;

type Block = [u8; BLOCK];

static ZEROS: Block = [0; BLOCK];

/// The bytes of an image; copies share blocks until one of them changes.
#[derive(Clone, PartialEq, Eq)]
pub struct SparseImage {
    len: u64,
    /// The blocks by their number; missing ones are all zeros.
    blocks: BTreeMap<u64, Arc<Block>>,
}

/// The part of a range that lies in one block.
struct Piece {
    block: u64,
    /// The range within the block.
    within: Range<usize>,
    /// The same bytes as a range of the buffer that is read or written.
    of: Range<usize>,
}

#[expect(clippy::len_without_is_empty, reason = "nobody asks whether an image is empty")]
impl SparseImage {
    /// Creates an image of `len` zero bytes.
    pub fn new(len: u64) -> Self {
        Self { len, blocks: BTreeMap::new() }
    }

    /// Creates an image with this content.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut image = Self::new(bytes.len() as u64);
        image.write(0, bytes);
        image
    }

    /// Copies the current content of a device.
    pub fn copy_of(device: &dyn Device) -> Result<Self, DeviceError> {
        let mut image = Self::new(device.len());
        let mut offset = 0;
        while offset < image.len {
            let len = usize::try_from(READ.min(image.len - offset)).expect("a mebibyte at most");
            image.write(offset, &device.read(offset, len)?);
            offset += len as u64;
        }
        Ok(image)
    }

    /// Reads an image to its end.
    pub fn read_from(mut reader: impl Read) -> io::Result<Self> {
        let mut image = Self::new(0);
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            reader.by_ref().take(READ).read_to_end(&mut bytes)?;
            if bytes.is_empty() {
                return Ok(image);
            }
            let offset = image.len;
            image.len += bytes.len() as u64;
            image.write(offset, &bytes);
        }
    }

    /// Copies the current content of an image file.
    pub fn from_file(path: &Path) -> io::Result<Self> {
        let file = File::open(path).map_err(|error| named(path, &error))?;
        let mut image = Self::new(file.metadata()?.len());
        let mut bytes = Vec::new();
        let mut end = 0;
        loop {
            let start = match rustix::fs::seek(&file, SeekFrom::Data(end)) {
                Err(Errno::NXIO) => return Ok(image),
                found => found?,
            };
            let hole = rustix::fs::seek(&file, SeekFrom::Hole(start))?;
            end = hole.min(start + READ);
            bytes.resize(usize::try_from(end - start).expect("a mebibyte at most"), 0);
            file.read_exact_at(&mut bytes, start)?;
            image.write(start, &bytes);
        }
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Fills `target` with the bytes from `offset`; panics beyond the end.
    pub fn read(&self, offset: u64, target: &mut [u8]) {
        for Piece { block, within, of } in self.pieces(offset, target.len()) {
            match self.blocks.get(&block) {
                Some(block) => target[of].copy_from_slice(&block[within]),
                None => target[of].fill(0),
            }
        }
    }

    /// Writes `bytes` at `offset`; panics beyond the end.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        for Piece { block, within, of } in self.pieces(offset, bytes.len()) {
            self.change(block, |block| block[within].copy_from_slice(&bytes[of]));
        }
    }

    /// Zeroes a range; panics beyond the end.
    pub fn clear(&mut self, offset: u64, len: u64) {
        let end = self.end(offset, len);
        let numbers = offset / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES);
        let kept: Vec<u64> = self.blocks.range(numbers).map(|(number, _)| *number).collect();
        for number in kept {
            let start = number * BLOCK_BYTES;
            let from = offset.max(start) - start;
            let to = end.min(start + BLOCK_BYTES) - start;
            self.change(number, |block| block[index(from)..index(to)].fill(0));
        }
    }

    fn change(&mut self, number: u64, change: impl FnOnce(&mut Block)) {
        let block = self.blocks.entry(number).or_insert_with(|| Arc::new(ZEROS));
        change(Arc::make_mut(block));
        if **block == ZEROS {
            self.blocks.remove(&number);
        }
    }

    /// Returns all bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(self.len).expect("an image that fits in memory")];
        self.read(0, &mut bytes);
        bytes
    }

    /// Creates, or replaces, a file with these bytes and holes for missing blocks.
    pub fn write_to(&self, path: &Path) -> io::Result<()> {
        let file = File::create(path).map_err(|error| named(path, &error))?;
        file.set_len(self.len)?;
        for (number, block) in &self.blocks {
            let offset = number * BLOCK_BYTES;
            let len = index(BLOCK_BYTES.min(self.len - offset));
            file.write_all_at(&block[..len], offset)?;
        }
        Ok(())
    }

    /// Creates a device that holds a copy of these bytes.
    pub fn to_device(&self) -> SparseDevice {
        SparseDevice { len: self.len, image: Mutex::new(Class::DeviceQueue, self.clone()) }
    }

    fn end(&self, offset: u64, len: u64) -> u64 {
        let end = offset.checked_add(len).filter(|end| *end <= self.len);
        end.unwrap_or_else(|| panic!("{len} bytes at {offset} of {}", self.len))
    }

    fn pieces(&self, offset: u64, len: usize) -> impl Iterator<Item = Piece> + use<> {
        self.end(offset, len as u64);
        let mut done = 0;
        std::iter::from_fn(move || {
            let at = offset + done as u64;
            let within = index(at % BLOCK_BYTES);
            let now = (BLOCK - within).min(len - done);
            let of = done..done + now;
            done += now;
            (now > 0).then_some(Piece { block: at / BLOCK_BYTES, within: within..within + now, of })
        })
    }
}

/// Returns an error that names the file.
fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn index(within_block: u64) -> usize {
    usize::try_from(within_block).expect("at most the length of a block")
}

impl fmt::Debug for SparseImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SparseImage({} bytes, {} blocks)", self.len, self.blocks.len())
    }
}

/// A device in memory, shared by any number of threads. Requests are atomic with respect to each
/// other.
pub struct SparseDevice {
    len: u64,
    image: Mutex<SparseImage>,
}

impl SparseDevice {
    /// Creates a device of `len` zero bytes.
    pub fn new(len: u64) -> Self {
        SparseImage::new(len).to_device()
    }

    /// Returns a copy of the current content.
    pub fn image(&self) -> SparseImage {
        self.image.lock().clone()
    }

    fn perform(&self, mut request: Request) -> Completion {
        let result = self.apply(&mut request);
        request.complete(result)
    }

    fn apply(&self, request: &mut Request) -> Result<(), DeviceError> {
        let access = request.access();
        if access.offset.checked_add(access.len).is_none_or(|end| end > self.len) {
            let device = self.name().into();
            let device_len = self.len;
            return Err(DeviceError::BeyondEnd { device, access, device_len });
        }
        let mut image = self.image.lock();
        match request {
            Request::Read { offset, buffer } => image.read(*offset, buffer),
            Request::Write { offset, buffer, .. } => image.write(*offset, buffer),
            Request::Flush => {}
            Request::Discard { offset, len } => image.clear(*offset, *len),
        }
        Ok(())
    }
}

impl Device for SparseDevice {
    fn len(&self) -> u64 {
        self.len
    }

    #[expect(clippy::unnecessary_literal_bound, reason = "the trait says so")]
    fn name(&self) -> &str {
        "sparse memory"
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        Ticket::completed(batch.into_iter().map(|request| self.perform(request)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    const LEN: usize = 5 * BLOCK + 100;

    /// An image after random writes and clears, and a plain buffer after the same.
    fn scribbled(random: &mut Random) -> (SparseImage, Vec<u8>) {
        let mut image = SparseImage::new(LEN as u64);
        let mut plain = vec![0; LEN];
        for _ in 0..200 {
            let start = random.index(LEN);
            let bytes = random.bytes(random.clone().below((LEN - start) as u64 + 1));
            let target = &mut plain[start..start + bytes.len()];
            if random.one_in(2) {
                target.fill(0);
                image.clear(start as u64, bytes.len() as u64);
            } else {
                target.copy_from_slice(&bytes);
                image.write(start as u64, &bytes);
            }
        }
        (image, plain)
    }

    #[test]
    fn image_equals_plain_memory_after_the_same_writes() {
        let mut random = Random::new(1);
        for _ in 0..20 {
            let (image, plain) = scribbled(&mut random);
            assert_eq!(image.to_bytes(), plain);
            assert_eq!(image, SparseImage::from_bytes(&plain), "zeros are not kept");
            let mut part = [1; 5000];
            image.read(4000, &mut part);
            assert_eq!(part, plain[4000..9000]);
            assert_eq!(SparseImage::copy_of(&image.to_device()).unwrap(), image);
            assert_eq!(SparseImage::read_from(&plain[..]).unwrap(), image);
        }
    }

    #[test]
    fn a_copy_does_not_change_with_its_original() {
        let (mut image, plain) = scribbled(&mut Random::new(2));
        let copy = image.clone();
        image.write(100, b"changed");
        assert_eq!(copy.to_bytes(), plain);
        let device = copy.to_device();
        device.discard(0, device.len()).unwrap();
        assert_eq!((device.image(), copy.to_bytes()), (SparseImage::new(LEN as u64), plain));
    }

    #[test]
    fn a_file_holds_the_same_bytes() {
        let (mut image, _) = scribbled(&mut Random::new(3));
        image.write(LEN as u64 - 3, b"end");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        image.write_to(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), image.to_bytes());
        assert_eq!(SparseImage::from_file(&path).unwrap(), image);
        SparseImage::new(1 << 40).write_to(&path).unwrap();
        assert_eq!(SparseImage::from_file(&path).unwrap(), SparseImage::new(1 << 40));
    }

    #[test]
    fn a_request_beyond_the_end_is_refused() {
        let device = SparseDevice::new(100);
        assert!(device.read(90, 10).is_ok());
        assert!(matches!(device.read(91, 10), Err(DeviceError::BeyondEnd { .. })));
        assert!(matches!(device.discard(u64::MAX, 2), Err(DeviceError::BeyondEnd { .. })));
    }
}
