//! `BTRFS_IOC_DEFRAG_RANGE` and `BTRFS_IOC_DEFRAG`: the answers are those of Linux.

use std::path::Path;

use userbtrfs_testkit::test_env::has_program;

use crate::support::{Site, nobody_does, shell};

const TREE: &str = "mkdir dir; for n in $(seq 0 40); do head -c 4096 /dev/zero | tr '\\0' x | \
    dd of=file bs=4096 seek=$n conv=notrunc,fsync status=none; done; cp file fixed; cp file mine; \
    : >empty; chattr +i fixed; chmod 666 mine; sync -f .";
/// A snapshot of it.
const SNAPSHOT: &str = "btrfs -q subvolume snapshot -r . snap";

/// Calls the ioctls with all kinds of arguments, and prints the errors.
const ASK: &str = r"
import fcntl, os, struct


def ask(path, start=0, length=2 ** 64 - 1, flags=0, threshold=0, kind=0):
    file = os.open(path, os.O_RDONLY)
    try:
        argument = struct.pack('<QQQII16x', start, length, flags, threshold, kind)
        fcntl.ioctl(file, 0x40309410, argument)
        return 0
    except OSError as error:
        return error.errno
    finally:
        os.close(file)


for path in 'file', 'fixed', 'mine', 'empty', 'dir', 'snap/file', 'snap/dir':
    print(path, ask(path))
print([ask('file', start=start) for start in (1, 4096, 41 * 4096 - 1, 41 * 4096, 2 ** 63)])
print([ask('file', length=length) for length in (0, 1, 2 ** 63)])
print([ask('file', flags=flags) for flags in (1, 2, 3, 4, 8, 10, 16, 2 ** 63)])
print([ask('file', flags=1, kind=kind) for kind in (0, 1, 2, 3, 4, 3 + 256, 2 ** 31)])
for kind in 1, 2, 3, 4:
    levels = 0, 1, 3, 9, 10, 15, 16, -1, -15, -16, 127
    print([ask('file', flags=5, kind=kind + (level & 255) * 256) for level in levels])
print([ask('dir', flags=16), ask('dir', start=2 ** 63)])
print([ask('empty', start=5), ask('file', flags=9)])
";

#[test]
fn answers_are_those_of_linux() {
    let Some(site) = Site::new() else { return };
    if !has_program("python3") {
        return;
    }
    let ask = |root: &Path| shell(root, &format!("python3 - <<'END'\n{ASK}\nEND"));
    let make = || {
        site.format();
        site.with_linux("noatime", |root| {
            shell(root, TREE);
            shell(root, SNAPSHOT)
        })
    };
    let judge = |root: &Path| {
        let answers = ask(root);
        shell(root, "chattr -i fixed; cmp file fixed && cmp file snap/file");
        answers
    };
    make();
    let linux = site.with_linux("noatime", judge);
    make();
    assert_eq!(site.with_ours(judge), linux);
}

/// A caller without all rights needs the permission to write.
#[test]
fn caller_without_rights_may_defragment_what_it_may_write() {
    const STRANGER: &str = r"
import fcntl, os
def ask(path):
    try:
        fcntl.ioctl(os.open(path, os.O_RDONLY), 0x40309410, bytes(8) + b'\xff' * 8 + bytes(32))
        return 0
    except OSError as error:
        return error.errno
said = [ask(path) for path in ('file', 'mine', 'dir')]
assert said == [1, 0, 1], said
";
    if !has_program("python3") {
        return;
    }
    crate::support::both(|root| {
        shell(root, "mkdir dir; echo x >file; cp file mine; chmod 666 mine");
        nobody_does(root, &format!("python3 - <<'END'\n{STRANGER}\nEND"));
    });
}
