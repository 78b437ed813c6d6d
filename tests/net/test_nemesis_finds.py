# SPDX-License-Identifier: Apache-2.0
"""The nemesis finds mistakes: each one that is planted in a rank (nemesis.h) is told of, with the seed."""
import os
import subprocess
import sys
import unittest

import ranks
from ranks import clean_env

NEMESIS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "nemesis.py")
LIMIT_S = 100


class NemesisFinds(unittest.TestCase):
    def check(self, plant, words, *options):
        done = subprocess.run([sys.executable, "-B", NEMESIS, "--machine", "--seed", "5", "--seconds", "5"] +
                              list(options), env=clean_env(NEMESIS_PLANT=plant), check=False,
                              capture_output=True, text=True, timeout=LIMIT_S)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertRegex(done.stdout, "FOUND by seed 5 at fault .*" + words)

    def test_a_wrong_result(self):
        self.check("wrong", "wrong result")

    def test_a_leak(self):
        self.check("leak", "rank 3 leaks", "--faults", "other")

    def test_an_end_without_a_reason(self):
        self.check("lie", "nothing should", "--faults", "strangers")

    def test_two_verdicts(self):
        self.check("verdict", "not one verdict|blames", "--faults", "other")

    def test_a_socket_that_is_left(self):
        self.check("socket", "left behind: .*tcp socket", "--faults", "other")


if __name__ == "__main__":
    ranks.main()
