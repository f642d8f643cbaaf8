#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`cohort step --measure`: ranks run the step, and its times come back in the files."""
import csv
import json
import tempfile
import unittest
from pathlib import Path

from train_run import cohort as run

KEYS = ["--set", "model.width=32", "--set", "data.synthetic=true", "--set", "slices=4"]


def rows_of(path):
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines))


class StepMeasure(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def path(self, name):
        return self.folder / name

    def measure(self, ranks, shard, *more):
        return run("step", "mlp", "-n", ranks, "--layout", f"shard={shard}",
                   "--set", "batch=16", "--measure", 3, *KEYS, *more)

    def check_times(self, rows, ranks):
        """Every action of every rank has a time, in the order of lanes and waits."""
        self.assertEqual({row["ranks"] for row in rows}, set(map(str, range(ranks))))
        for rank in map(str, range(ranks)):
            own = [row for row in rows if row["ranks"] == rank]
            spans = [(float(row["start_us"]), float(row["end_us"])) for row in own]
            lanes = {}
            for row, (begin, end) in zip(own, spans):
                self.assertLessEqual(begin, end)
                self.assertGreaterEqual(begin, lanes.get(row["lane"], 0))
                lanes[row["lane"]] = end
                for wait in filter(None, row["waits"].split(";")):
                    self.assertGreaterEqual(begin, spans[int(wait)][1])

    def test_times_come_back_in_the_same_step(self):
        for ranks, shard in ((1, 0), (2, 1), (3, 3)):
            with self.subTest(ranks=ranks, shard=shard):
                step = self.path("step.csv")
                done = self.measure(ranks, shard, "--csv", step)
                self.assertEqual(done.code, 0, done.err)
                self.assertIn("predicted", done.out)
                self.check_times(rows_of(step), ranks)
                again = run("step", "--from", step, "--svg", self.path("again.svg"))
                self.assertEqual(again.code, 0, again.err)
                self.assertIn("measured", again.out)
                self.assertIn(">measured<", self.path("again.svg").read_text())

    def test_predicted_and_measured_are_one_picture_and_one_trace(self):
        done = self.measure(2, 3, "--svg", self.path("a.svg"),
                            "--trace", self.path("a.json"), "--json")
        self.assertEqual(done.code, 0, done.err)
        (row,) = done.events
        self.assertGreater(row["measured_step_ms"], 0)
        self.assertGreater(row["predicted_over_measured"], 0)
        self.assertGreater(row["measured_peak_memory_bytes"], 0)
        picture = self.path("a.svg").read_text()
        self.assertIn(">predicted<", picture)
        self.assertIn(">measured<", picture)
        events = json.loads(self.path("a.json").read_text())["traceEvents"]
        lanes = {event["cat"] for event in events if event["ph"] == "X"}
        self.assertEqual(lanes, {"compute", "dp", "measured compute", "measured dp"})

    def test_measured_costs_foretell_another_batch(self):
        costs = self.path("costs.csv")
        done = self.measure(2, 2, "--costs-at", "8,24", "--costs-out", costs)
        self.assertEqual(done.code, 0, done.err)
        self.assertIn("batch 8 and 24", done.out)
        kinds = {row["name"] for row in rows_of(costs) if row["what"] == "link"}
        self.assertIn("dp/ReduceScatter", kinds)
        other = run("step", "mlp", "-n", 2, "--layout", "shard=2", "--costs", costs,
                    "--set", "batch=64", *KEYS, "--json")
        self.assertEqual(other.code, 0, other.err)
        self.assertEqual(other.events[0]["costs"], str(costs))

    def test_what_is_wrong_is_one_line_before_any_rank_starts(self):
        bad = self.path("bad.csv")
        bad.write_text("what,name,fixed_us,per_sample_us,gb_per_s,hidden\nlnk,dp,1,,1,\n")
        for more, word in ((["--costs", bad], "line 2: 'lnk'"),
                           (["--costs-at", "2"], "--costs-at 2"),
                           (["--backend", "shn"], "nearest"),
                           (["--set", "data.dri=x"], "data.dir")):
            with self.subTest(word=word):
                done = self.measure(2, 0, *more)
                self.assertEqual(done.code, 2, done.err)
                self.assertEqual(len(done.err.strip().splitlines()), 1, done.err)
                self.assertIn(word, done.err)
        done = run("step", "--from", bad, "--measure", 3)
        self.assertEqual(done.code, 2)
        self.assertIn("--measure runs a recipe", done.err)


if __name__ == "__main__":
    unittest.main()
