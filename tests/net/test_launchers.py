# SPDX-License-Identifier: Apache-2.0
"""Starts under the launchers themselves: Open MPI, MPICH, weft run."""
import re
import shutil
import tempfile
import time

import ranks
from ranks import CLI, PROGRAM, START_S, NetCase, clean_env


def openmpi(count):
    return ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", str(count)]


def mpich(count):
    return ["mpirun.mpich", "-n", str(count)]


def weft_run(count):
    return [CLI, "run", "-n", str(count), "--"]


class Launchers(NetCase):
    def launch(self, launcher, count, *args, **variables):
        if not shutil.which(launcher(1)[0]):
            self.skipTest("%s is not installed" % launcher(1)[0])
        argv = launcher(count) + [PROGRAM] + list(args)
        # Open MPI keeps a folder per user, which the first of two jobs to end takes from the other
        folder = tempfile.mkdtemp(dir=self.folder)
        return self.start(argv, clean_env(TMPDIR=folder, **variables))

    def started(self, job):
        """What the ranks said, by rank; the launcher mixes their lines."""
        code = job.wait(time.monotonic() + 2 * START_S)
        self.assertEqual(code, 0, job.describe())
        events = [event for event in job.events if event.get("event") == "started"]
        return sorted(events, key=lambda event: event["rank"])

    def check_four(self, launcher, **variables):
        job = self.launch(launcher, 4, **variables)
        events = self.started(job)
        self.assertEqual([event["rank"] for event in events], [0, 1, 2, 3], job.describe())
        for event in events:
            self.assertTrue(event["is_right"])
            self.assertEqual((event["ranks"], event["local_rank"], event["local_ranks"]),
                             (4, event["rank"], 4))
        return job

    def test_openmpi_starts_four_ranks(self):
        self.check_four(openmpi)

    def test_mpich_starts_four_ranks(self):
        self.check_four(mpich)

    def test_weft_run_starts_four_ranks_with_a_secret(self):
        job = self.check_four(weft_run)
        self.assertNotIn("no secret", job.stderr)

    def test_openmpi_says_once_that_there_is_no_secret(self):
        job = self.check_four(openmpi)
        self.assertEqual(job.stderr.count("this job has no secret"), 1, job.stderr)

    def test_a_root_by_hand_is_taken_under_openmpi_and_mpich(self):
        for launcher in (openmpi, mpich):
            with self.subTest(launcher=launcher.__name__):
                self.check_four(launcher, WEFT_ROOT="127.0.0.1:%d" % ranks.free_ports(1))

    def test_two_jobs_of_a_launcher_at_the_same_time_do_not_mix(self):
        for launcher in (openmpi, mpich, weft_run):
            with self.subTest(launcher=launcher.__name__):
                jobs = [self.launch(launcher, 3), self.launch(launcher, 2)]
                for job, count in zip(jobs, (3, 2)):
                    events = self.started(job)
                    self.assertEqual([(event["rank"], event["ranks"]) for event in events],
                                     [(rank, count) for rank in range(count)])

    def test_weft_run_inside_an_openmpi_rank_is_refused_with_both_values(self):
        job = self.launch(lambda count: openmpi(count) + weft_run(2), 1)
        self.assertNotEqual(job.wait(time.monotonic() + START_S), 0)
        failed = [event for event in job.events if event.get("event") == "failed"]
        self.assertEqual(failed[0]["status"], "ERR_INVALID")
        self.assertRegex(failed[0]["text"], r"WEFT_RANKS?=\d contradicts OMPI_COMM_WORLD_\w+=\d")

    def test_weft_run_names_the_rank_that_failed(self):
        script = "exec test $WEFT_RANK -ne 2"
        job = self.start(weft_run(4) + ["sh", "-c", script], clean_env())
        self.assertEqual(job.wait(time.monotonic() + START_S), 1, job.describe())
        self.assertRegex(job.stderr, r"rank 2\b.*\b1\b")

    def test_weft_run_leaves_the_secret_out_of_arguments_and_environment(self):
        job = self.start(weft_run(2) + [PROGRAM, "--stay"], clean_env())
        job.event("started", time.monotonic() + START_S)
        names = b""
        for pid in children(job.pid):  # rank 0 stays, it has stdin; the other may be gone
            for name in ("cmdline", "environ"):
                try:
                    with open("/proc/%d/%s" % (pid, name), "rb") as file:
                        names += file.read()
                except OSError:
                    pass
        self.assertIn(b"WEFT_SECRET_FD=", names)
        self.assertNotRegex(names, re.compile(rb"[0-9a-fA-F]{64}|weft1:|WEFT_ID="))


def children(pid):
    with open("/proc/%d/task/%d/children" % (pid, pid), encoding="ascii") as file:
        return [int(word) for word in file.read().split()]


if __name__ == "__main__":
    ranks.main()
