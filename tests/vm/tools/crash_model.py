# SPDX-License-Identifier: GPL-2.0
"""What crash tests write, and what each block may hold after a crash.

Several processes write at a time, each to blocks of its own, in an order that follows from
(seed, round, process). So a record of how far each of them came says all: what was issued, and
what a flush or FUA made durable. Contents are numbered, and a number gives 4096 bytes.
"""

import array
import hashlib
import os
import random
import struct

BLOCK = 4096
PROCESSES = 8
# A process has 64 chunks of 8 blocks, a chunk in every 64 blocks: leaves of the block map get busy.
CHUNK, CHUNKS, STRIDE = 8, 64, 64
BLOCKS = CHUNK * CHUNKS
REGION = CHUNKS * STRIDE
# What a volume needs to be large enough, in MiB.
LOGICAL_MIB = PROCESSES * REGION * BLOCK >> 20

ZERO = 0
TEXT = b"some text that repeats " * 200


def content(number):
    """The block of that number: noise, much or little compressible."""
    if number == ZERO:
        return bytes(BLOCK)
    noise = (BLOCK, 300, 1200, 2600)[number % 4]
    return (hashlib.shake_128(b"%d" % number).digest(noise) + TEXT)[:BLOCK]


def lba(process, index):
    return process * REGION + index // CHUNK * STRIDE + index % CHUNK


class Op:
    """`count` blocks from `index` on become `numbers`, all zero by a discard."""

    def __init__(self, kind, index, numbers):
        self.kind, self.index, self.numbers = kind, index, numbers


def operations(seed, round_, process):
    """The endless stream of one process: lists of operations, a flush after each list."""
    r = random.Random(f"{seed}/{round_}/{process}")
    serial = 0
    while True:
        batch = []
        for _ in range(r.randrange(1, 24)):
            count = r.choice((1, 1, 1, 2, 4, 8))
            index = r.randrange(CHUNKS) * CHUNK + r.randrange(CHUNK - count + 1)
            kind = r.choice(("write",) * 12 + ("fua", "discard"))
            numbers = []
            for _ in range(count):
                serial += 1
                if kind == "discard" or r.random() < 0.03:
                    numbers.append(ZERO)
                elif r.random() < 0.4:
                    # Shared by all processes and rounds.
                    numbers.append(r.randrange(1, 65))
                else:
                    numbers.append((round_ << 32 | process << 28 | serial) * 4 + r.randrange(4))
            batch.append(Op(kind, index, numbers))
        yield batch


class Buffer:
    """Memory for O_DIRECT."""

    def __init__(self, size):
        self.memory = array.array("B", bytes(size + BLOCK))
        at = -self.memory.buffer_info()[0] % BLOCK
        self.view = memoryview(self.memory)[at:at + size]


class Record:
    """The file (or disk) that outlives the crash: how far each process came in this round, and what
    every block held before it."""

    MAGIC = 0x6863615274736174
    BASE_AT = 1 << 20

    def __init__(self, path):
        self.file = os.open(path, os.O_RDWR | os.O_CREAT)

    def _write(self, data, at):
        if os.pwrite(self.file, data, at) != len(data):
            raise OSError("short write of the record")
        os.fdatasync(self.file)

    def begin(self, seed, round_, base):
        """A round begins: nothing issued, blocks as in `base`."""
        self._write(array.array("Q", sum(base, [])).tobytes(), self.BASE_AT)
        for process in range(PROCESSES):
            self.progress(process, 0, 0, 0)
        self._write(struct.pack("<QQQ", self.MAGIC, seed, round_), 0)

    def progress(self, process, issued, completed, flushed):
        """`issued` before they are; `completed` counts for FUA; `flushed` after a flush ended."""
        self._write(struct.pack("<QQQ", issued, completed, flushed).ljust(512, b"\0"), (1 + process) * BLOCK)

    def read(self):
        """seed, round, base, [(issued, completed, flushed)]"""
        magic, seed, round_ = struct.unpack("<QQQ", os.pread(self.file, 24, 0))
        if magic != self.MAGIC:
            raise ValueError("no record there")
        base = array.array("Q", os.pread(self.file, PROCESSES * BLOCKS * 8, self.BASE_AT)).tolist()
        base = [base[p * BLOCKS:(p + 1) * BLOCKS] for p in range(PROCESSES)]
        progress = [struct.unpack("<QQQ", os.pread(self.file, 24, (1 + p) * BLOCK)) for p in range(PROCESSES)]
        return seed, round_, base, progress


def allowed(seed, round_, process, base, progress, fua_zero=True):
    """For each block of the process the numbers it may have. Without fua_zero a zero block written with FUA
    is not durable by that (the in-tree driver's are not)."""
    issued, completed, flushed = progress
    may = [[number] for number in base]
    done = 0
    for batch in operations(seed, round_, process):
        for op in batch:
            if done == issued:
                return may
            for at, number in enumerate(op.numbers, op.index):
                fua = op.kind == "fua" and done < completed and (fua_zero or number != ZERO)
                durable = done < flushed or fua
                may[at] = [number] if durable else may[at] + [number]
            done += 1
