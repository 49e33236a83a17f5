//! The items of each tree of an empty filesystem, in the order of their keys.

use userbtrfs_codec::hash::name_hash;
use userbtrfs_format::{
    BlockGroupItem, Chunk, DeviceExtent, DirEntry, DirEntryKind, ExtentFlags, ExtentItem,
    FIRST_FREE_OBJECTID, FileKind, FreeSpaceInfo, InlineRef, InodeFlags, InodeItem, InodeName,
    ItemKind, Key, MetadataLevel, RootExtension, RootFlags, RootInode, RootItem, Timestamp, TreeId,
    encode_uuid_subvolumes, uuid_key,
};
use uuid::Uuid;

use crate::draft::{Draft, GENERATION, Place};
use crate::layout::DEVICE;
use crate::pack::NewItem;

/// The object id of device items.
const DEV_ITEMS: u64 = 1;

/// The permissions of all directories.
const MODE: u32 = 0o755;
/// The owner of internal directories.
const ROOT: (u32, u32) = (0, 0);

/// The name of the default subvolume in the root tree's directory.
const DEFAULT: &[u8] = b"default";

impl Draft<'_> {
    /// The items of a tree.
    pub(crate) fn items(&self, tree: TreeId) -> Vec<NewItem> {
        let mut items = match tree {
            TreeId::ROOT => self.root_tree(),
            TreeId::CHUNK => self.chunk_tree(),
            TreeId::EXTENT => self.extent_tree(),
            TreeId::DEV => self.device_tree(),
            TreeId::FS => self.directory(FIRST_FREE_OBJECTID, self.options.owner).to_vec(),
            TreeId::DATA_RELOC => self.directory(FIRST_FREE_OBJECTID, ROOT).to_vec(),
            TreeId::UUID => self.uuid_tree(),
            TreeId::FREE_SPACE => self.chunks.iter().flat_map(|c| self.free_space(c)).collect(),
            TreeId::BLOCK_GROUP => self.block_groups().collect(),
            TreeId::CSUM => Vec::new(),
            other => unreachable!("no tree {other} is made"),
        };
        items.sort_unstable_by_key(|(key, _)| *key);
        items
    }

    fn root_tree(&self) -> Vec<NewItem> {
        let rooted = |tree: &TreeId| ![TreeId::ROOT, TreeId::CHUNK].contains(tree);
        let mut trees: Vec<_> = self.places.iter().map(|place| place.tree).filter(rooted).collect();
        trees.dedup();
        let mut items: Vec<_> = trees.into_iter().map(|tree| self.root_item(tree)).collect();
        items.extend(self.directory(TreeId::ROOT_TREE_DIR.0, ROOT));
        let entry = DirEntry {
            target: Key::new(TreeId::FS.0, ItemKind::ROOT_ITEM, u64::MAX),
            transid: GENERATION,
            kind: DirEntryKind::Directory,
            name: DEFAULT,
            data: &[],
        };
        let hash = u64::from(name_hash(DEFAULT));
        items.push((Key::new(TreeId::ROOT_TREE_DIR.0, ItemKind::DIR_ITEM, hash), entry.encode()));
        items.push(name(TreeId::FS.0, TreeId::ROOT_TREE_DIR.0, DEFAULT));
        items
    }

    fn root_item(&self, tree: TreeId) -> NewItem {
        let root = self.root(tree);
        let nodesize = u64::from(self.options.nodesize);
        let has_files = matches!(tree, TreeId::FS | TreeId::DATA_RELOC);
        let item = RootItem {
            generation: GENERATION,
            root_dirid: if has_files { FIRST_FREE_OBJECTID } else { 0 },
            logical: root.logical,
            level: root.level,
            byte_limit: 0,
            bytes_used: self.bytes_of(tree),
            last_snapshot: 0,
            flags: RootFlags::empty(),
            refs: 1,
            drop_progress: Key::MIN,
            drop_level: 0,
            generation_v2: Some(GENERATION),
            inode: RootInode {
                generation: GENERATION,
                size: 3,
                nbytes: nodesize,
                nlink: 1,
                mode: FileKind::Directory.to_mode() | MODE,
                flags: InodeFlags::ROOT_ITEM_INIT.bits(),
                ..RootInode::default()
            },
            extended: Some(self.root_extension(tree)),
        };
        (Key::new(tree.0, ItemKind::ROOT_ITEM, 0), item.encode())
    }

    fn root_extension(&self, tree: TreeId) -> RootExtension {
        let mut extension = RootExtension {
            uuid: Uuid::nil(),
            parent_uuid: Uuid::nil(),
            received_uuid: Uuid::nil(),
            ctransid: 0,
            otransid: 0,
            stransid: 0,
            rtransid: 0,
            ctime: Timestamp::default(),
            otime: Timestamp::default(),
            stime: Timestamp::default(),
            rtime: Timestamp::default(),
        };
        if tree == TreeId::FS {
            extension.uuid = self.ids.top_level;
            extension.ctime = self.now;
            extension.otime = self.now;
        }
        extension
    }

    /// The items of an empty directory that is its own parent.
    fn directory(&self, number: u64, owner: (u32, u32)) -> [NewItem; 2] {
        let (uid, gid) = owner;
        let inode = InodeItem {
            generation: GENERATION,
            transid: GENERATION,
            size: 0,
            nbytes: 0,
            block_group: 0,
            nlink: 1,
            uid,
            gid,
            mode: FileKind::Directory.to_mode() | MODE,
            kind: FileKind::Directory,
            rdev: 0,
            flags: InodeFlags::empty(),
            sequence: 0,
            atime: self.now,
            ctime: self.now,
            mtime: self.now,
            otime: self.now,
        };
        let item = (Key::new(number, ItemKind::INODE_ITEM, 0), inode.encode().to_vec());
        [item, name(number, number, b"..")]
    }

    fn chunk_tree(&self) -> Vec<NewItem> {
        let device = self.device().encode().to_vec();
        let device = (Key::new(DEV_ITEMS, ItemKind::DEV_ITEM, DEVICE), device);
        let chunks = self.chunks.iter().map(|chunk| (chunk.key(), chunk.encode()));
        [device].into_iter().chain(chunks).collect()
    }

    fn extent_tree(&self) -> Vec<NewItem> {
        let blocks = self.places.iter().map(extent_item);
        if self.options.block_group_tree {
            blocks.collect()
        } else {
            blocks.chain(self.block_groups()).collect()
        }
    }

    fn block_groups(&self) -> impl Iterator<Item = NewItem> {
        self.chunks.iter().map(|chunk| {
            let blocks = self.blocks_in(chunk).len() as u64;
            let group = BlockGroupItem {
                used: blocks * u64::from(self.options.nodesize),
                chunk_objectid: FIRST_FREE_OBJECTID,
                flags: chunk.flags,
            };
            let key = Key::new(chunk.logical.0, ItemKind::BLOCK_GROUP_ITEM, chunk.len);
            (key, group.encode().to_vec())
        })
    }

    fn device_tree(&self) -> Vec<NewItem> {
        let of_chunk = |chunk: &Chunk| {
            let extent = DeviceExtent {
                chunk_tree: TreeId::CHUNK.0,
                chunk_objectid: FIRST_FREE_OBJECTID,
                chunk: chunk.logical,
                len: chunk.len,
                chunk_tree_uuid: self.ids.chunk_tree,
            };
            let place = |stripe: &userbtrfs_format::Stripe| stripe.physical.0;
            let places: Vec<_> = chunk.stripes.iter().map(place).collect();
            places.into_iter().map(move |at| {
                (Key::new(DEVICE, ItemKind::DEV_EXTENT, at), extent.encode().to_vec())
            })
        };
        self.chunks.iter().flat_map(of_chunk).collect()
    }

    fn uuid_tree(&self) -> Vec<NewItem> {
        let key = uuid_key(self.ids.top_level, ItemKind::UUID_KEY_SUBVOL);
        vec![(key, encode_uuid_subvolumes(&[TreeId::FS.0]))]
    }

    /// The free space items of a block group: all ranges without tree blocks. Areas reserved for
    /// superblock copies count as free.
    fn free_space(&self, chunk: &Chunk) -> Vec<NewItem> {
        let nodesize = u64::from(self.options.nodesize);
        let mut items = Vec::new();
        let mut free_from = chunk.logical.0;
        let end = chunk.end().0;
        for taken in self.blocks_in(chunk).into_iter().map(|block| block.0).chain([end]) {
            if taken > free_from {
                let key = Key::new(free_from, ItemKind::FREE_SPACE_EXTENT, taken - free_from);
                items.push((key, Vec::new()));
            }
            free_from = taken.saturating_add(nodesize);
        }
        let extent_count = u32::try_from(items.len()).expect("there are few tree blocks");
        let info = FreeSpaceInfo { extent_count, flags: 0 };
        let key = Key::new(chunk.logical.0, ItemKind::FREE_SPACE_INFO, chunk.len);
        items.push((key, info.encode().to_vec()));
        items
    }
}

fn extent_item(place: &Place) -> NewItem {
    let extent = ExtentItem {
        refs: 1,
        generation: GENERATION,
        flags: ExtentFlags::TREE_BLOCK,
        level: MetadataLevel::InKey(place.level),
        inline: vec![InlineRef::TreeBlock(place.tree)],
    };
    let level = u64::from(place.level);
    (Key::new(place.logical.0, ItemKind::METADATA_ITEM, level), extent.encode())
}

/// The INODE_REF of an inode with one name.
fn name(inode: u64, parent: u64, name: &[u8]) -> NewItem {
    let mut item = Vec::new();
    InodeName { parent, index: 0, name }.encode_ref_into(&mut item);
    (Key::new(inode, ItemKind::INODE_REF, parent), item)
}
