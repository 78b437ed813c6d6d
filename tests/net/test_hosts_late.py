# SPDX-License-Identifier: Apache-2.0
"""Jobs on several hosts past a deadline, or nearly: whom the verdict blames, how late it is, and who is not given up."""
import os
import signal
import time

import ranks
from lab import Lab
from ranks import BUILD, START_S, NetCase, clean_env, wait_until

PROGRAM = os.environ.get("NET_CALLS_PROGRAM", os.path.join(BUILD, "tests", "net.calls_program"))
SLOWNESS = 3 if "NET_SLOW" in os.environ else 1
ONES = [0, 1, 2]
OVERDUE_S = 0.45  # so long a rank of another host says nothing before it may stand still: beats come every 0.25 s
LATE_S = 0.3 * SLOWNESS
PATIENCE_S = 10



class LateCase(NetCase):
    lab, HOSTS, NICS = None, 3, 1
    port = 23700

    def setUp(self):
        super().setUp()
        if self.lab is None:  # or skipped, with the reason
            type(self).lab = Lab(hosts=self.HOSTS, nics=self.NICS, rate="none")
            self.addClassCleanup(self.lab.close)

    def begin(self, places, words, stopped=(), lead=None, **variables):
        """Each rank with its words, at work, but for those who stand still; since when. lead: it leads its host."""
        LateCase.port += 1
        root = "%s:%d" % (self.lab.address(places[0]), LateCase.port)
        variables.setdefault("WEFT_LOG", "control:info,warn")
        self.addCleanup(self.kill_all)
        self.rank = []
        for rank, host in enumerate(places):
            self.rank.append(self.start(
                [PROGRAM, *words[rank].split()],
                clean_env(WEFT_RANK=rank, WEFT_RANKS=len(places), WEFT_ROOT=root, **variables),
                self.lab.host[host].where))
            if rank == lead:
                wait_until(lambda: any(state == "established" for state, *_ in ranks.connections(
                    self.rank[lead].pid)), START_S, "rank %d joins first" % lead)
        deadline = time.monotonic() + START_S
        for one in self.rank:
            one.event("started", deadline)
        for rank in stopped:
            self.rank[rank].child.send_signal(signal.SIGSTOP)
        since = time.monotonic()
        for rank, one in enumerate(self.rank):
            if rank not in stopped:
                one.child.stdin.write("\n")
                one.child.stdin.flush()
        return since

    def story(self):
        return "\n".join("---- rank %d: %s\n%s" % (rank, "".join(one.lines), one.stderr)
                         for rank, one in enumerate(self.rank))

    def called(self, rank):
        return self.rank[rank].event("called", time.monotonic() + PATIENCE_S)

    def check_one_verdict(self, callers, blamed, latest):
        """All who called have it, word for word, and in time."""
        told = [self.called(rank) for rank in callers]
        for one in told:
            self.assertEqual(one["what"], "ERR_TIMEOUT", self.story())
            self.assertEqual(one["rank"], blamed, self.story())
            self.assertIn("rank %d (" % blamed, one["text"])
            self.assertGreater(one["number"], 0, self.story())
            self.assertLess(one["at"], latest, self.story())
        self.assertEqual(len({(one["number"], one["text"]) for one in told}), 1, self.story())
        return told[0]["text"]


class Blamed(LateCase):
    def test_who_gathers_is_not_blamed_for_who_is_absent(self):
        since = self.begin(ONES, ["after:200 gather", "gather", "after:5000 gather"],
                           WEFT_TIMEOUT="1s")
        text = self.check_one_verdict([0, 1], 2, since + 1.2 + LATE_S)
        self.assertIn("absent: rank 2 (", text)

    def test_of_two_who_stand_still_the_one_that_is_waited_for_is_blamed(self):
        since = self.begin([0, 1, 1, 1, 2], ["recv:3", "", "", "", ""], stopped=(2, 3),
                           lead=1, WEFT_TIMEOUT="1s")
        text = self.check_one_verdict([0], 3, since + 1 + LATE_S)
        self.assertIn("rank 2 (", text)


class Late(LateCase):
    """The coordinator stands still."""

    def check_root(self, call, timeout_s, latest_s, **variables):
        words = {"ring": ["", "recv:0", "recv:1"]}.get(call, ["", call, call])
        since = self.begin(ONES, words, stopped=(0,), WEFT_TIMEOUT="%dms" % (1000 * timeout_s),
                           **variables)
        self.check_one_verdict([1, 2], 0, since + latest_s)
        self.kill_all()

    def test_a_deadline_shorter_than_the_time_between_beats(self):
        for call in ("sum", "gather", "ring"):
            for timeout_s in (0.1, 0.2):
                with self.subTest(call=call, timeout_s=timeout_s):
                    self.check_root(call, timeout_s, max(OVERDUE_S, timeout_s) + LATE_S)

    def test_hearts_that_beat_rarely(self):
        beat_s = 1
        for call in ("sum", "gather", "ring"):
            with self.subTest(call=call):
                self.check_root(call, 0.5, 1.5 * beat_s + 0.1 + LATE_S,
                                WEFT_HEARTBEAT="%ds" % beat_s)


class NotGivenUp(LateCase):
    HOSTS, NICS = 2, 2

    def test_a_parent_whose_other_nic_refuses_while_the_path_is_dead(self):
        """A firewall's doing, and the path heals in time."""
        self.lab.host[0].run(["nft", "add", "table", "ip", "t"])
        self.addCleanup(self.lab.host[0].run, ["nft", "delete", "table", "ip", "t"])
        self.lab.host[0].run(["nft", "add", "chain", "ip", "t", "in",
                              "{ type filter hook input priority 0 ; }"])
        self.lab.host[0].run(["nft", "add", "rule", "ip", "t", "in", *(
            "iifname eth1 tcp flags & (syn|ack) == syn reject with tcp reset").split()])
        self.begin([0, 1], ["after:5000 sum"] * 2, WEFT_TIMEOUT="20s")
        time.sleep(1)  # the ways are known, and have no trouble
        self.lab.blackhole(0, 0)
        time.sleep(3)  # so long the path is dead
        self.lab.blackhole(0, 0, False)
        for rank in (0, 1):
            self.assertEqual(self.called(rank)["what"], "OK", self.story())


if __name__ == "__main__":
    ranks.main()
