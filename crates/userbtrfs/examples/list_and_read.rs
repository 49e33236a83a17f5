//! Lists a directory of an image and prints a file of it.
//!
//! ```text
//! cargo run --example list_and_read -- disk.img / /etc/hostname
//! ```

use std::io::{self, Write as _};

use userbtrfs::{Error, Filesystem, Quoted};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(image), Some(dir), Some(file)) =
        (arguments.next(), arguments.next(), arguments.next())
    else {
        return Err("usage: list_and_read IMAGE DIRECTORY FILE".into());
    };
    // No privilege is needed, and nothing is mounted: the image is opened like a file.
    let filesystem = Filesystem::open(image)?;
    // A damaged superblock or a log that was not replayed is no error, but worth knowing.
    for notice in filesystem.notices() {
        eprintln!("{notice}");
    }
    list(&filesystem, &dir)?;
    print(&filesystem, &file)
}

/// Prints the size and name of everything in a directory.
fn list(filesystem: &Filesystem, path: &str) -> Result<(), Error> {
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
fn print(filesystem: &Filesystem, path: &str) -> Result<(), Box<dyn std::error::Error>> {
    // A reader is a `std::io::Read`, gives verified bytes only, and fetches ahead.
    let mut reader = filesystem.open_file(path)?.reader();
    io::copy(&mut reader, &mut io::stdout().lock())?;
    io::stdout().flush()?;
    Ok(())
}
