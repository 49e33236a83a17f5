//! Crash stories: the operations and syncs before a crash, and the state that must be found.
//!
//! 1. `docs/log-stories.md` has all of them, in the language that its head explains.
//! 2. A story is executed on an empty filesystem: by us through the library on a recording device
//!    ([`act_by_us`]), and by Linux on a loop device ([`act_by_linux`]). Each step must succeed.
//! 3. The crash is when its last step has returned: the image is the content of the device then,
//!    with a log pending if one was written. Writes not covered by a flush may be lost; those of
//!    ours are.
//! 4. The expected state refers to observed states ([`Seen`]): before (after the last `sync`) and
//!    at the crash, of the same execution. Observing a state reads, and so may load inodes into
//!    memory; a story that needs them evicted uses `evict`.
//! 5. An image is checked by Linux ([`judge_by_linux`]) and by us ([`judge_by_us`]): opened for
//!    writing, so that a log is replayed; read completely; checked by btrfs-progs; and emptied.
//!
//! This module does not know whether an fsync wrote a log or committed.

mod act;
mod document;
mod expectation;
mod folder;
pub mod golden;
mod judge;
mod linux_steps;
mod seen;
mod step;
mod story;

use std::collections::BTreeMap;
use std::sync::OnceLock;

pub use act::{Acted, act_by_linux, act_by_us, act_by_us_in};
pub use expectation::Expectation;
pub use judge::{judge_by_linux, judge_by_us};
pub use seen::{Seen, differences_of_replays};
pub use step::Step;
pub use story::Story;

/// The document with the stories.
const DOCUMENT: &str = include_str!("../../../docs/log-stories.md");

/// Returns all stories by name. Panics if the document cannot be parsed.
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

/// Parses the stories of another text in the format of the document.
pub fn read(text: &str) -> anyhow::Result<Vec<Story>> {
    document::read(text)
}

/// Returns the story of this name. Panics if there is none.
pub fn named(name: &str) -> &'static Story {
    all().get(name).unwrap_or_else(|| panic!("docs/log-stories.md has no story `{name}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_story_is_read() {
        let text = "Head.\n\n- **name** Words.\n  Done: `file a 8k; fsync a`, `times 2 mkdir \
                    d#;\n  \
                    fsync d1`.\n  There: `a, d1 are now or gone; one of a, b`.\n";
        let [story] = &read(text).unwrap()[..] else { panic!("one story") };
        assert_eq!(story.name, "name");
        assert_eq!(story.ways.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3]);
        assert_eq!(story.must.len(), 2);
        assert!(!story.hole_items);
    }

    #[test]
    fn invalid_story_is_rejected() {
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
