//! The memory bound: the smallest that is allowed is enough for everything.

use userbtrfs::{Error, OpenOptions, PathError};
use userbtrfs_testkit::golden::Golden;

use crate::support::golden::Unpacked;
use crate::support::shown::shown;

const LEAST: u64 = 4 << 20;

#[test]
fn the_least_memory_is_enough_for_every_golden_image() {
    let all = Golden::all().unwrap();
    assert!(all.len() > 30, "only {} golden images", all.len());
    for golden in all.iter().filter(|golden| golden.beside("manifest").exists()) {
        let unpacked = Unpacked::of(golden);
        let open = |options: &OpenOptions| shown(&options.open(unpacked.path()).unwrap()).unwrap();
        let usual = open(&OpenOptions::new());
        assert!(usual.len() > 1 || golden.name() == "fresh", "{}", golden.name());
        assert!(open(OpenOptions::new().memory(LEAST)) == usual, "{}", golden.name());
    }
}

/// Files are larger than the cache; reads at random offsets are always right.
#[test]
fn reads_at_random_places_are_right_with_the_least_memory() {
    let unpacked = Unpacked::new("basic");
    let filesystem = OpenOptions::new().memory(LEAST).open(unpacked.path()).unwrap();
    let files: Vec<_> = filesystem
        .walk("/")
        .unwrap()
        .map(|entry| entry.unwrap().inode)
        .filter_map(|inode| inode.open().ok())
        .map(|file| (file.read_all().unwrap(), file))
        .collect();
    let mut place = 1usize;
    for turn in 0..3000 {
        let (whole, file) = &files[turn % files.len()];
        place =
            place.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let start = (place >> 20) % (whole.len() + 1);
        let mut part = vec![0; (place >> 8) % 20_000];
        let len = file.read_at(&mut part, start as u64).unwrap();
        assert_eq!(len, part.len().min(whole.len() - start));
        assert!(part[..len] == whole[start..][..len], "{len} bytes at {start}");
    }
}

#[test]
fn memory_below_the_minimum_is_refused() {
    let unpacked = Unpacked::new("fresh");
    for bytes in [0, 1, LEAST - 1] {
        let error = OpenOptions::new().memory(bytes).open(unpacked.path()).err().unwrap();
        assert!(
            matches!(error, PathError { error: Error::MemoryBound(found), .. } if found == bytes)
        );
        assert!(error.to_string().contains(&bytes.to_string()));
    }
    OpenOptions::new().memory(u64::MAX).open(unpacked.path()).unwrap().root();
}
