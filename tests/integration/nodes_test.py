#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Agents of two nodes meet under a shared secret, and other users are left outside.

The nodes are network namespaces with addresses of their own where this process may make
some (root, iproute2); elsewhere they are two loopback addresses.
"""
import contextlib
import os
import shutil
import socket
import struct
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

TOOL = os.environ["COHORT_LAUNCH_TOOL"]
DEADLINE_S = 60
TOKEN = "q8ZrYw0bKx7uNd3iG1mP"
NOBODY = 65534


def quiet(*command):
    return subprocess.run(command, capture_output=True, text=True)


class Nodes:
    """Two hosts: how to start a program on each, and the address of the first."""

    def __init__(self):
        self.names = [f"cohort{os.getpid()}{side}" for side in "ab"]
        self.address = "10.213.77.1"
        self.real = os.geteuid() == 0 and bool(shutil.which("ip")) and self.make()
        if not self.real:
            self.address = "127.0.0.2"

    def make(self):
        a, b = self.names
        steps = [["netns", "add", a], ["netns", "add", b],
                 ["link", "add", "cohort0", "netns", a, "type", "veth", "peer", "name",
                  "cohort0", "netns", b]]
        for name, address in zip(self.names, ("10.213.77.1/24", "10.213.77.2/24")):
            steps += [["-n", name, "addr", "add", address, "dev", "cohort0"],
                      ["-n", name, "link", "set", "cohort0", "up"],
                      ["-n", name, "link", "set", "lo", "up"]]
        if all(quiet("ip", *step).returncode == 0 for step in steps):
            return True
        self.remove()
        return False

    def remove(self):
        for name in self.names:
            quiet("ip", "netns", "del", name)

    def on(self, node, *command):
        if not self.real:
            return list(command)
        return ["nsenter", f"--net=/run/netns/{self.names[node]}", *command]

    def listening(self, node):
        """(address, port) of every socket that listens there, over IPv4."""
        table = quiet(*self.on(node, "cat", "/proc/self/net/tcp")).stdout
        rows = [line.split() for line in table.splitlines()[1:]]
        found = []
        for row in rows:
            address, port = row[1].split(":")
            if row[3] == "0A":
                packed = struct.pack("<I", int(address, 16))
                found.append((socket.inet_ntoa(packed), int(port, 16)))
        return found


def free_port(address="127.0.0.1"):
    with socket.socket() as probe:
        probe.bind((address, 0))
        return probe.getsockname()[1]


def wait_until(condition, what):
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"did not happen: {what}")
        time.sleep(0.02)


class AgentTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def start(self, *command):
        run = subprocess.Popen(list(map(str, command)), text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(lambda: (run.kill(), run.wait(), run.stdout.close(),
                                 run.stderr.close()))
        return run

    def expect(self, run, code):
        out, err = run.communicate(timeout=DEADLINE_S)
        self.assertEqual(run.returncode, code, err)
        self.assertNotIn(TOKEN, out + err)
        return out, err


class NodesTest(AgentTest):
    def setUp(self):
        super().setUp()
        self.nodes = Nodes()
        if self.nodes.real:
            self.addCleanup(self.nodes.remove)
        self.rdzv = f"{self.nodes.address}:{29400 if self.nodes.real else free_port()}"

    def token(self, content=TOKEN):
        file = self.folder / f"token{len(list(self.folder.iterdir()))}"
        file.touch(mode=0o600)
        file.write_text(content)
        return file

    def agent(self, node, token, *program):
        secret = ["--rdzv-token", token] if token else []
        return self.start(*self.nodes.on(node, TOOL, "-n", "1", "--nnodes", "2", "--rdzv",
                                         self.rdzv, *secret, "--", *program))

    def test_ranks_of_two_nodes_meet(self):
        token = self.token()
        meet = (TOOL, "--act", "meet", "5", "1")
        runs = [self.agent(node, token, *meet) for node in (0, 1)]
        outs = [self.expect(run, 0)[0] for run in runs]
        self.assertIn("round 4\n", "".join(outs))

    def test_nothing_listens_beyond_the_address(self):
        port = int(self.rdzv.split(":")[1])
        before = set(self.nodes.listening(0))
        run = self.agent(0, self.token(), "true")
        wait_until(lambda: (self.nodes.address, port) in self.nodes.listening(0),
                   "the agent listens at its address")
        new = set(self.nodes.listening(0)) - before
        self.assertNotIn("0.0.0.0", [address for address, _ in new])
        run.terminate()
        self.expect(run, 143)

    def test_another_token_is_refused_on_both_sides(self):
        host = self.agent(0, self.token(), "true")
        port = int(self.rdzv.split(":")[1])
        wait_until(lambda: (self.nodes.address, port) in self.nodes.listening(0),
                   "the agent listens")
        _, err = self.expect(self.agent(1, self.token("0" * 20), "true"), 2)
        self.assertIn(f"the agent at {self.rdzv} has another rendezvous token", err)
        right = self.agent(1, host.args[host.args.index("--rdzv-token") + 1], "true")
        _, said = self.expect(host, 0)
        self.expect(right, 0)
        self.assertIn("has another rendezvous token: it is refused", said)

    def test_an_address_others_can_reach_needs_a_token(self):
        if self.nodes.real:
            _, err = self.expect(self.agent(0, None, "true"), 2)
            self.assertIn("legal: --rdzv-token FILE", err)


@contextlib.contextmanager
def as_nobody():
    """Another user of this machine, where we may become one."""
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def told_to_another_user(kind, name, question):
    """What the socket of that name says to another user; b"" if it hangs up."""
    with socket.socket(socket.AF_UNIX, kind) as stranger, as_nobody():
        stranger.settimeout(DEADLINE_S)
        stranger.connect("\0" + name)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            stranger.send(question)
        try:
            return stranger.recv(4096)
        except ConnectionResetError:
            return b""


class OtherUsersTest(AgentTest):
    """On one machine, without a token."""

    def test_another_user_gets_no_answer(self):
        if os.geteuid() != 0:
            return  # there is nobody to play the other user
        end = self.folder / "end"
        os.mkfifo(end)
        rdzv = f"127.0.0.1:{free_port()}"
        host = self.start(TOOL, "-n", 1, "--nnodes", "1:2", "--rdzv", rdzv, "--", "cat", end)
        with open(end, "w"):  # the rank has it open too: the run is under way
            get_world = struct.pack("<BqI", 2, 0, 5) + b"world"
            asked = struct.pack("<I", len(get_world)) + get_world
            name = f"cohort-meeting-1/{rdzv}"
            self.assertEqual(told_to_another_user(socket.SOCK_STREAM, name, asked), b"")
            resize = struct.pack("<Ii", 0xC0490001, 3)
            name = f"cohort-agent-{host.pid}"
            self.assertEqual(
                told_to_another_user(socket.SOCK_SEQPACKET, name, resize), b"")
        self.expect(host, 0)


if __name__ == "__main__":
    unittest.main()
