//! Random operations through a mount, compared with the model that Linux is compared with.

use std::path::{Path, PathBuf};

use userbtrfs_engine::api::OpenOptions;
use userbtrfs_testkit::linux::btrfs_check;
use userbtrfs_testkit::manifest::Manifest;
use userbtrfs_testkit::model::{End, Model};
use userbtrfs_testkit::operation::{Generator, Operation, shrink, simplify, to_text};
use userbtrfs_testkit::target::{self, Directory, Mismatch, Target};
use userbtrfs_testkit::test_env::is_torture;
use userbtrfs_testkit::walk_linux;

use crate::support::{Ours, Site};

/// Operations of one sequence.
const LENGTH: usize = 600;

const NODE_SIZES: [u32; 2] = [16384, 4096];

/// `FS_IMMUTABLE_FL` and `FS_APPEND_FL`: without OPEN a mount cannot refuse to open such a file for
/// writing, and reports the error when the data is written back.
const TOLD_LATE: u32 = 0x10 | 0x20;

/// An image that is mounted by us.
struct OurTarget<'a> {
    site: &'a Site,
    /// None only while it is reopened.
    mounted: Option<(Directory, Ours)>,
}

impl<'a> OurTarget<'a> {
    fn new(site: &'a Site) -> Self {
        Self { mounted: Some(mount(site)), site }
    }

    fn directory(&mut self) -> &mut Directory {
        &mut self.mounted.as_mut().unwrap().0
    }

    fn path(&self) -> PathBuf {
        self.mounted.as_ref().unwrap().1.path().to_owned()
    }

    fn end(&mut self) {
        let (directory, ours) = self.mounted.take().unwrap();
        drop(directory);
        ours.end();
    }
}

fn mount(site: &Site) -> (Directory, Ours) {
    let ours = Ours::new(site, OpenOptions::new().write(true).memory(16 << 20));
    (Directory::open(ours.path()).unwrap(), ours)
}

impl Target for OurTarget<'_> {
    fn apply(&mut self, operation: &Operation) -> End {
        self.directory().apply(operation)
    }

    fn manifest(&mut self) -> Manifest {
        walk_linux::walk(&self.path()).unwrap()
    }

    fn commit(&mut self) {
        self.directory().commit().unwrap();
    }

    fn reopen(&mut self) {
        self.end();
        self.mounted = Some(mount(self.site));
    }
}

#[test]
fn a_mount_answers_as_the_model_does() {
    let Some(site) = Site::new() else { return };
    let seed = std::env::var("USERBTRFS_SEED").map_or(1, |seed| seed.parse().unwrap());
    let sequences = if is_torture() { 200 } else { 12 };
    for (seed, node_size) in (seed..seed + sequences).zip(NODE_SIZES.into_iter().cycle()) {
        let operations: Vec<_> = Generator::new(seed, node_size)
            .for_fuse()
            .take(LENGTH)
            .map(without_told_late)
            .collect();
        if let Err(mismatch) = compare(&site, node_size, &operations) {
            println!("{mismatch}\nit is shrunk");
            let fails = |list: &[_]| compare(&site, node_size, list).is_err();
            let short = simplify(&shrink(&operations, fails), Operation::simpler, fails);
            let last = compare(&site, node_size, &short);
            panic!("seed {seed}, nodes of {node_size}: {mismatch}\n{last:?}\n{}", to_text(&short));
        }
    }
}

fn without_told_late(operation: Operation) -> Operation {
    match operation {
        Operation::SetFlags { object, flags } => {
            Operation::SetFlags { object, flags: flags & !TOLD_LATE }
        }
        other => other,
    }
}

/// Runs operations in a new image and in the model, and compares the results.
fn compare(site: &Site, node_size: u32, operations: &[Operation]) -> Result<(), Mismatch> {
    site.format_with(&["-n", &node_size.to_string()]);
    let mut target = OurTarget::new(site);
    let mut model = Model::new(node_size);
    let done = target::run(&mut target, &mut model, operations);
    target.end();
    done?;
    check(site, &site.image(), &model);
    Ok(())
}

fn check(site: &Site, image: &Path, model: &Model) {
    btrfs_check(image).unwrap();
    let linux = site.with_linux("ro,noatime", |root| walk_linux::walk(root).unwrap());
    let differences = model.differences(&linux);
    assert!(differences.is_empty(), "Linux shows something else: {differences:#?}");
}
