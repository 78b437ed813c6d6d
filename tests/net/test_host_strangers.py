# SPDX-License-Identifier: Apache-2.0
"""A process that does not belong to the job comes first on a host and becomes its leader. The root
refuses it; the ranks that met it have done nothing wrong, and the job starts."""
import os
import re
import time

import ranks
from hosts import Network, need_namespaces
from ranks import START_S, NetCase, wait_until

PLACES = [0, 0, 1, 1]  # host of each rank
PORT = 23457
ACCEPTS, CONNECTED = "00010000", "03"  # flags and state in /proc/net/unix


def local_sockets(pid):
    """(flags, state) of a process's abstract sockets that have a name of ours; the end that dialled
    has none."""
    inodes = set()
    for fd in os.listdir("/proc/%d/fd" % pid):
        try:
            match = re.match(r"socket:\[(\d+)\]", os.readlink("/proc/%d/fd/%s" % (pid, fd)))
        except OSError:
            continue
        if match:
            inodes.add(match.group(1))
    found = []
    with open("/proc/%d/net/unix" % pid, encoding="ascii", errors="replace") as table:
        for line in list(table)[1:]:
            words = line.split()
            if len(words) > 7 and words[7].startswith("@weft-") and words[6] in inodes:
                found.append((words[3], words[5]))
    return found


def is_leading(process):
    return any(flags == ACCEPTS for flags, _ in local_sockets(process.pid))


def guests(process):
    return sum(state == CONNECTED for _, state in local_sockets(process.pid))


class HostStrangers(NetCase):
    @classmethod
    def setUpClass(cls):
        need_namespaces()
        cls.network = Network(2)
        cls.addClassCleanup(cls.network.close)

    def place(self, rank, host=None, **more):
        host = PLACES[rank] if host is None else host
        return self.rank(where=self.network.host[host].where, WEFT_RANK=rank,
                         WEFT_RANKS=len(PLACES), WEFT_ROOT="%s:%d" % (Network.v4(0), PORT), **more)

    def mend(self, host):
        self.network.switch.run("ip", "link", "set", "p%d-0" % host, "master", "br0")

    def lead_by(self, stray_rank, **more):
        """Root and rank 1 have met; host 1, cut off from them, has the stray as its leader. Both
        ranks of host 0, and the stray."""
        self.network.cut(1)
        self.addCleanup(self.mend, 1)
        root = self.place(0)
        wait_until(lambda: is_leading(root), START_S, "the root listens")
        job = [root, self.place(1)]
        wait_until(lambda: guests(root) == 1, START_S, "rank 1 has come to the root")
        stray = self.place(stray_rank, host=1, **more)
        wait_until(lambda: is_leading(stray), START_S, "the stray leads its host")
        return job, stray

    def test_ranks_led_by_one_with_a_taken_rank_start_without_it(self):
        job, stray = self.lead_by(1)
        job += [self.place(2), self.place(3)]
        wait_until(lambda: guests(stray) == 2, START_S, "both ranks of the host met the stray")
        self.mend(1)
        self.check_refused(stray, "ERR_DUPLICATE", "rank 1")
        self.check_job(job)
        self.check_ends(job)

    def test_a_leader_with_another_setting_is_the_one_that_is_refused(self):
        job, stray = self.lead_by(2, WEFT_HEARTBEAT="100ms")
        right = self.place(3)
        wait_until(lambda: ranks.connections(right.pid), START_S, "rank 3 turns to the root")
        self.mend(1)
        self.check_refused(stray, "ERR_MISMATCH", "WEFT_HEARTBEAT", "100ms on rank 2")
        job += [self.place(2), right]
        self.check_job(job)
        self.check_ends(job)

    def test_the_right_rank_beside_a_leader_with_its_number_starts(self):
        """Which of the two is right, only the root can tell."""
        job, stray = self.lead_by(2, WEFT_HEARTBEAT="100ms")
        job.append(self.place(2))
        wait_until(lambda: ranks.connections(job[2].pid), START_S, "rank 2 turns to the root")
        self.mend(1)
        event = stray.event("failed", time.monotonic() + START_S)
        # the root meets either of them first
        self.assertIn(event["status"], ("ERR_MISMATCH", "ERR_DUPLICATE"), event)
        job.append(self.place(3))
        self.check_job(job)
        self.check_ends(job)


if __name__ == "__main__":
    ranks.main()
