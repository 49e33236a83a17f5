//! The modules of targets, and the items and files that the paths in them lead to.
//!
//! 1. A path is followed through module names, `use` aliases, re-exports and globs to the module
//!    that defines its first item, also into the other crates that were added.
//! 2. A name that a module lacks counts as defined there: a macro may have made it.
//! 3. Items for tests are left out: a test may import the users of its subject.

use std::collections::{HashMap, HashSet};

use syn::ext::IdentExt;

use super::workspace::Source;
use super::{reach, shape};

/// The index of a module in [`Modules`].
pub(super) type Id = usize;

/// One module: a file, or a `mod name { .. }` in a file.
#[derive(Default)]
pub(super) struct Module<'a> {
    pub(super) path: String,
    /// The root module of its crate.
    pub(super) root: Id,
    parent: Option<Id>,
    children: HashMap<String, Id>,
    items: HashSet<String>,
    /// All items that are not for tests, those without a name as well.
    pub(super) syntax: Vec<&'a syn::Item>,
    pub(super) uses: Vec<Use>,
    pub(super) globs: Vec<Vec<String>>,
}

/// One name that a `use` brings into its module.
pub(super) struct Use {
    pub(super) alias: String,
    pub(super) path: Vec<String>,
    /// The name is visible outside the module, so the `use` may be a re-export.
    pub(super) public: bool,
    pub(super) line: usize,
}

/// The target of a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Target {
    Module(Id),
    /// An item that this module defines, with its name there.
    Item(Id, String),
}

/// A step of the search, with which a cycle of re-exports is recognized.
type Seen = HashSet<(Id, String)>;

/// The files of the workspace by their paths.
pub(super) type Sources<'a> = HashMap<&'a str, &'a Source>;

/// The modules of one target, or of several crates.
#[derive(Default)]
pub(super) struct Modules<'a> {
    pub(super) all: Vec<Module<'a>>,
    /// The root of each crate, by the name that the paths of other crates begin with.
    crates: HashMap<String, Id>,
}

impl<'a> Modules<'a> {
    /// Reads the modules of the target with this root file; empty if the file is not there.
    pub(super) fn load(root: &str, sources: &Sources<'a>) -> Self {
        let mut modules = Self::default();
        modules.add_crate("crate", root, sources);
        modules
    }

    /// Adds the modules of a crate, and returns its root; `None` if the root file is not there.
    pub(super) fn add_crate(
        &mut self,
        name: &str,
        root: &str,
        sources: &Sources<'a>,
    ) -> Option<Id> {
        let source = sources.get(root)?;
        let id = self.add(root, None);
        self.crates.insert(name.to_owned(), id);
        let folder = reach::parent(root);
        self.declare(id, &source.syntax.items, [&folder, &folder], sources);
        Some(id)
    }

    fn add(&mut self, path: &str, parent: Option<Id>) -> Id {
        let id = self.all.len();
        let root = parent.map_or(id, |parent| self.all[parent].root);
        self.all.push(Module { path: path.to_owned(), root, parent, ..Module::default() });
        id
    }

    /// Adds the items of a module; `folders` has the one of its file, and the one of its children.
    fn declare(
        &mut self,
        id: Id,
        items: &'a [syn::Item],
        folders: [&str; 2],
        sources: &Sources<'a>,
    ) {
        for item in items.iter().filter(|item| !is_for_tests(attributes(item))) {
            self.all[id].syntax.push(item);
            match item {
                syn::Item::Mod(module) => self.declare_module(id, module, folders, sources),
                syn::Item::Use(item) => self.all[id].add_use(item),
                item => self.all[id].items.extend(name(item)),
            }
        }
    }

    fn declare_module(
        &mut self,
        parent: Id,
        module: &'a syn::ItemMod,
        [beside, folder]: [&str; 2],
        sources: &Sources<'a>,
    ) {
        let name = module.ident.unraw().to_string();
        let inside = format!("{folder}{name}/");
        if let Some((_, items)) = &module.content {
            let path = self.all[parent].path.clone();
            let id = self.add(&path, Some(parent));
            self.all[parent].children.insert(name, id);
            self.declare(id, items, [&inside, &inside], sources);
            return;
        }
        let by_attribute = reach::path_attribute(module).map(|path| format!("{beside}{path}"));
        let path = by_attribute.unwrap_or_else(|| format!("{folder}{name}.rs"));
        let Some(source) = sources.get(path.as_str()) else { return };
        let id = self.add(&path, Some(parent));
        self.all[parent].children.insert(name, id);
        let folders = [reach::parent(&path), reach::module_folder(&path)];
        self.declare(id, &source.syntax.items, [&folders[0], &folders[1]], sources);
    }

    /// Returns true if a module is a file of its own.
    pub(super) fn is_file(&self, id: Id) -> bool {
        self.all[id].parent.is_none_or(|parent| self.all[parent].path != self.all[id].path)
    }

    /// Returns the child of this name.
    pub(super) fn child(&self, id: Id, name: &str) -> Option<Id> {
        self.all[id].children.get(name).copied()
    }

    /// Returns the child of this name that is in the same file.
    pub(super) fn inline_child(&self, id: Id, name: &str) -> Option<Id> {
        self.child(id, name).filter(|it| self.all[*it].path == self.all[id].path)
    }

    /// Returns true if `below` is a descendant of `id`.
    pub(super) fn is_below(&self, below: Id, id: Id) -> bool {
        let mut parents = std::iter::successors(self.all[below].parent, |it| self.all[*it].parent);
        parents.any(|it| it == id)
    }

    /// Follows a path in a module; `None` if it leads out of the crates that were added.
    pub(super) fn resolve(&self, from: Id, path: &[String]) -> Option<Target> {
        self.follow(from, path, &mut Seen::new())
    }

    fn follow(&self, from: Id, path: &[String], seen: &mut Seen) -> Option<Target> {
        let (first, rest) = path.split_first()?;
        let start = match first.as_str() {
            "crate" => Target::Module(self.all[from].root),
            "self" => Target::Module(from),
            "super" => Target::Module(self.all[from].parent?),
            name => {
                let Some(found) = self.find(from, name, seen) else {
                    let other = Target::Module(*self.crates.get(name)?);
                    // Crates have no cycles: the steps in another one do not lead back.
                    return self.descend(other, rest, &mut Seen::new());
                };
                found
            }
        };
        self.descend(start, rest, seen)
    }

    /// Follows the rest of a path.
    fn descend(&self, start: Target, rest: &[String], seen: &mut Seen) -> Option<Target> {
        let mut at = start;
        for name in rest {
            let Target::Module(id) = at else { break };
            at = match name.as_str() {
                "self" => at,
                "super" => Target::Module(self.all[id].parent?),
                name => self.find(id, name, seen).unwrap_or(Target::Item(id, name.to_owned())),
            };
        }
        Some(at)
    }

    /// Finds a name in a module.
    fn find(&self, id: Id, name: &str, seen: &mut Seen) -> Option<Target> {
        if !seen.insert((id, name.to_owned())) {
            return None;
        }
        let module = &self.all[id];
        if let Some(child) = module.children.get(name) {
            return Some(Target::Module(*child));
        }
        if module.items.contains(name) {
            return Some(Target::Item(id, name.to_owned()));
        }
        if let Some(found) = module.uses.iter().find(|it| it.alias == name) {
            return self.follow(id, &found.path, seen);
        }
        module.globs.iter().find_map(|glob| match self.follow(id, glob, seen)? {
            Target::Module(other) => self.find(other, name, seen),
            Target::Item(..) => None,
        })
    }
}

impl Module<'_> {
    /// Returns true if a `use` of this path is in the module itself, not in a function of it.
    pub(super) fn has_use(&self, path: &[String]) -> bool {
        self.uses.iter().any(|it| it.path == path)
    }

    /// Adds the names that a `use` brings into the module.
    pub(super) fn add_use(&mut self, item: &syn::ItemUse) {
        let public = !matches!(item.vis, syn::Visibility::Inherited);
        if item.leading_colon.is_none() {
            self.add_tree(&item.tree, &mut Vec::new(), public);
        }
    }

    /// Adds the names of a `use`; `before` has the path up to this part of it.
    fn add_tree(&mut self, tree: &syn::UseTree, before: &mut Vec<String>, public: bool) {
        let mut add = |ident: &syn::Ident, alias: &syn::Ident| {
            let mut path = before.clone();
            path.push(ident.unraw().to_string());
            if path.len() > 1 && path.ends_with(&["self".to_owned()]) {
                path.pop();
            }
            let shown = if alias == "self" { path.last() } else { None };
            let alias = shown.cloned().unwrap_or_else(|| alias.unraw().to_string());
            self.uses.push(Use { alias, path, public, line: ident.span().start().line });
        };
        match tree {
            syn::UseTree::Name(name) => add(&name.ident, &name.ident),
            syn::UseTree::Rename(rename) => add(&rename.ident, &rename.rename),
            syn::UseTree::Glob(_) => self.globs.push(before.clone()),
            syn::UseTree::Path(path) => {
                before.push(path.ident.unraw().to_string());
                self.add_tree(&path.tree, before, public);
                before.pop();
            }
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.add_tree(tree, before, public));
            }
        }
    }
}

/// Returns true if an item is only compiled for tests.
pub(super) fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(shape::is_cfg_test)
}

/// Returns the attributes of an item that can be left out of a build.
pub(super) fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Macro(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Union(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Returns the name that an item defines in its module.
pub(super) fn name(item: &syn::Item) -> Option<String> {
    let ident = match item {
        syn::Item::Const(item) => &item.ident,
        syn::Item::Enum(item) => &item.ident,
        syn::Item::Fn(item) => &item.sig.ident,
        syn::Item::Macro(item) => item.ident.as_ref()?,
        syn::Item::Static(item) => &item.ident,
        syn::Item::Struct(item) => &item.ident,
        syn::Item::Trait(item) => &item.ident,
        syn::Item::Type(item) => &item.ident,
        syn::Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(ident.unraw().to_string())
}
