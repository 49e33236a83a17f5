//! Makes a file durable in a new image, and shows that the file survives a crash.
//!
//! ```text
//! cargo run --example create_and_fsync -- new.img
//! ```

#![forbid(unsafe_code)]

use std::error::Error;
use std::process::ExitCode;

use userbtrfs::{Filesystem, OpenOptions, PathError, mkfs};

/// The size of the image, which is sparse.
const SIZE: u64 = 1 << 30;

fn main() -> ExitCode {
    let Some(image) = std::env::args().nth(1) else {
        eprintln!("usage: create_and_fsync IMAGE");
        return ExitCode::FAILURE;
    };
    if let Err(error) = run(&image) {
        eprintln!("{image}: {error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn run(image: &str) -> Result<(), Box<dyn Error>> {
    mkfs::make_image(image, SIZE, &mkfs::Options::default())?;
    let filesystem = OpenOptions::new().write(true).open(image)?;
    filesystem.create_dir_all("/var/log", 0o755)?;
    append(&filesystem, "/var/log/journal", "begin\n")?;
    append(&filesystem, "/var/log/journal", "end\n")?;
    // No fsync: this file is lost.
    filesystem.write("/var/log/scratch", "not durable\n")?;
    // The same as a crash of the process.
    filesystem.abandon();

    // An open for reading replays the log in memory.
    let filesystem = Filesystem::open(image)?;
    print!("{}", String::from_utf8_lossy(&filesystem.read("/var/log/journal")?));
    if let Err(error) = filesystem.read("/var/log/scratch") {
        println!("{error}");
    }
    Ok(())
}

/// Appends a line to a file, which is created if it does not exist, and makes it durable.
fn append(filesystem: &Filesystem, path: &str, line: &str) -> Result<(), userbtrfs::Error> {
    let inode = match filesystem.lookup(path) {
        Err(PathError { error: userbtrfs::Error::NotFound, .. }) => {
            let (dir, name) = filesystem.open_parent_of_file(path)?;
            dir.create(&name, 0o644)?
        }
        found => found?,
    };
    let file = inode.open()?;
    file.append(line.as_bytes())?;
    // As fsync(2): it writes a tree log, and does not commit the filesystem.
    file.sync_all()
}
