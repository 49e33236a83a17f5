//! The recipes, in one file for each topic.

mod everyday;
mod files;
mod names;
mod pending;
mod refused;
mod sharing;
mod subvolumes;

use super::recipe::Recipe;

/// All recipes, in the order of README.md.
pub(crate) fn all() -> impl Iterator<Item = &'static Recipe> {
    let files = [
        everyday::RECIPES,
        files::RECIPES,
        names::RECIPES,
        subvolumes::RECIPES,
        sharing::RECIPES,
        pending::RECIPES,
        refused::RECIPES,
    ];
    files.into_iter().flatten()
}
