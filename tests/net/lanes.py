# SPDX-License-Identifier: Apache-2.0
"""Jobs of lanes_program in a lab: traffic between hosts that goes on while a test does things to
their NICs. The program checks every byte and says how long nothing moved."""
import os
import random
import sys
import time
import unittest

from lab import Lab
from ranks import BUILD, START_S, NetCase, clean_env, wait_until

LANES_PROGRAM = os.environ.get("NET_LANES_PROGRAM",
                               os.path.join(BUILD, "tests", "net.lanes_program"))
IS_LONG = "--long" in sys.argv  # many more rounds, and the limits of FAULTS.md
if IS_LONG:
    sys.argv.remove("--long")
IS_SLOW = "NET_SLOW" in os.environ  # sanitizers, or not optimised: times say less
SEED = int(os.environ.get("LANES_SEED", random.SystemRandom().randrange(1 << 32)))
CHANCE = random.Random(SEED)
PORT = 23471
# how long two busy cores may keep a rank waiting, besides
BUSY_S = (0.5 if not IS_LONG else 0.1) + (0.7 if IS_SLOW else 0)
NEAR_S = 0.1  # FAULTS.md: a stall after a NIC of the sender goes
FAR_S = 1.5   # a NIC of the receiver, or a path
BACK_S = 5    # until a healed NIC carries bytes again
MOVED = 500_000  # bytes that no heartbeat explains

print("LANES_SEED=%d" % SEED, file=sys.stderr)


def only_long(test):
    """For the quick form there is a test that is much like it."""
    return unittest.skipUnless(IS_LONG, "with --long")(test)


def pause(seconds):
    """Not to wait for something: so long a fault lasts."""
    time.sleep(seconds)


class LanesCase(NetCase):
    """self.lab is one of the class; each test puts back what it changed."""
    HOSTS, NICS, RATE = 2, 4, "1G"
    latest = ()  # the ranks of the latest job

    @classmethod
    def setUpClass(cls):
        cls.lab = Lab(hosts=cls.HOSTS, nics=cls.NICS, rate=cls.RATE)
        cls.addClassCleanup(cls.lab.close)

    def start_job(self, *args, **variables):
        """One rank per host; returns when all have started."""
        variables.setdefault("WEFT_LOG", "link:info,warn")
        job = [self.start([LANES_PROGRAM] + list(args),
                          clean_env(WEFT_RANK=rank, WEFT_RANKS=self.HOSTS,
                                    WEFT_ROOT="%s:%d" % (self.lab.address(0), PORT), **variables),
                          self.lab.host[rank].where) for rank in range(self.HOSTS)]
        deadline = time.monotonic() + START_S
        for process in job:
            process.event("started", deadline)
        self.latest = job
        return job

    def job(self, *traffics, **variables):
        """… when there is progress."""
        job = self.start_job(*traffics, **variables)
        self.await_bytes(range(self.NICS), "a beginning", any_nic=True)
        return job

    def finish(self, job, within=START_S):
        """Ends the traffic: all of them are done, and right. Returns {(traffic, rank): event}."""
        deadline = time.monotonic() + within
        for process in job:
            process.child.stdin.close()
        for process in job:
            self.assertEqual(process.wait(deadline), 0, self.story(job))
        return {(event["traffic"], rank): event for rank, process in enumerate(job)
                for event in process.events if event["event"] == "done"}

    def story(self, job):
        """All that was said, for a failed test."""
        return "LANES_SEED=%d\n" % SEED + "\n".join(
            "---- rank %d: %s\n%s" % (rank, "".join(process.lines), process.stderr)
            for rank, process in enumerate(job))

    def check_first_message_without_eth0(self, host):
        """It has died there when the first message makes lanes; it is used as soon as it is back."""
        job = self.start_job("--hold", "long", "back", WEFT_LOG="link:info,control:info,warn")
        wait_until(lambda: "ways back" in job[1].stderr, START_S, "ways back")
        self.addCleanup(self.lab.plug, host, 0)
        self.lab.unplug(host, 0)
        wait_until(lambda: "goes by" in job[1].stderr, 5, "the control connection")
        for process in job:
            process.child.stdin.write("\n")
            process.child.stdin.flush()
        self.await_bytes(range(1, self.NICS), "bytes over the others", 5)
        self.lab.plug(host, 0)
        self.await_bytes([0], "bytes over eth0", BACK_S)
        self.finish(job)

    def check_runs(self, job):
        if all(process.child.poll() is None for process in job):
            return
        for process in job:  # the others have something to say, too
            try:
                process.wait(time.monotonic() + 2)
            except AssertionError:
                pass
        self.fail("a rank has ended\n" + self.story(job))

    # ---- bytes per NIC ----

    def carried(self):
        """[bytes, both ways, of each NIC of host 0]"""
        counters = self.lab.host[0].counters()
        return [sum(counters["eth%d" % nic]) for nic in range(self.NICS)]

    def await_bytes(self, nics, what, within=START_S, any_nic=False):
        """Until each of the NICs (or one) has carried bulk from now on."""
        before = self.carried()

        def moved():
            now = self.carried()
            return (any if any_nic else all)(now[nic] - before[nic] > MOVED for nic in nics)
        try:
            wait_until(lambda: moved() or any(one.child.poll() is not None for one in self.latest),
                       within, what)
        except AssertionError as error:
            self.fail("%s, only %s bytes\n%s" % (
                error, [b - a for a, b in zip(before, self.carried())], self.story(self.latest)))
        self.check_runs(self.latest)

    # ---- stalls ----

    def stalls(self, job, since, until=None):
        """The longest one of each traffic that ended after `since`, as {(traffic, rank): seconds}."""
        found = {}
        for rank, process in enumerate(job):
            while not process.arrived.empty():
                item = process.arrived.get()
                process.take(item)
                if item == "end":
                    process.arrived.put(item)
                    break
            for event in process.events:
                if event["event"] == "stall" and event["at"] + event["took"] > since and \
                        (until is None or event["at"] < until):
                    key = (event["traffic"], rank)
                    found[key] = max(found.get(key, 0), event["took"])
        return found

    def check_stalls(self, job, since, limit, until=None):
        for key, took in self.stalls(job, since, until).items():
            self.assertLessEqual(took, limit, "%s stalled\n%s" % (key, self.story(job)))


class BrokenCase(LanesCase):
    """Whatever a test does to the links, they are whole after it."""

    def setUp(self):
        super().setUp()
        self.addCleanup(self.heal)

    def heal(self):
        """Whatever a test left. None is waited for before all are put back."""
        for host in range(2):
            for nic in range(self.NICS):
                self.lab.host[host].run(["ip", "link", "set", "eth%d" % nic, "up"])
                self.lab.switch.run(["ip", "link", "set", "p%d-%d" % (host, nic), "master",
                                     "br%d" % nic, "up"])
        for host in range(2):
            for nic in range(self.NICS):
                self.lab.await_link(host, nic)
