"""btrfs in user space: reads, makes and changes btrfs images, in files or on block devices.

>>> import userbtrfs
>>> userbtrfs.mkfs("disk.img", size=256 << 20)
>>> with userbtrfs.Filesystem("disk.img", writable=True) as fs:
...     (fs / "notes.txt").write_text("hello")
...     fs.snapshot("/", "/monday", read_only=True)

Errors are OSError with errno and filename; docs/python.md is the guide.
"""

from ._file import File, fsync
from ._filesystem import Filesystem, Subvolume, mkfs
from ._mount import Mount
from ._path import DirEntry, Path

__all__ = ["DirEntry", "File", "Filesystem", "Mount", "Path", "Subvolume", "fsync", "mkfs"]
