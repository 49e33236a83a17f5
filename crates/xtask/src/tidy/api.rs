//! Rule: docs/api.txt lists the public API of the crate `userbtrfs`, so that a change is reviewed.
//!
//! 1. `exports` finds the public paths, through re-exports into the crates that are not public
//!    themselves. `items` describes an item, `impls` the implementations, `macros` the calls of
//!    macros that define items.
//! 2. A line is a path, and the item there as it is written, without its documentation and body. An
//!    item with several paths is described at one of them; the others are lines of kind `use`.
//! 3. `[feature]` at the end of a line is a feature that the item needs; `[crate/feature]` is a
//!    feature of an internal crate.
//! 4. An item that cannot be found is a finding: the list is complete.

mod exports;
mod impls;
mod items;
mod macros;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, bail};
use exports::Exports;

use super::finding::Finding;
use super::modules::{Modules, Sources};
use super::workspace::{Package, Workspace};

/// The crate whose API is listed.
const LIBRARY: &str = "userbtrfs";

/// The path of the list, from the root of the workspace.
const LIST: &str = "docs/api.txt";

const HEAD: &str = "\
# The public API of the crate userbtrfs: a path, and the item there. [F]: needs the feature F.
# `cargo xtask api --update` writes this file.
";

/// The options of `api`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write docs/api.txt instead of printing the list.
    #[arg(long)]
    update: bool,
}

/// Prints the public API, or writes it into the list.
pub(crate) fn run(args: &Args) -> Result<()> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).canonicalize()?;
    let text = text(&list(&Workspace::load(&root)?)?);
    if args.update {
        return std::fs::write(root.join(LIST), text).with_context(|| format!("writing {LIST}"));
    }
    print!("{text}");
    Ok(())
}

/// Returns a finding for each line by which the list differs from the API.
pub(super) fn check(workspace: &Workspace) -> Vec<Finding> {
    if !workspace.packages.iter().any(|package| package.name == LIBRARY) {
        return Vec::new();
    }
    match list(workspace) {
        Ok(lines) => compare(&lines, workspace),
        Err(error) => vec![Finding::new(LIST, 1, format!("{error:#}"))],
    }
}

fn compare(lines: &BTreeSet<String>, workspace: &Workspace) -> Vec<Finding> {
    let listed = workspace.texts.iter().find(|text| text.path == LIST);
    let listed = listed.into_iter().flat_map(|listed| listed.text.lines());
    let listed: BTreeMap<&str, usize> = (1..).zip(listed).map(|(n, line)| (line, n)).collect();
    let is_gone = |line: &&str| !line.starts_with('#') && !lines.contains(*line);
    let gone = listed.iter().filter(|(line, _)| is_gone(line));
    let mut findings: Vec<_> = gone
        .map(|(line, n)| Finding::new(LIST, *n, format!("removed from the API: {line}")))
        .collect();
    let new = lines.iter().filter(|line| !listed.contains_key(line.as_str()));
    findings.extend(new.map(|line| {
        let before = listed.range(..line.as_str()).next_back();
        Finding::new(LIST, before.map_or(1, |(_, n)| *n), format!("added to the API: {line}"))
    }));
    if !findings.is_empty() {
        let text = "differs from the public API: review each change by docs/stability.md, \
                    then run `cargo xtask api --update`";
        findings.push(Finding::new(LIST, 1, text));
    }
    findings
}

fn text(lines: &BTreeSet<String>) -> String {
    let mut text = HEAD.to_owned();
    for line in lines {
        writeln!(text, "{line}").expect("a string takes all");
    }
    text
}

/// Returns the lines of the list.
fn list(workspace: &Workspace) -> Result<BTreeSet<String>> {
    let sources: Sources<'_> = workspace.sources.iter().map(|it| (it.path(), it)).collect();
    let mut modules = Modules::default();
    let mut names = BTreeMap::new();
    for package in below(&workspace.packages) {
        let Some(root) = package.roots.iter().find(|root| root.ends_with("src/lib.rs")) else {
            continue;
        };
        let id = modules.add_crate(&package.name.replace('-', "_"), root, &sources);
        names.insert(id.with_context(|| format!("no file {root}"))?, package.name.as_str());
    }
    let library = names.iter().find(|(_, name)| **name == LIBRARY);
    let library = *library.with_context(|| format!("no crate {LIBRARY}"))?.0;
    let api = Exports::find(&modules, &names, library)?;
    let mut lines = api.lines();
    for (export, item) in api.items() {
        let found = items::describe(&api, export, item);
        let by_macros = macros::describe(&api, export, item);
        if found.is_empty() && by_macros.is_empty() {
            bail!("cannot find the item {} in {}", item.name, modules.all[item.module].path);
        }
        lines.extend(found.into_iter().chain(by_macros));
    }
    lines.extend(impls::describe(&api));
    Ok(lines.into_iter().map(|line| line.to_string()).collect())
}

/// Returns the package of the library, and all that it depends on.
fn below(packages: &[Package]) -> Vec<&Package> {
    let mut found: Vec<&Package> = packages.iter().filter(|it| it.name == LIBRARY).collect();
    let mut at = 0;
    while let Some(package) = found.get(at) {
        let names = package.dependencies.iter().filter(|it| !it.dev).map(|it| &it.name);
        let names: Vec<_> = names.filter(|name| found.iter().all(|it| it.name != **name)).collect();
        found.extend(packages.iter().filter(|it| names.contains(&&it.name)));
        at += 1;
    }
    found
}

#[cfg(test)]
mod tests;
