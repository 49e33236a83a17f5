//! Runs models under shuttle, and keeps the images that they start from.

use std::sync::OnceLock;

use shuttle::scheduler::{RandomScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};
use userbtrfs_device::MemoryDevice;
use userbtrfs_mkfs::{Options, make};

/// The message of `expect` when a thread is joined.
pub(crate) const JOINED: &str = "shuttle fails the model itself";
/// The size of an image, in bytes.
const IMAGE: usize = 18 << 20;

/// Returns the image in `cell`, which `fill` makes from an empty filesystem the first time.
pub(crate) fn kept(cell: &OnceLock<Vec<u8>>, fill: impl FnOnce(Vec<u8>) -> Vec<u8>) -> Vec<u8> {
    if let Some(image) = cell.get() {
        return image.clone();
    }
    let device = MemoryDevice::new(IMAGE);
    make(&device, &Options { nodesize: 4096, ..Options::mixed() }).unwrap();
    let image = fill(device.snapshot());
    // An image that another run stored first is equivalent.
    let _ = cell.set(image.clone());
    image
}

/// Returns `few`, or thirty times as many if `USERBTRFS_TORTURE` is 1.
pub(crate) fn runs(few: usize) -> usize {
    let torture = std::env::var("USERBTRFS_TORTURE").as_deref() == Ok("1");
    if torture { 30 * few } else { few }
}

/// Runs a model with the schedules of `scheduler`, on what `image` returns.
pub(crate) fn explore(scheduler: impl Scheduler + 'static, image: fn() -> Vec<u8>, model: fn()) {
    let mut config = Config::new();
    config.stack_size = 1 << 20;
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = MaxSteps::FailAfter(5_000_000);
    // Make the image in a separate run, so that it does not use up choices of the seeded one.
    Runner::new(RandomScheduler::new(1), config.clone()).run(move || drop(image()));
    Runner::new(scheduler, config).run(model);
}
