//! Makes a filesystem on a device of its own kind, which keeps only the blocks that were written.
//!
//! ```text
//! cargo run --example custom_device
//! ```

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex};

use userbtrfs::device::{Completion, Device, DeviceError, Request, Ticket};
use userbtrfs::{OpenOptions, mkfs};

/// The bytes in a block of the device.
const BLOCK: usize = 64 << 10;
/// The name of the device, for messages.
const NAME: &str = "sparse memory";
/// The length of the device in bytes.
const LEN: u64 = 1 << 40;

fn main() -> Result<(), Box<dyn Error>> {
    let device = Arc::new(SparseDevice::default());
    mkfs::make(&*device, &mkfs::Options::default())?;
    let filesystem = OpenOptions::new().write(true).open_devices(vec![device.clone()])?;
    filesystem.write("/file", vec![7; 1 << 20])?;
    filesystem.close()?;

    let filesystem = OpenOptions::new().open_devices(vec![device.clone()])?;
    let bytes = filesystem.read("/file")?.len();
    println!("the file has {bytes} bytes");
    println!("the device has {LEN} bytes, and keeps {} blocks of {BLOCK}", device.blocks());
    Ok(())
}

/// A device in memory that has a block for each range that is not zeros.
///
/// A flush has nothing to do, and a write is as durable as the process: a device on a disk or a
/// network must make all completed writes durable in a flush, and a write with `fua` at once.
#[derive(Default)]
struct SparseDevice(Mutex<BTreeMap<u64, Box<[u8]>>>);

impl SparseDevice {
    fn blocks(&self) -> usize {
        self.0.lock().expect("no holder panics").len()
    }

    fn perform(&self, mut request: Request) -> Completion {
        let result = self.apply(&mut request);
        request.complete(result)
    }

    /// Does a request whole, or fails before any byte moves.
    fn apply(&self, request: &mut Request) -> Result<(), DeviceError> {
        let access = request.access();
        if access.offset.checked_add(access.len).is_none_or(|end| end > LEN) {
            return Err(DeviceError::BeyondEnd { device: NAME.into(), access, device_len: LEN });
        }
        let mut blocks = self.0.lock().expect("no holder panics");
        match request {
            Request::Read { offset, buffer } => {
                for (number, within, part) in parts(*offset, buffer.len()) {
                    match blocks.get(&number) {
                        Some(block) => buffer[part].copy_from_slice(&block[within]),
                        None => buffer[part].fill(0),
                    }
                }
            }
            Request::Write { offset, buffer, .. } => {
                for (number, within, part) in parts(*offset, buffer.len()) {
                    let block = blocks.entry(number).or_insert_with(|| vec![0; BLOCK].into());
                    block[within].copy_from_slice(&buffer[part]);
                }
            }
            // A discard is a hint: only whole blocks are dropped.
            Request::Discard { offset, len } => {
                let first = offset.div_ceil(BLOCK as u64);
                let end = (*offset + *len) / BLOCK as u64;
                blocks.retain(|number, _| !(first..end).contains(number));
            }
            Request::Flush => {}
        }
        Ok(())
    }
}

type Range = std::ops::Range<usize>;

/// Splits a range of the device: the number of each block, the range in the block, and the range in
/// the buffer of the request.
fn parts(offset: u64, len: usize) -> impl Iterator<Item = (u64, Range, Range)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let start = usize::try_from(at % BLOCK as u64).expect("less than a block");
        let count = (BLOCK - start).min(len - done);
        let part = done..done + count;
        done += count;
        (count > 0).then(|| (at / BLOCK as u64, start..start + count, part))
    })
}

impl Device for SparseDevice {
    fn len(&self) -> u64 {
        LEN
    }

    fn name(&self) -> &str {
        NAME
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        Ticket::completed(batch.into_iter().map(|request| self.perform(request)).collect())
    }
}
