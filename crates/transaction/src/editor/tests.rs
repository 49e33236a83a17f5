//! Trees of golden images, changed by an editor whose source of blocks counts references as the
//! commit does.

use std::collections::BTreeMap;
use std::ops::Range;

use tempfile::TempDir;
use userbtrfs_btree::{Backref, BlockRefs, Extent, NoSpace, RefChange, SourceError};
use userbtrfs_device::{FileDevice, FileOptions};
use userbtrfs_format::{BlockGroupFlags, BlockGroupItem, Header, ItemKind, Logical};
use userbtrfs_sync::{Class, Mutex};
use userbtrfs_testkit::golden::Golden;
use userbtrfs_volume::Volume;

use super::*;
use crate::free_tree::{self, tests::check_group};
use crate::refs::{self, DelayedRefs, Outcome};

/// A kind that carries any content.
const ANY: ItemKind = ItemKind(99);

/// A source of blocks that counts their references.
struct TestSource<'a> {
    tree_roots: &'a TreeRoots,
    delayed: DelayedRefs,
    nodesize: u32,
    free: Mutex<Vec<u64>>,
    groups: Vec<Range<u64>>,
}

impl<'a> TestSource<'a> {
    fn of(tree_roots: &'a TreeRoots) -> Self {
        let nodesize = tree_roots.store().volume().geometry().nodesize;
        let extents = TreeItems::new(tree_roots, TreeId::EXTENT).expect("there is one");
        let tree = TreeItems::new(tree_roots, TreeId::FREE_SPACE).expect("there is one");
        let mut groups = Vec::new();
        let mut free = Vec::new();
        for (key, data) in all(&extents) {
            if key.kind == ItemKind::BLOCK_GROUP_ITEM {
                let flags = BlockGroupItem::parse(key.offset, &data).expect("verified").flags;
                groups.push((key.objectid..key.objectid + key.offset, flags));
            }
        }
        for (group, flags) in &groups {
            let unused = check_group(&tree, &extents, group, nodesize);
            if flags.contains(BlockGroupFlags::METADATA) {
                let step = usize::try_from(nodesize).expect("small");
                let blocks = |range: &Range<u64>| range.clone().step_by(step);
                let fits = |range: &Range<u64>, at: &u64| at + u64::from(nodesize) <= range.end;
                for range in unused {
                    free.extend(blocks(&range).filter(|at| fits(&range, at)));
                }
            }
        }
        let groups = groups.into_iter().map(|(group, _)| group).collect();
        let free = Mutex::new(Class::BlockGroup, free);
        Self { tree_roots, delayed: DelayedRefs::default(), nodesize, free, groups }
    }

    fn editor(&self) -> Editor<'_> {
        Editor { tree_roots: self.tree_roots, source: self, generation: self.generation() }
    }

    /// Applies all references to the trees, as long as that changes more of them.
    fn settle(&self) {
        let editor = self.editor();
        while let Some(head) = self.delayed.take_next() {
            let start = head.logical().0;
            let len = match head.extent {
                Extent::Block { .. } => u64::from(self.nodesize),
                Extent::Data { len, .. } => len,
            };
            let group = self.groups.iter().find(|group| group.contains(&start));
            let group = group.expect("extents lie in groups");
            let range = start..start + len;
            match refs::run(&editor, &head).expect("no damage") {
                Outcome::Added => free_tree::allocate(&editor, group, &range).expect("it is free"),
                Outcome::Freed => free_tree::free(&editor, group, &range).expect("it is in use"),
                Outcome::Kept | Outcome::NeverAdded => (),
            }
        }
    }

    /// Checks that the trees agree about what is free.
    fn check(&self) {
        let extents = TreeItems::new(self.tree_roots, TreeId::EXTENT).expect("there is one");
        let free = TreeItems::new(self.tree_roots, TreeId::FREE_SPACE).expect("there is one");
        for group in &self.groups {
            check_group(&free, &extents, group, self.nodesize);
        }
    }
}

impl BlockSource for TestSource<'_> {
    fn generation(&self) -> u64 {
        self.tree_roots.store().volume().superblock().generation + 1
    }

    fn allocate(&self, tree: TreeId, level: u8, _near: Logical) -> Result<Logical, NoSpace> {
        let logical = Logical(self.free.lock().pop().ok_or(NoSpace)?);
        self.delayed.allocated(logical, level, tree);
        Ok(logical)
    }

    fn free(&self, tree: TreeId, block: &Header) {
        if self.delayed.forget(block.logical) {
            self.free.lock().push(block.logical.0);
            return;
        }
        let extent = Extent::Block { logical: block.logical, level: block.level };
        self.delayed.change(&RefChange { add: false, extent, backref: Backref::Tree(tree) });
    }

    fn sharing(&self, block: Logical) -> Option<BlockRefs> {
        self.delayed.sharing(block)
    }

    fn load_refs(&self, logical: Logical, level: u8) -> Result<(), SourceError> {
        let found = refs::lookup(self.tree_roots, &Extent::Block { logical, level })?;
        self.delayed.learn(logical, found.expect("it is in use"));
        Ok(())
    }

    fn reference(&self, change: RefChange) {
        self.delayed.change(&change);
    }

    fn drop_if_shared(&self, change: RefChange) -> Option<BlockRefs> {
        self.delayed.drop_if_shared(&change)
    }

    fn set_full_backref(&self, block: Logical, level: u8) {
        self.delayed.set_full_backref(block, level);
    }

    fn root_changed(&self, _tree: &Tree) {}
}

fn all(items: &TreeItems<'_>) -> BTreeMap<Key, Vec<u8>> {
    let mut all = BTreeMap::new();
    let read = items.visit(&Key::MIN, &mut |key, data| {
        all.insert(key, data.to_vec());
        ControlFlow::Continue(())
    });
    read.expect("readable");
    all
}

/// Returns the subvolumes of a filesystem, and the items of each.
fn subvolumes(tree_roots: &TreeRoots) -> Vec<(TreeId, BTreeMap<Key, Vec<u8>>)> {
    let roots = all(&TreeItems::new(tree_roots, TreeId::ROOT).expect("there is one"));
    let ids = roots.keys().filter(|key| key.kind == ItemKind::ROOT_ITEM);
    let ids = ids.map(|key| TreeId(key.objectid)).filter(|id| id.is_subvolume());
    let alive = ids.filter_map(|id| Some((id, TreeItems::new(tree_roots, id).ok()?)));
    alive.map(|(id, items)| (id, all(&items))).collect()
}

fn key(number: u64) -> Key {
    Key::new(300 + number * 7, ANY, number)
}

/// Adds items to all subvolumes and removes them.
fn change(tree_roots: &TreeRoots) {
    let source = TestSource::of(tree_roots);
    let before = subvolumes(tree_roots);
    let content = vec![7; 90];
    for (id, _) in &before {
        let mut put: Vec<_> =
            (0..1000).map(|number| ItemEdit::Put(key(number), content.clone())).collect();
        source.editor().apply(*id, &mut put).expect("room");
    }
    source.settle();
    source.check();
    for (id, _) in &before {
        let mut remove: Vec<_> = (0..1000).map(|number| ItemEdit::Remove(key(number))).collect();
        source.editor().apply(*id, &mut remove).expect("room");
    }
    source.settle();
    source.check();
    assert_eq!(before, subvolumes(tree_roots));
}

#[test]
fn extent_and_free_space_trees_agree_after_changes() {
    for name in ["basic", "nodesize-4k", "shared", "subvolumes", "mixed"] {
        let folder = TempDir::new().expect("room");
        let image = folder.path().join("image");
        Golden::named(name).unpack(&image).expect("room");
        let device = FileDevice::open(&image, FileOptions::default()).expect("an image");
        let volume = Volume::open(vec![Arc::new(device)]).expect("one that we read");
        change(&TreeRoots::new(Arc::new(volume), 8 << 20));
    }
}
