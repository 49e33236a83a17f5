"""The protocol `userbtrfs` of fsspec, which imports this module when the protocol is used."""

import errno
import os
import shutil
import stat
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any, Optional, Union

from fsspec import AbstractFileSystem
from fsspec.implementations.local import LocalFileSystem

from ._filesystem import Filesystem, HostPath
from ._path import Path, bytes_of, text_of
from ._stat import created, stat_result

_TYPES = {stat.S_IFREG: "file", stat.S_IFDIR: "directory"}


class UserbtrfsFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """A filesystem of fsspec in an image.

    `fo` is an image file, a block device or an open Filesystem, which `close` leaves open.
    `auto_mkdir` creates missing parents of new files, as the option of LocalFileSystem does.
    """

    protocol = "userbtrfs"
    root_marker = "/"
    # An instance locks its image until it is closed, which no other user of it would expect.
    cachable = False

    def __init__(
        self,
        fo: Union[HostPath, Filesystem],
        writable: bool = False,
        auto_mkdir: bool = False,
        target_protocol: Optional[str] = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if target_protocol not in (None, "file", "local"):
            raise ValueError(f"image is not a local file, but of the protocol {target_protocol}")
        self.auto_mkdir = auto_mkdir
        self._owns = not isinstance(fo, Filesystem)
        if not isinstance(fo, Filesystem):
            fo = Filesystem(LocalFileSystem._strip_protocol(fo), writable=writable)
        self.filesystem = fo

    def __enter__(self) -> "UserbtrfsFileSystem":
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def close(self) -> None:
        """Makes all changes durable and closes the image, unless a Filesystem was passed."""
        if self._owns:
            self.filesystem.close()

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(it) for it in path]
        return "/" + super()._strip_protocol(text_of(path)).strip("/")

    def _path(self, path: Any) -> Path:
        return Path(self.filesystem, self._strip_protocol(path))

    def _make_parent(self, path: Path) -> None:
        if self.auto_mkdir:
            path.parent.mkdir(parents=True, exist_ok=True)

    def ls(self, path: Any, detail: bool = True, **kwargs: Any) -> list[Any]:
        path = self._strip_protocol(path)
        try:
            names = [f"{path.rstrip('/')}/{name}" for name in self.filesystem.listdir(path)]
        except NotADirectoryError:
            info = self.info(path)
            return [info if detail else path]
        if not detail:
            return names
        details = []
        for name in names:
            with suppress(FileNotFoundError):  # It was removed meanwhile.
                details.append(self._details(name, is_listed=True))
        return details

    def info(self, path: Any, **kwargs: Any) -> dict[str, Any]:
        """Returns the attributes, of a symbolic link those of its target."""
        return self._details(self._strip_protocol(path), is_listed=False)

    def _details(self, path: str, is_listed: bool) -> dict[str, Any]:
        native = self.filesystem._native
        raw = native.stat(bytes_of(path), False)
        link: dict[str, Any] = {"islink": stat.S_ISLNK(stat_result(raw).st_mode)}
        if link["islink"]:
            link["destination"] = self.filesystem.readlink(path)
            try:
                raw = native.stat(bytes_of(path), True)
            except OSError:
                if not is_listed:
                    raise
        found = stat_result(raw)
        kind = _TYPES.get(stat.S_IFMT(found.st_mode), "other")
        if is_listed and link["islink"] and kind == "directory":
            kind = "other"  # A walk does not follow links, which may lead to a parent.
        attributes = ("mode", "uid", "gid", "mtime", "ino", "nlink")
        return {
            "name": path,
            "size": found.st_size,
            "type": kind,
            "created": created(raw),
            **{name: getattr(found, f"st_{name}") for name in attributes},
            **link,
        }

    def exists(self, path: Any, **kwargs: Any) -> bool:
        return self._path(path).exists()

    def lexists(self, path: Any, **kwargs: Any) -> bool:
        return self._path(path).exists(follow_symlinks=False)

    def created(self, path: Any) -> datetime:
        return datetime.fromtimestamp(self.info(path)["created"], tz=timezone.utc)

    def modified(self, path: Any) -> datetime:
        return datetime.fromtimestamp(self.info(path)["mtime"], tz=timezone.utc)

    def mkdir(self, path: Any, create_parents: bool = True, **kwargs: Any) -> None:
        self._path(path).mkdir(kwargs.get("mode", 0o755), parents=create_parents)

    def makedirs(self, path: Any, exist_ok: bool = False) -> None:
        self._path(path).mkdir(parents=True, exist_ok=exist_ok)

    def rmdir(self, path: Any) -> None:
        self._path(path).rmdir()

    def rm_file(self, path: Any) -> None:
        self._path(path).unlink()

    def rm(self, path: Any, recursive: bool = False, maxdepth: Optional[int] = None) -> None:
        """Removes files, and with `recursive` directories, but not what symbolic links lead to."""
        for top in reversed(self.expand_path(path)):
            names = [top]
            if recursive and not self._path(top).is_symlink():
                names = self.find(top, maxdepth=maxdepth, withdirs=True) or names
            for found in map(self._path, reversed(names)):
                if recursive and found.is_dir() and not found.is_symlink():
                    found.rmdir()
                else:
                    found.unlink()

    def mv(self, path1: Any, path2: Any, recursive: bool = True, **kwargs: Any) -> None:
        """Renames a file or a directory, into `path2` if that is a directory."""
        source, target = self._path(path1), self._path(path2)
        if source != target:
            if target.is_dir():
                target /= source.name
            self._make_parent(target)
            source.rename(target)

    def cp_file(self, path1: Any, path2: Any, **kwargs: Any) -> None:
        """Copies a file, which shares its data if that is possible, or makes a directory."""
        source, target = self._path(path1), self._path(path2)
        if source.is_dir():
            target.mkdir(parents=True, exist_ok=True)
            return
        self._make_parent(target)
        try:
            self.filesystem.clone_file(source, target)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            # Only one of the files has checksums.
            with source.open("rb") as reader, target.open("wb") as writer:
                shutil.copyfileobj(reader, writer)

    def touch(self, path: Any, truncate: bool = True, **kwargs: Any) -> None:
        self.open(path, "wb" if truncate else "ab").close()
        self.filesystem.utime(self._path(path))

    def cat_file(
        self, path: Any, start: Optional[int] = None, end: Optional[int] = None, **kwargs: Any
    ) -> bytes:
        with self._path(path).open("rb", 0) as file:
            start, end, _ = slice(start, end).indices(file.seek(0, os.SEEK_END))
            file.seek(start)
            data: bytes = file.read(max(end - start, 0))
        return data

    def pipe_file(self, path: Any, value: Any, mode: str = "overwrite", **kwargs: Any) -> None:
        with self.open(path, "xb" if mode == "create" else "wb") as file:
            file.write(value)

    def _open(self, path: str, mode: str = "rb", autocommit: bool = True, **kwargs: Any) -> Any:
        """Opens a file as Filesystem.open does; programs expect the attribute `size`."""
        if not autocommit and mode != "rb":
            raise NotImplementedError("transactions of fsspec")
        if "r" not in mode:
            self._make_parent(self._path(path))
        file: Any = self._path(path).open(mode)
        if "r" in mode:
            file.size = file.raw.stat().st_size
        return file
