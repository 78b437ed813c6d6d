# SPDX-License-Identifier: Apache-2.0
"""What survivors learn when a process, a whole host or a cable fails under a running job."""
import signal
import time

import ranks
from hosts import Network, need_namespaces
from ranks import START_S, NetCase

PLACES = [0, 0, 0, 1, 1, 1, 2, 2]
PORT = 23457
GONE_S = 2  # a process that ended is known this soon, on a loaded machine
PATH_S = 6  # a dead path, with WEFT_PATH_TIMEOUT=1s


class HostFaults(NetCase):
    def setUp(self):
        super().setUp()
        need_namespaces()
        self.network = Network(3)
        self.addCleanup(self.network.close)

    def job(self, **more):
        job = [self.rank("--until-failure", where=self.network.host[host].where, WEFT_RANK=rank,
                         WEFT_RANKS=len(PLACES), WEFT_ROOT="%s:%d" % (Network.v4(0), PORT), **more)
               for rank, host in enumerate(PLACES)]
        self.check_job(job)
        return job

    def leader(self, job, host):
        """The rank of this host that has a connection to another one."""
        here = [rank for rank in range(len(PLACES)) if PLACES[rank] == host]
        led = [rank for rank in here if ranks.connections(job[rank].pid)]
        self.assertEqual(len(led), 1)
        return led[0]

    def check_survivors(self, job, dead, statuses, since, within):
        """Everybody else hears in time that one of the dead is lost; returns the events."""
        events = {}
        for rank, process in enumerate(job):
            if rank in dead:
                continue
            event = process.event("failed", since + within + 5)
            self.assertIn(event["status"], statuses, (rank, event))
            self.assertLess(event["at"] - since, within, (rank, event))
            named = [other for other in dead if "rank %d " % other in event["text"] + " "]
            self.assertTrue(named, (rank, event))
            self.assertEqual(process.wait(since + within + 5), 0)
            events[rank] = event
        return events

    def kill(self, job, numbers):
        since = time.monotonic()
        for rank in numbers:
            job[rank].child.send_signal(signal.SIGKILL)
        return since

    def test_a_killed_rank_is_named_on_all_hosts(self):
        job = self.job()
        leader = self.leader(job, 1)
        victim = next(rank for rank in (3, 4, 5) if rank != leader)
        since = self.kill(job, [victim])
        events = self.check_survivors(job, [victim], ["ERR_PEER"], since, GONE_S)
        self.assertEqual(len({event["text"] for event in events.values()}), 1, events)
        self.assertIn("host1", events[0]["text"])

    def test_a_killed_leader_is_named_on_all_hosts_its_own_too(self):
        job = self.job()
        leader = self.leader(job, 1)
        since = self.kill(job, [leader])
        events = self.check_survivors(job, [leader], ["ERR_PEER"], since, GONE_S)
        self.assertIn("host1", events[0]["text"])

    def test_a_killed_host_is_known_by_one_of_its_ranks(self):
        job = self.job()
        since = self.kill(job, [6, 7])
        self.check_survivors(job, [6, 7], ["ERR_PEER"], since, GONE_S)

    def test_the_killed_root_is_named_on_all_hosts(self):
        job = self.job()
        since = self.kill(job, [0])
        self.check_survivors(job, [0], ["ERR_PEER"], since, GONE_S)

    def test_a_killed_rank_of_a_direct_job_is_named(self):
        job = self.job(WEFT_JOIN="direct", WEFT_TREE_DEGREE=2)
        since = self.kill(job, [5])
        self.check_survivors(job, [5], ["ERR_PEER"], since, GONE_S)

    def check_cut(self, cut):
        """Host 2 loses its network. Its ranks lose the root, the others lose host 2."""
        job = self.job(WEFT_PATH_TIMEOUT="1s", WEFT_HEARTBEAT="100ms", WEFT_SILENT="300ms")
        leader = self.leader(job, 2)
        since = time.monotonic()
        cut(2)
        self.check_survivors(job[:6], [leader], ["ERR_NETWORK"], since, PATH_S)
        for rank in (6, 7):
            event = job[rank].event("failed", since + PATH_S + 5)
            self.assertEqual(event["status"], "ERR_NETWORK", event)
            self.assertIn("rank 0 ", event["text"])
            self.assertLess(event["at"] - since, PATH_S)

    def test_a_pulled_cable_is_err_network_on_both_sides(self):
        self.check_cut(self.network.cut)

    def test_an_interface_taken_down_is_err_network_on_both_sides(self):
        self.check_cut(self.network.set_down)

    def test_a_cable_put_back_in_time_is_no_error(self):
        job = self.job(WEFT_PATH_TIMEOUT="8s", WEFT_HEARTBEAT="100ms", WEFT_SILENT="300ms")
        self.network.cut(2)
        ranks.wait_until(lambda: "silent" in job[0].stderr, START_S, "the warning of rank 0")
        self.network.switch.run("ip", "link", "set", "p2-0", "master", "br0")
        job[7].child.send_signal(signal.SIGTERM)
        since = time.monotonic()
        self.check_survivors(job, [7], ["ERR_PEER"], since, PATH_S)

    def test_a_stopped_leader_is_warned_of_and_never_judged(self):
        job = self.job(WEFT_PATH_TIMEOUT="500ms", WEFT_HEARTBEAT="50ms", WEFT_SILENT="200ms")
        leader = self.leader(job, 1)
        job[leader].child.send_signal(signal.SIGSTOP)
        ranks.wait_until(lambda: "rank %d " % leader in job[0].stderr, START_S, "a warning")
        begin = time.monotonic()  # the path's timeout passes and nobody is judged
        ranks.wait_until(lambda: time.monotonic() > begin + 1.5, 5, "three path timeouts")
        for process in job:
            self.assertIsNone(process.child.poll(), process.describe())
        self.assertEqual(job[0].stderr.count("silent"), 1, job[0].stderr)
        job[leader].child.send_signal(signal.SIGCONT)
        since = self.kill(job, [7])
        self.check_survivors(job, [7], ["ERR_PEER"], since, GONE_S)


if __name__ == "__main__":
    ranks.main()
