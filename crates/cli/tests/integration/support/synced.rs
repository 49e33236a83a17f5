//! Two writers, each of which makes files durable one after the other, with their names.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use userbtrfs_testkit::linux::Linux;

use super::site::Site;

/// Runs both writers until `end` returns; returns the least number of files that one has synced.
pub(crate) fn write_until(folder: &Path, end: impl FnOnce()) -> u64 {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let writers = [0, 1].map(|writer| {
            let is_over = &is_over;
            scope.spawn(move || {
                let mut done = 0;
                while !is_over.load(Ordering::Relaxed) && write(folder, writer, done).is_ok() {
                    done += 1;
                }
                done
            })
        });
        end();
        is_over.store(true, Ordering::Relaxed);
        writers.map(|writer| writer.join().unwrap()).into_iter().min().unwrap()
    })
}

/// Returns true if each writer has fsynced a file, and has begun the next one.
pub(crate) fn has_begun(folder: &Path) -> bool {
    (0..2).all(|writer| name(folder, writer, 1).exists())
}

/// Writes one file, fsyncs it, renames it and fsyncs the directory.
pub(crate) fn write(folder: &Path, writer: u64, number: u64) -> io::Result<()> {
    let new = folder.join(format!("new{writer}"));
    let last = name(folder, writer, number);
    let mut file = File::create(&new)?;
    file.write_all(&content(writer, number))?;
    file.sync_all()?;
    fs::rename(&new, &last)?;
    File::open(folder)?.sync_all()
}

fn content(writer: u64, number: u64) -> Vec<u8> {
    format!("{writer} {number} ").repeat(1 + usize::try_from(number % 3000).unwrap()).into_bytes()
}

fn name(folder: &Path, writer: u64, number: u64) -> PathBuf {
    folder.join(format!("file{writer}-{number}"))
}

/// Checks that `synced` files of each writer are there; the last argument is for messages.
pub(crate) fn check(folder: &Path, synced: u64, who: &str) {
    for (writer, number) in (0..2).flat_map(|writer| (0..synced).map(move |n| (writer, n))) {
        let there = fs::read(name(folder, writer, number)).unwrap();
        assert!(there == content(writer, number), "{who}: {writer} {number}");
    }
}

/// Checks an image that may have a log: Linux replays it in a copy, we in memory.
pub(crate) fn check_image(linux: &Linux, site: &Site, folder: &str, synced: u64) {
    let look = |root: &Path| check(&root.join(folder), synced, "Linux");
    linux.with_copy(&site.image(), &site.made.at("copy"), look).unwrap();

    let ours = site.made.at("ours");
    let within = format!("/{folder}");
    site.made.does("get", &[&within, ours.to_str().unwrap()]);
    check(&ours, synced, "ours");
    fs::remove_dir_all(ours).unwrap();
}
