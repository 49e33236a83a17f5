//! The four checksums a btrfs filesystem may use.
//!
//! 1. A filesystem uses one kind, identified by a `u16` in its superblock.
//! 2. A checksum is stored as its bytes in order; crc32c and xxhash64 are little-endian numbers.
//! 3. SHA-256 and BLAKE2b are kinds only with the features `sha256` and `blake2b`. Without, their
//!    numbers are unknown.
//! 4. Bytes of a [`Checksum`] beyond its length are zero, so equal checksums have equal fields.

use std::fmt;

#[cfg(feature = "blake2b")]
use blake2b_simd::many::{HashManyJob, hash_many};
#[cfg(feature = "sha256")]
use sha2::{Digest, Sha256};

use crate::hash::crc32c_raw;

/// The size of the longest checksum in bytes, and of the checksum field of tree blocks.
pub const MAX_SIZE: usize = 32;

/// The kinds that features add: number, name, and whether the feature of that name is on.
const OPTIONAL: [(u16, &str, bool); 2] =
    [(2, "sha256", cfg!(feature = "sha256")), (3, "blake2b", cfg!(feature = "blake2b"))];

/// Number of blocks that [`ChecksumKind::compute_blocks`] hashes in parallel for blake2b.
#[cfg(feature = "blake2b")]
const LANES: usize = 4;

/// A checksum algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChecksumKind {
    /// CRC-32C, 4 bytes.
    Crc32c,
    /// xxHash64 with seed 0, 8 bytes.
    Xxhash64,
    /// SHA-256, 32 bytes. Needs the feature `sha256`.
    #[cfg(feature = "sha256")]
    Sha256,
    /// BLAKE2b with a 256-bit result and no key, 32 bytes. Needs the feature `blake2b`.
    #[cfg(feature = "blake2b")]
    Blake2b,
}

/// A superblock has a checksum type that is unknown, or whose feature is off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub struct UnknownChecksum(pub u16);

impl fmt::Display for UnknownChecksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(number) = self;
        match OPTIONAL.iter().find(|(optional, _, is_on)| optional == number && !is_on) {
            Some((_, name, _)) => {
                write!(f, "checksum type {number} ({name}) needs the feature `{name}`")
            }
            None => write!(f, "unknown checksum type {number}"),
        }
    }
}

impl TryFrom<u16> for ChecksumKind {
    type Error = UnknownChecksum;

    fn try_from(disk: u16) -> Result<Self, UnknownChecksum> {
        match disk {
            0 => Ok(Self::Crc32c),
            1 => Ok(Self::Xxhash64),
            #[cfg(feature = "sha256")]
            2 => Ok(Self::Sha256),
            #[cfg(feature = "blake2b")]
            3 => Ok(Self::Blake2b),
            _ => Err(UnknownChecksum(disk)),
        }
    }
}

impl ChecksumKind {
    /// The number of this kind in the superblock.
    pub const fn to_disk(self) -> u16 {
        match self {
            Self::Crc32c => 0,
            Self::Xxhash64 => 1,
            #[cfg(feature = "sha256")]
            Self::Sha256 => 2,
            #[cfg(feature = "blake2b")]
            Self::Blake2b => 3,
        }
    }

    /// Length of one checksum in bytes.
    pub const fn size(self) -> usize {
        match self {
            Self::Crc32c => 4,
            Self::Xxhash64 => 8,
            #[cfg(feature = "sha256")]
            Self::Sha256 => MAX_SIZE,
            #[cfg(feature = "blake2b")]
            Self::Blake2b => MAX_SIZE,
        }
    }

    /// The name of this kind in mkfs and mount options.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Crc32c => "crc32c",
            Self::Xxhash64 => "xxhash64",
            #[cfg(feature = "sha256")]
            Self::Sha256 => "sha256",
            #[cfg(feature = "blake2b")]
            Self::Blake2b => "blake2b",
        }
    }

    /// The checksum of `data`.
    pub fn compute(self, data: &[u8]) -> Checksum {
        match self {
            Self::Crc32c => Checksum::from((!crc32c_raw(!0, data)).to_le_bytes()),
            Self::Xxhash64 => Checksum::from(xxhash_rust::xxh64::xxh64(data, 0).to_le_bytes()),
            #[cfg(feature = "sha256")]
            Self::Sha256 => Checksum::from(<[u8; 32]>::from(Sha256::digest(data))),
            #[cfg(feature = "blake2b")]
            Self::Blake2b => blake2b_checksum(&blake2b_params().hash(data)),
        }
    }

    /// Calls `out` with the checksum of each block of `data`, in order.
    ///
    /// # Panics
    ///
    /// If `block_size` is zero or `data` is not a whole number of blocks.
    pub fn compute_blocks(self, data: &[u8], block_size: usize, mut out: impl FnMut(Checksum)) {
        assert!(block_size > 0 && data.len().is_multiple_of(block_size), "not whole blocks");
        match self {
            #[cfg(feature = "blake2b")]
            Self::Blake2b => blake2b_blocks(data, block_size, out),
            _ => {
                for block in data.chunks_exact(block_size) {
                    out(self.compute(block));
                }
            }
        }
    }
}

impl fmt::Display for ChecksumKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(feature = "blake2b")]
fn blake2b_params() -> blake2b_simd::Params {
    let mut params = blake2b_simd::Params::new();
    params.hash_length(MAX_SIZE);
    params
}

#[cfg(feature = "blake2b")]
fn blake2b_checksum(hash: &blake2b_simd::Hash) -> Checksum {
    Checksum::from_slice(hash.as_bytes()).expect("the hash length is a checksum's")
}

#[cfg(feature = "blake2b")]
fn blake2b_blocks(data: &[u8], block_size: usize, mut out: impl FnMut(Checksum)) {
    let params = blake2b_params();
    let mut groups = data.chunks_exact(block_size.saturating_mul(LANES));
    for group in groups.by_ref() {
        let mut jobs: [HashManyJob<'_>; LANES] = std::array::from_fn(|lane| {
            HashManyJob::new(&params, &group[lane * block_size..][..block_size])
        });
        hash_many(&mut jobs);
        for job in &jobs {
            out(blake2b_checksum(&job.to_hash()));
        }
    }
    for block in groups.remainder().chunks_exact(block_size) {
        out(blake2b_checksum(&params.hash(block)));
    }
}

/// A checksum as stored on disk.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Checksum {
    bytes: [u8; MAX_SIZE],
    length: u8,
}

impl Checksum {
    /// Reads the stored bytes of a checksum. Returns `None` if no kind has that length.
    pub fn from_slice(stored: &[u8]) -> Option<Self> {
        let length = match stored.len() {
            4 => 4,
            8 => 8,
            MAX_SIZE => 32,
            _ => return None,
        };
        let mut bytes = [0; MAX_SIZE];
        bytes[..stored.len()].copy_from_slice(stored);
        Some(Self { bytes, length })
    }

    /// The stored bytes; their number is the kind's [`size`](ChecksumKind::size).
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl From<[u8; 4]> for Checksum {
    fn from(stored: [u8; 4]) -> Self {
        Self::from_slice(&stored).expect("four bytes are a checksum's length")
    }
}

impl From<[u8; 8]> for Checksum {
    fn from(stored: [u8; 8]) -> Self {
        Self::from_slice(&stored).expect("eight bytes are a checksum's length")
    }
}

impl From<[u8; MAX_SIZE]> for Checksum {
    fn from(bytes: [u8; MAX_SIZE]) -> Self {
        Self { bytes, length: 32 }
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("0x")?;
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: [usize; 4] = [4, 8, 32, 32];
    const NAMES: [&str; 4] = ["crc32c", "xxhash64", "sha256", "blake2b"];

    /// The kinds that this build has, by number.
    fn kinds() -> Vec<ChecksumKind> {
        (0..5).filter_map(|number| ChecksumKind::try_from(number).ok()).collect()
    }

    #[test]
    fn disk_numbers() {
        let optional = OPTIONAL.iter().filter(|(_, _, is_on)| *is_on).count();
        assert_eq!(kinds().len(), 2 + optional);
        for kind in kinds() {
            let number = usize::from(kind.to_disk());
            assert_eq!(ChecksumKind::try_from(kind.to_disk()), Ok(kind));
            assert_eq!(kind.size(), SIZES[number]);
            assert_eq!(kind.name(), NAMES[number]);
        }
        assert_eq!(ChecksumKind::try_from(4), Err(UnknownChecksum(4)));
        assert_eq!(UnknownChecksum(4).to_string(), "unknown checksum type 4");
    }

    #[cfg(not(feature = "sha256"))]
    #[test]
    fn kind_of_a_feature_that_is_off_is_refused_by_name() {
        let refused = ChecksumKind::try_from(2).unwrap_err();
        assert_eq!(refused.to_string(), "checksum type 2 (sha256) needs the feature `sha256`");
    }

    #[test]
    fn known_vectors() {
        let shown = |kind: ChecksumKind, data: &[u8]| kind.compute(data).to_string();
        assert_eq!(shown(ChecksumKind::Crc32c, b"123456789"), "0x839206e3");
        assert_eq!(shown(ChecksumKind::Crc32c, b""), "0x00000000");
        assert_eq!(shown(ChecksumKind::Xxhash64, b""), "0x99e9d85137db46ef");
        assert_eq!(shown(ChecksumKind::Xxhash64, b"abc"), "0x990977adf52cbc44");
        #[cfg(feature = "sha256")]
        assert_eq!(
            shown(ChecksumKind::Sha256, b"abc"),
            "0xba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        #[cfg(feature = "blake2b")]
        assert_eq!(
            shown(ChecksumKind::Blake2b, b"abc"),
            "0xbddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319"
        );
    }

    #[test]
    fn blocks_agree_with_single_checksums() {
        let data: Vec<u8> = (0..=250).cycle().take(512 * 11).collect();
        for kind in kinds() {
            for blocks in 0..=11 {
                let data = &data[..blocks * 512];
                let mut together = Vec::new();
                kind.compute_blocks(data, 512, |checksum| together.push(checksum));
                let apart: Vec<_> = data.chunks(512).map(|block| kind.compute(block)).collect();
                assert_eq!(together, apart, "{kind} {blocks}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "not whole blocks")]
    fn partial_blocks_are_refused() {
        ChecksumKind::Crc32c.compute_blocks(&[0; 700], 512, |_| ());
    }

    #[test]
    fn from_slice_takes_stored_lengths_only() {
        for kind in kinds() {
            let checksum = kind.compute(b"x");
            assert_eq!(checksum.as_bytes().len(), kind.size());
            assert_eq!(Checksum::from_slice(checksum.as_bytes()), Some(checksum));
        }
        for length in [0, 3, 5, 16, 33] {
            assert_eq!(Checksum::from_slice(&[0; 64][..length]), None);
        }
        assert_ne!(Checksum::from([0; 4]), Checksum::from([0; 8]));
    }
}
