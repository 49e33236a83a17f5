//! The expectations of a story, parsed from their text.
//!
//! 1. `;` separates expectations: `PATHS is STATES`, `PATHS holds STATES`, `one of PATHS`.
//! 2. Paths are separated by `,`, states by ` or `: one of the states is enough. The path `all`
//!    means the whole tree.
//! 3. The path `/` is the root.

use anyhow::{Context, Result, bail};

use super::step::path;
use super::{Acted, Seen};

/// One expectation.
#[derive(Clone, Debug)]
pub enum Expectation {
    /// Everything is as it was at the crash.
    AllIsNow,
    /// Each path is in one of these states.
    Is(Vec<Vec<u8>>, Vec<State>),
    /// Exactly one of these paths exists, with an object that one of them had at the crash.
    OneOf(Vec<Vec<u8>>),
}

/// The state of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The path does not exist.
    Gone,
    /// As it was at the crash, including the names in it if it is a directory.
    Now,
    /// As it was after the last `sync`.
    Before,
    /// The same object as at the crash, possibly with other attributes or content.
    There,
    /// The same object as after the last `sync`, possibly with other attributes or content.
    Still,
    /// Like `There`, with the size and content of the crash.
    HoldsNow,
    /// Like `Still`, with the size and content after the last `sync`.
    HoldsBefore,
    /// The object of the crash exists with its content, at this path or another one.
    Kept,
}

/// The attributes that identify an object and its content.
const CONTENT: &[&str] = &["path", "inode", "kind", "size", "content"];
/// The attributes that identify an object.
const IDENTITY: &[&str] = &["path", "inode", "kind"];

impl Expectation {
    /// Parses the expectations of a story.
    pub(super) fn read(text: &str) -> Result<Vec<Self>> {
        let one = |words: &str| Self::one(words).with_context(|| format!("`{words}`"));
        text.split(';').map(|words| one(words.trim())).collect()
    }

    fn one(words: &str) -> Result<Self> {
        if words == "all is now" {
            return Ok(Self::AllIsNow);
        }
        if let Some(list) = words.strip_prefix("one of ") {
            return Ok(Self::OneOf(paths(list)));
        }
        for (verb, holds) in
            [(" is ", false), (" are ", false), (" holds ", true), (" hold ", true)]
        {
            if let Some((list, states)) = words.split_once(verb) {
                let states = states.split(" or ").map(|word| State::read(word, holds));
                return Ok(Self::Is(paths(list), states.collect::<Result<_>>()?));
            }
        }
        bail!("says nothing of what must be there")
    }

    /// Returns an error with the differences if the expectation is not met.
    pub(super) fn check(&self, acted: &Acted, seen: &Seen) -> Result<(), String> {
        match self {
            Self::AllIsNow => {
                let found = acted.now.differences(seen, None, acted.cut);
                if found.is_empty() { Ok(()) } else { Err(found.join("; ")) }
            }
            Self::Is(paths, states) => {
                paths.iter().try_for_each(|path| is_one_of(path, states, acted, seen))
            }
            Self::OneOf(paths) => one_of(paths, acted, seen),
        }
    }
}

impl State {
    fn read(word: &str, holds: bool) -> Result<Self> {
        Ok(match (word, holds) {
            ("gone", false) => Self::Gone,
            ("now", false) => Self::Now,
            ("before", false) => Self::Before,
            ("there", false) => Self::There,
            ("still", false) => Self::Still,
            ("kept", false) => Self::Kept,
            ("now", true) => Self::HoldsNow,
            ("before", true) => Self::HoldsBefore,
            _ => bail!("no state: {word}"),
        })
    }

    /// Returns the differences of the path from this state, none if it is in it.
    fn differences(self, path: &[u8], acted: &Acted, seen: &Seen) -> Vec<String> {
        let now = Some(&acted.now);
        let before = acted.before.as_ref();
        let (was, attributes): (Option<&Seen>, &[&str]) = match self {
            Self::Gone if seen.get(path).is_none() => return Vec::new(),
            Self::Gone => return vec!["it is there".to_owned()],
            Self::Kept => return kept(path, acted, seen),
            Self::Now => (now, &[]),
            Self::Before => (before, &[]),
            Self::There => (now, IDENTITY),
            Self::Still => (before, IDENTITY),
            Self::HoldsNow => (now, CONTENT),
            Self::HoldsBefore => (before, CONTENT),
        };
        match was {
            Some(was) => was.differences(seen, Some((path, attributes)), acted.cut),
            None => vec!["there was no sync".to_owned()],
        }
    }
}

fn is_one_of(path: &[u8], states: &[State], acted: &Acted, seen: &Seen) -> Result<(), String> {
    let found: Vec<_> =
        states.iter().map(|state| (state, state.differences(path, acted, seen))).collect();
    if found.iter().any(|(_, differences)| differences.is_empty()) {
        return Ok(());
    }
    let told = found.iter().map(|(state, found)| format!("not {state:?}: {}", found.join("; ")));
    let path = String::from_utf8_lossy(path).into_owned();
    Err(format!("{path}: {}", told.collect::<Vec<_>>().join(" / ")))
}

fn one_of(paths: &[Vec<u8>], acted: &Acted, seen: &Seen) -> Result<(), String> {
    let inodes = |seen: &Seen| -> Vec<u64> {
        paths.iter().filter_map(|path| seen.get(path)).map(|entry| entry.inode).collect()
    };
    match (&inodes(seen)[..], inodes(&acted.now)) {
        ([one], known) if known.contains(one) => Ok(()),
        (found, known) => Err(format!("inodes {found:?} bear the names, not one of {known:?}")),
    }
}

fn kept(path: &[u8], acted: &Acted, seen: &Seen) -> Vec<String> {
    let Some(was) = acted.now.get(path) else { return vec!["there was nothing".into()] };
    let same = |entry: &&crate::manifest::Entry| entry.inode == was.inode;
    match seen.manifest.entries().iter().find(same) {
        None => vec!["it is lost".into()],
        Some(entry) if (entry.size, &entry.content) == (was.size, &was.content) => Vec::new(),
        Some(entry) => vec![format!("its content is lost at {}", entry.path)],
    }
}

/// Parses paths into the form of manifests.
fn paths(list: &str) -> Vec<Vec<u8>> {
    let full = |word: &str| [b"/", path(word).as_slice()].concat();
    list.split(',').map(|word| full(word.trim())).collect()
}
