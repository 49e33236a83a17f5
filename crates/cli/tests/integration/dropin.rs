//! The command called by the name `btrfs`, compared with btrfs-progs on a mount by the kernel.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use userbtrfs_testkit::linux::{Access, Linux, LoopDevice};

use super::support::command::Ran;
use super::support::made::Made;
use super::support::site::Site;

/// Lines of scripts for `sh`. `M` is the mount point; the working directory is that, too.
const SCRIPT: [&str; 81] = [
    "btrfs subvolume create $M/data",
    "btrfs subvolume create snapshots",
    "btrfs sub create $M/data/inner/",
    "btrfs -q subvolume create $M/quiet && ls $M",
    "echo one > $M/data/file && mkdir $M/plain && echo two > $M/plain/file",
    // Rotation of snapshots.
    "for day in 1 2 3; do btrfs subvolume snapshot -r $M/data $M/snapshots/day$day; done",
    "btrfs sub snap data snapshots",
    "btrfs subvolume snapshot ./data $M/plain/",
    "btrfs subvolume list -o $M/snapshots | awk '{print $NF}' | sort | head -n 2",
    "btrfs subvolume list -o snapshots | awk '{print $NF}' | head -n 1 | while read old; do \
     btrfs subvolume delete $M/$old; done",
    "btrfs filesystem sync $M",
    "btrfs fi sync $M/plain/file",
    "btrfs subvolume list $M",
    "btrfs subvolume list -t $M",
    "btrfs subvolume list -p -c $M/data",
    "btrfs subvolume list -o $M/data",
    "btrfs sub list -uqR .",
    "btrfs sub l -r --sort=-rootid $M",
    "btrfs subvolume list -s $M/plain | wc -l",
    "btrfs subvolume list -a data",
    "btrfs subvolume list -G +1 -C +1 --sort path $M",
    "btrfs subvolume show $M/snapshots/day2",
    "btrfs sub show data",
    "btrfs subvolume show $M",
    "btrfs subvolume show -r $(btrfs subvolume list $M | awk '/ path data$/ {print $2}') $M/plain",
    "btrfs subvolume show -u $(btrfs sub show data | awk '/^\\tUUID/ {print $2}') $M | head -n 1",
    "btrfs property set $M/data/inner ro true",
    "btrfs property get $M/data/inner ro",
    "touch $M/data/inner/x; echo $?",
    "btrfs property set -ts $M/data/inner ro false",
    "btrfs property get -t subvol $M/data/inner",
    "btrfs property get $M/data",
    "btrfs property get $M",
    "btrfs property list $M; btrfs property list data; btrfs property list plain/file",
    "btrfs property list -ts data; btrfs prop list -t inode data",
    "btrfs property get $M/plain; echo $?",
    "btrfs property get $M/plain ro; echo $?",
    "btrfs property set $M/plain/file compression zstd",
    "btrfs property get $M/plain/file; btrfs prop get -ti plain/file compression",
    "btrfs property set $M label some-name; btrfs property get -tf $M label; echo $?",
    "btrfs property set $M label ''; echo $?; btrfs property get $M label",
    "btrfs property get data label; echo $?",
    "btrfs property get data nonsense; echo $?",
    "btrfs property set data ro maybe; echo $?",
    "btrfs subvolume get-default $M",
    "btrfs subvolume set-default $M/data && btrfs sub get-default $M | awk '{print $NF}'",
    "btrfs subvolume set-default 5 $M && btrfs subvolume get-default plain",
    "btrfs subvolume set-default 0 $M && btrfs subvolume get-default plain",
    "btrfs subvolume set-default 5 plain/file; echo $?; btrfs sub show -r 0 $M | head -n 1",
    "echo x > f; chattr +c f; chattr +C f; echo $?; chattr -c f; chattr +C f; echo $?; lsattr f",
    "btrfs subvolume snapshot data $M > /dev/null 2>&1; echo $?; ls data",
    "btrfs sub create a-1; btrfs sub create a-2; btrfs subvolume delete -c a-1 a-2",
    "btrfs subvolume delete -c $M/snapshots/day2",
    "btrfs sub delete plain/file 2>&1; btrfs fi df plain/file 2>&1; btrfs fi us plain/file 2>&1",
    "btrfs sub del --commit-each snapshots/data ./snapshots/day3/",
    // btrfs-progs 6.2 prints its line also about a subvolume that it could not delete.
    "btrfs subvolume delete data > /dev/null; echo $?",
    "btrfs -q subvolume delete data/inner quiet; echo $?",
    "btrfs subvolume create $M/data; echo $?",
    "btrfs subvolume create $M/plain/file; echo $?",
    "btrfs subvolume list plain/file 2>/dev/null; echo $?",
    "btrfs subvolume delete $M/plain; echo $?",
    "btrfs subvolume delete -i $(btrfs sub list $M | awk '/ path plain.data$/ {print $2}') $M",
    "id=$(btrfs sub list $M | awk '/ path data$/ {print $2}'); btrfs sub delete data | wc -l; \
     btrfs subvolume sync $M $id | sed \"s/ $id / ID /\"",
    "btrfs sub create \"$(printf 'a\\tb\\\\c')\"; btrfs sub list $M; btrfs sub show a*b*; \
     btrfs fi du a*",
    "btrfs sub snapshot a*b* 'b c'; btrfs sub show a*b* | tail -n 1; btrfs sub delete a*b* 'b c'",
    "head -c 300000 /dev/zero | tr '\\0' x > large; btrfs filesystem sync .; \
     btrfs filesystem du -s large; btrfs fi du -s --raw $M/large plain/file",
    // Linux allocates other amounts, and the path of a device is that of the image here.
    "btrfs filesystem usage -b $M | \
     sed -E 's,/[^[:space:]]+,DEV,; s/[0-9][0-9.]*/N/g; s/[[:space:]]+/ /g'",
    "btrfs filesystem df $M | sed -E 's/[0-9.]+([KMGT]i)?B/N/g'",
    "btrfs fi df -b plain | sed -E 's/[0-9]+/N/g'",
    "btrfs filesystem label $M; btrfs filesystem label $M 'a label'; btrfs filesystem label $M",
    "btrfs fi label $M ''; echo $?; btrfs fi label $M",
    "btrfs filesystem resize max $M | sed 's/(.*)/(DEV)/'",
    "btrfs filesystem resize -32m $M | sed 's/(.*)/(DEV)/'; stat -f -c '%b %S' $M",
    "btrfs filesystem usage -b $M | awk '/Device size/ {print $3}'",
    "btrfs fi resize 1:+16m $M | sed 's/(.*)/(DEV)/'; stat -f -c '%b %S' .",
    "btrfs fi resize 1:max . | sed 's/(.*)/(DEV)/'; stat -f -c '%b %S' .",
    "btrfs filesystem resize 1T $M > /dev/null; echo $?; stat -f -c '%b %S' $M",
    "btrfs filesystem defragment large; echo $?; cksum large",
    "btrfs filesystem defragment -v -czlib $M/large $M/plain/file; echo $?; cksum large plain/file",
    "btrfs fi defrag -r -t 1m plain; echo $?; btrfs filesystem defragment missing; echo $?",
    "btrfs subvolume list $M | wc -l; ls -R",
];

/// A folder with a link of the name `btrfs` to the command.
struct Links(Made);

impl Links {
    fn new() -> Self {
        let links = Self(Made::new());
        fs::create_dir(links.folder()).unwrap();
        symlink(env!("CARGO_BIN_EXE_userbtrfs"), links.folder().join("btrfs")).unwrap();
        links
    }

    fn folder(&self) -> PathBuf {
        self.0.at("bin")
    }

    /// Returns a PATH that starts with the link.
    fn path(&self) -> String {
        format!("{}:{}", self.folder().display(), std::env::var("PATH").unwrap())
    }

    /// Runs the link with words in which `$M` stands for a mount point; returns the exit status and
    /// all output, with `$M` again.
    fn run_at(&self, words: &str, point: &Path) -> (Option<i32>, String) {
        let point = point.to_str().unwrap();
        let ran = self.run(&words.replace("$M", point), &self.path());
        let said = String::from_utf8(ran.stdout).unwrap() + &ran.stderr;
        (ran.code, said.replace(point, "$M"))
    }

    /// Runs the link with words, and programs found in `path`.
    fn run(&self, words: &str, path: &str) -> Ran {
        let mut command = Command::new(self.folder().join("btrfs"));
        command.args(words.split(' ')).env("PATH", path).stdin(Stdio::null());
        command.output().unwrap().into()
    }
}

/// Runs a line in a mount; returns stdout without what differs by nature, and whether it failed.
fn run_line(line: &str, point: &Path, path: &str) -> (String, bool) {
    let mut shell = Command::new("sh");
    shell.args(["-c", line]).current_dir(point).stdin(Stdio::null());
    let output = shell.env("M", point).env("PATH", path).env("TZ", "UTC").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let text = text.replace(point.to_str().unwrap(), "POINT");
    let lines = text.lines().map(|line| without_times(line) + "\n");
    (lines.collect(), output.status.success())
}

/// Replaces UUIDs, times and generations.
fn without_times(line: &str) -> String {
    for name in ["Creation time:", "Send time:", "Generation:", "Gen at creation:"] {
        if line.trim_start().starts_with(name) {
            return name.to_owned();
        }
    }
    // A table separates its cells by tabs.
    let is_row = |line: &str| line.split('\t').filter(|cell| cell.parse::<u64>().is_ok()).count();
    if is_row(line) >= 3 {
        let mut cells: Vec<_> = line.split('\t').collect();
        cells[1] = "GEN";
        return cells.join("\t");
    }
    let mut previous = String::new();
    let words = line.split(' ').map(|word| {
        let is_uuid = word.trim().len() == 36 && word.matches('-').count() == 4;
        let is_generation = previous == "gen" || previous == "cgen";
        word.clone_into(&mut previous);
        match (is_uuid, is_generation) {
            (true, _) => word.replace(word.trim(), "UUID"),
            (false, true) => "GEN".to_owned(),
            (false, false) => word.to_owned(),
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn script_lines_print_in_a_mount_what_btrfs_progs_prints() {
    let Some(site) = Site::new() else { return };
    let links = Links::new();
    let theirs = Made::new();
    // Linux shrinks no filesystem to less than 256 MiB.
    for made in [&site.made, &theirs] {
        made.verb("filesystem resize 512M", &[]).good();
    }
    site.mount(&[]).good();
    let linux = Linux::lock().unwrap();
    let mount = linux.mount(&theirs.image(), "noatime").unwrap();
    let path = std::env::var("PATH").unwrap();
    let mut different = Vec::new();
    for line in SCRIPT {
        let expected = run_line(line, mount.path(), &path);
        let ours = run_line(line, &site.point(), &links.path());
        if ours != expected {
            different.push((line, ours, expected));
        }
    }
    drop(mount);
    site.umount();
    assert!(different.is_empty(), "line, ours and theirs: {different:#?}");
    site.judge();
}

#[test]
fn errors_start_as_those_of_btrfs_progs() {
    let Some(site) = Site::new() else { return };
    site.mount(&[]).good();
    let links = Links::new();
    let point = site.point();
    let run = |words: &str| {
        let (code, said) = links.run_at(words, &point);
        assert_eq!(code, Some(1), "{words}: {said}");
        said
    };
    fs::write(point.join("file"), "").unwrap();
    assert_eq!(run("sub create $M/file"), "ERROR: target path already exists: $M/file\n");
    assert_eq!(run("sub list $M/file"), "ERROR: not a directory: $M/file\n");
    assert_eq!(run("property get $M bogus"), "ERROR: unknown property: bogus\n");
    let said = run("--dry-run sub create $M/new");
    assert_eq!(said, "ERROR: --dry-run is not supported\n");
    let said = run("sub list --nonsense $M");
    assert!(said.starts_with("ERROR: unexpected argument '--nonsense'"), "{said}");
    let said = run("sub delete $M/missing");
    assert!(said.starts_with("ERROR: $M/missing: "), "{said}");
    assert!(!point.join("new").exists());
    let linux = Linux::lock().unwrap();
    let over = LoopDevice::attach(&linux, &site.image(), Access::ReadOnly).unwrap();
    for command in ["check", "rescue zero-log", "resc clear-space-cache v1", "restore -l"] {
        for path in [&*site.image(), over.path()] {
            let words = format!("{command} {}", path.display());
            let ran = links.run(&words, &links.path());
            assert_eq!(ran.code, Some(1), "{words}: {ran:?}");
            let why = " is currently mounted by userbtrfs\n";
            assert!(ran.stderr.ends_with(why), "{words}: {ran:?}");
        }
    }
    drop((over, linux));
    site.umount();
}

#[test]
fn commands_that_we_do_not_have_are_refused_by_name_on_our_mounts() {
    let Some(site) = Site::new() else { return };
    site.mount(&[]).good();
    let links = Links::new();
    let point = site.point();
    for (words, name) in [
        ("scrub start -B", "scrub start"),
        ("balance start --full-balance", "balance start"),
        ("device usage", "device usage"),
        ("fi show", "filesystem show"),
        ("quota enable", "quota enable"),
        ("inspect-internal rootid", "inspect-internal rootid"),
        ("send", "send"),
        ("receive -f stream", "receive"),
    ] {
        let ran = links.run(&format!("{words} {}", point.display()), &links.path());
        let dir = point.display();
        let why = format!("ERROR: {name} is not supported on a mount of userbtrfs: {dir}\n");
        assert_eq!((ran.code, ran.stderr), (Some(1), why), "{words}");
    }
    // A directory there may be the destination of files that btrfs-progs restores.
    let restored = links.run(&format!("restore -l {}", point.display()), &links.path());
    assert!(!restored.stderr.contains("userbtrfs"), "{restored:?}");
    site.umount();
}

#[test]
fn resize_of_a_mount_keeps_its_image_file_and_fails_as_btrfs_progs() {
    let Some(site) = Site::new() else { return };
    site.made.verb("filesystem resize 512M", &[]).good();
    site.mount(&[]).good();
    let links = Links::new();
    let point = site.point();
    let run = |words: &str| links.run_at(&format!("filesystem resize {words}"), &point).1;
    let length = || fs::metadata(site.image()).unwrap().len();
    let whole = length();
    let said = run("300M $M");
    assert!(said.ends_with(" to 300.00MiB\n"), "{said}");
    assert_eq!(length(), whole);
    assert!(run("max $M").ends_with(" from 300.00MiB to max\n"));
    assert!(run("--enqueue 1:max $M").ends_with(" to max\n"));
    fs::write(point.join("file"), "").unwrap();
    for (words, why) in [
        ("1T $M", "unable to resize '$M': no enough free space"),
        ("100M $M", "unable to resize '$M': Invalid argument"),
        ("2:max $M", "unable to resize '$M': No such device"),
        ("300M $M/file", "not a directory: $M/file"),
        ("cancel $M", "resize cancel is not supported"),
    ] {
        assert_eq!(run(words), format!("ERROR: {why}\n"), "{words}");
    }
    assert_eq!(length(), whole);
    site.umount();
    site.judge();
}

#[test]
fn images_take_the_same_commands() {
    let links = Links::new();
    let made = &links.0;
    let image = made.image();
    let run = |words: &str| {
        links.run(&words.replace("$I", image.to_str().unwrap()), &links.path()).good()
    };
    assert_eq!(run("sub create $I /a"), "Create subvolume '/a'\n");
    let said = run("sub snap -r $I /a /b");
    assert_eq!(said, "Create a readonly snapshot of '/a' in '/b'\n");
    assert_eq!(run("property get $I /b ro"), "ro=true\n");
    assert_eq!(run("property set $I label some-name"), "");
    assert_eq!(run("property get -t d $I label"), "label=some-name\n");
    assert_eq!(run("property get -t f $I label"), "label=some-name\n");
    assert_eq!(run("property get $I"), "label=some-name\n");
    assert_eq!(run("property set $I /a compression zstd"), "");
    assert_eq!(run("property get $I /a"), "ro=false\ncompression=zstd\n");
    assert!(run("property list $I /a").starts_with("ro  "));
    assert_eq!(run("property list -t d $I").split(' ').next(), Some("label"));
    assert_eq!(run("sub set-default 256 $I"), "");
    assert!(run("sub get-default $I").ends_with(" path a\n"));
    assert_eq!(run("sub set-default $I 5"), "");
    assert_eq!(run("sub show -r 256 $I"), run("sub show $I /a"));
    let json = run("--format json sub list $I");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["subvolume-list"][1]["path"], "b");
    assert_eq!(run("sub delete $I /a /b").lines().count(), 2);
    assert_eq!(run("sub list $I"), "");
    made.judge();
}

#[test]
fn other_command_lines_go_to_btrfs_progs() {
    let Some(site) = Site::new() else { return };
    let links = Links::new();
    let path = std::env::var("PATH").unwrap();
    let linux = Linux::lock().unwrap();
    let mount = linux.mount(&links.0.image(), "noatime").unwrap();
    let theirs = |words: &str| -> Ran {
        Command::new("btrfs").args(words.split(' ')).env("PATH", &path).output().unwrap().into()
    };
    let point = mount.path().to_str().unwrap();
    let mut copy = Command::new("cp");
    copy.arg("--sparse=always").arg(site.image()).arg(mount.path().join("image"));
    assert!(copy.status().unwrap().success());
    for words in [
        "--version",
        "--help",
        "sub s x",
        "no-such-command",
        "filesystem",
        "subvolume list",
        "subvolume list --help",
        "sub list $K",
        "sub get-default $K",
        "property get $K",
        "property list $K/image",
        "scrub status $K",
        "fi show $K",
        "sub show $K/missing",
    ] {
        let words = words.replace("$K", point);
        let ours = links.run(&words, &links.path());
        let theirs = theirs(&words);
        let is_same = (ours.code, &ours.stdout, &ours.stderr)
            == (theirs.code, &theirs.stdout, &theirs.stderr);
        assert!(is_same, "{words}: {ours:?} {theirs:?}");
    }
    // A part of a command line is ours, the other theirs.
    site.mount(&[]).good();
    let both = format!("sub delete {point}/s {}/s {point}/t", site.point().display());
    for at in [mount.path().join("s"), mount.path().join("t"), site.point().join("s")] {
        let create = format!("sub create {}", at.display());
        links.run(&create, &links.path()).good();
        assert!(at.is_dir());
    }
    let said = links.run(&both, &links.path()).good();
    assert_eq!(said.matches("Delete subvolume (no-commit): ").count(), 3, "{said}");
    assert!(!mount.path().join("s").exists() && !mount.path().join("t").exists());
    assert!(!site.point().join("s").exists());
    site.umount();
}

#[test]
fn command_without_btrfs_progs_fails_and_does_not_call_itself() {
    let links = Links::new();
    let bin = links.folder();
    let only = bin.to_str().unwrap();
    // The usual folders are hidden by an empty one, as in a container without btrfs-progs.
    let hides = "for dir in /usr/local/sbin /usr/local/bin /usr/sbin /usr/bin /sbin /bin; do \
                 [ -x $dir/btrfs ] && mount --bind /dev/null $dir/btrfs; done";
    let run = |before: &str, words: &str| -> Option<Ran> {
        let script = format!("({hides}); {before}; PATH={only} exec {only}/btrfs {words}");
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "--propagation", "slave", "sh", "-c", &script]);
        let ran: Ran = unshare.stdin(Stdio::null()).output().ok()?.into();
        (!ran.stderr.contains("unshare")).then_some(ran)
    };
    let Some(ran) = run("true", "--version") else { return };
    let why = "ERROR: not a command for a mount or an image of userbtrfs, and btrfs-progs is not \
               installed (no other btrfs in PATH)\n";
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(1), why));
    // Copies of the command, and scripts that call it, are not btrfs-progs.
    let copies = bin.join("more");
    fs::create_dir(&copies).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_userbtrfs"), copies.join("btrfs")).unwrap();
    let words = "balance status /";
    for (name, is_copy) in [("copy", true), ("script", false)] {
        if !is_copy {
            let text = format!("#!/bin/sh\n{only}/btrfs \"$@\"\n");
            fs::write(copies.join("btrfs"), text).unwrap();
        }
        let script = format!("({hides}); PATH={only}:{only}/more exec {only}/btrfs {words}");
        let mut unshare = Command::new("timeout");
        let apart = ["unshare", "--mount", "--propagation", "slave"];
        unshare.arg("600").args(apart).args(["sh", "-c", &script]);
        let ran: Ran = unshare.stdin(Stdio::null()).output().unwrap().into();
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(1), why), "{name}");
    }
    let own = links.run("sub list missing-image", only);
    assert_eq!(own.code, Some(1), "{own:?}");
}
