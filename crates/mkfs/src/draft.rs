//! The plan of a filesystem before it is written: its ids, its chunks and its tree blocks.
//!
//! 1. The chunk tree is in the system chunk, every other tree in the metadata chunk.
//! 2. The blocks of a tree are consecutive in `places`, with its root last.

use std::time::SystemTime;

use userbtrfs_format::{
    BackupRoot, BlockGroupFlags, Chunk, DeviceItem, Geometry, Logical, Physical, SECTOR_SIZE,
    SUPERBLOCK_OFFSETS, Superblock, SuperblockFlags, Timestamp, TreeId, encode_sys_chunk_array,
};
use userbtrfs_volume::TreeBlock;
use uuid::Uuid;

use crate::layout::{self, DEVICE};
use crate::pack::{self, Context};
use crate::{MkfsError, Options};

/// The generation of everything.
pub(crate) const GENERATION: u64 = 1;

/// The ids of a filesystem; all are random, but the caller may choose `fsid`.
pub(crate) struct Ids {
    pub(crate) fsid: Uuid,
    pub(crate) chunk_tree: Uuid,
    pub(crate) device: Uuid,
    pub(crate) top_level: Uuid,
}

/// The address, tree and level of a tree block.
pub(crate) struct Place {
    pub(crate) tree: TreeId,
    pub(crate) logical: Logical,
    pub(crate) level: u8,
}

/// The plan of a filesystem.
pub(crate) struct Draft<'a> {
    pub(crate) options: &'a Options,
    pub(crate) ids: Ids,
    pub(crate) now: Timestamp,
    pub(crate) device_bytes: u64,
    pub(crate) chunks: Vec<Chunk>,
    pub(crate) places: Vec<Place>,
}

impl<'a> Draft<'a> {
    /// Plans a filesystem on a device of `device_len` bytes.
    pub(crate) fn new(options: &'a Options, device_len: u64) -> Result<Self, MkfsError> {
        let fsid = options.fsid.unwrap_or_else(Uuid::new_v4);
        let ids = Ids {
            fsid,
            chunk_tree: Uuid::new_v4(),
            device: Uuid::new_v4(),
            top_level: Uuid::new_v4(),
        };
        let device_bytes = device_len - device_len % u64::from(SECTOR_SIZE);
        let chunks =
            layout::chunks(options, device_bytes, ids.device).map_err(|error| match error {
                // The size that the caller knows, not that in whole sectors.
                MkfsError::TooSmall { need, .. } => MkfsError::TooSmall { need, have: device_len },
                other => other,
            })?;
        let places = Vec::new();
        let mut draft =
            Self { options, ids, now: SystemTime::now().into(), device_bytes, chunks, places };
        draft.place();
        Ok(draft)
    }

    /// The trees of the filesystem.
    fn trees(&self) -> impl Iterator<Item = TreeId> {
        let always = [
            TreeId::CHUNK,
            TreeId::ROOT,
            TreeId::EXTENT,
            TreeId::DEV,
            TreeId::FS,
            TreeId::CSUM,
            TreeId::UUID,
            TreeId::DATA_RELOC,
        ];
        let free_space = self.options.free_space_tree.then_some(TreeId::FREE_SPACE);
        let block_groups = self.options.block_group_tree.then_some(TreeId::BLOCK_GROUP);
        always.into_iter().chain(free_space).chain(block_groups)
    }

    /// Allocates the blocks of each tree. The number of items depends on the total number of
    /// blocks, so this is repeated until each tree fits.
    fn place(&mut self) {
        let mut counts: Vec<(TreeId, usize)> = self.trees().map(|tree| (tree, 1)).collect();
        loop {
            self.places = self.placed(&counts);
            let nodesize = self.options.nodesize;
            let needed = |tree| pack::blocks_needed(&self.items(tree), nodesize);
            let next = counts.iter().map(|&(tree, _)| (tree, needed(tree))).collect();
            if next == counts {
                return;
            }
            counts = next;
        }
    }

    fn placed(&self, counts: &[(TreeId, usize)]) -> Vec<Place> {
        let nodesize = self.options.nodesize;
        let mut system = layout::block_places(self.chunk_of(BlockGroupFlags::SYSTEM), nodesize);
        let mut metadata = layout::block_places(self.chunk_of(BlockGroupFlags::METADATA), nodesize);
        let mut places = Vec::new();
        for &(tree, count) in counts {
            for block in 1..=count {
                let next = if tree == TreeId::CHUNK { system.next() } else { metadata.next() };
                let logical = next.expect("the chunks have room for the first blocks");
                let level = u8::from(count > 1 && block == count);
                places.push(Place { tree, logical, level });
            }
        }
        places
    }

    fn chunk_of(&self, kind: BlockGroupFlags) -> &Chunk {
        let mut chunks = self.chunks.iter();
        chunks.find(|chunk| chunk.flags.contains(kind)).expect("there is a chunk of each kind")
    }

    /// The root block of a tree.
    pub(crate) fn root(&self, tree: TreeId) -> &Place {
        self.places.iter().rfind(|place| place.tree == tree).expect("the tree is there")
    }

    /// The total size of the blocks of a tree in bytes.
    pub(crate) fn bytes_of(&self, tree: TreeId) -> u64 {
        let count = self.places.iter().filter(|place| place.tree == tree).count();
        count as u64 * u64::from(self.options.nodesize)
    }

    /// The tree blocks in a chunk, ascending.
    pub(crate) fn blocks_in(&self, chunk: &Chunk) -> Vec<Logical> {
        let inside = |place: &&Place| (chunk.logical..chunk.end()).contains(&place.logical);
        let mut blocks: Vec<_> =
            self.places.iter().filter(inside).map(|place| place.logical).collect();
        blocks.sort_unstable();
        blocks
    }

    /// Builds all tree blocks, sealed.
    pub(crate) fn blocks(&self) -> Vec<TreeBlock> {
        let geometry = Geometry {
            checksum_kind: self.options.checksum,
            nodesize: self.options.nodesize,
            fsid: self.ids.fsid,
        };
        let chunk_tree_uuid = self.ids.chunk_tree;
        let context = Context { geometry, chunk_tree_uuid, generation: GENERATION };
        let build = |tree| {
            let of_tree = self.places.iter().filter(|place| place.tree == tree);
            let places: Vec<_> = of_tree.map(|place| place.logical).collect();
            pack::build(tree, &self.items(tree), &places, &context)
        };
        self.trees().flat_map(build).collect()
    }

    /// The physical offsets of the copies of a tree block.
    pub(crate) fn copies(&self, logical: Logical) -> impl Iterator<Item = Physical> {
        let holds = |chunk: &&Chunk| (chunk.logical..chunk.end()).contains(&logical);
        let chunk = self.chunks.iter().find(holds).expect("a block lies in a chunk");
        let offset = logical.0 - chunk.logical.0;
        chunk.stripes.iter().map(move |stripe| Physical(stripe.physical.0 + offset))
    }

    /// The device item.
    pub(crate) fn device(&self) -> DeviceItem {
        let used = |chunk: &Chunk| chunk.len * chunk.stripes.len() as u64;
        DeviceItem {
            id: DEVICE,
            total_bytes: self.device_bytes,
            bytes_used: self.chunks.iter().map(used).sum(),
            io_align: SECTOR_SIZE,
            io_width: SECTOR_SIZE,
            sector_size: SECTOR_SIZE,
            kind: 0,
            generation: 0,
            start_offset: 0,
            group: 0,
            seek_speed: 0,
            bandwidth: 0,
            uuid: self.ids.device,
            fsid: self.ids.fsid,
        }
    }

    fn bytes_used(&self) -> u64 {
        self.places.len() as u64 * u64::from(self.options.nodesize)
    }

    /// The superblock.
    pub(crate) fn superblock(&self) -> Superblock {
        let system =
            self.chunks.iter().filter(|chunk| chunk.flags.contains(BlockGroupFlags::SYSTEM));
        let root = self.root(TreeId::ROOT);
        let chunk_root = self.root(TreeId::CHUNK);
        let mut backup_roots = [BackupRoot::default(); 4];
        backup_roots[0] = self.backup_root();
        Superblock {
            checksum_kind: self.options.checksum,
            checksum: self.options.checksum.compute(&[]),
            fsid: self.ids.fsid,
            physical: SUPERBLOCK_OFFSETS[0],
            flags: SuperblockFlags::WRITTEN,
            generation: GENERATION,
            root: root.logical,
            root_level: root.level,
            chunk_root: chunk_root.logical,
            chunk_root_level: chunk_root.level,
            chunk_root_generation: GENERATION,
            log_root: None,
            log_root_level: 0,
            log_root_transid: 0,
            total_bytes: self.device_bytes,
            bytes_used: self.bytes_used(),
            root_dir_objectid: TreeId::ROOT_TREE_DIR.0,
            num_devices: 1,
            sectorsize: SECTOR_SIZE,
            nodesize: self.options.nodesize,
            stripesize: SECTOR_SIZE,
            compat: 0,
            compat_ro: self.options.compat_ro(),
            incompat: self.options.incompat(),
            device: self.device(),
            label: self.options.label.clone(),
            cache_generation: 0,
            uuid_tree_generation: GENERATION,
            metadata_uuid: self.ids.fsid,
            reserved: [0; 28],
            sys_chunk_array: encode_sys_chunk_array(system),
            backup_roots,
        }
    }

    fn backup_root(&self) -> BackupRoot {
        let trees =
            [TreeId::ROOT, TreeId::CHUNK, TreeId::EXTENT, TreeId::FS, TreeId::DEV, TreeId::CSUM];
        let roots = trees.map(|tree| self.root(tree));
        let [tree_root, chunk_root, extent_root, fs_root, dev_root, csum_root] =
            roots.map(|root| root.logical);
        BackupRoot {
            tree_root,
            tree_root_generation: GENERATION,
            chunk_root,
            chunk_root_generation: GENERATION,
            extent_root,
            extent_root_generation: GENERATION,
            fs_root,
            fs_root_generation: GENERATION,
            dev_root,
            dev_root_generation: GENERATION,
            csum_root,
            csum_root_generation: GENERATION,
            total_bytes: self.device_bytes,
            bytes_used: self.bytes_used(),
            num_devices: 1,
            levels: roots.map(|root| root.level),
        }
    }
}
