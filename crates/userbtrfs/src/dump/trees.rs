//! The trees that are dumped, their order, and the walk over each.
//!
//! 1. A tree is dumped level by level from its root down. Each level is reached by a descent of
//!    its own, so that one path is in memory; the blocks above are read again.
//! 2. A descent ends: the level decreases, and a block is in only one place of its tree, since its
//!    first key must be that of the pointer to it.
//! 3. Blocks that an unfinished deletion of a tree has freed already are not visited.
//! 4. Each damaged block is reported once per tree, when its own level is dumped.

use std::io::Write;

use userbtrfs_format::{Expectation, ItemKind, Key, Logical, RootItem, Superblock, TreeId};
use userbtrfs_volume::{ReadError, TreeBlock, Volume};

use super::block::Blocks;
use super::output::Output;
use super::record::Show;
use super::{DumpError, Format, TreeSelection, names};

/// Dumps trees of a volume. The error of each block that cannot be read is passed to `damaged`.
pub fn dump_tree(
    volume: &Volume,
    which: TreeSelection,
    format: Format,
    out: &mut impl Write,
    damaged: &mut dyn FnMut(&ReadError),
) -> Result<(), DumpError> {
    let output = Output::new(format, out)?;
    let mut dump = Dump { volume, output, damaged };
    match which {
        TreeSelection::All => dump.all()?,
        TreeSelection::One(tree) => dump.one(tree)?,
    }
    Ok(dump.output.finish()?)
}

/// The root of a tree, and the properties that its block must have.
#[derive(Clone, Copy)]
struct Root {
    logical: Logical,
    expected: Expectation,
    /// Blocks whose keys are all before this one were freed.
    dropped: Key,
}

impl Root {
    fn new(owner: TreeId, logical: Logical, level: u8, generation: u64) -> Self {
        let expected = Expectation { owner, level, generation, first_key: None, end: None };
        Self { logical, expected, dropped: Key::MIN }
    }
}

fn root_tree(superblock: &Superblock) -> Root {
    Root::new(TreeId::ROOT, superblock.root, superblock.root_level, superblock.generation)
}

fn log_root_tree(superblock: &Superblock) -> Option<Root> {
    let logical = superblock.log_root?;
    // The log belongs to the transaction after the one that the superblock commits.
    let generation = superblock.generation.saturating_add(1);
    Some(Root::new(TreeId::TREE_LOG, logical, superblock.log_root_level, generation))
}

struct Dump<'a> {
    volume: &'a Volume,
    output: Output<'a>,
    damaged: &'a mut dyn FnMut(&ReadError),
}

impl Dump<'_> {
    fn all(&mut self) -> Result<(), DumpError> {
        let superblock = self.volume.superblock();
        let root = root_tree(&superblock);
        let log = log_root_tree(&superblock);
        self.headed("root tree", root)?;
        self.headed("chunk tree", self.chunk_root())?;
        if let Some(log) = log {
            self.headed("log root tree", log)?;
        }
        self.trees_in(root, &|_| true)?;
        if let Some(log) = log {
            self.trees_in(log, &|_| true)?;
        }
        self.totals()
    }

    fn one(&mut self, tree: TreeId) -> Result<(), DumpError> {
        let superblock = self.volume.superblock();
        let root = root_tree(&superblock);
        match (tree, log_root_tree(&superblock)) {
            (TreeId::ROOT, _) => self.headed("root tree", root),
            (TreeId::CHUNK, _) => self.headed("chunk tree", self.chunk_root()),
            (TreeId::TREE_LOG, Some(log)) => self.headed("log root tree", log),
            _ => match self.trees_in(root, &|key| key.objectid == tree.0)? {
                0 if self.report_damage(root)? > 0 => Err(DumpError::LostTree(tree)),
                0 => Err(DumpError::NoTree(tree)),
                _ => self.totals(),
            },
        }
    }

    fn chunk_root(&self) -> Root {
        let (logical, expected) = self.volume.chunk_root();
        Root { logical, expected, dropped: Key::MIN }
    }

    fn headed(&mut self, heading: &str, root: Root) -> Result<(), DumpError> {
        self.output.text_line(heading)?;
        self.tree(root)
    }

    /// Dumps the trees whose items in the tree at `roots` are wanted; returns their number.
    fn trees_in(&mut self, roots: Root, wanted: &dyn Fn(Key) -> bool) -> Result<u64, DumpError> {
        let volume = self.volume;
        let mut count = 0;
        let mut each = |leaf: &TreeBlock| {
            for slot in 0..leaf.len() {
                let item = leaf.item(slot);
                if item.key.kind == ItemKind::ROOT_ITEM && wanted(item.key) {
                    count += 1;
                    self.tree_of(item.key, &RootItem::parse(item.data).expect("verified"))?;
                }
            }
            Ok(())
        };
        // Damage in the tree at `roots` is reported when that tree is dumped, or if no tree was
        // found in it.
        visit(volume, roots, 0, &mut |_| (), &mut each)?;
        Ok(count)
    }

    /// Reports the damaged blocks of a tree, and returns their number.
    fn report_damage(&mut self, root: Root) -> Result<u64, DumpError> {
        let mut count = 0;
        let mut report = |error: &ReadError| {
            count += 1;
            (self.damaged)(error);
        };
        for level in (0..=root.expected.level).rev() {
            visit(self.volume, root, level, &mut report, &mut |_| Ok(()))?;
        }
        Ok(count)
    }

    fn tree_of(&mut self, key: Key, root: &RootItem) -> Result<(), DumpError> {
        let tree = TreeId(key.objectid);
        let heading = format!("{} tree key {}", names::tree_heading(tree), key.text());
        let start = Root::new(tree, root.logical, root.level, root.generation);
        self.headed(&heading, Root { dropped: root.drop_progress, ..start })
    }

    fn tree(&mut self, root: Root) -> Result<(), DumpError> {
        let blocks = Blocks { tree: root.expected.owner, geometry: self.volume.geometry() };
        for level in (0..=root.expected.level).rev() {
            let output = &mut self.output;
            let mut each = |block: &TreeBlock| Ok(blocks.dump(block, output)?);
            visit(self.volume, root, level, self.damaged, &mut each)?;
        }
        Ok(())
    }

    fn totals(&mut self) -> Result<(), DumpError> {
        let superblock = self.volume.superblock();
        self.output.text_line(&format!("total bytes {}", superblock.total_bytes))?;
        self.output.text_line(&format!("bytes used {}", superblock.bytes_used))?;
        self.output.text_line(&format!("uuid {}", superblock.fsid))?;
        Ok(())
    }
}

/// Visits the blocks of one level at or below `root`, in the order of their keys.
fn visit(
    volume: &Volume,
    root: Root,
    level: u8,
    damaged: &mut dyn FnMut(&ReadError),
    each: &mut dyn FnMut(&TreeBlock) -> Result<(), DumpError>,
) -> Result<(), DumpError> {
    let expected = root.expected;
    let block = match volume.read_block(root.logical, &expected) {
        Ok(block) => block,
        Err(error) => {
            if expected.level == level {
                damaged(&error);
            }
            return Ok(());
        }
    };
    if expected.level == level {
        return each(&block);
    }
    for slot in 0..block.len() {
        let child = block.child(slot);
        let expected = Expectation {
            owner: expected.owner,
            level: expected.level - 1,
            generation: child.generation,
            first_key: Some(child.key),
            end: block.next_child_key(slot).or(expected.end),
        };
        if expected.end.is_none_or(|end| end > root.dropped) {
            visit(volume, Root { logical: child.logical, expected, ..root }, level, damaged, each)?;
        }
    }
    Ok(())
}
