//! Copies a directory of the host into an image, below a name that is new for each backup.
//!
//! ```text
//! cargo run --example backup -- documents disk.img 2026-01-31
//! ```

#![forbid(unsafe_code)]

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use userbtrfs::OpenOptions;
use userbtrfs::copy::{Copier, CopyOptions, ImageTarget, Progress};

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [source, image, name] = &arguments[..] else {
        eprintln!("usage: backup DIRECTORY IMAGE NAME");
        return ExitCode::FAILURE;
    };
    match run(source, image, name) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(errors) => {
            eprintln!("{errors} files were not copied");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Copies the tree, and returns the number of failures.
fn run(source: &str, image: &str, name: &str) -> Result<u64, Box<dyn Error>> {
    let filesystem = OpenOptions::new().write(true).open(image)?;
    filesystem.create_dir_all("/backups", 0o700)?;
    // A backup of this name that exists is not changed.
    let target = filesystem.open_dir("/backups")?.create_dir(name.as_bytes(), 0o700)?;
    let progress = Progress::default();
    // The defaults keep owners, times, extended attributes and hard links, as `cp -a` does. A file
    // that fails is reported, and the copy continues.
    let copier = Copier::new(CopyOptions::default(), &progress);
    let path = format!("/backups/{name}");
    let place = ImageTarget { dir: &target, name: None, path: path.as_bytes() };
    copier.put(Path::new(source), &place, &|error| eprintln!("{error}"));
    drop(target);
    // One commit makes the whole backup durable.
    filesystem.close()?;
    println!("{} files, {} bytes", progress.files(), progress.bytes());
    Ok(progress.errors())
}
