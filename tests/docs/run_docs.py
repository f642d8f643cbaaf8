#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs every fenced command of the README and the docs; fails if one was not run.

Blocks that count are fenced with sh, bash or console (there, lines after "$ ").
What stands after the language says how to run the block:

    sh slow              only in the long form (COHORT_LONG=1)
    sh expect=2          the last command must exit with 2 (all others with 0)
    sh timeout=300       seconds for each of its commands (default 120)
    sh no-run: REASON    not run; REASON is one of NO_RUN_REASONS

Commands run in a scratch copy of the checkout in which ./cohort is the program
already built, and tools/test is the run that this test is part of. Blocks of one
page share that copy, in order; each starts at its root. Some pages run at once.
"""

import argparse
import functools
import os
import re
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

NO_RUN_REASONS = {
    "needs a GPU",
    "needs several hosts",
    "needs a network",
    "needs an administrator",
    "needs a batch system",
    "takes hours",
}
LANGUAGES = {"sh", "bash", "console"}
TIMEOUT_S = 120
FENCE = re.compile(r"^(\s*)(`{3,}|~{3,})\s*(.*?)\s*$")
# A block without a language that looks like commands would slip through unrun.
LOOKS_LIKE_A_COMMAND = re.compile(r"^\s*(\$ |\./cohort\b|cohort \w|tools/\w|cmake |git clone)")


@dataclass
class Block:
    page: Path
    line: int
    info: str
    lines: list = field(default_factory=list)
    language: str = ""
    slow: bool = False
    expect: int = 0
    timeout: float = TIMEOUT_S
    no_run: str = ""
    problem: str = ""

    def where(self):
        return f"{self.page}:{self.line}"

    def read_info(self):
        head, colon, reason = self.info.partition("no-run:")
        self.language, *options = head.split() or [""]
        if self.language not in LANGUAGES:
            if not self.language and any(map(LOOKS_LIKE_A_COMMAND.match, self.lines)):
                self.problem = "commands in a block without a language"
            return
        if colon:
            self.no_run = reason.strip()
            if self.no_run not in NO_RUN_REASONS:
                self.problem = (f"no-run: {self.no_run!r} is no legal reason; legal: "
                                + ", ".join(sorted(NO_RUN_REASONS)))
        for option in options:
            name, _, value = option.partition("=")
            if option == "slow":
                self.slow = True
            elif name in ("expect", "timeout") and value.isdigit():
                setattr(self, name, int(value))
            else:
                self.problem = f"unknown option {option!r} after {self.language}"

    def commands(self):
        """Whole commands: lines joined until the shell would accept them."""
        lines = self.lines
        if self.language == "console":
            lines = [line.lstrip()[2:] for line in lines if line.lstrip().startswith("$ ")]
        chunk, out = "", []
        for line in lines:
            chunk += line + "\n"
            if not chunk.strip() or chunk.strip().startswith("#") and "\n" not in chunk.strip():
                chunk = ""
            elif is_whole(chunk):
                out.append(chunk)
                chunk = ""
        return out + ([chunk] if chunk.strip() else [])


def is_whole(chunk: str) -> bool:
    if chunk.rstrip("\n").endswith("\\"):
        return False
    done = subprocess.run(["bash", "-n"], input=chunk, capture_output=True, text=True)
    return done.returncode == 0 and "here-document" not in done.stderr


def blocks(page: Path, text: str):
    block, fence = None, ""
    for number, line in enumerate(text.splitlines(), 1):
        match = FENCE.match(line)
        if block is None:
            if match:
                block, fence = Block(page, number, match.group(3)), match.group(2)
        elif match and match.group(2).startswith(fence) and not match.group(3):
            block.read_info()
            yield block
            block = None
        else:
            block.lines.append(line)
    if block is not None:
        block.problem = "the fence is never closed"
        yield block


def script(commands, expect: int, writer: int) -> str:
    """Each command reports its number and exit code to the descriptor `writer`."""
    out = []
    for i, command in enumerate(commands):
        wanted = expect if i + 1 == len(commands) else 0
        out.append(f"{command}\n__code=$?; echo {i} $__code >&{writer}; "
                   f"[ $__code -eq {wanted} ] || exit 90\n")
    return "".join(out)


def run_block(block: Block, commands, folder: Path, env):
    """Returns what went wrong, or an empty string."""
    reader, writer = os.pipe()
    with tempfile.TemporaryFile() as output:
        shell = subprocess.Popen(
            ["bash", "-c", script(commands, block.expect, writer)],
            cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.STDOUT, pass_fds=[writer], start_new_session=True)
        os.close(writer)
        reports, late = follow(reader, len(commands), block.timeout)
        if not late:
            shell.wait()
        end_group(shell.pid)  # also what the block left in the background
        shell.wait()
        os.close(reader)
        output.seek(0)
        tail = output.read().decode("utf-8", "replace")[-2000:]
    at = commands[min(len(reports), len(commands) - 1)].strip()
    if late:
        return f"not finished after {block.timeout} s: {at}\n{tail}"
    for i, code in enumerate(reports):
        wanted = block.expect if i + 1 == len(commands) else 0
        if code != wanted:
            return f"exit code {code}, not {wanted}: {commands[i].strip()}\n{tail}"
    if len(reports) < len(commands):
        return f"was not run: {at}\n{tail}"
    return ""


def end_group(group: int):
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass


def follow(reader: int, count: int, timeout: float):
    """Collects the exit codes; each command has `timeout` seconds."""
    codes, pending = [], b""
    deadline = time.monotonic() + timeout
    with selectors.DefaultSelector() as selector:
        selector.register(reader, selectors.EVENT_READ)
        while len(codes) < count:
            if not selector.select(max(0, deadline - time.monotonic())):
                return codes, True
            data = os.read(reader, 4096)
            if not data:
                break
            pending += data
            *lines, pending = pending.split(b"\n")
            codes += [int(line.split()[1]) for line in lines]
            if lines:
                deadline = time.monotonic() + timeout
    return codes, False


def scratch_copy(root: Path, build: Path, program: Path, folder: Path):
    """A checkout made of links, but for what must not be installed or rebuilt."""
    for entry in root.iterdir():
        if entry.name not in {"build", "cohort", "tools", "runs", ".git"}:
            (folder / entry.name).symlink_to(entry)
    (folder / "build").mkdir()
    (folder / "build" / "release").symlink_to(build)
    (folder / "tools").mkdir()
    for entry in (root / "tools").iterdir():
        if entry.name not in {"build", "test"}:
            (folder / "tools" / entry.name).symlink_to(entry)
    wrapper(folder / "cohort", root / "cohort", f'exec "{program}" "$@"')
    # From here it would configure the build for this copy of the sources.
    wrapper(folder / "tools" / "build", root / "tools" / "build",
            f'exec "{root}/tools/build" "$@"')
    wrapper(folder / "tools" / "test", root / "tools" / "test",
            'echo "tools/test: this is it"')


def wrapper(path: Path, original: Path, body: str):
    path.write_text(f'#!/bin/sh\n[ -x "{original}" ] || exit 126\n{body}\n')
    path.chmod(0o755)


@functools.cache
def ccache_in_path() -> str:
    """What was compiled before and is the same comes from ccache; it compiles nothing where it
    cannot write to its folder, so there it is left out."""
    try:
        asked = subprocess.run(["ccache", "--get-config", "cache_dir"], capture_output=True,
                               check=True, text=True)
        folder = Path(asked.stdout.strip())
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return "/usr/lib/ccache:"
    except (OSError, subprocess.CalledProcessError):
        return ""


def run_page(page, args):
    """Returns the tally of this page alone."""
    tally = Tally()
    text = (args.root / page).read_text()
    with tempfile.TemporaryDirectory(prefix="cohort-docs-") as folder:
        scratch_copy(args.root, args.build, args.program, Path(folder))
        env = dict(os.environ, NO_COLOR="1", CCACHE_BASEDIR=folder, CCACHE_NOHASHDIR="1",
                   PATH=f"{folder}:{ccache_in_path()}{os.environ['PATH']}")
        if "CPU part\t: 0xd40" in Path("/proc/cpuinfo").read_text():
            # Examples without Cohort need it too (docs/install.md).
            env.setdefault("NVPL_BLAS_DEBUG_CPU_TYPE", "1")
        for block in blocks(page, text):
            commands = block.commands() if block.language in LANGUAGES else []
            if block.problem:
                tally.failed.append(f"{block.where()}: {block.problem}")
            elif block.language not in LANGUAGES:
                continue
            elif not commands:
                tally.failed.append(f"{block.where()}: no command in this block")
            elif block.no_run:
                tally.left.append(f"{block.where()}: not run: {block.no_run}")
            elif block.slow and not args.long:
                tally.left.append(f"{block.where()}: left for the long form")
            else:
                begun = time.monotonic()
                problem = run_block(block, commands, Path(folder), env)
                tally.ran += len(commands)
                tally.seconds.append((time.monotonic() - begun, block.where()))
                if problem:
                    tally.failed.append(f"{block.where()}: {problem}")
    return tally


@dataclass
class Tally:
    ran: int = 0
    left: list = field(default_factory=list)
    failed: list = field(default_factory=list)
    seconds: list = field(default_factory=list)  # and whose they are

    def add(self, other):
        self.ran += other.ran
        self.left += other.left
        self.failed += other.failed
        self.seconds += other.seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2])
    parser.add_argument("--build", type=Path)
    parser.add_argument("--program", type=Path)
    parser.add_argument("--jobs", type=int, default=2, help="pages at once")
    parser.add_argument("--long", action="store_true",
                        default=os.environ.get("COHORT_LONG") == "1")
    args = parser.parse_args()
    args.root = args.root.resolve()
    args.build = (args.build or args.root / "build" / "release").resolve()
    args.program = args.program or args.build / "bin" / "cohort"
    pages = [*sorted(args.root.glob("*.md")), *sorted((args.root / "docs").rglob("*.md"))]
    # The longest first, so that none is left for the end.
    by_size = sorted(pages, key=lambda page: -page.stat().st_size)
    with ThreadPoolExecutor(args.jobs) as pool:
        done = {page: pool.submit(run_page, page.relative_to(args.root), args)
                for page in by_size}
    tally = Tally()
    for page in pages:
        tally.add(done[page].result())
    for seconds, where in sorted(tally.seconds, reverse=True)[:5]:
        print(f"{where}: took {seconds:.0f} s")
    for line in tally.left + tally.failed:
        print(line)
    print(f"docs: {tally.ran} commands run on {len(pages)} pages, "
          f"{len(tally.left)} blocks left out, {len(tally.failed)} failed")
    return 1 if tally.failed or tally.ran == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
