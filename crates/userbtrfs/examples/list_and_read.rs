//! Lists a directory of an image and prints a file of it.
//!
//! ```text
//! cargo run --example list_and_read -- disk.img / /etc/hostname
//! ```

#![forbid(unsafe_code)]

use std::error::Error;
use std::io::{self, Write as _};
use std::process::ExitCode;

use userbtrfs::{Filesystem, Quoted};

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [image, dir, file] = &arguments[..] else {
        eprintln!("usage: list_and_read IMAGE DIRECTORY FILE");
        return ExitCode::FAILURE;
    };
    if let Err(error) = run(image, dir, file) {
        // It says what is wrong and where: damage names the block or sector.
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn run(image: &str, dir: &str, file: &str) -> Result<(), Box<dyn Error>> {
    // No privilege is needed, and nothing is mounted: the image is opened like a file.
    let filesystem = Filesystem::open(image)?;
    // A damaged superblock or a log that was not replayed is no error, but worth knowing.
    for warning in filesystem.warnings() {
        eprintln!("{warning}");
    }
    list(&filesystem, dir)?;
    print(&filesystem, file)
}

/// Prints the size and name of everything in a directory.
fn list(filesystem: &Filesystem, path: &str) -> Result<(), userbtrfs::Error> {
    let dir = filesystem.open_dir(path)?;
    for entry in dir.entries() {
        let entry = entry?;
        let metadata = dir.follow(&entry)?.metadata()?;
        // Names are bytes; `Quoted` shows any of them.
        println!("{:>10}  {}", metadata.size, Quoted(entry.name()));
    }
    Ok(())
}

/// Prints the content of a file.
fn print(filesystem: &Filesystem, path: &str) -> Result<(), Box<dyn Error>> {
    // A reader is a `std::io::Read`, gives verified bytes only, and fetches ahead.
    let mut reader = filesystem.open_file(path)?.reader();
    io::copy(&mut reader, &mut io::stdout().lock())?;
    io::stdout().flush()?;
    Ok(())
}
