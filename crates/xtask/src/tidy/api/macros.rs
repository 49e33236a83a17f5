//! The items that calls of macros define.
//!
//! 1. A call in a module is listed line by line as it is written, such as the flags of `bitflags!`.
//!    Comments and lines without a word are left out.
//! 2. If the macro is defined in the same module, its public lines, derives and `impl`s are listed
//!    before, with the variables of the macro as they are written.
//! 3. A line belongs to the item whose `struct`, `enum` or `impl` is last before it.

use super::exports::{Export, Exports, Item, union};
use super::text::Line;

/// Returns the lines of an item that calls of macros in its module define.
pub(super) fn describe(api: &Exports<'_>, export: &Export, item: &Item) -> Vec<Line> {
    let syntax = &api.modules.all[item.module].syntax;
    let mut lines = Vec::new();
    for call in syntax.iter().filter_map(|it| as_call(it)) {
        let name = call.mac.path.segments.last().map(|it| it.ident.to_string());
        let name = name.unwrap_or_default();
        let gates = union(&export.gates, api.gates(item.module, &call.attrs));
        let definition = syntax.iter().find_map(|it| match it {
            syn::Item::Macro(it) if it.ident.as_ref().is_some_and(|it| *it == name) => Some(it),
            _ => None,
        });
        let head = definition.map_or(String::new(), |it| text(&it.mac));
        let head = head.lines().map(str::trim).filter(|line| is_head(line));
        let call = text(&call.mac);
        let mut owner = None;
        let mut derives = Vec::new();
        for line in head.chain(call.lines().map(str::trim)).filter(|line| has_word(line)) {
            if line.starts_with("#[derive") {
                derives.push(line);
                continue;
            }
            owner = defined(line).or(owner);
            let shown = std::mem::take(&mut derives).into_iter().chain([line]);
            let shown = shown.filter(|_| owner == Some(item.name.as_str()));
            lines.extend(shown.map(|line| {
                let item = format!("{name}! {}", line.trim_end_matches(['{', ',', ' ', ';']));
                Line { path: export.path.clone(), item, gates: gates.clone() }
            }));
        }
    }
    lines
}

fn as_call(item: &syn::Item) -> Option<&syn::ItemMacro> {
    match item {
        syn::Item::Macro(it) if it.ident.is_none() => Some(it),
        _ => None,
    }
}

fn text(call: &syn::Macro) -> String {
    let inner = call.delimiter.span().join();
    inner.source_text().unwrap_or_default()
}

fn has_word(line: &str) -> bool {
    line.contains(char::is_alphanumeric) && !line.starts_with("//")
}

/// Returns true for a line of a definition that is part of the API.
fn is_head(line: &str) -> bool {
    line.starts_with("pub ")
        || line.contains(" pub ")
        || line.starts_with("#[derive")
        || line.contains("impl ")
}

/// Returns the name of the item that a line begins.
fn defined(line: &str) -> Option<&str> {
    let mut words =
        line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|it| !it.is_empty());
    words.find(|word| matches!(*word, "struct" | "enum" | "impl"))?;
    words.next()
}
