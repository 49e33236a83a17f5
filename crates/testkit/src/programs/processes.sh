# Sixteen processes that do at random what can be done, in directories that all of them use. What
# fails because another one was faster is no error.
needs python3
cat >"$OUTSIDE/load.py" <<'END'
import ctypes, errno, fcntl, mmap, os, random, sys

seed, count = map(int, sys.argv[1:])
chance = random.Random(seed)
expected = {errno.ENOENT, errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR, errno.EINVAL,
            errno.ELOOP, errno.EMLINK, errno.ENODATA, errno.EPERM, errno.ENXIO, errno.EACCES,
            errno.ESPIPE}
libc = ctypes.CDLL(None, use_errno=True)


def call(function, *arguments):
    if function(*arguments) != 0:
        raise OSError(ctypes.get_errno(), function.__name__)


def name():
    path = 'd%d/%s%d' % (chance.randrange(6), chance.choice('abc'), chance.randrange(40))
    return path + '/x' if chance.randrange(8) == 0 else path


def opened(flags=os.O_RDWR | os.O_CREAT):
    return os.open(name(), flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)


def write():
    file = opened()
    try:
        size = chance.choice([10, 3000, 4096, 70000])
        os.pwrite(file, bytes([chance.randrange(256)]) * size, chance.randrange(200000))
        if chance.randrange(10) == 0:
            os.fsync(file)
    finally:
        os.close(file)


# Who writes to what is mapped is killed where the file became shorter meanwhile: so nobody cuts a
# file that somebody has mapped.
def mapped():
    file = opened()
    try:
        fcntl.flock(file, fcntl.LOCK_SH)
        os.ftruncate(file, 50000)
        with mmap.mmap(file, 50000) as view:
            at = chance.randrange(49000)
            view[at:at + 1000] = b'm' * 1000
    finally:
        os.close(file)


def truncate():
    file = opened(os.O_RDWR)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        os.truncate('/proc/self/fd/%d' % file, chance.randrange(100000))
    finally:
        os.close(file)


def read():
    file = opened(os.O_RDONLY)
    try:
        os.pread(file, 100000, chance.randrange(100000))
        os.lseek(file, chance.randrange(100000), os.SEEK_DATA)
    finally:
        os.close(file)


# Space set aside, holes and zeros: FALLOC_FL_KEEP_SIZE is 1, PUNCH_HOLE 2, ZERO_RANGE 16.
def fallocate():
    file = opened()
    try:
        start, length = chance.randrange(200000), 1 + chance.randrange(70000)
        mode = chance.choice([0, 1, 1 | 2, 1 | 2, 16, 1 | 16])
        call(libc.fallocate, file, mode, ctypes.c_int64(start), ctypes.c_int64(length))
    finally:
        os.close(file)


# Past the cache, from and to memory that is aligned.
def direct():
    file = opened(os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    try:
        start, length = 4096 * chance.randrange(50), 4096 * chance.choice([1, 3, 16])
        with mmap.mmap(-1, length) as memory:
            if chance.randrange(2):
                os.preadv(file, [memory], start)
            else:
                memory.write(bytes([chance.randrange(256)]) * length)
                os.pwritev(file, [memory], start)
    finally:
        os.close(file)


# RENAME_NOREPLACE is 1, EXCHANGE 2, WHITEOUT 4; AT_FDCWD is -100.
def rename_by(flags):
    call(libc.renameat2, -100, name().encode(), -100, name().encode(), flags)


# A file without a name, which half of the time gets one.
def tmpfile():
    file = os.open('d%d' % chance.randrange(6), os.O_TMPFILE | os.O_RDWR, 0o644)
    try:
        os.pwrite(file, b't' * chance.choice([10, 70000]), chance.randrange(9000))
        if chance.randrange(4) == 0:
            os.fsync(file)
        if chance.randrange(2):
            # Only with a directory it follows the link.
            os.link('/proc/self/fd/%d' % file, name(), src_dir_fd=file)
    finally:
        os.close(file)


def sync_dir():
    file = os.open('d%d' % chance.randrange(6), os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def copy():
    source, target = opened(), opened()
    try:
        os.copy_file_range(source, target, 30000, chance.randrange(9000), chance.randrange(99000))
    finally:
        os.close(source)
        os.close(target)


def xattr():
    path, key = name(), 'user.%d' % chance.randrange(4)
    if chance.randrange(3):
        os.setxattr(path, key, b'v' * chance.randrange(2000), follow_symlinks=False)
    else:
        os.removexattr(path, key, follow_symlinks=False)


acts = [write, write, write, mapped, read, read, sync_dir, copy, xattr,
        lambda: os.unlink(name()), lambda: os.unlink(name()),
        lambda: os.mkdir(name()), lambda: os.rmdir(name()),
        lambda: os.rename(name(), name()), lambda: os.rename(name(), name()),
        lambda: rename_by(1), lambda: rename_by(chance.choice([2, 2, 2, 4])),
        fallocate, fallocate, direct, direct, tmpfile,
        lambda: os.link(name(), name()), lambda: os.symlink('target', name()),
        lambda: os.mknod(name(), 0o644), lambda: os.mkfifo(name()), truncate,
        lambda: os.chmod(name(), chance.choice([0o644, 0o755, 0o4711])),
        lambda: os.chown(name(), chance.randrange(9), 3, follow_symlinks=False),
        lambda: os.listdir('d%d' % chance.randrange(6)), lambda: os.stat(name())]
for _ in range(count):
    try:
        chance.choice(acts)()
    except OSError as error:
        if error.errno not in expected:
            raise
END
phase load
mkdir d0 d1 d2 d3 d4 d5
pids=
for seed in $(seq 16); do
    python3 "$OUTSIDE/load.py" $seed $((1000 * SCALE)) &
    pids="$pids $!"
done
for pid in $pids; do wait $pid; done
