//! Moving blocks of subvolume trees, and extents that their leaves refer to, to other addresses.
//!
//! 1. All trees that may lead to what moves are walked, and a block that several share is read
//!    once: so all parents of a block that moves are known.
//! 2. A block that moves is copied once, and so is each block above it: the copies are shared by
//!    the same trees as the originals were. A block that the running transaction may change is
//!    changed in place.
//! 3. A copy has the owner of the original. Unless it is a root, it is marked: it may be shared
//!    though it is newer than the last snapshot. The children of a marked block are referred to by
//!    its address (full backref), as Linux requires.
//! 4. Nothing is changed before the whole plan is made, and its references were compared with the
//!    extent tree. The caller excludes changes of all trees from then on.
//! 5. Each block is what the pointer to it says, also if it is in memory or was visited before: so
//!    the levels descend on each path, and a walk ends.
//! 6. The memory of the blocks to change, and of the changes of references, is bounded: a plan that
//!    would take more is not made. Each visited block takes a few words besides.

use std::collections::HashMap;

use thiserror::Error;
use userbtrfs_format::{
    BlockFlags, ChildPointer, Expectation, FileExtent, FileExtentKind, ItemKind, Logical,
    RegularExtent, TreeId,
};
use userbtrfs_sync::{Arc, Nesting};
use userbtrfs_volume::TreeBlock;

use crate::hash::ShortKeys;
use crate::source::{Backref, BlockRefs, BlockSource, Extent, NoSpace, RefChange};
use crate::tree::Root;
use crate::{NodeRef, NodeStore, ReadError, Tree};

/// The memory of a change of a reference that is not in the extent tree yet, in bytes.
const REFERENCE_BYTES: usize = 160;

/// The reason why there is no plan.
#[derive(Debug, Error)]
pub enum PlanError {
    /// A tree block cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The changes take more memory than is allowed.
    #[error("too much refers to what moves")]
    TooLarge,
}

/// The blocks and the extents of data that move.
pub struct Moved {
    /// The addresses of blocks that move.
    pub blocks: std::ops::Range<u64>,
    /// The new addresses of extents.
    pub data: HashMap<Logical, Logical, ShortKeys>,
}

/// A reference to an extent of data, before and after it moves.
#[derive(Clone, Copy, Debug)]
pub struct MovedRef {
    /// The extent at its old address.
    pub logical: Logical,
    /// Its length on disk.
    pub len: u64,
    /// The reference to the old extent.
    pub old: Backref,
    /// The reference to the new extent.
    pub new: Backref,
}

/// A block to be copied or to be changed in place.
struct Planned {
    block: NodeRef,
    is_copied: bool,
    /// Its children are referred to by its address.
    full_backref: bool,
    /// The references to it, each with the index of the parent; `None` if it is a root.
    backrefs: Vec<(Backref, Option<usize>)>,
    is_root: bool,
}

impl Planned {
    /// Returns whether the copy refers to its children by its address.
    fn is_full_after(&self) -> bool {
        self.full_backref || self.is_copied && !self.is_root
    }

    /// Returns the reference of the block, or of its copy at `address`, to a child.
    fn child_backref(&self, is_full: bool, address: Logical) -> Backref {
        if is_full { Backref::Parent(address) } else { Backref::Tree(self.block.header().owner) }
    }
}

/// The blocks that change when something moves.
pub struct RelocationPlan<'a> {
    store: &'a NodeStore,
    moved: Moved,
    generation: u64,
    /// The blocks to change, children before their parents.
    planned: Vec<Planned>,
    visited: HashMap<Logical, Visited, ShortKeys>,
    /// The trees whose roots move.
    roots: Vec<(Arc<Tree>, usize)>,
    /// The bytes that the changes take in memory, and the most.
    memory: usize,
    memory_max: usize,
}

/// A block that was visited.
#[derive(Clone, Copy)]
struct Visited {
    generation: u64,
    level: u8,
    /// Its index in the plan; `None` if it does not change.
    index: Option<usize>,
}

impl<'a> RelocationPlan<'a> {
    /// Returns a plan without trees, whose changes may take `memory_max` bytes.
    pub fn new(store: &'a NodeStore, moved: Moved, generation: u64, memory_max: usize) -> Self {
        Self {
            store,
            moved,
            generation,
            planned: Vec::new(),
            visited: HashMap::default(),
            roots: Vec::new(),
            memory: 0,
            memory_max,
        }
    }

    /// Walks a tree that snapshots may share.
    pub fn add_tree(&mut self, tree: &Arc<Tree>) -> Result<(), PlanError> {
        let root = tree.root();
        let index = self.visit(tree, root.logical, &tree.expected_root(root))?;
        if let Some(index) = index.filter(|&index| self.planned[index].is_copied) {
            self.planned[index].backrefs.push((Backref::Tree(tree.id()), None));
            self.planned[index].is_root = true;
            self.roots.push((Arc::clone(tree), index));
        }
        Ok(())
    }

    /// Returns the index of a block in the plan; `None` if it does not change.
    fn visit(
        &mut self,
        tree: &Tree,
        logical: Logical,
        expected: &Expectation,
    ) -> Result<Option<usize>, PlanError> {
        let Expectation { generation, level, .. } = *expected;
        let known = self.visited.get(&logical);
        if let Some(known) = known.filter(|it| (it.generation, it.level) == (generation, level)) {
            return Ok(known.index);
        }
        let block = self.store.read(logical, expected)?;
        let mut changes = self.moved.blocks.contains(&logical.0);
        if block.is_leaf() {
            changes |= extents(&block).any(|(_, it)| self.moved.data.contains_key(&it.disk));
        } else {
            for slot in 0..block.len() {
                let child = block.child(slot).logical;
                let index = self.visit(tree, child, &tree.expected_child(&block, slot))?;
                changes |= index.is_some_and(|index| self.planned[index].is_copied);
            }
        }
        let index = if changes { Some(self.plan(block)?) } else { None };
        self.visited.insert(logical, Visited { generation, level, index });
        Ok(index)
    }

    /// Adds a block to the plan; returns its index.
    fn plan(&mut self, block: NodeRef) -> Result<usize, PlanError> {
        let header = block.header();
        let is_current = header.generation == self.generation
            && !header.flags.contains(BlockFlags::WRITTEN)
            && !self.moved.blocks.contains(&header.logical.0);
        // The block and its copy; each reference is added and dropped.
        self.memory += 2 * (self.store.nodesize() + REFERENCE_BYTES * block.len());
        if self.memory > self.memory_max {
            return Err(PlanError::TooLarge);
        }
        self.planned.push(Planned {
            block,
            is_copied: !is_current,
            full_backref: false,
            backrefs: Vec::new(),
            is_root: false,
        });
        Ok(self.planned.len() - 1)
    }

    /// Returns the number of blocks to allocate.
    pub fn copies(&self) -> usize {
        self.planned.iter().filter(|it| it.is_copied).count()
    }

    /// Returns the number of references that are added or dropped, given those to extents that
    /// move. All references are found.
    pub fn changes(&self, moved: &[MovedRef]) -> usize {
        let of_block = |planned: &Planned| {
            let block = &planned.block;
            let stay = if block.is_leaf() {
                let moves = |extent: &RegularExtent| self.moved.data.contains_key(&extent.disk);
                extents(block).filter(|(_, extent)| !moves(extent)).count()
            } else {
                let moves = |slot| self.copied(block.child(slot).logical).is_some();
                (0..block.len()).filter(|slot| !moves(*slot)).count()
            };
            // The allocation of a copy counts one, which is dropped.
            2 * (planned.backrefs.len() + stay + 1)
        };
        let copied = self.planned.iter().filter(|it| it.is_copied);
        copied.map(of_block).sum::<usize>() + 2 * moved.len()
    }

    /// Finds all references to what moves, and compares those to blocks with what `refs` returns
    /// of the extent tree; returns false if they differ.
    pub fn find_refs<E>(
        &mut self,
        refs: impl Fn(Logical, u8) -> Result<BlockRefs, E>,
    ) -> Result<bool, E> {
        let mut counts = Vec::new();
        for planned in &mut self.planned {
            let header = planned.block.header();
            let found = refs(header.logical, header.level)?;
            planned.full_backref = found.full_backref;
            counts.push(found.refs);
        }
        for index in 0..self.planned.len() {
            let parent = &self.planned[index];
            if parent.block.is_leaf() {
                continue;
            }
            let address = parent.block.header().logical;
            let backref = parent.child_backref(parent.full_backref, address);
            let block = Arc::clone(&parent.block);
            for slot in 0..block.len() {
                if let Some(child) = self.copied(block.child(slot).logical) {
                    self.planned[child].backrefs.push((backref, Some(index)));
                }
            }
        }
        let fits = |(planned, refs): (&Planned, u64)| {
            !planned.is_copied || planned.backrefs.len() as u64 == refs
        };
        Ok(self.planned.iter().zip(counts).all(fits))
    }

    /// Returns the references to extents that move.
    pub fn data_refs(&self, new_address: impl Fn(Logical) -> Logical) -> Vec<MovedRef> {
        let mut found = Vec::new();
        for planned in self.planned.iter().filter(|it| it.block.is_leaf()) {
            let header = planned.block.header();
            let at = header.logical;
            for (slot, extent) in extents(&planned.block) {
                if !self.moved.data.contains_key(&extent.disk) {
                    continue;
                }
                let of = |is_full, leaf| data_backref(&planned.block, slot, &extent, is_full, leaf);
                let old = of(planned.full_backref, at);
                let new = of(planned.is_full_after(), new_address(at));
                found.push(MovedRef { logical: extent.disk, len: extent.disk_bytes, old, new });
            }
        }
        found
    }

    /// Returns the index of a block that is copied.
    fn copied(&self, logical: Logical) -> Option<usize> {
        let index = self.visited.get(&logical)?.index?;
        self.planned[index].is_copied.then_some(index)
    }

    /// Copies and changes all blocks of the plan; returns the references to extents that moved,
    /// which the caller counts.
    pub fn run(self, source: &dyn BlockSource) -> Result<Vec<MovedRef>, NoSpace> {
        let mut moved: HashMap<Logical, Logical, ShortKeys> = HashMap::default();
        for planned in &self.planned {
            let to = self.replace(planned, &moved, source)?;
            moved.insert(planned.block.header().logical, to);
        }
        for planned in &self.planned {
            self.count(planned, &moved, source);
        }
        for (tree, index) in &self.roots {
            let header = self.planned[*index].block.header();
            let logical = moved[&header.logical];
            let root = Root { logical, level: header.level, generation: self.generation };
            *tree.anchor().write(Nesting::Root) = root;
            source.root_changed(tree);
        }
        for planned in self.planned.iter().filter(|it| it.is_copied) {
            self.store.discard(planned.block.header().logical);
        }
        Ok(self.data_refs(|leaf| moved[&leaf]))
    }

    /// Copies a block, or changes it in place; returns its address afterwards.
    fn replace(
        &self,
        planned: &Planned,
        moved: &HashMap<Logical, Logical, ShortKeys>,
        source: &dyn BlockSource,
    ) -> Result<Logical, NoSpace> {
        let header = planned.block.header();
        let owner = header.owner;
        if planned.is_copied {
            let near = header.logical;
            let mut made = self.store.make(
                source,
                owner,
                header.level,
                near,
                Nesting::Root,
                |bytes, new| {
                    let mut block = planned.block.copy_to(bytes, new);
                    if !planned.is_root {
                        block.mark_relocated();
                    }
                    block
                },
            )?;
            self.update(Arc::make_mut(&mut made), moved);
            return Ok(made.header().logical);
        }
        let node = self.store.cached(header.logical).expect("dirty nodes are in memory");
        self.update(Arc::make_mut(&mut node.write(Nesting::Root)), moved);
        Ok(header.logical)
    }

    /// Sets the new addresses in a block.
    fn update(&self, block: &mut TreeBlock, moved: &HashMap<Logical, Logical, ShortKeys>) {
        if !block.is_leaf() {
            for slot in 0..block.len() {
                let child = block.child(slot);
                if let Some(&logical) = moved.get(&child.logical).filter(|it| **it != child.logical)
                {
                    let generation = self.generation;
                    block.set_child(slot, &ChildPointer { logical, generation, ..child });
                }
            }
            return;
        }
        let found: Vec<_> = extents(block).collect();
        for (slot, extent) in found {
            let Some(&disk) = self.moved.data.get(&extent.disk) else { continue };
            let item = block.item(slot);
            let mut file_extent =
                FileExtent::parse(item.key.offset, item.data).expect("verified with its block");
            let new = RegularExtent { disk, ..extent };
            file_extent.kind = match file_extent.kind {
                FileExtentKind::Prealloc(_) => FileExtentKind::Prealloc(new),
                _ => FileExtentKind::Regular(new),
            };
            let bytes = file_extent.encode();
            block.replace_item(slot, &bytes);
        }
    }

    /// Moves the references to a copied block, and those of it to its children, to the copy.
    fn count(
        &self,
        planned: &Planned,
        moved: &HashMap<Logical, Logical, ShortKeys>,
        source: &dyn BlockSource,
    ) {
        if !planned.is_copied {
            return;
        }
        let header = planned.block.header();
        let from = header.logical;
        let to = moved[&from];
        let level = header.level;
        let change = |add, extent, backref| source.reference(RefChange { add, extent, backref });
        for &(backref, parent) in &planned.backrefs {
            let new = parent.map_or(backref, |parent| {
                let parent = &self.planned[parent];
                let address = moved[&parent.block.header().logical];
                parent.child_backref(parent.is_full_after(), address)
            });
            change(true, Extent::Block { logical: to, level }, new);
            change(false, Extent::Block { logical: from, level }, backref);
        }
        // The allocation counted one of the owner.
        change(false, Extent::Block { logical: to, level }, Backref::Tree(header.owner));
        let is_full = planned.is_full_after();
        if is_full {
            source.set_full_backref(to, level);
        }
        if planned.block.is_leaf() {
            for (slot, extent) in extents(&planned.block) {
                if !self.moved.data.contains_key(&extent.disk) {
                    let data = Extent::Data { logical: extent.disk, len: extent.disk_bytes };
                    let of = |is_full, at| data_backref(&planned.block, slot, &extent, is_full, at);
                    change(true, data, of(is_full, to));
                    change(false, data, of(planned.full_backref, from));
                }
            }
            return;
        }
        for slot in 0..planned.block.len() {
            let logical = planned.block.child(slot).logical;
            if self.copied(logical).is_none() {
                let child = Extent::Block { logical, level: level - 1 };
                change(true, child, planned.child_backref(is_full, to));
                change(false, child, planned.child_backref(planned.full_backref, from));
            }
        }
    }
}

/// Returns the extents that a leaf refers to, with their slots.
fn extents(leaf: &TreeBlock) -> impl Iterator<Item = (usize, RegularExtent)> + '_ {
    (0..leaf.len()).filter_map(|slot| {
        let item = leaf.item(slot);
        if item.key.kind != ItemKind::EXTENT_DATA {
            return None;
        }
        let parsed =
            FileExtent::parse(item.key.offset, item.data).expect("verified with its block");
        match parsed.kind {
            FileExtentKind::Regular(data) | FileExtentKind::Prealloc(data) => Some((slot, data)),
            _ => None,
        }
    })
}

/// Returns the reference of an item in a leaf, which is at `address`, to its extent.
fn data_backref(
    leaf: &TreeBlock,
    slot: usize,
    extent: &RegularExtent,
    is_full: bool,
    address: Logical,
) -> Backref {
    if is_full {
        return Backref::SharedLeaf(address);
    }
    let key = leaf.item(slot).key;
    let root: TreeId = leaf.header().owner;
    // Offsets below the extent's own start wrap around, as Linux counts them.
    let offset = key.offset.wrapping_sub(extent.offset);
    Backref::File { root, inode: key.objectid, offset }
}
