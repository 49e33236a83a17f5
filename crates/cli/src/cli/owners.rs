//! Owners on the command line: numbers, or names that the machine or the image knows.
//!
//! 1. A number is a number, also if there is a user of that name; a `+` before it is allowed.
//! 2. `USER:` without a group names the login group of that user, as in chown(1).
//! 3. A file with names is read when the first of its names is looked up.

use std::fs;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context as _, Result, bail, ensure};
use nix::unistd::{Group, User};
use userbtrfs::{Error, Filesystem, PathError};

/// An owner, a group, or both, as given on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnerArg {
    user: Option<String>,
    group: Option<String>,
    /// The group is the login group of the user.
    takes_login_group: bool,
}

/// An owner, a group, or both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
}

/// The source of the numbers of users and groups.
pub(crate) enum Names<'a> {
    /// The machine that the command runs on.
    Machine,
    /// `etc/passwd` and `etc/group` of a tree, which the function reads.
    Files(ReadFile<'a>),
}

/// Reads a file of a tree, whose path is relative to the root.
type ReadFile<'a> = Box<dyn Fn(&str) -> Result<String> + 'a>;

/// The files with the names of users and groups, below the root of a tree.
const USERS: &str = "etc/passwd";
const GROUPS: &str = "etc/group";

/// The numbers of a user.
struct Numbers {
    uid: u32,
    /// The login group.
    gid: u32,
}

impl FromStr for OwnerArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (user, group) = match text.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (text, None),
        };
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let owner = Self {
            user: given(user),
            group: group.and_then(given),
            takes_login_group: group == Some("") && number(user).is_none() && !user.is_empty(),
        };
        for given in owner.user.iter().chain(&owner.group) {
            let digits = given.trim_start_matches('+');
            if digits.bytes().all(|byte| byte.is_ascii_digit()) && number(given).is_none() {
                return Err(format!("{given}: invalid user or group ID"));
            }
        }
        if owner.user.is_none() && owner.group.is_none() {
            return Err("missing owner and group".to_owned());
        }
        Ok(owner)
    }
}

/// Returns a number that can be a user or a group. The greatest one is -1, which means "no change"
/// in chown(2).
fn number(text: &str) -> Option<u32> {
    let digits = text.strip_prefix('+').unwrap_or(text);
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|number| is_number && *number != u32::MAX)
}

impl OwnerArg {
    /// Returns the numbers of the owner and the group.
    pub(crate) fn resolve(&self, names: &Names<'_>) -> Result<Owner> {
        let mut owner = Owner::default();
        if let Some(user) = &self.user {
            owner.uid = number(user);
            if owner.uid.is_none() {
                let found = names.user(user)?;
                let numbers = found.with_context(|| format!("invalid user: '{user}'"))?;
                owner.uid = Some(numbers.uid);
                owner.gid = self.takes_login_group.then_some(numbers.gid);
            }
        }
        if let Some(group) = &self.group {
            let found = number(group).map_or_else(|| names.group(group), |it| Ok(Some(it)))?;
            owner.gid = Some(found.with_context(|| format!("invalid group: '{group}'"))?);
        }
        Ok(owner)
    }
}

impl<'a> Names<'a> {
    /// Returns the names of the machine or, if `from_image` is set, those of the image.
    pub(crate) fn new(filesystem: &'a Filesystem, from_image: bool) -> Self {
        if !from_image {
            return Self::Machine;
        }
        Self::Files(Box::new(move |file| {
            let path = format!("/{file}");
            match filesystem.read(&path) {
                Err(PathError { error: Error::NotFound, .. }) => {
                    bail!("{path}: no such file in the image")
                }
                read => Ok(String::from_utf8_lossy(&read.context(path)?).into_owned()),
            }
        }))
    }

    /// Returns the names of the tree in a directory of the host.
    pub(crate) fn of_tree(dir: &'a Path) -> Self {
        Self::Files(Box::new(move |file| read_within(dir, file)))
    }

    fn user(&self, name: &str) -> Result<Option<Numbers>> {
        match self {
            Self::Machine => {
                let found = User::from_name(name)?;
                Ok(found.map(|it| Numbers { uid: it.uid.as_raw(), gid: it.gid.as_raw() }))
            }
            Self::Files(read) => Ok(entry(&read(USERS)?, name).and_then(|fields| {
                let uid = number(fields.first()?)?;
                Some(Numbers { uid, gid: number(fields.get(1)?)? })
            })),
        }
    }

    fn group(&self, name: &str) -> Result<Option<u32>> {
        match self {
            Self::Machine => Ok(Group::from_name(name)?.map(|it| it.gid.as_raw())),
            Self::Files(read) => {
                Ok(entry(&read(GROUPS)?, name).and_then(|fields| number(fields.first()?)))
            }
        }
    }
}

/// Reads a file of the tree in a directory. A link out of it leads to a file with other names.
fn read_within(dir: &Path, file: &str) -> Result<String> {
    let path = dir.join(file);
    let named = || path.display().to_string();
    let real = path.canonicalize().with_context(named)?;
    ensure!(real.starts_with(dir.canonicalize()?), "{}: leads out of the tree", named());
    let bytes = fs::read(real).with_context(named)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the fields after the name and the password of the line of a name.
fn entry<'a>(file: &'a str, name: &str) -> Option<Vec<&'a str>> {
    let mut lines = file.lines().map(|line| line.split(':'));
    lines.find_map(|mut fields| (fields.next()? == name).then(|| fields.skip(1).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names<'static> {
        Names::Files(Box::new(|file| {
            Ok(match file {
                USERS => {
                    "root:x:0:0::/root:/bin/sh\nann:x:1000:1001::/srv/ann:/bin/sh\n".to_owned()
                }
                GROUPS => "root:x:0:\nstaff:x:50:ann\n".to_owned(),
                other => bail!("{other} was read"),
            })
        }))
    }

    fn resolve(text: &str) -> Result<Owner> {
        text.parse::<OwnerArg>().map_err(anyhow::Error::msg)?.resolve(&names())
    }

    #[test]
    fn owners_and_groups_are_numbers_or_names() {
        let owner = |uid, gid| Owner { uid, gid };
        for (text, found) in [
            ("1", owner(Some(1), None)),
            ("1:2", owner(Some(1), Some(2))),
            (":2", owner(None, Some(2))),
            ("1:", owner(Some(1), None)),
            ("+1:+2", owner(Some(1), Some(2))),
            ("ann", owner(Some(1000), None)),
            ("ann:staff", owner(Some(1000), Some(50))),
            ("ann:", owner(Some(1000), Some(1001))),
            (":staff", owner(None, Some(50))),
            ("7:staff", owner(Some(7), Some(50))),
        ] {
            assert_eq!(resolve(text).unwrap(), found, "{text}");
        }
    }

    #[test]
    fn unknown_name_or_impossible_number_is_refused() {
        for bad in ["", ":", "4294967295", "99999999999", "bob", ":ann", "1:x", "-1"] {
            assert!(resolve(bad).is_err(), "{bad}");
        }
        assert_eq!(resolve("bob").unwrap_err().to_string(), "invalid user: 'bob'");
    }
}
