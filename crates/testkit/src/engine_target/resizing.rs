//! Resizes.

use userbtrfs::{ImageLength, NewSize};

use crate::model::{Outcome, SIZE_MIN};

use super::Actor;
use super::ballast::Ballast;
use super::outcome::outcome;

impl Actor {
    pub(super) fn resize(&mut self, bytes: u64) -> Outcome {
        let size = self.filesystem.superblock().total_bytes;
        let device = self.filesystem.volume().device().len();
        if (SIZE_MIN..size).contains(&bytes) && self.ballast.is_held() {
            // A shrink begins so, too. What is written now lies behind the ballast.
            outcome(self.filesystem.commit())?;
        }
        if (SIZE_MIN..=device).contains(&bytes) {
            self.ballast.delete()?;
        }
        outcome(self.filesystem.resize(NewSize::Bytes(bytes), ImageLength::Keep))?;
        self.ballast = outcome(Ballast::of(&self.filesystem))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use userbtrfs::mkfs::{self, Options};
    use userbtrfs_sync::Arc;

    use crate::devices::SparseDevice;
    use crate::engine_target::{EngineTarget, used_beyond};
    use crate::model::Model;
    use crate::operation::{Drivers, Generator, Operation};
    use crate::target::{Target, do_to};

    const DEVICE: u64 = 560 << 20;
    const OPERATIONS: usize = 800;

    /// Executes random operations with resizes; returns the bytes that these relocated.
    fn relocated(options: &Options, seed: u64) -> u64 {
        let device = Arc::new(SparseDevice::new(DEVICE));
        mkfs::make(&*device, options).unwrap();
        let mut target = EngineTarget::on_device(device).unwrap();
        let mut model = Model::new(options.nodesize).on_device(DEVICE);
        let generator = Generator::new(seed, options.nodesize).with_subvolumes(Drivers::Ours);
        let mut relocated = 0;
        for operation in generator.with_resizing(DEVICE).take(OPERATIONS) {
            if let Operation::Resize { bytes } = operation
                && model.resized(bytes).is_ok()
            {
                target.commit();
                target.delete_ballast().unwrap();
                target.commit();
                relocated += used_beyond(target.filesystem(), bytes).unwrap();
            }
            let expected = model.apply(&operation);
            assert_eq!(do_to(&mut target, &operation), expected, "{operation}");
        }
        assert_eq!(model.size(), Some(target.filesystem().superblock().total_bytes));
        assert!(model.differences(&target.manifest()).is_empty());
        target.close().unwrap();
        relocated
    }

    #[test]
    fn random_resizes_relocate_what_was_written() {
        let all: Vec<_> = (0..8).map(|seed| relocated(&Options::default(), seed)).collect();
        // Some seeds write little.
        let count = all.iter().filter(|bytes| **bytes > 0).count();
        assert!(count >= all.len() / 2, "{all:?} bytes");
    }
}
