# SPDX-License-Identifier: Apache-2.0
"""A rank of a job on several hosts stands still for good: at the deadline all others have one verdict that names it,
whoever it is, whatever they called, and however short the deadline."""
import signal
import time

import ranks
from test_hosts_survive import CHANCE, IS_LONG, SLOWNESS, THREE, TWO, HostsCase, Job

ONES = [0, 1, 2]
CALLS = ("sums", "ring", "gather")
LATE_S = (0.3 if IS_LONG else 0.5) * SLOWNESS  # after the deadline
CLOSE_S = 15


class HostsStill(HostsCase):
    def check_stopped(self, places, stopped, call, timeout_s):
        job = Job(self, places, "leave", call, WEFT_TIMEOUT="%dms" % (timeout_s * 1000))
        try:
            process = job.rank[stopped].child
            since = time.monotonic()
            process.send_signal(signal.SIGSTOP)
            job.left.remove(stopped)
            deadline = since + timeout_s + LATE_S
            verdicts = [job.rank[rank].event("verdict", deadline + 5) for rank in sorted(job.left)]
            process.send_signal(signal.SIGCONT)
            print("%s, rank %d stands still, %s: verdict %.2f s after %.1f s: %s" % (
                places, stopped, call, max(one["at"] for one in verdicts) - since - timeout_s,
                timeout_s, verdicts[0]["text"]))
            for verdict in verdicts:
                self.assertEqual(verdict["what"], "ERR_TIMEOUT", verdicts)
                self.assertIn("rank %d (" % stopped, verdict["text"], verdicts)
                self.assertEqual(verdict["rank"], stopped, verdicts)
                self.assertLess(verdict["at"], deadline, verdicts)
            self.assertEqual(len({(one["number"], one["text"]) for one in verdicts}), 1, verdicts)
            self.assertGreater(verdicts[0]["number"], 0, verdicts)
            for rank in range(len(places)):
                job.rank[rank].event("closed", deadline + CLOSE_S)
        except AssertionError as error:
            self.fail("%s\n%s" % (error, job.story()))
        finally:
            self.kill_all()

    def check_somebody(self, places, timeout_s):
        """Each rank and each call; where time is short, each call once."""
        cases = [(stopped, call) for stopped in range(len(places)) for call in CALLS]
        if not IS_LONG:
            cases = zip(CHANCE.sample(range(len(places)), len(CALLS)), CALLS)
        for stopped, call in cases:
            with self.subTest(places=places, stopped=stopped, call=call, timeout_s=timeout_s):
                self.check_stopped(places, stopped, call, timeout_s)

    def test_one_rank_per_host(self):
        self.check_somebody(ONES, 1)

    def test_several_ranks_per_host(self):
        self.check_somebody(THREE, 1)

    def test_a_deadline_that_is_longer_than_the_patience_with_the_silent(self):
        self.check_somebody(TWO, 2)


if __name__ == "__main__":
    ranks.main()
