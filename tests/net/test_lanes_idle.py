# SPDX-License-Identifier: Apache-2.0
"""Lanes that nobody needs are closed, and opened when they are needed; with many peers each has fewer."""
import time

import ranks
from lanes import BACK_S, BUSY_S, CHANCE, IS_LONG, NEAR_S, BrokenCase, only_long, pause

CONTROL = 1  # connections of the control plane, at a rank with one neighbour
ALL = CONTROL + 5   # lane 0, and one per NIC
FEW = CONTROL + 2   # lane 0, and one over another NIC
IDLE = {"WEFT_LANE_IDLE": "800ms"}


def held(process):
    """Connections between the hosts."""
    return sum(end[0] == "established" for end in ranks.connections(process.pid))


class HeldCase(BrokenCase):
    def await_held(self, job, counts, what, within=BACK_S):
        """Of each rank."""
        try:
            ranks.wait_until(lambda: [held(process) for process in job] == counts, within, what)
        except AssertionError as error:
            self.fail("%s: %s instead of %s\n%s" % (
                error, [held(process) for process in job], counts, self.story(job)))


class Idle(HeldCase):
    def test_idle_lanes_are_closed_and_come_back(self):
        """By turns it is the dialler and the other one who needs them."""
        job = self.job("burst", **IDLE)
        for _ in range(6 if IS_LONG else 3):
            self.await_held(job, [FEW] * 2, "few lanes")
            self.await_held(job, [ALL] * 2, "all lanes")
            self.check_runs(job)
        done = self.finish(job)
        for event in done.values():
            self.assertLess(event["stall"], 0.5, self.story(job))  # nobody waits for lanes
        for process in job:
            self.assertNotIn("given up", process.stderr)

    @only_long
    def test_a_nic_may_die_while_lanes_rest(self):
        """Short messages go on over the lane that was left."""
        job = self.job("burst", **IDLE)
        for host in range(2):
            self.await_held(job, [FEW] * 2, "few lanes")
            since = time.monotonic()
            self.lab.unplug(host, 0)
            pause(CHANCE.uniform(0.5, 1.5))
            until = time.monotonic()
            self.lab.plug(host, 0)
            stalls = {key: took - 0.1 for key, took in self.stalls(job, since, until).items()}
            limit = (NEAR_S if host == 0 else 1.5) + BUSY_S
            self.assertLess(max(stalls.values(), default=0), limit, self.story(job))
            self.await_held(job, [ALL] * 2, "all lanes", 10)
        self.finish(job)

    @only_long
    def test_they_stay_when_they_are_told_to(self):
        job = self.job("burst", WEFT_LANE_IDLE="0")
        self.await_held(job, [ALL] * 2, "all lanes")
        pause(2)
        self.assertEqual([held(process) for process in job], [ALL] * 2)
        self.finish(job)


class ManyPeers(HeldCase):
    HOSTS = 3

    def check_lanes(self, most, each):
        """The root has two control connections, the others one."""
        job = self.job("all", WEFT_LANES_MAX=str(most))
        self.await_held(job, [2 * each + 2, 2 * each + 1, 2 * each + 1], "%d lanes each" % each)
        pause(0.5)
        self.check_runs(job)
        self.await_held(job, [2 * each + 2, 2 * each + 1, 2 * each + 1], "%d lanes each" % each)
        self.finish(job)

    def test_each_gets_a_share(self):
        self.check_lanes(6, 3)

    def test_two_at_least(self):
        self.check_lanes(2, 2)

    @only_long
    def test_no_limit(self):
        self.check_lanes(0, 5)


if __name__ == "__main__":
    ranks.main()
