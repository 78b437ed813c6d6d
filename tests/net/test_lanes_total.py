# SPDX-License-Identifier: Apache-2.0
"""What is worse than one NIC: all of them, a peer that is stopped or gone, links that come and go; and
an MTU that changes."""
import signal
import time

import ranks
from lanes import BUSY_S, CHANCE, IS_LONG, LanesCase, pause
from ranks import wait_until

PATH_S = 5   # without any path for so long, the peer is lost
SLACK_S = 1  # of a verdict
FLAP_S = 60 if IS_LONG else 6
ALL = range(4)


class Everything(LanesCase):
    def setUp(self):
        super().setUp()
        self.addCleanup(self.heal)

    def heal(self):
        """Whatever a test left. None is waited for before all are put back."""
        for host in range(2):
            for nic in ALL:
                self.lab.host[host].run(["ip", "link", "set", "eth%d" % nic, "up"])
                self.lab.switch.run(["ip", "link", "set", "p%d-%d" % (host, nic), "master",
                                     "br%d" % nic, "up"])
        for host in range(2):
            for nic in ALL:
                self.lab.await_link(host, nic)

    def blackhole_all(self, on=True):
        for nic in ALL:
            self.lab.blackhole(1, nic, on)

    def check_failure(self, job, rank, since, between, statuses, words):
        event = job[rank].event("failed", since + between[1] + 10)
        self.assertIn(event["status"], statuses, self.story(job))
        self.assertTrue(between[0] <= event["at"] - since <= between[1],
                        "%.2f s\n%s" % (event["at"] - since, self.story(job)))
        for word in words:
            self.assertIn(word, event["text"], self.story(job))
        self.assertEqual(job[rank].wait(time.monotonic() + 5), 1)

    # ---- F9, F10, F11 ----

    def test_no_nic_at_all_is_err_network_and_names_them(self):
        job = self.job("long")
        since = time.monotonic()
        for nic in ALL:
            self.lab.link_down(0, nic)
        for rank in range(2):
            self.check_failure(job, rank, since, (PATH_S - 1, PATH_S + SLACK_S), ["ERR_NETWORK"],
                               ["rank %d" % (1 - rank)] + ["eth%d" % nic for nic in ALL])

    def test_a_black_hole_everywhere_is_err_network_and_names_them(self):
        job = self.job("put")
        since = time.monotonic()
        self.blackhole_all()
        for rank in range(2):
            self.check_failure(job, rank, since, (PATH_S - 1, PATH_S + SLACK_S), ["ERR_NETWORK"],
                               ["rank %d" % (1 - rank)] + ["eth%d" % nic for nic in ALL])

    def test_a_deadline_before_that_ends_it_too(self):
        job = self.job("long", WEFT_TIMEOUT="2s")
        since = time.monotonic()
        self.blackhole_all()
        for rank in range(2):
            self.check_failure(job, rank, since, (1.5, 2 + SLACK_S),
                               ["ERR_NETWORK", "ERR_TIMEOUT"], ["rank %d" % (1 - rank)])

    def test_a_peer_that_went_without_a_word_is_known(self):
        """Half-open: it is gone and no packet says so. One survivor sends, the other only waits."""
        for survivor in range(2):
            job = self.job("long")
            since = time.monotonic()
            self.blackhole_all()
            job[1 - survivor].child.send_signal(signal.SIGKILL)
            self.check_failure(job, survivor, since, (0, 6 + BUSY_S), ["ERR_NETWORK", "ERR_PEER"],
                               ["rank %d" % (1 - survivor)])
            self.blackhole_all(False)

    def test_three_seconds_of_nothing_are_no_error(self):
        job = self.job("long", "put", "signal")
        pause(CHANCE.uniform(0.05, 0.4))
        self.blackhole_all()
        pause(3)
        self.blackhole_all(False)
        self.await_bytes(ALL, "bytes over all of them again", 10)
        self.finish(job)

    # ---- F4, F5 ----

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

    def test_a_sender_that_rests_costs_no_lane(self):
        self.check_stop(0, 0.5)

    def test_a_peer_that_rests_early_is_named(self):
        """Before its first heartbeat."""
        self.check_stop(1, 0)

    def test_a_peer_that_rests_for_ever_is_a_timeout(self):
        job = self.job("long", WEFT_TIMEOUT="3s")
        since = time.monotonic()
        job[1].child.send_signal(signal.SIGSTOP)
        self.check_failure(job, 0, since, (2.7, 3.3 + BUSY_S), ["ERR_TIMEOUT"], ["rank 1"])
        self.assertNotIn("given up", job[0].stderr, self.story(job))

    # ---- links that change ----

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
        """One is there while the other is not, by turns; the rest is gone."""
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
            pause(0.5)
            self.check_runs(job)
        self.heal()
        self.await_bytes(ALL, "bytes over all of them again", 5)
        self.finish(job)

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
        self.check_stalls(job, began, 0.1 + BUSY_S, until)


if __name__ == "__main__":
    ranks.main()
