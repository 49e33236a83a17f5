//! The verb `tidy`: checks of style and layering.
//!
//! Rules that the compiler, clippy and rustfmt check are not checked again. Each rule is a module
//! with its limits or its table, and with tests that violate it:
//!
//! 1. `text`: line length, head comments, leftovers, plain ASCII, words that must not be committed.
//! 2. `shape`: the length of functions and of files.
//! 3. `reach`: each source file is part of some target.
//! 4. `layers`: a crate depends only on the crates named for it.
//! 5. `rooms`: a module of `engine` calls only the modules named for it.
//! 6. `unsafety`: `unsafe` is used only in files that are exempt for a stated reason.
//! 7. `links`: links of documents inside the project are not broken.
//! 8. `words`: plain English and one `let` for each value, with counts that may only fall.
//! 9. `cycles`: the files of one crate have no cycle of imports; counts only fall.
//! 10. `test_features`: only testkit asks for features that exist for tests.
//! 11. `api`: docs/api.txt lists the public API of the library.

pub(crate) mod api;
mod counts;
mod cycles;
mod finding;
mod layers;
mod links;
mod modules;
mod reach;
mod rooms;
mod shape;
mod test_features;
mod text;
mod unsafety;
mod words;
mod workspace;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use finding::Finding;
use workspace::Workspace;

/// The options of `tidy`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The workspace to check; the one this program was built from by default.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))]
    root: PathBuf,
    /// Write lower counts into the tables of `words` and `cycles`.
    #[arg(long)]
    update: bool,
}

/// Checks the workspace; returns an error if any rule is broken.
pub(crate) fn run(args: &Args) -> Result<()> {
    let root = args.root.canonicalize().context("the root of the workspace")?;
    let workspace = Workspace::load(&root)?;
    if args.update {
        words::update(&workspace, &root)?;
        cycles::update(&workspace, &root)?;
    }
    let findings = check(&workspace);
    for finding in &findings {
        println!("{finding}");
    }
    if !findings.is_empty() {
        bail!("tidy: {} rules broken", findings.len());
    }
    println!("tidy: {} source files in order", workspace.sources.len());
    Ok(())
}

fn check(workspace: &Workspace) -> Vec<Finding> {
    let mut findings = reach::check(&workspace.packages, &workspace.sources);
    findings.extend(layers::check(&workspace.packages));
    findings.extend(links::check(&workspace.texts));
    findings.extend(unsafety::check(&workspace.packages, &workspace.sources));
    findings.extend(words::check(workspace));
    findings.extend(cycles::check(workspace));
    findings.extend(api::check(workspace));
    findings.extend(test_features::check(&workspace.texts));
    for text in &workspace.texts {
        findings.extend(text::check_words(text));
    }
    for source in &workspace.sources {
        findings.extend(text::check(&source.text));
        findings.extend(shape::check(source));
        findings.extend(rooms::check(source));
    }
    findings.sort();
    findings
}
