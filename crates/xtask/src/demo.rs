//! The verb `demo`: shows the command `userbtrfs` on real images, and verifies every file.
//!
//! 1. If there is `mkfs.btrfs`, it makes an image of part of a real directory, which is listed,
//!    extracted and compared with that directory. No privilege is needed.
//! 2. The command makes its own image of that directory, changes it, mounts it if there is FUSE,
//!    and copies it out again; `btrfs check` and Linux check it if they are available.
//! 3. Every golden image is unpacked, extracted and compared with its manifest, made by Linux.
//! 4. Images named on the command line are listed and extracted, without a comparison.
//! 5. All files are made in one temporary folder, which is removed at the end.
//!
//! The demo calls the command as a user does, and reads no image itself.

mod command;
mod golden;
mod mounted;
mod tree;
mod verify;
mod written;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, ensure};
use command::{Demo, find_program, is_superuser};
use userbtrfs_testkit::walk_linux::walk;
use verify::verify;

/// The size of the tree in the image made here, in bytes.
const TREE_BYTES: u64 = 48 << 20;

/// The options of `demo`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Images to show instead of those that the demo makes.
    images: Vec<PathBuf>,
    /// The command to show (default: the one built beside this program).
    #[arg(long)]
    userbtrfs: Option<PathBuf>,
}

/// Runs the demo; returns an error if any file differs.
pub(crate) fn run(args: &Args) -> Result<()> {
    let demo = Demo::new(args.userbtrfs.as_deref())?;
    let start = Instant::now();
    for image in &args.images {
        demo.list(image)?;
        demo.extract(image)?;
    }
    if args.images.is_empty() {
        let source = demo.path("source");
        let copied = tree::copy_some(&source, TREE_BYTES)?;
        println!("A directory with {copied}");
        show_fresh(&demo, &source)?;
        written::show(&demo, &source)?;
        golden::show(&demo)?;
    }
    println!("\nAll of it in {:.1} s.", start.elapsed().as_secs_f64());
    Ok(())
}

/// Makes an image with `mkfs.btrfs` and reads it, if that program exists.
fn show_fresh(demo: &Demo, source: &Path) -> Result<()> {
    let Some(mkfs) = find_program("mkfs.btrfs") else {
        println!("mkfs.btrfs is not here.");
        return Ok(());
    };
    println!("An image of it by mkfs.btrfs");
    let image = demo.path("made-here.img");
    if let Err(error) = make_image(&mkfs, source, &image) {
        // It looks at all loop devices, also at those of others, which fails for ordinary users.
        ensure!(!is_superuser(), "{error}");
        println!("Skipped: {error:#}");
        return Ok(());
    }

    demo.list(&image)?;
    let extracted = demo.extract(&image)?;
    verify("the directory", &walk(source)?, &extracted, demo.begun)
}

fn make_image(mkfs: &Path, source: &Path, image: &Path) -> Result<()> {
    std::fs::File::create(image)?.set_len(512 << 20)?;
    let output = Command::new(mkfs).arg("--rootdir").arg(source).arg(image).output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {errors}", mkfs.display());
    Ok(())
}
