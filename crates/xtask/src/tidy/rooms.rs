//! Rule: a module of `engine` calls only the modules named for it.
//!
//! 1. A room is a module at the root of the crate; the table names the rooms that each may call.
//! 2. A call is any path that starts at `crate`, or that leaves the room by `super`, also in a
//!    `use` group and inside a macro: the file is read as tokens.
//! 3. The root file may name every room; modules that all rooms share are listed in `SHARED`.
//! 4. A room that is not in the table is a finding.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::finding::Finding;
use super::workspace::Source;

const ENGINE: &str = "crates/engine/src/";

/// Modules that are no rooms: every room may call them, and they call no room.
const SHARED: &[&str] = &["acl", "clock", "compression", "error", "units"];

/// Each room, and the rooms it may call.
const ROOMS: &[(&str, &[&str])] = &[
    ("inode", &[]),
    ("data", &["inode"]),
    ("log", &["data", "inode"]),
    ("share", &["data", "inode"]),
    ("scrub", &[]),
    ("api", &["inode", "data", "log", "share", "scrub"]),
];

/// Checks one file, if it belongs to the engine.
pub(super) fn check(source: &Source) -> Vec<Finding> {
    let module = source.path().strip_prefix(ENGINE).map(module_path).unwrap_or_default();
    let Some(room) = module.first().cloned() else { return Vec::new() };
    let Some(allowed) = allowed(&room) else {
        return vec![Finding::new(source.path(), 1, format!("room `{room}` is not in the table"))];
    };
    let tokens: TokenStream = source.text.text.parse().expect("the file was parsed before");
    let mut calls = Calls { module, found: Vec::new() };
    calls.walk(tokens);
    let is_allowed = |name: &str| {
        name == room || allowed.contains(&name) || SHARED.contains(&name) || !is_room(name)
    };
    let bad = calls.found.into_iter().filter(|(name, _)| !is_allowed(name));
    bad.map(|(name, line)| {
        Finding::new(source.path(), line, format!("room `{room}` may not call `{name}`"))
    })
    .collect()
}

/// Returns the rooms that `room` may call; `None` if it is not in the table.
fn allowed(room: &str) -> Option<&'static [&'static str]> {
    if SHARED.contains(&room) {
        return Some(&[]);
    }
    ROOMS.iter().find(|(name, _)| *name == room).map(|(_, allowed)| *allowed)
}

/// Returns true if a name at the root can be a room: a type starts with a capital letter.
fn is_room(name: &str) -> bool {
    name.starts_with(char::is_lowercase)
}

/// Returns the module path of a file: `inode::dir` for `inode/dir.rs`, empty for the root file.
fn module_path(file: &str) -> Vec<String> {
    let parts = file.trim_end_matches(".rs").split('/');
    parts.filter(|part| !matches!(*part, "lib" | "mod")).map(str::to_owned).collect()
}

/// Collects the names that a file uses at the root of its crate.
struct Calls {
    /// The module of the current tokens.
    module: Vec<String>,
    /// The names, with their lines.
    found: Vec<(String, usize)>,
}

impl Calls {
    fn walk(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        for (index, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Ident(ident) if ident == "crate" => {
                    self.follow(&tokens[index + 1..], 0);
                }
                TokenTree::Ident(ident) if ident == "super" && !follows_super(&tokens, index) => {
                    self.climb(&tokens[index + 1..]);
                }
                TokenTree::Group(group) => self.enter(&tokens[..index], group),
                _ => {}
            }
        }
    }

    /// Reads a group; the body of `mod name { .. }` is one module deeper.
    fn enter(&mut self, before: &[TokenTree], group: &proc_macro2::Group) {
        let name = match before {
            [.., TokenTree::Ident(word), TokenTree::Ident(name)] if word == "mod" => {
                Some(name.to_string())
            }
            _ => None,
        };
        let depth = self.module.len();
        self.module.extend(name);
        self.walk(group.stream());
        self.module.truncate(depth);
    }

    /// Handles the tokens after a `super`: counts the `super`s that follow.
    fn climb(&mut self, mut rest: &[TokenTree]) {
        let mut steps = 1;
        while let Some(TokenTree::Ident(ident)) = after_colons(rest).first()
            && ident == "super"
        {
            steps += 1;
            rest = &after_colons(rest)[1..];
        }
        let depth_left = self.module.len().saturating_sub(steps);
        self.follow(rest, depth_left);
    }

    /// Handles the tokens after `crate` or the last `super`, when the path is `depth` modules below
    /// the root: at the root, the next name is a call.
    fn follow(&mut self, rest: &[TokenTree], depth: usize) {
        if depth > 0 {
            return;
        }
        match after_colons(rest).first() {
            Some(TokenTree::Ident(ident)) => self.add(ident),
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                self.add_each(group.stream());
            }
            _ => {}
        }
    }

    /// Adds the first name of each part of a `use` group.
    fn add_each(&mut self, group: TokenStream) {
        let mut starts = true;
        for token in group {
            match &token {
                TokenTree::Ident(ident) if starts => self.add(ident),
                _ => {}
            }
            starts = matches!(&token, TokenTree::Punct(punct) if punct.as_char() == ',');
        }
    }

    fn add(&mut self, ident: &proc_macro2::Ident) {
        self.found.push((ident.to_string(), ident.span().start().line));
    }
}

/// Returns the tokens after `::`; empty if the tokens do not begin with it.
fn after_colons(tokens: &[TokenTree]) -> &[TokenTree] {
    match tokens {
        [TokenTree::Punct(first), TokenTree::Punct(second), rest @ ..]
            if first.as_char() == ':' && second.as_char() == ':' =>
        {
            rest
        }
        _ => &[],
    }
}

/// Returns true if the `super` at `index` continues a path, which `climb` has already read.
fn follows_super(tokens: &[TokenTree], index: usize) -> bool {
    matches!(&tokens[..index], [.., TokenTree::Ident(ident), TokenTree::Punct(_),
        TokenTree::Punct(colon)] if ident == "super" && colon.as_char() == ':')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(file: &str, text: &str) -> Vec<String> {
        let source = Source::parse(&format!("{ENGINE}{file}"), text).unwrap();
        check(&source).iter().map(|finding| finding.what.clone()).collect()
    }

    #[test]
    fn call_of_an_allowed_room_is_no_finding() {
        let text =
            "use crate::{error::Error, inode::{self, Inode}};\nuse super::super::inode::dir;";
        assert_eq!(findings("data/read.rs", text), [""; 0]);
        assert_eq!(findings("inode/dir.rs", "use super::Inode; use crate::Error;"), [""; 0]);
        assert_eq!(findings("lib.rs", "use crate::log::Log;"), [""; 0]);
    }

    #[test]
    fn another_crate_has_no_rooms() {
        let source = Source::parse("crates/btree/src/a.rs", "use crate::log::Log;").unwrap();
        assert!(check(&source).is_empty());
    }

    #[test]
    fn every_way_to_call_a_forbidden_room_is_found() {
        let calls = [
            "use crate::log::Log;",
            "use crate::{error::Error, log::Log};",
            "fn f() { crate::log::write(); }",
            "fn f() { println!(\"{}\", crate::log::write()); }",
            "use super::super::log::Log;",
            "use super::super::{log::Log};",
            "mod inner { use super::super::super::log::Log; }",
            "pub(crate) struct A(crate::log::Log);",
        ];
        for call in calls {
            assert_eq!(
                findings("data/read.rs", call),
                ["room `data` may not call `log`"],
                "{call}"
            );
        }
    }

    #[test]
    fn path_by_super_within_the_room_is_no_call() {
        assert_eq!(findings("data/read.rs", "mod log { use super::super::log; }"), [""; 0]);
    }

    #[test]
    fn shared_module_calling_a_room_is_found() {
        let found = findings("error.rs", "use crate::inode::Inode;");
        assert_eq!(found, ["room `error` may not call `inode`"]);
    }

    #[test]
    fn an_unknown_room_is_found() {
        assert_eq!(findings("new.rs", ""), ["room `new` is not in the table"]);
    }

    #[test]
    fn each_room_calls_only_rooms_before_it() {
        for (index, (_, allowed)) in ROOMS.iter().enumerate() {
            let before = |name: &&str| ROOMS[..index].iter().any(|(room, _)| room == name);
            assert!(allowed.iter().all(before));
        }
    }
}
