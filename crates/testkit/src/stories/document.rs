//! The parser of the document.
//!
//! 1. A story is a list item that starts with its name between `**`, and ends with the list item.
//! 2. The code spans between `Done:` and `There:` are the alternative sequences of steps; the one
//!    after `There:` has the expectations. `Also with hole items.` may follow.

use anyhow::{Context, Result, ensure};

use super::expectation::Expectation;
use super::step;
use super::story::Story;

const START: &str = "- **";
const HOLE_ITEMS: &str = "Also with hole items.";

pub(super) fn read(document: &str) -> Result<Vec<Story>> {
    items(document).iter().map(|item| story(item)).collect()
}

/// Returns the list items with stories, each as one line.
fn items(document: &str) -> Vec<String> {
    let mut items: Vec<String> = Vec::new();
    let mut within = false;
    for line in document.lines() {
        if line.starts_with(START) {
            items.push(line.to_owned());
            within = true;
        } else if within && line.starts_with("  ") {
            let item = items.last_mut().expect("a line within an item");
            item.push(' ');
            item.push_str(line.trim());
        } else {
            within = false;
        }
    }
    items
}

fn story(item: &str) -> Result<Story> {
    let (name, told) =
        item[START.len()..].split_once("**").with_context(|| format!("no name: {item}"))?;
    let parts = || {
        let (done, there) = told.split_once("Done:")?.1.split_once("There:")?;
        Some((spans(done), spans(there), there.rsplit('`').next()?))
    };
    let (done, there, notes) = parts().with_context(|| format!("{name}: no Done or There"))?;
    ensure!(!done.is_empty() && there.len() == 1, "{name}: no code after Done, or There");
    Ok(Story {
        name: name.to_owned(),
        ways: done.into_iter().map(step::read).collect::<Result<_>>().context(name.to_owned())?,
        must: Expectation::read(there[0]).context(name.to_owned())?,
        hole_items: notes.contains(HOLE_ITEMS),
    })
}

/// Returns the texts between backquotes.
fn spans(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}
