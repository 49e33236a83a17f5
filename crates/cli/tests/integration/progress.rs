//! The progress of long work on a terminal: by files and bytes, with a rate and the time left.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use super::control::ask;
use super::support::command::command;
use super::support::made::Made;
use super::support::pattern;
use super::support::site::Site;
use super::support::terminal::Terminal;

/// Removes the line on the terminal.
const CLEAR: &str = "\r\x1b[K";

/// The size of the large file, which takes longer to copy than the time between two lines.
const LARGE: usize = 48 << 20;

/// Runs a command whose stderr is a terminal, and that shows progress at once; returns the lines.
fn lines(words: &[&str]) -> Vec<String> {
    let (mut terminal, stderr) = Terminal::new();
    let mut command = command(words);
    command.env("USERBTRFS_PROGRESS_DELAY", "0").stdout(Stdio::null()).stderr(stderr);
    let status = command.status().unwrap();
    drop(command);
    assert!(status.success(), "{words:?}");
    // It ends when no process has the terminal open.
    let said = terminal.read_while(Duration::from_secs(30), |_| true);
    let (shown, last) = said.rsplit_once(CLEAR).unwrap_or_default();
    assert_eq!(last, "", "the line is removed: {said:?}");
    shown.split(CLEAR).filter(|line| !line.is_empty()).map(str::to_owned).collect()
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

#[test]
fn umount_shows_that_it_waits() {
    let Some(site) = Site::new() else { return };
    site.mount(&["-o", "commit=3600"]).good();
    fs::write(site.point().join("large"), pattern(LARGE)).unwrap();
    let lines = lines(&["umount", site.point().to_str().unwrap()]);
    assert!(lines.iter().any(|line| line.starts_with("unmounting 0:0")), "{lines:?}");
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
