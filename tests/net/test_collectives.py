# SPDX-License-Identifier: Apache-2.0
"""Every collective by every algorithm, also composed from parts inside and between hosts, on several hosts of
the lab: exact, or refused."""
import os
import subprocess

import ranks
from lab import Lab
from ranks import CLI, NetCase, clean_env, die_with_us

PROGRAM = os.environ["NET_COLLECTIVES_PROGRAM"]
DEADLINE_S = 100


class Collectives(NetCase):
    def setUp(self):
        with Lab(hosts=2, nics=1):
            pass  # or skipped, with the reason

    def sweep(self, hosts, per_host, **variables):
        done = subprocess.run([CLI, "lab", "-H", str(hosts), "--nics", "2", "-r", str(per_host), "--", PROGRAM,
                               str(per_host)], env=clean_env(**variables), capture_output=True, text=True,
                              check=False, timeout=DEADLINE_S, preexec_fn=die_with_us)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])

    def test_two_hosts_of_two(self):
        self.sweep(2, 2)

    def test_two_hosts_of_three(self):
        self.sweep(2, 3)

    def test_three_hosts_of_two_that_add_in_f32(self):
        self.sweep(3, 2, WEFT_ACC="f32")

    def test_three_hosts_of_one(self):
        self.sweep(3, 1)


if __name__ == "__main__":
    ranks.main()
