//! The lines of an item: itself, and the fields, variants and functions that are part of it.

use super::super::modules;
use super::exports::{Export, Exports, Item, is_pub, union};
use super::text::{Line, attributes, generics, source};

/// Returns the lines of an item; none if no syntax of its module has its name.
pub(super) fn describe(api: &Exports<'_>, export: &Export, item: &Item) -> Vec<Line> {
    let syntax = api.modules.all[item.module].syntax.iter();
    let named = syntax.filter(|it| modules::name(it).as_deref() == Some(&item.name));
    let mut lines = Vec::new();
    for syntax in named {
        let needed = api.gates(item.module, modules::attributes(syntax));
        let gates = union(&export.gates, needed);
        let mut parts = Parts { api, item, path: &export.path, gates, lines: &mut lines };
        parts.item(syntax);
    }
    lines
}

/// Collects the lines of one item.
struct Parts<'a> {
    api: &'a Exports<'a>,
    item: &'a Item,
    path: &'a str,
    gates: Vec<String>,
    lines: &'a mut Vec<Line>,
}

impl Parts<'_> {
    fn item(&mut self, syntax: &syn::Item) {
        let name = self.path.rsplit("::").next().unwrap_or_default();
        match syntax {
            syn::Item::Const(item) => self.add(format!("const {name}: {}", source(&item.ty))),
            syn::Item::Static(item) => self.add(format!("static {name}: {}", source(&item.ty))),
            syn::Item::Fn(item) => {
                let marks = attributes(&item.attrs);
                self.add(format!("{marks}{}", source(&item.sig)));
            }
            syn::Item::Type(item) => {
                let [params, bounds] = generics(&item.generics);
                self.add(format!("type {name}{params}{bounds} = {}", source(&item.ty)));
            }
            syn::Item::Struct(item) => {
                let [params, bounds] = generics(&item.generics);
                let marks = attributes(&item.attrs);
                let form = form(&item.fields);
                self.add(format!("{marks}struct {name}{params}{form}{bounds}"));
                self.fields(&item.fields);
                self.derives(&item.attrs, item.fields.iter());
            }
            syn::Item::Enum(item) => {
                let [params, bounds] = generics(&item.generics);
                let marks = attributes(&item.attrs);
                self.add(format!("{marks}enum {name}{params}{bounds}"));
                for variant in &item.variants {
                    let text = format!("{}variant {}", attributes(&variant.attrs), whole(variant));
                    self.part(&variant.ident.to_string(), text, &variant.attrs);
                }
                self.derives(&item.attrs, item.variants.iter().flat_map(|it| &it.fields));
            }
            syn::Item::Trait(item) => self.trait_(name, item),
            other => self.add(source(other)),
        }
    }

    fn add(&mut self, item: String) {
        self.lines.push(Line { path: self.path.to_owned(), item, gates: self.gates.clone() });
    }

    /// Adds the line of a part of the item.
    fn part(&mut self, name: &str, item: String, attributes: &[syn::Attribute]) {
        let gates = union(&self.gates, self.api.gates(self.item.module, attributes));
        self.lines.push(Line { path: format!("{}::{name}", self.path), item, gates });
    }

    fn fields(&mut self, fields: &syn::Fields) {
        for (n, field) in fields.iter().enumerate().filter(|(_, field)| is_pub(&field.vis)) {
            let name = field.ident.as_ref().map_or_else(|| n.to_string(), ToString::to_string);
            let text = format!("field {name}: {}", source(&field.ty));
            self.part(&name, text, &field.attrs);
        }
    }

    /// Adds the traits that are derived. `thiserror::Error` implements others as well.
    fn derives<'f>(
        &mut self,
        attributes: &[syn::Attribute],
        fields: impl Iterator<Item = &'f syn::Field>,
    ) {
        let from = |it: &syn::Attribute| it.path().is_ident("from");
        let from = fields.filter(|field| field.attrs.iter().any(from));
        let mut names = Vec::new();
        for attribute in attributes.iter().filter(|it| it.path().is_ident("derive")) {
            // Cargo has parsed it.
            let _parsed = attribute.parse_nested_meta(|meta| {
                names.extend(meta.path.segments.last().map(|it| it.ident.to_string()));
                Ok(())
            });
        }
        if names.iter().any(|name| name == "Error") {
            names.push("Display".to_owned());
            names.extend(from.map(|field| format!("From<{}>", source(&field.ty))));
        }
        for name in names {
            let own = self.path.rsplit("::").next().unwrap_or_default();
            self.add(format!("impl {name} for {own}"));
        }
    }

    fn trait_(&mut self, name: &str, item: &syn::ItemTrait) {
        let [params, bounds] = generics(&item.generics);
        let above = item.supertraits.iter().map(source).collect::<Vec<_>>().join(" + ");
        let above = if above.is_empty() { above } else { format!(": {above}") };
        self.add(format!("{}trait {name}{params}{above}{bounds}", attributes(&item.attrs)));
        for part in &item.items {
            match part {
                syn::TraitItem::Fn(it) => {
                    let kind = if it.default.is_some() { "provided " } else { "" };
                    let text = format!("{}{kind}{}", attributes(&it.attrs), source(&it.sig));
                    self.part(&it.sig.ident.to_string(), text, &it.attrs);
                }
                syn::TraitItem::Const(it) => {
                    let kind = if it.default.is_some() { "provided " } else { "" };
                    let text = format!("{kind}const {}: {}", it.ident, source(&it.ty));
                    self.part(&it.ident.to_string(), text, &it.attrs);
                }
                syn::TraitItem::Type(it) => {
                    let bounds = it.bounds.iter().map(source).collect::<Vec<_>>().join(" + ");
                    let bounds = if bounds.is_empty() { bounds } else { format!(": {bounds}") };
                    self.part(
                        &it.ident.to_string(),
                        format!("type {}{bounds}", it.ident),
                        &it.attrs,
                    );
                }
                other => self.add(source(other)),
            }
        }
    }
}

/// Returns the mark of a struct with fields that are not public, or without names.
fn form(fields: &syn::Fields) -> &'static str {
    let is_open = fields.iter().all(|field| is_pub(&field.vis));
    match fields {
        syn::Fields::Named(_) if is_open => "",
        syn::Fields::Named(_) => " { private fields }",
        syn::Fields::Unnamed(_) if is_open => "(..)",
        syn::Fields::Unnamed(_) => "(private fields)",
        syn::Fields::Unit => ";",
    }
}

/// Returns a variant with its fields, without the documentation of these.
fn whole(variant: &syn::Variant) -> String {
    let fields = variant.fields.iter().map(|field| {
        let name = field.ident.as_ref().map_or(String::new(), |name| format!("{name}: "));
        format!("{name}{}", source(&field.ty))
    });
    let fields = fields.collect::<Vec<_>>().join(", ");
    match &variant.fields {
        syn::Fields::Named(_) => format!("{} {{ {fields} }}", variant.ident),
        syn::Fields::Unnamed(_) => format!("{}({fields})", variant.ident),
        syn::Fields::Unit => variant.ident.to_string(),
    }
}
