# SPDX-License-Identifier: Apache-2.0
"""The faults that fault_storm.py draws from, each kind with its weight.

A live fault strikes at once: a signal, a resize, a flip in a file. An armed one is in
COHORT_FAULT of one life of the agent, which every rank and spare of that life inherits:
each process comes to the place by itself, and notes the strike in COHORT_FAULT_LOG, until it
has struck a few times in that life. What was armed and did not strike is not counted.
"""
import glob

# kind: weight among the faults that strike at once
LIVE = {"kill": 6, "segv": 2, "abort": 2, "term": 1, "stop": 1, "pause": 1,
        "two-at-once": 3, "during-recovery": 3, "during-save": 2, "during-resize": 1,
        "resize": 2, "clock": 2, "flip-file": 2, "agent": 2}
# The share of its draws that a plan of an agent's life gives to each.
ARMED = {"exit": 3, "freeze": 1, "flip-weight": 4, "flip-moment": 4, "flip-mirror": 3,
         "flip-gradient": 3, "flip-snapshot": 3, "full-disk": 2,
         "slow-disk": 2, "kill-in-recovery": 3, "kill-in-healing": 2, "kill-in-save": 2,
         "kill-in-snapshot": 2}
SIGNALS = {"kill": "KILL", "segv": "SEGV", "abort": "ABRT", "term": "TERM",
           "stop": "STOP"}

# Where the kinds that have several places strike.
RECOVERING = ("train.compare_held", "train.exchange", "train.adopted", "train.settled",
              "train.restore", "backup.load")
HEALING = ("train.drifted", "train.heal", "train.healed", "train.go_back",
           "train.went_back")
SAVING = ("disk.write", "disk.sync", "disk.name")

# Each process of a life flips them again. Every flip costs a recovery, and three in a row
# without a step between them end a run.
MOST_FLIPS = 2

FAKETIME = glob.glob("/usr/lib/*/faketime/libfaketime.so.1")


def check(kinds):
    """A table of those that were asked for; what is unknown ends the program."""
    unknown = set(kinds) - set(LIVE) - set(ARMED)
    if unknown:
        raise SystemExit(f"--kinds {','.join(sorted(unknown))}: unknown; "
                         f"legal: {', '.join([*LIVE, *ARMED])}")
    return ({kind: weight for kind, weight in LIVE.items() if not kinds or kind in kinds},
            {kind: weight for kind, weight in ARMED.items() if not kinds or kind in kinds})


def is_cut(layout):
    return "shard=" in layout and "shard=0" not in layout


class Plan:
    """The armed faults of one life of the agent."""

    def __init__(self, rng, weights, ranks, actions, layout):
        self.rng, self.ranks, self.actions = rng, ranks, actions
        self.kind_of = {}  # (name, action word) -> kind
        self.lines = []
        # A rank that dies three times without a step being committed ends the run, and
        # rightly so: each has one armed death, and one rank alone dies in recoveries.
        # And each memory of a rank flips once: the second flip of a bit mends the first.
        self.deaths = set()
        self.flipped = set()
        self.frail = rng.randrange(ranks)
        self.cut = is_cut(layout)  # else rank 0 owns all of the state, and none is mirrored
        weights = {kind: weight for kind, weight in weights.items()
                   if kind != "flip-mirror" or self.cut}
        for kind in rng.choices(list(weights), list(weights.values()), k=12) if weights else ():
            self.arm(kind)

    def arm(self, kind):
        rng = self.rng
        # Steps since that rank's process began: most processes do not live for long.
        step = 2 + int(rng.expovariate(1 / 8))
        some_action = f"[{rng.randrange(self.actions)}]"
        flips = {"flip-weight": "engine.action", "flip-moment": "engine.moment",
                 "flip-mirror": "engine.mirror", "flip-gradient": "engine.gradient"}
        if kind in flips:
            self.add(kind, flips[kind], some_action, step, "flip")
        elif kind == "exit":
            self.add(kind, "engine.action", some_action, step + 8, "throw")
        elif kind == "freeze":
            self.add(kind, "engine.action", some_action, step + 8, "freeze")
        elif kind == "flip-snapshot":
            self.add(kind, "backup.snapshot_data", "", rng.randint(1, 5), "flip",
                     None if self.cut else 0)
        elif kind == "full-disk":
            self.add(kind, "disk.write", "", rng.randint(1, 12), "drop")
        elif kind == "slow-disk":
            self.add(kind, "disk.sync", "", rng.randint(1, 8),
                     f"slow{rng.randint(50, 1500)}")
        elif kind == "kill-in-recovery":
            self.add(kind, rng.choice(RECOVERING), "", rng.randint(3, 6), "kill", self.frail)
        elif kind == "kill-in-healing":
            self.add(kind, rng.choice(HEALING), "", rng.randint(1, 2), "kill", self.frail)
        elif kind == "kill-in-save":
            self.add(kind, rng.choice(SAVING), "", rng.randint(1, 12), "kill")
        elif kind == "kill-in-snapshot":
            # A rank that never lives to finish one lets nobody keep what was made.
            self.add(kind, "backup.snapshot", "", rng.randint(2, 6), "kill")

    def add(self, kind, name, index, count, action, rank=None):
        rank = self.rng.randrange(self.ranks) if rank is None else rank
        if action in ("throw", "kill", "freeze"):
            if rank in self.deaths:
                return
            self.deaths.add(rank)
        if action == "flip":
            if (name, rank) in self.flipped or len(self.flipped) >= MOST_FLIPS:
                return
            self.flipped.add((name, rank))
        self.kind_of[name, action] = kind
        most = self.rng.randint(1, 4)
        self.lines.append(f"{name}{index}@{rank}:{count}={action}*{most}")

    @property
    def text(self):
        return ";".join(self.lines)

    def kind(self, struck):
        """What a line of COHORT_FAULT_LOG tells of: NAME[INDEX]@RANK=ACTION."""
        head, _, action = struck.rpartition("=")
        return self.kind_of.get((head.split("@")[0].split("[")[0], action))


def clock_environment(file):
    """The clock of day of a run is this file's; what measures time goes on as it is."""
    return {"LD_PRELOAD": FAKETIME[0], "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_CACHE_DURATION": "1",
            "NO_FAKE_STAT": "1"}
