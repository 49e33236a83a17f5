//! README.md of the golden images, generated from the recipes.

use std::fs;
use std::path::Path;

use super::recipe::{Leave, Recipe, Shows};
use super::recipes;

const HEAD: &str = "\
# Golden images

Made by `cargo run -p xtask -- golden` with btrfs-progs and the kernel of Linux. Of each image NAME
there is

- `NAME.img.zst`: the image, compressed (`cargo run -p xtask -- unpack NAME FILE`);
- `NAME.manifest`: what Linux shows of the top-level subvolume (id 5) and all below it, one JSON
  object a line; of an image with a log pending this is after replay, and `NAME.noreplay.manifest`
  is without it;
- `NAME.super`, `NAME.tree.zst`: the primary superblock and the trees as `btrfs inspect-internal`
  prints them.

An image without a manifest is one that Linux was not asked to show; userbtrfs refuses it too.
Contents, names and filesystem ids are fixed; times and other UUIDs are those of the making.

The folder `stories` has images of `docs/log-stories.md` with a log pending, as Linux left them in
the first way of each story that left one, but for those that fill it, and what Linux showed after
replay; made by `cargo run -p xtask -- golden --stories`.

| image | covers | mkfs.btrfs | mounts | left |
|---|---|---|---|---|
";

/// Writes README.md to `out`.
pub(crate) fn write(out: &Path) -> anyhow::Result<()> {
    let rows: String = recipes::all().map(row).collect();
    Ok(fs::write(out.join("README.md"), format!("{HEAD}{rows}"))?)
}

fn row(recipe: &Recipe) -> String {
    let mounts: Vec<_> = recipe.sessions.iter().map(|session| code(session.options)).collect();
    let mkfs = code(&recipe.mkfs.join(" "));
    let mounts = if mounts.is_empty() { "none".into() } else { mounts.join(", then ") };
    let name = recipe.name;
    let covers = recipe.covers;
    format!("| {name} | {covers} | {mkfs} | {mounts} | {} |\n", left(recipe))
}

fn code(text: &str) -> String {
    if text.is_empty() { "default".into() } else { format!("`{}`", text.escape_default()) }
}

fn left(recipe: &Recipe) -> &'static str {
    match (recipe.sessions.last().map(|session| session.leave), recipe.shows) {
        (_, Shows::Log) => "as a crash leaves it, log pending",
        (_, Shows::Nothing) => "refused",
        (Some(Leave::Crash), Shows::Content) => "as a crash leaves it",
        (_, Shows::Content) => "unmounted",
    }
}
