//! POSIX.1e access control lists, in the format of their extended attributes, and their relation to
//! permissions.
//!
//! An attribute is a version, 2, in four bytes, and entries of eight: a tag, the permissions, and
//! the id of a user or group; all little-endian.
//!
//! 1. The permissions of a file are three entries of its list: that of the owner, that of the mask
//!    or, if there is none, of the owning group, and that of others. Both change together.
//! 2. A list that is equivalent to permissions is not stored.
//! 3. A new inode in a directory with a default list inherits that, limited to the permissions that
//!    were asked for; the umask then has no effect.

/// The attribute with the access list, which is checked.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute with the default list, which is inherited.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

/// Returns whether an attribute of this name holds an access list.
pub fn is_list(name: &[u8]) -> bool {
    matches!(name, ACCESS | DEFAULT)
}

const VERSION: u32 = 2;
const HEAD_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;

/// Tags of entries.
const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const OWNING_GROUP: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHERS: u16 = 0x20;

const PERMISSIONS: u32 = 0o777;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: u16,
    permissions: u16,
    id: u32,
}

/// An access list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl(Vec<Entry>);

/// The user and the groups of a process that accesses an inode.
#[derive(Clone, Debug)]
pub struct Accessor {
    /// The user.
    pub user: u32,
    /// All groups, in any order.
    pub groups: Vec<u32>,
}

/// The user and the group that an inode belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Owner {
    /// The user.
    pub user: u32,
    /// The group.
    pub group: u32,
}

impl Acl {
    /// Returns the list that is equivalent to the permissions of a mode.
    pub fn of_mode(mode: u32) -> Self {
        let entry = |tag| Entry { tag, permissions: 0, id: u32::MAX };
        Self([OWNER, OWNING_GROUP, OTHERS].map(entry).to_vec()).with_mode(mode)
    }

    /// Returns whether an accessor has all permissions in `wanted`: 4 to read, 2 to write, 1 to
    /// execute. The first entry that matches decides: that of the owner, of a named user, of any of
    /// the groups, of others. The mask limits those of named users and of groups.
    pub fn grants(&self, accessor: &Accessor, owner: Owner, wanted: u16) -> bool {
        let find = |tag| self.0.iter().find(|entry| entry.tag == tag);
        let allows = |permissions: u16| permissions & wanted == wanted;
        let mask = find(MASK).map_or(u16::MAX, |entry| entry.permissions);
        let is_allowed = |entry: &Entry| allows(entry.permissions & mask);
        if accessor.user == owner.user {
            return find(OWNER).is_some_and(|entry| allows(entry.permissions));
        }
        let is_user = |entry: &&Entry| entry.tag == USER && entry.id == accessor.user;
        if let Some(named) = self.0.iter().find(is_user) {
            return is_allowed(named);
        }
        let is_group = |entry: &&Entry| match entry.tag {
            OWNING_GROUP => accessor.groups.contains(&owner.group),
            GROUP => accessor.groups.contains(&entry.id),
            _ => false,
        };
        let mut groups = self.0.iter().filter(is_group).peekable();
        if groups.peek().is_some() {
            return groups.any(is_allowed);
        }
        find(OTHERS).is_some_and(|entry| allows(entry.permissions))
    }

    /// Parses the value of an attribute; `None` if it is no access list.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (version, entries) = bytes.split_at_checked(HEAD_BYTES)?;
        let (entries, rest) = entries.as_chunks::<ENTRY_BYTES>();
        if version != VERSION.to_le_bytes() || !rest.is_empty() {
            return None;
        }
        let acl = Self(entries.iter().map(|entry| Entry::parse(*entry)).collect());
        let has = |tag| acl.0.iter().filter(|entry| entry.tag == tag).count() == 1;
        (has(OWNER) && has(OWNING_GROUP) && has(OTHERS)).then_some(acl)
    }

    /// Returns the value of the attribute.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for Entry { tag, permissions, id } in &self.0 {
            bytes.extend_from_slice(&tag.to_le_bytes());
            bytes.extend_from_slice(&permissions.to_le_bytes());
            bytes.extend_from_slice(&id.to_le_bytes());
        }
        bytes
    }

    /// Returns the tag of the entry for the group bits of a mode.
    fn group_tag(&self) -> u16 {
        if self.0.iter().any(|entry| entry.tag == MASK) { MASK } else { OWNING_GROUP }
    }

    /// Returns the tags of the entries for the bits of a mode, and their shifts.
    fn classes(&self) -> [(u16, u32); 3] {
        [(OWNER, 6), (self.group_tag(), 3), (OTHERS, 0)]
    }

    /// Returns the nine permission bits.
    pub fn mode(&self) -> u32 {
        let bits = |(tag, shift)| {
            let entry = self.0.iter().find(|entry| entry.tag == tag);
            entry.map_or(0, |entry| u32::from(entry.permissions & 7) << shift)
        };
        self.classes().into_iter().map(bits).sum()
    }

    /// Returns the list after chmod(2).
    #[must_use]
    pub fn with_mode(mut self, mode: u32) -> Self {
        for (tag, shift) in self.classes() {
            let bits = u16::try_from(mode >> shift & 7).expect("three bits");
            let class = self.0.iter_mut().filter(|entry| entry.tag == tag);
            class.for_each(|entry| entry.permissions = bits);
        }
        self
    }

    /// Returns the list of a new inode with these permissions that inherits this one.
    #[must_use]
    pub fn inherited(self, mode: u32) -> Self {
        let both = self.mode() & mode;
        self.with_mode(both)
    }

    /// Returns true if the list is equivalent to permissions.
    pub fn is_plain(&self) -> bool {
        self.0.len() == self.classes().len()
    }
}

impl Entry {
    fn parse(bytes: [u8; ENTRY_BYTES]) -> Self {
        let [tag, tag_high, permissions, permissions_high, id @ ..] = bytes;
        Self {
            tag: u16::from_le_bytes([tag, tag_high]),
            permissions: u16::from_le_bytes([permissions, permissions_high]),
            id: u32::from_le_bytes(id),
        }
    }
}

/// Returns the mode with its permissions replaced by those of a list.
pub fn mode_with(mode: u32, acl: &Acl) -> u32 {
    mode & !PERMISSIONS | acl.mode()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOBODY: u32 = u32::MAX;

    fn acl(entries: &[(u16, u16, u32)]) -> Acl {
        let entry = |&(tag, permissions, id)| Entry { tag, permissions, id };
        Acl(entries.iter().map(entry).collect())
    }

    fn with_user() -> Acl {
        acl(&[(1, 7, NOBODY), (2, 6, 1000), (4, 5, NOBODY), (16, 6, NOBODY), (32, 1, NOBODY)])
    }

    #[test]
    fn encoded_list_parses_to_the_same_list() {
        let bytes = with_user().to_bytes();
        assert_eq!(bytes.len(), 4 + 5 * 8);
        assert_eq!(bytes[..12], [2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255]);
        assert_eq!(Acl::parse(&bytes), Some(with_user()));
    }

    #[test]
    fn value_that_is_no_list_is_none() {
        let bytes = with_user().to_bytes();
        assert_eq!(Acl::parse(&bytes[..bytes.len() - 1]), None);
        assert_eq!(Acl::parse(&[1, 0, 0, 0]), None);
        assert_eq!(Acl::parse(&acl(&[(1, 7, 0), (4, 7, 0)]).to_bytes()), None);
        assert_eq!(Acl::parse(b""), None);
    }

    #[test]
    fn group_bits_of_list_with_mask_are_the_mask() {
        assert_eq!(with_user().mode(), 0o761);
        let changed = with_user().with_mode(0o640);
        assert_eq!(changed.mode(), 0o640);
        assert_eq!(changed.0[2], Entry { tag: OWNING_GROUP, permissions: 5, id: NOBODY });
        let plain = acl(&[(1, 7, NOBODY), (4, 5, NOBODY), (32, 0, NOBODY)]);
        assert_eq!(plain.mode(), 0o750);
        assert!(plain.is_plain() && !with_user().is_plain());
    }

    #[test]
    fn inherited_list_allows_no_more_than_was_asked_for() {
        let inherited = with_user().inherited(0o640);
        assert_eq!(inherited.mode(), 0o640);
        assert_eq!(with_user().inherited(0o777), with_user());
        assert_eq!(mode_with(0o2644, &inherited), 0o2640);
    }

    #[test]
    fn first_matching_entry_decides_on_access() {
        const OWN: Owner = Owner { user: 1, group: 10 };
        let may = |acl: &Acl, user, groups: &[u32], wanted| {
            acl.grants(&Accessor { user, groups: groups.to_vec() }, OWN, wanted)
        };
        let mode = Acl::of_mode(0o754);
        assert_eq!(mode.mode(), 0o754);
        assert!(may(&mode, 1, &[], 7) && may(&mode, 2, &[10], 5) && may(&mode, 2, &[], 4));
        assert!(!may(&mode, 2, &[10], 2) && !may(&mode, 2, &[], 1));
        // The class of the owner, or of the group, decides even if others may do more.
        let inverted = Acl::of_mode(0o017);
        assert!(!may(&inverted, 1, &[10], 1) && !may(&inverted, 2, &[10], 2));
        assert!(may(&inverted, 2, &[11], 7));
        // User 2 has 6, group 20 has 7, group 21 nothing; the mask is 5.
        let named = acl(&[
            (1, 7, NOBODY),
            (2, 6, 2),
            (4, 0, NOBODY),
            (8, 7, 20),
            (8, 0, 21),
            (16, 5, NOBODY),
            (32, 7, NOBODY),
        ]);
        assert!(may(&named, 2, &[20], 4) && !may(&named, 2, &[20], 2) && !may(&named, 2, &[20], 1));
        assert!(may(&named, 3, &[21, 20], 5) && !may(&named, 3, &[20], 2));
        assert!(!may(&named, 3, &[10], 1) && !may(&named, 3, &[21], 1) && may(&named, 3, &[], 7));
    }
}
