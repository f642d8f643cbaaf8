#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fashion-mnist at two ranks reaches 91 % test accuracy within 10 epochs."""
import json
import os
import subprocess
import unittest


class Accuracy(unittest.TestCase):
    def test_ninety_one_percent_within_ten_epochs(self):
        run = subprocess.run(
            [os.environ["COHORT_BIN"], "train", "fashion-mnist", "-n", "2", "--json",
             "--set", "epochs=10"],
            stdout=subprocess.PIPE, text=True, check=True)
        events = [json.loads(line) for line in run.stdout.splitlines()]
        valids = [e["accuracy"] for e in events if e["event"] == "valid"]
        print("accuracy by epoch:", valids)
        self.assertEqual(len(valids), 10)
        self.assertGreaterEqual(max(valids), 0.91)


if __name__ == "__main__":
    unittest.main()
