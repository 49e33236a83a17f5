//! The mounted image in the demo: the machine's own tools work in it.
//!
//! They do the same work in the directory, so both must be equal.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Result, ensure};
use userbtrfs_testkit::linux;
use userbtrfs_testkit::test_env::until_mounted;
use userbtrfs_testkit::walk_linux::walk;

use super::command::{Demo, Extracted, find_program, is_superuser, show_beginning};
use super::verify::verify;

/// The commands to run, in the mount and in the directory.
const WORK: &str = "mkdir -m 755 by-mount; cp -a edited/[cm]o* by-mount; \
    seq 100000 >by-mount/written; ln by-mount/written by-mount/linked; sync by-mount/written; \
    tar -cSf - --exclude=changed edited | tar -xf - -C by-mount; mv by-mount/edited by-mount/again";

/// Mounts the image if possible, and changes it and the directory.
pub(super) fn show(demo: &Demo, image: &Path, source: &Path) -> Result<()> {
    if let Some(lack) = lack() {
        println!("\nIt is not mounted: {lack}.");
        return Ok(());
    }
    let point = demo.path("mnt");
    std::fs::create_dir(&point)?;
    let mut server = mount(demo, image, &point)?;
    let shown = work(demo, &point, source);
    let unmounted = unmount(&point);
    shown.and(unmounted)?;
    // All data is durable when the server has ended.
    let status = server.wait()?;
    ensure!(status.success(), "userbtrfs mount: {status}");
    println!("\n$ umount mnt");
    Ok(())
}

fn lack() -> Option<&'static str> {
    if !Path::new("/dev/fuse").exists() {
        return Some("there is no /dev/fuse");
    }
    if File::options().read(true).write(true).open("/dev/fuse").is_err() {
        return Some("/dev/fuse is closed to this user");
    }
    let can = is_superuser() || find_program("fusermount3").is_some();
    (!can).then_some("fusermount3 is not here")
}

fn mount(demo: &Demo, image: &Path, point: &Path) -> Result<Child> {
    println!("\n$ userbtrfs mount {} mnt", demo.short(image));
    let mut command = Command::new(&demo.program);
    command.args(["mount", "-f"]).arg(image).arg(point).stdin(Stdio::null());
    let mut server = command.spawn()?;
    until_mounted("userbtrfs mount", &mut server, point)?;
    Ok(server)
}

fn unmount(point: &Path) -> Result<()> {
    let mut command =
        if is_superuser() { Command::new("umount") } else { Command::new("fusermount3") };
    if !is_superuser() {
        command.arg("-u");
    }
    linux::run(command.arg(point)).map(drop)
}

/// Runs the commands in both, and compares them.
fn work(demo: &Demo, point: &Path, source: &Path) -> Result<()> {
    let shell = |script: &str, directory: &Path| {
        linux::run(Command::new("sh").args(["-ec", script]).current_dir(directory))
    };
    println!("$ cd mnt; {WORK}");
    shell(WORK, point)?;
    shell(WORK, source)?;
    println!("$ ls -l mnt; df -h mnt");
    let listed = shell("ls -l; df -h .", point)?;
    show_beginning(&String::from_utf8_lossy(&listed.stdout));
    println!("\nThe mount shows");
    let mounted = Extracted { folder: point.to_owned(), all_kept: true, time: None };
    verify("the directory", &walk(source)?, &mounted, demo.begun)
}
