//! The manual pages of the verbs, made from the definition of the command line: one for the command
//! and one for each verb. The verbs below a verb are parts of its page.

use clap::{Arg, Command};

use super::page::{NAME, Page, bold, italic, plain};
use crate::cli::args::GLOBAL;

/// Returns the file names and the texts of all pages.
pub(super) fn pages(mut command: Command) -> Vec<(String, String)> {
    command.build();
    let mut pages = vec![(format!("{NAME}.1"), front(&command))];
    for verb in verbs(&command) {
        pages.push((format!("{}.1", name(verb)), verb_page(verb)));
    }
    pages
}

/// Returns the verbs that have a page.
fn verbs(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help")
}

/// Returns the name of the page of a verb.
fn name(verb: &Command) -> String {
    format!("{NAME}-{}", verb.get_name())
}

/// Returns the page of the command.
fn front(command: &Command) -> String {
    let mut page = Page::new(&[NAME], "1", "btrfs in user space");
    synopsis(&mut page, command);
    page.section("DESCRIPTION");
    page.paragraph(&about(command));
    page.section("VERBS");
    for verb in verbs(command) {
        page.tagged(&format!("{}(1)", bold(&name(verb))), &about(verb));
    }
    options(&mut page, command, true);
    exit_status(&mut page);
    see_also(&mut page, &["userbtrfs(5)", "userbtrfs(7)", "mount.fuse.userbtrfs(8)"]);
    page.into_text()
}

/// Returns the page of a verb.
fn verb_page(verb: &Command) -> String {
    let purpose = verb.get_about().map(ToString::to_string).unwrap_or_default();
    let mut page = Page::new(&[&name(verb)], "1", &purpose.replace('`', ""));
    synopsis(&mut page, verb);
    page.section("DESCRIPTION");
    page.paragraph(&about(verb));
    if verbs(verb).next().is_some() {
        page.section("VERBS");
        verbs(verb).for_each(|below| part(&mut page, verb.get_name(), below));
    }
    options(&mut page, verb, true);
    after(&mut page, verb);
    exit_status(&mut page);
    let mut others = vec!["userbtrfs(1)", "userbtrfs(7)"];
    if ["mount", "umount"].contains(&verb.get_name()) {
        others.extend(["userbtrfs(5)", "mount.fuse.userbtrfs(8)"]);
    }
    see_also(&mut page, &others);
    page.into_text()
}

/// Adds a verb below another one to its page.
fn part(page: &mut Page, above: &str, verb: &Command) {
    let words = format!("{above} {}", verb.get_name());
    page.subsection(&plain(&words));
    page.paragraph(&usage(verb));
    page.paragraph(&about(verb));
    options(page, verb, false);
    verbs(verb).for_each(|below| part(page, &words, below));
}

fn synopsis(page: &mut Page, command: &Command) {
    page.section("SYNOPSIS");
    page.paragraph(&usage(command));
}

/// Returns the usage of a verb: literal words in bold face.
fn usage(command: &Command) -> String {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage).to_owned();
    let is_literal = |word: &str| word.starts_with(|first: char| first.is_ascii_lowercase());
    let word = |word| if is_literal(word) { bold(word) } else { plain(word) };
    usage.split_whitespace().map(word).collect::<Vec<_>>().join(" ")
}

fn about(command: &Command) -> String {
    let about = command.get_long_about().or_else(|| command.get_about());
    plain(&about.map(ToString::to_string).unwrap_or_default())
}

/// Adds the arguments and options of a verb; each heading is a section of the page, or in a part of
/// it not a heading at all. Options of all verbs are left out of a part.
fn options(page: &mut Page, command: &Command, as_sections: bool) {
    let shown: Vec<&Arg> = command.get_arguments().filter(|arg| !arg.is_hide_set()).collect();
    let heading = |arg: &Arg| match arg.get_help_heading() {
        Some(heading) => heading.to_owned(),
        None if arg.is_positional() => "Arguments".to_owned(),
        None => "Options".to_owned(),
    };
    let mut headings = vec!["Arguments".to_owned(), "Options".to_owned()];
    for arg in &shown {
        if !headings.contains(&heading(arg)) {
            headings.push(heading(arg));
        }
    }
    for title in headings {
        let below: Vec<_> = shown.iter().filter(|arg| heading(arg) == title).collect();
        if below.is_empty() || (!as_sections && title == GLOBAL) {
            continue;
        }
        if as_sections {
            page.section(&plain(&title.to_uppercase()));
        }
        for arg in below {
            option(page, arg);
        }
    }
}

/// Adds an argument or option.
fn option(page: &mut Page, arg: &Arg) {
    let help = arg.get_long_help().or_else(|| arg.get_help());
    let mut text = plain(&help.map(ToString::to_string).unwrap_or_default());
    let defaults = arg.get_default_values();
    if arg.get_action().takes_values() && !defaults.is_empty() && !arg.is_hide_default_value_set() {
        let defaults: Vec<_> = defaults.iter().map(|value| value.to_string_lossy()).collect();
        text.push_str(&plain(&format!(" [default: {}]", defaults.join(" "))));
    }
    page.tagged(&tag(arg), &text);
    if !arg.get_action().takes_values() || arg.is_hide_possible_values_set() {
        return;
    }
    for value in arg.get_possible_values().iter().filter(|value| !value.is_hide_set()) {
        let help = value.get_help().map(|help| format!(": {}", plain(&help.to_string())));
        page.continued(&format!("{}{}", bold(value.get_name()), help.unwrap_or_default()));
    }
}

/// Returns the name of an argument as the usage shows it.
fn tag(arg: &Arg) -> String {
    let id = || vec![arg.get_id().as_str().to_uppercase()];
    let names = arg.get_value_names();
    let names = names.map_or_else(id, |names| names.iter().map(ToString::to_string).collect());
    let value = italic(&names.join(" "));
    if arg.is_positional() {
        let is_list = arg.get_num_args().is_some_and(|count| count.max_values() > 1);
        return if is_list { format!("{value}...") } else { value };
    }
    let short = arg.get_short_and_visible_aliases().unwrap_or_default().into_iter();
    let short = short.map(|letter| bold(&format!("-{letter}")));
    let long = arg.get_visible_aliases().unwrap_or_default().into_iter().chain(arg.get_long());
    let long = long.map(|name| bold(&format!("--{name}")));
    let names = short.chain(long).collect::<Vec<_>>().join(", ");
    if arg.get_action().takes_values() { format!("{names} {value}") } else { names }
}

/// Adds the text that the help of a verb has at its end, as it is.
fn after(page: &mut Page, verb: &Command) {
    let Some(text) = verb.get_after_long_help().or_else(|| verb.get_after_help()) else { return };
    page.section("NOTES");
    page.verbatim(text.to_string().lines());
}

fn exit_status(page: &mut Page) {
    page.section("EXIT STATUS");
    page.paragraph("0 if everything succeeded, 1 otherwise.");
}

fn see_also(page: &mut Page, pages: &[&str]) {
    page.section("SEE ALSO");
    let bold = |page: &&str| {
        page.split_once('(')
            .map_or_else(|| plain(page), |(name, rest)| format!("{}({rest}", bold(name)))
    };
    page.paragraph(&pages.iter().map(bold).collect::<Vec<_>>().join(", "));
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Args;

    #[test]
    fn each_verb_and_each_of_its_options_is_in_a_page() {
        let mut command = Args::command();
        command.build();
        let pages = pages(Args::command());
        for verb in verbs(&command) {
            let file = format!("userbtrfs-{}.1", verb.get_name());
            let (_, text) = pages.iter().find(|(name, _)| *name == file).expect("a page");
            for below in std::iter::once(verb).chain(verbs(verb)) {
                for arg in below.get_arguments().filter(|arg| !arg.is_hide_set()) {
                    assert!(text.contains(&tag(arg)), "{file}: {}", arg.get_id());
                }
            }
        }
        assert_eq!(pages.len(), verbs(&command).count() + 1);
    }
}
