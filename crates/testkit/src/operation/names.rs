//! Names of files and xattrs for tests.

use userbtrfs_codec::hash::name_hash;

use crate::random::Random;

/// The polynomial of CRC-32C, bit-reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;
/// The maximum length of a name, in bytes.
pub(super) const NAME_MAX: usize = 255;

/// Returns `count` different names of `len` bytes (8 to 255) with the name hash `hash`, which btrfs
/// uses as the key of directory entries and xattrs. All start with `start`, of at most `len - 8`
/// bytes.
pub fn colliding_names(start: &[u8], len: usize, hash: u32, count: usize) -> Vec<Vec<u8>> {
    assert!((8..=NAME_MAX).contains(&len) && start.len() <= len - 8, "names of {len} bytes");
    let name = |number: u32| {
        let padding = vec![b'-'; len - start.len() - 8];
        // Letters make the names unique: no zero and no slash among them.
        let letters =
            (0..4).map(|digit| b'a' + u8::try_from(number >> (4 * digit) & 15).expect("four bits"));
        with_hash([start, &padding, &letters.collect::<Vec<_>>()].concat(), hash)
    };
    let names: Vec<_> = (0..1 << 16).filter_map(name).take(count).collect();
    assert_eq!(names.len(), count, "so many names");
    names
}

/// Appends four bytes so that the name has this hash; `None` if one of them is not allowed.
fn with_hash(mut name: Vec<u8>, hash: u32) -> Option<Vec<u8>> {
    let last = four_bytes_before(name_hash(&name), hash);
    name.extend(last);
    last.iter().all(|byte| !matches!(byte, 0 | b'/')).then_some(name)
}

/// Returns the bytes that change the CRC register from one state to another: runs the register
/// backwards over four zero bytes; the difference from the first state is the input.
fn four_bytes_before(from: u32, to: u32) -> [u8; 4] {
    let back = (0..32).fold(to, |register, _| match register >> 31 {
        1 => (register ^ POLYNOMIAL) << 1 | 1,
        _ => register << 1,
    });
    (from ^ back).to_le_bytes()
}

/// Returns names for directory entries: usually short, but also of other lengths, with any bytes,
/// and colliding ones.
pub(super) fn pool(random: &mut Random) -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = (b'a'..=b'j').map(|letter| vec![letter]).collect();
    let hash = u32::try_from(random.below(1 << 32)).expect("32 bits");
    names.extend(colliding_names(b"x", 9 + random.index(8), hash, 4));
    names.extend(colliding_names(b"long", NAME_MAX, !hash, 2));
    names.extend([b"\xff\xfe".to_vec(), b"\x01 \n%\"\\\xc3".to_vec(), "gr\u{f6}\u{df}e".into()]);
    names.push(vec![b'm'; 1 + random.index(NAME_MAX)]);
    names.push(vec![0x80; NAME_MAX]);
    names
}

/// Draws the name of an xattr, in any namespace; sometimes one that is rejected.
pub(super) fn xattr(random: &mut Random) -> Vec<u8> {
    const PLAIN: [&[u8]; 8] = [
        b"user.a",
        b"user.b",
        b"user.\xff%",
        b"trusted.a",
        b"trusted.overlay.opaque",
        b"security.name",
        b"security.b",
        b"user.a longer name",
    ];
    const REFUSED: [&[u8]; 6] = [b"", b"user.", b"a", b"other.a", b"trusted.", b"system.a"];
    match random.below(20) {
        0 => REFUSED[random.index(REFUSED.len())].to_vec(),
        1 => [b"user.".as_slice(), &vec![b'n'; 249 + random.index(4)]].concat(),
        2..6 => colliding_names(b"user.", 14, 0x1234_5678, 3).swap_remove(random.index(3)),
        _ => PLAIN[random.index(PLAIN.len())].to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn colliding_names_collide_and_differ() {
        for (start, len, hash) in
            [(&b""[..], 8, 0), (b"user.", 13, !0), (b"some", 100, 0xdead_beef), (b"x", NAME_MAX, 7)]
        {
            let names = colliding_names(start, len, hash, 500);
            assert_eq!(names.iter().collect::<HashSet<_>>().len(), 500);
            for name in names {
                assert_eq!((name_hash(&name), name.len()), (hash, len));
                assert!(name.starts_with(start));
                assert!(!name.contains(&0) && !name.contains(&b'/'));
            }
        }
    }

    #[test]
    fn generated_names_are_valid() {
        for seed in 0..50 {
            for name in pool(&mut Random::new(seed)) {
                assert!((1..=NAME_MAX).contains(&name.len()), "{name:?}");
                assert!(!name.contains(&0) && !name.contains(&b'/') && !name.starts_with(b"."));
            }
        }
    }
}
