# SPDX-License-Identifier: Apache-2.0
"""The NIC of the control connection goes away: the connection comes back over another one, nothing that it
carried is lost or comes twice, and nobody gets a verdict who is not gone."""
import signal
import time

import ranks
from lanes import BUSY_S, CHANCE, IS_LONG, BrokenCase, only_long, pause

RETURN_S = 2     # until barriers, splits and the like go on
MOVED = "goes by"
SECRET = "5f" * 32 + "\n"
LOG = "link:info,control:info,warn"


class Control(BrokenCase):
    NICS = 2

    def kinds(self):
        """(words, host, how it breaks, how it heals), of one NIC"""
        lab = self.lab
        return [("link down near", 1, lab.link_down, lab.link_up),
                ("link down far", 0, lab.link_down, lab.link_up),
                ("unplugged near", 1, lab.unplug, lab.plug),
                ("unplugged far", 0, lab.unplug, lab.plug),
                ("black hole", 1, lab.blackhole, lambda *at: lab.blackhole(*at, on=False))]

    def begin(self, *traffics, **variables):
        job = self.job(*traffics, WEFT_LOG=LOG, **variables)
        self.await_answer(job)
        return job

    def job(self, *traffics, **variables):
        """As ever, but control traffic alone does not count as bytes over a NIC."""
        was, self.await_bytes = self.await_bytes, lambda *args, **more: None
        try:
            return super().job(*traffics, **variables)
        finally:
            self.await_bytes = was

    def await_answer(self, job):
        """Until rank 1 has heard where else rank 0 listens."""
        ranks.wait_until(lambda: "ways back" in job[1].stderr, 5, "ways back")

    def moves(self, job):
        return sum(process.stderr.count(MOVED) for process in job)

    def control_nic(self, job):
        """The NIC that the control connection goes by: the one established before all others lies on eth0; later
        the log tells."""
        lines = [line for line in job[1].stderr.splitlines() if MOVED in line]
        return int(lines[-1].split(MOVED)[1].split(".")[1]) - 1 if lines else 0

    def check_break(self, job, kind, nic, lasts):
        words, host, breaks, heals = kind
        before, since = self.moves(job), time.monotonic()
        breaks(host, nic)
        pause(lasts)
        self.check_runs(job)
        until = time.monotonic()
        if lasts > RETURN_S:
            self.assertGreater(self.moves(job), before, words + "\n" + self.story(job))
        heals(host, nic)
        stalls = self.stalls(job, since, until)
        print("%s, eth%d for %.1f s: stalls %s" % (
            words, nic, lasts, {key: round(took, 2) for key, took in stalls.items()}))
        for key, took in stalls.items():
            self.assertLessEqual(took, RETURN_S + BUSY_S, "%s %s\n%s" % (words, key, self.story(job)))

    def test_barriers_and_splits_go_on_over_the_other_nic(self):
        """Whatever happens to the one that carries them, for good or for a while; and back again."""
        job = self.begin("control")
        kinds = self.kinds()
        CHANCE.shuffle(kinds)
        for kind in kinds * (3 if IS_LONG else 1):
            self.check_break(job, kind, self.control_nic(job), 2.3)
            pause(0.3)
        self.finish(job)
        for process in job:
            self.assertNotIn("ERR_", process.stderr, self.story(job))

    @only_long
    def test_a_path_that_is_away_for_a_moment(self):
        """As long as it takes to look for another: whichever comes first, nothing is lost."""
        job = self.begin("control")
        for _ in range(20 if IS_LONG else 6):
            kind = CHANCE.choice(self.kinds())
            self.check_break(job, kind, self.control_nic(job), CHANCE.uniform(0.2, 1.2))
            pause(CHANCE.uniform(0.05, 0.5))
        self.finish(job)

    @only_long
    def test_messages_and_control_together(self):
        job = self.begin("control", "long", WEFT_SECRET_FILE=self.path("secret", SECRET))
        for kind in self.kinds()[:: 1 if IS_LONG else 2]:
            self.check_break(job, kind, self.control_nic(job), 2.3)
            pause(1)
        self.finish(job)

    def test_who_closes_while_its_path_is_dead_is_not_dead(self):
        """The last words go by the other NIC."""
        for kind in self.kinds() if IS_LONG else CHANCE.sample(self.kinds(), 2):
            job = self.begin("control")
            kind[2](kind[1], 0)
            self.finish(job)
            for process in job:
                self.assertNotIn("cannot be reached", process.stderr, self.story(job))
            self.heal()

    def check_verdict(self, job, killed, since, within):
        event = job[1 - killed].event("failed", since + within + 10)
        self.assertIn(event["status"], ("ERR_PEER", "ERR_NETWORK"), self.story(job))
        self.assertIn("rank %d" % killed, event["text"], self.story(job))
        self.assertLessEqual(event["at"] - since, within, self.story(job))

    @only_long
    def test_a_rank_that_dies_after_the_move_is_known_at_once(self):
        for killed in range(2):
            job = self.begin("control")
            self.lab.unplug(0, 0)
            ranks.wait_until(lambda job=job: self.moves(job) > 0, 3, "the move")
            pause(0.3)
            since = time.monotonic()
            job[killed].child.send_signal(signal.SIGKILL)
            self.check_verdict(job, killed, since, 1)
            self.heal()

    def test_a_rank_that_dies_with_its_path_is_known(self):
        """Nobody answers by the other NIC either."""
        for killed in range(2) if IS_LONG else [CHANCE.randrange(2)]:
            job = self.begin("control", WEFT_PATH_TIMEOUT="2s")
            self.lab.blackhole(killed, 0)
            since = time.monotonic()
            job[killed].child.send_signal(signal.SIGKILL)
            self.check_verdict(job, killed, since, 4)
            self.heal()

    def test_no_nic_at_all_is_a_verdict(self):
        job = self.begin("control", WEFT_PATH_TIMEOUT="2s")
        since = time.monotonic()
        for nic in range(self.NICS):
            self.lab.blackhole(0, nic)
        for rank in range(2):
            self.check_verdict(job, 1 - rank, since, 4)

    @only_long
    def test_a_rank_that_rests_moves_nothing(self):
        job = self.begin("control")
        for rank in range(2):
            job[rank].child.send_signal(signal.SIGSTOP)
            pause(2)
            job[rank].child.send_signal(signal.SIGCONT)
            pause(1)
        self.finish(job)
        self.assertEqual(self.moves(job), 0, self.story(job))


if __name__ == "__main__":
    ranks.main()
