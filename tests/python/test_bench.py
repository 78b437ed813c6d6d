# SPDX-License-Identifier: Apache-2.0
"""python -m weft.bench: figures that are checked, tables and JSON, as a program of its own and as ranks of a job."""
import json
import subprocess
import sys
import unittest

import job

SMALL = ["-e", "1K", "-f", "16", "--rounds", "2", "--time", "0.002"]


def bench(*arguments, where=()):
    return subprocess.run([*where, sys.executable, "-B", "-m", "weft.bench", *arguments], env=job.clean_env(),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True,
                          timeout=job.DEADLINE_S)


class Bench(unittest.TestCase):
    def results(self, done):
        self.assertEqual(done.returncode, 0, done.stderr)
        return [each for each in json.loads(done.stdout)["results"] if each["who"] == "weft"]

    def test_times_every_collective_and_checks_it(self):
        ops = ["allreduce", "broadcast", "allgather", "reduce_scatter", "alltoall", "barrier"]
        results = self.results(bench(*ops, "-n", "2", "--json", *SMALL))
        self.assertEqual(list(dict.fromkeys(each["op"] for each in results)), ops)
        for each in results:
            self.assertEqual(each["wrong"], 0)
            self.assertGreater(each["time_us"]["p50"], 0)

    def test_runs_a_list_of_ranks(self):
        results = self.results(bench("-n", "1,3", "--json", *SMALL))
        self.assertEqual([(each["ranks"], each["bytes"]) for each in results],
                         [(ranks, size) for ranks in (1, 3) for size in (8, 128)])

    def test_is_a_rank_of_a_launchers_job(self):
        results = self.results(bench("--json", *SMALL, where=[job.CLI, "run", "-n", "3", "--"]))
        self.assertEqual({each["ranks"] for each in results}, {3})

    def test_prints_an_aligned_table(self):
        done = bench("allreduce", "overhead", "-n", "1", *SMALL)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        self.assertTrue(lines[1].startswith("op         ranks  bytes"), done.stdout)
        self.assertEqual(len({len(line) for line in lines[1:4]}), 1, done.stdout)
        self.assertIn("comm.allreduce(array)", done.stdout)
        self.assertTrue(all(len(line) <= 100 for line in lines), done.stdout)

    def test_refuses_what_it_does_not_know(self):
        for arguments in (["allmagic"], ["-b", "8X"], ["-n", "0"], ["-f", "1"]):
            self.assertEqual(bench(*arguments).returncode, 2)


class Contenders(unittest.TestCase):
    def test_that_compute_wrongly_are_found(self):
        import numpy
        import weft
        from weft.bench.contenders import Cell, Weft

        with weft.create(weft.Id.create(), 0, 1) as comm:
            cell = Weft(comm, False).cell("allreduce", 64)
            self.assertEqual(cell.count_wrong(), 0)
            spoiled = Cell("allreduce", comm, cell.source, cell.source, lambda: numpy.add(cell.source, 1, cell.source))
            self.assertEqual(spoiled.count_wrong(), 16)


if __name__ == "__main__":
    job.main(globals())
