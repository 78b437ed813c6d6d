# SPDX-License-Identifier: Apache-2.0
"""Starts by the variables that torchrun and Slurm set, on one host, among foreign servers, late
roots and other jobs."""
import time

import ranks
from ranks import START_S, Foreigner, NetCase, free_ports, wait_until

NEIGHBOURS = 17  # MASTER_PORT and the 16 behind it
GARBAGE = b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n" + bytes(range(256)) * 8


def torch(rank, count, port, run_id="run"):
    return {"RANK": rank, "WORLD_SIZE": count, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": count,
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": run_id}


def slurm(rank, count, job):
    return {"SLURM_PROCID": rank, "SLURM_STEP_NUM_TASKS": count, "SLURM_NTASKS": count,
            "SLURM_STEP_ID": 0, "SLURM_JOB_ID": job, "SLURM_STEP_NODELIST": "localhost",
            "SLURM_STEP_NUM_NODES": 1, "SLURM_LOCALID": rank}


class Variables(NetCase):
    def foreigner(self, port, greeting=b""):
        server = Foreigner(port, greeting)
        self.addCleanup(server.close)
        return server

    def await_calls(self, servers):
        """Somebody has dialled each of them; that they notice may take a moment."""
        wait_until(lambda: all(server.accepted > 0 for server in servers),
                   START_S, "calls of foreign servers")

    def torch_job(self, count, port, *args, run_id="run", **more):
        return [self.rank(*args, **torch(rank, count, port, run_id), **more)
                for rank in range(count)]

    def slurm_job(self, count, job, *args, **more):
        return [self.rank(*args, **slurm(rank, count, job), **more) for rank in range(count)]

    def check_whole(self, job):
        self.check_job(job)
        self.check_ends(job)

    # ---- torchrun ----

    def test_torchrun_variables_start_a_job_beside_torchs_store(self):
        port = free_ports(NEIGHBOURS)
        store = self.foreigner(port)
        self.check_whole(self.torch_job(4, port))
        self.assertEqual(store.accepted, 0)  # torch's store hears nothing of us

    def test_torchrun_ports_taken_by_silent_servers_are_passed_over(self):
        port = free_ports(NEIGHBOURS)
        servers = [self.foreigner(port + i) for i in range(3)]
        self.check_whole(self.torch_job(4, port, WEFT_JOIN="direct"))
        self.await_calls(servers[1:2])

    def test_torchrun_ports_taken_by_talkative_servers_are_passed_over(self):
        port = free_ports(NEIGHBOURS)
        servers = [self.foreigner(port + i, GARBAGE) for i in range(4)]
        self.check_whole(self.torch_job(4, port, WEFT_JOIN="direct"))
        self.await_calls(servers[1:2])

    def test_torchrun_without_a_free_port_says_that_they_are_in_use(self):
        port = free_ports(NEIGHBOURS)
        for i in range(NEIGHBOURS):
            self.foreigner(port + i)
        root = self.rank(**torch(0, 2, port))
        event = root.event("failed", time.monotonic() + START_S)
        self.assertIn("in use", event["text"])

    def test_weft_port_replaces_the_ports_behind_torchs_store(self):
        port = free_ports(1)
        job = self.torch_job(2, free_ports(NEIGHBOURS), "--stay", WEFT_PORT=port,
                             WEFT_JOIN="direct")
        self.check_job(job)
        ends = {end[4] for end in ranks.connections(job[1].pid) if end[0] == "established"}
        self.assertEqual(ends, {port})
        self.check_ends(job)

    def check_apart(self, waiting, whole, count, **more):
        """One job waits for its last rank, with its door open, while the other starts and ends."""
        first = [self.rank(**waiting(rank), **more) for rank in range(count - 1)]
        if more.get("WEFT_JOIN") == "direct":
            wait_until(lambda: [end for end in ranks.connections(first[0].pid)
                                if end[0] == "listening"], START_S, "the first job's root")
        self.check_whole([self.rank(**whole(rank), **more) for rank in range(count)])
        self.assertTrue(all(rank.child.poll() is None for rank in first))
        self.check_whole(first + [self.rank(**waiting(count - 1), **more)])

    def test_two_torchrun_jobs_with_the_same_ports_do_not_mix(self):
        port = free_ports(NEIGHBOURS)
        for join in ("auto", "direct"):
            with self.subTest(join=join):
                self.check_apart(lambda rank: torch(rank, 4, port, "one"),
                                 lambda rank: torch(rank, 4, port, "two"), 4, WEFT_JOIN=join)

    def test_two_torchrun_jobs_with_neighbouring_ports_do_not_mix(self):
        port = free_ports(NEIGHBOURS + 1)
        self.check_apart(lambda rank: torch(rank, 4, port + 1), lambda rank: torch(rank, 4, port),
                         4, WEFT_JOIN="direct")

    def check_late_root(self, variables, **more):
        """The others run for half a second before rank 0 comes, and have dialled by then."""
        begin = time.monotonic()
        others = [self.rank(**variables(rank), **more) for rank in (1, 2, 3)]
        wait_until(lambda: time.monotonic() > begin + 0.5, 2, "half a second")
        for rank in others:
            self.assertIsNone(rank.child.poll(), rank.describe())
        job = [self.rank(**variables(0), **more)] + others
        events = self.check_job(job)
        self.check_ends(job)
        # who waited dials again at least every 128 ms, so it is not long behind the root
        self.assertLess(events[0]["took"], 2)

    def test_a_late_torchrun_root_is_waited_for(self):
        port = free_ports(NEIGHBOURS)
        for join in ("auto", "direct"):
            with self.subTest(join=join):
                self.check_late_root(lambda rank: torch(rank, 4, port), WEFT_JOIN=join)

    # ---- Slurm ----

    def test_slurm_variables_start_a_job(self):
        for join in ("auto", "direct"):
            with self.subTest(join=join):
                self.check_whole(self.slurm_job(4, ranks.free_ports(1), WEFT_JOIN=join))

    def test_two_slurm_jobs_within_the_same_ports_do_not_mix(self):
        first = free_ports(16)
        self.check_apart(lambda rank: slurm(rank, 4, 4711), lambda rank: slurm(rank, 4, 4712), 4,
                         WEFT_PORT_RANGE="%d-%d" % (first, first + 15), WEFT_JOIN="direct")

    def test_slurm_ports_with_foreign_servers_are_passed_over(self):
        first = free_ports(16)
        servers = [self.foreigner(first), self.foreigner(first + 1, GARBAGE)]
        self.check_whole(self.slurm_job(
            4, 4711, WEFT_PORT_RANGE="%d-%d" % (first, first + 15), WEFT_JOIN="direct"))
        self.await_calls(servers)

    def test_a_late_slurm_root_is_waited_for(self):
        job = free_ports(1)
        self.check_late_root(lambda rank: slurm(rank, 4, job))

    def test_a_slurm_batch_script_is_not_a_rank(self):
        rank = self.rank(SLURM_PROCID=0, SLURM_NTASKS=4, SLURM_JOB_ID=7,
                         SLURM_STEP_ID=0xfffffffb)
        self.check_refused(rank, "ERR_INVALID", "SLURM_PROCID", "srun")

    # ---- contradictions ----

    def test_contradicting_variables_are_refused_with_both_values(self):
        own = {"WEFT_RANK": 1, "WEFT_RANKS": 4, "WEFT_ROOT": "127.0.0.1:1"}
        cases = [
            ({**own, **torch(2, 4, 5000)}, "WEFT_RANK=1", "RANK=2"),
            ({**own, **torch(1, 8, 5000)}, "WEFT_RANKS=4", "WORLD_SIZE=8"),
            ({**own, **slurm(3, 4, 1)}, "WEFT_RANK=1", "SLURM_PROCID=3"),
            ({**own, "WEFT_PORT": 77}, "127.0.0.1:1", "WEFT_PORT=77"),
            ({**own, "WEFT_PORT_RANGE": "5000-5001"}, "port 1", "5000-5001"),
            ({"OMPI_COMM_WORLD_RANK": 0, "OMPI_COMM_WORLD_SIZE": 2, "PMI_RANK": 1, "PMI_SIZE": 2,
              "MPI_LOCALNRANKS": 2}, "OMPI_COMM_WORLD_RANK=0", "PMI_RANK=1"),
            ({"WEFT_RANK": 4, "WEFT_RANKS": 4}, "WEFT_RANK=4", "WEFT_RANKS=4"),
            ({"WEFT_RANK": 0}, "WEFT_RANK=0", "WEFT_RANKS"),
        ]
        for variables, *values in cases:
            with self.subTest(values=values):
                rank = self.rank(**variables)
                self.check_refused(rank, "ERR_INVALID", *values)
                self.assertEqual(rank.wait(time.monotonic() + START_S), 1)

    def test_no_variables_at_all_say_how_to_start(self):
        self.check_refused(self.rank(), "ERR_INVALID", "weft run", "torchrun", "WEFT_RANK")


if __name__ == "__main__":
    ranks.main()
