#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares what captured steps start: files of bench/graph_kernels.cpp.

    bench/same_kernels.py ONE OTHER...

Prints, for each other file, how many lines it shares with the first, and every line
that one of the two has more often. Exit code 1 if the first has one that another lacks.
"""
import collections
import sys


def lines_of(path):
    with open(path, encoding="utf-8") as file:
        return collections.Counter(line.strip() for line in file)


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    one = lines_of(sys.argv[1])
    lacks = False
    for path in sys.argv[2:]:
        other = lines_of(path)
        print(f"{path}: {sum((one & other).values())} of {sum(one.values())} lines")
        for line, count in sorted((one - other).items()):
            lacks = True
            print(f"  missing {count} x {line}")
        for line, count in sorted((other - one).items()):
            print(f"  more    {count} x {line}")
    sys.exit(lacks)


if __name__ == "__main__":
    main()
