# SPDX-License-Identifier: Apache-2.0
"""One build of a copy of the tree, and workers that try mutants on it (tools/mutate)."""

import fnmatch
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

# The tests of a room, by the names that ctest knows.
ROOMS = {
    "comm": ["comm_*"],
    "elastic": ["elastic_*"],
    "checkpoint": ["checkpoint_*"],
    "train": ["train_*", "fault_enumeration_test"],
}
# For programs that take minutes: the tests that still say most.
FILTERS = {
    "comm_conformance_test": "-*_1:*_5:*threads_2",  # groups of 2 and 3 are left
    "fault_enumeration_test": "*/killed_n3_shard3:*/flipped_n2_shard0:*/healed*:*/resumed*:"
                              "*/grows*:*/shrinks*:*_async",
}
COMPILE_LIMIT_S = 600
FAILED = r"\[  FAILED  \] (\w+[\w/]*\.[\w/.]+)"


class Refusal(Exception):
    """Ends the tool with one line and exit code 2."""


# ---- Running ------------------------------------------------------------------------
_running: set = set()


def end_all():
    """Ends what run() started and has not seen the end of."""
    for child in list(_running):
        _end_group(child)


def _end_group(child):
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def run(command, limit: float, cwd=None, env=None):
    """(exit code or None for too long, output); ends all that the command started."""
    child = subprocess.Popen(command, cwd=cwd, env=env, text=True, errors="replace",
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, start_new_session=True)
    _running.add(child)
    out = ""
    try:
        out, _ = child.communicate(timeout=max(0.1, limit))
        code = child.returncode
    except subprocess.TimeoutExpired:
        code = None
    finally:
        _end_group(child)
    if code is None:
        out = child.communicate()[0]
    _running.discard(child)
    return code, out


class Build:
    """A copy of the tree and its build, made once; workers only read it."""

    def __init__(self, root: Path, work: Path, rooms, cores: int):
        self.root, self.tree = root, work / "tree"
        self.dir = self.tree / "build" / "single"  # where ccache finds what is known
        self.rooms, self.cores = rooms, cores
        self.tests: dict = {}  # name: {"command": [...], "env": {...}, "link": str}

    def copy(self) -> str:
        """Brings the copy up to date; the hash of what decides a verdict."""
        listed = subprocess.run(
            ["git", "-C", str(self.root), "ls-files", "-z", "--cached", "--others",
             "--exclude-standard"], capture_output=True)
        top = subprocess.run(["git", "-C", str(self.root), "rev-parse", "--show-toplevel"],
                             capture_output=True, text=True).stdout.strip()
        if listed.returncode == 0 and top and Path(top).samefile(self.root):
            names = sorted(set(os.fsdecode(listed.stdout).split("\0")) - {""})
        else:
            skip = {"build", ".deps", ".git", "runs", "__pycache__"}
            names = sorted(p.relative_to(self.root).as_posix() for p in self.root.rglob("*")
                           if p.is_file() and not skip & set(p.relative_to(self.root).parts))
        digest = hashlib.sha256()
        for name in names:
            source, copy = self.root / name, self.tree / name
            if not source.is_file():
                continue
            data = source.read_bytes()
            if name.startswith(("src/", "tests/", "cmake/", "CMakeLists.txt")):
                digest.update(f"{name}\0{len(data)}\0".encode() + data)
            if not copy.is_file() or copy.read_bytes() != data:
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, copy)
        for old in [p for p in (self.tree / "src").rglob("*") if p.is_file()]:
            if old.relative_to(self.tree).as_posix() not in names:
                old.unlink()
        return digest.hexdigest()[:16]

    def make(self, limit: float):
        ends = time.monotonic() + limit
        torch = os.environ.get("COHORT_TORCH") or self.root / ".deps" / "torch"
        if Path(torch).exists():
            (self.tree / ".deps").mkdir(exist_ok=True)
            link = self.tree / ".deps" / "torch"
            link.unlink(missing_ok=True)
            link.symlink_to(Path(torch).resolve())
        self._must(["cmake", "-S", str(self.tree), "-B", str(self.dir), "-G", "Ninja",
                    "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_UNITY_BUILD=OFF",
                    "-DCOHORT_BUILD_BENCH=OFF", "-DCOHORT_BUILD_EXAMPLES=OFF",
                    "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"], ends)
        names = [name for name in self._listed(ends)
                 if any(fnmatch.fnmatch(name, p) for r in self.rooms for p in ROOMS[r])]
        self._must(["ninja", "-C", str(self.dir), "-j", str(self.cores), *names], ends)
        listed = self._listed(ends)
        for name in names:
            env = next((p["value"] for p in listed[name].get("properties", [])
                        if p["name"] == "ENVIRONMENT"), [])
            program = listed[name]["command"][0]
            target = os.path.relpath(program, self.dir)
            link = self._must(["ninja", "-C", str(self.dir), "-t", "commands", "-s", target],
                              ends)
            link = [line for line in link.splitlines() if f" -o {target} " in line][-1]
            self.tests[name] = {"command": listed[name]["command"], "target": target,
                                "env": dict(e.split("=", 1) for e in env), "link": link}
        self._read_compiles(ends)

    def _must(self, command, ends) -> str:
        code, out = run(command, ends - time.monotonic())
        if code is None:
            raise Refusal("the time was over before the unchanged tree was built; "
                          "what is built stays: run it again")
        if code != 0:
            raise Refusal(f"{shlex.join(command)} failed:\n{out[-3000:]}")
        return out

    def _listed(self, ends) -> dict:
        out = self._must(["ctest", "--test-dir", str(self.dir), "--show-only=json-v1"], ends)
        return {test["name"]: test for test in json.loads(out[out.index("{"):])["tests"]}

    def _read_compiles(self, ends):
        """How each object is made, and from what."""
        self.compiles = {}
        for entry in json.loads((self.dir / "compile_commands.json").read_text()):
            words = shlex.split(entry["command"])
            self.compiles[words[words.index("-o") + 1]] = (words, entry["file"])
        self.users: dict = {}  # a file of the tree: the objects that it is part of
        built = None
        for line in self._must(["ninja", "-C", str(self.dir), "-t", "deps"],
                               ends).splitlines():
            if line and not line.startswith(" "):
                built = line.split(":")[0]
            elif line.strip() and built in self.compiles:
                path = os.path.normpath(self.dir / line.strip())
                self.users.setdefault(path, []).append(built)

    def tests_of(self, room: str) -> list:
        return [name for name in self.tests
                if any(fnmatch.fnmatch(name, p) for p in ROOMS[room])]


class Worker:
    """Makes one mutant at a time in a folder of its own."""

    def __init__(self, build: Build, folder: Path, patience: float, without: str = ""):
        self.build, self.folder, self.patience = build, folder, patience
        self.without = without
        self.times: dict = {}
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        # In memory: tests that sync a file at every byte wait for the disk alone.
        shm = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self._scratch = tempfile.TemporaryDirectory(prefix="cohort_mutate_", dir=shm)

    def _test(self, name: str, program: str, limit: float):
        test = self.build.tests[name]
        command = [program, *test["command"][1:], "--gtest_fail_fast"]
        cases = FILTERS.get(name, "*")
        if self.without:
            cases += (":" if "-" in cases else "-") + self.without
        command.append(f"--gtest_filter={cases}")
        with tempfile.TemporaryDirectory(dir=self._scratch.name,
                                         ignore_cleanup_errors=True) as scratch:
            env = {**os.environ, **test["env"], "TMPDIR": scratch}
            code, out = run(command, limit, cwd=scratch, env=env)
        out = re.sub(r".*: Skipped\n\s*", "", out)  # after the first failure
        # As ctest has it: a test that skips has failed.
        return 1 if code == 0 and "[  SKIPPED ]" in out else code, out

    def measure(self, names):
        """Runs what is not changed: it must pass, and its time gives the limits."""
        cases, said = [], []
        for name in names:
            began = time.monotonic()
            code, out = self._test(name, self.build.tests[name]["command"][0], 600)
            self.times[name] = time.monotonic() - began
            if code != 0:
                cases += re.findall(FAILED, out)
                said.append(f"{name} fails without any change:\n{out[-2000:]}")
        if said:
            leave = ":".join(sorted(set(cases)))
            raise Refusal("\n".join([*said, f"--without '{leave}' leaves them out"]))

    def _compile(self, mutant) -> list:
        """The objects that changed, or None where one does not compile."""
        tree, overlay = self.build.tree, self.folder / "tree"
        shutil.rmtree(overlay, ignore_errors=True)
        changed = overlay / mutant.file
        changed.parent.mkdir(parents=True)
        original = tree / mutant.file
        changed.write_text(mutant.apply(original.read_text()))
        objects = []
        for made in self.build.users.get(str(original), []):
            words, source = self.build.compiles[made]
            out = self.folder / "objects" / made
            out.parent.mkdir(parents=True, exist_ok=True)
            words = [str(out) if w == made else
                     str(changed) if w == source == str(original) else w for w in words]
            # A header of the overlay comes first; the names in checks stay the same.
            words[1:1] = [f"-I{overlay / 'src'}", f"-ffile-prefix-map={overlay}={tree}", "-w"]
            code, _ = run(words, COMPILE_LIMIT_S, cwd=self.build.dir)
            if code != 0:
                return None
            if out.read_bytes() != (self.build.dir / made).read_bytes():
                objects.append(made)
        return objects

    def _link(self, name: str, objects) -> str:
        """The test's program with the changed objects, or "" where none is part of it."""
        test = self.build.tests[name]
        program = self.folder / name
        command, extra = test["link"], ""
        for made in objects:
            mine = shlex.quote(str(self.folder / "objects" / made))
            if f" {made} " in command:
                command = command.replace(f" {made} ", f" {mine} ")
            elif "_test.dir/" not in made:  # a library's: found here, not taken from it
                extra += f" {mine}"
        command = command.replace(f" -o {test['target']} ",
                                  f"{extra} -o {shlex.quote(str(program))} ")
        if command == test["link"]:
            return ""
        code, _ = run(["sh", "-c", command], COMPILE_LIMIT_S, cwd=self.build.dir)
        return str(program) if code == 0 else None

    def judge(self, mutant) -> dict:
        objects = self._compile(mutant)
        if objects is None:
            return {"verdict": "not made", "how": "does not compile"}
        if not objects:
            return {"verdict": "not made", "how": "the same code"}
        once = ""
        for name in sorted(self.build.tests_of(mutant.room), key=self.times.get):
            program = self._link(name, objects)
            if program is None:
                return {"verdict": "not made", "how": "does not link"}
            if not program:
                continue
            limit = 3 * self.times[name] + self.patience
            code, out = self._test(name, program, limit)
            # A busy machine may fail any test; a mutant fails it again.
            again = code if code == 0 else self._test(name, program, 2 * limit)[0]
            os.unlink(program)
            failed = re.findall(FAILED, out)
            how = failed[0] if failed else "hangs" if code is None else f"exit code {code}"
            if again != 0:
                return {"verdict": "found", "by": name, "how": how, "tail": out[-600:]}
            if code != 0:
                once = f"{name} failed once in two runs: {how}"
        return {"verdict": "survived", "how": once}
