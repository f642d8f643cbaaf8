#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kills ranks, zygotes and agents at random, and checks what is left.

  kill_storm.py --tool build/release/tool_bin/launch_tool [--kills 200] [--seed N]
  kill_storm.py --train build/release/bin/cohort [--kills 200] [--seed N]

The first storms a small program that does nothing but meet, the second `cohort train`.
After each kill: the run ends within the deadline with the exit code of the contract,
no process of it is alive, nothing is new in /dev/shm or the temporary folder, and
stderr names the cause. A failing case prints its number and seed: --only NUMBER
repeats it.
"""
import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SIGNALS = ["KILL", "TERM", "SEGV", "INT", "HUP", "QUIT", "ABRT", "STOP"]
STOPPING = ["TERM", "INT", "HUP", "QUIT", "USR1"]  # what asks `cohort train` to stop
LOST_RANK = 4
DEADLINE_S = 20


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def alive(mark):
    """Processes with the mark in their environment, as {pid: parent}; zombies are dead."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or mark.encode() not in read(f"/proc/{entry}/environ"):
            continue
        stat = read(f"/proc/{entry}/stat").decode(errors="replace")
        if not stat or stat[stat.rfind(")") + 2] == "Z":
            continue
        found[int(entry)] = int(stat[stat.rfind(")") + 2 :].split()[1])
    return found


def litter(folders):
    return {os.path.join(f, name) for f in folders for name in os.listdir(f)}


def tool_command(args, rng):
    """One to four ranks that meet in the store, as programs or as forked bodies."""
    act = ["meet", "100000", str(rng.choice([0, 1, 5]))]
    command = [args.tool, "-n", str(rng.choice([1, 2, 3, 4])), "--grace", "0.5",
               "--stopped-limit", "0.5"]
    if rng.random() < 0.3:
        return command + ["--", args.tool, "--act"] + act
    return command + ["--body"] + act


def train_command(args, rng):
    """A run without end that writes all it can."""
    command = [args.train, "train", "fashion-mnist", "-n", str(rng.choice([2, 2, 2, 1, 3])),
               "--grace", "1", "--backend", rng.choice(["auto", "auto", "gloo"]),
               "--save-initial", "initial", "--save-final", "final", "--sample-log",
               "samples", "--out", "out"]
    for key in ("data.synthetic=true", "model.width=1", "batch=24", "epochs=100000",
                "log.every_steps=1", "elastic=off"):
        command += ["--set", key]
    return command + rng.choice([["--json"], []])


def start(args, rng, mark, folder):
    command = train_command(args, rng) if args.train else tool_command(args, rng)
    env = dict(os.environ, COHORT_STORM_MARK=mark, OMP_NUM_THREADS="1", TMPDIR=folder)
    out, err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
    run = subprocess.Popen(command, stdout=out, stderr=err, stdin=subprocess.DEVNULL,
                           env=env, cwd=folder)
    return run, out, err, command


def zygotes_of(run, processes):
    return [p for p, parent in processes.items() if parent == run.pid]


def pick_victim(run, rng, mark):
    """A living process of the kind chosen; the agent while there is nothing else."""
    kind = rng.choice(["rank", "rank", "zygote", "agent"])
    processes = alive(mark)
    zygotes = zygotes_of(run, processes)
    ranks = [p for p, parent in processes.items() if parent in zygotes]
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
    """One kill. What cannot end a run by itself is followed by what does.

    Returns it in words, whether nobody is left to say a word, and the legal exit codes
    and causes of `cohort train`.
    """
    moment = wait_for_moment(run, rng, mark)
    victim, pid = pick_victim(run, rng, mark)
    zygote = zygotes_of(run, alive(mark))
    name = rng.choice(SIGNALS)
    send(pid, name)
    text = f"{moment}: SIG{name} to {victim}"
    if victim == "rank" and name == "STOP":
        time.sleep(rng.uniform(0, 0.5))
        name = "KILL"
        send(pid, name)
        text += ", then SIGKILL"
    harmless = victim == "zygote" and name not in ("KILL", "SEGV", "ABRT")
    if harmless or (victim == "agent" and name == "STOP"):
        time.sleep(rng.uniform(0, 0.3))
        victim, pid, name = "agent", run.pid, rng.choice(["TERM", "KILL"])
        send(pid, name)
        if name == "TERM":
            send(pid, "CONT")
        text += f", then SIG{name} to agent"
    elif victim == "agent" and zygote and rng.random() < 0.2:
        time.sleep(rng.choice([0, rng.uniform(0, 0.05)]))
        send(zygote[0], "KILL")
        text += ", then SIGKILL to zygote"
        zygote = []
    return text, victim == "agent" and not zygote, expected(victim, pid, name)


def expected(victim, pid, name):
    """Exit codes as Popen has them, and what stderr must say."""
    number = getattr(signal, "SIG" + name)
    if victim == "rank":
        return {LOST_RANK}, rf"rank \d+ on \S+ \(pid {pid}\) failed: .*SIG{name}"
    if victim == "zygote":
        return {LOST_RANK}, rf"zygote .*\(pid {pid}\) was killed by SIG{name}"
    if name in STOPPING:  # before it listens to signals it dies of them
        return {128 + number, -number}, f"SIG{name}"
    return {-number}, "died"


def wait_gone(mark, seconds):
    until = time.monotonic() + seconds
    while True:
        left = alive(mark)
        if not left or time.monotonic() > until:
            return left
        time.sleep(0.01)


def check_train(command, code, output, errors, speechless, expectation):
    """What only `cohort train` promises."""
    codes, cause = expectation
    if code not in codes:
        yield f"exit code {code}; legal: {codes}"
    if not speechless and code >= 0 and not re.search(cause, errors):
        yield f"stderr does not say: {cause}"
    if "--json" not in command:
        return
    lines = output.splitlines(keepends=True)
    if code < 0 and lines and not lines[-1].endswith("\n"):
        lines.pop()  # the agent died while it wrote
    try:
        events = [json.loads(line) for line in lines]
    except ValueError as error:
        yield f"stdout is not JSON: {error}: {lines[-1]}"
        return
    last = events[-1]["event"] if events else None
    if code == LOST_RANK and last != "fault":
        yield f"the last event is {last}"
    steps = [event["step"] for event in events if event["event"] == "step"]
    if steps != list(range(1, len(steps) + 1)):
        yield f"steps are not in order: {steps[:20]}"


def check_folder(folder):
    """Only what was asked for by name."""
    legal = {"initial", "final", "samples", "out", "out/config.json", "out/history.log", "out/logs",
             "out/run.lock", "out/tensorboard"}
    for root, folders, files in os.walk(folder):
        for name in folders + files:
            path = os.path.relpath(os.path.join(root, name), folder)
            if path in legal or re.fullmatch(
                    r"out/logs/rank_\d+\.std(out|err)\.log|"
                    r"out/tensorboard/events\.out\.tfevents\.[^/]*", path):
                continue
            yield f"left behind: {path}"


def end(run, mark):
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
    return code, problems


def one(args, number):
    rng = random.Random(f"{args.seed}/{number}")
    mark = f"storm-{os.getpid()}-{number}-{rng.random()}"
    folders = ["/dev/shm"] + ([tempfile.gettempdir()] if args.check_tmp else [])
    folder = tempfile.mkdtemp()
    before = litter(folders)
    run, out, err, command = start(args, rng, mark, folder)
    # An agent that dies before it has a zygote can say nothing at all.
    what, speechless, expectation = strike(run, rng, mark)
    code, problems = end(run, mark)
    if litter(folders) - before:
        problems.append(f"left behind: {litter(folders) - before}")
    problems += check_folder(folder)
    shutil.rmtree(folder)
    out.seek(0)
    err.seek(0)
    output = out.read().decode(errors="replace")
    errors = err.read().decode(errors="replace")
    if code == 0:
        problems.append("exit code 0")
    if not re.search(r"^\[launch\] .*(failed: |zygote|died|SIG)", errors, re.M):
        if not speechless:
            problems.append("no cause on stderr")
    if args.train:
        problems += check_train(command, code, output, errors, speechless, expectation)
    print(f"{number:4} {what}: exit code {code}", flush=True)
    for problem in problems:
        print(f"     PROBLEM {problem}\n     {' '.join(command)}\n{errors[-2000:]}",
              flush=True)
    return not problems


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    program = parser.add_mutually_exclusive_group(required=True)
    program.add_argument("--tool", type=os.path.abspath)
    program.add_argument("--train", type=os.path.abspath, metavar="COHORT")
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--only", type=int, default=None)
    parser.add_argument("--first", type=int, default=0, help="number of the first kill")
    parser.add_argument("--check-tmp", action="store_true",
                        help="nothing else may use the temporary folder meanwhile")
    args = parser.parse_args()
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored under nohup, by programs too
    if args.seed is None:
        args.seed = random.SystemRandom().randrange(1 << 30)
    print(f"seed {args.seed}", flush=True)
    numbers = range(args.first, args.first + args.kills) if args.only is None else [args.only]
    bad = [n for n in numbers if not one(args, n)]
    print(f"{len(numbers)} kills, {len(bad)} with problems {bad or ''}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
