#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of tests/fuzz/corpus/: good files and known attacks, for each reader.

Usage: tests/fuzz/make_corpus.py [DIR]

Those of a reader are what the function NAME_seeds of a module here yields, with their names.
What a fuzzer found lies beside them under the name found-*, and stays.
"""

import sys
from pathlib import Path

import checkpoint_seeds
import data_seeds
import run_seeds
import text_seeds

HERE = Path(__file__).resolve().parent


def makers():
    """Of each reader, what yields its seeds."""
    ending = "_seeds"
    return {name.removesuffix(ending): make
            for module in (checkpoint_seeds, data_seeds, run_seeds, text_seeds)
            for name, make in vars(module).items() if name.endswith(ending)}


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "corpus"
    for reader, make in sorted(makers().items()):
        folder = root / reader
        folder.mkdir(parents=True, exist_ok=True)
        for seed, data in make():
            (folder / seed).write_bytes(data)


if __name__ == "__main__":
    main()
