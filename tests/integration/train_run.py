# SPDX-License-Identifier: Apache-2.0
"""Runs `cohort train` and reads what it leaves: events, weights, sample logs.

The standard library is enough, so that tests need nothing installed.
"""
import array
import importlib.util
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COHORT = os.environ.get("COHORT_BIN") or str(ROOT / "build/release/bin/cohort")
LONG = os.environ.get("COHORT_LONG") == "1"  # all ways, where else some take turns
DEADLINE_S = 120  # far beyond what any run here takes
# Steps of milliseconds, so that runs are short, or long by their number alone.
SMALL = {"data.synthetic": "true", "model.width": 2, "batch": 24, "slices": 4,
         "log.every_steps": 1, "valid.every_epochs": 0}
ENDLESS = {**SMALL, "epochs": 100_000}


@dataclass
class Run:
    code: int
    out: str
    err: str

    @property
    def events(self):
        """What --json printed: a line that is no JSON object is an error."""
        return [json.loads(line) for line in self.out.splitlines()]

    def of(self, event):
        return [e for e in self.events if e["event"] == event]

    @property
    def done(self):
        (done,) = self.of("done")
        return done


def assignments(keys):
    """--set for each key, with the names of the configuration."""
    return [part for key, value in keys.items() for part in ("--set", f"{key}={value}")]


def clean_environment():
    """Without a launcher's variables: the run is to start its own ranks."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    return {name: value for name, value in os.environ.items() if name not in names}


def start(*args, under=()):
    """`under`: a command that becomes the program."""
    return subprocess.Popen([*under, COHORT, *map(str, args)], text=True,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, env=clean_environment())


def finish(process, deadline_s=DEADLINE_S):
    """Not by communicate(): it misses lines that readline() has read ahead."""
    def rest(stream):
        return "" if stream.closed else stream.read()

    with ThreadPoolExecutor(2) as pool:
        streams = [pool.submit(rest, s) for s in (process.stdout, process.stderr)]
        try:
            process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        out, err = (stream.result() for stream in streams)
    return Run(process.returncode, out, err)


def cohort(*args, deadline_s=DEADLINE_S):
    """To its end."""
    return finish(start(*args), deadline_s)


def train(ranks, *args, keys={}):
    return cohort("train", "fashion-mnist", "-n", ranks, "--json", *assignments(keys),
                  *args)


class TrainTest(unittest.TestCase):
    """With a folder of its own, and runs that do not outlive it."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = Path(scratch.name)
        self.root = self.scratch / "run"

    def start(self, ranks, *args, keys={}, under=()):
        """A run without an end, if nothing else is asked for."""
        run = start("train", "fashion-mnist", "-n", ranks, "--json",
                    *assignments({**ENDLESS, **keys}), *args, under=under)
        for cleanup in (run.stdout.close, run.stderr.close,
                        lambda: run.wait(DEADLINE_S), run.kill):
            self.addCleanup(cleanup)  # the last one is the first to be done
        return run

    def read_until(self, run, wanted):
        """Its next events, up to one that is wanted."""
        events = []
        while not events or not wanted(events[-1]):
            line = run.stdout.readline()
            self.assertTrue(line, "the run ended by itself")
            events.append(json.loads(line))
        return events

    def read_steps(self, run, step):
        """Up to that step."""
        return self.read_until(run, lambda event: event.get("step", 0) >= step)


def pids_of(events):
    """By rank, the newest of each."""
    return {e["rank"]: e["pid"] for e in events if e["event"] == "rank"}


def mounts_work():
    """A disk as small as a test wants it needs the right to mount one."""
    probe = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"],
                           capture_output=True)
    return probe.returncode == 0


def blocked_signals(pid):
    """As a set of bits; none if there is no such process."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return int(next(l for l in status.splitlines() if l.startswith("SigBlk:")).split()[1], 16)


def process_state(pid):
    """State and parent as /proc has them; ("Z", 0) once it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return "Z", 0
    state, parent_pid = stat[stat.rfind(")") + 2:].split()[:2]
    return state, int(parent_pid)


def parent(pid):
    return process_state(pid)[1]


def wait_dead(pid):
    """Until it has ended, reaped or not."""
    until = time.monotonic() + DEADLINE_S
    while process_state(pid)[0] != "Z":
        assert time.monotonic() < until, f"process {pid} does not end"
        time.sleep(0.01)


def read_weights(path):
    """{name: (shape, float32 values)} of a safetensors file."""
    data = Path(path).read_bytes()
    (header_size,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + header_size])
    header.pop("__metadata__", None)
    tensors = {}
    for name, info in header.items():
        assert info["dtype"] == "F32", (name, info)
        begin, end = info["data_offsets"]
        values = array.array("f", data[8 + header_size + begin:8 + header_size + end])
        if sys.byteorder == "big":
            values.byteswap()
        tensors[name] = (info["shape"], values)
    return tensors


def read_samples(path):
    """[(epoch, step, rank, sample)] of a sample log."""
    return [tuple(map(int, line.split())) for line in Path(path).read_text().splitlines()]


def samples_of_steps(log):
    """[samples of step 1, of step 2, ...], each sorted: who computed them is left out."""
    steps = {}
    for _, step, _, sample in log:
        steps.setdefault(step, []).append(sample)
    assert sorted(steps) == list(range(1, len(steps) + 1)), sorted(steps)
    return [sorted(steps[step]) for step in sorted(steps)]


def weights_hash(path):
    """As docs/formats/weights_hash.py computes it."""
    spec = importlib.util.spec_from_file_location(
        "weights_hash", ROOT / "docs/formats/weights_hash.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.weights_hash(path)
