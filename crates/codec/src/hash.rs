//! The hashes used in btrfs keys.
//!
//! 1. All are built from the raw CRC-32C register, independent of the filesystem's checksum kind.
//! 2. "Raw" means neither the seed nor the result is inverted.

use crc_fast::{CrcAlgorithm, Digest};

/// The seed of a name's hash.
const NAME_SEED: u32 = !1;

/// Computes the CRC-32C register over `data`, starting at `seed`, without any inversion.
pub fn crc32c_raw(seed: u32, data: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(seed));
    digest.update(data);
    !low_half(digest.finalize())
}

/// The key offset of a directory or xattr item: the hash of its name.
pub fn name_hash(name: &[u8]) -> u32 {
    crc32c_raw(NAME_SEED, name)
}

/// The key offset of an extended inode reference: `name` hashed with the low half of the number of
/// the parent directory as seed.
pub fn extref_hash(parent: u64, name: &[u8]) -> u64 {
    u64::from(crc32c_raw(low_half(parent), name))
}

/// The key offset of a data extent's reference: by subvolume, inode and file offset.
pub fn extent_data_ref_hash(root: u64, inode: u64, offset: u64) -> u64 {
    let high = crc32c_raw(!0, &root.to_le_bytes());
    let low = crc32c_raw(crc32c_raw(!0, &inode.to_le_bytes()), &offset.to_le_bytes());
    (u64::from(high) << 31) ^ u64::from(low)
}

fn low_half(value: u64) -> u32 {
    let [a, b, c, d, ..] = value.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes the register bit by bit from the polynomial.
    fn slow_register(seed: u32, data: &[u8]) -> u32 {
        data.iter().fold(seed, |register, &byte| {
            (0..8).fold(register ^ u32::from(byte), |r, _| {
                if r & 1 == 1 { (r >> 1) ^ 0x82f6_3b78 } else { r >> 1 }
            })
        })
    }

    #[test]
    fn raw_register_matches_the_polynomial() {
        let data: Vec<u8> = (0..=255).cycle().take(700).collect();
        for length in [0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 64, 127, 255, 256, 300, 700] {
            for seed in [0, 1, !0, !1, 0x1234_5678] {
                let data = &data[..length];
                assert_eq!(crc32c_raw(seed, data), slow_register(seed, data), "{length} {seed}");
            }
        }
    }

    #[test]
    fn raw_register_continues() {
        let whole = crc32c_raw(!0, b"123456789");
        assert_eq!(!whole, 0xe306_9283);
        assert_eq!(crc32c_raw(crc32c_raw(!0, b"1234"), b"56789"), whole);
        assert_eq!(crc32c_raw(77, b""), 77);
    }

    #[test]
    fn name_of_the_default_subvolume() {
        assert_eq!(name_hash(b"default"), 2_378_154_706);
    }

    #[test]
    fn extref_seed_is_the_low_half_of_the_parent() {
        let expected = u64::from(slow_register(257, b"name"));
        assert_eq!(extref_hash(257, b"name"), expected);
        assert_eq!(extref_hash(0x9_0000_0101, b"name"), expected);
    }

    #[test]
    fn data_ref_halves_overlap_by_one_bit() {
        let high = u64::from(slow_register(!0, &5u64.to_le_bytes()));
        let mut inode_and_offset = 257u64.to_le_bytes().to_vec();
        inode_and_offset.extend(4096u64.to_le_bytes());
        let low = u64::from(slow_register(!0, &inode_and_offset));
        assert_eq!(extent_data_ref_hash(5, 257, 4096), (high << 31) ^ low);
    }
}
