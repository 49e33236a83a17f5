//! The mounts of one open filesystem.
//!
//! 1. A group ends when its last mount leaves it. A mount that begins at that moment has either
//!    joined before, and is served, or is refused: it never runs on a filesystem that is closing.

use userbtrfs_sync::atomic::{AtomicBool, Ordering};
use userbtrfs_sync::{Arc, Class, Mutex};

/// The mounts of one open filesystem by this process. The default is a group without mounts.
#[derive(Clone, Debug)]
pub struct MountGroup(Arc<Mutex<Mounts>>);

/// The mounts of a group.
#[derive(Debug, Default)]
struct Mounts {
    /// The number of mounts that have not left.
    serving: usize,
    /// Whether the last mount has left: there will be no other.
    is_over: bool,
}

/// A mount of a group. Dropping this leaves the group.
pub(crate) struct Member {
    group: MountGroup,
    has_left: AtomicBool,
}

impl Default for MountGroup {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Class::FuseSession, Mounts::default())))
    }
}

impl MountGroup {
    /// Adds a mount; `None` if the last one has left.
    pub(crate) fn join(&self) -> Option<Member> {
        let mut mounts = self.0.lock();
        if mounts.is_over {
            return None;
        }
        mounts.serving = mounts.serving.checked_add(1).expect("mounts are fewer than addresses");
        Some(Member { group: self.clone(), has_left: AtomicBool::new(false) })
    }

    /// Returns true if the last mount has ended, after which another is refused.
    pub fn is_over(&self) -> bool {
        self.0.lock().is_over
    }
}

impl Member {
    /// Leaves the group, unless that was done before. Returns whether the group has no mount any
    /// more.
    pub(crate) fn leave(&self) -> bool {
        let mut mounts = self.group.0.lock();
        if !self.has_left.swap(true, Ordering::Relaxed) {
            mounts.serving = mounts.serving.checked_sub(1).expect("a member is counted");
            mounts.is_over = mounts.serving == 0;
        }
        mounts.is_over
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_ends_with_its_last_mount_and_refuses_another() {
        let group = MountGroup::default();
        let first = group.join().unwrap();
        let second = group.join().unwrap();
        assert!(!first.leave() && !group.is_over(), "the second is served");
        let third = group.join().unwrap();
        drop(second);
        assert!(!first.leave(), "it has left once, and the third is served");
        assert!(third.leave() && first.leave() && group.is_over());
        assert!(group.join().is_none());
        drop((first, third));
        assert!(group.join().is_none());
    }

    /// A mount that joined at the last moment but does not start ends the group.
    #[test]
    fn mount_that_fails_to_start_last_ends_the_group() {
        let group = MountGroup::default();
        let first = group.join().unwrap();
        let failing = group.join().unwrap();
        assert!(!first.leave());
        drop(failing);
        assert!(first.leave() && group.join().is_none());
    }
}
