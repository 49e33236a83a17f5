//! Makes an image by a recipe, and the files that describe it.

use std::fs::{self, File};
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use userbtrfs_testkit::golden::ENDING;
use userbtrfs_testkit::linux::{Access, Linux, LoopDevice, Mount, run};
use userbtrfs_testkit::walk_linux::walk;

use super::recipe::{Leave, Recipe, Session, Shows};
use super::tree::Tree;

/// The compression level and the window log of zstd.
const LEVEL: i32 = 19;
const WINDOW_LOG: u32 = 27;

/// A recipe, and the folder in which its images are made.
struct Site<'a> {
    linux: &'a Linux,
    recipe: &'a Recipe,
    folder: &'a Path,
}

/// Makes the image of `recipe`, and writes it and the files that describe it to `out`; with `raw`
/// also uncompressed. The lock on Linux is released before the results are compressed.
pub(crate) fn make(recipe: &Recipe, out: &Path, raw: bool) -> anyhow::Result<()> {
    let folder = tempfile::Builder::new().prefix("userbtrfs-golden-").tempdir()?;
    let linux = Linux::lock()?;
    let site = Site { linux: &linux, recipe, folder: folder.path() };
    let image = site.image_by_tries()?;
    site.print(&image, out)?;
    site.ask_linux(&image, out)?;
    site.judge_complaints()?;
    drop(linux);
    pack(&image, &out.join(format!("{}{ENDING}", recipe.name)))?;
    if raw {
        copy_sparse(&image, &out.join(format!("{}.img", recipe.name)))?;
    }
    Ok(())
}

impl Site<'_> {
    fn image_by_tries(&self) -> anyhow::Result<PathBuf> {
        for left in (0..self.recipe.tries).rev() {
            match self.image() {
                Err(error) if left > 0 => println!("once more: {error:#}"),
                result => return result,
            }
        }
        unreachable!("the last try returns")
    }

    /// Follows the recipe; returns the path of the unmounted image.
    fn image(&self) -> anyhow::Result<PathBuf> {
        let mut devices: Vec<_> =
            (0..self.recipe.devices).map(|number| self.path(&format!("device{number}"))).collect();
        for device in &devices {
            File::create(device)?.set_len(self.recipe.size << 20)?;
        }
        let mut mkfs = self.recipe.progs.command("mkfs.btrfs")?;
        run(mkfs.args(["-q", "-U", &id(self.recipe.name)]).args(self.recipe.mkfs).args(&devices))?;
        for session in self.recipe.sessions {
            self.session(session, &mut devices)?;
        }
        let image = devices.swap_remove(0);
        (self.recipe.after)(&image)?;
        Ok(image)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn session(&self, session: &Session, devices: &mut [PathBuf]) -> anyhow::Result<()> {
        let attach = |device: &PathBuf| LoopDevice::attach(self.linux, device, Access::ReadWrite);
        let attached = devices.iter().map(attach).collect::<Result<_, _>>()?;
        let mount = Mount::new(attached, session.options)?;
        let tree = Tree::new(mount.path());
        (session.fill)(&tree)?;
        match session.leave {
            Leave::AtOnce => {}
            Leave::Clean => {
                tree.commit()?;
                run(Command::new("fstrim").arg(mount.path()))?;
            }
            Leave::Crash => {
                let copy = self.path("crashed");
                copy_sparse(&devices[0], &copy)?;
                devices[0] = copy;
            }
        }
        Ok(())
    }

    /// Checks and prints the image with btrfs-progs.
    fn print(&self, image: &Path, out: &Path) -> anyhow::Result<()> {
        let btrfs = |arguments: &[&str]| {
            run(self.recipe.progs.command("btrfs")?.args(arguments).arg(image))
        };
        let name = |ending: &str| out.join(format!("{}.{ending}", self.recipe.name));
        let inspect = "inspect-internal";
        fs::write(name("super"), btrfs(&[inspect, "dump-super", "-f"])?.stdout)?;
        if self.recipe.shows != Shows::Nothing {
            btrfs(&["check", "--readonly"])?;
            let tree = self.path("tree");
            fs::write(&tree, btrfs(&[inspect, "dump-tree"])?.stdout)?;
            pack(&tree, &name("tree.zst"))?;
        }
        Ok(())
    }

    /// Writes the manifests.
    fn ask_linux(&self, image: &Path, out: &Path) -> anyhow::Result<()> {
        match self.recipe.shows {
            Shows::Nothing => Ok(()),
            Shows::Content => self.manifest(image, "", out, "manifest"),
            Shows::Log => {
                self.manifest(image, ",rescue=nologreplay", out, "noreplay.manifest")?;
                let replayed = self.path("replayed");
                copy_sparse(image, &replayed)?;
                drop(self.linux.mount(&replayed, "noatime")?);
                self.manifest(&replayed, "", out, "manifest")
            }
        }
    }

    fn manifest(&self, image: &Path, more: &str, out: &Path, ending: &str) -> anyhow::Result<()> {
        let mount = self.linux.mount(image, &format!("ro,noatime,subvolid=5{more}"))?;
        let text = walk(mount.path())?.to_text();
        Ok(fs::write(out.join(format!("{}.{ending}", self.recipe.name)), text)?)
    }

    fn judge_complaints(&self) -> anyhow::Result<()> {
        let known = |line: &String| self.recipe.complaints.iter().any(|part| line.contains(part));
        let lines = self.linux.complaints()?;
        let unknown: Vec<_> = lines.into_iter().filter(|line| !known(line)).collect();
        ensure!(unknown.is_empty(), "Linux complains:\n{}", unknown.join("\n"));
        Ok(())
    }
}

/// Returns a filesystem id that only depends on the name.
fn id(name: &str) -> String {
    let hash = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, name.as_bytes());
    format!("{hash:08x}-0000-4000-8000-676f6c64656e")
}

fn copy_sparse(from: &Path, to: &Path) -> anyhow::Result<()> {
    let copy = ["--sparse=always", "--reflink=never"];
    run(Command::new("cp").args(copy).arg(from).arg(to)).map(drop)
}

fn pack(from: &Path, to: &Path) -> anyhow::Result<()> {
    let file = File::create(to).with_context(|| to.display().to_string())?;
    let mut encoder = zstd::Encoder::new(file, LEVEL)?;
    encoder.long_distance_matching(true)?;
    encoder.window_log(WINDOW_LOG)?;
    encoder.include_checksum(true)?;
    io::copy(&mut BufReader::new(File::open(from)?), &mut encoder)?;
    Ok(encoder.finish()?.flush()?)
}
