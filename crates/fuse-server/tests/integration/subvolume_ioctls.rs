//! Changes of subvolumes by ioctls: by the command of btrfs-progs, and call by call, both beside
//! Linux.

use std::path::{Path, PathBuf};
use std::process::Command;

use userbtrfs_engine::api::OpenOptions;
use userbtrfs_fuse_server::{Mount, MountFlags, MountOptions, Mounted, Options};
use userbtrfs_testkit::linux::{btrfs_check, run};
use userbtrfs_testkit::manifest::{Manifest, diff};
use userbtrfs_testkit::test_env::has_program;
use userbtrfs_testkit::walk_linux;

use crate::support::{Ours, Site, mount_options, shell};

/// The library that makes btrfs-progs accept a mount.
const PRELOAD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/btrfs-preload.c");

/// Runs the command of btrfs-progs on many paths, and prints what it prints.
const PROGRAMS: &str = r"
does() { echo == $*; btrfs $* 2>&1 || echo failed; }
does subvolume create one
echo before >one/file
does subvolume create one
does subvolume create one/inner
does subvolume snapshot one two
echo after >one/file
does subvolume snapshot -r one frozen
does subvolume snapshot one frozen
does subvolume snapshot two one
does subvolume list -a .
does subvolume list -o one
does subvolume list -s -r . | sed 's/ cgen .* path/ path/'
does property get one ro
does property set one ro true
touch one/new 2>&1 || echo refused
mkdir one/dir 2>&1 || echo refused
does property get one ro
does property set one ro false
touch one/new
does subvolume get-default .
does subvolume set-default two
does subvolume get-default .
does subvolume delete two
does subvolume set-default 5 .
does subvolume show frozen | grep -v 'UUID\|time\|Generation\|Gen at\|transid'
does subvolume show .  | grep -v 'UUID\|time\|Generation\|Gen at\|transid'
does inspect-internal rootid one/inner
does inspect-internal subvolid-resolve 257 .
does subvolume delete one
does subvolume delete one/inner
does subvolume delete -c one
does subvolume delete -i 999 .
mkdir plain
does subvolume delete plain
does subvolume delete nothing
does subvolume sync .
does subvolume list .
cat two/file frozen/file
";

/// Builds the library; `None` if there is no compiler.
pub(crate) fn preload(site: &Site) -> Option<PathBuf> {
    let library = site.at("preload.so");
    let mut compiler = Command::new("cc");
    compiler.args(["-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"]).arg(&library);
    has_program("cc").then(|| run(compiler.arg(PRELOAD).arg("-ldl")).unwrap())?;
    Some(library)
}

/// Returns lines without the generations, which depend on when a filesystem commits by itself.
fn without_generations(text: &str) -> String {
    let shown = |line: &str| match line.split_once(" gen ") {
        Some((id, rest)) => {
            let (_, rest) = rest.split_once(' ').unwrap();
            format!("{id} {rest}\n")
        }
        None => format!("{line}\n"),
    };
    text.lines().map(shown).collect()
}

#[test]
fn btrfs_command_changes_subvolumes_of_a_mount_as_on_linux() {
    let Some(site) = Site::new() else { return };
    let Some(preload) = preload(&site) else { return };
    site.format();
    let without_root = |text: &str, root: &Path| text.replace(root.to_str().unwrap(), "ROOT");
    let linux = site.with_linux("noatime", |root| without_root(&shell(root, PROGRAMS), root));
    site.format();
    let mut shown = None;
    let ours = site.with_ours(|root| {
        // The shell itself is started without the library, which is for btrfs alone.
        let define =
            format!("btrfs() {{ LD_PRELOAD={} command btrfs \"$@\"; }}", preload.display());
        let text = shell(root, &format!("{define}\n{PROGRAMS}"));
        shown = Some(walk_linux::walk(root).unwrap());
        without_root(&text, root)
    });
    assert_same(&without_generations(&ours), &without_generations(&linux));
    assert!(ours.contains("ID 257 ") && ours.contains("ro=true") && ours.contains("refused"));
    judge(&site, &shown.unwrap());
}

/// The commands whose checks need no preloaded library work without it.
#[test]
fn property_and_default_of_the_mounted_subvolume_are_set_by_the_plain_command() {
    let Some(site) = Site::new() else { return };
    site.format();
    site.with_ours(|root| {
        let does = |script: &str| shell(root, script);
        assert_eq!(does("btrfs property get . ro").trim(), "ro=false");
        does("touch a; btrfs property set . ro true");
        assert_eq!(
            does("btrfs property get . ro; touch b 2>/dev/null || echo no"),
            "ro=true\nno\n"
        );
        does("btrfs property set . ro false; touch b; btrfs subvolume set-default 5 .");
    });
    btrfs_check(&site.image()).unwrap();
}

/// Calls ioctls as root and as other users, and prints their results.
const CALLS: &str = r"
import errno, fcntl, os, struct, sys

SNAP_CREATE, SUBVOL_CREATE, SNAP_DESTROY = 0x50009401, 0x5000940e, 0x5000940f
SNAP_CREATE_V2, SUBVOL_CREATE_V2, SNAP_DESTROY_V2 = 0x50009417, 0x50009418, 0x5000943f
DEFAULT, GETFLAGS, SETFLAGS = 0x40089413, 0x80089419, 0x4008941a
START_SYNC, WAIT_SYNC, SYNC_WAIT = 0x80089418, 0x40089416, 0x40109441
ROOTREF, LOOKUP_USER = 0xd000943d, 0xd000943e
FULL = b'x' * 5000


def open_at(path):
    return os.open(path, os.O_RDONLY)


def call(path, command, argument, show=None):
    try:
        file = open_at(path)
    except OSError as error:
        return 'open: ' + errno.errorcode[error.errno]
    buffer = bytearray(argument)
    try:
        fcntl.ioctl(file, command, buffer)
        return show(bytes(buffer)) if show else 'ok'
    except OSError as error:
        return errno.errorcode[error.errno]
    finally:
        os.close(file)


def named(name, descriptor=0):
    return struct.pack('<q4088s', descriptor, name[:4088])


def named_v2(name, flags=0, descriptor=0):
    return struct.pack('<qQQ32x4040s', descriptor, 0, flags, name[:4040])


def by_id(number, flags=16):
    return struct.pack('<qQQ32xQ4032x', 0, 0, flags, number)


def create(path, name):
    return [call(path, SUBVOL_CREATE, named(name)), call(path, SUBVOL_CREATE_V2, named_v2(name))]


def snapshot(source, path, name, flags=0):
    try:
        file = open_at(source)
    except OSError as error:
        return 'open: ' + errno.errorcode[error.errno]
    said = call(path, SNAP_CREATE_V2, named_v2(name, flags, file))
    os.close(file)
    return said


def delete(path, name):
    return [call(path, SNAP_DESTROY, named(name)), call(path, SNAP_DESTROY_V2, named_v2(name))]


def flags(path):
    return call(path, GETFLAGS, bytes(8), lambda answer: struct.unpack('<Q', answer)[0])


def set_flags(path, new):
    return call(path, SETFLAGS, struct.pack('<Q', new))


def rootrefs(path, first=0):
    def show(answer):
        values = struct.unpack('<511Q', answer[:4088])
        return values[0], answer[4088], values[1:1 + 2 * min(answer[4088], 3)]
    return call(path, ROOTREF, struct.pack('<Q4088x', first), show)


def lookup(path, directory, number):
    text = lambda field: field.split(b'\0')[0]
    show = lambda answer: (text(answer[16:272]), text(answer[272:]))
    return call(path, LOOKUP_USER, struct.pack('<QQ4080x', directory, number), show)


def as_user(user, groups, work):
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.setgroups(groups)
        os.setgid(user)
        os.setuid(user)
        os.umask(0o027)
        work()
        sys.stdout.flush()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def number(path):
    return os.stat(path).st_ino & 0xffffffffff


def owner(path):
    found = os.lstat(path)
    return path, found.st_uid, found.st_gid, oct(found.st_mode)


def show(*said):
    print(*said)
";

/// Prints the results of the calls; run in an empty filesystem.
const BAD_CALLS: &str = r"
NAMES = [b'', b'.', b'..', b'a/b', b'/', b'x' * 255, b'x' * 256, FULL, b'file', b'dir', b'sub',
         b'link', b'nothing', b'nothing/x']
open('file', 'w').close()
os.mkdir('dir')
os.symlink('dir', 'link')
show(create('.', b'sub'), create('dir', b'nested'), create('sub', b'inner'))
open('sub/dirt', 'w').close()
for name in NAMES:
    show(name[:10], len(name), 'create', create('.', name))
    show(name[:10], 'snapshot', snapshot('sub', '.', name))
    show(name[:10], 'delete', delete('.', name))
    os.path.isdir('sub') or create('.', b'sub')
show('in a file', create('file', b'x'), snapshot('sub', 'file', b'x'), delete('file', b'x'))
show('of a file', snapshot('file', '.', b'y'), snapshot('dir', '.', b'y'))
show('of another filesystem', snapshot('/', '.', b'y'), snapshot('/proc', '.', b'y'))
show('of nothing', [call('.', SNAP_CREATE_V2, named_v2(b'y', 0, file))
     for file in (999, -1, 1 << 31)])
show('of nothing', [call('.', SNAP_CREATE, named(b'y', file)) for file in (999, -1)])
source = open_at('sub')
show('old', call('.', SNAP_CREATE, named(b'old', source)), os.listdir('old'), flags('old'))
os.close(source)
# Linux reads quota groups for bit 2.
for bit in [0, 1, *range(3, 64)]:
    made = [call('.', command, named_v2(b'y', 1 << bit)) for command in
            (SUBVOL_CREATE_V2, SNAP_DESTROY_V2)]
    show('flags', bit, made, snapshot('sub', '.', b'z', 1 << bit), set_flags('old', 1 << bit),
         flags('old'))
    set_flags('old', 0)
    delete('.', b'y')
    delete('.', b'z')
show('flags of', flags('.'), flags('dir'), flags('file'), set_flags('dir', 0), set_flags('file', 2))
show('default', [call('.', DEFAULT, struct.pack('<Q', id)) for id in (256, 999, 1, 6, 5, 0)])
show('by id', [call('.', SNAP_DESTROY_V2, by_id(id)) for id in (0, 5, 255, 999, 1 << 63)])
show('by id', call('file', SNAP_DESTROY_V2, by_id(257)), call('dir', SNAP_DESTROY_V2, by_id(257)),
     os.listdir('dir'))
create('dir', b'nested')
show('by id of itself', call('sub', SNAP_DESTROY_V2, by_id(256)))
show('not empty', create('old', b'child'), delete('.', b'old'))
# The name that a snapshot has of a subvolume that it does not contain.
show('place', snapshot('old', '.', b'copy'), delete('copy', b'child'), os.listdir('copy'))
show('frozen', snapshot('old', '.', b'frozen', 2), create('frozen', b'x'), flags('frozen'),
     snapshot('old', 'frozen', b'x'), delete('frozen', b'child'))
show('rootrefs', rootrefs('sub'), rootrefs('dir', 300)[:2], rootrefs('old')[:2])
show('lookup', lookup('.', 256, 256), lookup('.', 257, 256), lookup('.', 999, 256),
     lookup('.', 256, 999), lookup('dir', 256, 256), lookup('file', 256, 256))
os.makedirs('a/b/c')
show(create('a/b/c', b'deep'))
for place in '.', 'a', 'a/b', 'a/b/c', 'dir', 'file', 'sub':
    show('lookup', place, [lookup(place, number(path), id) for path in ('a/b/c', 'a/b', '.')
         for id in range(256, 400, 1) if isinstance(lookup(place, number(path), id), tuple)],
         sorted({str(lookup(place, number(path), id)) for path in ('a/b/c', 'a', '.')
         for id in range(256, 400) if isinstance(lookup(place, number(path), id), str)}))
show('sync', call('.', START_SYNC, bytes(8)), call('file', WAIT_SYNC, bytes(8)),
     call('.', WAIT_SYNC, struct.pack('<Q', 1)), call('.', WAIT_SYNC, struct.pack('<Q', 1 << 40)))
show('wait', [(id, mode, call('.', SYNC_WAIT, struct.pack('<QII', id, mode, 0)))
     for mode in (0, 1, 5, 99) for id in (0, 5, 256, 7, 999999) if (id, mode) != (0, 0)])
create('.', b'waited')
id = call('waited', 0xd0009412, struct.pack('<QQ4080x', 0, 256),
          lambda answer: struct.unpack_from('<Q', answer)[0])
show(delete('.', b'waited'))
wait = lambda: call('.', SYNC_WAIT, struct.pack('<QII', id, 0, 0))
# It may be gone already.
show(wait() in ('ok', 'ENOENT'), wait())
";

/// As `BAD_CALLS`, of users without rights.
const STRANGERS: &str = r"
os.chmod('.', 0o755)
create('.', b'roots')
os.mkdir('open')
os.chmod('open', 0o777)
os.mkdir('sticky')
os.chmod('sticky', 0o1777)
os.mkdir('closed')
os.chmod('closed', 0o700)
os.mkdir('group')
os.chown('group', 0, 7)
os.chmod('group', 0o2775)
create('sticky', b'roots')
create('group', b'roots')
create('closed', b'roots')
os.mkdir('outer')
os.mkdir('outer/middle')
create('outer/middle', b'roots')
os.chmod('outer', 0o700)
closed = [open_at('closed'), open_at('outer/middle')]
os.system('command -v setfacl >/dev/null || exit 0; mkdir acl named; setfacl -m u:1000:rwx acl; '
          'setfacl -d -m u:1000:rwx named; chmod 777 named')


def stranger():
    # With a umask of 027.
    show('create', create('.', b'x'), create('open', b'mine'), create('sticky', b'mine'),
         create('closed', b'x'), create('group', b'x'), create('roots', b'x'))
    show('exists', create('.', b'open'), create('sticky', b'mine'), create('sticky', b''))
    if os.path.isdir('acl'):
        show('acl', create('acl', b'mine'), create('named', b'mine'))
    show('snapshot', snapshot('roots', 'open', b'y'), snapshot('open/mine', 'open', b'y'),
         snapshot('open/mine', '.', b'y'), snapshot('open/mine', 'open', b'mine'),
         snapshot('open', 'open', b'z'), snapshot('open/mine', 'open', b'w', 2))
    show('delete', delete('.', b'roots'), delete('open', b'y'), delete('sticky', b'roots'),
         delete('sticky', b'mine'), delete('group', b'roots'), delete('open', b'nothing'),
         delete('closed', b'nothing'), call('.', SNAP_DESTROY_V2, by_id(256)), delete('open', b'w'))
    show('flags', flags('roots'), set_flags('roots', 2), set_flags('sticky/mine', 2),
         flags('sticky/mine'), set_flags('sticky/mine', 0), set_flags('.', 2))
    show('default', call('.', DEFAULT, struct.pack('<Q', 256)))
    show('sync', call('.', START_SYNC, bytes(8)), call('.', WAIT_SYNC, bytes(8)))
    show('rootrefs', rootrefs('.')[1:])
    show('lookup', [lookup('.', number(place), id) for place in ('.', 'open', 'sticky', 'group')
         for id in range(256, 265)])
    show('lookup in closed', [lookup('.', os.fstat(file).st_ino, id) for file in closed
         for id in range(256, 265)])
    dirs = ('open', 'sticky', 'group', '.', 'acl', 'named')
    show(sorted(owner(os.path.join(dir, name)) for dir in dirs if os.path.isdir(dir)
         for name in os.listdir(dir)))


as_user(1000, [], stranger)
as_user(1001, [7], stranger)
os.chmod('open', 0o755)
os.system('chattr +i group')
show('immutable', create('group', b'new'), delete('group', b'roots'),
     snapshot('roots', 'group', b'n'))
as_user(1001, [7], lambda: show('immutable', create('group', b'new'), delete('group', b'x')))
os.system('chattr -i group')
";

fn python(root: &Path, script: &str) -> String {
    shell(root, &format!("python3 - <<'END'\n{CALLS}{script}\nEND"))
}

/// Runs a script in a mount by Linux and in ours, with the same options for both; the output and
/// the trees must be equal.
fn same(options: &str, users_delete_subvolumes: bool, script: &str) {
    let Some(site) = Site::new() else { return };
    if !has_program("python3") {
        return;
    }
    site.format();
    let linux = site.with_linux(options, |root| python(root, script));
    site.format();
    let ours = mounted(&site, users_delete_subvolumes);
    let said = python(ours.path(), script);
    let shown = walk_linux::walk(ours.path()).unwrap();
    ours.end();
    assert_same(&said, &linux);
    judge(&site, &shown);
}

/// Asserts that the image is sound, and that Linux shows what the mount showed: of subvolumes in it
/// other inode numbers, and of their places in a snapshot other times.
fn judge(site: &Site, shown: &Manifest) {
    btrfs_check(&site.image()).unwrap();
    let linux = site.with_linux("ro,noatime", |root| walk_linux::walk(root).unwrap());
    let differences = diff(shown, &linux, &["inode", "subvolume", "btime"]);
    assert!(differences.is_empty(), "the mount's first: {differences:#?}");
}

/// Asserts that two texts are equal; shows the lines that differ.
fn assert_same(ours: &str, linux: &str) {
    let pairs = ours.lines().zip(linux.lines()).filter(|(ours, linux)| ours != linux);
    let pairs = pairs.map(|(ours, linux)| format!("ours:  {ours}\nLinux: {linux}\n"));
    let differences: String = pairs.collect();
    assert!(differences.is_empty(), "{differences}");
    assert_eq!(ours.lines().count(), linux.lines().count(), "{ours}");
}

fn mounted(site: &Site, users_delete_subvolumes: bool) -> Ours {
    let filesystem = OpenOptions::new().write(true).open(site.image()).unwrap();
    let point = site.at("point");
    let _ = std::fs::create_dir(&point);
    let mount = Mount::new(&point, &mount_options()).unwrap();
    let options = Options {
        threads: Some(2),
        device: site.image(),
        users_delete_subvolumes,
        ..Options::default()
    };
    Ours { mounted: Mounted::start(mount, filesystem, &options).unwrap() }
}

#[test]
fn bad_calls_fail_as_on_linux() {
    same("noatime", false, BAD_CALLS);
}

#[test]
fn strangers_change_subvolumes_as_on_linux() {
    same("noatime", false, STRANGERS);
}

#[test]
fn strangers_delete_their_subvolumes_if_the_mount_permits_it() {
    same("noatime,user_subvol_rm_allowed", true, STRANGERS);
}

/// A subvolume is not freed while a file in it is open; a signal ends the wait for that.
#[test]
fn wait_for_a_deleted_subvolume_in_use_is_interrupted() {
    const WAIT: &str = r"
import signal


class Alarm(Exception):
    pass


def ring(*_):
    raise Alarm


signal.signal(signal.SIGALRM, ring)
call('.', SUBVOL_CREATE, named(b'sub'))
file = open('sub/file', 'w')
show(call('.', SNAP_DESTROY, named(b'sub')))
signal.alarm(1)
try:
    show(call('.', SYNC_WAIT, struct.pack('<QII', 256, 0, 0)))
except Alarm:
    show('interrupted')
file.close()
show(call('.', SYNC_WAIT, struct.pack('<QII', 256, 0, 0)))
show(call('.', SYNC_WAIT, struct.pack('<QII', 256, 0, 0)))
";
    let Some(site) = Site::new() else { return };
    if !has_program("python3") {
        return;
    }
    site.format();
    let said = site.with_ours(|root| python(root, WAIT));
    assert_eq!(said, "ok\ninterrupted\nok\nENOENT\n");
    btrfs_check(&site.image()).unwrap();
}

/// The root directory of a subvolume inherits the properties of the subvolume that contains it, and
/// nothing of the directory of its name.
#[test]
fn new_subvolume_inherits_as_on_linux() {
    const INHERITED: &str = r"
os.umask(0o027)
os.mkdir('dir')
os.system('chattr +C dir; chown 0:7 dir; chmod 2777 dir; btrfs property set . compression zstd')
os.mkdir('dir/zlib')
os.system('btrfs property set dir/zlib compression zlib')
show(create('dir', b'new'), create('dir/zlib', b'new'))
for path in '.', 'dir', 'dir/zlib', 'dir/new', 'dir/zlib/new':
    flags = bytearray(8)
    fcntl.ioctl(open_at(path), 0x80086601, flags)
    show(path, flags, {name: os.getxattr(path, name) for name in os.listxattr(path)}, owner(path))
";
    same("noatime", false, INHERITED);
}

#[test]
fn read_only_mount_refuses_changes_as_on_linux() {
    const CHANGES: &str = r"
show(create('.', b'new'), snapshot('sub', '.', b'new'), delete('.', b'sub'), set_flags('sub', 2))
show(call('.', DEFAULT, struct.pack('<Q', 256)), flags('sub'), flags('frozen'), rootrefs('.')[1])
show(create('.', b'sub'), create('.', b'..'), delete('.', b'nothing'), delete('.', b'a/b'))
show(call('.', SNAP_DESTROY_V2, by_id(256)), call('.', WAIT_SYNC, bytes(8)))
show(create('.', FULL), delete('.', FULL), create('file', b'x'), delete('file', b'x'))
";
    let Some(site) = Site::new() else { return };
    if !has_program("python3") {
        return;
    }
    site.format();
    let make =
        "btrfs -q subvolume create sub; btrfs -q subvolume snapshot -r sub frozen; touch file";
    site.with_linux("noatime", |root| shell(root, make));
    let linux = site.with_linux("ro,noatime", |root| python(root, CHANGES));
    let filesystem = OpenOptions::new().open(site.image()).unwrap();
    let flags = MountFlags::READ_ONLY | MountFlags::DEFAULT_PERMISSIONS;
    let ours = Ours::of(&site, filesystem, &MountOptions { flags, ..mount_options() });
    let said = python(ours.path(), CHANGES);
    ours.end();
    assert_same(&said, &linux);
}

/// More references than fit into an answer are read in two calls.
#[test]
fn many_subvolumes_are_listed_in_parts() {
    const MANY: &str = r"
for n in range(300):
    call('.', SUBVOL_CREATE, named(b'sub%d' % n))
buffer = bytearray(4096)
try:
    fcntl.ioctl(open_at('.'), ROOTREF, buffer)
except OSError as error:
    show(error.errno)
show(struct.unpack('<3Q', buffer[:24]), buffer[4088])
fcntl.ioctl(open_at('.'), ROOTREF, buffer)
show(struct.unpack('<3Q', buffer[:24]), buffer[4088])
";
    same("noatime", false, MANY);
}
