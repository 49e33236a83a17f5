//! A minimal filesystem that has examples of most structures.
//!
//! ```text
//! logical    content                        physical
//! 0x100000   system chunk: the chunk tree   0x20000, 0x30000
//! 0x200000   metadata chunk: other trees    0x40000, 0x60000
//! 0x400000   data chunk                     0x80000
//! ```

use std::iter::once;

use userbtrfs_codec::hash::name_hash;
use userbtrfs_codec::{ChecksumKind, Compression};
use userbtrfs_format::{ItemKind, Key, Logical, SUPERBLOCK_OFFSETS, TreeId};
use uuid::Uuid;

use crate::{
    ChunkSpec, ExtentSpec, IMAGE_LEN, InodeSpec, LeafBuilder, NodeBuilder, Place, RootSpec, Sample,
    SuperblockSpec, block_group, data_ref, device_extent, device_item, dir_entry, extent_head,
    geometry, inline_extent, inode_ref, root_ref, tree_ref,
};

const NODE: u64 = 4096;
const CHUNK_ROOT: Logical = Logical(0x10_0000);
const ROOT: Logical = Logical(0x20_0000);
const EXTENT: Logical = Logical(0x20_1000);
const DEV: Logical = Logical(0x20_2000);
const FS_NODE: Logical = Logical(0x20_3000);
const FS_LEFT: Logical = Logical(0x20_4000);
const FS_RIGHT: Logical = Logical(0x20_5000);
const CSUM: Logical = Logical(0x20_6000);
const SUBVOLUME: Logical = Logical(0x20_7000);
const UUIDS: Logical = Logical(0x20_8000);

/// The names in the root directory, with inode and type; 0 is the subvolume. Their total length is
/// [`NAME_BYTES`].
const ENTRIES: [(&[u8], u64, u8); 6] = [
    (b"small", 257, 1),
    (b"large", 258, 1),
    (b"link", 259, 7),
    (b"sub", 0, 2),
    (b"empty", 260, 2),
    (b"pipe", 261, 5),
];
const NAME_BYTES: u64 = 26;
const SUB_INDEX: u64 = 5;
const SUB_UUID: Uuid = Uuid::from_u128(0x7375_6276_6f6c_756d_655f_6f66_5f66_6f72);
const FS_UUID: Uuid = Uuid::from_u128(0x746f_705f_6c65_7665_6c5f_6f66_5f66_6f72);

/// Builds a filesystem of [`IMAGE_LEN`] bytes with a subvolume, and extents of each kind.
pub fn small_image() -> Vec<u8> {
    let mut image = vec![0; usize::try_from(IMAGE_LEN).expect("it is small")];
    let extents = data_extents();
    for extent in &extents {
        write(&mut image, extent.spec.disk, &extent.stored);
    }
    for (logical, block) in blocks(&extents) {
        write(&mut image, logical, &block);
    }
    let system = ChunkSpec::system();
    let superblock = SuperblockSpec {
        root: ROOT,
        chunk_root: CHUNK_ROOT,
        total_bytes: IMAGE_LEN,
        bytes_used: 10 * NODE + used(&extents),
        device_used: device_used(),
        system_chunks: vec![(system.key(), system.build())],
        ..SuperblockSpec::default()
    };
    put(&mut image, SUPERBLOCK_OFFSETS[0].0, &superblock.build());
    image
}

fn put(image: &mut [u8], physical: u64, bytes: &[u8]) {
    let at = usize::try_from(physical).expect("the image is small");
    image[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Writes each copy of a logical range.
fn write(image: &mut [u8], logical: Logical, bytes: &[u8]) {
    let holds = |c: &ChunkSpec| (c.logical.0..c.logical.0 + c.len).contains(&logical.0);
    let chunk = chunks().into_iter().find(holds).expect("the layout lies in the chunks");
    for stripe in &chunk.stripes {
        put(image, stripe + logical.0 - chunk.logical.0, bytes);
    }
}

fn chunks() -> [ChunkSpec; 3] {
    [ChunkSpec::system(), ChunkSpec::metadata(), ChunkSpec::data()]
}

fn device_used() -> u64 {
    chunks().iter().map(|chunk| chunk.len * u64::try_from(chunk.stripes.len()).expect("few")).sum()
}

/// An extent of the file "large".
struct DataExtent {
    file_offset: u64,
    spec: ExtentSpec,
    stored: Vec<u8>,
}

fn used(extents: &[DataExtent]) -> u64 {
    extents.iter().map(|extent| extent.spec.disk_bytes).sum()
}

/// The extents of "large": one for each compression, one plain, one preallocated.
fn data_extents() -> Vec<DataExtent> {
    let text: Vec<u8> =
        (0u8..=250).flat_map(|n| [b'a' + n % 26, b'.', n / 26]).cycle().take(16384).collect();
    let forms = [
        (None, 1, &text[..8192]),
        (Some((1, Compression::Zlib)), 1, &text[..]),
        (Some((2, Compression::Lzo)), 1, &text[..8192]),
        (Some((3, Compression::Zstd)), 1, &text[..8192]),
        (None, 2, &text[..4096]),
    ];
    let mut file_offset = 0;
    let mut disk = ChunkSpec::data().logical;
    let mut extents = Vec::new();
    for (compression, kind, content) in forms {
        let stored = stored(compression.map(|(_, compression)| compression), content);
        let bytes = len(content);
        let disk_bytes = len(&stored);
        let compression = compression.map_or(0, |(number, _)| number);
        let spec =
            ExtentSpec { compression, kind, disk, disk_bytes, ..ExtentSpec::plain(disk, bytes) };
        extents.push(DataExtent { file_offset, spec, stored });
        file_offset += bytes;
        disk = Logical(disk.0 + disk_bytes);
    }
    extents
}

fn stored(compression: Option<Compression>, content: &[u8]) -> Vec<u8> {
    let Some(compression) = compression else { return content.to_vec() };
    let mut stored = Vec::new();
    compression.compress(None, content, &mut stored).expect("the content is short");
    stored.resize(stored.len().next_multiple_of(4096), 0);
    stored
}

fn len(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).expect("it is short")
}

/// All tree blocks.
fn blocks(extents: &[DataExtent]) -> Vec<(Logical, Vec<u8>)> {
    let right = top_level_right(extents);
    let left_key = root_dir().0;
    let right_key = right[0].0;
    let node = NodeBuilder::new(&geometry(), 1)
        .place(Place { logical: FS_NODE, owner: TreeId::FS, ..Place::default() })
        .pointer(left_key, FS_LEFT, crate::GENERATION)
        .pointer(right_key, FS_RIGHT, crate::GENERATION);
    vec![
        leaf(CHUNK_ROOT, TreeId::CHUNK, chunk_tree()),
        leaf(ROOT, TreeId::ROOT, root_tree()),
        leaf(EXTENT, TreeId::EXTENT, extent_tree(extents)),
        leaf(DEV, TreeId::DEV, device_tree()),
        (FS_NODE, node.build()),
        leaf(FS_LEFT, TreeId::FS, top_level_left()),
        leaf(FS_RIGHT, TreeId::FS, right),
        leaf(CSUM, TreeId::CSUM, vec![checksums(extents)]),
        leaf(SUBVOLUME, TreeId(256), subvolume()),
        leaf(UUIDS, TreeId::UUID, uuid_tree()),
    ]
}

fn leaf(logical: Logical, owner: TreeId, mut items: Vec<Sample>) -> (Logical, Vec<u8>) {
    items.sort_by_key(|(key, _)| *key);
    let place = Place { logical, owner, ..Place::default() };
    let leaf = LeafBuilder::new(&geometry()).place(place);
    let leaf = items.into_iter().fold(leaf, |leaf, (key, content)| leaf.item(key, content));
    (logical, leaf.build())
}

fn key(objectid: u64, kind: ItemKind, offset: u64) -> Key {
    Key::new(objectid, kind, offset)
}

fn chunk_tree() -> Vec<Sample> {
    let device = (key(1, ItemKind::DEV_ITEM, 1), device_item(1, IMAGE_LEN, device_used()));
    chunks().iter().map(|chunk| (chunk.key(), chunk.build())).chain([device]).collect()
}

fn device_tree() -> Vec<Sample> {
    let extents = |chunk: ChunkSpec| {
        let content = device_extent(chunk.logical, chunk.len);
        let stripes = chunk.stripes.into_iter();
        stripes.map(move |at| (key(1, ItemKind::DEV_EXTENT, at), content.clone()))
    };
    chunks().into_iter().flat_map(extents).collect()
}

fn root_tree() -> Vec<Sample> {
    let root = |id: u64, spec: RootSpec| (key(id, ItemKind::ROOT_ITEM, 0), spec.build());
    let default = key(5, ItemKind::ROOT_ITEM, u64::MAX);
    let name = u64::from(name_hash(b"default"));
    let top = RootSpec { level: 1, bytes_used: 3 * NODE, ..RootSpec::subvolume(FS_NODE, FS_UUID) };
    vec![
        root(2, RootSpec::new(EXTENT)),
        root(4, RootSpec::new(DEV)),
        root(5, top),
        (key(5, ItemKind::ROOT_REF, 256), root_ref(256, SUB_INDEX, b"sub")),
        (key(6, ItemKind::INODE_ITEM, 0), InodeSpec::directory(0).build()),
        (key(6, ItemKind::INODE_REF, 6), inode_ref(0, b"..")),
        (key(6, ItemKind::DIR_ITEM, name), dir_entry(default, 2, b"default", b"")),
        root(7, RootSpec::new(CSUM)),
        root(9, RootSpec::new(UUIDS)),
        root(256, RootSpec::subvolume(SUBVOLUME, SUB_UUID)),
        (key(256, ItemKind::ROOT_BACKREF, 5), root_ref(256, SUB_INDEX, b"sub")),
    ]
}

fn uuid_tree() -> Vec<Sample> {
    let item = |uuid: Uuid, id: u64| {
        let (first, last) = uuid.as_bytes().split_at(8);
        let half = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("half of 16 bytes"));
        let key = key(half(first), ItemKind::UUID_KEY_SUBVOL, half(last));
        (key, id.to_le_bytes().to_vec())
    };
    vec![item(FS_UUID, 5), item(SUB_UUID, 256)]
}

fn root_dir() -> Sample {
    (key(256, ItemKind::INODE_ITEM, 0), InodeSpec::directory(NAME_BYTES).build())
}

/// The items of the root directory.
fn top_level_left() -> Vec<Sample> {
    let mut items = vec![root_dir(), (key(256, ItemKind::INODE_REF, 256), inode_ref(0, b".."))];
    for (index, (name, inode, kind)) in (2..).zip(ENTRIES) {
        let target = match inode {
            0 => key(256, ItemKind::ROOT_ITEM, u64::MAX),
            inode => key(inode, ItemKind::INODE_ITEM, 0),
        };
        let entry = dir_entry(target, kind, name, b"");
        let hash = u64::from(name_hash(name));
        items.push((key(256, ItemKind::DIR_ITEM, hash), entry.clone()));
        items.push((key(256, ItemKind::DIR_INDEX, index), entry));
    }
    items
}

/// The items of the other inodes.
fn top_level_right(extents: &[DataExtent]) -> Vec<Sample> {
    let size = extents.iter().map(|extent| extent.spec.bytes).sum();
    let nameless = key(0, ItemKind(0), 0);
    let xattr = u64::from(name_hash(b"user.note"));
    let mut items = vec![
        (key(257, ItemKind::XATTR_ITEM, xattr), dir_entry(nameless, 8, b"user.note", b"read me")),
        (key(257, ItemKind::EXTENT_DATA, 0), inline_extent(b"hello\n")),
        (key(259, ItemKind::EXTENT_DATA, 0), inline_extent(b"sub/inner")),
    ];
    let inodes = [
        (257, InodeSpec::file(6)),
        (258, InodeSpec::file(size)),
        (259, InodeSpec::new(0o120_777, 9)),
        (260, InodeSpec::directory(0)),
        (261, InodeSpec::new(0o10_644, 0)),
    ];
    items.extend(inodes.map(|(inode, spec)| (key(inode, ItemKind::INODE_ITEM, 0), spec.build())));
    for (index, (name, inode, _)) in (2..).zip(ENTRIES).filter(|(_, (_, inode, _))| *inode != 0) {
        items.push((key(inode, ItemKind::INODE_REF, 256), inode_ref(index, name)));
    }
    for extent in extents {
        items.push((key(258, ItemKind::EXTENT_DATA, extent.file_offset), extent.spec.build()));
    }
    items.sort_by_key(|(key, _)| *key);
    items
}

/// A directory with one file of one line.
fn subvolume() -> Vec<Sample> {
    let inner = key(257, ItemKind::INODE_ITEM, 0);
    let entry = dir_entry(inner, 1, b"inner", b"");
    let hash = u64::from(name_hash(b"inner"));
    vec![
        (key(256, ItemKind::INODE_ITEM, 0), InodeSpec::directory(5).build()),
        (key(256, ItemKind::INODE_REF, 256), inode_ref(0, b"..")),
        (key(256, ItemKind::DIR_ITEM, hash), entry.clone()),
        (key(256, ItemKind::DIR_INDEX, 2), entry),
        (inner, InodeSpec::file(6).build()),
        (key(257, ItemKind::INODE_REF, 256), inode_ref(2, b"inner")),
        (key(257, ItemKind::EXTENT_DATA, 0), inline_extent(b"world\n")),
    ]
}

/// The checksums of all written data, which is contiguous.
fn checksums(extents: &[DataExtent]) -> Sample {
    let written = extents.iter().filter(|extent| extent.spec.kind == 1);
    let mut sums = Vec::new();
    for extent in written {
        ChecksumKind::Crc32c
            .compute_blocks(&extent.stored, 4096, |sum| sums.extend_from_slice(sum.as_bytes()));
    }
    (key(u64::MAX - 9, ItemKind::EXTENT_CSUM, ChunkSpec::data().logical.0), sums)
}

/// The items of the extent tree.
fn extent_tree(extents: &[DataExtent]) -> Vec<Sample> {
    let groups = chunks().into_iter().zip([NODE, 9 * NODE, used(extents)]);
    let groups = groups.map(|(chunk, used)| {
        let place = key(chunk.logical.0, ItemKind::BLOCK_GROUP_ITEM, chunk.len);
        (place, block_group(used, chunk.flags))
    });
    let block = |(logical, owner, level): (Logical, TreeId, u8)| {
        let content = extent_head(1, 2, None).raw(&tree_ref(176, owner.0)).build();
        (key(logical.0, ItemKind::METADATA_ITEM, u64::from(level)), content)
    };
    let data = extents.iter().map(|extent| {
        let user = data_ref(5, 258, extent.file_offset, 1);
        let content = extent_head(1, 1, None).u8(178).raw(&user).build();
        (key(extent.spec.disk.0, ItemKind::EXTENT_ITEM, extent.spec.disk_bytes), content)
    });
    groups.chain(owners().into_iter().map(block)).chain(data).collect()
}

fn owners() -> Vec<(Logical, TreeId, u8)> {
    let leaves = [
        (CHUNK_ROOT, TreeId::CHUNK),
        (ROOT, TreeId::ROOT),
        (EXTENT, TreeId::EXTENT),
        (DEV, TreeId::DEV),
        (FS_LEFT, TreeId::FS),
        (FS_RIGHT, TreeId::FS),
        (CSUM, TreeId::CSUM),
        (SUBVOLUME, TreeId(256)),
        (UUIDS, TreeId::UUID),
    ];
    let leaves = leaves.into_iter().map(|(logical, owner)| (logical, owner, 0));
    leaves.chain(once((FS_NODE, TreeId::FS, 1))).collect()
}
