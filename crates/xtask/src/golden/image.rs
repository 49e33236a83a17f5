//! From a recipe to an image and what Linux says of it.

use std::fs::{self, File};
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use tempfile::TempDir;
use userbtrfs_crashlab::linux::{Access, Linux, LoopDevice, Mount, run};
use userbtrfs_crashlab::walk_linux::walk;

use super::recipe::{Leave, Recipe, Session, Shows};
use super::tree::Tree;
use crate::unpack::ENDING;

/// Compression effort, and the window within which repeats are found, as a power of two.
const LEVEL: i32 = 19;
const WINDOW_LOG: u32 = 27;

/// Where the images of one recipe grow.
struct Site<'a> {
    linux: &'a Linux,
    recipe: &'a Recipe,
    folder: TempDir,
}

/// Makes the image of `recipe` and writes it and what Linux says of it to `out`; with `raw` also
/// uncompressed.
pub(crate) fn make(linux: &Linux, recipe: &Recipe, out: &Path, raw: bool) -> anyhow::Result<()> {
    let folder = tempfile::Builder::new().prefix("userbtrfs-golden-").tempdir()?;
    let site = Site { linux, recipe, folder };
    let image = site.image()?;
    site.print(&image, out)?;
    site.ask_linux(&image, out)?;
    site.judge_complaints()?;
    pack(&image, &out.join(format!("{}{ENDING}", recipe.name)))?;
    if raw {
        let copy = out.join(format!("{}.img", recipe.name));
        copy_sparse(&image, &copy)?;
    }
    Ok(())
}

impl Site<'_> {
    /// Follows the recipe; the finished image is unmounted.
    fn image(&self) -> anyhow::Result<PathBuf> {
        let devices: Vec<_> = (0..self.recipe.devices).map(|n| self.path(&format!("{n}"))).collect();
        for device in &devices {
            File::create(device)?.set_len(self.recipe.size << 20)?;
        }
        let mut mkfs = self.recipe.progs.command("mkfs.btrfs")?;
        run(mkfs.args(["-q", "-U", &id(self.recipe.name)]).args(self.recipe.mkfs).args(&devices))?;
        let image = self.sessions(&devices)?;
        (self.recipe.after)(&image)?;
        Ok(image)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn sessions(&self, devices: &[PathBuf]) -> anyhow::Result<PathBuf> {
        let first = devices[0].clone();
        let Some((last, earlier)) = self.recipe.sessions.split_last() else { return Ok(first) };
        for session in earlier {
            self.session(devices, session, Leave::Clean, &first)?;
        }
        let copy = self.path("live");
        self.session(devices, last, self.recipe.leave, &copy)?;
        Ok(if self.recipe.leave == Leave::Live { copy } else { first })
    }

    fn session(
        &self,
        devices: &[PathBuf],
        (options, fill): &Session,
        leave: Leave,
        copy: &Path,
    ) -> anyhow::Result<()> {
        let attach = |device: &PathBuf| LoopDevice::attach(self.linux, device, Access::ReadWrite);
        let devices_attached = devices.iter().map(attach).collect::<Result<_, _>>()?;
        let mount = Mount::new(devices_attached, options)?;
        let tree = Tree::new(mount.path());
        fill(&tree)?;
        match leave {
            Leave::Live => copy_sparse(&devices[0], copy),
            Leave::Clean => {
                tree.commit()?;
                run(Command::new("fstrim").arg(mount.path())).map(drop)
            }
        }
    }

    /// Has btrfs-progs check and print the image.
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

/// A filesystem id that depends on the name alone.
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
