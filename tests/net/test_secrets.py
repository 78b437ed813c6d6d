# SPDX-License-Identifier: Apache-2.0
"""WEFT_SECRET_FILE under launchers that know nothing of secrets, and jobs without one."""
import os
import time

import ranks
from ranks import START_S, NetCase, free_ports

SECRET = "correct horse battery staple\n"
WARNING = "this job has no secret"


class Secrets(NetCase):
    def own(self, rank, count, port, **more):
        return self.rank(WEFT_RANK=rank, WEFT_RANKS=count, WEFT_ROOT="127.0.0.1:%d" % port, **more)

    def job(self, count, **more):
        port = free_ports(1)
        return [self.own(rank, count, port, **more) for rank in range(count)]

    def said(self, job):
        return "".join(rank.stderr for rank in job)

    def test_a_secret_file_of_mode_0600_or_0400_works_in_silence(self):
        for mode in (0o600, 0o400):
            with self.subTest(mode=oct(mode)):
                path = self.path("secret%o" % mode, SECRET, mode)
                job = self.job(4, WEFT_SECRET_FILE=path)
                self.check_job(job)
                self.check_ends(job)
                self.assertEqual(self.said(job), "")

    def test_a_secret_file_that_others_may_read_is_refused_with_the_chmod(self):
        for mode in (0o644, 0o640, 0o606):
            with self.subTest(mode=oct(mode)):
                path = self.path("open%o" % mode, SECRET, mode)
                rank = self.own(0, 1, free_ports(1), WEFT_SECRET_FILE=path)
                self.check_refused(rank, "ERR_INVALID", "%04o" % mode, "chmod 600 " + path)

    def test_a_secret_file_that_is_not_there_or_too_short_is_named(self):
        missing = self.path("missing")
        rank = self.own(0, 1, free_ports(1), WEFT_SECRET_FILE=missing)
        self.assertIn(missing, rank.event("failed", time.monotonic() + START_S)["text"])
        short = self.path("short", "hello\n")
        rank = self.own(0, 1, free_ports(1), WEFT_SECRET_FILE=short)
        self.check_refused(rank, "ERR_INVALID", short)

    def test_a_final_newline_does_not_change_the_secret(self):
        port = free_ports(1)
        files = [self.path("with", SECRET), self.path("without", SECRET.rstrip("\n"))]
        job = [self.own(rank, 2, port, WEFT_SECRET_FILE=files[rank]) for rank in range(2)]
        self.check_job(job)
        self.check_ends(job)

    def check_intruder(self, wrong, join):
        """The intruder is refused with ERR_AUTH; the right rank 3 comes after it and the job
        starts."""
        port = free_ports(1)
        right = {"WEFT_SECRET_FILE": self.path("right-" + join, SECRET), "WEFT_JOIN": join,
                 "WEFT_JOB": "job"}
        job = [self.own(rank, 4, port, **right) for rank in range(3)]
        intruder = self.own(3, 4, port, **{**right, **wrong})
        self.check_refused(intruder, "ERR_AUTH")
        self.assertTrue(all(rank.child.poll() is None for rank in job))
        job.append(self.own(3, 4, port, **right))
        self.check_job(job)
        self.check_ends(job)

    def test_a_wrong_secret_is_refused_and_harms_nobody(self):
        self.check_intruder({"WEFT_SECRET_FILE": self.path("wrong", SECRET.upper())}, "direct")

    def test_no_secret_is_refused_by_a_job_that_has_one(self):
        self.check_intruder({"WEFT_SECRET_FILE": ""}, "direct")

    def test_a_wrong_secret_on_the_roots_host_meets_nobody_and_harms_nobody(self):
        """By local sockets a wrong secret means another name, so nobody is met: the deadline says
        so on the intruder, and the job starts without it."""
        port = free_ports(1)
        right = {"WEFT_SECRET_FILE": self.path("right", SECRET)}
        wrong = {"WEFT_SECRET_FILE": self.path("wrong", SECRET.upper())}
        job = [self.own(rank, 4, port, **right) for rank in range(4)]
        intruder = self.own(3, 4, port, WEFT_START_TIMEOUT="1s", **wrong)
        self.check_job(job)
        self.check_ends(job)
        event = intruder.event("failed", time.monotonic() + 5)
        self.assertIn(event["status"], ("ERR_TIMEOUT", "ERR_AUTH"))
        self.assertIn("root", event["text"])

    def test_a_job_without_a_secret_works_and_says_so_exactly_once(self):
        for join in ("auto", "direct"):
            with self.subTest(join=join):
                job = self.job(4, WEFT_JOIN=join)
                self.check_job(job)
                self.check_ends(job)
                self.assertEqual(self.said(job).count(WARNING), 1, self.said(job))
                self.assertIn(WARNING, job[0].stderr)

    def test_a_job_without_a_secret_listens_only_where_the_others_reach_it(self):
        port = free_ports(1)
        root = self.own(0, 2, port, WEFT_JOIN="direct")
        listening = ranks.wait_until(
            lambda: [end[1:3] for end in ranks.connections(root.pid) if end[0] == "listening"],
            START_S, "rank 0 listens")
        self.assertEqual(listening, [("127.0.0.1", port)])
        job = [root, self.own(1, 2, port, WEFT_JOIN="direct")]
        self.check_job(job)
        self.check_ends(job)

    def test_without_a_secret_nothing_is_sealed_and_the_job_is_refused_with_the_remedy(self):
        for level in ("integrity", "encrypt"):
            with self.subTest(level=level):
                for rank in self.job(2, WEFT_SECURITY=level):
                    self.check_refused(rank, "ERR_AUTH", "WEFT_SECURITY=" + level, "weft run",
                                       "WEFT_SECRET_FILE")

    def test_with_a_secret_file_lanes_may_be_sealed(self):
        job = self.job(3, WEFT_SECURITY="encrypt", WEFT_PATH="tcp",
                       WEFT_SECRET_FILE=self.path("sealed", SECRET))
        self.check_job(job)
        self.check_ends(job)

    def test_the_secret_is_never_said(self):
        path = self.path("secret", SECRET)
        job = self.job(3, WEFT_SECRET_FILE=path, WEFT_LOG="trace")
        self.check_job(job)
        self.check_ends(job)
        self.assertNotIn(SECRET.strip(), self.said(job) + "".join(job[0].lines))
        self.assertTrue(os.path.exists(path))


if __name__ == "__main__":
    ranks.main()
