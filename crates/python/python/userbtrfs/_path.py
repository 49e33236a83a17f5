"""Paths in an image, in the manner of pathlib."""

import errno
import fnmatch
import os
import stat
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Optional, Union

if TYPE_CHECKING:
    from ._filesystem import Filesystem

_MAGIC = set("*?[")


class Path:
    """An absolute path in a filesystem. It is no path of the host, so open() does not take it."""

    __slots__ = ("_filesystem", "_path")

    def __init__(self, filesystem: "Filesystem", *parts: "AnyPath") -> None:
        self._filesystem = filesystem
        self._path = PurePosixPath("/", *map(text_of, parts))

    @property
    def filesystem(self) -> "Filesystem":
        return self._filesystem

    @property
    def name(self) -> str:
        return self._path.name

    @property
    def stem(self) -> str:
        return self._path.stem

    @property
    def suffix(self) -> str:
        return self._path.suffix

    @property
    def parts(self) -> tuple[str, ...]:
        return self._path.parts

    @property
    def parent(self) -> "Path":
        return Path(self._filesystem, self._path.parent)

    def __str__(self) -> str:
        return str(self._path)

    def __bytes__(self) -> bytes:
        return os.fsencode(str(self))

    def __repr__(self) -> str:
        return f"userbtrfs.Path({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Path):
            return NotImplemented
        return self._filesystem is other._filesystem and self._path == other._path

    def __hash__(self) -> int:
        return hash((id(self._filesystem), self._path))

    def __lt__(self, other: "Path") -> bool:
        return self._path < other._path

    def __truediv__(self, other: "AnyPath") -> "Path":
        return Path(self._filesystem, self._path, text_of(other))

    def joinpath(self, *others: "AnyPath") -> "Path":
        return Path(self._filesystem, self._path, *others)

    def relative_to(self, other: "AnyPath") -> PurePosixPath:
        return self._path.relative_to(text_of(other))

    def with_name(self, name: str) -> "Path":
        return Path(self._filesystem, self._path.with_name(name))

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        return self._filesystem.stat(self, follow_symlinks=follow_symlinks)

    def lstat(self) -> os.stat_result:
        return self.stat(follow_symlinks=False)

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        return self._mode(follow_symlinks) is not None

    def is_file(self) -> bool:
        return stat.S_ISREG(self._mode(True) or 0)

    def is_dir(self) -> bool:
        return stat.S_ISDIR(self._mode(True) or 0)

    def is_symlink(self) -> bool:
        return stat.S_ISLNK(self._mode(False) or 0)

    def _mode(self, follow_symlinks: bool) -> Optional[int]:
        try:
            return self.stat(follow_symlinks=follow_symlinks).st_mode
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                return None
            raise

    def iterdir(self) -> Iterator["Path"]:
        for entry in self._filesystem.scandir(self):
            yield entry.path

    def walk(
        self, top_down: bool = True, follow_symlinks: bool = False
    ) -> Iterator[tuple["Path", list[str], list[str]]]:
        """Yields each directory with the names of its directories and of all else.

        Top-down, the caller may remove names from the list of directories.
        """
        directories: list[str] = []
        others: list[str] = []
        for entry in self._filesystem.scandir(self):
            (directories if entry.is_dir(follow_symlinks) else others).append(entry.name)
        if top_down:
            yield self, directories, others
        for name in directories:
            yield from (self / name).walk(top_down, follow_symlinks)
        if not top_down:
            yield self, directories, others

    def glob(self, pattern: str) -> Iterator["Path"]:
        """Yields the paths below this one that match; `**` is any number of directories."""
        parts = PurePosixPath(pattern).parts
        if not parts or pattern.startswith("/"):
            raise ValueError(f"unacceptable pattern: {pattern!r}")
        once: list[str] = []
        for part in parts:
            # Twice in a row, it would yield paths again.
            if part != "**" or once[-1:] != ["**"]:
                once.append(part)
        return self._glob(once)

    def rglob(self, pattern: str) -> Iterator["Path"]:
        return self.glob(f"**/{pattern}")

    def _glob(self, parts: list[str]) -> Iterator["Path"]:
        if not parts:
            yield self
            return
        head, rest = parts[0], parts[1:]
        if head == "**":
            yield from self._glob(rest)
            for entry in self._filesystem.scandir(self):
                if entry.is_dir(False):
                    yield from entry.path._glob(parts)
        elif _MAGIC & set(head):
            for entry in self._filesystem.scandir(self):
                if fnmatch.fnmatchcase(entry.name, head) and (not rest or entry.is_dir()):
                    yield from entry.path._glob(rest)
        else:
            child = self / head
            if child.is_dir() if rest else child.exists(follow_symlinks=False):
                yield from child._glob(rest)

    def mkdir(self, mode: int = 0o755, parents: bool = False, exist_ok: bool = False) -> None:
        try:
            self._filesystem.mkdir(self, mode)
        except FileNotFoundError:
            if not parents or self.parent == self:
                raise
            self.parent.mkdir(parents=True, exist_ok=True)
            self.mkdir(mode, exist_ok=exist_ok)
        except FileExistsError:
            if not exist_ok or not self.is_dir():
                raise

    def rmdir(self) -> None:
        self._filesystem.rmdir(self)

    def unlink(self, missing_ok: bool = False) -> None:
        try:
            self._filesystem.unlink(self)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def rename(self, target: "AnyPath") -> "Path":
        """Renames, and replaces what is there, as rename(2) does."""
        self._filesystem.rename(self, target)
        return Path(self._filesystem, target)

    replace = rename

    def symlink_to(self, target: Union[str, bytes, PurePosixPath]) -> None:
        self._filesystem.symlink(target, self)

    def hardlink_to(self, target: "AnyPath") -> None:
        self._filesystem.link(target, self)

    def readlink(self) -> PurePosixPath:
        return PurePosixPath(self._filesystem.readlink(self))

    def chmod(self, mode: int) -> None:
        self._filesystem.chmod(self, mode)

    def touch(self, mode: int = 0o644, exist_ok: bool = True) -> None:
        try:
            self._filesystem.open(self, "xb", buffering=0, permissions=mode).close()
        except FileExistsError:
            if not exist_ok:
                raise
            self._filesystem.utime(self)

    def open(
        self,
        mode: str = "r",
        buffering: int = -1,
        encoding: Optional[str] = None,
        errors: Optional[str] = None,
        newline: Optional[str] = None,
    ) -> IO[Any]:
        return self._filesystem.open(self, mode, buffering, encoding, errors, newline)

    def read_bytes(self) -> bytes:
        with self.open("rb", 0) as file:
            data: bytes = file.read()
        return data

    def read_text(self, encoding: Optional[str] = None, errors: Optional[str] = None) -> str:
        with self.open("r", encoding=encoding, errors=errors) as file:
            text: str = file.read()
        return text

    def write_bytes(self, data: Any) -> int:
        with self.open("wb") as file:
            return file.write(data)

    def write_text(
        self, data: str, encoding: Optional[str] = None, errors: Optional[str] = None
    ) -> int:
        with self.open("w", encoding=encoding, errors=errors) as file:
            return file.write(data)

    def fsync(self) -> None:
        """Makes the file or the directory durable, as fsync(2)."""
        self._filesystem.fsync(self)


AnyPath = Union[str, bytes, PurePosixPath, Path]


class DirEntry(NamedTuple):
    """An entry of a directory, in the manner of os.DirEntry."""

    name: str
    path: Path
    inode: int
    # The type bits of st_mode, 0 if unknown.
    kind: int

    def is_dir(self, follow_symlinks: bool = True) -> bool:
        return stat.S_ISDIR(self._kind(follow_symlinks))

    def is_file(self, follow_symlinks: bool = True) -> bool:
        return stat.S_ISREG(self._kind(follow_symlinks))

    def is_symlink(self) -> bool:
        return stat.S_ISLNK(self._kind(False))

    def _kind(self, follow_symlinks: bool) -> int:
        if self.kind and not (follow_symlinks and stat.S_ISLNK(self.kind)):
            return self.kind
        return self.path._mode(follow_symlinks) or 0


def text_of(path: Any) -> str:
    """Returns a path as text, in which bytes that are not UTF-8 are surrogates."""
    if isinstance(path, Path):
        return str(path)
    return os.fsdecode(path)


def bytes_of(path: Any) -> bytes:
    """Returns an absolute path as bytes; one that is relative starts at the root."""
    encoded = os.fsencode(text_of(path))
    if b"\0" in encoded:
        raise ValueError("embedded null byte")
    return encoded if encoded.startswith(b"/") else b"/" + encoded
