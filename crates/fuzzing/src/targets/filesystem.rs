//! The API of a filesystem: reads everything, within limits.

use std::cell::OnceCell;

use userbtrfs_device::{Device, MemoryDevice};
use userbtrfs_engine::api::{FileType, Filesystem, Inode, OpenOptions};
use userbtrfs_format::Quoted;
use userbtrfs_image_builder::small_image;
use userbtrfs_sync::Arc;

/// The limits of what is read of a filesystem.
const ENTRIES_MAX: usize = 100;
const CHUNKS_MAX: usize = 16;
const READ_MAX: usize = 64 << 10;

/// Reads names, attributes and contents. Errors are the expected result of damage.
pub(super) fn look_at_all(filesystem: &Filesystem) {
    filesystem.subvolumes().ok();
    filesystem.default_subvolume().ok();
    filesystem.usage().ok();
    let Ok(walk) = filesystem.walk("/") else { return };
    for entry in walk.take(ENTRIES_MAX) {
        match entry {
            Ok(entry) => {
                look_at(&entry.inode);
                filesystem.metadata(&entry.path).ok();
            }
            Err(error) => drop(error.to_string()),
        }
    }
}

fn look_at(inode: &Inode) {
    let kind = inode.metadata().map(|metadata| metadata.kind);
    inode.xattrs().ok();
    inode.names().ok();
    inode.read_link().ok();
    if matches!(kind, Ok(FileType::Regular)) {
        look_into(inode);
    }
}

fn look_into(inode: &Inode) {
    let Ok(file) = inode.open() else { return };
    let mut target = vec![0; READ_MAX];
    for offset in [0, 4095, file.len().saturating_sub(1), u64::MAX] {
        if let Ok(read) = file.read_at(&mut target, offset) {
            assert!(read as u64 <= file.len().saturating_sub(offset));
        }
    }
    if let Ok(extents) = file.extents() {
        drop(extents);
    }
    for offset in [0, 4096] {
        file.seek_data(offset).ok();
        file.seek_hole(offset).ok();
    }
    let mut reader = file.reader();
    let mut expected = 0;
    for _ in 0..CHUNKS_MAX {
        let Ok(Some(chunk)) = reader.next_chunk() else { break };
        assert!(chunk.offset() == expected && !chunk.is_empty());
        expected += chunk.len();
        assert!(expected <= file.len());
    }
}

thread_local! {
    static SOUND: OnceCell<Filesystem> = const { OnceCell::new() };
}

fn open_sound() -> Filesystem {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(small_image()));
    OpenOptions::new().open_devices(vec![device]).expect("the small image is sound")
}

/// Looks up any path, in an undamaged filesystem.
pub(crate) fn path(input: &[u8]) {
    SOUND.with(|sound| {
        let filesystem = sound.get_or_init(open_sound);
        for found in [filesystem.lookup(input), filesystem.lookup_no_follow(input)] {
            match found {
                Ok(inode) => drop(inode.metadata().expect("what is found is there")),
                Err(error) => drop(error.to_string()),
            }
        }
        filesystem.root().lookup(input).ok();
        filesystem.root().inode().xattr(input).ok();
    });
    assert!(Quoted(input).to_string().chars().all(|c| !c.is_control()));
}
