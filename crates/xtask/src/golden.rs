//! Golden images: small images made by Linux's own tools, with their contents as Linux shows them.
//!
//! For each recipe NAME the directory gets
//! 1. `NAME.img.zst`: the image, compressed; free space is discarded, so it reads as zeros;
//! 2. `NAME.manifest`: the contents of the top-level subvolume, mounted read-only by Linux; with a
//!    log pending this is after replay, and `NAME.noreplay.manifest` is without replay;
//! 3. `NAME.super` and `NAME.tree.zst`: its primary superblock and its trees as btrfs-progs prints
//!    them;
//! 4. and one `README.md` for all, which lists what each image covers.
//!
//! With `--stories` it makes the missing images of docs/log-stories.md instead, by the stories of
//! testkit.
//!
//! Contents, names and filesystem ids are fixed; times and the other UUIDs are not.

mod content;
mod image;
mod progs;
mod readme;
mod recipe;
mod recipes;
mod tree;

use std::path::PathBuf;

use anyhow::{Context, ensure};
use userbtrfs_testkit::{linux, stories};

use recipe::Recipe;

/// The options of `golden`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The recipes to follow (default: all).
    names: Vec<String>,
    /// The folder for the results.
    #[arg(long, default_value_os_t = userbtrfs_testkit::golden::folder())]
    out: PathBuf,
    /// Also write the uncompressed images, as NAME.img.
    #[arg(long)]
    raw: bool,
    /// Only write README.md.
    #[arg(long)]
    readme: bool,
    /// Only make the missing images of docs/log-stories.md.
    #[arg(long)]
    stories: bool,
}

/// Follows the recipes one by one and writes README.md.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    std::fs::create_dir_all(&args.out)?;
    if args.stories {
        linux::available().map_err(anyhow::Error::msg)?;
        return stories::golden::make(&args.out.join("stories"));
    }
    if !args.readme {
        linux::available().map_err(anyhow::Error::msg)?;
        for recipe in chosen(&args.names)? {
            println!("{}", recipe.name);
            image::make(recipe, &args.out, args.raw)
                .with_context(|| format!("making {}", recipe.name))?;
        }
    }
    readme::write(&args.out)
}

fn chosen(names: &[String]) -> anyhow::Result<Vec<&'static Recipe>> {
    for name in names {
        ensure!(recipes::all().any(|recipe| recipe.name == name), "no recipe {name}");
    }
    let wanted = |recipe: &&Recipe| names.is_empty() || names.iter().any(|n| n == recipe.name);
    Ok(recipes::all().filter(wanted).collect())
}
