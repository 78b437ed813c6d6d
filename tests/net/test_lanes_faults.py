# SPDX-License-Identifier: Apache-2.0
"""One NIC of four goes away under traffic, and comes back: nothing is lost, nothing comes twice, and
nobody waits long. With --long: 50 times on the near side, 50 times on the far one."""
import sys
import time

import ranks
from lanes import (BACK_S, BUSY_S, CHANCE, FAR_S, IS_LONG, NEAR_S, LanesCase, only_long,
                   pause)

KINDS = ("near", "far", "hole")
TRAFFICS = ("long", "short", "put", "signal", "get")
ALL = range(4)


class Break:
    """What happens to one NIC, in words and in deeds."""

    def __init__(self, lab, traffic, kind, nic):
        sender = 1 if traffic in ("get", "back") else 0  # of the bulk
        self.host = sender if kind == "near" else 1 - sender
        if kind == "hole":
            self.host = CHANCE.randrange(2)
            self.breaks, self.heals = lab.blackhole, lambda *at: lab.blackhole(*at, on=False)
        elif CHANCE.random() < 0.5:
            self.breaks, self.heals = lab.link_down, lab.link_up
        else:
            self.breaks, self.heals = lab.unplug, lab.plug
        self.nic, self.kind = nic, kind
        self.limit = (NEAR_S if kind == "near" else FAR_S) + BUSY_S
        self.wait = CHANCE.uniform(0.05, 0.3)
        self.lasts = CHANCE.uniform(0.05, 0.8 if kind == "near" else 1.6)
        self.words = "%s: eth%d of h%d %s for %.2f s (%s)" % (
            traffic, nic, self.host, self.breaks.__name__, self.lasts, kind)
        self.since = self.until = self.back = None


class OneNic(LanesCase):
    def go_through(self, job, one, has_bulk):
        pause(one.wait)
        self.addCleanup(one.heals, one.host, one.nic)
        one.since = time.monotonic()
        one.breaks(one.host, one.nic)
        pause(one.lasts)
        try:
            one.heals(one.host, one.nic)
            healed = time.monotonic()
            self.check_runs(job)
            if has_bulk:
                self.await_bytes([one.nic], "bytes over eth%d again" % one.nic, BACK_S)
            one.back = time.monotonic() - healed
        except AssertionError as error:
            self.fail("%s: %s" % (one.words, error))
        one.until = time.monotonic()

    def run_breaks(self, traffic, breaks, **variables):
        job = self.job(*traffic.split("+"), **variables)
        for one in breaks:
            self.go_through(job, one, traffic != "short" or one.nic == 0)
        self.finish(job)
        too_long = []
        for one in breaks:
            stalls = self.stalls(job, one.since, one.until)
            worst = max(stalls.values(), default=0)
            print("%s: stall %.3f s, back after %.2f s" % (one.words, worst, one.back),
                  file=sys.stderr)
            if worst > one.limit:
                too_long.append("%s: stall %.3f s, at most %.1f" % (one.words, worst, one.limit))
        self.assertEqual(too_long, [], self.story(job))

    def check_traffic(self, traffic, kinds=KINDS):
        """Each kind, with NICs in an order by chance."""
        if IS_LONG:
            kinds = ["near"] * 10 + ["far", "hole"] * 5
            CHANCE.shuffle(kinds)
        nics = CHANCE.sample(range(self.NICS), self.NICS)
        self.run_breaks(traffic, [Break(self.lab, traffic, kind, nics[i % self.NICS])
                                  for i, kind in enumerate(kinds)])

    def test_long_messages_go_on_without_a_nic(self):
        self.check_traffic("long")

    def test_short_messages_go_on_without_a_nic(self):
        """They all go over eth0 while it is there."""
        self.run_breaks("short", [Break(self.lab, "short", kind, 0) for kind in KINDS])
        if IS_LONG:
            self.check_traffic("short")

    def test_sealed_messages_go_on_without_a_nic(self):
        """What goes again over another lane is sealed anew, with that lane's keys."""
        self.run_breaks("long", [Break(self.lab, "long", "near", CHANCE.randrange(1, 4))],
                        WEFT_SECURITY="encrypt", WEFT_SECRET_FILE=self.path("secret", "5f" * 32))

    def test_puts_are_done_once_without_a_nic(self):
        self.check_traffic("put")

    def test_signals_are_added_once_without_a_nic(self):
        self.check_traffic("signal", CHANCE.sample(KINDS, 2))

    def test_gets_go_on_without_a_nic(self):
        self.check_traffic("get", CHANCE.sample(KINDS, 2))

    def check_control(self, breaks, heals):
        """It runs over eth0, which goes away for longer than its timeout, and nobody is let in by another
        NIC: no verdict, messages go on, and when the path is back the control plane is too."""
        job = self.job("long", WEFT_PATH_TIMEOUT="1s", WEFT_HEARTBEAT="600ms", WEFT_SILENT="100ms",
                       WEFT_LOG="link:info,control:info,warn")
        self.await_bytes(ALL, "bytes over all NICs")
        self.lab.host[1].run(["nft", "table inet alone { chain output { type filter hook output "
                              "priority 0; oifname { eth1, eth2, eth3 } "
                              "tcp flags & (syn | ack) == syn drop; }; }"])
        self.addCleanup(self.lab.host[1].run, ["nft", "delete table inet alone"])
        breaks(1, 0)
        pause(8 if IS_LONG else 4)
        self.check_runs(job)
        self.assertNotIn("goes by", job[1].stderr, self.story(job))
        heals(1, 0)
        self.await_bytes([0], "bytes over eth0 again", BACK_S)
        for process in job:
            # TCP has doubled its pauses meanwhile: the next try may be as far away as the path was dead.
            ranks.wait_until(lambda process=process: "is back" in process.stderr, 8 + BACK_S,
                             "control again")
        self.finish(job)

    def test_messages_go_on_without_the_nic_of_the_control_connection(self):
        self.addCleanup(self.lab.plug, 1, 0)
        self.check_control(self.lab.unplug, self.lab.plug)

    @only_long
    def test_messages_go_on_while_control_is_in_a_black_hole(self):
        self.addCleanup(self.lab.blackhole, 1, 0, on=False)
        self.check_control(self.lab.blackhole, lambda *at: self.lab.blackhole(*at, on=False))

    @only_long
    def test_everything_at_once_goes_on_without_a_nic(self):
        """Five threads on two cores: for what arrives, the times say little."""
        job = self.job(*TRAFFICS)
        for i in range(24):
            self.go_through(job, Break(self.lab, "all", KINDS[i % 3], CHANCE.randrange(4)), True)
        self.finish(job)

    def test_the_first_message_finds_a_nic_dead(self):
        for host in range(self.HOSTS):
            self.check_first_message_without_eth0(host)

    def test_a_nic_that_refuses_every_connection_is_done_without(self):
        """From the beginning: the first answer of all that are dialled is a refusal."""
        rule = "table inet refusing { chain input { type filter hook input priority 0; " \
               "iifname eth1 tcp flags syn reject with tcp reset; }; }"
        self.lab.host[0].run(["nft", rule])
        self.addCleanup(self.lab.host[0].run, ["nft", "delete table inet refusing"])
        job = self.job("long", "put")
        self.await_bytes([0, 2, 3], "bytes over the others")
        self.finish(job)


if __name__ == "__main__":
    ranks.main()
