//! A full filesystem: other errors are reported before lack of space.

use userbtrfs_format::{InodeItem, Logical};
use userbtrfs_transaction::{Reservation, SpaceKind};

use super::*;
use crate::inode::ops::create::create;
use crate::inode::ops::link::link;
use crate::inode::ops::rename::rename;
use crate::inode::ops::replay::replay_inode;
use crate::inode::ops::unlink::unlink;

/// Reserves all space that ordinary changes can get.
fn fill(lab: &Lab) -> Vec<Reservation> {
    let space = lab.transactions.space();
    let held = [1 << 20, 1 << 14]
        .map(|bytes| std::iter::from_fn(|| space.reserve(bytes).ok()).collect::<Vec<_>>());
    held.into_iter().flatten().collect()
}

#[test]
fn invalid_name_is_reported_before_no_space() {
    let lab = Lab::new();
    let namespace = &lab.namespace;
    let old = create(namespace, TOP, b"old", &FILE).unwrap();
    create(namespace, TOP, b"other", &FILE).unwrap();
    lab.transactions.commit().unwrap();
    let held = fill(&lab);
    let rename = |from: &[u8], to: &[u8], kind| rename(namespace, (TOP, from), (TOP, to), kind);
    let exists = [
        create(namespace, TOP, b"old", &FILE).map(drop),
        create(namespace, TOP, b"old", &DIR).map(drop),
        link(namespace, old, TOP, b"other"),
        rename(b"old", b"other", RenameKind::NoReplace),
    ];
    assert!(exists.iter().all(|end| matches!(end, Err(Error::Exists))), "{exists:?}");
    let missing = rename(b"missing", b"new", RenameKind::Replace);
    assert!(matches!(missing, Err(Error::NotFound)), "{missing:?}");
    let full = [
        create(namespace, TOP, b"new", &FILE).map(drop),
        link(namespace, old, TOP, b"new"),
        rename(b"old", b"new", RenameKind::Replace),
        rename(b"old", b"other", RenameKind::Replace),
    ];
    assert!(full.iter().all(|end| matches!(end, Err(Error::NoSpace))), "{full:?}");
    assert_eq!(lab.names(TOP), [b"old".to_vec(), b"other".to_vec()]);
    unlink(namespace, TOP, b"other").unwrap();
    drop(held);
    create(namespace, TOP, b"new", &FILE).unwrap();
    let lab = lab.reopened();
    assert_eq!(lab.names(TOP), [b"old".to_vec(), b"new".to_vec()]);
}

#[test]
fn log_is_replayed_when_no_space_is_left_for_removal() {
    let lab = Lab::new();
    let id = create(&lab.namespace, TOP, b"file", &FILE).unwrap();
    lab.transactions.commit().unwrap();
    let space = lab.transactions.space();
    for _ in 0..1000 {
        space.allocate_block(SpaceKind::Metadata, Logical(0)).unwrap();
    }
    let mut held = fill(&lab);
    held.extend(std::iter::from_fn(|| space.reserve_for_removal(1 << 14).ok()));
    let removed = unlink(&lab.namespace, TOP, b"file");
    assert!(matches!(removed, Err(Error::NoSpace)), "{removed:?}");
    let logged = InodeItem { size: 7, ..lab.nodes.inode(id).unwrap().item() };
    let inode = replay_inode(&lab.nodes, id, &logged).unwrap();
    assert_eq!(inode.item().size, 7);
}
