//! Little-endian fields, appended one by one or written at an offset.

use userbtrfs_format::Key;

/// A builder of bytes.
#[derive(Clone, Debug, Default)]
pub struct Bytes(Vec<u8>);

impl Bytes {
    /// Creates a builder without bytes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends bytes as they are.
    #[must_use]
    pub fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Appends zeros.
    #[must_use]
    pub fn zeros(mut self, count: usize) -> Self {
        self.0.resize(self.0.len() + count, 0);
        self
    }

    /// Appends a byte.
    #[must_use]
    pub fn u8(self, value: u8) -> Self {
        self.raw(&[value])
    }

    /// Appends a number of 16 bits.
    #[must_use]
    pub fn u16(self, value: u16) -> Self {
        self.raw(&value.to_le_bytes())
    }

    /// Appends a number of 32 bits.
    #[must_use]
    pub fn u32(self, value: u32) -> Self {
        self.raw(&value.to_le_bytes())
    }

    /// Appends a number of 64 bits.
    #[must_use]
    pub fn u64(self, value: u64) -> Self {
        self.raw(&value.to_le_bytes())
    }

    /// Appends a length as a number of 16 bits.
    #[must_use]
    pub fn len16(self, bytes: &[u8]) -> Self {
        self.u16(u16::try_from(bytes.len()).expect("a test's name or value is short"))
    }

    /// Appends a key.
    #[must_use]
    pub fn key(self, key: Key) -> Self {
        self.u64(key.objectid).u8(key.kind.0).u64(key.offset)
    }

    /// The bytes.
    pub fn build(self) -> Vec<u8> {
        self.0
    }
}

/// Writes a number of 16 bits at `at`.
pub fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

/// Writes a number of 32 bits at `at`.
pub fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// Writes a number of 64 bits at `at`.
pub fn put_u64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// Reads a number of 16 bits at `at`.
pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array_at(bytes, at))
}

/// Reads a number of 32 bits at `at`.
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

/// Reads a number of 64 bits at `at`.
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("as long as the slice")
}
