//! `--discard`: freed space becomes holes in the image file, and the rest stays.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::process::Stdio;

use crate::support::command::command;
use crate::support::made::Made;
use crate::support::pattern;
use crate::support::site::Site;

const MIB: u64 = 1 << 20;

/// Returns the number of bytes that the image file takes on the disk.
fn allocated(made: &Made) -> u64 {
    let image = fs::File::open(made.image()).unwrap();
    // Some filesystems delay the allocation.
    image.sync_all().unwrap();
    image.metadata().unwrap().blocks() * 512
}

/// Makes a filesystem with a file of 40 MiB and a small one.
fn with_files() -> Made {
    let made = Made::new();
    put_files(&made);
    made
}

/// Copies these into an empty filesystem; returns the bytes that the image takes then.
fn put_files(made: &Made) -> u64 {
    for (name, len) in [("big", 40 << 20), ("small", 100_000)] {
        fs::write(made.at(name), pattern(len)).unwrap();
        made.does("put -q", &[made.at(name).to_str().unwrap(), "/"]);
    }
    let full = allocated(made);
    assert!(full > 40 * MIB);
    full
}

fn assert_small_is_there(made: &Made) {
    assert_eq!(made.paths(), ["/small"]);
    assert!(made.open().read("/small").unwrap() == pattern(100_000));
    made.judge();
}

#[test]
fn image_file_shrinks_with_its_content_with_discard() {
    let made = with_files();
    let full = allocated(&made);
    made.does("rm --discard", &["/big"]);
    let left = allocated(&made);
    assert!(left + 40 * MIB <= full, "{full} bytes, then {left}");
    assert_small_is_there(&made);

    let made = with_files();
    let full = allocated(&made);
    made.does("rm", &["/big"]);
    let kept = allocated(&made);
    assert!(kept >= full, "{full} bytes, then {kept}");
    assert_small_is_there(&made);
}

#[test]
fn each_way_to_free_data_discards_it() {
    let image_of = |words: &str, paths: &[&str]| {
        let made = with_files();
        let full = allocated(&made);
        made.does(words, paths);
        let given = full.saturating_sub(allocated(&made));
        assert!(given >= 39 * MIB, "{words}: {given} bytes were given back");
        made.judge();
        made
    };
    image_of("truncate --discard -s 0", &["/big"]);
    image_of("fallocate --discard -p -l 40M", &["/big"]);
    image_of("cp --discard", &["/small", "/big"]);
    let made = image_of("mv --discard", &["/small", "/big"]);
    assert!(made.open().read("/big").unwrap() == pattern(100_000));
}

#[test]
fn shell_discards_with_each_commit() {
    let made = with_files();
    let full = allocated(&made);
    let mut shell = command(["shell".as_ref(), "--discard".as_ref(), made.image().as_os_str()]);
    let mut child = shell.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"rm /big\nsync\nmkdir /lost\ncrash\n").unwrap();
    assert!(child.wait().unwrap().success());
    assert!(allocated(&made) + 40 * MIB <= full);
    assert_small_is_there(&made);
}

#[test]
fn mount_discards_with_the_option() {
    let Some(site) = Site::new() else { return };
    let given = |options: &[&str]| {
        site.made.format("256M");
        let full = put_files(&site.made);
        site.mount(options).good();
        fs::remove_file(site.point().join("big")).unwrap();
        site.umount();
        // This waits for the end of the server.
        site.judge();
        assert_small_is_there(&site.made);
        full.saturating_sub(allocated(&site.made))
    };
    for (options, gives) in [("discard", true), ("nodiscard", false), ("discard,nodiscard", false)]
    {
        let given = given(&["-o", options]);
        assert_eq!(given >= 39 * MIB, gives, "{options}: {given} bytes were given back");
    }
    assert!(given(&[]) < MIB);
}

#[test]
fn mkfs_discards_old_content() {
    let made = with_files();
    made.does("mkfs -q -f", &[]);
    assert!(allocated(&made) > 40 * MIB, "kept for later use");
    made.does("mkfs -q -f --discard", &[]);
    let taken = allocated(&made);
    assert!(taken < 4 * MIB, "{taken} bytes are taken by an empty filesystem");
    assert!(made.paths().is_empty());
    made.judge();
    let tree = made.at("tree");
    fs::create_dir(&tree).unwrap();
    fs::rename(made.at("small"), tree.join("small")).unwrap();
    made.does("mkfs -q -f --discard", &["--rootdir", tree.to_str().unwrap()]);
    assert_small_is_there(&made);
    assert!(allocated(&made) < 4 * MIB);
}

#[test]
fn read_only_verbs_refuse_the_discard_option() {
    let made = Made::new();
    for words in ["ls --discard", "df --discard", "get --discard"] {
        assert_eq!(made.verb(words, &["/"]).code, Some(1), "{words}");
    }
    let help = crate::support::command::run(["rm", "--help"]).good();
    assert!(help.contains("--discard"), "{help}");
}
