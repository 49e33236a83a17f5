"""Tests of the protocol `userbtrfs` of fsspec, and those that fsspec has for each protocol."""

import errno
import re
import subprocess
import time
from datetime import timezone
from pathlib import Path as HostPath

import fsspec
import pytest
import userbtrfs
from fsspec.tests import abstract
from test_userbtrfs import needs_fuse


def open_image(image, **options):
    return fsspec.filesystem("userbtrfs", fo=image, **options)


@pytest.fixture
def fs(image):
    with open_image(image, writable=True) as filesystem:
        yield filesystem


class Fixtures(abstract.AbstractFixtures):
    @pytest.fixture
    def fs(self, image):
        with open_image(image, writable=True, auto_mkdir=True) as filesystem:
            yield filesystem

    @pytest.fixture
    def fs_path(self):
        return "/"


class TestCopy(abstract.AbstractCopyTests, Fixtures):
    pass


class TestGet(abstract.AbstractGetTests, Fixtures):
    pass


class TestOpen(abstract.AbstractOpenTests, Fixtures):
    pass


class TestPipe(abstract.AbstractPipeTests, Fixtures):
    pass


class TestPut(abstract.AbstractPutTests, Fixtures):
    pass


def test_image_is_opened_for_reading_by_default_and_by_each_instance(image):
    with open_image(image, writable=True) as fs:
        fs.pipe_file("/file", b"content")
        with pytest.raises(OSError) as raised:
            open_image(image, writable=True)
        assert raised.value.errno == errno.EBUSY
    with open_image(str(image)) as fs, open_image(f"file://{image}") as other:
        assert fs is not other
        assert fs.cat_file("userbtrfs://file") == other.cat_file("file") == b"content"
        with pytest.raises(OSError) as raised:
            fs.rm_file("/file")
        assert raised.value.errno == errno.EROFS
    with pytest.raises(ValueError):
        fs.ls("/")


def test_filesystem_that_is_passed_stays_open(image):
    with userbtrfs.Filesystem(image, writable=True) as filesystem:
        with open_image(filesystem) as fs:
            fs.pipe_file("/file", b"content")
            assert fs.filesystem is filesystem
            assert fs.cat_file(filesystem / "file") == b"content"
        assert filesystem.listdir() == ["file"]


def test_url_names_a_file_in_a_local_image(image):
    with fsspec.open(f"userbtrfs://dir/file::file://{image}", "wb", writable=True) as file:
        file.write(b"content")
    with fsspec.open(f"userbtrfs://dir/file::{image}", "rt") as file:
        assert file.read() == "content"
    with pytest.raises(ValueError, match="memory"):
        fsspec.open("userbtrfs://dir/file::memory://image")


def test_info_has_the_attributes(fs):
    fs.makedirs("/dir/sub")
    fs.pipe_file("/dir/file", b"content")
    fs.filesystem.chown("/dir/file", 1000, 100)
    fs.filesystem.utime("/dir/file", ns=(0, 1_700_000_000_500_000_000))
    info = fs.info("dir/file")
    assert abs(info.pop("created") - time.time()) < 60
    assert info == {
        "name": "/dir/file",
        "size": 7,
        "type": "file",
        "mode": 0o100644,
        "uid": 1000,
        "gid": 100,
        "mtime": 1_700_000_000.5,
        "ino": fs.filesystem.stat("/dir/file").st_ino,
        "nlink": 1,
        "islink": False,
    }
    assert fs.info("/")["type"] == fs.info("/dir/")["type"] == "directory"
    assert sorted(fs.ls("/dir", detail=False)) == ["/dir/file", "/dir/sub"]
    assert {"/dir/file", "/dir/sub"} == {info["name"] for info in fs.ls("/dir")}
    assert fs.ls("/dir/file") == [fs.info("/dir/file")]
    assert fs.modified("/dir/file").isoformat() == "2023-11-14T22:13:20.500000+00:00"
    assert fs.created("/dir/file").tzinfo == timezone.utc
    assert fs.find("/") == ["/dir/file"] and fs.glob("/*/f*") == ["/dir/file"]
    with pytest.raises(NotImplementedError):
        fs.sign("/dir/file")


def test_symbolic_link_has_the_attributes_of_its_target(fs):
    fs.mkdir("/dir")
    fs.pipe_file("/dir/file", b"content")
    for target, link in [("dir/file", "/link"), ("..", "/dir/up"), ("none", "/dangling")]:
        fs.filesystem.symlink(target, link)
    info = fs.info("/link")
    assert (info["type"], info["size"], info["islink"]) == ("file", 7, True)
    assert info["destination"] == "dir/file"
    assert fs.isdir("/dir/up") and not fs.isfile("/dir/up")
    assert fs.lexists("/dangling") and not fs.exists("/dangling")
    with pytest.raises(FileNotFoundError):
        fs.info("/dangling")
    types = {info["name"]: info["type"] for info in fs.ls("/") + fs.ls("/dir")}
    assert types["/link"] == "file" and types["/dir"] == "directory"
    assert types["/dir/up"] == types["/dangling"] == "other"
    assert fs.find("/") == ["/dangling", "/dir/file", "/dir/up", "/link"]


def test_files_are_opened_in_each_mode(fs):
    with fs.open("/file", "xb") as file:
        file.write(b"one")
    with pytest.raises(FileExistsError):
        fs.open("/file", "xb")
    with fs.open("/file", "ab") as file:
        file.write(b"two")
    with fs.open("/file", "r+b") as file:
        assert file.size == 6
        file.write(b"ONE")
        assert file.read() == b"two"
    with fs.open("/file") as file:
        assert (file.size, file.read()) == (6, b"ONEtwo")
    assert fs.tail("/file", 4) == b"Etwo"
    assert fs.read_block("/file", 2, 2) == b"Et"
    with fs.open("/file", "w", encoding="utf-8") as file:
        file.write("gr\u00fcn")
    assert fs.read_text("/file", encoding="utf-8") == "gr\u00fcn"
    with fs.transaction:
        assert fs.cat_file("/file") == "gr\u00fcn".encode()
        with pytest.raises(NotImplementedError):
            fs.open("/file", "wb")


def test_ranges_are_those_of_slices(fs):
    data = bytes(range(100)) * 1000
    fs.pipe_file("/file", data)
    bounds = [None, 0, 5, -5, 99_990, -200_000, 200_000]
    for start in bounds:
        for end in bounds:
            assert fs.cat_file("/file", start, end) == data[start:end], (start, end)
    assert fs.cat_ranges(["/file"] * 2, [0, 3], [2, 5]) == [data[:2], data[3:5]]


def test_errors_are_those_of_python(fs):
    fs.makedirs("/dir/sub")
    fs.touch("/file")
    for call in fs.ls, fs.info, fs.rm_file, fs.rmdir, fs.open, fs.cat_file, fs.created, fs.rm:
        with pytest.raises(FileNotFoundError):
            call("/none")
    with pytest.raises(FileNotFoundError):
        fs.rm("/none", recursive=True)
    with pytest.raises(FileNotFoundError):
        fs.mv("/none", "/other")
    with pytest.raises(FileNotFoundError):
        fs.cp_file("/none", "/other")
    with pytest.raises(FileNotFoundError):
        fs.pipe_file("/none/file", b"")
    with pytest.raises(FileNotFoundError):
        fs.mkdir("/none/sub", create_parents=False)
    for call in fs.mkdir, fs.makedirs:
        with pytest.raises(FileExistsError):
            call("/dir")
    fs.makedirs("/dir", exist_ok=True)
    with pytest.raises(FileExistsError):
        fs.makedirs("/file", exist_ok=True)
    for call in fs.ls, fs.info, fs.makedirs:
        with pytest.raises(NotADirectoryError):
            call("/file/sub")
    for call in fs.open, fs.rm_file, fs.rm:
        with pytest.raises(IsADirectoryError):
            call("/dir")
    with pytest.raises(OSError) as raised:
        fs.rmdir("/dir")
    assert raised.value.errno == errno.ENOTEMPTY
    fs.rmdir("/dir/sub")
    assert fs.ls("/dir") == []


def test_rm_does_not_follow_symbolic_links(fs):
    for path in "/tree/sub/file", "/tree/file", "/kept/file":
        fs.makedirs(fs._parent(path), exist_ok=True)
        fs.touch(path)
    for link in "/tree/sub/link", "/link":
        fs.filesystem.symlink("/kept", link)
    for link in "/dangling1", "/dangling2":
        fs.filesystem.symlink("none", link)
    fs.rm(["/tree", "/link", "/dangling1"], recursive=True)
    assert fs.find("/", withdirs=True) == ["/", "/dangling2", "/kept", "/kept/file"]
    fs.rm("/dang*")
    assert fs.find("/") == ["/kept/file"]


def test_mv_is_a_rename(fs):
    fs.makedirs("/dir/sub")
    fs.pipe({"/dir/sub/file": b"content", "/file": b"old"})
    inode = fs.info("/dir/sub")["ino"]
    fs.mv("/dir/sub", "/sub")
    assert fs.info("/sub")["ino"] == inode
    fs.mv("/sub/file", "/file")
    assert fs.cat_file("/file") == b"content"
    fs.mv("/file", "/file")
    fs.move("/file", "/dir")
    assert fs.find("/") == ["/dir/file"]


def test_parents_are_created_on_request(image):
    with open_image(image, writable=True, auto_mkdir=True) as fs:
        fs.touch("/a/file")
        fs.cp_file("/a/file", "/b/file")
        fs.mv("/a/file", "/c/file")
        assert fs.find("/") == ["/b/file", "/c/file"]


def test_cp_shares_the_data(fs):
    size = 32 << 20
    fs.makedirs("/copy0")
    with fs.open("/copy0/file", "wb") as file:
        file.write(b"data" * (size // 4))
    # All copies together have more data than fits in the image.
    for number in range(10):
        fs.cp(f"/copy{number}", f"/copy{number + 1}", recursive=True)
        fs.filesystem.sync()
    assert fs.du("/") == 11 * size
    assert fs.cat_file("/copy10/file") == b"data" * (size // 4)


@needs_fuse
def test_cp_copies_to_a_file_without_checksums(image, tmp_path):
    point = tmp_path / "mount"
    point.mkdir()
    with userbtrfs.Filesystem(image, writable=True) as filesystem:
        filesystem.mkdir("/nocow")
        with filesystem.mount(point):
            subprocess.run(["chattr", "+C", point / "nocow"], check=True)
        data = b"content" * 100_000
        with open_image(filesystem) as fs:
            fs.pipe_file("/file", data)
            with pytest.raises(OSError) as raised:
                filesystem.clone_file("/file", "/nocow/clone")
            assert raised.value.errno == errno.EINVAL
            fs.cp("/file", "/nocow/")
            assert fs.cat_file("/nocow/file") == data


def test_touch_truncates_or_sets_the_time(fs):
    fs.touch("/file")
    assert fs.size("/file") == 0
    fs.pipe_file("/file", b"content")
    fs.filesystem.utime("/file", ns=(0, 0))
    fs.touch("/file", truncate=False)
    assert fs.size("/file") == 7
    assert abs(fs.info("/file")["mtime"] - time.time()) < 60
    fs.touch("/file")
    assert fs.size("/file") == 0


def test_directory_is_a_mapping(image):
    with open_image(image, writable=True) as fs:
        mapping = fs.get_mapper("/store", create=True)
        mapping["a/b"] = b"content"
        assert list(mapping) == ["a/b"] and mapping["a/b"] == b"content"
        assert "none" not in mapping and mapping.get("none") is None
        del mapping["a/b"]
        assert len(mapping) == 0


def test_examples_of_the_guide_run(tmp_path, monkeypatch, capsys):
    guide = (HostPath(__file__).parents[3] / "docs" / "python.md").read_text(encoding="utf-8")
    sections = re.split(r"^## ", guide, flags=re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    for title, output in [("A tour", "first\nsecond\n"), ("fsspec", "b'a,b\\n1,2\\n'")]:
        [section] = [text for text in sections if text.startswith(f"{title}\n")]
        [example] = re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
        exec(example, {})
        assert output in capsys.readouterr().out
