//! A small filesystem on a device that records changes and can inject failures.

use userbtrfs_device::{Completion, Device, DeviceError, MemoryDevice, Operation, Request, Ticket};
use userbtrfs_format::{ItemKind, Key, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock, TreeId};
use userbtrfs_image_builder::{IMAGE_LEN, ImageEditor, field, put_u64, small_image};
use userbtrfs_sync::{Arc, Class, Mutex};
use userbtrfs_volume::Volume;

/// A request that changes a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub operation: Operation,
    pub offset: u64,
    pub len: u64,
    pub fua: bool,
}

/// A memory device that records changes in the order of their submission.
pub(crate) struct Recorder {
    pub memory: MemoryDevice,
    changes: Mutex<Vec<Change>>,
    /// A change at this offset fails; `u64::MAX` means flushes.
    failing: Option<u64>,
    read_only: bool,
}

impl Recorder {
    pub(crate) fn over(image: Vec<u8>) -> Self {
        let memory = MemoryDevice::from_bytes(image);
        let changes = Mutex::new(Class::DeviceQueue, Vec::new());
        Self { memory, changes, failing: None, read_only: false }
    }

    pub(crate) fn failing_at(self, offset: u64) -> Self {
        Self { failing: Some(offset), ..self }
    }

    pub(crate) fn read_only(self) -> Self {
        Self { read_only: true, ..self }
    }

    /// The changes since the last call.
    pub(crate) fn changes(&self) -> Vec<Change> {
        std::mem::take(&mut self.changes.lock())
    }

    pub(crate) fn superblock(&self, copy: usize) -> Superblock {
        let at = SUPERBLOCK_OFFSETS[copy];
        Superblock::parse(&self.memory.read(at.0, SUPERBLOCK_SIZE).unwrap(), at).unwrap()
    }

    fn perform(&self, request: Request) -> Completion {
        let access = request.access();
        if access.operation == Operation::Read {
            return self.memory.run(request);
        }
        let fua = matches!(request, Request::Write { fua: true, .. });
        let operation = access.operation;
        let offset = access.offset;
        let len = access.len;
        self.changes.lock().push(Change { operation, offset, len, fua });
        let place = if operation == Operation::Flush { u64::MAX } else { offset };
        if self.failing == Some(place) {
            let source = std::io::Error::other("the medium is bad");
            let device = self.name().into();
            return request.complete(Err(DeviceError::Io { device, access, source }));
        }
        self.memory.run(request)
    }
}

impl Device for Recorder {
    fn len(&self) -> u64 {
        self.memory.len()
    }

    fn name(&self) -> &'static str {
        "recorder"
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        Ticket::completed(batch.into_iter().map(|request| self.perform(request)).collect())
    }
}

/// The small filesystem with a changed superblock.
pub(crate) fn image(change: impl FnOnce(&mut Superblock)) -> Vec<u8> {
    let mut image = small_image();
    let at = SUPERBLOCK_OFFSETS[0];
    let place = usize::try_from(at.0).unwrap()..;
    let mut superblock = Superblock::parse(&image[place.clone()], at).unwrap();
    change(&mut superblock);
    image[place][..SUPERBLOCK_SIZE].copy_from_slice(&superblock.encode(at));
    image
}

/// The small filesystem on a device that is large enough for the first mirror, but without it.
pub(crate) fn image_with_room_for_a_mirror() -> Vec<u8> {
    let len = SUPERBLOCK_OFFSETS[1].0 + SUPERBLOCK_SIZE as u64;
    let mut image = image(|superblock| {
        superblock.total_bytes = len;
        superblock.device.total_bytes = IMAGE_LEN;
    });
    image.resize(usize::try_from(len).unwrap(), 0);
    let mut editor = ImageEditor::from_bytes(image).unwrap();
    let place = editor.find_item(TreeId::CHUNK, Key::new(1, ItemKind::DEV_ITEM, 1)).unwrap();
    editor.edit_item(&place, |item| put_u64(item, 8, len));
    editor.edit_superblock(|bytes| put_u64(bytes, field::DEV_ITEM + 8, len));
    editor.image().unwrap()
}

pub(crate) fn open(device: Recorder) -> (Volume, Arc<Recorder>) {
    let device = Arc::new(device);
    let volume = Volume::open_for_writing(vec![Arc::clone(&device) as Arc<dyn Device>]).unwrap();
    assert_eq!(device.changes(), [], "opening changes nothing");
    (volume, device)
}
