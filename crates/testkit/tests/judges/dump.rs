//! Our dumps of every golden image equal those of btrfs-progs, item by item.

use std::fs::{self, File};

use userbtrfs::dump::{self, Format, TreeSelection};
use userbtrfs::{Filesystem, OpenOptions, PendingLog};
use userbtrfs_testkit::dump_compare::{compare, normalize};

use super::{Unpacked, shown};

/// The images with a half-dropped tree: btrfs-progs only show its root, since they stop at the
/// first missing block, while we continue.
const HALF_DROPPED: &[&str] = &["half-dropped", "half-dropped-shared"];

/// Removes the blocks of subvolume 256, which is half dropped, from the dump, except its root. A
/// snapshot of it, which is dumped as another tree, may have some of them.
fn without_what_is_below_a_dropped_root(dump: &str) -> String {
    let mut shown = true;
    let mut is_dropped = false;
    let keep = |line: &&str| {
        if line.starts_with("leaf ") || line.starts_with("node ") {
            // The second line of a block header has no owner, and belongs to the first.
            let below = is_dropped && line.ends_with(" owner 256") && !line.contains(" level 2 ");
            shown = if line.contains(" flags ") { shown } else { !below };
        } else if !line.starts_with(['\t', ' ']) && line.contains(" tree key ") {
            is_dropped = line.contains(" key (256 ROOT_ITEM ");
            shown = true;
        }
        shown
    };
    dump.lines().filter(keep).collect::<Vec<_>>().join("\n")
}

fn our_trees(filesystem: &Filesystem) -> String {
    let mut text = Vec::new();
    let mut damaged = |error: &_| panic!("damaged: {error}");
    let volume = filesystem.volume();
    dump::dump_tree(volume, TreeSelection::All, Format::Text, &mut text, &mut damaged).unwrap();
    String::from_utf8(text).unwrap()
}

fn our_superblock(filesystem: &Filesystem, image: &str) -> String {
    let mut text = Vec::new();
    dump::dump_super(&filesystem.superblock(), image, true, Format::Text, &mut text).unwrap();
    String::from_utf8(text).unwrap()
}

#[test]
fn our_dumps_equal_those_of_btrfs_progs() {
    for (golden, _) in shown() {
        let unpacked = Unpacked::new(&golden);
        let filesystem = OpenOptions::new().pending_log(PendingLog::Leave).open(&unpacked.image);
        let filesystem = filesystem.unwrap();
        let theirs = zstd::decode_all(File::open(golden.beside("tree.zst")).unwrap()).unwrap();
        let mut ours = our_trees(&filesystem);
        if HALF_DROPPED.contains(&golden.name()) {
            ours = without_what_is_below_a_dropped_root(&ours);
        }
        assert!(normalize(&ours).len() > 50, "{}: an empty dump", golden.name());
        assert_eq!(compare(&ours, &theirs), [""; 0], "trees of {}", golden.name());
        let theirs = fs::read(golden.beside("super")).unwrap();
        let ours = our_superblock(&filesystem, &unpacked.image.to_string_lossy());
        assert_eq!(compare(&ours, &theirs), [""; 0], "superblock of {}", golden.name());
    }
}
