//! Backs up a subvolume by snapshots: copies each to the host, and keeps the newest of them.
//!
//! ```text
//! cargo run --example snapshot_backup -- new.img backups
//! ```

#![forbid(unsafe_code)]

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use userbtrfs::copy::{Copier, CopyOptions, ImageSource, Progress};
use userbtrfs::{FileKind, Filesystem, OpenOptions, Quoted, SubvolumeInfo, mkfs};

/// The size of the image, which is sparse.
const SIZE: u64 = 1 << 30;
/// The number of snapshots that are kept.
const KEPT: usize = 2;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [image, backups] = &arguments[..] else {
        eprintln!("usage: snapshot_backup IMAGE DIRECTORY");
        return ExitCode::FAILURE;
    };
    if let Err(error) = run(image, Path::new(backups)) {
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn run(image: &str, backups: &Path) -> Result<(), Box<dyn Error>> {
    mkfs::make_image(image, SIZE, &mkfs::Options::default())?;
    std::fs::create_dir(backups)?;
    let filesystem = OpenOptions::new().write(true).open(image)?;
    filesystem.root().create_subvolume(b"data", 0o755)?;
    filesystem.create_dir("/snapshots", 0o700)?;
    filesystem.write("/data/notes", "draft\n")?;
    for day in ["monday", "tuesday", "wednesday"] {
        filesystem.write("/data/report", format!("as of {day}\n"))?;
        snapshot(&filesystem, day)?;
        copy_out(&filesystem, day, &backups.join(day))?;
        rotate(&filesystem)?;
    }
    // No change of the subvolume reaches its snapshots.
    filesystem.remove_file("/data/notes")?;
    filesystem.write("/data/report", "as of thursday\n")?;
    print(&filesystem, b"/data")?;
    for snapshot in snapshots(&filesystem)? {
        print(&filesystem, &[b"/".as_slice(), &snapshot.path].concat())?;
    }
    filesystem.close()?;
    Ok(())
}

/// Makes a read-only snapshot of the subvolume.
fn snapshot(filesystem: &Filesystem, name: &str) -> Result<(), userbtrfs::Error> {
    let source = filesystem.subvolume_at(&filesystem.lookup("/data")?)?;
    // It shares all data with its source, and is durable when the call returns.
    filesystem.open_dir("/snapshots")?.snapshot(name.as_bytes(), source.id, true)?;
    Ok(())
}

/// Copies the files of a snapshot to a new directory of the host.
///
/// The subvolume may be written to meanwhile: the copy has the files of one point in time.
fn copy_out(filesystem: &Filesystem, name: &str, target: &Path) -> Result<(), Box<dyn Error>> {
    let path = format!("/snapshots/{name}");
    let inode = filesystem.lookup(&path)?;
    let progress = Progress::default();
    let copier = Copier::new(CopyOptions::default(), &progress);
    let source = ImageSource { inode: &inode, path: path.as_bytes() };
    copier.get(&source, target, &|error| eprintln!("{error}"));
    if progress.errors() > 0 {
        return Err(format!("{name}: {} files were not copied", progress.errors()).into());
    }
    println!("{name}: {} files, {} bytes", progress.files(), progress.bytes());
    Ok(())
}

/// Deletes the oldest snapshots.
fn rotate(filesystem: &Filesystem) -> Result<(), userbtrfs::Error> {
    let snapshots = snapshots(filesystem)?;
    let dir = filesystem.open_dir("/snapshots")?;
    for snapshot in &snapshots[..snapshots.len().saturating_sub(KEPT)] {
        // Its space is freed in the background; data that others share stays.
        dir.delete_subvolume(&snapshot.name)?;
        println!("{}: deleted", Quoted(&snapshot.name));
    }
    filesystem.commit()
}

/// Returns the snapshots, the oldest first: subvolumes are sorted by id, and ids only grow.
fn snapshots(filesystem: &Filesystem) -> Result<Vec<SubvolumeInfo>, userbtrfs::Error> {
    let mut subvolumes = filesystem.subvolumes()?;
    subvolumes.retain(|subvolume| subvolume.path.starts_with(b"snapshots/"));
    Ok(subvolumes)
}

/// Lists the files below a directory with their content.
fn print(filesystem: &Filesystem, dir: &[u8]) -> Result<(), userbtrfs::Error> {
    for entry in filesystem.walk(dir)? {
        let entry = entry?;
        if entry.kind == FileKind::Regular {
            let content = entry.inode.open()?.read_all()?;
            println!("{}: {}", Quoted(&entry.path), String::from_utf8_lossy(&content).trim_end());
        }
    }
    Ok(())
}
