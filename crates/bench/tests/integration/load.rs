//! The loads in this process, beside the programs that they replace.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use userbtrfs_testkit::test_env::has_program;

use crate::trace;

/// The loadfile of the Debian package, which the program `dbench` comes with.
const LOADFILE: &str = "/usr/share/dbench/client.txt";
/// The number of its lines that are executed: enough for each kind of operation.
const LINES: usize = 3000;
/// The line by which the first client's directory is cleared.
const DELETE: &str = "Deltree \"\\clients\\client1\" NT_STATUS_OK";

/// Returns the first lines of the loadfile, and a last one that deletes all files.
fn short_loadfile(folder: &Path) -> PathBuf {
    let text = fs::read_to_string(LOADFILE).unwrap();
    let lines: Vec<_> = text.lines().take(LINES).chain([DELETE]).collect();
    let path = folder.join("loadfile");
    fs::write(&path, lines.join("\n")).unwrap();
    path
}

fn load(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_userbtrfs-bench"));
    command.args(["load"]).args(arguments);
    command
}

fn run(command: &mut Command) -> Vec<u8> {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Returns the number of operations of each kind.
fn counts(outcome: &[u8]) -> BTreeMap<String, u64> {
    let outcome: Value = serde_json::from_slice(outcome).unwrap();
    let rows = outcome["operations"].as_array().unwrap();
    let count =
        |row: &Value| (row["name"].as_str().unwrap().to_owned(), row["count"].as_u64().unwrap());
    rows.iter().map(count).collect()
}

/// Returns the paths, sizes and types of everything below a directory.
fn tree(root: &Path) -> BTreeMap<PathBuf, (bool, u64, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut pending = vec![root.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::metadata(&path).unwrap();
            let name = path.strip_prefix(root).unwrap().to_owned();
            if metadata.is_dir() {
                found.insert(name, (true, 0, Vec::new()));
                pending.push(path);
            } else {
                found.insert(name, (false, metadata.size(), fs::read(&path).unwrap()));
            }
        }
    }
    found
}

/// Returns the calls of `dbench`, at least `least` of them.
///
/// dbench is limited by time alone, and executes the loadfile again until then: a slow machine
/// needs longer to make as many calls.
fn calls_of_dbench(folder: &Path, loadfile: &str, least: usize) -> Vec<String> {
    for seconds in [1, 4, 16, 64] {
        let root = folder.join(format!("theirs{seconds}"));
        fs::create_dir(&root).unwrap();
        let mut dbench = Command::new("dbench");
        dbench.args(["-t", &seconds.to_string(), "-c", loadfile, "-D"]).arg(&root).arg("1");
        let calls = trace::of(&mut dbench, &folder.join("theirs.trace"), &root);
        if calls.len() >= least {
            return calls;
        }
    }
    panic!("dbench makes fewer than {least} calls in 64 seconds");
}

#[test]
fn loader_makes_the_system_calls_of_dbench_in_order() {
    if !has_program("dbench") || !has_program("strace") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let loadfile = short_loadfile(folder.path());
    let loadfile = loadfile.to_str().unwrap();
    let ours = folder.path().join("ours");
    fs::create_dir(&ours).unwrap();

    let arguments = ["dbench", "--passes", "1", "--loadfile", loadfile, "--directory"];
    let ours_trace = folder.path().join("ours.trace");
    let ours = trace::of(load(&arguments).arg(&ours), &ours_trace, &ours);

    // Our client then closes the files that the loadfile leaves open; dbench begins again.
    let end = ours.iter().rposition(|call| call == "close /clients/client0").unwrap() + 1;
    let (ours, closed) = ours.split_at(end);
    assert!(closed.iter().all(|call| call.starts_with("close /clients/client0/")), "{closed:?}");
    assert!(ours.len() > LINES, "{} calls", ours.len());
    let theirs = calls_of_dbench(folder.path(), loadfile, ours.len());
    for (index, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        assert_eq!(ours, theirs, "call {index}");
    }
}

#[test]
fn library_and_system_calls_execute_a_loadfile_alike() {
    if !has_program("dbench") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(LOADFILE).unwrap();
    let loadfile = folder.path().join("loadfile");
    fs::write(&loadfile, text.lines().take(LINES).collect::<Vec<_>>().join("\n")).unwrap();
    let image = folder.path().join("image");
    fs::File::create(&image).unwrap().set_len(1 << 30).unwrap();
    let device = userbtrfs::device::FileOptions { writable: true, ..Default::default() };
    let device = userbtrfs::device::FileDevice::open(&image, device).unwrap();
    userbtrfs::mkfs::make(&device, &userbtrfs::mkfs::Options::default()).unwrap();
    drop(device);
    let host = folder.path().join("host");
    fs::create_dir(&host).unwrap();

    let options = ["--passes", "2", "--clients", "3", "--format", "json", "--loadfile"];
    let on = |option: &str, path: &Path| {
        let mut command = load(&["dbench"]);
        counts(&run(command.args(options).arg(&loadfile).arg(option).arg(path)))
    };
    let by_library = on("--image", &image);
    assert_eq!(by_library, on("--directory", &host));
    assert_eq!(by_library.len(), 16, "{by_library:?}");
    assert_eq!(by_library.values().sum::<u64>(), 2 * 3 * u64::try_from(LINES).unwrap());

    let copy = folder.path().join("copy");
    let filesystem = userbtrfs::Filesystem::open(&image).unwrap();
    copy_out(&filesystem.open_dir("/").unwrap(), &copy);
    assert!(tree(&host) == tree(&copy), "the trees differ");
}

fn copy_out(dir: &userbtrfs::Dir, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in dir.entries() {
        let entry = entry.unwrap();
        let path = to.join(str::from_utf8(entry.name()).unwrap());
        let inode = dir.follow(&entry).unwrap();
        if inode.metadata().unwrap().is_dir() {
            copy_out(&inode.open_dir().unwrap(), &path);
        } else {
            fs::write(&path, inode.open().unwrap().read_all().unwrap()).unwrap();
        }
    }
}

#[test]
fn fio_and_fs_mark_create_their_files() {
    let folder = tempfile::tempdir().unwrap();
    let on = |program: &str| {
        let mut command = load(&[program, "--clients", "2", "--each", "3", "--format", "json"]);
        counts(&run(command.arg("--directory").arg(folder.path())))
    };
    assert_eq!(on("fio"), BTreeMap::from([("fsync".to_owned(), 6)]));
    assert_eq!(on("fsmark"), BTreeMap::from([("create".to_owned(), 6)]));
    let found = tree(folder.path());
    let sizes: Vec<_> = found.values().filter(|it| !it.0).map(|it| it.1).collect();
    assert_eq!(sizes.iter().filter(|size| **size == 3 * (64 << 10)).count(), 2);
    assert_eq!(sizes.iter().filter(|size| **size == 0).count(), 6);
    assert_eq!(found.values().filter(|it| it.0).count(), 2);
}

#[test]
fn experiment_without_its_feature_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().to_str().unwrap();
    let output = load(&["fio", "--experiment", "s0", "--directory", directory]).output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("--experiment needs --image"));
}
