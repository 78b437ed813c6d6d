# SPDX-License-Identifier: Apache-2.0
"""WEFT_PORT_RANGE: what a firewall lets through is all that is listened on."""
import time

import ranks
from ranks import START_S, Foreigner, NetCase, free_ports


def listening(process):
    return [end[2] for end in ranks.connections(process.pid) if end[0] == "listening"]


class Ports(NetCase):
    def id_rank(self, rank, count, *args, **more):
        """Ranks that start by an id, whose port is chosen by rank 0."""
        return self.rank("--id", self.path("id"), *args, WEFT_RANK=rank, WEFT_RANKS=count,
                         WEFT_SOCKET_IFNAME="lo", **more)

    def check_listens_within(self, process, first, last):
        ports = ranks.wait_until(lambda: listening(process), START_S, "a listener")
        self.assertTrue(all(first <= port <= last for port in ports), ports)
        return ports

    def test_the_port_of_an_id_is_of_the_range(self):
        first = free_ports(4)
        more = {"WEFT_PORT_RANGE": "%d-%d" % (first, first + 3)}
        root = self.id_rank(0, 2, **more)
        self.check_listens_within(root, first, first + 3)
        job = [root, self.id_rank(1, 2, **more)]
        self.check_job(job)
        self.check_ends(job)

    def test_a_range_of_one_port_is_enough_for_a_small_job(self):
        port = free_ports(1)
        more = {"WEFT_PORT_RANGE": "%d-%d" % (port, port)}
        root = self.id_rank(0, 4, **more)
        self.assertEqual(self.check_listens_within(root, port, port), [port])
        job = [root] + [self.id_rank(rank, 4, **more) for rank in (1, 2, 3)]
        self.check_job(job)
        self.check_ends(job)

    def test_ports_of_the_range_that_are_taken_are_passed_over(self):
        first = free_ports(3)
        for port in (first, first + 1):
            self.addCleanup(Foreigner(port).close)
        more = {"WEFT_PORT_RANGE": "%d-%d" % (first, first + 2)}
        root = self.id_rank(0, 2, **more)
        self.assertEqual(self.check_listens_within(root, first, first + 2), [first + 2])
        job = [root, self.id_rank(1, 2, **more)]
        self.check_job(job)
        self.check_ends(job)

    def test_a_full_range_is_an_error_that_names_it(self):
        port = free_ports(1)
        self.addCleanup(Foreigner(port).close)
        root = self.id_rank(0, 1, WEFT_PORT_RANGE="%d-%d" % (port, port))
        event = root.event("failed", time.monotonic() + START_S)
        self.assertIn("%d-%d" % (port, port), event["text"])
        self.assertIn("WEFT_PORT_RANGE", event["text"])

    def test_inner_ranks_of_the_tree_keep_to_the_range_too(self):
        first = free_ports(24)
        more = {"WEFT_PORT_RANGE": "%d-%d" % (first, first + 23), "WEFT_TREE_DEGREE": 2,
                "WEFT_JOIN": "direct"}
        job = [self.id_rank(rank, 8, **more) for rank in range(7)]
        for rank in job:
            self.check_listens_within(rank, first, first + 23)
        job.append(self.id_rank(7, 8, **more))
        self.check_job(job)
        self.check_ends(job)

    def test_a_torchrun_root_listens_within_the_range(self):
        first = free_ports(2)
        root = self.rank(RANK=0, WORLD_SIZE=2, MASTER_ADDR="127.0.0.1", MASTER_PORT=free_ports(1),
                         TORCHELASTIC_RUN_ID="run", WEFT_PORT_RANGE="%d-%d" % (first, first + 1))
        self.check_listens_within(root, first, first + 1)

    def test_after_the_start_one_port_is_left_for_ranks_whose_parent_dies(self):
        """Not the one where the job started: the next job may want it."""
        job = [self.id_rank(0, 3, "--stay", WEFT_JOIN="direct", WEFT_TREE_DEGREE=2)]
        ranks.wait_until(lambda: listening(job[0]), 5, "the root")
        start = listening(job[0])
        job += [self.id_rank(rank, 3, "--stay", WEFT_JOIN="direct", WEFT_TREE_DEGREE=2)
                for rank in (1, 2)]
        self.check_job(job)
        ranks.wait_until(lambda: not set(start) & set(listening(job[0])), 2, "the start's port")
        for rank in job:
            ranks.wait_until(lambda rank=rank: len(listening(rank)) == 1, 2,
                             "one listener of %s, not %s" % (rank.pid, listening(rank)))
        self.check_ends(job)

    def test_on_one_host_nothing_listens_after_the_start(self):
        job = [self.id_rank(rank, 3, "--stay") for rank in range(3)]
        self.check_job(job)
        for rank in job:
            ranks.wait_until(lambda rank=rank: not listening(rank), 2, "no listener is left")
        self.check_ends(job)

    def test_a_range_that_is_none_is_refused(self):
        for text in ("5000", "5001-5000", "0-7", "1-70000", "a-b", "5000-5001x"):
            with self.subTest(range=text):
                rank = self.rank(RANK=0, WORLD_SIZE=1, MASTER_ADDR="127.0.0.1", MASTER_PORT=5000,
                                 WEFT_PORT_RANGE=text)
                self.check_refused(rank, "ERR_INVALID", "WEFT_PORT_RANGE=" + text)


if __name__ == "__main__":
    ranks.main()
