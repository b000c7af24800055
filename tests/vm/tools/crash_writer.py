#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Writes to DEVICE from several processes at a time and keeps the record in RECORD.

usage: crash_writer.py DEVICE RECORD SEED ROUND [--new] [--operations N] [--marks LOG]
                       [--midway COMMAND] [--cut MARKER [--with COMMAND]]

The round begins with what the record says that blocks hold; --new: with zeroes. Process SEED+ROUND
modulo their number leads: after N/2 operations it runs the --midway command, after N it prints the
--cut marker and runs the --with command while the others write on. Without --cut each process ends
at the first flush after N operations. --marks: tells the log-writes device LOG what is issued and
flushed, in marks `PROCESS:ISSUED:COMPLETED:FLUSHED`. An error ends the process, which prints what it was
doing and the error's name.
"""

import argparse
import errno
import fcntl
import os
import struct
import subprocess
import sys

from crash_model import BLOCK, BLOCKS, CHUNK, PROCESSES, ZERO, Buffer, Record, content, lba, operations

BLKDISCARD = 0x1277
DM_TARGET_MSG = 0xC138FD0E


def mark(device, text):
    """A mark (one word) in the log of a log-writes device, without the cost of starting dmsetup."""
    message = struct.pack("<Q", 0) + f"mark {text}\0".encode()
    size = 312 + len(message)
    head = struct.pack("<IIIIIII", 4, 0, 0, size, 312, 0, 0).ljust(48, b"\0") + device.encode().ljust(264, b"\0")
    with open("/dev/mapper/control", "rb") as control:
        fcntl.ioctl(control, DM_TARGET_MSG, bytearray(head + message))


class Process:
    def __init__(self, args, number):
        self.args, self.number = args, number
        self.leads = number == (args.seed + args.round) % PROCESSES
        self.device = os.open(args.device, os.O_RDWR | os.O_DIRECT)
        self.record = Record(args.record)
        self.buffer = Buffer(CHUNK * BLOCK).view
        self.doing = "nothing"

    def progress(self, *counts):
        self.record.progress(self.number, *counts)
        if self.args.marks:
            mark(self.args.marks, ":".join(map(str, (self.number, *counts))))

    def do(self, op):
        at, size = lba(self.number, op.index) * BLOCK, len(op.numbers) * BLOCK
        if op.kind == "discard":
            fcntl.ioctl(self.device, BLKDISCARD, struct.pack("QQ", at, size))
            return
        for i, number in enumerate(op.numbers):
            self.buffer[i * BLOCK:(i + 1) * BLOCK] = content(number)
        if os.pwritev(self.device, [self.buffer[:size]], at, os.RWF_DSYNC if op.kind == "fua" else 0) != size:
            raise OSError("short write")

    def events(self, done):
        """What the leader has to do after that many operations."""
        args = self.args
        if args.midway and done == args.operations // 2:
            subprocess.run(args.midway, shell=True, check=True)
        if args.cut and done == args.operations:
            print(f"\n{args.cut}", flush=True)
            if args.with_:
                subprocess.run(args.with_, shell=True)

    def run(self):
        args = self.args
        done = completed = flushed = 0
        for batch in operations(args.seed, args.round, self.number):
            issued = done + len(batch)
            self.progress(issued, completed, flushed)
            for op in batch:
                self.doing = op.kind
                self.do(op)
                done += 1
                if op.kind == "fua":
                    completed = done
                    self.progress(issued, completed, flushed)
                if self.leads:
                    self.events(done)
            self.doing = "flush"
            os.fdatasync(self.device)
            flushed = done
            self.progress(done, completed, flushed)
            if not args.cut and done >= args.operations:
                return


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    for name, kind in (("device", str), ("record", str), ("seed", int), ("round", int)):
        p.add_argument(name, type=kind)
    p.add_argument("--new", action="store_true")
    p.add_argument("--operations", type=int, default=100)
    p.add_argument("--marks")
    p.add_argument("--midway")
    p.add_argument("--cut")
    p.add_argument("--with", dest="with_")
    args = p.parse_args()
    record = Record(args.record)
    base = [[ZERO] * BLOCKS for _ in range(PROCESSES)] if args.new else record.read()[2]
    record.begin(args.seed, args.round, base)
    sys.stdout.flush()
    children = []
    for number in range(PROCESSES):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                process = Process(args, number)
                process.run()
                status = 0
            except OSError as error:
                print(f"{process.doing}: {errno.errorcode.get(error.errno, error)}", flush=True)
            finally:
                os._exit(status)
        children.append(child)
    return max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0 for child in children)


if __name__ == "__main__":
    sys.exit(main())
