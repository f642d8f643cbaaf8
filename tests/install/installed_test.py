#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What is kept from one run for the next is whole, or as it was."""
import shutil
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import installed


class Kept(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.made = self.root / "made"
        (self.made / "0").mkdir(parents=True)
        (self.made / "0/object").write_text("new")
        self.caches = self.root / "caches"
        self.kept = self.caches / "kept"

    def put_old(self):
        self.kept.mkdir(parents=True)
        (self.kept / "object").write_text("old")

    def expect(self, text, name):
        self.assertEqual([path.name for path in self.caches.iterdir()], ["kept"])
        self.assertEqual((self.kept / name).read_text(), text)

    def test_it_is_there_the_next_time(self):
        installed.keep(self.made, self.kept)
        self.expect("new", "0/object")

    def test_it_replaces_what_was_kept_before(self):
        self.put_old()
        installed.keep(self.made, self.kept)
        self.expect("new", "0/object")
        self.assertFalse((self.kept / "object").exists())

    def test_a_copy_that_breaks_off_leaves_what_was_kept_before(self):
        self.put_old()
        copy = shutil.copytree

        def break_off(*args, **more):
            copy(*args, **more)
            raise OSError("disk full")

        with mock.patch("shutil.copytree", break_off):
            installed.keep(self.made, self.kept)
        self.expect("old", "object")

    def test_nothing_is_kept_where_nothing_can_be_written(self):
        self.caches.write_text("no folder")
        installed.keep(self.made, self.kept)
        self.assertEqual(self.caches.read_text(), "no folder")

    def test_nothing_is_kept_where_nothing_was_made(self):
        self.put_old()
        installed.keep(self.root / "none", self.kept)
        self.expect("old", "object")


if __name__ == "__main__":
    unittest.main()
