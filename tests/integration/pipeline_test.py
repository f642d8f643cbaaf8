#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pipelines from outside: layouts meet in one hash, a lost stage comes back, refusals."""
import os
import signal
import unittest

import train_run

KEYS = {**train_run.SMALL, "slices": 6}


class Pipelines(train_run.TrainTest):
    def exact(self, ranks, steps, *args, keys={}):
        run = train_run.train(ranks, "--exact", "--max-steps", steps, *args,
                              keys={**KEYS, **keys})
        self.assertEqual(run.code, 0, run.err)
        return run.done["weights_hash"]

    def test_a_checkpoint_of_stages_is_loaded_by_any_layout(self):
        saved = {"checkpoint.dir": self.root, "checkpoint.every_steps": 4}
        wanted = self.exact(1, 12)
        self.exact(4, 4, "--layout", "dp=2,pp=2,shard=2", keys=saved)
        self.exact(3, 8, "--resume", keys=saved)
        self.assertEqual(self.exact(4, 12, "--resume", "--layout", "pp=4", keys=saved),
                         wanted)

    def test_a_lost_stage_comes_back_from_its_neighbour(self):
        steps = 80
        wanted = self.exact(1, steps)
        run = self.start(3, "--exact", "--layout", "pp=3", "--max-steps", steps,
                         keys={**KEYS, "elastic": "on"})
        events = self.read_steps(run, 20)
        os.kill(train_run.pids_of(events)[1], signal.SIGKILL)
        ended = train_run.finish(run)
        self.assertEqual(ended.code, 0, ended.err)
        self.assertEqual(ended.done["weights_hash"], wanted)
        self.assertGreaterEqual(ended.done["restarts"], 1)

    def table(self, blocks, long_block=None):
        """Of costs: each block takes as long, but for one."""
        path = self.scratch / "costs.csv"
        rows = ["what,name,fixed_us,per_sample_us,gb_per_s,hidden", "link,*,5,,10,true"]
        for block in range(blocks):
            for what in ("forward", "backward"):
                rows.append(f"{what},{block},{900 if block == long_block else 1},,,")
        path.write_text("\n".join(rows) + "\n")
        return path

    def memory_of_stages(self, **cut):
        """What a run says of the memory of its stages, as it refuses them."""
        keys = {**KEYS, "memory.limit": "1K",
                **{key.replace("__", "."): value for key, value in cut.items()}}
        run = train_run.train(2, "--layout", "pp=2", keys=keys)
        self.assertEqual(run.code, 2, run.err)
        return run.err[run.err.index("a rank would need"):]

    def test_a_table_of_seconds_cuts_stages_and_changes_no_bit(self):
        wanted = self.exact(1, 4)
        needs = set()
        for long_block, cut in ((0, "0,1-3"), (3, "0-2,3")):
            costs = self.table(4, long_block)
            self.assertEqual(self.memory_of_stages(pipeline__costs=costs),
                             self.memory_of_stages(pipeline__cut=cut))
            needs.add(self.memory_of_stages(pipeline__costs=costs))
            self.assertEqual(self.exact(2, 4, "--layout", "pp=2",
                                        keys={"pipeline.costs": costs}), wanted)
        self.assertEqual(len(needs), 2)  # so that they say which cut it is

    def test_a_table_that_cannot_cut_is_one_line_before_any_rank_starts(self):
        links = self.scratch / "links.csv"
        links.write_text("what,name,fixed_us,per_sample_us,gb_per_s,hidden\nlink,*,5,,10,\n")
        none = self.scratch / "none.csv"
        gap = self.scratch / "gap.csv"
        gap.write_text(links.read_text() + "forward,3,1,,,\nbackward,3,1,,,\n")
        table = self.table(3)
        for layout, keys, why in (
                ("pp=2", {"pipeline.costs": none}, f"{none}.*No such file"),
                ("pp=2", {"pipeline.costs": links}, f"pipeline.costs={links} has no blocks; "
                 "legal: a table of costs with rows forward and backward"),
                ("pp=2", {"pipeline.costs": gap}, f"pipeline.costs={gap}: block 0 takes no time; "
                 "legal: a table with rows forward and backward of each block"),
                ("pp=2", {"pipeline.costs": table},
                 f"pipeline.costs={table} has 3 blocks, and the model 4; legal: a table"),
                ("dp=2", {"pipeline.costs": table},
                 "pipeline.costs with pp=1, where nothing is cut; legal: no pipeline.costs, or "
                 "--layout pp=2 and more"),
                ("pp=2", {"pipeline.costs": table, "pipeline.cut": "0,1-3"},
                 f"pipeline.costs={table} with pipeline.cut=0,1-3; legal: one of them")):
            for command in (["train"], ["step"], ["step", "--measure", 3], ["verify"]):
                with self.subTest(why=why, command=command):
                    run = train_run.cohort(*command, "fashion-mnist", "-n", 2, "--layout", layout,
                                           *train_run.assignments({**KEYS, **keys}))
                    self.assertEqual(run.code, 2, run.err)
                    self.assertRegex(run.err, why)
                    self.assertEqual(len(run.err.splitlines()), 1, run.err)
                    self.assertEqual(run.out, "")

    def test_what_cannot_be_is_one_line_before_any_rank_starts(self):
        for ranks, layout, why in (
                (5, "pp=5", "the model has 4 blocks, which is no stage for each"),
                (5, "pp=2", "is for 4 ranks; the world has 5"),
                (2, "pp=0", "legal: a number from 1")):
            run = train_run.train(ranks, "--layout", layout, keys=KEYS)
            self.assertEqual(run.code, 2, layout)
            self.assertIn(why, run.err)
            self.assertEqual(len(run.err.splitlines()), 1, run.err)


if __name__ == "__main__":
    unittest.main()
