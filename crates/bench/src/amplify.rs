//! Write amplification: the bytes that reach the device for small appends, each with an fsync.
//!
//! 1. The filesystem is on a loop device, whose statistics count the bytes written between the
//!    first append and the last fsync.
//! 2. Linux mounts the library's result and must find the file with its full length.

use std::fs;

use anyhow::{Result, ensure};
use userbtrfs::OpenOptions;
use userbtrfs_testkit::linux::{Access, LoopDevice, Mount};

use crate::bench::Bench;
use crate::case::Step;
use crate::durable::Durable;
use crate::fresh::Fresh;
use crate::report::Amount;
use crate::sample::{Sample, timed};
use crate::target::Target;

/// The size of an append, in bytes.
const PART: u64 = 4 << 10;
/// The size of the filesystem, in bytes.
const IMAGE: u64 = 2 << 30;
const FILE: &str = "file";

/// Makes `syncs` appends, each with an fsync.
pub(crate) fn turn(bench: &Bench, target: Target, syncs: u64) -> Result<Vec<Step>> {
    let image = Fresh::preallocated(bench, IMAGE)?;
    let sample = match target {
        Target::Btrfs => on_mount(bench, &image, syncs)?,
        _ => in_library(bench, &image, syncs)?,
    };
    let amount = Amount { bytes: syncs * PART, items: syncs, ..Amount::default() };
    let case = "4K append + fsync, bytes to the device".to_owned();
    Ok(vec![Step { case, amount, sample, ..Step::default() }])
}

fn on_mount(bench: &Bench, image: &Fresh, syncs: u64) -> Result<Sample> {
    image.format_by_progs(&[])?;
    let device = LoopDevice::attach(bench.linux(), image.path(), Access::ReadWrite)?;
    let mount = Mount::new(vec![device], "noatime")?;
    let file = fs::File::create_new(mount.path().join(FILE))?;
    rustix::fs::syncfs(fs::File::open(mount.path())?)?;
    append(bench, &file, &mount.devices()[0], syncs)
}

fn in_library(bench: &Bench, image: &Fresh, syncs: u64) -> Result<Sample> {
    image.format()?;
    let device = LoopDevice::attach(bench.linux(), image.path(), Access::ReadWrite)?;
    let filesystem = OpenOptions::new().write(true).open(device.path())?;
    let file = filesystem.root().create(FILE.as_bytes(), 0o644)?.open()?;
    filesystem.commit()?;
    let sample = append(bench, &file, &device, syncs)?;
    drop(file);
    filesystem.abandon();
    let mount = Mount::new(vec![device], "noatime")?;
    let found = fs::metadata(mount.path().join(FILE))?.len();
    ensure!(found == syncs * PART, "{found} bytes in the file");
    Ok(sample)
}

fn append(bench: &Bench, file: &impl Durable, device: &LoopDevice, syncs: u64) -> Result<Sample> {
    let bytes = vec![7; usize::try_from(PART)?];
    bench.settle()?;
    let before = device.bytes_written()?;
    let (work, ()) = timed(|| {
        for number in 0..syncs {
            bench.interrupt().check()?;
            file.write_and_sync(&bytes, number * PART)?;
        }
        Ok(())
    })?;
    let written = device.bytes_written()? - before;
    Ok(Sample { written: Some(written), ..Sample::of_work(work) })
}
