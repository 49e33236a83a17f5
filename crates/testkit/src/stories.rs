//! Crash stories: what was done and made durable before a machine stopped, and what must be there.
//!
//! 1. `docs/log-stories.md` holds them, in the language its head explains; nothing else does.
//! 2. A story is acted on an empty filesystem: by us through the library on a recording device
//!    ([`act_by_us`]), and by Linux on a loop device ([`act_by_linux`]); or by Linux as far as we
//!    cannot do it, and then by us ([`act_in_turn`]). Each step must succeed.
//! 3. It is cut when its last step has returned: the image is what the device holds then, with a
//!    log pending if whoever acted wrote one. What no flush covers may be lost, and of our writes
//!    is.
//! 4. What must be there is said in terms of what was seen: [`Seen`] before, when the last `sync`
//!    had returned, and after the cut, by who acted. Looking before the cut reads, and so may load
//!    what was not in memory; a story that wants it gone again says `evict`.
//! 5. An image is judged by Linux ([`judge_by_linux`]) and by us ([`judge_by_us`]): opened for
//!    writing, so that a log is replayed; seen; checked by btrfs-progs; everything removed.
//!
//! Nothing here knows whether an fsync wrote a log or committed.

mod act;
mod document;
mod expectation;
pub mod golden;
mod judge;
mod linux_steps;
mod seen;
mod step;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;

use tempfile::TempDir;

pub use act::{Acted, act_by_linux, act_by_us, act_in_turn};
pub use expectation::Expectation;
pub use judge::{judge_by_linux, judge_by_us};
pub use seen::{Seen, differences_of_replays};
pub use step::Step;

/// What tells the stories.
const DOCUMENT: &str = include_str!("../../../docs/log-stories.md");

/// One story of the document.
#[derive(Clone, Debug)]
pub struct Story {
    /// Its name, which its test has too.
    pub name: String,
    /// The ways it may have gone; the same must be there after each.
    pub ways: Vec<Vec<Step>>,
    /// What must be there.
    pub must: Vec<Expectation>,
    /// Why we cannot act it, where we cannot.
    pub waits_for: Option<String>,
    /// Whether it is told of a filesystem without `NO_HOLES`, too.
    pub hole_items: bool,
}

impl Story {
    /// All that does not hold of what is seen, a line each.
    pub fn check(&self, acted: &Acted, seen: &Seen) -> Vec<String> {
        let failures = self.must.iter().filter_map(|must| must.check(acted, seen).err());
        failures.collect()
    }
}

/// All stories by name. Panics where the document cannot be read.
pub fn all() -> &'static BTreeMap<String, Story> {
    static ALL: OnceLock<BTreeMap<String, Story>> = OnceLock::new();
    ALL.get_or_init(|| {
        let stories = read(DOCUMENT).unwrap_or_else(|error| panic!("{error:#}"));
        let count = stories.len();
        let all: BTreeMap<_, _> = stories.into_iter().map(|one| (one.name.clone(), one)).collect();
        assert_eq!(all.len(), count, "two stories have one name");
        all
    })
}

/// The stories of another text, told as the document tells them.
pub fn read(text: &str) -> anyhow::Result<Vec<Story>> {
    document::read(text)
}

/// The story of this name. Panics if there is none.
pub fn named(name: &str) -> &'static Story {
    all().get(name).unwrap_or_else(|| panic!("docs/log-stories.md has no story `{name}`"))
}

/// Where images lie for a while: in memory, if there is a filesystem in it.
fn folder() -> std::io::Result<TempDir> {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_story_is_read() {
        let text = "Head.\n\n- **name** Words.\n  Done: `file a 8k; fsync a`, `times 2 mkdir \
                    d#;\n  \
                    fsync d1`.\n  There: `a, d1 are now or gone; one of a, b`. Waits for clone.\n";
        let [story] = &read(text).unwrap()[..] else { panic!("one story") };
        assert_eq!(story.name, "name");
        assert_eq!(story.ways.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3]);
        assert_eq!(story.must.len(), 2);
        assert_eq!(story.waits_for.as_deref(), Some("clone"));
        assert!(!story.hole_items);
    }

    #[test]
    fn what_says_nothing_is_refused() {
        let told = |done: &str, there: &str| format!("- **a** Done: `{done}`. There: `{there}`.");
        assert!(read(&told("sync", "a is now")).is_ok());
        for (done, there) in [("sink", "a is now"), ("sync", "a is lost"), ("write a 1x", "a, b")] {
            assert!(read(&told(done, there)).is_err(), "{done}, {there}");
        }
        assert!(read("- **a** Done: `sync`.").is_err());
    }

    #[test]
    fn all_of_the_document_can_be_read() {
        assert!(all().len() > 150);
    }
}
