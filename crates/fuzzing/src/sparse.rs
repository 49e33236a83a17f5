//! A sparse device in memory, for golden images.

use std::collections::BTreeMap;
use std::io::Read;

use userbtrfs_device::{Completion, Device, DeviceError, Request, Ticket};
use userbtrfs_sync::{Class, Mutex};

const BLOCK: usize = 4096;

/// A device in memory that does not store blocks of zeros.
pub(crate) struct SparseDevice {
    blocks: Mutex<BTreeMap<u64, Vec<u8>>>,
    len: u64,
}

impl SparseDevice {
    /// Unpacks an image.
    pub(crate) fn unpack(packed: &[u8]) -> std::io::Result<Self> {
        let mut reader = zstd::Decoder::new(packed)?;
        let (mut blocks, mut number) = (BTreeMap::new(), 0);
        loop {
            let mut block = Vec::with_capacity(BLOCK);
            reader.by_ref().take(BLOCK as u64).read_to_end(&mut block)?;
            if block.is_empty() {
                break;
            }
            block.resize(BLOCK, 0);
            if block.iter().any(|&byte| byte != 0) {
                blocks.insert(number, block);
            }
            number += 1;
        }
        Ok(Self { blocks: Mutex::new(Class::DeviceQueue, blocks), len: number * BLOCK as u64 })
    }

    fn perform(&self, mut request: Request) -> Completion {
        let result = self.apply(&mut request);
        request.complete(result)
    }

    fn apply(&self, request: &mut Request) -> Result<(), DeviceError> {
        let access = request.access();
        if access.offset.checked_add(access.len).is_none_or(|end| end > self.len) {
            let (device, device_len) = (self.name().into(), self.len);
            return Err(DeviceError::BeyondEnd { device, access, device_len });
        }
        let mut blocks = self.blocks.lock();
        match request {
            Request::Read { offset, buffer } => {
                for (at, piece) in pieces(*offset, buffer) {
                    match blocks.get(&(at / BLOCK as u64)) {
                        Some(block) => piece.copy_from_slice(&block[inside(at)..][..piece.len()]),
                        None => piece.fill(0),
                    }
                }
            }
            Request::Write { offset, buffer, .. } => {
                let mut content = buffer.to_vec();
                for (at, piece) in pieces(*offset, &mut content) {
                    let block = blocks.entry(at / BLOCK as u64).or_insert_with(|| vec![0; BLOCK]);
                    block[inside(at)..][..piece.len()].copy_from_slice(piece);
                }
            }
            Request::Flush | Request::Discard { .. } => {}
        }
        Ok(())
    }
}

fn inside(at: u64) -> usize {
    usize::try_from(at % BLOCK as u64).expect("less than a block")
}

/// Splits a range at block boundaries.
fn pieces(offset: u64, mut rest: &mut [u8]) -> impl Iterator<Item = (u64, &mut [u8])> {
    let mut at = offset;
    std::iter::from_fn(move || {
        let len = rest.len().min(BLOCK - inside(at));
        let (piece, after) = std::mem::take(&mut rest).split_at_mut(len);
        rest = after;
        let here = at;
        at += len as u64;
        (len > 0).then_some((here, piece))
    })
}

impl Device for SparseDevice {
    fn len(&self) -> u64 {
        self.len
    }

    fn name(&self) -> &'static str {
        "golden image"
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        Ticket::completed(batch.into_iter().map(|request| self.perform(request)).collect())
    }
}
