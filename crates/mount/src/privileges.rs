//! Set-id bits that a file loses when its contents or its owner change.
//!
//! Who changes it is the kernel's to know: it says whether they go. Set-group-id goes only where
//! the group may execute; otherwise it means something else. Capabilities, which are an extended
//! attribute, the kernel removes itself.

use userbtrfs_engine::api::{Attributes, Inode, Result};

const SET_USER_ID: u32 = 0o4000;
const SET_GROUP_ID: u32 = 0o2000;
const GROUP_EXECUTES: u32 = 0o0010;
const PERMISSIONS: u32 = 0o7777;

/// Takes the set-id bits from what is no directory; says whether there were any.
pub(crate) fn drop_set_id(inode: &Inode) -> Result<bool> {
    let metadata = inode.metadata()?;
    let left = without_set_id(metadata.mode);
    if metadata.is_dir() || left == metadata.mode {
        return Ok(false);
    }
    let mode = Some(left & PERMISSIONS);
    inode.set_attributes(&Attributes { mode, ..Attributes::default() })?;
    Ok(true)
}

fn without_set_id(mode: u32) -> u32 {
    let executes = mode & GROUP_EXECUTES != 0;
    mode & !(SET_USER_ID | if executes { SET_GROUP_ID } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_group_id_goes_where_the_group_executes() {
        for (before, after) in [
            (0o6755, 0o0755),
            (0o6745, 0o2745),
            (0o4644, 0o0644),
            (0o2711, 0o0711),
            (0o1777, 0o1777),
        ] {
            assert_eq!(without_set_id(0o100_000 | before), 0o100_000 | after);
        }
    }
}
