//! The model compared with Linux: random operations have the same results and effects.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use userbtrfs_testkit::linux::{Linux, btrfs_check, run};
use userbtrfs_testkit::manifest::Mode;
use userbtrfs_testkit::model::Model;
use userbtrfs_testkit::operation::{
    Drivers, Generator, Object, Operation, shrink, simplify, to_text,
};
use userbtrfs_testkit::skip_unless_linux;
use userbtrfs_testkit::target::{self, LinuxTarget, Mismatch};

use super::{is_torture, seed};

const NODE_SIZES: [u32; 3] = [16384, 4096, 65536];
/// Enough for the reservation of a rename with large nodes: a model is never full.
const IMAGE_BYTES: u64 = 1 << 30;
/// The number of operations in a sequence.
const LENGTH: usize = 600;
/// The maximum link count of an inode.
const LINKS_MAX: usize = 65535;

#[test]
fn the_model_answers_as_linux_does() {
    skip_unless_linux!();
    let seed = seed();
    let sequences = if is_torture() { 600 } else { 24 };
    let linux = Linux::lock().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    for (seed, node_size) in (seed..seed + sequences).zip(NODE_SIZES.into_iter().cycle()) {
        let operations: Vec<_> = generator(seed, node_size).take(LENGTH).collect();
        if let Err(mismatch) = compare(&linux, &image, node_size, &operations) {
            println!("{mismatch}\nit is shrunk");
            let fails = |list: &[_]| compare(&linux, &image, node_size, list).is_err();
            let short = simplify(&shrink(&operations, fails), Operation::simpler, fails);
            let last = compare(&linux, &image, node_size, &short);
            panic!("seed {seed}, nodes of {node_size}: {mismatch}\n{last:?}\n{}", to_text(&short));
        }
        btrfs_check(&image).unwrap();
        linux.assert_no_complaints().unwrap();
    }
}

/// Returns a stream that has subvolumes for every second seed.
fn generator(seed: u64, node_size: u32) -> Generator {
    let generator = Generator::new(seed, node_size);
    if seed.is_multiple_of(2) { generator.with_subvolumes(Drivers::Linux) } else { generator }
}

/// One link more than possible, with names in both INODE_REF and INODE_EXTREF items.
#[test]
fn the_model_has_as_many_links_as_linux() {
    skip_unless_linux!();
    let linux = Linux::lock().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let first = Operation::Create { path: "first".into(), mode: Mode::new(0o600) };
    let link =
        |n| Operation::Link { from: Object::Path("first".into()), to: format!("{n}").into() };
    let operations: Vec<_> = [first].into_iter().chain((1..=LINKS_MAX).map(link)).collect();
    let mut model = Model::new(4096);
    let ends: Vec<_> = operations.iter().map(|operation| model.apply(operation)).collect();
    assert_eq!(ends.iter().position(Result::is_err), Some(LINKS_MAX));
    compare(&linux, &folder.path().join("image"), 4096, &operations).unwrap();
}

/// Runs operations on a new image.
fn compare(
    linux: &Linux,
    image: &Path,
    node_size: u32,
    operations: &[Operation],
) -> Result<(), Mismatch> {
    File::create(image).unwrap().set_len(IMAGE_BYTES).unwrap();
    let mut mkfs = Command::new("mkfs.btrfs");
    run(mkfs.args(["-q", "-f", "-n", &node_size.to_string()]).arg(image)).unwrap();
    let mut target = LinuxTarget::new(linux, image).unwrap();
    target::run(&mut target, &mut Model::new(node_size), operations)
}
