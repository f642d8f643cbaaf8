#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`cohort verify RECIPE --all --every K` of narrow language models: the layouts that it
takes have every axis, and all are equal to one rank. The long form takes every layout.
"""
import json
import re
import sys
import unittest

import train_run

DEADLINE_S = 500  # one command makes many steps
NARROW = {"model.width": 16, "model.context": 8}
EVERY = 1 if train_run.LONG else 7
LISTED = (train_run.ROOT / "docs/verify_layouts.txt").read_text().splitlines()
ORDERS = ["gpipe", "1f1b", "interleaved", "zero-bubble"]
# Two key-value heads of llama-tiny cannot be cut in four.
TENSOR_RANKS = {"gpt-tiny": "124", "llama-tiny": "12", "bert-tiny": "124"}


def values_of(name):
    """What a layout "dp=2,tp=2,pp=2,shard=3, 1f1b, recompute" has of each axis."""
    keys = {"tp": "1", "pp": "1", "replicate": "1", **dict(re.findall(r"(\w+)=(\d+)", name))}
    values = {(key, value) for key, value in keys.items()}
    for order in ORDERS:
        if order in name:
            values.add((f"pp={keys['pp']}", order))
    values.add(("recompute", "recompute" in name))
    if keys["tp"] != "1":
        values.add(("whole sequences", "whole sequences" in name))
    if all(keys[key] != "1" for key in ("dp", "tp", "pp")):
        values.add(("product", "of all axes"))
    return values


def wanted(recipe):
    return ({("tp", ranks) for ranks in TENSOR_RANKS[recipe]}
            | {("pp", places) for places in "1234"}
            | {(f"pp={places}", order) for places in (2, 4) for order in ORDERS}
            | {("dp", ranks) for ranks in "1234"}
            | {("shard", level) for level in "0123"}
            | {("replicate", copies) for copies in "12"}
            | {(what, yes) for what in ("recompute", "whole sequences")
               for yes in (False, True)}
            | {("product", "of all axes")})


class Verify(unittest.TestCase):
    def verify(self, recipe, *args):
        run = train_run.cohort("verify", recipe, "--all", "--every", EVERY, "--json",
                               *train_run.assignments(NARROW), *args,
                               deadline_s=DEADLINE_S)
        rows = [json.loads(line) for line in run.out.splitlines()]
        self.assertEqual([row for row in rows if not row["equal"]], [])
        self.assertEqual(run.code, 0, run.err)
        names = [row["layout"] for row in rows]
        found = set().union(*map(values_of, names))
        self.assertLessEqual(wanted(recipe), found)
        self.assert_listed(names, TENSOR_RANKS[recipe])
        print(f"{recipe} {' '.join(args)}: {len(names)} layouts", *names, sep="\n  ",
              file=sys.stderr)

    def assert_listed(self, names, tensor_ranks):
        """docs/verify_layouts.txt has them; and no others, if every layout is taken."""
        possible = [name for name in LISTED
                    if dict(values_of(name))["tp"] in tensor_ranks]
        self.assertLessEqual(set(names), set(possible))
        if EVERY == 1:
            self.assertEqual(names, possible)

    def test_gpt_tiny(self):
        self.verify("gpt-tiny")

    def test_llama_tiny(self):
        self.verify("llama-tiny")

    def test_bert_tiny(self):
        self.verify("bert-tiny")

    def test_every_bit_of_gpt_tiny(self):
        self.verify("gpt-tiny", "--exact")


if __name__ == "__main__":
    unittest.main()
