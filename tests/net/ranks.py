# SPDX-License-Identifier: Apache-2.0
"""Ranks as processes: started with an environment of their own, watched line by line, never left
behind. Every wait has a deadline. Used by all tests of this folder."""
import ctypes
import json
import os
import queue
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

BUILD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "build", "release")
PROGRAM = os.environ.get("NET_PROGRAM", os.path.join(BUILD, "tests", "net.program"))
CLI = os.environ.get("NET_CLI", os.path.join(BUILD, "bin", "weft"))
SKIPPED = 77  # ctest's SKIP_RETURN_CODE
START_S = 20  # how long a start may take here, on a loaded machine too
FOREIGN = re.compile(r"^(WEFT_|OMPI_|PMIX_|PMI_|MPI|HYDRA|SLURM_|TORCHELASTIC_|MASTER_|"
                     r"RANK$|WORLD_SIZE$|LOCAL_)")
PR_SET_PDEATHSIG = 1
libc = ctypes.CDLL(None, use_errno=True)


def clean_env(**more):
    """This process's environment without anything that a launcher may have said."""
    env = {name: value for name, value in os.environ.items() if not FOREIGN.match(name)}
    env.update(XDG_CONFIG_HOME="/nonexistent")  # no tuned profile of whoever runs this
    env.update(WEFT_START_TIMEOUT="%ds" % START_S, WEFT_TIMEOUT="20s")
    env.update({name: str(value) for name, value in more.items()})
    return env


def die_with_us():
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Process:
    """One started process; its JSON lines are events, the other lines are kept as text."""

    def __init__(self, argv, env, where=(), pass_fds=()):
        self.argv = argv
        self.child = subprocess.Popen(
            list(where) + argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, errors="replace", pass_fds=pass_fds,
            preexec_fn=die_with_us)
        self.pid = self.child.pid
        self.events = []
        self.lines = []
        self.stderr = ""
        self.arrived = queue.Queue()
        self.threads = [threading.Thread(target=self.read_stdout, daemon=True),
                        threading.Thread(target=self.read_stderr, daemon=True)]
        for thread in self.threads:
            thread.start()

    def read_stdout(self):
        for line in self.child.stdout:
            self.lines.append(line)
            start = line.find("{")
            try:
                self.arrived.put(json.loads(line[start:]) if start >= 0 else None)
            except ValueError:
                pass
        self.arrived.put("end")

    def read_stderr(self):
        for line in self.child.stderr:
            self.stderr += line

    def take(self, item):
        if isinstance(item, dict):
            self.events.append(item)
        return item != "end"

    def event(self, name, deadline, **fields):
        """The first event of this name with these fields; AssertionError at the deadline or when the process ended
        without one."""
        fields["event"] = name
        while True:
            for event in self.events:
                if all(event.get(field) == value for field, value in fields.items()):
                    return event
            try:
                goes_on = self.take(self.arrived.get(timeout=max(0, deadline - time.monotonic())))
            except queue.Empty:
                raise AssertionError("%s: no \"%s\" in time" % (self.describe(), name)) from None
            if not goes_on:
                self.arrived.put("end")
                raise AssertionError("%s ended without \"%s\"" % (self.describe(), name))

    def wait(self, deadline):
        """Its exit status."""
        try:
            code = self.child.wait(max(0.001, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise AssertionError("%s still runs at the deadline" % self.describe()) from None
        for thread in self.threads:
            thread.join(5)
        while not self.arrived.empty():
            self.take(self.arrived.get())
        return code

    def finish(self, deadline):
        self.child.stdin.close()
        return self.wait(deadline)

    def describe(self):
        return "%s (pid %d) said %s %s" % (" ".join(self.argv), self.pid, "".join(self.lines),
                                           self.stderr)

    def kill(self):
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait()
        for stream in (self.child.stdin, self.child.stdout, self.child.stderr):
            try:
                stream.close()
            except OSError:
                pass


class NetCase(unittest.TestCase):
    """A test that starts processes: all are gone when it ends."""

    def setUp(self):
        self.processes = []
        self.folder = tempfile.mkdtemp(prefix="weft-net-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.addCleanup(self.kill_all)

    def kill_all(self):
        for process in self.processes:
            process.kill()

    def start(self, argv, env, where=()):
        process = Process(argv, env, where)
        self.processes.append(process)
        return process

    def rank(self, *args, where=(), **variables):
        """One process of program.c; variables go to its environment."""
        return self.start([PROGRAM] + list(args), clean_env(**variables), where)

    def path(self, name, content=None, mode=0o600):
        path = os.path.join(self.folder, name)
        if content is not None:
            with open(path, "w", encoding="utf-8") as file:
                file.write(content)
            os.chmod(path, mode)
        return path

    def check_job(self, ranks, deadline=None):
        """All started as one job, in the order of their ranks; returns what they said."""
        deadline = deadline or time.monotonic() + START_S
        events = [rank.event("started", deadline) for rank in ranks]
        for number, event in enumerate(events):
            self.assertEqual((event["rank"], event["ranks"], event["is_right"]),
                             (number, len(ranks), True))
        return events

    def check_ends(self, ranks, deadline=None):
        deadline = deadline or time.monotonic() + START_S
        for rank in ranks:
            self.assertEqual(rank.finish(deadline), 0, rank.describe())

    def check_refused(self, rank, status, *words, deadline=None):
        """This rank's start failed with the status, and its text has the words."""
        event = rank.event("failed", deadline or time.monotonic() + START_S)
        self.assertEqual((event["call"], event["status"]), ("start", status), event)
        for word in words:
            self.assertIn(str(word), event["text"])
        return event


class Foreigner:
    """A server that is not Weft, on a port of 127.0.0.1: silent, or greeting with bytes."""

    def __init__(self, port, greeting=b"", host="127.0.0.1"):
        self.greeting = greeting
        self.accepted = 0
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind((host, port))
        self.listener.listen(64)
        self.port = self.listener.getsockname()[1]
        self.guests = []
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                guest, _ = self.listener.accept()
                self.accepted += 1
                self.guests.append(guest)
                guest.sendall(self.greeting)
            except OSError:
                if self.listener.fileno() < 0:
                    return

    def close(self):
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.listener.close()
        for guest in self.guests:
            guest.close()


def free_ports(count):
    """The first of `count` neighbouring TCP ports that nobody listens on at this moment, below the
    ephemeral ones so that nobody is given one by chance; processes begin at different places."""
    for i in range(200):
        first = 12000 + (os.getpid() * 97 + i * 331 + free_ports.calls * 53) % 18000
        sockets = []
        try:
            for port in range(first, first + count):
                sockets.append(socket.socket())
                sockets[-1].bind(("127.0.0.1", port))
            free_ports.calls += 1
            return first
        except OSError:
            continue
        finally:
            for one in sockets:
                one.close()
    raise AssertionError("no %d free neighbouring ports" % count)


free_ports.calls = 0


def connections(pid):
    """TCP sockets of a process: (state, local address, local port, remote address, remote port)."""
    inodes = set()
    for fd in os.listdir("/proc/%d/fd" % pid):
        try:
            match = re.match(r"socket:\[(\d+)\]", os.readlink("/proc/%d/fd/%s" % (pid, fd)))
        except OSError:
            continue
        if match:
            inodes.add(match.group(1))
    found = []
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        if not os.path.exists("/proc/%d/net/%s" % (pid, name)):
            continue  # a kernel without IPv6
        with open("/proc/%d/net/%s" % (pid, name), encoding="ascii") as table:
            for line in list(table)[1:]:
                words = line.split()
                if words[9] in inodes:
                    ends = [end for text in words[1:3] for end in read_end(text, family)]
                    state = {"01": "established", "0A": "listening"}.get(words[3], "other")
                    found.append((state, *ends))
    return found


def read_end(text, family):
    address, port = text.split(":")
    raw = b"".join(bytes.fromhex(address[i:i + 8])[::-1] for i in range(0, len(address), 8))
    return socket.inet_ntop(family, raw), int(port, 16)


def wait_until(claim, seconds, what):
    """Polls; returns the first true value."""
    end = time.monotonic() + seconds
    while True:
        value = claim()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError("not within %.1f s: %s" % (seconds, what))
        time.sleep(0.005)


def main():
    """Runs the calling file's tests; when none could run, the exit status says so to ctest."""
    program = unittest.main(exit=False, verbosity=2)
    result = program.result
    if result.wasSuccessful() and result.testsRun > 0 and len(result.skipped) == result.testsRun:
        sys.exit(SKIPPED)
    sys.exit(0 if result.wasSuccessful() else 1)
