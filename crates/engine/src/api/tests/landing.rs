//! What others see and do while data is on its way to the device.

use std::thread;

use userbtrfs_device::Operation;

use super::device::{Failing, Which};
use super::*;

const SECTOR: u64 = 4096;

#[test]
fn what_lands_while_a_hole_is_looked_for_is_none() {
    let device = Failing::new(128);
    let fs = device.open(32 << 20);
    for name in ["file", "behind"] {
        let file = fs.root().create(name.as_bytes(), 0o644).unwrap().open().unwrap();
        for at in (0..1000).step_by(2) {
            file.write_at(&[1; 4096], at * SECTOR).unwrap();
        }
    }
    fs.close().unwrap();
    // The leaves of the extents are not in memory.
    let fs = device.open(32 << 20);
    let file = fs.open_file("file").unwrap();
    file.write_at(&[2; 4096], 801 * SECTOR).unwrap();
    device.hold(Operation::Read, Which::First);
    thread::scope(|scope| {
        let seeking = scope.spawn(|| file.seek_hole(800 * SECTOR).unwrap());
        device.wait_until_held();
        let contents = fs.inner.files.get(file.inode().id()).unwrap();
        fs.inner.writer().unwrap().write_back(&contents).unwrap();
        device.release();
        assert_eq!(seeking.join().unwrap(), 803 * SECTOR);
    });
    drop(file);
    fs.close().unwrap();
}

#[test]
fn what_grows_while_it_is_on_its_way_into_the_tree_leaves_it() {
    let grow: [fn(&File); 2] = [
        |file| file.set_len(10_000).unwrap(),
        |file| assert_eq!(file.write_at(&[3; 10], 9000).unwrap(), 10),
    ];
    for grow in grow {
        let device = Failing::new(128);
        let fs = device.open(32 << 20);
        let file = fs.root().create(b"small", 0o644).unwrap().open().unwrap();
        let other = fs.root().create(b"other", 0o644).unwrap().open().unwrap();
        fs.commit().unwrap();
        file.write_at(&[1; 100], 0).unwrap();
        // Of the same group.
        other.write_at(&[2].repeat(100_000), 0).unwrap();
        device.hold(Operation::Write, Which::First);
        thread::scope(|scope| {
            let committing = scope.spawn(|| fs.commit().unwrap());
            device.wait_until_held();
            grow(&file);
            device.release();
            committing.join().unwrap();
        });
        let size = file.len();
        let extents = file.extents().unwrap();
        let is_inline = |extent: &Extent| extent.kind == ExtentKind::Inline;
        assert!(!extents.iter().any(is_inline), "{extents:?}");
        drop((file, other));
        fs.close().unwrap();
        check(&device.memory);
        let found = device.open(32 << 20).read("small").unwrap();
        assert_eq!((found.len() as u64, &found[..100]), (size, &[1; 100][..]));
    }
}

#[test]
fn many_writers_never_have_more_unfinished_than_the_bound() {
    const WRITERS: usize = 64;
    let device = Failing::new(256);
    let fs = device.open(8 << 20);
    let max = OpenOptions::new().memory(8 << 20).writer().unfinished_max;
    let part = vec![7; 256 << 10];
    let files: Vec<_> = (0..WRITERS)
        .map(|number| fs.root().create(number.to_string().as_bytes(), 0o644).unwrap())
        .collect();
    fs.commit().unwrap();
    device.hold(Operation::Write, Which::All);
    thread::scope(|scope| {
        for inode in &files {
            scope.spawn(|| {
                let file = inode.open().unwrap();
                file.write_all_at(&part, 0).unwrap();
                file.write_all_at(&part, 10 << 20).unwrap();
            });
        }
        // Until more would be too much.
        while fs.inner.files.unfinished_bytes() + max / 8 < max {
            thread::yield_now();
        }
        device.release();
    });
    let peak = fs.inner.files.unfinished_peak();
    assert!(peak > max / 2 && peak <= max, "{peak} of {max}");
    for inode in &files {
        assert!(inode.open().unwrap().read_all().unwrap()[10 << 20..] == part[..]);
    }
    drop(files);
    fs.close().unwrap();
    check(&device.memory);
}
