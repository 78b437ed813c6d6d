# SPDX-License-Identifier: Apache-2.0
"""A NIC that is a two-hundredth of itself for a while: the others take over what it was given."""
import re
import sys
import time

import ranks
from lanes import BUSY_S, CHANCE, FAR_S, IS_LONG, BrokenCase, only_long, pause

SLOW, FULL = "5mbit", "1gbit"
LASTS_S = 6 if IS_LONG else 3
WHOLE = 3 / 4  # of the rate, without one of four
LANE_TIMEOUT_MS = 500
BACK_S = 8     # a slow one is tried again now and then; what it held must have left it before


class OneIsSlow(BrokenCase):
    def heal(self):
        super().heal()
        for host in range(2):
            for nic in range(self.NICS):
                self.lab.set_rate(host, nic, FULL)

    def bytes_since(self, job, since):
        """Of rank 1 and its first traffic, per second, in whole seconds after `since`."""
        self.stalls(job, since)  # takes in what was said
        seconds = [event for event in job[1].events if event["event"] == "second" and
                   event["at"] - event["took"] > since]
        return sum(event["bytes"] for event in seconds) / max(1, len(seconds))

    def check_given_up(self, job):
        """A NIC this slow may lose a whole window, and TCP then rests for longer than WEFT_LANE_TIMEOUT: such a lane
        may be given up, no other one."""
        for process in job:
            for why in re.findall("is given up: (.*)", process.stderr):
                silent = re.match(r"nothing acknowledged for (\d+) ms", why)
                self.assertTrue(silent and int(silent[1]) >= LANE_TIMEOUT_MS, self.story(job))

    def check_slow(self, traffic, nic, least, **variables):
        """least: part of the rate before that must be left."""
        host = CHANCE.randrange(2)
        began = time.monotonic()
        job = self.job(traffic, **variables)
        pause(1.2)
        before = self.bytes_since(job, began)
        since = time.monotonic()
        self.lab.set_rate(host, nic, SLOW)
        pause(LASTS_S)
        self.check_runs(job)
        until = time.monotonic()
        left = self.bytes_since(job, since + 0.5)
        stalls = self.stalls(job, since, until)
        print("%s, eth%d of h%d: stall %.2f s, %.0f of %.0f MB/s left" % (
            traffic, nic, host, max(stalls.values(), default=0), left / 1e6, before / 1e6),
              file=sys.stderr)
        self.assertLessEqual(max(stalls.values(), default=0), FAR_S + BUSY_S, self.story(job))
        self.assertGreater(left, least * WHOLE * before, self.story(job))
        self.check_given_up(job)
        self.lab.set_rate(host, nic, FULL)
        if traffic == "long":
            self.await_bytes([nic], "bytes over eth%d again" % nic, BACK_S)
        self.finish(job)

    def test_long_messages(self):
        for nic in (0, CHANCE.randrange(1, 4)):
            self.check_slow("long", nic, 0.4)

    @only_long
    def test_whole_messages_in_turn(self):
        self.check_slow("long", CHANCE.randrange(1, 4), 0.2, WEFT_STRATEGY="rr")

    @only_long
    def test_checksums(self):
        self.check_slow("long", CHANCE.randrange(1, 4), 0.2, WEFT_CHECKSUM="on")

    @only_long
    def test_puts(self):
        self.check_slow("put", CHANCE.randrange(4), 0.3)

    @only_long
    def test_signals(self):
        self.check_slow("signal", CHANCE.randrange(4), 0.1)

    @only_long
    def test_gets(self):
        self.check_slow("get", CHANCE.randrange(4), 0.3)


if __name__ == "__main__":
    ranks.main()
