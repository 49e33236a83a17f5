"""Files of an image as files of Python."""

import io
import os
from collections.abc import Iterable
from typing import IO, Any, Optional, Union, cast

from . import _native
from ._stat import stat_result


class File(io.RawIOBase):
    """A binary file without a buffer of its own: the library has a page cache.

    Calls of several threads do not corrupt it, but they share its position, as that of any file of
    Python; `read_at` and `write_at` do not use the position.
    """

    def __init__(self, native: _native.File, name: str, flags: "Mode") -> None:
        self._native = native
        self._flags = flags
        self._position = 0
        self.name = name
        self.mode = flags.text

    def __repr__(self) -> str:
        state = " [closed]" if self.closed else ""
        return f"<userbtrfs.File {self.name!r} mode={self.mode!r}{state}>"

    def readable(self) -> bool:
        self._check_open()
        return self._flags.reads

    def writable(self) -> bool:
        self._check_open()
        return self._flags.writes

    def seekable(self) -> bool:
        self._check_open()
        return True

    def read(self, size: Optional[int] = -1, /) -> bytes:
        """Reads bytes: fewer than asked for only at the end of the file."""
        self._check(self.readable(), "not readable")
        if size is None or size < 0:
            size = max(self._native.size() - self._position, 0)
        data = self._native.read_at(size, self._position)
        self._position += len(data)
        return data

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: Any, /) -> int:
        with memoryview(buffer).cast("B") as target:
            data = self.read(len(target))
            target[: len(data)] = data
        return len(data)

    def write(self, data: Any, /) -> int:
        """Writes bytes and returns how many, which is fewer than given only if space runs out."""
        self._check(self.writable(), "not writable")
        bytes_ = as_bytes(data)
        if self._flags.appends:
            if bytes_:
                self._position = self._native.append(bytes_) + len(bytes_)
            return len(bytes_)
        written = self._native.write_at(bytes_, self._position)
        self._position += written
        return written

    def writelines(self, lines: Iterable[Any], /) -> None:
        for line in lines:
            data = memoryview(as_bytes(line))
            while data:
                data = data[self.write(data) :]

    def read_at(self, size: int, offset: int) -> bytes:
        """Reads bytes at an offset, as os.pread."""
        self._check(self.readable(), "not readable")
        return self._native.read_at(size, offset)

    def write_at(self, data: Any, offset: int) -> int:
        """Writes bytes at an offset and returns how many, as os.pwrite."""
        self._check(self.writable(), "not writable")
        return self._native.write_at(as_bytes(data), offset)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        self._check_open()
        if whence == os.SEEK_CUR:
            offset += self._position
        elif whence == os.SEEK_END:
            offset += self._native.size()
        elif whence != os.SEEK_SET:
            raise ValueError(f"unsupported whence {whence}")
        if offset < 0:
            raise ValueError(f"negative seek position {offset}")
        self._position = offset
        return offset

    def tell(self) -> int:
        self._check_open()
        return self._position

    def truncate(self, size: Optional[int] = None, /) -> int:
        self._check(self.writable(), "not writable")
        size = self._position if size is None else size
        if size < 0:
            raise ValueError(f"negative size {size}")
        self._native.truncate(size)
        return size

    def fsync(self) -> None:
        """Makes the file durable, with its name if that is new, as os.fsync."""
        self._check_open()
        self._native.sync(False)

    def fdatasync(self) -> None:
        """Makes the content and the size durable, as os.fdatasync."""
        self._check_open()
        self._native.sync(True)

    def stat(self) -> os.stat_result:
        self._check_open()
        return stat_result(self._native.stat())

    def close(self) -> None:
        """Closes the file; raises an error if data could not be written."""
        if not self.closed:
            try:
                super().close()
            finally:
                # An instance that could not be made has no native file.
                if "_native" in self.__dict__:
                    self._native.close()

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")

    @staticmethod
    def _check(may: bool, text: str) -> None:
        if not may:
            raise io.UnsupportedOperation(text)


class Mode:
    """A mode of open(), such as `r+b`."""

    def __init__(self, mode: str) -> None:
        letters = set(mode)
        kinds = letters & set("rwxa")
        if len(letters) != len(mode) or letters - set("rwxabt+") or len(kinds) != 1:
            raise ValueError(f"invalid mode: {mode!r}")
        if {"b", "t"} <= letters:
            raise ValueError("can't have text and binary mode at once")
        self.is_text = "b" not in letters
        self.reads = bool(letters & set("r+"))
        self.writes = bool(letters & set("wxa+"))
        self.creates = "r" not in kinds
        self.exclusive = "x" in kinds
        self.truncates = "w" in kinds
        self.appends = "a" in kinds
        self.text = kinds.pop() + "b" + ("+" if "+" in letters else "")


def wrap(
    raw: File,
    mode: Mode,
    buffering: int,
    encoding: Optional[str],
    errors: Optional[str],
    newline: Optional[str],
) -> IO[Any]:
    """Adds the layers that open() adds for these arguments."""
    if not mode.is_text and (encoding, errors, newline) != (None, None, None):
        raise ValueError("binary mode doesn't take an encoding, errors or newline argument")
    if buffering == 0:
        if mode.is_text:
            raise ValueError("can't have unbuffered text I/O")
        return cast("IO[Any]", raw)
    size = buffering if buffering > 1 else 1 << 16
    buffer: Union[io.BufferedRandom, io.BufferedWriter, io.BufferedReader]
    if mode.reads and mode.writes:
        buffer = io.BufferedRandom(raw, size)
    elif mode.writes:
        buffer = io.BufferedWriter(raw, size)
    else:
        buffer = io.BufferedReader(raw, size)
    if not mode.is_text:
        return buffer
    return io.TextIOWrapper(buffer, encoding or "utf-8", errors, newline, buffering == 1)


def fsync(file: Any) -> None:
    """Writes out the buffers of a file that was opened here, and makes it durable."""
    file.flush()
    while not isinstance(file, File):
        file = file.buffer if isinstance(file, io.TextIOWrapper) else file.raw
    file.fsync()


def as_bytes(data: Any) -> bytes:
    """Returns the bytes of any object that has a buffer."""
    return data if type(data) is bytes else bytes(memoryview(data))
