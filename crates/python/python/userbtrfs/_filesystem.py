"""Filesystems."""

import os
import time
from collections.abc import Iterator
from typing import IO, Any, NamedTuple, Optional, Union

from . import _native
from ._closing import Closing
from ._file import File, Mode, wrap
from ._mount import Mount
from ._path import AnyPath, DirEntry, Path, bytes_of, text_of
from ._stat import stat_result

HostPath = Union[str, os.PathLike[str]]


class Subvolume(NamedTuple):
    """A subvolume, with its path from the top level."""

    id: int
    path: str
    read_only: bool


def mkfs(
    image: HostPath,
    size: Optional[int] = None,
    *,
    label: Union[str, bytes] = b"",
    force: bool = False,
) -> None:
    """Makes a filesystem.

    With a size a new file of that many bytes is made, which must not exist. Without one the
    existing file or device is used, whose content is only overwritten with `force`.
    """
    _native.mkfs(image, size, os.fsencode(label), force)


class Filesystem(Closing):
    """An open filesystem, in an image file or on a block device.

    Paths are str, bytes or Path, and start at the root. All calls may be made from any thread; the
    lock of the interpreter is released meanwhile. As a context manager it is closed at the end,
    which makes all changes durable.
    """

    def __init__(self, image: HostPath, *, writable: bool = False) -> None:
        self.image = os.fspath(image)
        self._native = _native.Filesystem(image, writable)

    def __repr__(self) -> str:
        state = " [closed]" if self.closed else ""
        return f"<userbtrfs.Filesystem {self.image!r}{state}>"

    def __truediv__(self, path: AnyPath) -> Path:
        return Path(self, path)

    @property
    def root(self) -> Path:
        return Path(self)

    @property
    def writable(self) -> bool:
        """Whether it was opened for writing."""
        return self._native.is_writable()

    def sync(self) -> None:
        """Makes all changes durable, atomically."""
        self._native.commit()

    def close(self) -> None:
        """Makes all changes durable and closes; a second call does nothing.

        Changes of open files are durable as well. These files can be used further, and the image
        stays locked until they are closed, too.
        """
        self.closed = True
        self._native.close()

    def open(
        self,
        path: AnyPath,
        mode: str = "r",
        buffering: int = -1,
        encoding: Optional[str] = None,
        errors: Optional[str] = None,
        newline: Optional[str] = None,
        *,
        permissions: int = 0o644,
    ) -> IO[Any]:
        """Opens a file, with the arguments of the function open(); text is UTF-8 by default.

        With `buffering=0` this returns a File. A new file has exactly these permissions.
        """
        flags = Mode(mode)
        native = self._native.open_file(
            bytes_of(path), flags.creates, flags.exclusive, flags.truncates, permissions
        )
        raw = File(native, text_of(path), flags)
        try:
            if flags.appends:
                raw.seek(0, os.SEEK_END)
            return wrap(raw, flags, buffering, encoding, errors, newline)
        except BaseException:
            raw.close()
            raise

    def scandir(self, path: AnyPath = "/") -> Iterator[DirEntry]:
        """Yields the entries of a directory, without `.` and `..`, in order of creation."""
        native = self._native.open_dir(bytes_of(path))
        return self._entries(native, Path(self, path))

    @staticmethod
    def _entries(native: _native.Dir, parent: Path) -> Iterator[DirEntry]:
        position: Optional[int] = 0
        while position is not None:
            entries, position = native.list(position)
            for encoded, inode, kind in entries:
                name = os.fsdecode(encoded)
                yield DirEntry(name, parent / name, inode, kind)

    def listdir(self, path: AnyPath = "/") -> list[str]:
        return [entry.name for entry in self.scandir(path)]

    def walk(self, path: AnyPath = "/") -> Iterator[tuple[Path, list[str], list[str]]]:
        return Path(self, path).walk()

    def glob(self, pattern: str) -> Iterator[Path]:
        return self.root.glob(pattern.lstrip("/"))

    def stat(self, path: AnyPath, *, follow_symlinks: bool = True) -> os.stat_result:
        """Returns the attributes; `st_dev` is the id of the subvolume."""
        return stat_result(self._native.stat(bytes_of(path), follow_symlinks))

    def exists(self, path: AnyPath) -> bool:
        return Path(self, path).exists()

    def mkdir(self, path: AnyPath, mode: int = 0o755) -> None:
        """Creates a directory with exactly these permissions."""
        self._native.mkdir(bytes_of(path), mode)

    def rmdir(self, path: AnyPath) -> None:
        self._native.rmdir(bytes_of(path))

    def unlink(self, path: AnyPath) -> None:
        self._native.unlink(bytes_of(path))

    def rename(self, source: AnyPath, target: AnyPath) -> None:
        """Renames, and replaces what is there, as rename(2) does."""
        self._native.rename(bytes_of(source), bytes_of(target))

    def link(self, source: AnyPath, path: AnyPath) -> None:
        """Adds the name `path` to the file at `source`."""
        self._native.link(bytes_of(source), bytes_of(path))

    def clone_file(self, source: AnyPath, target: AnyPath) -> None:
        """Makes the file at `target` a clone of that at `source`, which shares its data.

        The content of an existing file is replaced. A new file has the permissions of `source`.
        """
        self._native.clone_file(bytes_of(source), bytes_of(target))

    def symlink(self, target: AnyPath, path: AnyPath) -> None:
        """Creates a symbolic link, whose target may be relative."""
        self._native.symlink(os.fsencode(text_of(target)), bytes_of(path))

    def readlink(self, path: AnyPath) -> str:
        return os.fsdecode(self._native.readlink(bytes_of(path)))

    def chmod(self, path: AnyPath, mode: int) -> None:
        self._native.chmod(bytes_of(path), mode)

    def chown(
        self,
        path: AnyPath,
        uid: Optional[int] = None,
        gid: Optional[int] = None,
        *,
        follow_symlinks: bool = True,
    ) -> None:
        """Sets the owner, the group or both."""
        self._native.chown(bytes_of(path), uid, gid, follow_symlinks)

    def utime(
        self,
        path: AnyPath,
        ns: Optional[tuple[int, int]] = None,
        *,
        follow_symlinks: bool = True,
    ) -> None:
        """Sets the times of access and modification, in nanoseconds; by default to now."""
        accessed, modified = ns or (time.time_ns(),) * 2
        second = 1_000_000_000
        self._native.utime(
            bytes_of(path), divmod(accessed, second), divmod(modified, second), follow_symlinks
        )

    def getxattr(
        self, path: AnyPath, attribute: Union[str, bytes], *, follow_symlinks: bool = True
    ) -> bytes:
        """Returns the value of an extended attribute, as os.getxattr()."""
        return self._native.getxattr(bytes_of(path), os.fsencode(attribute), follow_symlinks)

    def setxattr(
        self,
        path: AnyPath,
        attribute: Union[str, bytes],
        value: bytes,
        flags: int = 0,
        *,
        follow_symlinks: bool = True,
    ) -> None:
        """Sets an extended attribute, as os.setxattr().

        The flags are os.XATTR_CREATE or os.XATTR_REPLACE.
        """
        name = os.fsencode(attribute)
        self._native.setxattr(bytes_of(path), name, value, flags, follow_symlinks)

    def listxattr(self, path: AnyPath = "/", *, follow_symlinks: bool = True) -> list[str]:
        """Returns the names of all extended attributes, as os.listxattr()."""
        return [os.fsdecode(it) for it in self._native.listxattr(bytes_of(path), follow_symlinks)]

    def removexattr(
        self, path: AnyPath, attribute: Union[str, bytes], *, follow_symlinks: bool = True
    ) -> None:
        """Removes an extended attribute, as os.removexattr()."""
        self._native.removexattr(bytes_of(path), os.fsencode(attribute), follow_symlinks)

    def fsync(self, path: AnyPath) -> None:
        """Makes the file or directory at a path durable, as fsync(2)."""
        self._native.fsync(bytes_of(path))

    def mount(self, directory: HostPath) -> Mount:
        """Mounts by FUSE at a directory of the host, for this user.

        Threads of this process serve the mount. The filesystem may be used and closed meanwhile.
        """
        return Mount(self._native.mount(directory), directory)

    def create_subvolume(self, path: AnyPath, mode: int = 0o755) -> None:
        self._native.create_subvolume(bytes_of(path), mode)

    def delete_subvolume(self, path: AnyPath) -> None:
        """Deletes a subvolume with its content."""
        self._native.delete_subvolume(bytes_of(path))

    def snapshot(self, source: AnyPath, path: AnyPath, *, read_only: bool = False) -> None:
        """Makes a snapshot of the subvolume at `source`. It is durable when this returns."""
        self._native.snapshot(bytes_of(source), bytes_of(path), read_only)

    def subvolumes(self) -> list[Subvolume]:
        """Returns all subvolumes but the top level."""
        return [
            Subvolume(id, "/" + os.fsdecode(path), read_only)
            for id, path, read_only in self._native.subvolumes()
        ]
