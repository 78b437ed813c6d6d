# SPDX-License-Identifier: Apache-2.0
"""What is worse than one NIC: all of them, and a peer that is gone or does not move any more."""
import signal
import time

import ranks
from lanes import BUSY_S, CHANCE, IS_LONG, BrokenCase, only_long, pause

PATH_S = 5   # without any path for so long, the peer is lost
SLACK_S = 1  # of a verdict
ALL = range(4)


class Everything(BrokenCase):
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

    def test_no_nic_at_all_is_err_network_and_names_them(self):
        job = self.job("long")
        since = time.monotonic()
        for nic in ALL:
            self.lab.link_down(0, nic)
        for rank in range(2):
            self.check_failure(job, rank, since, (PATH_S - 1, PATH_S + SLACK_S), ["ERR_NETWORK"],
                               ["rank %d" % (1 - rank)] + ["eth%d" % nic for nic in ALL])
            self.assertNotIn("messages still reach it", job[rank].stderr, self.story(job))

    @only_long
    def test_a_black_hole_everywhere_is_err_network_and_names_them(self):
        job = self.job("put")
        since = time.monotonic()
        self.blackhole_all()
        for rank in range(2):
            self.check_failure(job, rank, since, (PATH_S - 1, PATH_S + SLACK_S), ["ERR_NETWORK"],
                               ["rank %d" % (1 - rank)] + ["eth%d" % nic for nic in ALL])

    @only_long
    def test_a_deadline_before_that_ends_it_too(self):
        job = self.job("long", WEFT_TIMEOUT="2s")
        since = time.monotonic()
        self.blackhole_all()
        for rank in range(2):
            self.check_failure(job, rank, since, (1.5, 2 + SLACK_S),
                               ["ERR_NETWORK", "ERR_TIMEOUT"], ["rank %d" % (1 - rank)])

    def test_a_peer_that_went_without_a_word_is_known(self):
        """Half-open: it is gone and no packet says so. One survivor sends, the other only waits."""
        for survivor in range(2) if IS_LONG else [CHANCE.randrange(2)]:
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

    def test_a_peer_that_rests_for_ever_is_a_timeout(self):
        job = self.job("long", WEFT_TIMEOUT="3s")
        since = time.monotonic()
        job[1].child.send_signal(signal.SIGSTOP)
        self.check_failure(job, 0, since, (2.7, 3.3 + BUSY_S), ["ERR_TIMEOUT"], ["rank 1"])
        self.assertNotIn("given up", job[0].stderr, self.story(job))


if __name__ == "__main__":
    ranks.main()
