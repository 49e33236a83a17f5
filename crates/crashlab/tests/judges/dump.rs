//! Every golden image: our dumps are those of btrfs-progs, item by item.

use std::fs::{self, File};

use userbtrfs::dump::{self, Format, TreeSelection};
use userbtrfs::Filesystem;
use userbtrfs_crashlab::dump_compare::{compare, normalize};

use super::{Unpacked, open, shown};

fn our_trees(filesystem: &Filesystem) -> String {
    let mut text = Vec::new();
    let mut damaged = |error: &_| panic!("damaged: {error}");
    let volume = filesystem.volume();
    dump::dump_tree(volume, TreeSelection::All, Format::Text, &mut text, &mut damaged).unwrap();
    String::from_utf8(text).unwrap()
}

fn our_superblock(filesystem: &Filesystem, image: &str) -> String {
    let mut text = Vec::new();
    dump::dump_super(filesystem.superblock(), image, true, Format::Text, &mut text).unwrap();
    String::from_utf8(text).unwrap()
}

#[test]
fn ours_are_those_of_btrfs_progs() {
    for (golden, _) in shown() {
        let unpacked = Unpacked::new(&golden);
        let filesystem = open(&unpacked.image, 4).unwrap();
        let theirs = zstd::decode_all(File::open(golden.beside("tree.zst")).unwrap()).unwrap();
        let ours = our_trees(&filesystem);
        assert!(normalize(&ours).len() > 50, "{}: an empty dump", golden.name());
        assert_eq!(compare(&ours, &theirs), [""; 0], "trees of {}", golden.name());
        let theirs = fs::read(golden.beside("super")).unwrap();
        let ours = our_superblock(&filesystem, &unpacked.image.to_string_lossy());
        assert_eq!(compare(&ours, &theirs), [""; 0], "superblock of {}", golden.name());
    }
}
