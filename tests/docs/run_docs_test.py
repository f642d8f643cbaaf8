# SPDX-License-Identifier: Apache-2.0
"""run_docs.py runs what it must and notices what went wrong."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

RUN_DOCS = Path(__file__).with_name("run_docs.py")


class RunDocs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        for name in ("tools/test", "cohort", "build/release/bin/cohort"):
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text('#!/bin/sh\necho "$@" >>"$LOG"\nexit ${1:-0}\n')
            path.chmod(0o755)

    def outcome(self, page, *args, under=(), **environment):
        (self.root / "README.md").write_text(page)
        log = self.root / "log"
        log.write_text("")
        done = subprocess.run([*under, sys.executable, str(RUN_DOCS), "--root", str(self.root),
                               *args],
                              capture_output=True, text=True, timeout=240,
                              env={"PATH": "/usr/bin:/bin", "LOG": str(log), **environment})
        return done.returncode, done.stdout + done.stderr, log.read_text()

    def passes(self, page, *args, **more):
        code, out, log = self.outcome(page, *args, **more)
        self.assertEqual(code, 0, out)
        return log

    def fails(self, page, because, *args):
        code, out, _ = self.outcome(page, *args)
        self.assertEqual(code, 1, out)
        self.assertIn(because, out)

    def test_every_command_runs(self):
        log = self.passes("```sh\n./cohort 0 one \\\n  two\n# a comment\n\n./cohort 0 three\n"
                          "```\ntext\n```console\n$ ./cohort 0 four\noutput\n```\n")
        self.assertEqual(log, "0 one two\n0 three\n0 four\n")

    def test_loops_and_here_documents_are_one_command(self):
        self.assertEqual(self.passes("```bash\nfor i in 1 2; do\n  ./cohort 0 $i\ndone\n"
                                     "cat >f <<E\nexit 7\nE\ngrep -q 7 f\n```\n"), "0 1\n0 2\n")

    def test_blocks_of_a_page_share_files_but_not_the_folder(self):
        self.passes("```sh\necho x >made; cd build\n```\n```sh\ncat made\n```\n")

    def test_pages_run_at_once_and_count_together(self):
        """Each of two waits for the other."""
        (self.root / "CHANGELOG.md").write_text(
            "```sh timeout=60\nuntil [ -p \"$LOG.pipe\" ]; do sleep 0.1; done\n"
            "echo met >\"$LOG.pipe\"\n```\n")
        page = "```sh timeout=60\nmkfifo \"$LOG.pipe\"\ngrep met \"$LOG.pipe\"\n```\n"
        self.passes(page)
        (self.root / "log.pipe").unlink()
        self.fails(page + "```sh\nexit 3\n```\n", "5 commands run on 2 pages")
        (self.root / "log.pipe").unlink()
        self.fails(page + "```sh\nexit 3\n```\n", "was not run: exit 3")

    def test_it_does_not_matter_which_descriptors_are_taken(self):
        """Pages that run at once take some from one another."""
        page = "```sh\n./cohort 0 one\n./cohort 0 two\n```\n"
        for last in range(3, 10):
            taken = " ".join(f"{number}<&0" for number in range(3, last + 1))
            with self.subTest(taken):
                self.assertEqual(self.passes(page, under=["bash", "-c",
                                                          f'exec {taken}; exec "$@"', "-"]),
                                 "0 one\n0 two\n")

    def test_a_page_compiles_where_ccache_can_keep_nothing(self):
        self.passes("```sh\necho 'int main() {}' >a.cpp\ng++ -c a.cpp\n```\n",
                    HOME="/proc/nowhere")

    def test_the_checkout_is_not_written_to(self):
        self.passes("```sh\ntouch made\n```\n")
        self.assertFalse((self.root / "made").exists())

    def test_a_wrong_exit_code_fails(self):
        self.fails("```sh\n./cohort 3\n```\n", "exit code 3, not 0")
        self.fails("```sh expect=2\n./cohort 0\n```\n", "exit code 0, not 2")
        self.passes("```sh expect=2\n./cohort 0\n./cohort 2\n```\n")

    def test_a_command_after_a_failure_or_an_exit_was_not_run(self):
        self.fails("```sh\nfalse\n./cohort 0\n```\n", "exit code 1")
        self.fails("```sh\nexit 0\n./cohort 0\n```\n", "was not run: exit 0")

    def test_a_hang_is_cut_off(self):
        self.fails("```sh timeout=1\nsleep 30\n```\n", "not finished after 1 s")

    def test_reasons_for_not_running_are_few(self):
        ok = "```sh\ntrue\n```\n"
        self.passes(ok + "```sh no-run: needs a GPU\n./cohort 9\n```\n")
        self.fails(ok + "```sh no-run: I am tired\n./cohort 0\n```\n", "no legal reason")

    def test_slow_blocks_wait_for_the_long_form(self):
        page = "```sh\ntrue\n```\n```sh slow\n./cohort 0 slow\n```\n"
        self.assertEqual(self.passes(page), "")
        self.assertEqual(self.passes(page, "--long"), "0 slow\n")

    def test_what_would_slip_through_is_refused(self):
        self.fails("```\n$ ./cohort 0\n```\n", "without a language")
        self.fails("```sh quick\ntrue\n```\n", "unknown option")
        self.fails("```sh\ntrue\n", "never closed")
        self.fails("no commands at all\n", "0 commands run")

    def test_tools_test_is_not_started_again(self):
        self.assertEqual(self.passes("```sh\ntools/test --long\n```\n"), "")
        (self.root / "tools/test").chmod(0o644)
        self.fails("```sh\ntools/test\n```\n", "exit code 126")


if __name__ == "__main__":
    unittest.main()
