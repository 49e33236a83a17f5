//! How models are explored under shuttle, and the images that they work on.

use std::sync::OnceLock;

use shuttle::scheduler::{RandomScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};
use userbtrfs_device::MemoryDevice;
use userbtrfs_mkfs::{Options, make};

/// Why a thread can be joined.
pub(crate) const JOINED: &str = "shuttle fails the model itself";
/// Bytes of an image.
const IMAGE: usize = 18 << 20;

/// What is kept in `cell`: what `fill` makes of an empty filesystem.
pub(crate) fn kept(cell: &OnceLock<Vec<u8>>, fill: impl FnOnce(Vec<u8>) -> Vec<u8>) -> Vec<u8> {
    if let Some(image) = cell.get() {
        return image.clone();
    }
    let device = MemoryDevice::new(IMAGE);
    make(&device, &Options { nodesize: 4096, ..Options::mixed() }).unwrap();
    let image = fill(device.snapshot());
    // A run that came first made as good a one.
    let _ = cell.set(image.clone());
    image
}

/// So many runs, or thirty times as many where `USERBTRFS_TORTURE` is 1.
pub(crate) fn runs(few: usize) -> usize {
    let torture = std::env::var("USERBTRFS_TORTURE").as_deref() == Ok("1");
    if torture { 30 * few } else { few }
}

/// Runs a model by the schedules of `scheduler`. `image` is what it works on.
pub(crate) fn explore(scheduler: impl Scheduler + 'static, image: fn() -> Vec<u8>, model: fn()) {
    let mut config = Config::new();
    config.stack_size = 1 << 20;
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = MaxSteps::FailAfter(5_000_000);
    // Made in a run of its own: it takes nothing from those that a seed repeats.
    Runner::new(RandomScheduler::new(1), config.clone()).run(move || drop(image()));
    Runner::new(scheduler, config).run(model);
}
