# SPDX-License-Identifier: Apache-2.0
"""weft bench of collectives as a job over hosts: one table, results right, what cannot be known is null."""
import json
import subprocess

import ranks
from lab import Lab
from ranks import CLI, NetCase, clean_env


def bench_in_lab(lab_args, *args):
    return subprocess.run([CLI, "lab"] + lab_args + ["--", CLI, "bench"] + list(args),
                          env=clean_env(), capture_output=True, text=True, timeout=100,
                          stdin=subprocess.DEVNULL, check=False)


class BenchCollectives(NetCase):
    @classmethod
    def setUpClass(cls):
        Lab(hosts=1, nics=1).close()  # NoLab: skipped, with the reason

    def rows(self, lab_args, *args):
        done = bench_in_lab(lab_args, *args, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)["results"]
        self.assertEqual([row["wrong"] for row in found], [0] * len(found))
        return found

    def test_every_collective_runs_over_two_hosts(self):
        for op in ("allreduce", "reduce_scatter", "allgather", "broadcast", "reduce", "gather",
                   "scatter", "alltoall", "barrier"):
            with self.subTest(op=op):
                found = self.rows(["--nics", "1", "-r", "2"], op, "-b", "64", "-e", "64K", "-f",
                                  "1024", "--time", "5ms")
                self.assertEqual({row["ranks"] for row in found}, {4})
                for row in found:
                    self.assertGreater(row["time_us"]["min"], 0, row)
                    self.assertIsNone(row["probe_ns"])
                    self.assertIsNone(row["limit_pct"])

    def test_all_algorithms_have_one_over_hosts(self):
        done = bench_in_lab(["--nics", "1", "-r", "2"], "allreduce", "-b", "64K", "-e", "64K",
                            "--algo", "all", "--time", "2ms", "--outplace", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        found = {row["algo"]: row for row in json.loads(done.stdout)["results"]}
        self.assertEqual(found["hierarchical"]["wrong"], 0)

    def test_only_rank_0_prints_and_says_how_many_hosts(self):
        done = bench_in_lab(["--nics", "1"], "allreduce", "-b", "1K", "-e", "1K", "--time", "5ms")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("allreduce on 2 hosts; ranks are processes of a job"), 1)
        self.assertNotIn("limit:", done.stdout)
        self.assertTrue(all(len(line) <= 100 for line in done.stdout.splitlines()), done.stdout)


if __name__ == "__main__":
    ranks.main()
