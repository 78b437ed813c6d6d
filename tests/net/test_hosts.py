# SPDX-License-Identifier: Apache-2.0
"""Starts across hosts, which are network namespaces here: leaders, addresses, interfaces."""
import time

import ranks
from hosts import Network, need_namespaces
from ranks import START_S, NetCase

PLACES = [0, 0, 0, 1, 1, 1, 2, 2]  # host of each rank
PORT = 23456


class Hosts(NetCase):
    @classmethod
    def setUpClass(cls):
        need_namespaces()
        cls.network = Network(3, networks=2)
        cls.addClassCleanup(cls.network.close)

    def place(self, rank, *args, places=None, **more):
        places = places or PLACES
        return self.rank(*args, where=self.network.host[places[rank]].where, WEFT_RANK=rank,
                         WEFT_RANKS=len(places), **more)

    def job(self, *args, places=None, **more):
        places = places or PLACES
        return [self.place(rank, *args, places=places, **more) for rank in range(len(places))]

    def id_job(self, *args, **more):
        """Rank 0 makes an id: the interface setting alone decides where it listens."""
        self.ids = getattr(self, "ids", 0) + 1  # a file for each job: nobody reads an old id
        return self.job("--id", self.path("id%d" % self.ids), *args, **more)

    def check_spread(self, job, places=None):
        """Every rank knows who is on its host."""
        places = places or PLACES
        for rank, event in enumerate(self.check_job(job)):
            here = [other for other, host in enumerate(places) if host == places[rank]]
            self.assertEqual((event["host"], event["local_rank"], event["local_ranks"]),
                             ("host%d" % places[rank], here.index(rank), len(here)), event)

    def remote_ends(self, job):
        """For each rank (local address, remote address) of its TCP connections."""
        return [[(end[1], end[3]) for end in ranks.connections(rank.pid)
                 if end[0] == "established"] for rank in job]

    def check_subnet(self, job, prefix):
        """All TCP connections of the job run between addresses that begin so; there are some."""
        ends = [end for of_rank in self.remote_ends(job) for pair in of_rank for end in pair]
        self.assertGreater(len(ends), 0)
        for end in ends:
            self.assertTrue(end.startswith(prefix), ends)

    # ---- the ways of joining ----

    def test_eight_ranks_of_three_hosts_start_over_ipv4(self):
        job = self.job("--stay", WEFT_ROOT="%s:%d" % (Network.v4(0), PORT))
        self.check_spread(job)
        self.check_subnet(job, "10.77.0.")
        self.check_ends(job)

    def test_eight_ranks_of_three_hosts_start_over_ipv6(self):
        job = self.job("--stay", WEFT_ROOT="[%s]:%d" % (Network.v6(0), PORT))
        self.check_spread(job)
        self.check_subnet(job, "fd77:")
        self.check_ends(job)

    def test_each_host_joins_through_one_leader(self):
        job = self.job("--stay", WEFT_ROOT="%s:%d" % (Network.v4(0), PORT))
        self.check_spread(job)
        count = [len(ends) for ends in self.remote_ends(job)]
        self.assertEqual(count[0], 2, count)  # the root: one connection per other host
        self.assertEqual(count[1:3], [0, 0], count)
        self.assertEqual(sorted(count[3:6]), [0, 0, 1], count)
        self.assertEqual(sorted(count[6:8]), [0, 1], count)
        self.check_ends(job)

    def test_direct_joining_gives_every_rank_its_own_connection(self):
        job = self.job("--stay", WEFT_ROOT="%s:%d" % (Network.v4(0), PORT), WEFT_JOIN="direct")
        self.check_spread(job)
        self.assertEqual([len(ends) for ends in self.remote_ends(job)], [7] + [1] * 7)
        self.check_ends(job)

    def test_direct_ranks_of_hosts_with_the_same_name_are_told_apart(self):
        for host in self.network.host:
            host.run("sh", "-c", "echo same >/proc/sys/kernel/hostname")
            self.addCleanup(host.run, "sh", "-c",
                            "echo %s >/proc/sys/kernel/hostname" % host.name)
        job = self.job(WEFT_ROOT="%s:%d" % (Network.v4(0), PORT), WEFT_JOIN="direct")
        events = self.check_job(job)
        self.assertEqual([event["local_ranks"] for event in events], [3, 3, 3, 3, 3, 3, 2, 2])
        self.check_ends(job)

    def test_a_deep_tree_connects_within_hosts_by_local_sockets(self):
        job = self.job("--stay", WEFT_ROOT="%s:%d" % (Network.v4(0), PORT), WEFT_TREE_DEGREE=2)
        self.check_spread(job)
        between = [pair for ends in self.remote_ends(job) for pair in ends]
        self.assertEqual(len(between), 4, between)  # two connections between hosts, each end
        self.check_ends(job)

    def test_a_deep_tree_of_direct_ranks_starts(self):
        job = self.job("--stay", WEFT_ROOT="%s:%d" % (Network.v4(0), PORT), WEFT_TREE_DEGREE=2,
                       WEFT_JOIN="direct")
        self.check_spread(job)
        self.assertTrue(all(len(ends) <= 3 for ends in self.remote_ends(job)))
        self.check_ends(job)

    def test_ranks_dealt_out_in_turns_start_too(self):
        places = [0, 1, 2, 0, 1, 2, 0, 1]
        job = self.job(places=places, WEFT_ROOT="%s:%d" % (Network.v4(0), PORT))
        self.check_spread(job, places)
        self.check_ends(job)

    def test_a_late_root_on_another_host_is_waited_for(self):
        root = "%s:%d" % (Network.v4(0), PORT)
        others = [self.place(rank, WEFT_ROOT=root) for rank in range(1, 8)]
        begin = time.monotonic()
        ranks.wait_until(lambda: time.monotonic() > begin + 0.5, 2, "half a second")
        job = [self.place(0, WEFT_ROOT=root)] + others
        self.check_spread(job)
        self.check_ends(job)

    def test_a_missing_host_is_named_by_its_ranks_at_the_deadline(self):
        root = "%s:%d" % (Network.v4(0), PORT)
        job = [self.place(rank, WEFT_ROOT=root, WEFT_START_TIMEOUT="1s") for rank in range(6)]
        for rank in job:
            event = rank.event("failed", time.monotonic() + 5)
            self.assertEqual(event["status"], "ERR_TIMEOUT", event)
            self.assertIn("6-7", event["text"])

    def test_slurm_variables_start_on_three_hosts(self):
        """Each host has its own /etc/hosts; as Debian does, a host's own name is 127.0.1.1 there,
        which must not be where the root listens."""
        for i, host in enumerate(self.network.host):
            lines = ["127.0.0.1 localhost"]
            lines += ["%s host%d" % ("127.0.1.1" if i == j else Network.v4(j), j)
                      for j in range(3)]
            path = self.path("hosts%d" % i, "\n".join(lines) + "\n", 0o644)
            host.run("mount", "--bind", path, "/etc/hosts")
            self.addCleanup(host.run, "umount", "/etc/hosts")
        job = [self.rank(where=self.network.host[host].where, SLURM_PROCID=rank,
                         SLURM_STEP_NUM_TASKS=8, SLURM_STEP_ID=0, SLURM_JOB_ID=99,
                         SLURM_STEP_NUM_NODES=3, SLURM_STEP_NODELIST="host[0-2]",
                         WEFT_START_TIMEOUT="5s")
               for rank, host in enumerate(PLACES)]
        self.check_spread(job)
        self.check_ends(job)

    def test_torchrun_variables_start_on_three_hosts(self):
        local = [3, 3, 2]
        job = [self.rank(where=self.network.host[host].where, RANK=rank, WORLD_SIZE=8,
                         LOCAL_WORLD_SIZE=local[host], MASTER_ADDR=Network.v4(0),
                         MASTER_PORT=29500, TORCHELASTIC_RUN_ID="run")
               for rank, host in enumerate(PLACES)]
        self.check_spread(job)
        self.check_ends(job)

    def test_an_mpirun_job_of_several_hosts_without_a_root_says_what_to_set(self):
        rank = self.rank(OMPI_COMM_WORLD_RANK=0, OMPI_COMM_WORLD_SIZE=8,
                         OMPI_COMM_WORLD_LOCAL_SIZE=3)
        self.check_refused(rank, "ERR_INVALID", "WEFT_ROOT=host:port", "3 of 8")

    # ---- interfaces ----

    def test_the_interface_chosen_is_the_one_used(self):
        for choice, prefix in (("eth1", "10.78."), ("=eth0", "10.77."), ("^eth0,lo", "10.78."),
                               ("^=eth1,lo", "10.77."), ("et", "10.77."), ("lo9,eth1", "10.78.")):
            with self.subTest(choice=choice):
                job = self.id_job("--stay", WEFT_SOCKET_IFNAME=choice)
                self.check_spread(job)
                self.check_subnet(job, prefix)
                self.check_ends(job)

    def test_the_interface_chosen_is_used_between_inner_ranks_too(self):
        job = self.id_job("--stay", WEFT_SOCKET_IFNAME="eth1", WEFT_TREE_DEGREE=2,
                          WEFT_JOIN="direct")
        self.check_spread(job)
        self.check_subnet(job, "10.78.")
        self.check_ends(job)

    def test_the_family_chosen_is_the_one_used(self):
        job = self.id_job("--stay", WEFT_SOCKET_IFNAME="eth1", WEFT_SOCKET_FAMILY="ipv6")
        self.check_spread(job)
        self.check_subnet(job, "fd77:1:")
        self.check_ends(job)

    def test_without_a_choice_an_interface_that_others_reach_is_taken(self):
        job = self.id_job("--stay")
        self.check_spread(job)
        self.check_subnet(job, "10.77.")
        self.check_ends(job)

    def test_a_choice_that_matches_nothing_lists_what_there_is(self):
        for choice in ("ib0", "=eth", "^eth,lo"):
            with self.subTest(choice=choice):
                rank = self.place(0, "--id", self.path("id"), WEFT_SOCKET_IFNAME=choice)
                self.check_refused(rank, "ERR_INVALID", '"%s"' % choice, "eth0 10.77.0.1",
                                   "eth1 10.78.0.1", "lo 127.0.0.1")

    def test_an_interface_that_is_down_is_not_chosen(self):
        host = self.network.host[0]
        host.run("ip", "link", "add", "down0", "type", "veth", "peer", "name", "down1")
        self.addCleanup(host.run, "ip", "link", "delete", "down0")
        host.run("ip", "address", "add", "10.99.0.1/24", "dev", "down0")
        rank = self.place(0, "--id", self.path("id"), WEFT_SOCKET_IFNAME="down0")
        self.check_refused(rank, "ERR_INVALID", "down0 10.99.0.1 (down)")

    def test_a_root_by_ipv6_address_is_served_on_the_interface_chosen(self):
        job = self.job("--stay", WEFT_ROOT="[%s]:%d" % (Network.v6(0, 1), PORT),
                       WEFT_SOCKET_IFNAME="eth1", WEFT_START_TIMEOUT="5s")
        self.check_spread(job)
        self.check_subnet(job, "fd77:1:")
        self.check_ends(job)

    def test_a_root_on_an_interface_that_was_not_chosen_is_refused_with_both(self):
        rank = self.place(0, WEFT_ROOT="%s:%d" % (Network.v4(0, 0), PORT),
                          WEFT_SOCKET_IFNAME="eth1", WEFT_START_TIMEOUT="2s")
        self.check_refused(rank, "ERR_INVALID", Network.v4(0, 0), "eth1")

    def test_a_root_that_is_no_address_of_rank_0_is_named(self):
        rank = self.place(0, WEFT_ROOT="%s:%d" % (Network.v4(1), PORT), WEFT_START_TIMEOUT="2s")
        event = rank.event("failed", time.monotonic() + START_S)
        self.assertNotEqual(event["status"], "ERR_TIMEOUT")
        self.assertIn(Network.v4(1), event["text"])

    def test_a_root_without_a_route_is_an_error_at_the_deadline_that_names_it(self):
        rank = self.place(1, places=[0, 1], WEFT_ROOT="10.200.0.1:%d" % PORT,
                          WEFT_START_TIMEOUT="1s")
        event = rank.event("failed", time.monotonic() + 5)
        self.assertIn(event["status"], ("ERR_TIMEOUT", "ERR_NETWORK"))
        self.assertIn("10.200.0.1", event["text"])


class ManyHosts(NetCase):
    def test_twelve_hosts_of_one_rank_start(self):
        need_namespaces()
        network = Network(12)
        self.addCleanup(network.close)
        job = [self.rank("--stay", where=host.where, WEFT_RANK=rank, WEFT_RANKS=12,
                         WEFT_ROOT="%s:%d" % (Network.v4(0), PORT), WEFT_TREE_DEGREE=4)
               for rank, host in enumerate(network.host)]
        events = self.check_job(job)
        self.assertEqual([event["local_ranks"] for event in events], [1] * 12)
        for rank in job:  # degree 4: parent and children, and a listener for those whose parent dies
            self.assertLessEqual(len(ranks.connections(rank.pid)), 6)
        self.check_ends(job)


if __name__ == "__main__":
    ranks.main()
