#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ten steps of `cohort train` against stock PyTorch's weights on the same samples.

parity_golden.json was made by bench/peers/parity.py --golden; without that option it
is the long form. Ten steps: rounding grows about tenfold in the next ten.
"""
import hashlib
import json
import tempfile
import unittest
from pathlib import Path

import train_run

BOUND = 1e-4
GOLDEN = json.loads(Path(__file__).with_name("parity_golden.json").read_text())


class ParityTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = Path(scratch.name)

    def run_case(self, name, ranks):
        """Events and weights of one run, which must fit its own weights_hash."""
        initial, final, log = (self.scratch / n for n in ("initial", "final", "log"))
        run = train_run.train(
            ranks, "--max-steps", GOLDEN["steps"], "--save-initial", initial,
            "--save-final", final, "--sample-log", log,
            keys={**GOLDEN["cases"][name]["keys"], "log.every_steps": 1})
        self.assertEqual(run.code, 0, run.err)
        samples = train_run.samples_of_steps(train_run.read_samples(log))
        self.assertEqual(hashlib.sha256(json.dumps(samples).encode()).hexdigest(),
                         GOLDEN["samples_sha256"], "other samples than PyTorch had")
        self.assertEqual(run.done["weights_hash"], train_run.weights_hash(final))
        self.assert_close(train_run.read_weights(initial), GOLDEN["initial"], 1e-6)
        return run, train_run.read_weights(final)

    def assert_close(self, weights, golden, bound):
        self.assertEqual(sorted(weights), sorted(golden))
        for name, expected in golden.items():
            values = weights[name][1]
            mean = sum(values) / len(values)
            rms = (sum(v * v for v in values) / len(values)) ** 0.5
            self.assertAlmostEqual(mean, expected["mean"], delta=bound, msg=name)
            self.assertAlmostEqual(rms, expected["rms"], delta=bound, msg=name)
            for place, value in expected["values"].items():
                self.assertAlmostEqual(values[int(place)], value, delta=bound,
                                       msg=f"{name}[{place}]")

    def assert_agree(self, case, worlds):
        golden = GOLDEN["cases"][case]
        first = None
        for ranks in worlds:
            with self.subTest(ranks=ranks):
                run, weights = self.run_case(case, ranks)
                losses = [event["loss"] for event in run.of("step")]
                self.assertEqual(len(losses), GOLDEN["steps"])
                for mine, pytorch in zip(losses, golden["losses"]):
                    self.assertAlmostEqual(mine, pytorch, delta=BOUND)
                self.assert_close(weights, golden["final"], BOUND)
                first = first or weights
                for name, (_, values) in weights.items():
                    apart = max(map(lambda a, b: abs(a - b), values, first[name][1]))
                    self.assertLess(apart, BOUND, name)

    def test_sgd_with_momentum_ends_where_pytorch_does_at_every_world_size(self):
        self.assert_agree("plain", (1, 2, 3))

    def test_nesterov_and_weight_decay_are_those_of_pytorch(self):
        self.assert_agree("nesterov", (1, 2))

    def test_the_golden_weights_moved(self):
        """Or the tests above would pass without any training."""
        for case in GOLDEN["cases"].values():
            for name, final in case["final"].items():
                start = GOLDEN["initial"][name]["values"]
                moved = max(abs(v - start[p]) for p, v in final["values"].items())
                self.assertGreater(moved, 5 * BOUND, name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
