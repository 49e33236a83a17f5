"""Tests of the package `userbtrfs`; scripts/test-python runs them."""

import errno
import io
import os
import stat
import subprocess
import threading
import time
from pathlib import Path as HostPath
from pathlib import PurePosixPath

import pytest
import userbtrfs

SIZE = 256 << 20


@pytest.fixture
def fs(image):
    with userbtrfs.Filesystem(image, writable=True) as filesystem:
        yield filesystem


def fails(number, filename=None, filename2=None):
    """Expects an OSError with these attributes."""

    class Expectation:
        def __enter__(self):
            self.raises = pytest.raises(OSError)
            self.info = self.raises.__enter__()

        def __exit__(self, *args):
            result = self.raises.__exit__(*args)
            error = self.info.value
            assert (error.errno, error.filename, error.filename2) == (number, filename, filename2)
            assert error.strerror
            return result

    return Expectation()


def test_changes_are_there_after_reopening(image):
    with userbtrfs.Filesystem(image, writable=True) as fs:
        fs.mkdir("/dir", 0o700)
        (fs / "dir" / "file").write_bytes(b"content")
        fs.symlink("dir/file", "/symlink")
        fs.link("/dir/file", "/hardlink")
        fs.rename("/hardlink", b"/second")
    with userbtrfs.Filesystem(image) as fs:
        assert not fs.writable
        assert sorted(fs.listdir()) == ["dir", "second", "symlink"]
        assert fs.readlink("/symlink") == "dir/file"
        assert (fs / "symlink").read_bytes() == b"content"
        assert (fs / "second").stat().st_nlink == 2
        assert fs.stat("/dir").st_mode == stat.S_IFDIR | 0o700
        with fails(errno.EROFS, "/second"):
            fs.unlink("/second")


def test_raw_file_reads_writes_seeks_and_truncates(fs):
    with fs.open("/file", "w+b", buffering=0) as file:
        assert isinstance(file, io.RawIOBase)
        assert (file.readable(), file.writable(), file.seekable()) == (True, True, True)
        assert file.write(b"0123456789") == 10
        assert file.seek(-3, os.SEEK_END) == 7
        assert file.read(100) == b"789"
        assert file.read() == b""
        assert file.seek(2) == 2
        assert file.write(memoryview(b"ab")) == 2
        assert file.tell() == 4
        assert file.seek(1, os.SEEK_CUR) == 5
        buffer = bytearray(3)
        assert file.readinto(buffer) == 3 and buffer == b"567"
        assert file.read_at(4, 0) == b"01ab"
        assert file.write_at(bytearray(b"X"), 20) == 1
        assert file.stat().st_size == 21
        assert file.truncate(4) == 4
        assert file.tell() == 8
        file.seek(0)
        assert file.readall() == b"01ab"
        file.fsync()
        file.fdatasync()
        with pytest.raises(ValueError):
            file.seek(-1)
    with pytest.raises(ValueError):
        file.read()
    file.close()


def test_modes_are_those_of_open(fs):
    with fails(errno.ENOENT, "/file"):
        fs.open("/file")
    with fs.open("/file", "x") as file:
        file.write("one\n")
    with fails(errno.EEXIST, "/file"):
        fs.open("/file", "xb")
    with fs.open("/file", "a") as file:
        file.write("two\n")
    with fs.open("/file", "r+") as file:
        assert list(file) == ["one\n", "two\n"]
    with fs.open("/file", "rb", buffering=0) as file:
        with pytest.raises(io.UnsupportedOperation):
            file.write(b"")
    with fs.open("/file", "wb", buffering=0) as file:
        assert file.stat().st_size == 0
        with pytest.raises(io.UnsupportedOperation):
            file.read()
    with fails(errno.EISDIR, "/"):
        fs.open("/")
    for mode in ["", "rw", "rr", "bt", "rbt", "q"]:
        with pytest.raises(ValueError):
            fs.open("/file", mode)


def test_append_ignores_the_position(fs):
    with fs.open("/file", "ab", buffering=0) as one, fs.open("/file", "ab", buffering=0) as two:
        one.write(b"1")
        two.write(b"2")
        one.seek(0)
        one.write(b"3")
        assert one.tell() == 3
    assert (fs / "file").read_bytes() == b"123"


def test_fsync_survives_without_a_commit(image, tmp_path):
    with userbtrfs.Filesystem(image, writable=True) as fs:
        with fs.open("/file", "w") as file:
            file.write("durable")
            userbtrfs.fsync(file)
            copy = tmp_path / "copy"
            copy.write_bytes(image.read_bytes())
    with userbtrfs.Filesystem(copy) as fs:
        assert (fs / "file").read_text() == "durable"


def test_errors_have_errno_text_and_filename(fs, tmp_path):
    with fails(errno.ENOENT, "/none"):
        fs.stat("/none")
    with pytest.raises(FileNotFoundError):
        fs.unlink("/none")
    fs.mkdir("/dir")
    (fs / "dir/file").touch()
    with fails(errno.ENOTEMPTY, "/dir"):
        fs.rmdir("/dir")
    with pytest.raises(NotADirectoryError):
        fs.listdir("/dir/file")
    with fails(errno.ENOENT, "/none", "/other"):
        fs.rename("/none", "/other")
    with fails(errno.EEXIST, "/dir"):
        fs.mkdir("/dir")
    with fails(errno.ENOENT, str(tmp_path / "none")):
        userbtrfs.Filesystem(tmp_path / "none")
    with pytest.raises(ValueError):
        fs.stat("/a\0b")


def test_filesystem_that_was_closed_is_a_value_error(image):
    fs = userbtrfs.Filesystem(image)
    fs.close()
    fs.close()
    assert fs.closed
    for call in [fs.listdir, fs.sync, fs.__enter__]:
        with pytest.raises(ValueError):
            call()


def test_mkfs_does_not_overwrite(image, tmp_path):
    with fails(errno.EEXIST, str(image)):
        userbtrfs.mkfs(image, SIZE)
    with fails(errno.EEXIST, str(image)):
        userbtrfs.mkfs(image)
    userbtrfs.mkfs(image, force=True)
    small = tmp_path / "small"
    with fails(errno.ENOSPC, str(small)):
        userbtrfs.mkfs(small, 4096)
    assert not small.exists()


def test_second_writer_is_busy(fs, image):
    with fails(errno.EBUSY, str(image)):
        userbtrfs.Filesystem(image, writable=True)


def test_subvolumes_and_snapshots(fs):
    fs.create_subvolume("/data")
    (fs / "data/file").write_text("old")
    fs.snapshot("/data", "/monday", read_only=True)
    (fs / "data/file").write_text("new")
    assert (fs / "monday/file").read_text() == "old"
    with fails(errno.EROFS, "/monday/file"):
        fs.unlink("/monday/file")
    found = {(s.path, s.read_only) for s in fs.subvolumes()}
    assert found == {("/data", False), ("/monday", True)}
    assert {s.id for s in fs.subvolumes()} == {fs.stat(p).st_dev for p in ["/data", "/monday"]}
    fs.delete_subvolume("/monday")
    assert fs.listdir() == ["data"]
    with fails(errno.ENOENT, "/data/file"):
        fs.delete_subvolume("/data/file")


def test_attributes_can_be_set(fs):
    path = fs / "file"
    path.write_bytes(b"x" * 10000)
    fs.chown(path, 1000, 100)
    path.chmod(0o4711)
    fs.utime(path, ns=(-1, 1_700_000_000_123_456_789))
    found = path.stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o7777) == (1000, 100, 0o4711)
    assert (found.st_atime_ns, found.st_mtime_ns) == (-1, 1_700_000_000_123_456_789)
    assert (found.st_atime, int(found.st_mtime)) == (-1e-9, 1_700_000_000)
    assert (found.st_size, found.st_blocks) == (10000, 24)
    path.touch()
    assert abs(path.stat().st_mtime - time.time()) < 60
    with pytest.raises(FileExistsError):
        path.touch(exist_ok=False)


def test_extended_attributes_are_like_those_of_os(image):
    with userbtrfs.Filesystem(image, writable=True) as fs:
        (fs / "file").write_bytes(b"content")
        fs.symlink("file", "/link")
        fs.setxattr("/link", "user.a", b"1")
        fs.setxattr(b"/file", b"user.\xff", b"")
        with fails(errno.EEXIST, "/file"):
            fs.setxattr("/file", "user.a", b"2", os.XATTR_CREATE)
        fs.setxattr("/file", "user.a", b"\0\xff" * 1000, os.XATTR_REPLACE)
        with fails(errno.ENODATA, "/file"):
            fs.setxattr("/file", "user.b", b"2", os.XATTR_REPLACE)
        with fails(errno.EINVAL, "/file"):
            fs.setxattr("/file", "user.b", b"2", 4)
        with fails(errno.EOPNOTSUPP, "/file"):
            fs.setxattr("/file", "other.b", b"2")
        fs.setxattr("/link", "trusted.c", b"3", follow_symlinks=False)
        fs.setxattr("/", "user.root", b"4")
    with userbtrfs.Filesystem(image, writable=True) as fs:
        assert fs.getxattr("/file", b"user.a") == b"\0\xff" * 1000
        assert fs.getxattr("/link", "user.\udcff") == b""
        assert sorted(fs.listxattr(fs / "file")) == ["user.a", "user.\udcff"]
        assert fs.listxattr("/link", follow_symlinks=False) == ["trusted.c"]
        assert fs.getxattr("/link", "trusted.c", follow_symlinks=False) == b"3"
        assert fs.listxattr() == ["user.root"]
        fs.removexattr("/link", "user.a")
        fs.removexattr("/link", "trusted.c", follow_symlinks=False)
        for call in fs.getxattr, fs.removexattr:
            with fails(errno.ENODATA, "/file"):
                call("/file", "user.a")
        with fails(errno.ENOENT, "/none"):
            fs.listxattr("/none")
        assert fs.listxattr("/link", follow_symlinks=False) == []
    with userbtrfs.Filesystem(image) as fs:
        with fails(errno.EROFS, "/file"):
            fs.setxattr("/file", "user.a", b"1")


def test_clone_shares_the_data_of_its_source(fs):
    size = 32 << 20
    (fs / "source").write_bytes(b"data" * (size // 4))
    (fs / "source").chmod(0o600)
    (fs / "clone0").write_text("old")
    # All copies together have more data than fits in the image.
    for number in range(SIZE // size + 1):
        fs.clone_file("/source", f"/clone{number}")
        fs.sync()
    assert fs.stat("/clone0").st_mode & 0o7777 == 0o644
    assert fs.stat("/clone1").st_mode & 0o7777 == 0o600
    (fs / "source").write_text("new")
    for number in 0, 1:
        assert (fs / f"clone{number}").read_bytes() == b"data" * (size // 4)
    with fails(errno.ENOENT, "/none", "/clone"):
        fs.clone_file("/none", "/clone")
    assert not fs.exists("/clone")


def test_file_is_created_at_the_end_of_a_dangling_link(fs):
    fs.symlink("file", "/link")
    with pytest.raises(FileExistsError):
        fs.open("/link", "x")
    with pytest.raises(FileNotFoundError):
        fs.open("/link", "r+")
    (fs / "link").write_text("text")
    assert (fs / "file").read_text() == "text"


def test_path_is_like_that_of_pathlib(fs):
    path = fs / "a" / "b.txt"
    assert (str(path), path.name, path.stem, path.suffix) == ("/a/b.txt", "b.txt", "b", ".txt")
    assert path.parent == fs.root / "a" and path.parent != path
    assert path.parts == ("/", "a", "b.txt")
    assert path.relative_to("/a") == PurePosixPath("b.txt")
    with pytest.raises(FileNotFoundError):
        path.parent.parent.joinpath("x", "y").mkdir()
    path.parent.mkdir()
    path.parent.mkdir(exist_ok=True)
    (fs / "x/y/z").mkdir(parents=True)
    assert not path.exists() and not path.is_file()
    path.unlink(missing_ok=True)
    path.write_text("gr\u00fcn")
    assert path.read_bytes() == "gr\u00fcn".encode()
    (fs / "link").symlink_to("a/b.txt")
    (fs / "dangling").symlink_to("none")
    assert (fs / "link").is_file() and (fs / "link").is_symlink()
    assert not (fs / "dangling").exists()
    assert (fs / "dangling").exists(follow_symlinks=False)
    assert (fs / "dangling").readlink() == PurePosixPath("none")
    (fs / "hard").hardlink_to(path)
    assert path.rename("/renamed") == fs / "renamed"
    (fs / "renamed").fsync()
    fs.root.fsync()
    assert sorted(map(str, fs.root.iterdir())) == [
        "/a", "/dangling", "/hard", "/link", "/renamed", "/x",
    ]


def test_glob_and_walk_find_what_pathlib_finds(fs, tmp_path):
    names = ["a/b/one.txt", "a/two.txt", "a/b/c/three.txt", "four.txt", "a/b/five.dat"]
    for name in names:
        for root in [fs.root, tmp_path / "tree"]:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(name)
    tree = tmp_path / "tree"
    patterns = ["*", "*.txt", "*/*.txt", "**/*.txt", "a/**/c", "**/b/*", "a/b/one.txt", "a/?/[of]*"]
    for pattern in [*patterns, "**/**/*.dat", "none/*", "a/*.txt/x"]:
        ours = sorted(str(path)[1:] for path in fs.glob(pattern))
        theirs = sorted(str(path.relative_to(tree)) for path in tree.glob(pattern))
        assert ours == theirs, pattern
    assert sorted(fs.root.rglob("*.dat")) == [fs / "a/b/five.dat"]

    def walked(walk, root):
        return sorted(
            (os.path.relpath(str(path), root), sorted(dirs), sorted(files))
            for path, dirs, files in walk
        )

    expected = walked(os.walk(tree), tree)
    assert walked(fs.walk(), "/") == expected
    assert walked(fs.root.walk(top_down=False), "/") == expected
    for path, dirs, _files in fs.walk():
        dirs.clear()
    assert path == fs.root


def test_names_may_be_any_bytes(fs):
    name = b"\xff\xfe name"
    fs.mkdir(b"/" + name)
    assert fs.listdir() == [os.fsdecode(name)]
    [path] = fs.root.iterdir()
    assert bytes(path) == b"/" + name and path.is_dir()
    with fails(errno.EEXIST, os.fsdecode(b"/" + name)):
        path.mkdir()


def test_large_directory_is_listed_whole(fs):
    names = {f"name {number}" for number in range(3000)}
    for name in names:
        fs.mkdir(name)
    found = [entry.name for entry in fs.scandir()]
    assert len(found) == len(names) and set(found) == names


def test_interpreter_runs_during_a_call(fs):
    """The main thread runs while another is in one fsync of 128 MiB."""
    file = fs.open("/file", "wb")
    file.write(os.urandom(1 << 27))
    file.flush()
    times = []

    def sync():
        times.append(time.monotonic())
        userbtrfs.fsync(file)
        times.append(time.monotonic())

    thread = threading.Thread(target=sync)
    ticks = []
    thread.start()
    while thread.is_alive():
        ticks.append(time.monotonic())
        time.sleep(0.0001)
    thread.join()
    file.close()
    # If the interpreter were locked, there could be one just before the call, and one after it.
    assert len([tick for tick in ticks if times[0] <= tick <= times[1]]) > 2


def test_threads_share_a_filesystem(fs):
    failures = []

    def work(number):
        try:
            for step in range(20):
                path = fs / f"{number}-{step}"
                path.write_bytes(bytes([number]) * 5000)
                path.fsync()
                assert path.read_bytes() == bytes([number]) * 5000
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(fs.listdir()) == 160


def test_file_outlives_its_filesystem(image):
    fs = userbtrfs.Filesystem(image, writable=True)
    file = fs.open("/file", "wb", buffering=0)
    file.write(b"before")
    fs.close()
    assert file.stat().st_size == 6
    with pytest.raises(OSError) as raised:
        userbtrfs.Filesystem(image, writable=True)
    assert raised.value.errno == errno.EBUSY
    file.write(b" after")
    file.close()
    with userbtrfs.Filesystem(image, writable=True) as fs:
        assert (fs / "file").read_bytes() == b"before after"


needs_fuse = pytest.mark.skipif(
    os.getuid() != 0 or not os.path.exists("/dev/fuse"), reason="not root, or no FUSE"
)


@needs_fuse
def test_mount_shows_and_takes_changes(image, tmp_path):
    point = tmp_path / "mount"
    point.mkdir()
    with userbtrfs.Filesystem(image, writable=True) as fs:
        with fails(errno.ENOENT, str(tmp_path / "none")):
            fs.mount(tmp_path / "none")
        (fs / "before").write_text("1")
        with fs.mount(point) as mount:
            assert mount.directory == str(point) and os.path.ismount(point)
            assert (point / "before").read_text() == "1"
            with open(point / "new", "w") as file:
                file.write("2")
                file.flush()
                with fails(errno.EBUSY, str(point)):
                    mount.unmount()
            assert (fs / "new").exists()
        assert mount.closed and not os.path.ismount(point)
        mount.close()
        for call in [mount.unmount, mount.wait, mount.__enter__]:
            with pytest.raises(ValueError):
                call()
        assert (fs / "new").read_text() == "2"


@needs_fuse
def test_mount_outlives_its_filesystem_and_ends_by_umount(image, tmp_path):
    point = tmp_path / "mount"
    point.mkdir()
    fs = userbtrfs.Filesystem(image, writable=True)
    mount = fs.mount(point)
    fs.close()
    waiting = threading.Thread(target=mount.wait)
    waiting.start()
    (point / "file").write_text("content")
    subprocess.run(["umount", point], check=True)
    waiting.join(60)
    assert not waiting.is_alive()
    mount.unmount()
    mount.close()
    with userbtrfs.Filesystem(image, writable=True) as fs:
        assert (fs / "file").read_text() == "content"


def test_package_has_its_types():
    assert (HostPath(userbtrfs.__file__).parent / "py.typed").exists()
