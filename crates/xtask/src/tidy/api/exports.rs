//! The public paths of the library, and the items that they lead to.
//!
//! 1. Only `pub` counts. A module that is private itself is reached by re-exports alone.
//! 2. An item is described at the first of its paths that needs the fewest features and is not in
//!    the root of the crate, which exports most items again.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use syn::ext::IdentExt;

use super::super::modules::{self, Id, Module, Modules, Target};
use super::text::{Line, conditions};

/// An item, by the module that defines it and its name there.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Item {
    pub(super) module: Id,
    pub(super) name: String,
}

/// The target of a public path.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Exported {
    Module,
    Item(Item),
    /// An item of another project, by its path.
    Foreign(String),
}

/// A public path, with the features that it needs.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Export {
    pub(super) gates: Vec<String>,
    is_in_root: bool,
    pub(super) path: String,
}

/// All public paths.
pub(super) struct Exports<'a> {
    pub(super) modules: &'a Modules<'a>,
    /// The crates, by their root modules.
    names: &'a BTreeMap<Id, &'a str>,
    library: Id,
    paths: BTreeSet<(Export, Exported)>,
    /// The path at which each item is described.
    items: BTreeMap<Item, Export>,
    /// The modules on the way to the current one.
    open: Vec<Id>,
}

impl<'a> Exports<'a> {
    pub(super) fn find(
        modules: &'a Modules<'a>,
        names: &'a BTreeMap<Id, &'a str>,
        library: Id,
    ) -> Result<Self> {
        let paths = BTreeSet::new();
        let items = BTreeMap::new();
        let mut found = Self { modules, names, library, paths, items, open: Vec::new() };
        found.walk(library, names[&library], &[])?;
        found.choose();
        Ok(found)
    }

    /// Returns the items with the paths at which they are described.
    pub(super) fn items(&self) -> impl Iterator<Item = (&Export, &Item)> {
        self.items.iter().map(|(item, export)| (export, item))
    }

    /// Returns the path at which the item is described that a path in a module leads to; `None` if
    /// that item is not public.
    pub(super) fn public(&self, from: Id, path: &[String]) -> Option<&Export> {
        let item = match (self.modules.resolve(from, path), path) {
            (Some(Target::Item(module, name)), _) => Item { module, name },
            // A macro may have defined it here.
            (None, [name]) => Item { module: from, name: name.clone() },
            _ => return None,
        };
        self.items.get(&item)
    }

    /// Returns true if a path leads to an item of the workspace that is not public.
    pub(super) fn is_hidden(&self, from: Id, path: &[String]) -> bool {
        self.modules.resolve(from, path).is_some() && self.public(from, path).is_none()
    }

    /// Returns the lines of modules and of further paths.
    pub(super) fn lines(&self) -> BTreeSet<Line> {
        let lines = self.paths.iter().filter_map(|(export, exported)| {
            let item = match exported {
                Exported::Module => "mod".to_owned(),
                Exported::Foreign(path) => format!("use {path}"),
                Exported::Item(item) if self.items[item].path == export.path => return None,
                Exported::Item(item) => format!("use {}", self.items[item].path),
            };
            Some(Line { path: export.path.clone(), item, gates: export.gates.clone() })
        });
        lines.collect()
    }

    /// Returns the features that an item of a module needs besides those of its path.
    pub(super) fn gates(&self, module: Id, attributes: &[syn::Attribute]) -> Vec<String> {
        let root = self.modules.all[module].root;
        let conditions = conditions(attributes).into_iter();
        if root == self.library {
            return conditions.collect();
        }
        conditions.map(|it| format!("{}/{it}", self.names[&root])).collect()
    }

    /// Adds the public items of a module, at the path `path`.
    fn walk(&mut self, module: Id, path: &str, gates: &[String]) -> Result<()> {
        if self.open.contains(&module) {
            return Ok(());
        }
        self.open.push(module);
        let modules = self.modules;
        for item in modules.all[module].syntax.iter().filter(|item| is_public(item)) {
            let needed = self.gates(module, modules::attributes(item));
            let gates = union(gates, needed);
            match item {
                syn::Item::Mod(child) => {
                    let name = child.ident.unraw().to_string();
                    let id = modules.child(module, &name);
                    let id = id.with_context(|| format!("no file of the module {name}"))?;
                    self.walk_child(id, &format!("{path}::{name}"), &gates)?;
                }
                syn::Item::Use(item) => self.reexport(module, item, path, &gates)?,
                item => {
                    if let Some(name) = modules::name(item) {
                        let exported = Exported::Item(Item { module, name: name.clone() });
                        self.add(&format!("{path}::{name}"), &gates, exported);
                    }
                }
            }
        }
        self.open.pop();
        Ok(())
    }

    fn walk_child(&mut self, module: Id, path: &str, gates: &[String]) -> Result<()> {
        self.add(path, gates, Exported::Module);
        self.walk(module, path, gates)
    }

    /// Adds the names of a `pub use`.
    fn reexport(
        &mut self,
        module: Id,
        item: &syn::ItemUse,
        path: &str,
        gates: &[String],
    ) -> Result<()> {
        let mut names = Module::default();
        names.add_use(item);
        for glob in &names.globs {
            match self.modules.resolve(module, glob) {
                Some(Target::Module(id)) => self.walk(id, path, gates)?,
                _ => bail!("cannot follow `pub use {}::*`", glob.join("::")),
            }
        }
        for name in &names.uses {
            let at = format!("{path}::{}", name.alias);
            match self.modules.resolve(module, &name.path) {
                Some(Target::Module(id)) => self.walk_child(id, &at, gates)?,
                Some(Target::Item(module, name)) => {
                    self.add(&at, gates, Exported::Item(Item { module, name }));
                }
                None => self.add(&at, gates, Exported::Foreign(name.path.join("::"))),
            }
        }
        Ok(())
    }

    fn add(&mut self, path: &str, gates: &[String], exported: Exported) {
        let is_in_root = path.matches("::").count() == 1;
        let gates = gates.to_vec();
        self.paths.insert((Export { gates, is_in_root, path: path.to_owned() }, exported));
    }

    fn choose(&mut self) {
        let rank = |export: &Export| (export.gates.len(), export.is_in_root, export.path.clone());
        for (export, exported) in &self.paths {
            let Exported::Item(item) = exported else { continue };
            let best = self.items.entry(item.clone()).or_insert_with(|| export.clone());
            if rank(export) < rank(best) {
                *best = export.clone();
            }
        }
    }
}

/// Returns the features of both lists.
pub(super) fn union(gates: &[String], more: Vec<String>) -> Vec<String> {
    let new = more.into_iter().filter(|gate| !gates.contains(gate));
    gates.iter().cloned().chain(new).collect()
}

/// Returns true if an item is `pub`.
fn is_public(item: &syn::Item) -> bool {
    let visibility = match item {
        syn::Item::Const(item) => &item.vis,
        syn::Item::Enum(item) => &item.vis,
        syn::Item::Fn(item) => &item.vis,
        syn::Item::Mod(item) => &item.vis,
        syn::Item::Static(item) => &item.vis,
        syn::Item::Struct(item) => &item.vis,
        syn::Item::Trait(item) => &item.vis,
        syn::Item::Type(item) => &item.vis,
        syn::Item::Union(item) => &item.vis,
        syn::Item::Use(item) => &item.vis,
        _ => return false,
    };
    is_pub(visibility)
}

pub(super) fn is_pub(visibility: &syn::Visibility) -> bool {
    matches!(visibility, syn::Visibility::Public(_))
}
