//! Stored results of stories executed by Linux: the image with its log, and the replayed state.
//!
//! 1. `golden/stories/NAME.img.zst` is the image of the story NAME, executed with the first
//!    sequence of steps that left a log. A story has no image if no sequence leaves a log, or if it
//!    fills the filesystem, as the image would be large.
//! 2. `NAME.manifest` is the state that Linux showed after it replayed the log.
//! 3. `cuts` lists the names with the time of the crash: later times were set by the replay.
//! 4. Existing images are kept: only stories without an image are executed.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use userbtrfs::mkfs::{self, Options};

use super::{Acted, Step, Story, act_by_linux, all, judge_by_linux};
use crate::devices::{SparseDevice, SparseImage};
use crate::golden::{self, ENDING};
use crate::linux::Linux;
use crate::manifest::{Manifest, Time};

/// The compression level, and the window for matches as a power of two.
const LEVEL: i32 = 3;
const WINDOW_LOG: u32 = 27;

/// The file with the names and times.
const CUTS: &str = "cuts";
/// The size of the images, in bytes.
const IMAGE: u64 = 128 << 20;

/// The stored image of a story.
#[derive(Clone, Debug)]
pub struct Kept {
    folder: PathBuf,
    name: String,
    cut: Time,
}

/// Returns the folder of the images.
pub fn folder() -> PathBuf {
    golden::folder().join("stories")
}

impl Kept {
    /// Returns all stored images, by name.
    pub fn all() -> Result<Vec<Self>> {
        Self::all_in(&folder())
    }

    fn all_in(folder: &Path) -> Result<Vec<Self>> {
        let cuts = fs::read_to_string(folder.join(CUTS))?;
        let kept = |line: &str| {
            let (name, cut) = line.split_once(' ').context("a name and a time")?;
            let cut = cut.parse().map_err(anyhow::Error::msg)?;
            Ok(Self { folder: folder.to_owned(), name: name.to_owned(), cut })
        };
        cuts.lines().map(kept).collect()
    }

    /// Returns the time of the crash.
    pub fn cut(&self) -> Time {
        self.cut
    }

    /// Returns the name of the story.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Unpacks the image to the new file `dest`.
    pub fn unpack(&self, dest: &Path) -> Result<()> {
        golden::unpack(&self.folder.join(format!("{}{ENDING}", self.name)), dest)
    }

    /// Returns the state that Linux showed after replay.
    pub fn manifest(&self) -> Result<Manifest> {
        let path = self.folder.join(format!("{}.manifest", self.name));
        Manifest::from_text(&fs::read_to_string(&path)?).with_context(|| self.name.clone())
    }
}

/// Executes the stories without an image in the folder `out` with Linux, and stores the images.
pub fn make(out: &Path) -> Result<()> {
    fs::create_dir_all(out)?;
    let device = SparseDevice::new(IMAGE);
    mkfs::make(&device, &Options::default())?;
    let base = device.image();
    let kept = if out.join(CUTS).exists() { Kept::all_in(out)? } else { Vec::new() };
    let mut cuts = String::new();
    for (name, story) in all() {
        let cut = match kept.iter().find(|kept| kept.name == *name) {
            Some(kept) => Some(kept.cut),
            None => keep(story, &base, out).with_context(|| name.clone())?,
        };
        if let Some(cut) = cut {
            writeln!(cuts, "{name} {cut}")?;
        }
    }
    Ok(fs::write(out.join(CUTS), cuts)?)
}

/// Stores the image of a story if it has a log; returns the time of the crash.
fn keep(story: &Story, base: &SparseImage, out: &Path) -> Result<Option<Time>> {
    let linux = Linux::lock()?;
    let fills = |steps: &&Vec<Step>| steps.iter().any(|step| matches!(step, Step::Fill(_)));
    for steps in story.ways.iter().filter(|steps| !fills(steps)) {
        let acted = act_by_linux(&linux, base, steps)?;
        if acted.has_log() {
            write(&linux, &acted, &out.join(&story.name))?;
            return Ok(Some(acted.cut));
        }
    }
    Ok(None)
}

fn write(linux: &Linux, acted: &Acted, path: &Path) -> Result<()> {
    let seen = judge_by_linux(linux, &acted.image)?;
    fs::write(path.with_extension("manifest"), seen.manifest.to_text())?;
    let file = File::create(path.with_extension(ENDING.trim_start_matches('.')))?;
    let mut encoder = zstd::Encoder::new(file, LEVEL)?;
    encoder.long_distance_matching(true)?;
    encoder.window_log(WINDOW_LOG)?;
    encoder.include_checksum(true)?;
    encoder.write_all(&acted.image.to_bytes())?;
    Ok(encoder.finish()?.flush()?)
}
