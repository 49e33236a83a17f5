//! A table of counts that may only fall: a line for each key, with its count at the end.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};

use super::workspace::Workspace;

/// The count for each key; a key that is missing has none.
pub(super) type Counts = BTreeMap<String, usize>;

/// Reads the table at `path`; empty if there is none.
pub(super) fn load(workspace: &Workspace, path: &str) -> Result<Counts> {
    let table = workspace.texts.iter().find(|text| text.path == path);
    let lines = table.into_iter().flat_map(|table| table.text.lines());
    let lines = lines.filter(|line| !line.starts_with('#'));
    lines.map(parse).collect()
}

fn parse(line: &str) -> Result<(String, usize)> {
    let (key, count) = line.rsplit_once(' ').with_context(|| format!("no key: {line}"))?;
    let count = count.parse().with_context(|| format!("no count: {line}"))?;
    Ok((key.to_owned(), count))
}

/// Writes the table at `path`, below a line that explains it.
pub(super) fn write(root: &Path, path: &str, head: &str, counts: &Counts) -> Result<()> {
    let mut text = format!("# {head}\n");
    for (key, count) in counts {
        writeln!(text, "{key} {count}").expect("a string takes all");
    }
    std::fs::write(root.join(path), text).with_context(|| format!("cannot write {path}"))
}

/// Returns NAME for `crates/NAME/..`, and the first folder for another file.
pub(super) fn crate_of(path: &str) -> &str {
    let path = path.strip_prefix("crates/").unwrap_or(path);
    path.split('/').next().unwrap_or(path)
}
