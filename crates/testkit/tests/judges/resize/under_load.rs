//! Shrinking while files are created, synced and cloned: a crash at any write.
//!
//! 1. What was there before is in every state, and shared as before.
//! 2. A file whose sync returned is in every later state, with its content.
//! 3. A clone has the start of its source's content, in steps.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::*;
use crate::seed;

/// The states that are tried, unless all are.
const STATES: usize = 60;
/// The length of a file that is synced.
const SYNCED: usize = 12_000;
/// The numbers of clones that are replaced again and again.
const CLONES: usize = 4;

/// A file whose sync returned: its number, and the number of events on the device by then.
struct Synced {
    number: u32,
    events: usize,
}

/// Creates and syncs files until `is_over`.
fn sync_files(
    filesystem: &Filesystem,
    device: &RecordingDevice,
    is_over: &AtomicBool,
) -> Vec<Synced> {
    let mut synced = Vec::new();
    for number in 0.. {
        let name = format!("synced-{number}");
        let file = filesystem.root().create(name.as_bytes(), 0o644).unwrap().open().unwrap();
        file.write_all_at(&pattern::bytes(number, 0, SYNCED), 0).unwrap();
        file.sync_all().unwrap();
        synced.push(Synced { number, events: device.count() });
        if is_over.load(Ordering::Relaxed) {
            break;
        }
    }
    synced
}

/// Clones files of the source until `is_over`.
fn clone_files(filesystem: &Filesystem, is_over: &AtomicBool) {
    for number in (0..CLONES).cycle() {
        let source = filesystem.open_file(format!("/source/file-{number}")).unwrap();
        let name = format!("clone-{number}");
        let _none = filesystem.root().remove_file(name.as_bytes());
        let clone = filesystem.root().create(name.as_bytes(), 0o644).unwrap().open().unwrap();
        clone.clone_range(&source, 0, 0, 0).unwrap();
        clone.sync_all().unwrap();
        if is_over.load(Ordering::Relaxed) {
            break;
        }
    }
}

/// Checks what a state shows.
fn check(what: &str, state: &Filesystem, before: &Filesystem, completed: usize, synced: &[Synced]) {
    let shown = shown(state);
    let base = super::shown(before);
    for dir in [&b"/source"[..], b"/snapshot"] {
        assert_none(what, &diff(&base.below(dir), &shown.below(dir), &[]));
    }
    for Synced { number, .. } in synced.iter().filter(|it| it.events <= completed) {
        let found = state.read(format!("/synced-{number}")).unwrap();
        assert!(found == pattern::bytes(*number, 0, SYNCED), "{what}: file {number}");
    }
    for number in 0..CLONES {
        let Ok(found) = state.read(format!("/clone-{number}")) else { continue };
        let source = state.read(format!("/source/file-{number}")).unwrap();
        assert!(source.starts_with(&found), "{what}: clone {number}");
    }
}

#[test]
fn cut_resize_under_load_keeps_what_is_durable() {
    skip_unless_linux!();
    let linux = Linux::lock().unwrap();
    let base = filled(&Options::default(), 500 * MIB, 20 << 20);
    let before = open_device(Arc::new(base.to_device())).unwrap();
    let device = Arc::new(RecordingDevice::on(&base));
    let filesystem = options().open_devices(vec![device.clone()]).unwrap();
    let is_over = AtomicBool::new(false);
    let synced = thread::scope(|scope| {
        let filesystem = &filesystem;
        let device = &device;
        let is_over = &is_over;
        let syncing = scope.spawn(move || sync_files(filesystem, device, is_over));
        let cloning = scope.spawn(move || clone_files(filesystem, is_over));
        let resized = filesystem.resize(NewSize::Bytes(400 * MIB), ImageLength::Keep);
        is_over.store(true, Ordering::Relaxed);
        cloning.join().unwrap();
        assert_eq!(resized.unwrap(), 400 * MIB);
        syncing.join().unwrap()
    });
    filesystem.abandon();
    let recording = device.recording();
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let choice = if is_torture() {
        Choice::EveryPrefix
    } else {
        Choice::Sample { seed: seed(), count: STATES }
    };
    for (number, state) in states(&recording, choice).enumerate() {
        let what = format!("{} events", state.completed);
        let opened = open_device(Arc::new(state.image.to_device()));
        let opened = opened.unwrap_or_else(|error| panic!("{what}: {error}"));
        check(&what, &opened, &before, state.completed, &synced);
        if number % CHECKED != 0 && !is_torture() {
            continue;
        }
        state.image.write_to(&image).unwrap();
        btrfs_check(&image).unwrap_or_else(|error| panic!("{what}: {error:#}"));
        if number % JUDGED == 0 {
            // Linux replays the log.
            commit_by_linux(&linux, &image);
            let replayed = options().write(false).open(&image).unwrap();
            check(&what, &replayed, &before, state.completed, &synced);
            judge_by_linux(&linux, &what, &image);
            linux.scrub(&image).unwrap_or_else(|error| panic!("{what}: {error:#}"));
        }
        fs::remove_file(&image).unwrap();
    }
    linux.assert_no_complaints().unwrap();
}
