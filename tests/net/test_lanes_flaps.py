# SPDX-License-Identifier: Apache-2.0
"""Links that come and go or change, and a peer that rests: none of it is an error."""
import signal
import time

import ranks
from lanes import BUSY_S, CHANCE, IS_LONG, NEAR_S, BrokenCase, only_long, pause

FLAP_S = 60 if IS_LONG else 6
ALL = range(4)


class Rests(BrokenCase):
    def check_stop(self, rank, after):
        """2 s, with bytes in flight. No lane is taken for dead, and one warning names the rank."""
        job = self.job("long")
        pause(after)
        self.await_bytes(ALL, "bytes over all NICs")
        job[rank].child.send_signal(signal.SIGSTOP)
        pause(2)
        job[rank].child.send_signal(signal.SIGCONT)
        self.await_bytes(ALL, "bytes again", 5)
        for process in job:
            self.assertNotIn("given up", process.stderr, self.story(job))
            self.assertNotIn("is over", process.stderr, self.story(job))
        self.finish(job)
        warnings = [line for line in job[1 - rank].stderr.splitlines() if "silent" in line]
        self.assertEqual(len(warnings), 1, self.story(job))
        self.assertIn("rank %d" % rank, warnings[0])

    def test_a_receiver_that_rests_costs_no_lane(self):
        self.check_stop(1, 0.5)

    @only_long
    def test_a_sender_that_rests_costs_no_lane(self):
        self.check_stop(0, 0.5)

    @only_long
    def test_a_peer_that_rests_early_is_named(self):
        """Before its first heartbeat."""
        self.check_stop(1, 0)


class Changes(BrokenCase):
    def test_the_mtu_may_change(self):
        job = self.job("long", "short", "get")
        for mtu in (1000, 1500):
            for nic in ALL:
                for host in range(2):
                    self.lab.set_mtu(host, nic, mtu)
            self.await_bytes(ALL, "bytes with an MTU of %d" % mtu, 5)
            self.check_runs(job)
        self.finish(job)

    def test_two_links_that_come_and_go(self):
        """One is there while the other is not, by turns; the rest is gone. For how long, is left to
        chance: the kernels ask for a hardware address once a second, and a fixed beat can be such
        that they ask in vain every time."""
        job = self.job("long", "put")
        host = CHANCE.randrange(2)
        pair = CHANCE.sample(ALL, 2)
        for nic in set(ALL) - set(pair):
            self.lab.unplug(host, nic)
        end, turn = time.monotonic() + FLAP_S, 0
        while time.monotonic() < end:
            self.lab.plug(host, pair[turn % 2])
            self.lab.unplug(host, pair[1 - turn % 2])
            turn += 1
            pause(CHANCE.uniform(0.2, 1.5))
            self.check_runs(job)
        self.heal()
        self.await_bytes(ALL, "bytes over all of them again", 5)
        self.finish(job)

    @only_long
    def test_two_of_four_that_come_and_go(self):
        """The others carry on: nobody waits."""
        job = self.job("long")
        pair = CHANCE.sample(ALL, 2)
        began, turn = time.monotonic(), 0
        while time.monotonic() < began + FLAP_S:
            self.lab.plug(0, pair[turn % 2])
            self.lab.unplug(0, pair[1 - turn % 2])
            turn += 1
            pause(0.5)
            self.check_runs(job)
        self.heal()
        self.await_bytes(ALL, "bytes over all of them again", 5)
        until = time.monotonic()
        self.finish(job)
        self.check_stalls(job, began, NEAR_S + BUSY_S, until)


if __name__ == "__main__":
    ranks.main()
