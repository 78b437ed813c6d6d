# SPDX-License-Identifier: Apache-2.0
"""`weft tune` between two hosts of the lab: a setting within 5 % of the best of an exhaustive sweep, in
under a fifth of its time; a profile that fits there and is stale here."""
import json
import os
import subprocess
import tempfile
import unittest

import ranks
from lab import Lab
from ranks import CLI, NetCase, clean_env, die_with_us

NICS = 4
RATE = os.environ.get("TUNE_RATE", "1G")
SEARCH_S = float(os.environ.get("TUNE_SEARCH_S", "20"))
SWEEP_S = float(os.environ.get("TUNE_SWEEP_S", "105"))  # half a second for each of 210 settings
DEADLINE_S = 600
AXES = ("window", "chunk", "lanes", "strategy")


def key(point):
    return tuple(point[axis] for axis in AXES)


class Tune(NetCase):
    def setUp(self):
        with Lab(hosts=2, nics=1):
            pass  # or skipped, with the reason
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.profile = os.path.join(folder.name, "profile")

    def lab(self, *argv, **env):
        """stdout of a command on both hosts of a lab"""
        done = subprocess.run([CLI, "lab", "--nics", str(NICS), "--rate", RATE, "--", CLI, *argv],
                              env=clean_env(**env), capture_output=True, text=True, check=False,
                              timeout=DEADLINE_S, preexec_fn=die_with_us)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def tune(self, *argv):
        return json.loads(self.lab("tune", "--json", "--output", self.profile, *argv))

    @unittest.skipIf("NET_SLOW" in os.environ, "times of builds that are not optimised say nothing")
    def test_it_finds_what_a_sweep_finds_in_a_fifth_of_its_time(self):
        sweep = self.tune("--exhaustive", "--time", "%gs" % SWEEP_S)
        found = self.tune("--time", "%gs" % SEARCH_S)
        rates = {key(point): point["gbs"] for point in sweep["results"]}
        best = max(rates.values())
        there = rates[key(found["best"])]
        print("\nsweep: %.1f s, best %.3f GB/s, worst %.3f; search: %.1f s (%.3f of it), %s, which "
              "the sweep saw at %.3f GB/s (%.3f of its best)" %
              (sweep["seconds"], best, min(rates.values()), found["seconds"],
               found["seconds"] / sweep["seconds"], key(found["best"]), there, there / best))
        self.assertEqual(sweep["tried"], sweep["of"])
        self.assertLess(found["seconds"], sweep["seconds"] / 5)
        self.assertGreaterEqual(there, 0.95 * best)

    def test_its_profile_fits_the_lab_and_is_stale_here(self):
        best = self.tune("--time", "2s")["best"]
        for line in self.lab("params", "window", "--json", WEFT_PROFILE=self.profile).splitlines():
            param = json.loads(line)["params"][0]
            self.assertEqual((param["value"], param["origin"]), (str(best["window"]), "profile"))
        done = subprocess.run([CLI, "params", "window", "--json"], capture_output=True, text=True,
                              check=True, env=clean_env(WEFT_PROFILE=self.profile))
        self.assertEqual(json.loads(done.stdout)["params"][0]["origin"], "default")
        self.assertIn("is stale and not used: ", done.stderr)


if __name__ == "__main__":
    ranks.main()
