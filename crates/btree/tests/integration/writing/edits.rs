//! Edits that depend on the current content, and edits of several threads.

use userbtrfs_btree::{Change, Edit, ItemEdit};
use userbtrfs_format::Key;
use userbtrfs_testkit::random::{Random, seed};

use super::grove::{ANY, Grove, torture};
use crate::plain;

/// Appends to the current content, as a change of a directory item does.
struct Append(Key, u8, Vec<u8>);

impl Edit for Append {
    fn key(&self) -> Key {
        self.0
    }

    fn apply(&mut self, current: Option<&[u8]>) -> Change<'_> {
        self.2 = current.unwrap_or_default().to_vec();
        self.2.push(self.1);
        Change::Put(&self.2)
    }
}

#[test]
fn edit_sees_the_current_content_and_is_made_once() {
    let grove = Grove::new(4096, 1 << 20);
    let tree = &grove.trees[0].0;
    for round in 0..200 {
        let mut edits: Vec<_> =
            (0..100).map(|number| Append(Key::new(number, ANY, 0), round, Vec::new())).collect();
        tree.apply(&grove.store, &grove.books, &mut edits).unwrap();
        if round % 17 == 0 {
            grove.commit();
        }
    }
    grove.commit();
    let all: Vec<u8> = (0..200).collect();
    let items = plain(&grove.volume, tree.id(), tree.root());
    assert_eq!(items.len(), 101);
    assert!(items[..100].iter().all(|(_, data)| *data == all));
}

#[test]
fn threads_change_one_tree_together() {
    let grove = Grove::new(4096, 1 << 20);
    let seed = seed();
    let rounds = if torture() { 2000 } else { 100 };
    let threads = 4;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let grove = &grove;
            scope.spawn(move || {
                let tree = &grove.trees[0].0;
                let mut random = Random::new(seed ^ thread << 40);
                for _ in 0..rounds {
                    let start = random.below(500);
                    let key = |step| Key::new(start + step, ANY, thread);
                    let edit = |step| {
                        if random.one_in(3) {
                            ItemEdit::Remove(key(step))
                        } else {
                            ItemEdit::Put(key(step), vec![9; 60])
                        }
                    };
                    let mut edits: Vec<_> = (0..40).map(edit).collect();
                    tree.apply(&grove.store, &grove.books, &mut edits).unwrap();
                    let position = tree.search(&grove.store, &edits[0].key()).unwrap();
                    assert_eq!(position.exact, matches!(edits[0], ItemEdit::Put(..)));
                }
            });
        }
    });
    grove.commit();
    plain(&grove.volume, grove.trees[0].0.id(), grove.trees[0].0.root());
}
