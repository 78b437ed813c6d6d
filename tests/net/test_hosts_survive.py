# SPDX-License-Identifier: Apache-2.0
"""Ranks and hosts of a job are lost, the others shrink and go on: one verdict, word for word, for all who are left,
whoever died; and of a job that falls into two parts only one goes on."""
import os
import random
import signal
import sys
import time

import ranks
from lab import Lab
from ranks import BUILD, START_S, NetCase, clean_env, wait_until

IS_LONG = "--long" in sys.argv
if IS_LONG:
    sys.argv.remove("--long")
PROGRAM = os.environ.get("NET_SURVIVORS_PROGRAM",
                         os.path.join(BUILD, "tests", "net.survivors_program"))
SLOWNESS = 3 if "NET_SLOW" in os.environ else 1
VERDICT_S = 1 * SLOWNESS   # from the kill
HOST_S = 2 * SLOWNESS      # the same, when a whole host is gone
GO_ON_S = 2 * SLOWNESS     # from the verdict to the first sum without the dead
PATH_S = 1                 # WEFT_PATH_TIMEOUT
CUT_S = PATH_S + 4 * SLOWNESS
TOGETHER_S = 0.01
TWO, THREE = [0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 2, 2]
NINE = [0, 0, 0, 1, 1, 1, 2, 2, 2]
SEED = int(os.environ.get("SURVIVE_SEED", random.SystemRandom().randrange(1 << 32)))
CHANCE = random.Random(SEED)


class Job:
    """Ranks on hosts of the lab, at work; places: the host of each rank."""
    port = 23500

    def __init__(self, case, places, *words, **variables):
        Job.port += 1
        self.case, self.places = case, places
        variables.setdefault("WEFT_LOG", "control:info,warn")
        root = "%s:%d" % (case.lab.address(places[0]), Job.port)
        self.rank = [case.start([PROGRAM, *words], clean_env(WEFT_RANK=rank, WEFT_RANKS=len(places),
                                                     WEFT_ROOT=root, **variables),
                                case.lab.host[host].where) for rank, host in enumerate(places)]
        self.left = set(range(len(places)))
        deadline = time.monotonic() + START_S
        for one in self.rank:
            one.event("started", deadline)
        # before there is any other traffic between hosts
        self.leads = [any(state == "established" for state, *_ in ranks.connections(one.pid))
                      for one in self.rank]
        for one in self.rank:
            one.child.stdin.write("\n")
            one.child.stdin.flush()
        self.await_work(deadline)

    def on(self, host):
        return [rank for rank in sorted(self.left) if self.places[rank] == host]

    def leader(self, host):
        """The rank that connects this host to the others."""
        led = [rank for rank in self.on(host) if self.leads[rank]]
        self.case.assertEqual(len(led), 1, self.leads)
        return led[0]

    def kill(self, victims, gap_s=0):
        """Returns when the last one was killed."""
        for i, rank in enumerate(victims):
            if i > 0 and gap_s > 0:
                time.sleep(gap_s)  # not to wait for anything: so far apart they die
            self.rank[rank].child.send_signal(signal.SIGKILL)
        return time.monotonic()

    def await_work(self, deadline):
        return {rank: self.rank[rank].event("works", deadline, left=len(self.left))
                for rank in self.left}

    def check_goes_on(self, dead, since, within=VERDICT_S, status="ERR_PEER", is_one_text=True):
        """Without the dead: each survivor names one of them in time, and sums with the others soon."""
        before = len(self.left)
        self.left -= set(dead)
        deadline = since + within + GO_ON_S + 5
        verdicts = {rank: self.rank[rank].event("verdict", deadline, left=before)
                    for rank in self.left}
        works = self.await_work(deadline)
        for rank, verdict in verdicts.items():
            self.case.assertEqual(verdict["what"], status, verdict)
            self.case.assertTrue(any("rank %d " % one in verdict["text"] for one in dead), verdict)
            self.case.assertLess(verdict["at"] - since, within, verdict)
            self.case.assertLess(works[rank]["at"] - verdict["at"], GO_ON_S, works[rank])
        texts = {(verdict["number"], verdict["text"]) for verdict in verdicts.values()}
        self.case.assertTrue(len(texts) == 1 or not is_one_text, verdicts)
        self.case.assertTrue(all(verdict["number"] > 0 for verdict in verdicts.values())
                             or not is_one_text, verdicts)
        print("%s without %s: verdict after %.2f s, works after %.2f s" % (
            self.places, sorted(dead), max(one["at"] for one in verdicts.values()) - since,
            max(one["at"] for one in works.values()) - since))
        return verdicts[min(self.left)]

    def check_leaves(self, dead, since):
        """Who is left has one verdict, by one number, though each closes as soon as it has it."""
        self.left -= set(dead)
        verdicts = {rank: self.rank[rank].event("verdict", since + VERDICT_S + 5)
                    for rank in self.left}
        for rank in self.left:
            self.rank[rank].event("closed", since + VERDICT_S + 10)
            self.case.assertEqual(self.rank[rank].wait(since + VERDICT_S + 15), 0)
            self.case.assertLess(verdicts[rank]["at"] - since, VERDICT_S, verdicts)
        texts = {(one["what"], one["number"], one["text"]) for one in verdicts.values()}
        self.case.assertEqual(len(texts), 1, verdicts)

    def check_cut(self, those, since):
        """They may not go on, and end in good order; what they say of the others has no number."""
        self.left -= set(those)
        for rank in those:
            verdict = self.rank[rank].event("verdict", since + CUT_S + 5)
            self.case.assertEqual((verdict["what"], verdict["number"]), ("ERR_NETWORK", 0), verdict)
            event = self.rank[rank].event("cut", since + CUT_S + 5)
            self.case.assertLess(event["at"] - since, CUT_S, event)
            self.case.assertEqual(self.rank[rank].wait(since + CUT_S + 10), 0)

    def close(self):
        for rank in self.left:
            self.rank[rank].child.stdin.close()
        deadline = time.monotonic() + START_S
        for rank in self.left:
            self.case.assertEqual(self.rank[rank].wait(deadline), 0)
            self.rank[rank].event("closed", deadline)

    def story(self):
        return "SURVIVE_SEED=%d, hosts %s, left %s\n" % (SEED, self.places, self.left) + "\n".join(
            "---- rank %d: %s\n%s" % (rank, "".join(one.lines), one.stderr)
            for rank, one in enumerate(self.rank))


class HostsCase(NetCase):
    lab, NICS = None, 1

    def setUp(self):
        super().setUp()
        if self.lab is None:  # or skipped, with the reason
            type(self).lab = Lab(hosts=3, nics=self.NICS, rate="none")
            self.addClassCleanup(self.lab.close)

    def check(self, places, victims_of, within=VERDICT_S, gap_s=0, is_one_text=True, **variables):
        """A job loses ranks at once and goes on; victims_of(job) says which."""
        job = Job(self, places, **variables)
        try:
            victims = victims_of(job)
            job.check_goes_on(victims, job.kill(victims, gap_s), within, is_one_text=is_one_text)
            job.close()
        except AssertionError as error:
            self.fail("%s\n%s" % (error, job.story()))
        finally:
            self.kill_all()


class HostsSurvive(HostsCase):
    # ---- ranks ----

    def test_the_root_is_killed(self):
        for places in (TWO, THREE):
            self.check(places, lambda job: [0])

    def test_the_leader_of_another_host_is_killed(self):
        for places in (TWO, THREE):
            self.check(places, lambda job: [job.leader(1)])

    def test_the_root_and_another_leader_are_killed_together(self):
        for places in (TWO, THREE):
            self.check(places, lambda job: [0, job.leader(1)], gap_s=CHANCE.uniform(0, TOGETHER_S))

    def test_the_root_and_who_leads_its_host_next_are_killed(self):
        """The third one must be found by the other hosts before it judges."""
        for places in (TWO, NINE):
            for gap_s in (0, CHANCE.uniform(0.01, 0.03)):
                self.check(places, lambda job: [0, 1], gap_s=gap_s)

    def test_a_leader_and_the_next_of_its_host_are_killed_together(self):
        """Those left on the host ask the next one while it ends; nobody but they can tell."""
        def victims(job):
            leader = job.leader(1)
            return [min(set(job.on(1)) - {leader}), leader]
        for _ in range(50 if IS_LONG else 5):
            self.check(NINE, victims, gap_s=CHANCE.uniform(0, 0.0002))

    def check_leaving(self, places, gap_s):
        job = Job(self, places, "leave")
        try:
            victims = [0, job.leader(CHANCE.randrange(1, places[-1] + 1))]
            CHANCE.shuffle(victims)
            job.check_leaves(victims, job.kill(victims, gap_s))
        except AssertionError as error:
            self.fail("%s\n%s" % (error, job.story()))
        finally:
            self.kill_all()

    def test_who_leaves_at_once_leaves_nobody_without_the_verdict(self):
        for _ in range(50 if IS_LONG else 3):
            for places in (TWO, THREE, NINE):
                self.check_leaving(places, CHANCE.uniform(0, TOGETHER_S))

    # ---- hosts ----

    def test_a_host_is_killed(self):
        self.check(TWO, lambda job: job.on(1), HOST_S)
        self.check(THREE, lambda job: job.on(1), HOST_S)

    def test_the_host_of_the_root_is_killed(self):
        self.check(TWO, lambda job: job.on(0), HOST_S)
        self.check(THREE, lambda job: job.on(0), HOST_S)

    # ---- parts ----

    def check_parts(self, places, host, is_going_on, breaks=None):
        """This host is cut off for good. is_going_on: does it, or do the others?"""
        job = Job(self, places, WEFT_PATH_TIMEOUT="%ds" % PATH_S, WEFT_HEARTBEAT="100ms",
                  WEFT_SILENT="300ms")
        inside = job.on(host)
        outside = sorted(job.left - set(inside))
        going, cut = (inside, outside) if is_going_on else (outside, inside)
        try:
            since = time.monotonic()
            (breaks or self.lab.unplug)(host, 0)
            verdict = job.check_goes_on(cut, since, CUT_S, "ERR_NETWORK")
            self.assertRegex(verdict["text"], r"\(eth0\)")  # a lane says so, or the tree
            self.assertEqual(job.left, set(going))
            job.check_cut(cut, since)
            job.close()
        except AssertionError as error:
            self.fail("%s\n%s" % (error, job.story()))
        finally:
            self.kill_all()
            self.lab.plug(host, 0)

    def test_of_two_parts_the_larger_one_goes_on(self):
        self.check_parts(THREE, 2, is_going_on=False)

    def test_the_root_s_part_does_not_if_it_is_smaller(self):
        self.check_parts(THREE, 0, is_going_on=False)

    def test_of_equal_parts_the_one_with_the_lowest_rank_goes_on(self):
        self.check_parts([0, 0, 1, 1], 1, is_going_on=False)


class HostsWithTwoNics(HostsCase):
    """The NIC of which everybody heard in the start is dead when the tree must be mended."""
    NICS = 2

    def check_without_eth0(self, host, victims_of, breaks=None, mends=None):
        """victims_of(job) says who is killed once the others have gone around it."""
        def victims_after(job):
            (breaks or self.lab.unplug)(host, 0)
            moved = [job.rank[job.leader(one)] for one in ((1, 2) if host == 0 else (host,))]
            wait_until(lambda: all("died; it goes by" in one.stderr for one in moved), START_S,
                       "the other path")
            return victims_of(job)
        try:
            self.check(NINE, victims_after, gap_s=CHANCE.uniform(0, TOGETHER_S))
        finally:
            (mends or self.lab.plug)(host, 0)

    def take_address(self, host, nic):
        self.lab.host[host].run(["ip", "addr", "flush", "dev", "eth%d" % nic])

    def give_address(self, host, nic):
        self.lab.host[host].run(["ip", "addr", "add", self.lab.address(host, nic) + "/24", "dev",
                                 "eth%d" % nic])

    def test_the_root_is_killed_whose_host_has_lost_its_first_nic(self):
        self.check_without_eth0(0, lambda job: [0])

    def test_the_root_is_killed_when_another_host_has_lost_its_first_nic(self):
        self.check_without_eth0(1, lambda job: [0])

    def test_another_leader_is_killed_when_the_host_of_the_root_has_lost_its_first_nic(self):
        """Who leads its host next was never connected to that of the root."""
        self.check_without_eth0(0, lambda job: [job.leader(1)])

    def test_another_leader_is_killed_when_its_host_has_lost_its_first_nic(self):
        self.check_without_eth0(1, lambda job: [job.leader(1)])

    def test_the_root_and_another_leader_are_killed_when_a_host_has_lost_its_first_nic(self):
        for host in (0, 1):
            with self.subTest(host):
                self.check_without_eth0(host, lambda job: [0, job.leader(1)])

    def test_the_root_is_killed_whose_first_address_is_gone(self):
        """Who leads its host next cannot listen there, and is found at the other one."""
        self.check_without_eth0(0, lambda job: [0], self.take_address, self.give_address)

    def test_the_root_is_killed_of_a_job_without_leaders(self):
        """Every rank has a port of its own; of the root's host the others know only the root's by other NICs."""
        for _ in range(3):
            self.check([0, 0, 1, 1], lambda job: [0], WEFT_JOIN="direct")


if __name__ == "__main__":
    ranks.main()
