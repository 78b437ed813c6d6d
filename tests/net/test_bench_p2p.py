# SPDX-License-Identifier: Apache-2.0
"""weft bench p2p as a job over hosts with several NICs: one table, every NIC used, bytes right."""
import json
import subprocess
import time

import ranks
from lab import Lab
from ranks import CLI, NetCase, clean_env


def bench_in_lab(lab_args, *args):
    return subprocess.run([CLI, "lab"] + lab_args + ["--", CLI, "bench", "p2p"] + list(args),
                          env=clean_env(), capture_output=True, text=True, timeout=60,
                          stdin=subprocess.DEVNULL, check=False)


class BenchP2p(NetCase):
    @classmethod
    def setUpClass(cls):
        Lab(hosts=1, nics=1).close()  # NoLab: skipped, with the reason

    def rows(self, lab_args, *args):
        done = bench_in_lab(lab_args, "--json", *args)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)["results"]
        self.assertEqual([row["wrong"] for row in found], [0] * len(found))
        return found

    def test_one_table_has_a_line_for_every_nic(self):
        done = bench_in_lab(["--nics", "4", "--rate", "1G"], "-m", "bw", "-b", "16M", "-e", "16M",
                            "--iters", "3")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("p2p on 2 hosts; ranks are processes of a job"), 1)
        words = [line.split() for line in done.stdout.splitlines()]
        nics = {line[2]: float(line[4]) for line in words if len(line) == 5 and line[0] == "bw"}
        self.assertEqual(sorted(nics), ["eth0", "eth1", "eth2", "eth3"], done.stdout)
        self.assertAlmostEqual(sum(nics.values()), 100, delta=0.3)
        self.assertTrue(all(len(line) <= 100 for line in done.stdout.splitlines()), done.stdout)

    def test_what_cannot_be_known_between_hosts_is_null(self):
        row, = self.rows(["--nics", "2", "--rate", "1G"], "-m", "bw", "-b", "8M", "-e", "8M",
                         "--iters", "3", "--lanes", "2", "--chunk", "256K", "--strategy", "split")
        self.assertIsNone(row["probe_ns"])
        self.assertIsNone(row["limit_us"])
        self.assertIsNone(row["limit_pct"])
        self.assertEqual((row["lanes"], row["window"], row["chunk"], row["strategy"]),
                         (2, 16, 256 << 10, "split"))
        sent = row["nic_bytes"]
        self.assertEqual(sorted(sent), ["eth0", "eth1"])
        moved = row["bytes"] * row["inflight"] * row["iters"]
        self.assertTrue(moved < sum(sent.values()) < 1.2 * moved, row)

    def test_every_mode_runs_over_two_hosts(self):
        found = self.rows(["--nics", "2", "--rate", "1G", "-r", "2"], "-m", "all", "-e", "64K",
                          "-f", "8192", "--iters", "3")
        self.assertEqual({row["ranks"] for row in found}, {4})
        self.assertEqual({row["op"] for row in found} >= {"lat", "bw", "put_nbi", "mesh"}, True)
        for row in found:
            self.assertGreater(row["time_us"]["min"], 0, row)
        flood = [row for row in found if row["op"] == "meshbw"]
        self.assertEqual([len(row["pairs"]) for row in flood], [12, 12])
        self.assertTrue(all(pair["gbs"] > 0 for row in flood for pair in row["pairs"]), flood)
        mesh, = [row for row in found if row["op"] == "mesh"]
        self.assertEqual(mesh["pairs"], 6)

    def test_a_rank_that_dies_ends_the_others_with_its_name(self):
        with Lab(hosts=2, nics=2, rate="100M") as lab:
            secret = self.path("secret", "0123456789abcdef0123456789abcdef")
            argv = [CLI, "bench", "p2p", "-m", "bw", "-b", "1M", "-e", "1M", "--iters", "100000"]
            common = {"WEFT_RANKS": 2, "WEFT_ROOT": lab.address(0) + ":7777",
                      "WEFT_SECRET_FILE": secret}
            first, second = (self.start(argv, clean_env(WEFT_RANK=i, **common), lab.host[i].where)
                             for i in range(2))
            ranks.wait_until(lambda: lab.host[0].counters()["eth1"][1] > 1 << 20, 20, "traffic")
            second.child.kill()
            self.assertEqual(first.finish(time.monotonic() + 20), 1)
            self.assertIn("rank 0 of 2: ", first.stderr)
            self.assertIn("rank 1", first.stderr)
            self.assertEqual(first.lines, [])


if __name__ == "__main__":
    ranks.main()
