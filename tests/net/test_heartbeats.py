# SPDX-License-Identifier: Apache-2.0
"""Ranks that compute and call nothing: the others hear that they live, and it costs little. Eight hosts with one rank each
and a tree of degree 2, so that every sign of life crosses a network, whose bytes are counted."""
import sys
import time

import ranks
from lab import Lab
from ranks import START_S, NetCase, wait_until

IS_LONG = "--long" in sys.argv
if IS_LONG:
    sys.argv.remove("--long")
HOSTS = 8
COMPUTE_S = 60 if IS_LONG else 3
MOST = 2048  # bytes a second and rank, all headers included
PORT = 23481


class Heartbeats(NetCase):
    def setUp(self):
        super().setUp()
        self.lab = Lab(hosts=HOSTS, nics=1, rate="none")
        self.addCleanup(self.lab.close)

    def sent(self):
        """Bytes that each host has sent so far."""
        return [host.counters()["eth0"][1] for host in self.lab.host]

    def job(self, **variables):
        job = [self.rank("--compute", where=self.lab.host[rank].where, WEFT_RANK=rank, WEFT_RANKS=HOSTS,
                         WEFT_ROOT="%s:%d" % (self.lab.address(0), PORT), WEFT_TREE_DEGREE=2,
                         WEFT_LOG="warn", **variables) for rank in range(HOSTS)]
        self.check_job(job)
        return job

    def compute(self, seconds):
        """Nobody calls anything meanwhile; bytes a second, of all ranks on average."""
        before, begin = self.sent(), time.monotonic()
        wait_until(lambda: time.monotonic() > begin + seconds, 2 * seconds + 5, "the end of computing")
        took = time.monotonic() - begin
        sent = [(now - then) / took for then, now in zip(before, self.sent())]
        print("bytes a second: %.0f of a rank on average, %.0f of the one that sends most" % (
            sum(sent) / HOSTS, max(sent)))
        return sum(sent) / HOSTS

    def end(self, job):
        """With one more call that needs everybody."""
        for rank in job:
            rank.child.stdin.close()
        for rank in job:
            self.assertEqual(rank.wait(time.monotonic() + START_S), 0, rank.describe())

    def test_computing_ranks_are_alive_and_cost_little(self):
        job = self.job(WEFT_SILENT="2s")
        rate = self.compute(COMPUTE_S)
        self.assertLess(rate, MOST)
        self.assertGreater(rate, 100)  # they do say something
        self.end(job)
        for rank in job:
            self.assertNotIn("silent", rank.stderr)

    def test_a_rank_that_stands_still_is_missed(self):
        job = self.job(WEFT_SILENT="300ms", WEFT_HEARTBEAT="100ms")
        job[1].child.send_signal(ranks.signal.SIGSTOP)
        wait_until(lambda: any("rank 1 " in one.stderr and "silent" in one.stderr for one in job if one is not job[1]),
                   START_S, "a warning that names rank 1")
        job[1].child.send_signal(ranks.signal.SIGCONT)
        self.end(job)


if __name__ == "__main__":
    ranks.main()
