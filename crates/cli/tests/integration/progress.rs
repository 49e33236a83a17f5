//! The progress of long work on a terminal: by files and bytes, with a rate and the time left.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use userbtrfs_testkit::test_env::until;

use super::control::ask;
use super::support::assert_says;
use super::support::command::{command, verb};
use super::support::golden::Unpacked;
use super::support::made::Made;
use super::support::pattern;
use super::support::site::Site;
use super::support::terminal::Terminal;

/// Removes the line on the terminal.
const CLEAR: &str = "\r\x1b[K";

/// The size of the large file, which takes longer to copy than the time between two lines.
const LARGE: usize = 48 << 20;

/// The size of a file that a server keeps in memory.
const KEPT: usize = 8 << 20;

/// Runs a command whose stderr is a terminal, and that shows progress at once; returns all that it
/// printed there, if it succeeds.
fn said(words: &[&str]) -> Result<String, String> {
    said_with(words, Stdio::null(), Stdio::null())
}

/// Runs a command as [`said`] does, with this stdin and stdout.
fn said_with(words: &[&str], stdin: Stdio, stdout: Stdio) -> Result<String, String> {
    let (mut terminal, stderr) = Terminal::new();
    let mut command = command(words);
    command.env("USERBTRFS_PROGRESS_DELAY", "0").stdin(stdin).stdout(stdout).stderr(stderr);
    let status = command.status().unwrap();
    drop(command);
    // It ends when no process has the terminal open.
    let said = terminal.read_while(Duration::from_secs(30), |_| true);
    if status.success() { Ok(said) } else { Err(said) }
}

/// Runs a command as [`said`] does; returns the lines that it showed.
fn lines(words: &[&str]) -> Vec<String> {
    lines_of(&said(words).unwrap())
}

fn lines_of(said: &str) -> Vec<String> {
    let (shown, last) = said.rsplit_once(CLEAR).unwrap_or_default();
    assert_eq!(last, "", "the line is removed: {said:?}");
    shown.split(CLEAR).filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// Unmounts, as [`lines`] does, a mount that is not in use.
fn lines_of_umount(point: &Path) -> Vec<String> {
    let mut last = None;
    until("nobody to use it", || {
        let said = said(&["umount", point.to_str().unwrap()]);
        !last.insert(said).as_ref().is_err_and(|said| said.contains("busy"))
    });
    lines_of(&last.unwrap().unwrap())
}

fn fill(dir: &Path) {
    fs::create_dir(dir).unwrap();
    fs::write(dir.join("large"), pattern(LARGE)).unwrap();
    fs::write(dir.join("small"), "content").unwrap();
}

/// Asserts that a copy of the files that [`fill`] makes was shown.
fn assert_copied(lines: &[String]) {
    let copied: Vec<_> = lines.iter().filter(|line| line.starts_with("copying 0:")).collect();
    assert!(copied.len() >= 2, "{lines:?}");
    let last = copied.last().unwrap();
    let total = [", 2 files of 2, ", "MiB of 48.00MiB, ", "iB/s, about 0:00 left"];
    assert!(total.iter().all(|part| last.contains(part)), "{last}");
}

#[test]
fn put_get_and_cp_show_files_bytes_rate_and_time_left() {
    let made = Made::of_size("1G");
    let image = made.image();
    let image = image.to_str().unwrap();
    fill(&made.at("source"));
    let at = |name: &str| made.at(name).to_str().unwrap().to_owned();
    assert_copied(&lines(&["put", image, &at("source"), "/copy"]));
    assert_copied(&lines(&["get", image, "/copy", &at("back")]));
    assert_copied(&lines(&["cp", "-r", "--reflink=never", image, "/copy", "/again"]));
    assert_eq!(lines(&["-q", "put", image, &at("source"), "/quiet"]), [""; 0]);
    made.judge();
}

#[test]
fn mkfs_of_a_directory_shows_its_progress() {
    let folder = tempfile::tempdir().unwrap();
    fill(&folder.path().join("source"));
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    assert_copied(&lines(&["mkfs", "--rootdir", &at("source"), &at("image")]));
}

#[test]
fn rm_shows_how_many_files_are_removed_of_how_many() {
    let made = Made::of_size("1G");
    fs::create_dir(made.at("source")).unwrap();
    for number in 0..3000 {
        fs::write(made.at(&format!("source/{number}")), "").unwrap();
    }
    let source = made.at("source");
    made.does("put", &[source.to_str().unwrap(), "/copy"]);
    let lines = lines(&["rm", "-r", made.image().to_str().unwrap(), "/copy"]);
    let last = lines.iter().rfind(|line| line.starts_with("removing 0:")).unwrap();
    assert!(last.contains(", 3001 files"), "{lines:?}");
    made.judge();
}

/// Returns the last line that was shown of this work, without the time that it took.
fn last<'a>(lines: &'a [String], name: &str) -> &'a str {
    let mut parts = lines.iter().filter_map(|line| line.strip_prefix(name));
    let shown = parts.next_back().unwrap_or_else(|| panic!("{name:?} is not in {lines:?}"));
    shown.split_once(", ").map_or("", |(_, rest)| rest)
}

/// Returns the total of the last line of this work, which shows that all bytes are done.
fn total<'a>(lines: &'a [String], name: &str) -> &'a str {
    let shown = last(lines, name);
    let (done, total) = shown.split(", ").next().unwrap().split_once(" of ").unwrap();
    assert_eq!(done, total, "{lines:?}");
    total
}

#[test]
fn copies_of_one_file_show_bytes() {
    let made = Made::of_size("1G");
    let image = made.image();
    let image = image.to_str().unwrap();
    fill(&made.at("source"));
    let shown = |words: &[&str], stdin: Stdio, stdout: Stdio| {
        lines_of(&said_with(words, stdin, stdout).unwrap())
    };
    let large = fs::File::open(made.at("source/large")).unwrap();
    let put = shown(&["put", image, "-", "/x"], large.into(), Stdio::null());
    assert_says(&last(&put, "copying "), &["48.00MiB"]);
    let back = fs::File::create(made.at("back")).unwrap();
    let cat = shown(&["cat", image, "/x", "/x"], Stdio::null(), back.into());
    assert_says(&last(&cat, "copying "), &["96.00MiB"]);
    assert_eq!(fs::read(made.at("back")).unwrap(), pattern(LARGE).repeat(2));
    // A pipe may lead to a program that writes to the terminal.
    let quiet = lines(&["cat", image, "/x"]);
    assert_eq!(quiet.iter().filter(|line| line.starts_with("copying")).count(), 0, "{quiet:?}");
    made.does("cp --reflink=never", &["/x", "/y"]);
    let dedupe = lines(&["dedupe", image, "/x", "/y"]);
    assert_says(&last(&dedupe, "deduplicating "), &["96.00MiB"]);
    made.judge();
}

#[test]
fn opening_shows_how_much_of_the_log_is_replayed() {
    let unpacked = Unpacked::new("log-4k");
    let image = unpacked.path();
    let image = image.to_str().unwrap();
    let shown = lines(&["ls", image, "/"]);
    let size = total(&shown, "opening ");
    assert!(size.ends_with("KiB") && size != "0.00KiB", "{shown:?}");
    assert_eq!(total(&lines(&["log", "replay", image]), "opening "), size);
    assert_eq!(last(&lines(&["ls", image, "/"]), "opening "), "", "there is no log any more");
    assert!(verb("log replay", &unpacked.path(), &[]).good().contains("no log is pending"));
}

#[test]
fn umount_shows_how_much_is_written_of_what_is_in_memory() {
    let Some(site) = Site::new() else { return };
    for options in [&["-o", "commit=3600"][..], &["-o", "commit=3600,loop"]] {
        site.mount(options).good();
        // The kernel hands it to the server when the file is closed; the server keeps it.
        fs::write(site.point().join("file"), pattern(KEPT)).unwrap();
        let lines = lines_of_umount(&site.point());
        let size = total(&lines, "unmounting ");
        let mib: f64 = size.strip_suffix("MiB").unwrap().parse().unwrap();
        assert!((8.0..12.0).contains(&mib), "{lines:?}");
    }
    site.judge();
}

/// Asserts that the lines of a resize show all that was moved: much of the large file, the first
/// part of which lies in an earlier block group.
fn assert_moved(lines: &[String]) {
    let size = total(lines, "resizing ");
    let mib: f64 = size.strip_suffix("MiB").unwrap().parse().unwrap();
    assert!((16.0..60.0).contains(&mib), "{lines:?}");
}

#[test]
fn resize_shows_how_much_is_moved_of_what_lies_beyond_the_new_end() {
    let Some(site) = Site::new() else { return };
    fs::write(site.made.at("source"), pattern(LARGE)).unwrap();
    let format = || {
        site.made.format("1G");
        site.made.does("fallocate", &["-l", "600M", "/gap"]);
        site.made.does("put", &[site.made.at("source").to_str().unwrap(), "/file"]);
        site.made.does("rm", &["/gap"]);
    };
    let resize =
        |size: &str, at: &Path| lines(&["filesystem", "resize", size, at.to_str().unwrap()]);
    format();
    assert_moved(&resize("500M", &site.image()));
    assert_eq!(last(&resize("1G", &site.image()), "resizing "), "", "nothing is moved");
    format();
    site.mount(&[]).good();
    assert_moved(&resize("500M", &site.point()));
    ask("umount", &site.point(), &[]).good();
    site.judge();
}

#[test]
fn progress_is_not_shown_without_a_terminal() {
    let Some(site) = Site::new() else { return };
    fill(&site.made.at("source"));
    let source = site.made.at("source");
    let mut put = command(["put", site.image().to_str().unwrap(), source.to_str().unwrap(), "/a"]);
    let output = put.env("USERBTRFS_PROGRESS_DELAY", "0").output().unwrap();
    assert_eq!((output.status.code(), &output.stderr[..]), (Some(0), &b""[..]));
    site.mount(&[]).good();
    ask("umount", &site.point(), &[]).good();
    site.judge();
}
