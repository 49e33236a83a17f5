//! The verbs of `filesystem`, compared with those of btrfs-progs on a mount of Linux.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use userbtrfs_testkit::linux::{self, Linux, btrfs_check, clone_range};
use userbtrfs_testkit::skip_unless_linux;

use super::support::command::{Ran, run, verb};
use super::support::made::Made;
use super::support::site::Site;

/// Makes files that share data in all ways that Linux has, in the working directory.
const FILL: &str = r"
set -e
dd if=/dev/urandom of=a bs=1M count=3 status=none
cp --reflink=always a clone
mkdir -p dir/empty dir/deep
dd if=/dev/urandom of=dir/own bs=4k count=11 status=none
ln dir/own dir/own-again
cp --reflink=always dir/own dir/deep/own
printf inline >dir/inline
ln -s own dir/symlink
mkfifo dir/fifo
truncate -s 1M hole
fallocate -l 2M prealloc
: >beyond; fallocate -n -l 192k beyond
dd if=/dev/urandom of=split bs=64k count=4 status=none
sync -f .
dd if=/dev/urandom of=split bs=4k count=1 seek=20 conv=notrunc status=none
dd if=/dev/urandom of=itself bs=64k count=2 status=none
btrfs -q subvolume create kept
for n in $(seq 150); do dd if=/dev/urandom of=kept/$n bs=4k count=$((n % 5)) status=none; done
btrfs -q subvolume snapshot kept snapshot
dd if=/dev/urandom of=kept/new bs=4k count=3 status=none
dd if=/dev/urandom of=snapshot/8 bs=4k count=1 conv=notrunc status=none
btrfs -q subvolume create kept/inner
btrfs -q subvolume snapshot kept outer
mkdir compressed
chattr +c compressed
yes | head -c 1000000 >compressed/file
cp --reflink=always compressed/file compressed/clone
sync -f .
";

/// The options for units, with each of which the output is compared.
const UNITS: [&str; 9] = ["", "-b", "-h", "-H", "-k", "-m", "-g", "-t", "--si"];

/// Runs `btrfs` in a directory, and returns what it prints on stdout.
fn btrfs(dir: &Path, words: &str) -> String {
    let mut command = Command::new("btrfs");
    let output = linux::run(command.args(words.split_whitespace()).current_dir(dir)).unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn shell(dir: &Path, script: &str) {
    linux::run(Command::new("sh").args(["-c", script]).current_dir(dir)).unwrap();
}

/// Runs a verb of `filesystem` with its options on a path.
fn filesystem(words: &str, path: &Path, rest: &[&str]) -> Ran {
    verb(format!("filesystem {words}").trim(), path, rest)
}

/// Makes an image with files of Linux.
fn made_by_linux(linux: &Linux) -> Made {
    let made = Made::of_size("400M");
    let mount = linux.mount(&made.image(), "noatime").unwrap();
    shell(mount.path(), FILL);
    let itself = mount.path().join("itself");
    clone_range(&itself, &itself, [0, 65536, 131_072]).unwrap();
    drop(mount);
    btrfs_check(&made.image()).unwrap();
    made
}

/// Returns the text without the size of the global reserve, which depends on the version of Linux.
fn without_reserve(text: &str) -> String {
    let line = |line: &str| match line.find("lobal reserve:").or(line.find("lobalReserve,")) {
        Some(at) => format!("{}\n", &line[..at]),
        None => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

/// Returns the text without the global reserve, and without the result of statfs(2).
fn without_statfs(text: &str) -> String {
    let text = without_reserve(text);
    let lines = text.lines().filter(|line| !line.contains("Free (statfs"));
    lines.flat_map(|line| [line, "\n"]).collect()
}

#[test]
fn df_and_usage_of_an_image_print_what_btrfs_progs_print() {
    skip_unless_linux!();
    let linux = Linux::lock().unwrap();
    let made = made_by_linux(&linux);
    // In a read-only mount, statfs(2) of Linux counts no free space in block groups.
    let mount = linux.mount(&made.image(), "noatime").unwrap();
    let device = mount.devices()[0].path().to_owned();
    let same = |words: &str| {
        let ours = filesystem(words, &device, &[]).good();
        let theirs = btrfs(mount.path(), &format!("filesystem {words} ."));
        assert_eq!(without_reserve(&ours), without_reserve(&theirs), "{words}");
        assert!(ours.contains("eserve"), "{ours}");
    };
    for unit in UNITS {
        for words in ["df", "usage", "usage -T"] {
            same(&format!("{words} {unit}"));
        }
    }
    let ours = filesystem("df --format json", &device, &[]).good();
    let theirs = btrfs(mount.path(), "--format json filesystem df .");
    let [ours, theirs] = [ours, theirs].map(|text| {
        let mut document: Value = serde_json::from_str(&text).unwrap();
        let rows = document["filesystem-df"].as_array_mut().unwrap();
        assert_eq!(rows.pop().unwrap()["bg-type"], "GlobalReserve");
        document
    });
    assert_eq!(ours, theirs);
}

#[test]
fn usage_of_several_profiles_and_of_mixed_groups_is_that_of_btrfs_progs() {
    skip_unless_linux!();
    let linux = Linux::lock().unwrap();
    let made = Made::of_size("1G");
    let same = |fill: &str| {
        let mount = linux.mount(&made.image(), "noatime").unwrap();
        shell(mount.path(), fill);
        drop(mount);
        let mount = linux.mount(&made.image(), "noatime").unwrap();
        let device = mount.devices()[0].path().to_owned();
        for words in ["df -b", "usage -b", "usage", "usage -T"] {
            let ours = filesystem(words, &device, &[]).good();
            let theirs = btrfs(mount.path(), &format!("filesystem {words} ."));
            // Linux estimates what statfs(2) returns by the profile with the most copies.
            let [ours, theirs] = [ours, theirs].map(|text| without_statfs(&text));
            assert_eq!(ours, theirs, "{words}");
        }
        filesystem("usage", &device, &[]).good()
    };
    let shown = same(
        "dd if=/dev/zero of=x bs=1M count=250 status=none; sync -f .
         btrfs -q balance start -f -dconvert=dup,limit=1 . >/dev/null; sync -f .",
    );
    assert!(shown.contains("Data,DUP:") && shown.contains("yes\t(data)\n"), "{shown}");
    fs::write(made.image(), "").unwrap();
    shell(made.image().parent().unwrap(), "truncate -s 100M image; mkfs.btrfs -q --mixed image");
    let shown = same("dd if=/dev/zero of=x bs=1M count=20 status=none; sync -f .");
    assert!(shown.contains("Data+Metadata,single:"), "{shown}");
}

/// The arguments of `du` that are compared.
const DU: [&str; 7] = [
    ".",
    "--raw .",
    "--si -s .",
    "--raw -s a clone dir dir/deep dir/own itself prealloc beyond hole split kept outer",
    "dir/inline dir/fifo dir/symlink dir/empty",
    "--raw compressed compressed/file",
    "-s --raw kept snapshot snapshot/8 kept/new outer/inner compressed/file",
];

#[test]
fn du_of_an_image_and_of_a_mount_prints_what_btrfs_progs_print() {
    let Some(site) = Site::new() else { return };
    let linux = Linux::lock().unwrap();
    let made = made_by_linux(&linux);
    let mount = linux.mount(&made.image(), "ro,noatime").unwrap();
    let theirs = DU.map(|words| btrfs(mount.path(), &format!("filesystem du {words}")));
    drop(mount);
    let split = |words: &'static str| {
        let (options, paths) = words.split(' ').partition::<Vec<_>, _>(|it| it.starts_with('-'));
        (options.join(" "), paths)
    };
    for (words, theirs) in DU.iter().zip(&theirs) {
        let (options, paths) = split(words);
        let ours = filesystem(&format!("du {options}"), &made.image(), &paths).good();
        assert_eq!(&ours, theirs, "{words}");
    }
    assert!(theirs[0].lines().count() > 300 && theirs[6].contains("kept/new"), "{}", theirs[6]);
    fs::rename(made.image(), site.image()).unwrap();
    site.mount(&[]).good();
    for (words, theirs) in DU.iter().zip(&theirs) {
        let (options, paths) = split(words);
        let point = site.point();
        let words = format!("filesystem du {options}");
        let in_mount = |path: &&str| match *path {
            "." => point.clone(),
            path => point.join(path),
        };
        let words = words.split_whitespace().map(|word| OsStr::new(word).to_owned());
        let ran = run(words.chain(paths.iter().map(|it| in_mount(it).into_os_string())));
        let prefix = format!("{}/", point.display());
        let own = format!("  {}\n", point.display());
        let theirs = theirs.replace("  ./", "  ");
        assert_eq!(ran.good().replace(&prefix, "").replace(&own, "  .\n"), theirs);
    }
    // Data that only the kernel has is counted, too.
    fs::write(site.point().join("fresh"), [1; 12_288]).unwrap();
    let fresh = site.point().join("fresh");
    let shown = filesystem("du --raw -s", &fresh, &[]).good();
    let line = shown.lines().last().unwrap();
    let words: Vec<_> = line.split_whitespace().collect();
    assert_eq!(words, ["12288", "12288", "0", fresh.to_str().unwrap()]);
    let missing = site.point().join("missing");
    let ran = filesystem("du -s", &fresh, &[missing.to_str().unwrap()]);
    assert_eq!(ran.stdout.split(|byte| *byte == b'\n').count(), 3, "a head, a row");
    let said = ran.bad();
    assert_eq!(said, format!("userbtrfs: {}: No such file or directory\n", missing.display()));
    site.umount();
    site.judge();
}

#[test]
fn df_and_usage_of_a_mount_show_its_present_state() {
    let Some(site) = Site::new() else { return };
    site.mount(&[]).good();
    let point = site.point();
    fs::create_dir(point.join("dir")).unwrap();
    fs::write(point.join("file"), vec![7; 20 << 20]).unwrap();
    verb("filesystem sync", &point, &[]).good();
    let shown = |words: &str, path: &Path| without_reserve(&filesystem(words, path, &[]).good());
    let words = ["df", "df -b", "df -H", "usage", "usage -b", "usage -T -m"];
    let mounted = words.map(|words| shown(words, &point.join("dir")));
    assert!(mounted[1].contains("Data, single: total=") && mounted[1].contains("used=20971520\n"));
    let twice = filesystem("usage", &point, &[point.join("dir").to_str().unwrap()]).good();
    assert_eq!(without_reserve(&twice), format!("{0}\n{0}", mounted[3]));
    let text = filesystem("usage --format json", &point, &[]).good();
    let document: Value = serde_json::from_str(&text).unwrap();
    let usage = &document["filesystem-usage"];
    assert_eq!(usage["block_groups"][0]["used"], 20 << 20);
    assert_eq!(usage["device"], site.image().to_str().unwrap());
    site.umount();
    site.judge();
    for (words, mounted) in words.iter().zip(mounted) {
        // A mount has reservations, which statfs(2) counts as used.
        let of_image = without_statfs(&shown(words, &site.image()));
        assert_eq!(of_image, without_statfs(&mounted), "{words}");
    }
}

#[test]
fn label_is_set_on_an_image_and_on_a_mount() {
    let Some(site) = Site::new() else { return };
    let image = site.image();
    let point = site.point();
    assert_eq!(filesystem("label", &image, &[]).good(), "\n");
    assert_eq!(filesystem("label", &image, &["of the image"]).good(), "");
    site.mount(&[]).good();
    assert_eq!(filesystem("label", &point, &[]).good(), "of the image\n");
    fs::create_dir(point.join("dir")).unwrap();
    let longest = "x".repeat(255);
    for label in ["of a mount", "", longest.as_str()] {
        assert_eq!(filesystem("label", &point, &[label]).good(), "");
        assert_eq!(filesystem("label", &point, &[]).good(), format!("{label}\n"));
        // btrfs-progs print one byte less of the longest label.
        let shown = &label[..label.len().min(254)];
        assert_eq!(btrfs(&point, "filesystem label ."), format!("{shown}\n"));
    }
    let long = "y".repeat(256);
    for path in [&point, &image] {
        let said = filesystem("label", path, &[&long]).bad();
        assert_eq!(said, format!("userbtrfs: label {long} is too long (max 255)\n"));
        let said = filesystem("label", path, &["a\nb"]).bad();
        assert_eq!(said, "userbtrfs: label a\\nb has a newline\n");
    }
    site.umount();
    site.judge();
    assert_eq!(filesystem("label", &image, &[]).good(), format!("{longest}\n"));
    let shown = btrfs(Path::new("/"), &format!("filesystem label {}", image.display()));
    assert_eq!(shown.trim(), &longest[..254]);
    let text = filesystem("label --format json", &image, &[]).good();
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["filesystem-label"]["label"], longest.as_str());
    site.mount(&["-o", "ro"]).good();
    let said = filesystem("label", &point, &["refused"]).bad();
    assert_eq!(said, format!("userbtrfs: {}: read-only\n", point.display()));
    site.umount();
    site.judge();
}

#[test]
fn paths_without_btrfs_are_refused() {
    let made = Made::new();
    let dir = made.at("");
    let other = made.at("other");
    fs::write(&other, vec![0; 1 << 20]).unwrap();
    for words in ["df", "usage", "label"] {
        let said = filesystem(words, &dir, &[]).bad();
        assert!(said.ends_with(": not a mount of userbtrfs\n"), "{said}");
        let said = filesystem(words, &made.at("missing"), &[]).bad();
        assert!(said.contains("o such file or directory"), "{said}");
        let said = filesystem(words, &other, &[]).bad();
        assert!(said.ends_with(": not a btrfs filesystem (it is blank)\n"), "{said}");
    }
    let said = filesystem("du", &other, &["/"]).bad();
    assert!(said.ends_with(": not a btrfs filesystem (it is blank)\n"), "{said}");
    let said = filesystem("du", &made.image(), &[]).bad();
    let image = made.image();
    assert_eq!(said, format!("userbtrfs: {}: no path in the image is given\n", image.display()));
    let said = filesystem("du", &image, &["/none", "/"]);
    assert_eq!(said.stdout.split(|byte| *byte == b'\n').count(), 3, "{said:?}");
    assert!(said.bad().starts_with("userbtrfs: /none: no such file or directory"));
    let said = filesystem("usage", &image, &["/"]).bad();
    assert!(said.ends_with("only one image can be shown\n"), "{said}");
    let said = filesystem("df --offset 0", &dir, &[]).bad();
    assert!(said.ends_with("--offset applies to images only\n"), "{said}");
    for words in ["df -x", "du --bytes", "usage -T -T -z"] {
        assert_ne!(filesystem(words, &image, &[]).code, Some(0));
    }
}

#[test]
fn sizes_with_fractions_resize_an_image() {
    let made = Made::new();
    let image = made.image();
    let resize = |size: &str| {
        run(["filesystem", "resize", size, image.to_str().unwrap()]).good();
        fs::metadata(&image).unwrap().len()
    };
    assert_eq!(resize("1.25G"), 1280 << 20);
    assert_eq!(resize("+0.5G"), 1792 << 20);
    assert_eq!(resize("1:-0.25GiB"), 1536 << 20);
    made.judge();
    let said = run(["filesystem", "resize", "1.5", image.to_str().unwrap()]).bad();
    assert!(said.ends_with(": 1.5: a fraction needs a suffix\n"), "{said}");
}

#[test]
fn help_has_the_options_of_btrfs_progs() {
    for name in ["df", "usage", "du"] {
        let help = run(["filesystem", name, "--help"]).good();
        for option in ["-b, --raw", "-h, --human-readable", "-H", "--iec", "--si", "-k, --kbytes"] {
            assert!(help.contains(option), "{option}: {help}");
        }
    }
}
