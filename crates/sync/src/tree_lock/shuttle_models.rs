//! The tree lock under shuttle: random schedules of more threads than loom can exhaust, with
//! coupling down a small tree.

use shuttle::thread;

use super::TreeLock;
use crate::nesting::{BlockLabel, Nesting};
use crate::primitives::Arc;

/// A root and two leaves; the value of the root is the sum of the leaves.
struct Tree {
    root: Arc<TreeLock<usize>>,
    leaves: [Arc<TreeLock<usize>>; 2],
}

impl Tree {
    fn new() -> Self {
        let block = |level| Arc::new(TreeLock::new(BlockLabel { owner: 5, level }, 0));
        Self { root: block(1), leaves: [block(0), block(0)] }
    }

    /// Adds one to a leaf, coupled under the root.
    fn add(&self, leaf: usize) {
        let mut root = TreeLock::write_owned(&self.root, Nesting::Root);
        let mut leaf = TreeLock::write_owned(&self.leaves[leaf], Nesting::Child);
        *root += 1;
        drop(root);
        thread::yield_now();
        *leaf += 1;
    }

    /// Walks the leaves from left to right under the root, and asserts that the sum matches.
    fn sum(&self) {
        let root = TreeLock::read_owned(&self.root, Nesting::Root);
        let left = TreeLock::read_owned(&self.leaves[0], Nesting::Child);
        let right = TreeLock::read_owned(&self.leaves[1], Nesting::Right);
        assert_eq!(*root, *left + *right);
    }

    /// Moves one from the right leaf to the left, and asserts that the sum still matches.
    fn shift(&self) {
        let root = TreeLock::write_owned(&self.root, Nesting::Root);
        let mut right = TreeLock::write_owned(&self.leaves[1], Nesting::Child);
        let mut left = TreeLock::write_owned(&self.leaves[0], Nesting::Left);
        let moved = (*right).min(1);
        *right -= moved;
        *left += moved;
        let sum = *left + *right;
        let left = left.downgrade();
        let right = right.downgrade();
        assert_eq!((*root, *left + *right), (sum, sum));
    }
}

fn crowd() {
    let tree = Arc::new(Tree::new());
    let start = |number: usize| {
        let tree = Arc::clone(&tree);
        thread::spawn(move || match number % 4 {
            0 | 1 => tree.add(number % 2),
            2 => tree.sum(),
            _ => tree.shift(),
        })
    };
    let threads: Vec<_> = (0..8).map(start).collect();
    for thread in threads {
        thread.join().expect("shuttle fails the model itself");
    }
    assert_eq!(*tree.root.read(Nesting::Root), 4);
    tree.sum();
}

#[test]
fn a_crowd_by_random_schedules() {
    shuttle::check_random(crowd, 5_000);
}

#[test]
fn a_crowd_by_few_preemptions() {
    shuttle::check_pct(crowd, 5_000, 3);
}
