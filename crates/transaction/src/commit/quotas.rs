//! Quota groups, whose counts are not maintained.
//!
//! The first commit marks them as inconsistent, as Linux does when it loses count; a rescan by
//! Linux counts again.

use userbtrfs_btree::{ItemEdit, ReadAhead};
use userbtrfs_format::{ItemKind, Key, QgroupStatus, TreeId};

use crate::editor::Editor;
use crate::error::{Error, Result};
use crate::units::VERIFIED;

const STATUS: Key = Key::new(0, ItemKind::QGROUP_STATUS, 0);

/// The flag of quota groups whose counts are unreliable.
const INCONSISTENT: u64 = 1 << 2;

/// Marks quota groups as inconsistent, if there are any.
pub(super) fn mark(editor: &Editor<'_>) -> Result<()> {
    let tree = match editor.tree_roots.tree(TreeId::QUOTA) {
        Ok(tree) => tree,
        Err(Error::NoTree(_)) => return Ok(()),
        Err(error) => return Err(error),
    };
    let cursor = editor.tree_roots.cursor(&tree, &STATUS, ReadAhead::Off)?;
    let Some(item) = cursor.item().filter(|item| item.key == STATUS) else { return Ok(()) };
    let mut status = QgroupStatus::parse(item.data).expect(VERIFIED);
    if status.flags & INCONSISTENT != 0 {
        return Ok(());
    }
    status.flags |= INCONSISTENT;
    editor.apply(TreeId::QUOTA, &mut [ItemEdit::Put(STATUS, status.encode())])
}
