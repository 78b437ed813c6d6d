# SPDX-License-Identifier: Apache-2.0
"""All NICs between two hosts at once: how fast, in which shares, with which settings."""
import time
import unittest

import ranks
from lanes import IS_LONG, IS_SLOW, LanesCase, only_long, pause

PAYLOAD = 0.95  # of a rate: what headers leave (docs/lab.md)
TRIES = 4
SHARE = 1 if IS_LONG else 0.85  # of a rate that a busy machine leaves: the long form holds the figures


@unittest.skipIf(IS_SLOW, "an optimised build is measured")
class Rates(LanesCase):
    """Other work on the machine makes a transfer slower, never quicker: the best of a few counts."""

    def best_of(self, measure, is_enough):
        """The first result that is enough, else a failure with all of them."""
        results = []
        for _ in range(TRIES):
            results.append(measure())
            if is_enough(results[-1]):
                return
        self.fail("%s\n%s" % (results, self.story(self.latest)))

    def measure(self, traffic="long", **variables):
        """Payload and, by NIC, all that was carried, in bit/s of a second without the first burst."""
        job = self.job(traffic, **variables)
        pause(0.4)
        bits = self.measure_now()
        done = self.finish(job)[(traffic, 0 if traffic == "get" else 1)]
        return 8 * done["bytes"] / done["took"], bits

    def measure_now(self):
        before, began = self.carried(), time.monotonic()
        pause(1)
        after, took = self.carried(), time.monotonic() - began
        return [8 * (b - a) / took for a, b in zip(before, after)]

    def rate_all(self, rates):
        for host in range(2):
            for nic, rate in enumerate(rates):
                self.lab.set_rate(host, nic, rate)

    def test_four_nics_are_nearly_four_times_one(self):
        one, _ = self.measure(WEFT_SOCKET_IFNAME="=eth0")
        self.assertGreater(one, SHARE * 0.85e9 * PAYLOAD, "one NIC")
        self.best_of(self.measure, lambda got: got[0] >= SHARE * 3.6 * one and
                     min(got[1]) > SHARE * 0.9 * max(got[1]))

    def test_a_slower_nic_gets_what_it_carries(self):
        self.addCleanup(self.rate_all, ["1gbit"] * 4)
        for nic in (2, 3):
            self.lab.unplug(0, nic)
            self.addCleanup(self.lab.plug, 0, nic)
        self.rate_all(["1gbit", "250mbit"])
        self.best_of(self.measure, lambda got: got[0] >= SHARE * 0.9 * 1.25e9 * PAYLOAD and
                     got[1][0] > SHARE * 0.85e9 and SHARE * 0.2e9 < got[1][1] < 0.3e9)

    def test_a_nic_that_becomes_slow_gets_less(self):
        """And more again when it is quick."""
        self.addCleanup(self.rate_all, ["1gbit"] * 4)
        job = self.job("long")
        for megabits in (100, 1000):
            for host in range(2):
                self.lab.set_rate(host, 1, "%dmbit" % megabits)
            pause(0.5)
            self.best_of(self.measure_now, lambda bits, least=megabits * 1e6:
                         sum(bits) > SHARE * 0.85 * (3e9 + least) and
                         bits[1] > 0.5 * least)
        self.finish(job)

    @only_long
    def test_both_ways_at_once(self):
        job = self.job("long", "back")
        self.best_of(self.measure_now, lambda bits: sum(bits) > 3e9)
        self.finish(job)


class Settings(LanesCase):
    """A plain transfer of each kind is right with each of them."""

    def lanes_of(self, job):
        """Connections of rank 0 to rank 1's host, by NIC."""
        ends = [end[3] for end in ranks.connections(job[0].pid) if end[0] == "established"]
        return [ends.count(self.lab.address(1, nic)) for nic in range(self.NICS)]

    def check_setting(self, **variables):
        job = self.job("long", "short", "put", "get", "signal", **variables)
        self.await_bytes(range(self.NICS), "bytes over all NICs")
        pause(3 if IS_SLOW else 0.3)  # for a round of each kind
        lanes = self.lanes_of(job)
        done = self.finish(job)
        self.assertEqual(len(done), 10, self.story(job))
        self.assertTrue(all(event["bytes"] > 0 for event in done.values()), done)
        for process in job:
            self.assertNotIn("given up", process.stderr, self.story(job))
        return lanes

    def test_two_lanes_per_nic(self):
        one = self.check_setting(WEFT_LANES=1)
        two = self.check_setting(WEFT_LANES=2)
        self.assertEqual([b - a for a, b in zip(one, two)], [1] * 4, (one, two))

    def test_whole_messages_in_turn(self):
        self.check_setting(WEFT_STRATEGY="rr")

    @only_long
    def test_always_split(self):
        self.check_setting(WEFT_STRATEGY="split")

    def test_short_chunks(self):
        self.check_setting(WEFT_CHUNK="64K")

    def test_a_window_of_two(self):
        self.check_setting(WEFT_WINDOW=2)

    def test_checksums(self):
        self.check_setting(WEFT_CHECKSUM="on")

    def test_sealed_lanes(self):
        self.check_setting(WEFT_SECURITY="encrypt", WEFT_SECRET_FILE=self.path("secret", "5f" * 32))

    @only_long
    def test_all_of_them(self):
        self.check_setting(WEFT_LANES=2, WEFT_STRATEGY="rr", WEFT_CHUNK="64K", WEFT_WINDOW=1,
                           WEFT_CHECKSUM="on")


class Starts(LanesCase):
    """Traffic that does not wait for the last lane: they come up in any order."""
    HOSTS, NICS = 2, 4
    COUNT = 100 if IS_LONG else 4

    def test_messages_of_all_lengths_from_the_first_moment(self):
        for _ in range(self.COUNT):
            self.finish(self.job("all"))

    def test_threads_from_the_first_moment(self):
        for _ in range(self.COUNT):
            self.finish(self.job("long", "back", "short", "put", "get", "signal", WEFT_LANES=2))


class ThreeHosts(LanesCase):
    HOSTS, NICS = 3, 2

    def test_everybody_to_everybody(self):
        job = self.job("all")
        self.await_bytes(range(2), "bytes over both NICs")
        pause(0.5)
        done = self.finish(job)
        self.assertEqual(len(done), 3)

    def test_everybody_to_everybody_without_a_nic(self):
        job = self.job("all")
        for host, nic in ((1, 1), (0, 0), (2, 1)):
            self.lab.link_down(host, nic)
            pause(0.3)
            self.check_runs(job)
            self.lab.link_up(host, nic)
            self.await_bytes(range(2), "bytes over both NICs", 5)
        self.finish(job)


if __name__ == "__main__":
    ranks.main()
