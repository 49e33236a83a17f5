//! Every golden image: we show what Linux showed, attribute by attribute, or refuse with a specific
//! error.

use userbtrfs_testkit::golden::Golden;
use userbtrfs_testkit::manifest::diff;
use userbtrfs_testkit::walk_ours::walk;

use super::ours::retain_unless_shared_ahead;
use super::{Unpacked, assert_none, open, shown};

/// The images in which files share preallocated extents.
const SHARED_AHEAD: &[&str] = &["snapshots"];

/// The images that are refused, and the text of the error.
const REFUSED: &[(&str, &str)] = &[
    ("raid-stripe-tree", "unsupported feature: raid-stripe-tree"),
    ("raid1", "the filesystem has 2 devices, only one is supported"),
    ("sectorsize-16k", "sector size"),
];

#[test]
fn golden_images_show_the_same_as_in_linux() {
    // The result of a replay is checked in `replay`.
    for (golden, linux) in shown().into_iter().filter(|(golden, _)| !golden.has_log()) {
        let unpacked = Unpacked::new(&golden);
        let filesystem = open(&unpacked.image, 256).unwrap();
        let ours = walk(&filesystem).unwrap_or_else(|e| panic!("{}: {e:#}", golden.name()));
        let mut differences = diff(&linux, &ours, &[]);
        if SHARED_AHEAD.contains(&golden.name()) {
            retain_unless_shared_ahead(&mut differences, &linux, &ours);
        }
        assert_none(golden.name(), &differences);
    }
}

#[test]
fn unsupported_image_is_refused_with_specific_error() {
    let all = Golden::all().unwrap();
    let refused: Vec<_> = all.iter().filter(|image| image.manifest().unwrap().is_none()).collect();
    let names: Vec<_> = refused.iter().map(|image| image.name()).collect();
    assert_eq!(names, REFUSED.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    for (image, (_, reason)) in refused.iter().zip(REFUSED) {
        let unpacked = Unpacked::new(image);
        let Err(error) = open(&unpacked.image, 256) else { panic!("{} opens", image.name()) };
        let said = error.to_string();
        assert!(said.contains(reason), "{}: {said}", image.name());
    }
}
