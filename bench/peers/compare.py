#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Cohort and what people use instead, timed in turns on this machine, with ratios.

  compare.py                          every case, each side 3 times, medians
  compare.py --case comm --repeat 5   one of them
  compare.py --json                   one JSON object per row

Every row is a time, so a ratio above 1 says how many times as fast Cohort is. A ratio
with a star sets Cohort's median of steps against the other's mean, which
counts every disturbance: it flatters Cohort, on a busy machine by any factor, and is
no result. See README.md here for the cases and for what has to be installed.
"""
import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUN_LIMIT_S = 1800  # that one program may take
BYTES = {4_000: "4K", 400_000: "400K", 4_000_000: "4M", 25_000_000: "25M",
         100_000_000: "100M"}


class RunFailed(Exception):
    pass


def execute(command, **variables):
    """stdout of a program that must end well."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    command = [str(part) for part in command]
    try:
        run = subprocess.run(command, text=True, capture_output=True, env=environment,
                             stdin=subprocess.DEVNULL, timeout=RUN_LIMIT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RunFailed(str(error)) from error
    if run.returncode != 0:
        last = (run.stderr.strip().splitlines() or ["nothing on stderr"])[-1]
        raise RunFailed(f"{' '.join(command)}: exit code {run.returncode}: {last}")
    return run.stdout


def json_rows(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


class Programs:
    """The programs of both sides. Each returns {(what, unit): value}; less is better."""

    def __init__(self, args, scratch):
        self.cohort = args.cohort
        self.python = args.python
        self.torchrun = Path(args.python).parent / "torchrun"
        self.measure = Path(args.measure)
        self.ranks = str(args.ranks)
        self.scratch = Path(scratch)

    # ---- Cohort ----

    def bench_comm(self, backend):
        sizes = ",".join(BYTES.values())
        rows = json_rows(execute([self.cohort, "bench", "comm", "-n", self.ranks,
                                  "--backend", backend, "--op", "all_reduce",
                                  "--bytes", sizes, "--json"]))
        # A backend without memory of its own has one row per size; shm has two.
        result = {}
        for row in rows:
            if row["backend"] == backend and row["memory"] == "ordinary":
                result[f"all_reduce {row['bytes']} bytes", "us"] = row["mean"]
        if not result:
            raise RunFailed(f"bench comm has no row of {backend} in ordinary memory")
        return result

    def bench_train(self, case, *flags):
        (row,) = json_rows(execute([self.cohort, "bench", "train", case, "-n",
                                    self.ranks, "--json", *flags]))
        return {("step", "ms"): row["step_ms"]}

    def train_first_step(self):
        events = json_rows(execute([self.cohort, "train", "fashion-mnist", "-n",
                                    self.ranks, "--max-steps", "3", "--json"]))
        return {("first step", "s"): events[-1]["first_step_s"]}

    # ---- PyTorch, Open MPI ----

    def torchrun_command(self):
        return [self.torchrun, "--standalone", "--nproc-per-node", self.ranks]

    def launch_command(self):
        return [self.cohort, "launch", "-n", self.ranks, "--", self.python]

    def all_reduce_lines(self, command, **variables):
        lines = re.findall(r"(\d+) bytes ([\d.]+) us", execute(command, **variables))
        return {(f"all_reduce {size} bytes", "us"): float(us) for size, us in lines}

    def gloo(self):
        return self.all_reduce_lines(
            [*self.torchrun_command(), self.measure / "allreduce_gloo.py"])

    def mpi(self):
        program = self.scratch / "allreduce_mpi"
        if not program.exists():
            execute(["mpicxx", "-O2", self.measure / "allreduce_mpi.cpp", "-o", program])
        return self.all_reduce_lines(
            ["mpirun", "--oversubscribe", "-n", self.ranks, program],
            OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")

    def fsdp2(self):
        script = Path(__file__).resolve().parent / "fsdp2.py"
        text = execute([*self.torchrun_command(), script])
        return {("step", "ms"): float(re.search(r"([\d.]+) ms/step", text)[1])}

    def ddp(self, starter, case, metrics):
        """baseline_ddp_cpu.py under torchrun, or any other command that starts ranks."""
        text = execute([*starter, self.measure / "baseline_ddp_cpu.py", case],
                       T0=f"{time.time():.6f}")
        match = re.search(r"([\d.]+) ms/step.*first step after ([\d.]+)s", text)
        if not match:
            raise RunFailed(f"baseline_ddp_cpu.py {case} printed no result")
        all_metrics = {("step", "ms"): float(match[1]), ("first step", "s"): float(match[2])}
        return {key: all_metrics[key] for key in all_metrics if key[0] in metrics}


def make_cases(programs):
    """{case: (Cohort's sides, the others)}: (name, program, what it makes of one run)."""
    p = programs
    peers = [("gloo, PyTorch", p.gloo, "mean")]
    if shutil.which("mpicxx") and shutil.which("mpirun"):
        peers.append(("Open MPI", p.mpi, "mean"))

    def ddp(name, starter, case, metrics):
        return [(name, lambda: p.ddp(starter, case, metrics), "mean")]

    def train(case, script_case):
        return ([("bench train", lambda: p.bench_train(case), "median")],
                ddp("DDP", p.torchrun_command(), script_case, ["step"]))

    both = ["step", "first step"]
    return {
        "comm": ([("shm", lambda: p.bench_comm("shm"), "mean"),
                  ("gloo", lambda: p.bench_comm("gloo"), "mean")], peers),
        "mlp100": train("mlp100", "mlp"),
        "resnet50-cifar": train("resnet50-cifar", "resnet50"),
        "fashion": train("fashion", "fashion"),
        "fsdp": ([("shard=3", lambda: p.bench_train("mlp100", "--layout", "shard=3"),
                   "median")], [("FSDP2, gloo", p.fsdp2, "median")]),
        "first-step": ([("train", p.train_first_step, "mean")],  # one step
                       ddp("DDP", p.torchrun_command(), "fashion", ["first step"])),
        "launch": (ddp("launch", p.launch_command(), "mlp", both),
                   ddp("torchrun", p.torchrun_command(), "mlp", both)),
    }


def run_case(case, sides, repeat, progress):
    """Both sides in turns, the order changing every round: {side: {metric: [values]}}."""
    values = {name: {} for name, _, _ in sides}
    for round_number in range(repeat):
        for name, program, _ in sides if round_number % 2 == 0 else sides[::-1]:
            progress(f"{case}: {name}, {round_number + 1} of {repeat}")
            for metric, value in program().items():
                values[name].setdefault(metric, []).append(value)
    return values


def rows_of(case, values, own_sides, peer_sides):
    for own, _, own_statistic in own_sides:
        for peer, _, peer_statistic in peer_sides:
            for (what, unit), mine in values[own].items():
                theirs = values[peer].get((what, unit))
                if not theirs:
                    continue
                medians = statistics.median(mine), statistics.median(theirs)
                yield {"case": case, "what": what, "unit": unit, "cohort": own,
                       "peer": peer, "cohort_median": medians[0],
                       "peer_median": medians[1], "ratio": medians[1] / medians[0],
                       "like_for_like": own_statistic == peer_statistic,
                       "cohort_values": mine, "peer_values": theirs}


def format_row(row):
    star = " " if row["like_for_like"] else "*"
    return (f"{row['case']:15} {row['what']:27} {row['cohort']:12} "
            f"{row['cohort_median']:11.2f} {row['unit']:3} {row['peer']:14} "
            f"{row['peer_median']:11.2f} {row['unit']:3} {row['ratio']:7.2f}{star}")


def default_python():
    return os.environ.get("COHORT_PEERS") or str(ROOT / ".deps/peers/bin/python")


def parse_arguments(case_names):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", choices=case_names,
                        help="may be repeated; default: all")
    parser.add_argument("--repeat", type=int, default=3, help="times each side runs")
    parser.add_argument("-n", "--ranks", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--measure", default=str(ROOT.parent / "shared/measure"),
                        help="folder of the other side's programs")
    parser.add_argument("--python", default=default_python(),
                        help="of an environment with PyTorch ($COHORT_PEERS)")
    parser.add_argument("--cohort", default=os.environ.get("COHORT_BIN")
                        or str(ROOT / "build/release/bin/cohort"))
    args = parser.parse_args()
    if args.repeat < 1 or args.ranks < 1:
        parser.error("--repeat and --ranks are at least 1")
    return args


def check_installation(args):
    """What to do first, or nothing."""
    if not (Path(args.python).parent / "torchrun").exists():
        return (f"no PyTorch at {args.python}; make it (4.6 GB) with: python3 -m venv "
                ".deps/peers && .deps/peers/bin/pip install torch==2.11.0 "
                "torchvision==0.26.0 numpy")
    if not (Path(args.measure) / "baseline_ddp_cpu.py").exists():
        return f"no baseline_ddp_cpu.py in {args.measure}; give its folder with --measure"
    if not os.access(args.cohort, os.X_OK):
        return f"no program {args.cohort}; build it, or give it with --cohort"
    return None


def main():
    names = list(make_cases(Programs(argparse.Namespace(
        cohort="", python="", measure="", ranks=2), "")))
    args = parse_arguments(names)
    missing = check_installation(args)
    if missing:
        print(f"compare: {missing}", file=sys.stderr)
        return 2

    def progress(line):
        print(f"compare: {line}", file=sys.stderr, flush=True)

    failed = False
    if not args.json:
        print(f"{'case':15} {'what':27} {'Cohort':28} {'instead':30} {'ratio':>7}")
    with tempfile.TemporaryDirectory() as scratch:
        cases = make_cases(Programs(args, scratch))
        for name in args.case or names:
            own, peers = cases[name]
            try:
                values = run_case(name, own + peers, args.repeat, progress)
            except RunFailed as error:
                progress(f"{name} FAILED: {error}")
                failed = True
                continue
            for row in rows_of(name, values, own, peers):
                print(json.dumps(row) if args.json else format_row(row), flush=True)
    if not args.json:
        print("* Cohort's median against a mean: no result on its own (--help)")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
