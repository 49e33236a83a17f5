//! Encodes and decodes the structures of ioctls, field by field: little-endian, without padding
//! except where it is named.

use userbtrfs_engine::api::Timestamp;
use userbtrfs_fuse::Errno;

/// The answer to an ioctl.
pub(crate) struct Answer {
    /// The result of the call: zero, or a negative errno with data.
    pub(crate) result: i32,
    /// The new argument.
    pub(crate) bytes: Vec<u8>,
}

impl From<Vec<u8>> for Answer {
    fn from(bytes: Vec<u8>) -> Self {
        Self { result: 0, bytes }
    }
}

/// Encodes a structure that is returned.
#[derive(Default)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(super) fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(super) fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Appends a text in a field of `len` bytes, truncated to fit with the terminating NUL.
    pub(super) fn text(&mut self, text: &[u8], len: usize) -> &mut Self {
        let end = self.0.len() + len;
        self.bytes(&text[..text.len().min(len - 1)]).pad_to(end)
    }

    /// Appends a `struct btrfs_ioctl_timespec`, with its padding.
    pub(super) fn time(&mut self, time: &Timestamp) -> &mut Self {
        self.bytes(&time.sec.to_le_bytes()).u32(time.nsec).u32(0)
    }

    /// Appends zeros up to this total length.
    pub(super) fn pad_to(&mut self, len: usize) -> &mut Self {
        assert!(self.0.len() <= len, "{} bytes in a structure of {len}", self.0.len());
        self.0.resize(len, 0);
        self
    }

    pub(super) fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }
}

/// Decodes a structure that is passed in.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl Reader<'_> {
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Errno> {
        let (first, rest) = self.0.split_first_chunk().ok_or(Errno::INVAL)?;
        self.0 = rest;
        Ok(*first)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Errno> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, Errno> {
        Ok(u64::from_le_bytes(self.array()?))
    }
}
