//! Coupling of tree blocks: the closed list of reasons to take one while another is held.
//!
//! `low` is the lowest level among the blocks the thread holds; the parent of a level is a held
//! block one level above it. The anchor of a tree, which locates its root, is above all levels.
//!
//! | token    | level taken | blocks that must be held                 | why no deadlock         |
//! |----------|-------------|------------------------------------------|-------------------------|
//! | Root     | any         | no tree block                            | holds no block          |
//! | Child    | below `low` | any block                                | levels descend          |
//! | Right    | `low`       | the parent                               | left precedes right     |
//! | Left     | `low`       | the parent, for writing                  | no entry by the parent  |
//! | Cow      | as original | the original, for writing                | new block, nobody waits |
//! | LeftCow  | as original | the left sibling and parent, for writing | new block, nobody waits |
//! | RightCow | as original | the right sibling and parent, for writing| new block, nobody waits |
//! | Split    | as original | the block that is split, for writing     | new block, nobody waits |
//! | NewRoot  | above root  | the old root, for writing, one below     | new block, nobody waits |
//!
//! 1. New blocks (Cow, LeftCow, RightCow, Split, NewRoot) are taken for writing.
//! 2. A thread that holds two siblings held their parent while it took the second. A thread that
//!    takes the left sibling, against the order, holds the parent exclusively; so any other thread
//!    that holds a sibling waits only for lower levels.

use std::fmt;

/// The reason why a tree block is locked: the first of a descent, or another while some are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Nesting {
    /// The first block: the thread holds none.
    Root,
    /// A block one or more levels below those held, on the way down.
    Child,
    /// The left sibling of a held block, to move items into it or merge with it.
    Left,
    /// The right sibling of a held block, to move items into it, merge with it, or walk on.
    Right,
    /// The new copy of the held left sibling.
    LeftCow,
    /// The new copy of the held right sibling.
    RightCow,
    /// The new copy of a held block.
    Cow,
    /// The new right half of a held block that is full.
    Split,
    /// The new root above the held old one.
    NewRoot,
}

/// The tree and level of a tree block: the name of its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockLabel {
    /// The owner in the header of the block. For messages only: blocks may be shared.
    pub owner: u64,
    /// Height above the leaves, which have level 0.
    pub level: u8,
}

impl fmt::Display for BlockLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tree {}, level {}", self.owner, self.level)
    }
}

/// Shared or exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Shared with other readers.
    Read,
    /// Exclusive.
    Write,
}

/// A tree block as the order check sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    /// Its level.
    pub(crate) level: u8,
    /// The mode in which it is, or will be, held.
    pub(crate) mode: Mode,
}

impl Nesting {
    /// Checks taking `block` with this token against the blocks the thread holds; the error is
    /// the rule that is violated.
    pub(crate) fn check(self, block: Block, held: &[Block]) -> Result<(), &'static str> {
        let low = held.iter().map(|held| held.level).min();
        let at = Some(block.level);
        let above = block.level.checked_add(1);
        match self {
            Self::Root => rule(held.is_empty(), "Root wants no tree block held"),
            Self::Child => rule(at < low, "Child goes below every held block"),
            Self::Right => {
                rule(at == low, "Right stays at the lowest held level")?;
                rule(holds(held, above, Mode::Read), "Right wants the parent held")
            }
            Self::Left => {
                rule(at == low, "Left stays at the lowest held level")?;
                rule(holds(held, above, Mode::Write), "Left wants the parent held for writing")
            }
            Self::LeftCow | Self::RightCow => {
                new_block(block, held, at)?;
                rule(holds(held, above, Mode::Write), "a sibling's copy wants the parent held")
            }
            Self::Cow | Self::Split => new_block(block, held, at),
            Self::NewRoot => {
                let free = held.iter().all(|held| held.level != block.level);
                rule(free, "NewRoot goes where no block is held")?;
                new_block(block, held, block.level.checked_sub(1))
            }
        }
    }
}

/// The rule of new blocks, which no other thread can reach: made from one held for writing at the
/// level `origin`.
fn new_block(block: Block, held: &[Block], origin: Option<u8>) -> Result<(), &'static str> {
    rule(block.mode == Mode::Write, "a new block is taken for writing")?;
    rule(holds(held, origin, Mode::Write), "a new block wants its origin held for writing")
}

/// Returns whether a block at `level` is held in `mode` or a stronger one.
fn holds(held: &[Block], level: Option<u8>, mode: Mode) -> bool {
    let strong = |held: &Block| mode == Mode::Read || held.mode == Mode::Write;
    held.iter().any(|held| Some(held.level) == level && strong(held))
}

fn rule(kept: bool, broken: &'static str) -> Result<(), &'static str> {
    if kept { Ok(()) } else { Err(broken) }
}

#[cfg(test)]
mod tests {
    use super::{Block, Mode::Read, Mode::Write, Nesting};

    /// Returns whether `token` lets a thread that holds `held` take a block; pairs are (level,
    /// mode).
    fn allowed(token: Nesting, taken: (u8, super::Mode), held: &[(u8, super::Mode)]) -> bool {
        let block = |&(level, mode): &(u8, super::Mode)| Block { level, mode };
        let held: Vec<Block> = held.iter().map(block).collect();
        token.check(block(&taken), &held).is_ok()
    }

    #[test]
    fn root_requires_that_no_block_is_held() {
        assert!(allowed(Nesting::Root, (2, Read), &[]));
        assert!(!allowed(Nesting::Root, (1, Read), &[(2, Read)]));
    }

    #[test]
    fn children_are_below_all_held() {
        assert!(allowed(Nesting::Child, (1, Read), &[(2, Read)]));
        assert!(allowed(Nesting::Child, (0, Write), &[(2, Read), (1, Write)]));
        assert!(!allowed(Nesting::Child, (1, Read), &[(2, Read), (1, Read)]));
        assert!(!allowed(Nesting::Child, (2, Read), &[(1, Read)]));
        assert!(!allowed(Nesting::Child, (0, Read), &[]));
    }

    #[test]
    fn right_requires_the_parent() {
        assert!(allowed(Nesting::Right, (0, Read), &[(1, Read), (0, Read)]));
        assert!(!allowed(Nesting::Right, (0, Read), &[(0, Read)]));
        assert!(!allowed(Nesting::Right, (1, Read), &[(2, Read), (1, Read), (0, Read)]));
    }

    #[test]
    fn left_requires_the_parent_for_writing() {
        assert!(allowed(Nesting::Left, (0, Write), &[(1, Write), (0, Write)]));
        assert!(!allowed(Nesting::Left, (0, Write), &[(1, Read), (0, Write)]));
        assert!(!allowed(Nesting::Left, (0, Write), &[(0, Write)]));
    }

    #[test]
    fn new_blocks_require_their_origin_for_writing() {
        for token in [Nesting::Cow, Nesting::Split] {
            assert!(allowed(token, (1, Write), &[(1, Write)]));
            assert!(!allowed(token, (1, Write), &[(1, Read)]));
            assert!(!allowed(token, (1, Read), &[(1, Write)]));
            assert!(!allowed(token, (1, Write), &[(2, Write)]));
        }
        for token in [Nesting::LeftCow, Nesting::RightCow] {
            assert!(allowed(token, (0, Write), &[(1, Write), (0, Write), (0, Write)]));
            assert!(!allowed(token, (0, Write), &[(0, Write), (0, Write)]));
        }
    }

    #[test]
    fn a_new_root_is_one_above_the_old() {
        assert!(allowed(Nesting::NewRoot, (2, Write), &[(1, Write)]));
        assert!(!allowed(Nesting::NewRoot, (3, Write), &[(1, Write)]));
        assert!(!allowed(Nesting::NewRoot, (2, Write), &[(1, Read)]));
        assert!(!allowed(Nesting::NewRoot, (0, Write), &[]));
    }
}
