#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Reads every block that crash_writer.py wrote to DEVICE: each has to hold what RECORD allows.

usage: crash_verify.py DEVICE RECORD [--keep] [--in-tree] [--nothing-flushed]

Prints figures. --in-tree: the in-tree driver wrote them, and does not heed FUA for zeroes.
--nothing-flushed: the disk lied, so each block may be as old as the base. What was found becomes the record's base, with nothing issued, unless --keep is given.
"""

import os
import sys

from crash_model import BLOCK, BLOCKS, CHUNK, PROCESSES, Buffer, Record, allowed, content, lba


def blocks_of(device, process):
    """Every block of the process, in order."""
    buffer = Buffer(CHUNK * BLOCK).view
    for index in range(0, BLOCKS, CHUNK):
        if os.preadv(device, [buffer], lba(process, index) * BLOCK) != len(buffer):
            raise OSError("short read")
        for i in range(CHUNK):
            yield bytes(buffer[i * BLOCK:(i + 1) * BLOCK])


def verify(path, seed, round_, base, progress, fua_zero=True):
    """(blocks found, figures, complaints)"""
    device = os.open(path, os.O_RDONLY | os.O_DIRECT)
    found, complaints = [], []
    exact = open_ = old = 0
    for process in range(PROCESSES):
        mine = []
        may = allowed(seed, round_, process, base[process], progress[process], fua_zero)
        for index, data in enumerate(blocks_of(device, process)):
            numbers = [n for n in may[index] if content(n) == data]
            if not numbers:
                complaints.append(f"block {lba(process, index)} of process {process} has none of {may[index]}")
                numbers = [0]
            mine.append(numbers[-1])
            exact += len(may[index]) == 1
            open_ += len(may[index]) > 1
            old += len(may[index]) > 1 and numbers[-1] != may[index][-1]
        found.append(mine)
    os.close(device)
    issued = sum(p[0] for p in progress)
    flushed = sum(p[2] for p in progress)
    figures = (f"round {round_}, {issued} operations issued, {flushed} flushed; {exact} blocks exact, "
               f"{open_} old or new ({old} old), {len(complaints)} wrong")
    return found, figures, complaints


def main():
    path, record_path = sys.argv[1:3]
    record = Record(record_path)
    seed, round_, base, progress = record.read()
    if "--nothing-flushed" in sys.argv:
        progress = [(issued, 0, 0) for issued, _, _ in progress]
    found, figures, complaints = verify(path, seed, round_, base, progress, "--in-tree" not in sys.argv)
    print(f"verified: {figures}")
    for complaint in complaints[:20]:
        print(complaint)
    if complaints:
        return 1
    if "--keep" not in sys.argv:
        record.begin(seed, round_, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
