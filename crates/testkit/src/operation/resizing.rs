//! Random sizes of the filesystem.

use userbtrfs_format::SECTOR;

use crate::model::SIZE_MIN;

use super::Operation;
use super::choices::{Choices, Draw};

/// The kinds of operations, with their weights.
pub(super) const KINDS: [(u64, Draw); 1] = [(3, resize)];

/// Draws a size that the filesystem can have: of half of the device or more, often little more;
/// sometimes one that is refused.
fn resize(g: &mut Choices) -> Operation {
    let device = g.model.device_size().expect("it has a device");
    let size = g.model.size().expect("it has a device");
    let half = device / 2;
    let bytes = match g.random.below(16) {
        0 => g.random.below(SIZE_MIN),
        1 => SIZE_MIN - 1,
        2 => device + 1 + g.random.below(half),
        3 => size + g.random.below(2 * SECTOR),
        4..7 => device,
        7..10 => half + g.random.below(half),
        _ => half + g.random.below(half / 8),
    };
    Operation::Resize { bytes }
}
