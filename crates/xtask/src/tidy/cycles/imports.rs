//! The imports of one file of a target.
//!
//! 1. A path in a `use`, a type, an expression, a pattern or a macro is an import of the file that
//!    it leads to.
//! 2. A `use` of a module imports nothing; the paths that begin with its name do.
//! 3. `mod child;` and a re-export of an item of a descendant import nothing.

use proc_macro2::{TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::visit::{self, Visit};

use super::super::modules::{Id, Module, Modules, Target, attributes, is_for_tests};

/// Collects the imports of one file.
pub(super) struct Imports<'a> {
    modules: &'a Modules<'a>,
    /// The module of the current item.
    at: Id,
    /// The modules that are imported, with the lines of the imports.
    pub(super) found: Vec<(Id, usize)>,
}

impl<'a> Imports<'a> {
    pub(super) fn of(file: &syn::File, modules: &'a Modules<'a>, at: Id) -> Self {
        let mut imports = Self { modules, at, found: Vec::new() };
        imports.visit_file(file);
        imports
    }

    fn follow(&mut self, path: &[String], line: usize) {
        if let Some(Target::Item(id, _)) = self.modules.resolve(self.at, path) {
            self.found.push((id, line));
        }
    }

    /// Adds the import of each name of a `use`.
    fn follow_use(&mut self, item: &syn::ItemUse) {
        let mut names = Module::default();
        names.add_use(item);
        for name in names.uses {
            match self.modules.resolve(self.at, &name.path) {
                Some(Target::Item(id, _))
                    if !name.public || !self.modules.is_below(id, self.at) =>
                {
                    self.found.push((id, name.line));
                }
                // In a function: the paths that begin with its name are not followed.
                Some(Target::Module(id)) if !self.modules.all[self.at].has_use(&name.path) => {
                    self.found.push((id, name.line));
                }
                _ => {}
            }
        }
    }

    /// Follows each path in the tokens of a macro.
    fn follow_tokens(&mut self, tokens: TokenStream) {
        let mut path = Vec::new();
        let mut line = 0;
        let mut before = [' '; 2];
        for token in tokens {
            let mark = match &token {
                TokenTree::Ident(ident) => {
                    if before != [':', ':'] {
                        self.follow(&path, line);
                        path.clear();
                        line = ident.span().start().line;
                    }
                    // A method or a field begins no path; neither does a path of another crate.
                    if before[1] != '.' && (before != [':', ':'] || !path.is_empty()) {
                        path.push(ident.unraw().to_string());
                    }
                    'a'
                }
                TokenTree::Punct(punct) => punct.as_char(),
                TokenTree::Group(group) => {
                    self.follow_tokens(group.stream());
                    '('
                }
                TokenTree::Literal(_) => '0',
            };
            before = [before[1], mark];
        }
        self.follow(&path, line);
    }
}

impl<'ast> Visit<'ast> for Imports<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_for_tests(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        let name = module.ident.unraw().to_string();
        if module.content.is_some()
            && let Some(child) = self.modules.inline_child(self.at, &name)
        {
            let parent = std::mem::replace(&mut self.at, child);
            visit::visit_item_mod(self, module);
            self.at = parent;
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.follow_use(item);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none()
            && let Some(first) = path.segments.first()
        {
            let line = first.ident.span().start().line;
            let names = path.segments.iter().map(|it| it.ident.unraw().to_string());
            self.follow(&names.collect::<Vec<_>>(), line);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.visit_path(&call.path);
        self.follow_tokens(call.tokens.clone());
    }

    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}
}
