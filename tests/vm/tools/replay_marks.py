#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Replays a log of writes to a blank disk; at every flush mark, and at some of the flushes between,
recovers the volume on a snapshot of the disk and compares it with what was flushed by then.

usage: replay_marks.py LOG DISK SNAPSHOT_STORE SEED ROUND TABLE [--between N] [--audit N]

DISK is a loop device without content. SNAPSHOT_STORE is a device for what a recovery writes. TABLE has @ for
the volume's device. --between: at how many more flushes, spread evenly; --audit: after each N-th recovery
the volume is audited (the tools know the original format only).
"""

import argparse
import functools
import os
import subprocess
import sys
import time

import crash_verify
from crash_model import BLOCKS, PROCESSES, ZERO
from write_log import FLUSH, FUA, WriteLog


# The same contents are looked for at every mark.
crash_verify.content = functools.lru_cache(maxsize=16384)(crash_verify.content)


def run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: status {done.returncode}: {done.stdout[-500:]}")
    return done.stdout


class Replay:
    def __init__(self, args):
        self.args = args
        self.log = WriteLog(args.log)
        self.disk = os.open(args.disk, os.O_RDWR)
        self.sectors = int(run("blockdev", "--getsz", args.disk))
        self.progress = [(0, 0, 0)] * PROCESSES
        self.recovered = self.audited = self.wrong = 0
        self.old = 0

    def flushed(self):
        return sum(p[2] for p in self.progress)

    def recover(self, what):
        os.fsync(self.disk)
        args = self.args
        run("dmsetup", "create", "replayed", "--table",
            f"0 {self.sectors} snapshot {args.disk} {args.store} N 128")
        times = [time.monotonic()]
        run("dmsetup", "create", "r", "--table", args.table.replace("@", "/dev/mapper/replayed"))
        times.append(time.monotonic())
        base = [[ZERO] * BLOCKS] * PROCESSES
        _, figures, complaints = crash_verify.verify("/dev/mapper/r", args.seed, args.round, base, self.progress)
        times.append(time.monotonic())
        mode = run("dmsetup", "status", "r").split()[4]
        if mode not in ("normal", "recovering"):
            complaints.append(f"the volume is {mode}")
        while mode == "recovering":
            mode = run("dmsetup", "status", "r").split()[4]
        run("dmsetup", "remove", "r")
        times.append(time.monotonic())
        self.recovered += 1
        if args.audit and self.recovered % args.audit == 0:
            run("vdoaudit", "/dev/mapper/replayed")
            self.audited += 1
        run("dmsetup", "remove", "replayed")
        if complaints:
            self.wrong += 1
            print(f"at {what}: {figures}")
            for complaint in complaints[:5]:
                print(f"    {complaint}")
        elif self.recovered % 10 == 1:
            start, check, stop = (f"{b - a:.1f}" for a, b in zip(times, times[1:]))
            print(f"at {what}: {figures}; {start} s to start, {check} s to read, {stop} s to stop", flush=True)

    def run(self):
        entries = list(self.log.entries())
        # A mark that says no more than the one before (what is issued) is no place of its own.
        places = {}
        at = [(0, 0, 0)] * PROCESSES
        flushes = []
        for number, entry in enumerate(entries):
            if entry.mark and entry.mark[0].isdigit():
                process, *counts = map(int, entry.mark.split(":"))
                if counts[2] > at[process][2]:
                    places[number] = "mark"
                at[process] = tuple(counts)
            elif entry.flags & (FLUSH | FUA) and any(p[0] for p in at):
                flushes.append(number)
        marks = len(places)
        for i in range(min(self.args.between, len(flushes))):
            places.setdefault(flushes[i * len(flushes) // self.args.between], "flush")
        print(f"log of {len(entries)} entries: {marks} marks after flushes of users, "
              f"{len(flushes)} flushes and FUA writes of the volume's under load", flush=True)
        for number, entry in enumerate(entries):
            if entry.mark:
                if entry.mark[0].isdigit():
                    process, *counts = map(int, entry.mark.split(":"))
                    self.progress[process] = tuple(counts)
            else:
                self.log.apply(entry, self.disk)
            if number in places:
                self.recover(f"entry {number} ({places[number]})")
        self.recover("the end")
        print(f"replayed to {marks} marks, {len(places) - marks} flushes between and the end: {self.recovered} recovered "
              f"and verified, {self.wrong} wrong, {self.audited} audited; {self.flushed()} operations flushed in the end")
        return 1 if self.wrong or not marks else 0


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    for name, kind in (("log", str), ("disk", str), ("store", str), ("seed", int), ("round", int), ("table", str)):
        p.add_argument(name, type=kind)
    p.add_argument("--between", type=int, default=0)
    p.add_argument("--audit", type=int, default=0)
    return Replay(p.parse_args()).run()


if __name__ == "__main__":
    sys.exit(main())
