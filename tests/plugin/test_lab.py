# SPDX-License-Identifier: Apache-2.0
"""The NCCL plugin between two hosts with several NICs: all carry data, by their speed; one that goes away under traffic
costs a short stall and nothing else, and is used again when it is back; without any, both sides hear of it."""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "net"))
import ranks  # noqa: E402
from lab import Lab  # noqa: E402

MOVER = os.environ.get("PLUGIN_MOVER", os.path.join(ranks.BUILD, "tests", "plugin.mover"))
NEAR_S, FAR_S, BACK_S = 0.1, 1.5, 5
BUSY_S = float(os.environ.get("NET_SLOW", "0")) * 2 + 0.9  # the machine may be shared
NICS = 2


class PluginLab(ranks.NetCase):
    def setUp(self):
        super().setUp()
        self.lab = Lab(hosts=2, nics=NICS, rate=self.RATE)
        self.addCleanup(self.lab.close)

    RATE = "1G"

    def connect(self, **variables):
        env = ranks.clean_env(**variables)
        receiver = self.start([MOVER, "receive"], env, self.lab.host[1].where)
        handle = receiver.event("handle", time.monotonic() + 20)["hex"]
        sender = self.start([MOVER, "send", handle], env, self.lab.host[0].where)
        self.marks = 0
        return sender, receiver

    def mark(self, receiver):
        """The longest time without a message since the last mark, and how many messages so far."""
        self.marks += 1
        receiver.child.stdin.write("mark\n")
        receiver.child.stdin.flush()
        event = receiver.event("gap", time.monotonic() + 20, number=self.marks)
        return event["ms"] / 1000, event["messages"]

    def await_messages(self, receiver, more, timeout_s=20):
        deadline = time.monotonic() + timeout_s
        _, first = self.mark(receiver)
        while self.mark(receiver)[1] < first + more:
            if time.monotonic() > deadline:
                self.fail("no progress: %s" % receiver.describe())
            time.sleep(0.02)

    def sent(self, nic):
        return self.lab.host[0].counters()["eth%d" % nic][1]

    def await_bytes(self, nic, timeout_s):
        deadline = time.monotonic() + timeout_s
        before = self.sent(nic)
        while self.sent(nic) < before + (2 << 20):
            if time.monotonic() > deadline:
                self.fail("no bytes over eth%d" % nic)
            time.sleep(0.02)

    def finish(self, sender, receiver):
        deadline = time.monotonic() + 20
        sender.child.stdin.close()
        self.assertEqual(sender.wait(deadline), 0, sender.describe())
        self.assertEqual(receiver.wait(deadline), 0, receiver.describe())

    def check_break(self, breaks, heals, host, limit_s):
        sender, receiver = self.connect()
        self.await_bytes(0, 20)
        self.await_bytes(1, 20)
        for nic in range(NICS):
            self.mark(receiver)
            breaks(host, nic)
            self.await_messages(receiver, 30)
            time.sleep(0.6)
            stall, _ = self.mark(receiver)
            heals(host, nic)
            self.await_bytes(nic, BACK_S + BUSY_S)
            print("eth%d of h%d %s: stall %.3f s" % (nic, host, breaks.__name__, stall), file=sys.stderr)
            self.assertLess(stall, limit_s + BUSY_S)
        self.finish(sender, receiver)


class EqualNics(PluginLab):
    def test_all_carry_data(self):
        sender, receiver = self.connect()
        self.await_messages(receiver, 5)
        before = [self.sent(nic) for nic in range(NICS)]
        self.await_messages(receiver, 60)
        moved = [self.sent(nic) - one for nic, one in enumerate(before)]
        self.finish(sender, receiver)
        self.assertGreater(min(moved), 0.05 * sum(moved), moved)  # callers may be slow here

    def test_without_a_carrier_at_the_sender(self):
        self.check_break(self.lab.unplug, self.lab.plug, 0, NEAR_S)

    def test_down_at_the_receiver(self):
        self.check_break(self.lab.link_down, self.lab.link_up, 1, FAR_S)

    def test_a_black_hole(self):
        def heal(host, nic):
            self.lab.blackhole(host, nic, on=False)
        self.check_break(self.lab.blackhole, heal, 1, FAR_S)

    def test_without_any_both_sides_hear_of_it(self):
        sender, receiver = self.connect(WEFT_PATH_TIMEOUT="2s")
        self.await_messages(receiver, 10)
        for nic in range(NICS):
            self.lab.blackhole(1, nic)
        deadline = time.monotonic() + 25
        for one in (sender, receiver):
            self.assertIn(one.event("failed", deadline)["result"], (2, 6))


class UnequalNics(PluginLab):
    RATE = "800M,200M"

    def test_the_faster_carries_more(self):
        sender, receiver = self.connect(WEFT_NCCL_MERGE=1)
        self.await_messages(receiver, 10)
        before = [self.sent(nic) for nic in range(NICS)]
        start = time.monotonic()
        self.await_messages(receiver, 100)
        moved = [self.sent(nic) - one for nic, one in enumerate(before)]
        rate = 8e-6 * sum(moved) / (time.monotonic() - start)
        self.finish(sender, receiver)
        print("%s, %.0f Mbit/s" % (moved, rate), file=sys.stderr)
        if "NET_SLOW" in os.environ and rate < 600:
            self.skipTest("it is not the NICs that are slow")
        self.assertGreater(moved[0], 2 * moved[1], moved)
        self.assertGreater(moved[1], 0.08 * sum(moved), moved)


if __name__ == "__main__":
    ranks.main()
