"""Mounts by FUSE."""

import os
import threading
from typing import Union

from . import _native
from ._closing import Closing


class Mount(Closing):
    """A mount, which threads of this process serve until it is unmounted.

    As a context manager it is unmounted and closed at the end. It has to be closed before the
    process ends. If it is dropped instead, it ends even if it is in use.
    """

    def __init__(self, native: _native.Mount, directory: Union[str, os.PathLike[str]]) -> None:
        self._native = native
        self.directory = os.fspath(directory)

    def __repr__(self) -> str:
        state = " [closed]" if self.closed else ""
        return f"<userbtrfs.Mount {self.directory!r}{state}>"

    def _end(self) -> None:
        if not self.closed:
            self.unmount()
            self.close()

    def unmount(self) -> None:
        """Unmounts; raises an OSError with EBUSY if it is in use. A second call does nothing."""
        self._native.unmount()

    def wait(self) -> None:
        """Waits until it is unmounted, by another thread or by umount(8). Signals are handled."""
        self._check_open()
        thread = threading.Thread(target=self._native.wait, daemon=True)
        thread.start()
        thread.join()

    def close(self) -> None:
        """Waits until it is unmounted, and makes all changes durable; a second call does nothing.

        If the filesystem was closed, the image is closed as well.
        """
        if not self.closed:
            self.wait()
            self.closed = True
            self._native.close()
