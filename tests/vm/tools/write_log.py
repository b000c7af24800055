# SPDX-License-Identifier: GPL-2.0
"""The log of the kernel's log-writes target: what reached the disk, in order, with marks.

A write is in the log once a flush that came after it has ended (or when it was FUA): a disk to which
the log is replayed up to some point is one with a volatile cache that lost its power there.
"""

import os
import struct

FLUSH, FUA, DISCARD, MARK = 1, 2, 4, 8
MAGIC = 0x6A736677736872
COPY_AT_MOST = 1 << 20


class Entry:
    def __init__(self, sector, sectors, flags, data_at, mark):
        self.sector, self.sectors, self.flags, self.data_at, self.mark = sector, sectors, flags, data_at, mark


class WriteLog:
    def __init__(self, path):
        self.file = os.open(path, os.O_RDONLY)
        magic, version, self.count, self.sector_size = struct.unpack("<QQQI", os.pread(self.file, 28, 0))
        if (magic, version) != (MAGIC, 1):
            raise ValueError("not a log of writes")

    def entries(self):
        size, at = self.sector_size, self.sector_size
        for _ in range(self.count):
            raw = os.pread(self.file, size, at)
            sector, sectors, flags, length = struct.unpack("<QQQQ", raw[:32])
            mark = raw[32:32 + length].split(b"\0")[0].decode() if flags & MARK else None
            at += size
            yield Entry(sector, sectors, flags, at, mark)
            if not flags & DISCARD:
                at += sectors * size

    def apply(self, entry, disk):
        """Does to the disk what the entry says. Discarded blocks stay as they are."""
        if entry.flags & DISCARD:
            return
        at, left, to = entry.data_at, entry.sectors * self.sector_size, entry.sector * self.sector_size
        while left:
            data = os.pread(self.file, min(left, COPY_AT_MOST), at)
            if not data or os.pwrite(disk, data, to) != len(data):
                raise OSError("short copy")
            at, to, left = at + len(data), to + len(data), left - len(data)
