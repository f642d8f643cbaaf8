#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times Cohort and its alternatives in turns on this machine, and prints their ratios.

  compare.py                          every case, each side 3 times
  compare.py --case comm --repeat 5   one case, each side 5 times
  compare.py --json                   one JSON object per row

Every row is a time: a ratio above 1 is the factor by which Cohort is faster. A program
reports the median of its own steps or calls, and a row has the median over the rounds;
only the time to the first step is a single value per round. README.md in this directory
describes the cases and says what to install.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PEERS = Path(__file__).resolve().parent
ROOT = PEERS.parents[1]
PROGRAM_LIMIT_S = 1800
SIZES = (4_000, 400_000, 4_000_000, 25_000_000, 100_000_000)  # bytes of an all-reduce


class RunFailed(Exception):
    pass


def execute(command, **variables):
    """Returns the stdout of a program; throws RunFailed if it fails."""
    began = f"{time.time():.6f}"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COHORT_BEGAN": began,
                   "COMMAND_BEGAN": began, **variables}
    command = [str(part) for part in command]
    try:
        run = subprocess.run(command, text=True, capture_output=True, env=environment,
                             stdin=subprocess.DEVNULL, timeout=PROGRAM_LIMIT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RunFailed(str(error)) from error
    if run.returncode != 0:
        last = (run.stderr.strip().splitlines() or ["nothing on stderr"])[-1]
        raise RunFailed(f"{' '.join(command)}: exit code {run.returncode}: {last}")
    return run.stdout


def json_rows(command, **variables):
    """The JSON lines that a program prints, at least one."""
    lines = execute(command, **variables).splitlines()
    rows = [json.loads(line) for line in lines if line.startswith("{")]
    if not rows:
        raise RunFailed(f"{' '.join(map(str, command))}: no JSON line on stdout")
    return rows


def call_times(rows):
    return {(f"all_reduce {row['bytes']} bytes", "us"): row["p50"] for row in rows}


class Programs:
    """The programs of both sides. Each returns {(what, unit): time}."""

    def __init__(self, args, scratch):
        self.cohort = args.cohort
        self.python = args.python
        self.ranks = str(args.ranks)
        self.scratch = Path(scratch)
        self.torchrun = [Path(args.python).parent / "torchrun", "--standalone",
                         "--nproc-per-node", self.ranks]
        self.launch = [self.cohort, "launch", "-n", self.ranks, "--", self.python]

    # ---- Cohort ----

    def bench_comm(self, backend):
        rows = json_rows([self.cohort, "bench", "comm", "-n", self.ranks, "--backend",
                          backend, "--op", "all_reduce", "--bytes",
                          ",".join(map(str, SIZES)), "--json"])
        # shm also has rows for memory of its own, and for the limit.
        ordinary = [row for row in rows
                    if row["backend"] == backend and row["memory"] == "ordinary"]
        if not ordinary:
            raise RunFailed(f"bench comm printed no row for {backend} in ordinary memory")
        return call_times(ordinary)

    def bench_train(self, case, *options):
        (row,) = json_rows([self.cohort, "bench", "train", case, "-n", self.ranks,
                            "--json", *options])
        return {("step", "ms"): row["step_ms"]}

    def train_first_step(self):
        events = json_rows([self.cohort, "train", "fashion-mnist", "-n", self.ranks,
                            "--max-steps", "3", "--json"])
        return {("first step", "s"): events[-1]["first_step_s"]}

    # ---- PyTorch, Open MPI ----

    def gloo(self):
        return call_times(json_rows([*self.torchrun, PEERS / "allreduce_gloo.py", *SIZES]))

    def mpi(self):
        program = self.scratch / "allreduce_mpi"
        if not program.exists():
            execute(["mpicxx", "-O2", PEERS / "allreduce_mpi.cpp", "-o", program])
        return call_times(json_rows(
            ["mpirun", "--oversubscribe", "-n", self.ranks, program, *SIZES],
            OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1"))

    def fsdp2(self):
        (row,) = json_rows([*self.torchrun, PEERS / "fsdp2.py"])
        return {("step", "ms"): row["step_ms"]}

    def ddp(self, starter, case, *options):
        """Step and first step of ddp_cpu.py, whose ranks the command `starter` starts."""
        (row,) = json_rows([*starter, PEERS / "ddp_cpu.py", case, *options])
        return {("step", "ms"): row["step_ms"], ("first step", "s"): row["first_step_s"]}


def comm_case(p):
    peers = {"gloo, PyTorch": p.gloo}
    if shutil.which("mpicxx") and shutil.which("mpirun"):
        peers["Open MPI"] = p.mpi
    return {name: lambda name=name: p.bench_comm(name) for name in ("shm", "gloo")}, peers


def step_case(name):
    return lambda p: ({"bench train": lambda: p.bench_train(name)},
                      {"DDP": lambda: p.ddp(p.torchrun, name)})


def fsdp_case(p):
    return ({"shard=3": lambda: p.bench_train("mlp100", "--layout", "shard=3")},
            {"FSDP2, gloo": p.fsdp2})


def first_step_case(p):
    return ({"train": p.train_first_step},
            {"DDP": lambda: p.ddp(p.torchrun, "fashion", "--steps", "3")})


def launch_case(p):
    return ({"launch": lambda: p.ddp(p.launch, "mlp100")},
            {"torchrun": lambda: p.ddp(p.torchrun, "mlp100")})


# Each makes, from the Programs, the sides of Cohort and of the others, by name.
CASES = {
    "comm": comm_case,
    "mlp100": step_case("mlp100"),
    "resnet50-cifar": step_case("resnet50-cifar"),
    "fashion": step_case("fashion"),
    "fsdp": fsdp_case,
    "first-step": first_step_case,
    "launch": launch_case,
}


def run_in_turns(case, sides, repeat, progress):
    """Runs all sides `repeat` times, in an order that changes every round. Returns
    {side: {(what, unit): [times]}}."""
    times = {name: {} for name in sides}
    for round_number in range(repeat):
        order = list(sides) if round_number % 2 == 0 else list(sides)[::-1]
        for name in order:
            progress(f"{case}: {name}, {round_number + 1} of {repeat}")
            for metric, value in sides[name]().items():
                times[name].setdefault(metric, []).append(value)
    return times


def rows_of(case, times, own_sides, peer_sides):
    """A row for each metric that a side of Cohort and another side both have."""
    for own in own_sides:
        for peer in peer_sides:
            for (what, unit), mine in times[own].items():
                theirs = times[peer].get((what, unit))
                if not theirs:
                    continue
                own_median, peer_median = statistics.median(mine), statistics.median(theirs)
                yield {"case": case, "what": what, "unit": unit, "cohort": own,
                       "peer": peer, "cohort_median": own_median,
                       "peer_median": peer_median, "ratio": peer_median / own_median,
                       "cohort_values": mine, "peer_values": theirs}


def format_row(row):
    return (f"{row['case']:15} {row['what']:27} {row['cohort']:12} "
            f"{row['cohort_median']:11.2f} {row['unit']:3} {row['peer']:14} "
            f"{row['peer_median']:11.2f} {row['unit']:3} {row['ratio']:7.2f}")


def default_python():
    return os.environ.get("COHORT_PEERS") or str(ROOT / ".deps/peers/bin/python")


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", choices=CASES,
                        help="case to run; may be repeated (default: all)")
    parser.add_argument("--repeat", type=int, default=3,
                        help="rounds, each of which runs every side once (default 3)")
    parser.add_argument("-n", "--ranks", type=int, default=2, help="ranks (default 2)")
    parser.add_argument("--json", action="store_true", help="one JSON object per row")
    parser.add_argument("--python", default=default_python(),
                        help="Python of an environment with PyTorch (default: $COHORT_PEERS, "
                             "or .deps/peers/bin/python)")
    parser.add_argument("--cohort", default=os.environ.get("COHORT_BIN")
                        or str(ROOT / "build/release/bin/cohort"),
                        help="the program cohort (default: $COHORT_BIN, or the release build)")
    args = parser.parse_args()
    if args.repeat < 1 or args.ranks < 1:
        parser.error("--repeat and --ranks must be at least 1")
    return args


def missing_program(args):
    """A sentence that says what to install, or None."""
    if not (Path(args.python).parent / "torchrun").exists():
        return (f"no torchrun next to {args.python}; install PyTorch (4.6 GB) with: "
                "python3 -m venv .deps/peers && .deps/peers/bin/pip install torch==2.11.0 "
                "torchvision==0.26.0 numpy")
    if not os.access(args.cohort, os.X_OK):
        return f"no program {args.cohort}; build it, or name it with --cohort"
    return None


def main():
    args = parse_arguments()
    missing = missing_program(args)
    if missing:
        print(f"compare: {missing}", file=sys.stderr)
        return 2

    def progress(line):
        print(f"compare: {line}", file=sys.stderr, flush=True)

    failed = False
    if not args.json:
        print(f"{'case':15} {'what':27} {'Cohort':28} {'alternative':30} {'ratio':>7}")
    with tempfile.TemporaryDirectory() as scratch:
        programs = Programs(args, scratch)
        for name in args.case or CASES:
            own, peers = CASES[name](programs)
            try:
                times = run_in_turns(name, {**own, **peers}, args.repeat, progress)
            except RunFailed as error:
                progress(f"{name} FAILED: {error}")
                failed = True
                continue
            for row in rows_of(name, times, own, peers):
                print(json.dumps(row) if args.json else format_row(row), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
