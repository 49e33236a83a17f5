//! The implementations for public types and of public traits.
//!
//! 1. Public functions and constants of an inherent `impl` are lines below the path of its type.
//! 2. The `impl` of a trait is a line at the path of its type; if that is not public, of its trait;
//!    else of the first public type in the arguments of the trait.
//! 3. An `impl` of a trait of the workspace that is not public is left out.

use std::collections::BTreeSet;

use syn::ext::IdentExt;

use super::super::modules::{self, Id};
use super::exports::{Export, Exports, is_pub, union};
use super::text::{Line, attributes, generics, source};

/// Returns the lines of all implementations.
pub(super) fn describe(api: &Exports<'_>) -> BTreeSet<Line> {
    let mut lines = BTreeSet::new();
    for (id, module) in api.modules.all.iter().enumerate() {
        for item in &module.syntax {
            let syn::Item::Impl(item) = item else { continue };
            match &item.trait_ {
                None => lines.extend(inherent(api, id, item)),
                Some((path, _)) => lines.extend(of_trait(api, id, item, path)),
            }
        }
    }
    lines
}

fn inherent(api: &Exports<'_>, module: Id, item: &syn::ItemImpl) -> Vec<Line> {
    let Some(export) = of_type(api, module, &item.self_ty) else { return Vec::new() };
    let gates = union(&export.gates, api.gates(module, &item.attrs));
    let [params, bounds] = generics(&item.generics);
    let head = format!("impl{params} {}{bounds}", source(&*item.self_ty));
    let with = if params.is_empty() { String::new() } else { format!(" in {head}") };
    let parts = item.items.iter().filter_map(|part| {
        let (name, text, marks) = match part {
            syn::ImplItem::Fn(it) if is_pub(&it.vis) => {
                let text = format!("{}{}", attributes(&it.attrs), source(&it.sig));
                (&it.sig.ident, text, &it.attrs)
            }
            syn::ImplItem::Const(it) if is_pub(&it.vis) => {
                (&it.ident, format!("const {}: {}", it.ident, source(&it.ty)), &it.attrs)
            }
            _ => return None,
        };
        if modules::is_for_tests(marks) {
            return None;
        }
        let path = format!("{}::{}", export.path, name.unraw());
        let gates = union(&gates, api.gates(module, marks));
        Some(Line { path, item: format!("{text}{with}"), gates })
    });
    parts.collect()
}

fn of_trait(api: &Exports<'_>, module: Id, item: &syn::ItemImpl, path: &syn::Path) -> Option<Line> {
    let names = names(path);
    if api.is_hidden(module, &names) {
        return None;
    }
    let in_arguments = || arguments(path).find_map(|it| of_type(api, module, it));
    let of_trait = || api.public(module, &names);
    let of_type = of_type(api, module, &item.self_ty);
    let export = of_type.or_else(of_trait).or_else(in_arguments)?;
    let [params, bounds] = generics(&item.generics);
    let name = source(path.segments.last()?);
    let types = item.items.iter().filter_map(|part| match part {
        syn::ImplItem::Type(it) => Some(format!("type {} = {}", it.ident, source(&it.ty))),
        _ => None,
    });
    let types = types.collect::<Vec<_>>().join(", ");
    let types = if types.is_empty() { types } else { format!(" {{ {types} }}") };
    let gates = union(&export.gates, api.gates(module, &item.attrs));
    let text = format!("impl{params} {name} for {}{bounds}{types}", source(&*item.self_ty));
    Some(Line { path: export.path.clone(), item: text, gates })
}

/// Returns the public path of a type, or of the type that it refers to.
fn of_type<'a>(api: &'a Exports<'_>, module: Id, of: &syn::Type) -> Option<&'a Export> {
    match of {
        syn::Type::Path(it) if it.qself.is_none() => api.public(module, &names(&it.path)),
        syn::Type::Reference(it) => of_type(api, module, &it.elem),
        syn::Type::Paren(it) => of_type(api, module, &it.elem),
        _ => None,
    }
}

fn names(path: &syn::Path) -> Vec<String> {
    path.segments.iter().map(|it| it.ident.unraw().to_string()).collect()
}

/// Returns the types in the arguments of the last part of a path.
fn arguments(path: &syn::Path) -> impl Iterator<Item = &syn::Type> {
    let last = path.segments.last().map(|it| &it.arguments);
    let list = last.and_then(|it| match it {
        syn::PathArguments::AngleBracketed(list) => Some(&list.args),
        _ => None,
    });
    list.into_iter().flatten().filter_map(|it| match it {
        syn::GenericArgument::Type(it) => Some(it),
        _ => None,
    })
}
