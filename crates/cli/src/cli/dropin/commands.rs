//! The groups and commands of btrfs-progs, and how they may be abbreviated.
//!
//! 1. A word names a command if it is its name, or a prefix of the name of no other command of the
//!    same group. All commands are listed, so that an ambiguous prefix stays ambiguous.

use std::ffi::OsString;

/// A command of btrfs-progs.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Command {
    /// Its name.
    pub(super) name: &'static str,
    /// Its options that have a value.
    pub(super) valued: &'static [&'static str],
    /// The operands that decide if the command is ours.
    pub(super) object: Object,
}

/// The operands of a command that name the objects it acts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Object {
    /// The command is never ours.
    Unknown,
    /// The first operand: a directory, or a path to a subvolume.
    First,
    /// The last operand.
    Last,
    /// Each operand, independent of the others.
    Each,
    /// The first operand, which may be a file.
    File,
    /// Each operand, which may be a file.
    EachFile,
}

impl Object {
    /// Returns true if an operand may be a file; then an image that is itself in a mount of btrfs
    /// is such a file, and not an image.
    pub(super) fn may_be_file(self) -> bool {
        matches!(self, Self::File | Self::EachFile)
    }
}

/// A command of a command line.
pub(super) struct Found {
    pub(super) group: &'static str,
    pub(super) command: &'static Command,
}

const fn ours(name: &'static str, object: Object, valued: &'static [&'static str]) -> Command {
    Command { name, valued, object }
}

const fn theirs(name: &'static str) -> Command {
    Command { name, valued: &[], object: Object::Unknown }
}

/// The groups of commands, and single commands that are no group; the latter are never ours.
const GROUPS: [(&str, &[Command]); 16] = [
    ("subvolume", SUBVOLUME),
    ("filesystem", FILESYSTEM),
    ("property", PROPERTY),
    ("balance", &[]),
    ("check", &[]),
    ("device", &[]),
    ("help", &[]),
    ("inspect-internal", &[]),
    ("qgroup", &[]),
    ("quota", &[]),
    ("receive", &[]),
    ("replace", &[]),
    ("rescue", &[]),
    ("restore", &[]),
    ("scrub", &[]),
    ("send", &[]),
];

/// The commands that are in no group.
const SINGLE: [&str; 5] = ["check", "help", "receive", "restore", "send"];

static SUBVOLUME: &[Command] = &[
    ours("create", Object::Each, &["i"]),
    ours("delete", Object::Each, &["i", "subvolid"]),
    ours("list", Object::First, &["G", "C", "sort"]),
    ours("snapshot", Object::First, &["i"]),
    ours("get-default", Object::First, &[]),
    ours("set-default", Object::Last, &[]),
    theirs("find-new"),
    ours("show", Object::First, &["r", "u", "rootid", "uuid"]),
    ours("sync", Object::First, &["s"]),
];

static FILESYSTEM: &[Command] = &[
    ours("df", Object::First, &[]),
    ours("du", Object::EachFile, &[]),
    theirs("show"),
    ours("sync", Object::File, &[]),
    ours("defragment", Object::EachFile, &["c?", "s", "l", "t", "L", "level", "step"]),
    theirs("balance"),
    ours("resize", Object::Last, &[]),
    ours("label", Object::First, &[]),
    ours("usage", Object::Each, &[]),
    theirs("mkswapfile"),
];

static PROPERTY: &[Command] = &[
    ours("get", Object::File, &["t"]),
    ours("set", Object::File, &["t"]),
    ours("list", Object::File, &["t"]),
];

impl Found {
    /// Returns the command that starts with the first word, and the words after its name. `None` if
    /// it is none of ours.
    pub(super) fn at(words: &[OsString]) -> Option<(Self, &[OsString])> {
        let (first, words) = words.split_first()?;
        let (group, commands) = named(&GROUPS, first, |(name, _)| name)?;
        let (second, words) = words.split_first()?;
        let command = named(commands, second, |command| command.name)?;
        (command.object != Object::Unknown).then_some((Self { group, command }, words))
    }
}

/// Returns the group that the first word names, and the words after it.
pub(super) fn group(words: &[OsString]) -> Option<(&'static str, &[OsString])> {
    let (first, words) = words.split_first()?;
    Some((named(&GROUPS, first, |(name, _)| name)?.0, words))
}

/// Returns true if the word after the name of a group names one of its commands.
pub(super) fn has_commands(group: &str) -> bool {
    !SINGLE.contains(&group)
}

/// Returns the entry whose name is the word, or the only one whose name starts with it.
fn named<'a, T>(entries: &'a [T], word: &OsString, name: impl Fn(&T) -> &str) -> Option<&'a T> {
    let word = word.to_str().filter(|word| !word.is_empty())?;
    let exact = entries.iter().find(|entry| name(entry) == word);
    let mut longer = entries.iter().filter(|entry| name(entry).starts_with(word));
    exact.or_else(|| longer.next().filter(|_| longer.next().is_none()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(words: &str) -> Option<String> {
        let words: Vec<_> = words.split(' ').map(OsString::from).collect();
        let (found, rest) = Found::at(&words)?;
        Some(format!("{} {} +{}", found.group, found.command.name, rest.len()))
    }

    #[test]
    fn unique_prefixes_name_commands() {
        for (words, name) in [
            ("subvolume list -t /mnt", "subvolume list +2"),
            ("sub snap a b", "subvolume snapshot +2"),
            ("su g /mnt", "subvolume get-default +1"),
            ("fi us", "filesystem usage +0"),
            ("prop get x", "property get +1"),
            ("f de", "filesystem defragment +0"),
        ] {
            assert_eq!(found(words).as_deref(), Some(name), "{words}");
        }
    }

    #[test]
    fn ambiguous_and_other_names_are_not_ours() {
        for words in [
            "s list",
            "sub s a b",
            "fi d",
            "sub find-new a 1",
            "subvolumes list",
            "sub",
            "scrub status",
            "fi show",
            "version",
            "filesystem",
            "balance start /mnt",
        ] {
            assert_eq!(found(words), None, "{words}");
        }
    }
}
