//! Names with colliding hashes, of any length, so that their entries share one item of the tree.

use userbtrfs_codec::hash::name_hash;

/// The number of bytes at the end that determine the hash.
const TAIL: usize = 4;

/// Returns the name of this number and length in bytes (at least 20 more than the prefix); all such
/// names have the same hash.
///
/// # Panics
///
/// If the name is too short for its number.
pub fn alike(prefix: &str, number: usize, length: usize) -> Vec<u8> {
    let mut names = (0..).map(|turn| {
        let start = format!("{prefix}{number}_{turn}_");
        let mut name = format!("{start:x<width$}", width = length - TAIL).into_bytes();
        let tail = tail_to(&name, name_hash(b"as this one"));
        name.extend(tail);
        assert_eq!(name.len(), length);
        name
    });
    let is_name = |name: &Vec<u8>| !name.contains(&0) && !name.contains(&b'/');
    names.find(is_name).expect("most are names")
}

/// Returns the four bytes that give a name this hash: each bit of them flips a fixed set of bits of
/// the hash, and the sets are combined (by XOR) to the required change.
fn tail_to(start: &[u8], hash: u32) -> [u8; TAIL] {
    let with = |tail: u32| name_hash(&[start, &tail.to_le_bytes()[..]].concat());
    let zero = with(0);
    // By highest bit: a change of the hash, and the bits of the tail that make it.
    let mut basis = [(0_u32, 0_u32); 32];
    let top = |change: u32| change.ilog2() as usize;
    for bit in 0..32 {
        let mut change = with(1 << bit) ^ zero;
        let mut bits = 1 << bit;
        while change != 0 && basis[top(change)].0 != 0 {
            let (other, its) = basis[top(change)];
            change ^= other;
            bits ^= its;
        }
        basis[top(change)] = (change, bits);
    }
    let mut change = zero ^ hash;
    let mut tail = 0;
    while change != 0 {
        let (other, bits) = basis[top(change)];
        change ^= other;
        tail ^= bits;
    }
    tail.to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ_and_hash_alike() {
        let names = [("", 0, 20), ("", 1, 20), ("user.", 1, 40), ("", 99, 255)];
        let names = names.map(|(prefix, number, length)| alike(prefix, number, length));
        for (at, name) in names.iter().enumerate() {
            assert_eq!(name_hash(name), name_hash(b"as this one"));
            assert!(!names[..at].contains(name));
        }
        assert!(names[2].starts_with(b"user."));
        assert_eq!(names.map(|name| name.len()), [20, 20, 40, 255]);
    }
}
