#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kills ranks, zygotes and agents of `cohort launch` at random, and checks what is left.

  kill_storm.py --tool build/release/tool_bin/launch_tool [--kills 200] [--seed N]

After each kill: the run ends within the deadline, no process of it is alive, nothing
is new in /dev/shm or the temporary folder, and stderr names the cause. A failing case
prints its number and seed: --only NUMBER repeats it.
"""
import argparse
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

SIGNALS = ["KILL", "TERM", "SEGV", "INT", "HUP", "QUIT", "ABRT", "STOP"]
DEADLINE_S = 20


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def alive(mark):
    """Processes with the mark in their environment, as {pid: name}; zombies are dead."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or mark.encode() not in read(f"/proc/{entry}/environ"):
            continue
        stat = read(f"/proc/{entry}/stat").decode(errors="replace")
        if not stat or stat[stat.rfind(")") + 2 : stat.rfind(")") + 3] == "Z":
            continue
        found[int(entry)] = stat[stat.find("(") + 1 : stat.rfind(")")]
    return found


def litter(folders):
    return {os.path.join(f, name) for f in folders for name in os.listdir(f)}


def start(args, rng, mark):
    """Two to four ranks that meet in the store, as programs or as forked bodies."""
    act = ["meet", "100000", str(rng.choice([0, 1, 5]))]
    command = [args.tool, "-n", str(rng.choice([1, 2, 3, 4])), "--grace", "0.5",
               "--stopped-limit", "0.5"]
    if rng.random() < 0.3:
        command += ["--", args.tool, "--act"] + act
    else:
        command += ["--body"] + act
    env = dict(os.environ, COHORT_STORM_MARK=mark, OMP_NUM_THREADS="1")
    out, err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
    run = subprocess.Popen(command, stdout=out, stderr=err, stdin=subprocess.DEVNULL,
                           env=env)
    return run, out, err, command


def pick_victim(run, rng, mark):
    """A living process of the kind chosen; the agent while there is nothing else."""
    kind = rng.choice(["rank", "rank", "zygote", "agent"])
    others = {p: n for p, n in alive(mark).items() if p != run.pid}
    zygotes = [p for p, n in others.items() if n == "cohort-zygote"]
    ranks = [p for p, n in others.items() if n != "cohort-zygote"]
    if kind == "zygote" and zygotes:
        return "zygote", zygotes[0]
    if kind == "rank" and ranks:
        return "rank", rng.choice(ranks)
    return "agent", run.pid


def send(pid, name):
    try:
        os.kill(pid, getattr(signal, "SIG" + name))
    except ProcessLookupError:
        pass


def wait_for_moment(run, rng, mark):
    """While the agent starts; as its first child appears; or in the middle of work."""
    kind = rng.choice(["start", "birth", "birth", "work"])
    if kind == "start":
        time.sleep(rng.uniform(0, 0.8))
        return kind
    until = time.monotonic() + DEADLINE_S
    while len(alive(mark)) < 2 and run.poll() is None and time.monotonic() < until:
        pass
    time.sleep(rng.choice([0, rng.uniform(0, 0.02), rng.uniform(0, 0.2)])
               if kind == "birth" else rng.uniform(0.2, 1))
    return kind


def strike(run, rng, mark):
    """One kill. What cannot end a run by itself is followed by what does."""
    moment = wait_for_moment(run, rng, mark)
    victim, pid = pick_victim(run, rng, mark)
    zygote = "cohort-zygote" in alive(mark).values()
    name = rng.choice(SIGNALS)
    send(pid, name)
    text = f"{moment}: SIG{name} to {victim}"
    harmless = victim == "zygote" and name not in ("KILL", "SEGV", "ABRT")
    if harmless or (victim == "agent" and name == "STOP"):
        time.sleep(rng.uniform(0, 0.3))
        last = rng.choice(["TERM", "KILL"])
        send(run.pid, last)
        if last == "TERM":
            send(run.pid, "CONT")
        text += f", then SIG{last} to agent"
        victim = "agent"
    return text, victim == "agent" and not zygote


def wait_gone(mark, seconds):
    until = time.monotonic() + seconds
    while True:
        left = alive(mark)
        if not left or time.monotonic() > until:
            return left
        time.sleep(0.01)


def one(args, number):
    rng = random.Random(f"{args.seed}/{number}")
    mark = f"storm-{os.getpid()}-{number}-{rng.random()}"
    folders = ["/dev/shm", tempfile.gettempdir()] if args.check_tmp else ["/dev/shm"]
    before = litter(folders)
    run, out, err, command = start(args, rng, mark)
    # An agent that dies before it has a zygote can say nothing at all.
    what, speechless = strike(run, rng, mark)
    problems = []
    try:
        code = run.wait(timeout=DEADLINE_S)
    except subprocess.TimeoutExpired:
        problems.append(f"hangs: {alive(mark)}")
        run.kill()
        code = run.wait()
    left = wait_gone(mark, 2)
    if left:
        problems.append(f"left running: {left}")
        for pid in left:
            send(pid, "KILL")
    if litter(folders) - before:
        problems.append(f"left behind: {litter(folders) - before}")
    out.seek(0)
    err.seek(0)
    errors = err.read().decode(errors="replace")
    if code == 0:
        problems.append("exit code 0")
    if not re.search(r"^\[launch\] .*(failed: |zygote|died|SIG)", errors, re.M):
        if not speechless:
            problems.append("no cause on stderr")
    print(f"{number:4} {what}: exit code {code}", flush=True)
    for problem in problems:
        print(f"     PROBLEM {problem}\n     {' '.join(command)}\n{errors}", flush=True)
    return not problems


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tool", required=True)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--only", type=int, default=None)
    parser.add_argument("--check-tmp", action="store_true",
                        help="nothing else may use the temporary folder meanwhile")
    args = parser.parse_args()
    if args.seed is None:
        args.seed = random.SystemRandom().randrange(1 << 30)
    print(f"seed {args.seed}", flush=True)
    numbers = range(args.kills) if args.only is None else [args.only]
    bad = [n for n in numbers if not one(args, n)]
    print(f"{len(numbers)} kills, {len(bad)} with problems {bad or ''}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
