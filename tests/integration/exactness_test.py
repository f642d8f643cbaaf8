#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""--exact: one weights_hash per run and precision, however many ranks made the weights.

Every pair of values of every two factors is tried; COHORT_LONG=1 tries all of them, each
once and for more steps, COHORT_PART=i/n every n-th of these from the i-th on; COHORT_JOBS=k
(2) of them at once.
"""
import concurrent.futures
import itertools
import os
import random
import sys
import unittest

import train_run

STEPS = 20 if train_run.LONG else 10
FACTORS = {
    "run": ["fashion-mnist", "mlp", "cifar-resnet50v2", "augmented resnet18"],
    "precision": ["float32", "bf16"],
    "ranks": [1, 2, 3, 4, 8],
    "shard": [0, 1, 2, 3],
    "stages": [1, 2, 3],  # where ranks can be cut into so many
    "recompute": ["none", "all", "every=2"],
    "backend": ["shm", "gloo"],
}
RUNS = {  # recipe, and keys for seconds instead of minutes
    "fashion-mnist": ("fashion-mnist", {"model.width": 4}),
    "mlp": ("mlp", {"model.width": 32}),
    "cifar-resnet50v2": ("cifar-resnet50v2", {"model.width": 4, "model.depth": 1}),
    "augmented resnet18": ("cifar-resnet50v2", {
        "model.name": "resnet18", "model.width": 4, "model.depth": 1,
        "data.augment": "true"}),
}


def all_pairs(factors, seed=1):
    """Few rows in which every pair of values of every two factors occurs."""
    names = list(factors)
    missing = {(a, x, b, y) for a, b in itertools.combinations(names, 2)
               for x in factors[a] for y in factors[b]}
    choose, rows = random.Random(seed), []
    while missing:
        tries = []
        a, x, b, y = next(iter(sorted(missing, key=str)))
        for _ in range(60):
            row = {name: choose.choice(values) for name, values in factors.items()}
            row[a], row[b] = x, y
            tries.append(row)
        best = max(tries, key=lambda row: len(missing & pairs_of(names, row)))
        missing -= pairs_of(names, best)
        rows.append(best)
    return rows


def pairs_of(names, row):
    return {(a, row[a], b, row[b]) for a, b in itertools.combinations(names, 2)}


def weights_hash(case):
    recipe, small = RUNS[case["run"]]
    stages = case["stages"] if case["ranks"] % case["stages"] == 0 else 1
    keys = {"slices": 8, "batch": 20, "data.synthetic": "true", "valid.every_epochs": 0,
            "precision": case["precision"], "step.recompute": case["recompute"],
            "threads": 1, **small}
    run = train_run.cohort("train", recipe, "-n", case["ranks"], "--exact",
                           "--backend", case["backend"], "--max-steps", STEPS, "--json",
                           "--layout", f"pp={stages},shard={case['shard']}",
                           *train_run.assignments(keys))
    assert run.code == 0, (case, run.code, run.err)
    return run.done["weights_hash"]


def cases():
    if not train_run.LONG:
        return all_pairs(FACTORS)
    rows = [dict(zip(FACTORS, row)) for row in itertools.product(*FACTORS.values())]
    rows = [row for row in rows if row["ranks"] % row["stages"] == 0]
    first, step = map(int, os.environ.get("COHORT_PART", "0/1").split("/"))
    return rows[first::step]


class Exactness(unittest.TestCase):
    def test_weights_do_not_depend_on_who_made_them(self):
        rows = cases()
        alone = {"ranks": 1, "shard": 0, "recompute": "none", "backend": "shm"}
        ones = {(row["run"], row["precision"]): {**row, **alone} for row in rows}
        jobs = int(os.environ.get("COHORT_JOBS", 2))
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            expected = dict(zip(ones, pool.map(weights_hash, ones.values())))
            for case, got in zip(rows, pool.map(weights_hash, rows)):
                with self.subTest(**case):
                    self.assertEqual(got, expected[case["run"], case["precision"]])
        self.assertEqual(len(set(expected.values())), len(expected), expected)
        print(f"{len(rows)} runs, {len(expected)} hashes", file=sys.stderr)


if __name__ == "__main__":
    unittest.main()
