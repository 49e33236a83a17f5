//! Rule: each Rust file is part of a target.
//!
//! 1. The roots are the root files of all targets, as Cargo names them.
//! 2. A reached file declares others by `mod name;`, under any `cfg`; `#[path]` is followed.
//! 3. A file that is not reached from any root is dead.

use std::collections::{HashMap, HashSet};

use super::finding::Finding;
use super::workspace::{Package, Source};

/// Finds the files that no target reaches.
pub(super) fn check(packages: &[Package], sources: &[Source]) -> Vec<Finding> {
    let reached = reached(packages, sources);
    let dead = sources.iter().filter(|source| !reached.contains(source.path()));
    dead.map(|source| Finding::new(source.path(), 1, "no target reaches this file")).collect()
}

fn reached(packages: &[Package], sources: &[Source]) -> HashSet<String> {
    let by_path: HashMap<_, _> = sources.iter().map(|source| (source.path(), source)).collect();
    let roots: HashSet<&String> = packages.iter().flat_map(|package| &package.roots).collect();
    let mut reached = HashSet::new();
    let mut waiting: Vec<String> = roots.iter().map(|&root| root.clone()).collect();
    while let Some(path) = waiting.pop() {
        let Some(source) = by_path.get(path.as_str()) else { continue };
        let folder = if roots.contains(&path) { parent(&path) } else { module_folder(&path) };
        if reached.insert(path.clone()) {
            declared(&source.syntax.items, &parent(&path), &folder, &mut waiting);
        }
    }
    reached
}

/// Adds the files that `mod` items may refer to: `folder/name.rs` and `folder/name/mod.rs`.
fn declared(items: &[syn::Item], beside: &str, folder: &str, found: &mut Vec<String>) {
    for item in items {
        let syn::Item::Mod(module) = item else { continue };
        let name = format!("{folder}{}", module.ident);
        if let Some((_, inner)) = &module.content {
            let inside = format!("{name}/");
            declared(inner, &inside, &inside, found);
        } else if let Some(path) = path_attribute(module) {
            found.push(format!("{beside}{path}"));
        } else {
            found.extend([format!("{name}.rs"), format!("{name}/mod.rs")]);
        }
    }
}

/// Returns the value of `#[path]`.
pub(super) fn path_attribute(module: &syn::ItemMod) -> Option<String> {
    module.attrs.iter().find_map(|attribute| match &attribute.meta {
        syn::Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(path), .. }) => Some(path.value()),
            _ => None,
        },
        _ => None,
    })
}

/// Returns the folder of the modules of a file other than a root: `a/b/` for `a/b.rs`.
pub(super) fn module_folder(path: &str) -> String {
    if path.ends_with("/mod.rs") {
        return parent(path);
    }
    format!("{}/", path.trim_end_matches(".rs"))
}

/// Returns the folder of a file, with a trailing `/`.
pub(super) fn parent(path: &str) -> String {
    path.rfind('/').map_or(String::new(), |at| path[..=at].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(files: &[(&str, &str)]) -> Vec<String> {
        let roots = vec!["p/src/lib.rs".to_owned(), "p/tests/all.rs".to_owned()];
        let package =
            Package { name: "p".into(), manifest: String::new(), roots, dependencies: vec![] };
        let sources: Vec<_> =
            files.iter().map(|(path, text)| Source::parse(path, text).unwrap()).collect();
        check(&[package], &sources).iter().map(|finding| finding.path.clone()).collect()
    }

    #[test]
    fn a_file_that_is_declared_is_alive() {
        let files = [
            ("p/src/lib.rs", "mod a; mod inline { mod c; } #[path = \"other.rs\"] mod d;"),
            ("p/src/a.rs", "#[cfg(test)] mod tests; mod b;"),
            ("p/src/a/tests.rs", ""),
            ("p/src/a/b/mod.rs", "mod e;"),
            ("p/src/a/b/e.rs", ""),
            ("p/src/inline/c.rs", ""),
            ("p/src/other.rs", ""),
            ("p/tests/all.rs", "mod one;"),
            ("p/tests/one.rs", ""),
        ];
        assert_eq!(findings(&files), [""; 0]);
    }

    #[test]
    fn a_dead_file_is_found() {
        let files = [
            ("p/src/lib.rs", "mod a;"),
            ("p/src/a.rs", ""),
            ("p/src/b.rs", "mod c;"),
            ("p/src/b/c.rs", ""),
        ];
        assert_eq!(findings(&files), ["p/src/b.rs", "p/src/b/c.rs"]);
    }
}
