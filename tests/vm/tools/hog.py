#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Takes memory, page by page, each page with content of its own, and checks all of it several times.

usage: hog.py (--until-available MIB | --take MIB) [--rounds N] [--while FILE]

--until-available: until the kernel says that no more than that is available. --while: goes on checking while FILE
exists. Prints how much was taken, and fails when a page changed.
"""

import argparse
import os
import sys

PAGE = 4096
PART = 1 << 20


def available():
    with open("/proc/meminfo") as lines:
        return next(int(line.split()[1]) >> 10 for line in lines if line.startswith("MemAvailable"))


def part(number):
    """1 MiB: noise that a compressor gets a little out of."""
    page = os.urandom(3000) + bytes(PAGE - 3000)
    return bytearray(b"".join(b"%016d" % (number * 256 + i) + page[16:] for i in range(PART // PAGE)))


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("--until-available", type=int)
    p.add_argument("--take", type=int)
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--while", dest="while_")
    args = p.parse_args()
    taken, sums = [], []
    while len(taken) < args.take if args.take else available() > args.until_available:
        taken.append(part(len(taken)))
        sums.append(hash(bytes(taken[-1])))
    print(f"hog: {len(taken)} MiB taken, {available()} MiB available", flush=True)
    rounds = 0
    while rounds < args.rounds or (args.while_ and os.path.exists(args.while_)):
        for number, memory in enumerate(taken):
            if hash(bytes(memory)) != sums[number]:
                print(f"hog: MiB {number} is not what it was")
                return 1
        rounds += 1
    print(f"hog: checked {rounds} times")
    return 0


if __name__ == "__main__":
    sys.exit(main())
