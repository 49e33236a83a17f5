//! Source text as one line, and attributes that belong to the API.

use std::fmt;

use syn::spanned::Spanned;

/// A line of the list.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Line {
    pub(super) path: String,
    pub(super) item: String,
    /// The features that it needs.
    pub(super) gates: Vec<String>,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}  {}", self.path, self.item)?;
        self.gates.iter().try_for_each(|gate| write!(f, " [{gate}]"))
    }
}

/// Returns the source text of a piece of syntax as one line.
pub(super) fn source(syntax: &impl Spanned) -> String {
    one_line(&syntax.span().source_text().unwrap_or_default())
}

/// Returns lines of source text as one, as rustfmt would write them if they had room.
pub(super) fn one_line(text: &str) -> String {
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    let words = lines.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ");
    let joins = [("( ", "("), (", )", ")"), (" )", ")"), ("< ", "<"), (", >", ">"), (" .", ".")];
    let text = joins.iter().fold(words, |text, (from, to)| text.replace(from, to));
    text.trim_end_matches(',').to_owned()
}

/// Returns the generics of an item, and its `where` clause.
pub(super) fn generics(generics: &syn::Generics) -> [String; 2] {
    let bounds = generics.where_clause.as_ref();
    [source_or_nothing(generics), bounds.map_or(String::new(), |it| format!(" {}", source(it)))]
}

/// Without any token, a span is that of the macro, or of the whole file.
fn source_or_nothing(generics: &syn::Generics) -> String {
    if generics.params.is_empty() { String::new() } else { source(generics) }
}

/// Returns the attributes that restrict a user, each with a space after it.
pub(super) fn attributes(attributes: &[syn::Attribute]) -> String {
    let shown = ["non_exhaustive", "deprecated"];
    let is_shown = |it: &&syn::Attribute| shown.iter().any(|name| it.path().is_ident(name));
    attributes
        .iter()
        .filter(is_shown)
        .fold(String::new(), |text, attribute| text + "#[" + &source(attribute.path()) + "] ")
}

/// Returns the conditions of an item: the name of a feature, or the condition as it is written.
pub(super) fn conditions(attributes: &[syn::Attribute]) -> Vec<String> {
    let lists = attributes.iter().filter(|it| it.path().is_ident("cfg"));
    let lists = lists.filter_map(|it| it.meta.require_list().ok());
    lists
        .map(|list| {
            let text = source(&list.tokens);
            let name = text.strip_prefix("feature = \"").and_then(|it| it.strip_suffix('"'));
            name.map_or_else(|| text.clone(), str::to_owned)
        })
        .collect()
}
