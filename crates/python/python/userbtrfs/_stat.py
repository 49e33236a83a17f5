"""Attributes as `os.stat_result`."""

import os

from . import _native


def stat_result(stat: "_native._Stat") -> os.stat_result:
    """Returns the attributes; `st_dev` is the id of the subvolume."""
    mode, inode, subvolume, links, uid, gid = stat[0]
    size, allocated, major, minor = stat[1]
    accessed, modified, changed, _created = stat[2]
    nanoseconds = [seconds * 1_000_000_000 + rest for seconds, rest in (accessed, modified, changed)]
    visible = (mode, inode, subvolume, links, uid, gid, size, accessed[0], modified[0], changed[0])
    others: dict[str, object] = {
        "st_atime": nanoseconds[0] / 1e9,
        "st_mtime": nanoseconds[1] / 1e9,
        "st_ctime": nanoseconds[2] / 1e9,
        "st_atime_ns": nanoseconds[0],
        "st_mtime_ns": nanoseconds[1],
        "st_ctime_ns": nanoseconds[2],
        "st_blksize": 4096,
        "st_blocks": (allocated + 511) // 512,
        "st_rdev": os.makedev(major, minor),
    }
    return os.stat_result(visible, others)


def created(stat: "_native._Stat") -> float:
    """Returns the time of creation, which os.stat_result does not have."""
    seconds, nanoseconds = stat[2][3]
    return seconds + nanoseconds / 1e9
