//! The ioctls of btrfs tools, answered byte for byte as Linux answers them.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use userbtrfs_engine::api::OpenOptions;
use userbtrfs_fuse_server::{MountFlags, MountOptions};
use userbtrfs_testkit::test_env::has_program;
use userbtrfs_testkit::walk_linux;

use crate::support::{Ours, Site, mount_options, nobody_does, shell};

/// Two subvolumes, one in the other, a snapshot, links, and files enough for several leaves.
const TREE: &str = "btrfs -q subvolume create sub; mkdir -p a/b sub/deep; echo x >a/b/file; \
    ln a/b/file a/link; btrfs -q subvolume create sub/deep/inner; echo y >sub/deep/inner/file; \
    btrfs -q subvolume snapshot -r sub snap; for n in $(seq 400); do echo $n >a/f$n; done; \
    setfattr -n user.name -v value a/b/file; head -c 300000 /dev/urandom >a/large; \
    chattr +dA a/b/file; chattr +C a/b";

/// Calls every ioctl, and prints the answers: a name, and the bytes or the error.
const ASK: &str = r"
import fcntl, os, struct, sys

root = sys.argv[1]


def ask(name, path, command, argument, show=lambda answer: answer):
    file = os.open(os.path.join(root, path), os.O_RDONLY)
    buffer = bytearray(argument)
    try:
        fcntl.ioctl(file, command, buffer)
        print(name, path, show(bytes(buffer)).hex())
        return bytes(buffer)
    except OSError as error:
        print(name, path, error.errno)
    finally:
        os.close(file)


places = ['', 'a', 'a/b/file', 'sub', 'sub/deep', 'sub/deep/inner', 'sub/deep/inner/file', 'snap']
for path in places:
    ask('GETFLAGS', path, 0x80086601, bytes(8), lambda answer: answer[:4])
    ask('FSGETXATTR', path, 0x801c581f, bytes(28))
    ask('FS_INFO', path, 0x8400941f, struct.pack('<48xQ968x', 7))
    ask('GET_SUBVOL_INFO', path, 0x81f8943c, bytes(504))
    ask('INO_LOOKUP', path, 0xd0009412, struct.pack('<QQ4080x', 0, 256))
    ask('NOTTY', path, 0x8008947f, bytes(8))

for device, uuid in (1, 0), (2, 0), (1, 9):
    # The path is another one.
    ask('DEV_INFO', '', 0xd000941e, struct.pack('<Q16s4072x', device, bytes([uuid]) * 16),
        lambda answer: answer[:3072])


def path_of(answer):
    return answer[:16] + answer[16:].split(b'\0')[0]


for path in places:
    number = os.lstat(os.path.join(root, path)).st_ino & 0xffffffffff
    for tree in 0, 5, 256, 257, 258, 999:
        asked = struct.pack('<QQ4080x', tree, number)
        ask('INO_LOOKUP %d' % tree, path, 0xd0009412, asked, path_of)


def items_of(answer):
    # Linux probes what is behind them by writing zeros here and there.
    at = 104
    for _ in range(struct.unpack_from('<I', answer, 64)[0]):
        at += 32 + struct.unpack_from('<I', answer, at + 28)[0]
    return answer[:at]


def search(tree, first, last, transactions=(0, 2 ** 64 - 1), count=2 ** 32 - 1):
    key = struct.pack('<7Q4I32x', tree, first[0], last[0], first[2], last[2], *transactions,
                      first[1], last[1], count, 0)
    return ask('TREE_SEARCH %d %s' % (tree, first), 'sub', 0xd0009411, key + bytes(3992), items_of)


LAST = (2 ** 64 - 1, 255, 2 ** 64 - 1)


def walk(tree):
    place = (0, 0, 0)
    while True:
        answer = search(tree, place, LAST)
        count = struct.unpack_from('<I', answer, 64)[0] if answer else 0
        if not count:
            return
        at = 104
        for _ in range(count):
            _, objectid, offset, kind, size = struct.unpack_from('<3Q2I', answer, at)
            at += 32 + size
        place = (objectid, kind, offset + 1)


for tree in 0, 1, 2, 3, 4, 5, 7, 9, 10, 11, 256, 257, 258, 999:
    walk(tree)
search(5, (256, 84, 0), (256, 96, 2 ** 64 - 1))
search(5, (0, 0, 0), LAST, count=3)
search(5, (0, 0, 0), LAST, count=0)
search(5, (0, 0, 0), LAST, transactions=(0, 1))
search(5, (0, 0, 0), LAST, transactions=(9, 2 ** 64 - 1))
search(5, (400, 0, 0), (300, 0, 0))
";

fn ask(root: &Path) -> String {
    shell(root, &format!("python3 - \"$PWD\" <<'END'\n{ASK}\nEND"))
}

#[test]
fn ioctls_are_answered_as_linux_answers_them() {
    let Some(site) = Site::new() else { return };
    if !has_program("python3") {
        return;
    }
    // With nodes of 64 KiB there are items that do not fit into an answer.
    for node_size in ["4096", "16384", "65536"] {
        site.format_with(&["-n", node_size]);
        site.with_linux("noatime", |root| shell(root, TREE));
        let linux = site.with_linux("ro,noatime", ask);
        let filesystem = OpenOptions::new().open(site.image()).unwrap();
        let flags = MountFlags::READ_ONLY | MountFlags::DEFAULT_PERMISSIONS;
        let ours = Ours::of(&site, filesystem, &MountOptions { flags, ..mount_options() });
        let answers = ask(ours.path());
        ours.end();
        for (linux, ours) in linux.lines().zip(answers.lines()) {
            assert_same(&format!("nodes of {node_size}"), linux, ours);
        }
        assert_eq!(linux.lines().count(), answers.lines().count());
        assert!(linux.lines().count() > 150, "{linux}");
    }
}

/// Asserts that two lines of answers are equal; shows where they begin to differ.
fn assert_same(what: &str, linux: &str, ours: &str) {
    let at = linux.bytes().zip(ours.bytes()).position(|(linux, ours)| linux != ours);
    let end = linux.len().min(ours.len());
    let name = &linux[..linux.rfind(' ').unwrap()];
    let at = at.unwrap_or(end);
    let part = |line: &'_ str| line[at.saturating_sub(64)..line.len().min(at + 64)].to_owned();
    assert!(linux == ours, "{what}, {name}, from {at} on:\n{}\n{}", part(linux), part(ours));
}

/// A caller without all rights may query the filesystem, the device and the subvolume, but not
/// trees.
#[test]
fn tree_search_without_rights_is_refused() {
    const ASK: &str = r"
import fcntl, os, struct
file = os.open('.', os.O_RDONLY)


def ask(command, argument):
    try:
        fcntl.ioctl(file, command, bytearray(argument))
        return 0
    except OSError as error:
        return error.errno


said = [ask(0x8400941f, bytes(1024)), ask(0xd000941e, struct.pack('<Q4088x', 1)),
        ask(0x81f8943c, bytes(504)), ask(0xd0009412, struct.pack('<QQ4080x', 0, 256)),
        ask(0xd0009412, struct.pack('<QQ4080x', 5, 256)),
        ask(0xd0009412, struct.pack('<QQ4080x', 0, 257)), ask(0xd0009411, bytes(4096))]
assert said == [0, 0, 0, 0, 0, 1, 1], said
";
    if !["python3", "setpriv"].into_iter().all(has_program) {
        return;
    }
    crate::support::both(|root| {
        nobody_does(root, &format!("python3 - <<'END'\n{ASK}\nEND"));
        // Root without the capability may not search, either.
        let bounded = "setpriv --bounding-set=-sys_admin python3 -";
        shell(root, &format!("{bounded} <<'END'\n{ASK}\nEND"));
    });
}

/// `FS_IOC_FSSETXATTR` sets the flags that btrfs has, and refuses the rest.
#[test]
fn extended_flags_are_set() {
    const ASK: &str = r"
import fcntl, os, struct
file = os.open('file', os.O_RDWR | os.O_CREAT)


def flags():
    buffer = bytearray(28)
    fcntl.ioctl(file, 0x801c581f, buffer)
    return struct.unpack('<5I', buffer[:20])


def change(flags, project=0):
    try:
        fcntl.ioctl(file, 0x401c5820, struct.pack('<5I8x', flags, 0, 0, project, 0))
        return 0
    except OSError as error:
        return error.errno


assert flags() == (0, 0, 0, 0, 0)
for given in 0x20, 0x40, 0x80, 0xe0, 0x10, 0x8, 0:
    assert change(given) == 0, given
    assert flags()[0] == given, flags()
print(change(0x800), change(0x1), change(0, 7), flags())
";
    if has_program("python3") {
        let Some(site) = Site::new() else { return };
        let ask = |root: &Path| shell(root, &format!("python3 - <<'END'\n{ASK}\nEND"));
        site.format();
        let linux = site.with_linux("noatime", ask);
        site.format();
        assert_eq!(site.with_ours(ask), linux);
    }
}

/// The kernel checks the rights of a caller that changes flags for exact commands. Commands that
/// differ in size or direction change nothing, for any caller.
#[test]
fn flag_change_by_a_stranger_is_refused() {
    const ASK: &str = r"
import errno, fcntl, os, struct
file = os.open('file', os.O_RDONLY)


def change(command, argument):
    try:
        fcntl.ioctl(file, command, argument)
        return 0
    except OSError as error:
        return error.errno


NODUMP, EXTENDED = 0x40, struct.pack('<5I8x', 0x80, 0, 0, 0, 0)
exact = [change(0x40086602, struct.pack('<Q', NODUMP)), change(0x401c5820, EXTENDED)]
assert exact == [errno.EPERM] * 2, exact
for size in 4, 8, 12, 28, 32:
    for direction in 1, 2, 3:
        for kind, argument in (0x6602, struct.pack('<Q', NODUMP)), (0x5820, EXTENDED):
            command = direction << 30 | size << 16 | kind
            if command not in (0x40086602, 0x401c5820):
                said = change(command, argument.ljust(32, bytes(1)))
                assert said == errno.ENOTTY, (hex(command), said)
flags = bytearray(8)
fcntl.ioctl(file, 0x80086601, flags)
assert flags[:4] == bytes(4), flags
";
    if has_program("python3") {
        crate::support::both(|root| {
            std::fs::write(root.join("file"), "of root").unwrap();
            nobody_does(root, &format!("python3 - <<'END'\n{ASK}\nEND"));
        });
    }
}

/// Sets a label by ioctl, and prints it or the error.
const SET_LABEL: &str = r#"
import fcntl, os, sys
file = os.open(".", os.O_RDONLY)
label = os.fsencode(sys.argv[1])
try:
    fcntl.ioctl(file, 0x41009432, label + bytes(256 - len(label)) if label else b"x" * 256)
    answer = bytearray(256)
    fcntl.ioctl(file, 0x81009431, answer)
    print(answer.rstrip(b"\0").decode())
except OSError as error:
    print(os.strerror(error.errno))
"#;

#[test]
fn label_is_set_by_root_and_shown_as_linux_shows_it() {
    let Some(site) = Site::new() else { return };
    if !has_program("python3") {
        return;
    }
    site.format_with(&["-L", "old"]);
    let program = site.at("label.py");
    std::fs::write(&program, SET_LABEL).unwrap();
    let set = |label: &str| format!("python3 {} '{label}'", program.display());
    let longest = "x".repeat(255);
    let long = "y".repeat(200);
    let answers =
        |root: &Path| ["new label", &longest, &long].map(|label| shell(root, &set(label)));
    let ours = site.with_ours(|root| {
        nobody_does(root, &format!("{} | grep 'Operation not permitted'", set("mine")));
        // Linux says so in its log, too.
        assert_eq!(shell(root, &set("")), "Invalid argument\n");
        answers(root)
    });
    assert_eq!(ours, ["new label\n", &format!("{longest}\n"), &format!("{long}\n")]);
    let shown = site.with_linux("noatime", |root| {
        let label = shell(root, "btrfs filesystem label .");
        assert_eq!(answers(root), ours);
        label
    });
    assert_eq!(shown.trim_end(), long);
    let shown = shell(&site.at(""), "btrfs check image 2>&1");
    assert!(shown.contains("no error found"), "{shown}");
}

/// The space of the image file that takes room on the disk below, in bytes.
fn taken(site: &Site) -> u64 {
    site.image().metadata().unwrap().blocks() * 512
}

#[test]
fn fstrim_makes_holes_of_free_space_and_of_nothing_else() {
    let Some(site) = Site::new() else { return };
    if !has_program("fstrim") {
        return;
    }
    site.format();
    let ours = Ours::new(&site, OpenOptions::new().write(true));
    let root = ours.path();
    shell(root, "head -c 50000000 /dev/urandom >kept; md5sum kept >sum; sync -f .");
    shell(root, "head -c 100000000 /dev/urandom >gone; sync -f .; sync gone; rm gone");
    nobody_does(root, "fstrim . 2>&1 | grep 'not permitted'");
    let before = taken(&site);
    let said = shell(root, "fstrim -v .");
    assert!(said.contains("trimmed"), "{said}");
    let after = taken(&site);
    assert!(after + 90_000_000 < before, "{before} before, {after} after");
    assert!(after > 50_000_000, "{after} bytes are too few for what is kept");
    // While files are written, and others freed.
    shell(
        root,
        "(for n in $(seq 30); do fstrim . || exit 1; done; touch done) & \
         n=0; until [ -e done ]; do n=$((n + 1)); head -c 3000000 /dev/urandom >new$((n % 9)); \
         md5sum new$((n % 9)) >sum$((n % 9)); sync new$((n % 9)); done; wait",
    );
    shell(root, "echo 3 >/proc/sys/vm/drop_caches; md5sum --quiet -c sum sum?");
    let shown = walk_linux::walk(root).unwrap();
    ours.end();
    site.judge(&shown);
}
