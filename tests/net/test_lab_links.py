# SPDX-License-Identifier: Apache-2.0
"""The lab's links: rates, what may happen to one, loss, delay and order."""
import json
import os
import socket
import threading
import time

import ranks
from lab import Lab
from ranks import NetCase, wait_until

PORT = 5001


class Links(NetCase):
    """One lab for all of them: each test puts back what it changed."""

    @classmethod
    def setUpClass(cls):
        cls.lab = Lab(hosts=2, nics=3, rate="1G,100M,1G")
        cls.addClassCleanup(cls.lab.close)

    def pair(self, nic):
        """Two UDP sockets that know each other, on h0 and h1."""
        ends = [self.lab.host[host].socket(socket.SOCK_DGRAM) for host in range(2)]
        for host, end in enumerate(ends):
            self.addCleanup(end.close)
            end.bind((self.lab.address(host, nic), PORT))
            end.settimeout(0.05)
        for host, end in enumerate(ends):
            end.connect((self.lab.address(1 - host, nic), PORT))
        return ends

    def passes(self, pair):
        """Whether something said on h0 is heard on h1."""
        try:
            pair[0].send(b"?")
            return pair[1].recv(16) == b"?"
        except OSError:
            return False

    def measure(self, nic, seconds):
        """Mbit/s of one TCP connection from h0 to h1, without its first tenth of a second."""
        with self.lab.host[1].socket() as door:
            door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            door.bind((self.lab.address(1, nic), PORT))
            door.listen()
            sender = self.lab.host[0].socket()
            sender.settimeout(10)
            sender.connect(door.getsockname())
            receiver, _ = door.accept()
        receiver.settimeout(10)
        thread = threading.Thread(target=self.send_on, args=(sender,), daemon=True)
        thread.start()
        place = bytearray(1 << 18)
        began = time.monotonic()
        while time.monotonic() < began + 0.1:
            receiver.recv_into(place)
        began, got = time.monotonic(), 0
        while time.monotonic() < began + seconds:
            got += receiver.recv_into(place)
        rate = got * 8e-6 / (time.monotonic() - began)
        receiver.close()
        thread.join()
        sender.close()
        return rate

    @staticmethod
    def send_on(sender):
        block = bytes(1 << 18)
        try:
            while True:
                sender.sendall(block)
        except OSError:  # the receiver has heard enough
            pass

    def test_each_nic_has_its_rate(self):
        rates = [self.measure(nic, 0.4) for nic in (1, 2)]
        self.assertTrue(60 < rates[0] < 125, rates)
        self.assertTrue(500 < rates[1] < 1100, rates)

    def test_a_rate_can_be_changed_and_taken_off(self):
        self.lab.set_rate(0, 2, 50_000_000)
        slow = self.measure(2, 0.3)
        self.lab.set_rate(0, 2, None)
        self.lab.set_rate(1, 2, None)
        free = self.measure(2, 0.2)
        self.lab.set_rate(0, 2, "1gbit")
        self.lab.set_rate(1, 2, "1gbit")
        self.assertTrue(25 < slow < 80, slow)
        self.assertGreater(free, 1300)

    def check_healing(self, nic, breaks, heals):
        pair, other = self.pair(nic), self.pair(2 - nic)
        wait_until(lambda: self.passes(pair), 5, "a first packet")
        breaks()
        self.assertFalse(self.passes(pair))
        self.assertTrue(self.passes(other) or self.passes(other))
        carriers = [self.lab.host[host].has_carrier(nic) for host in range(2)]
        heals()
        wait_until(lambda: self.passes(pair), 5, "the link back")
        return carriers

    def test_a_link_that_was_down_heals(self):
        carriers = self.check_healing(0, lambda: self.lab.link_down(0, 0),
                                      lambda: self.lab.link_up(0, 0))
        self.assertEqual(carriers, [False, True])

    def test_an_unplugged_cable_is_seen_on_its_own_side(self):
        carriers = self.check_healing(0, lambda: self.lab.unplug(1, 0),
                                      lambda: self.lab.plug(1, 0))
        self.assertEqual(carriers, [True, False])

    def test_a_black_hole_is_seen_by_nobody(self):
        carriers = self.check_healing(0, lambda: self.lab.blackhole(0, 0),
                                      lambda: self.lab.blackhole(0, 0, on=False))
        self.assertEqual(carriers, [True, True])

    def test_the_mtu_can_be_changed(self):
        pair = self.pair(2)
        wait_until(lambda: self.passes(pair), 5, "a first packet")
        pair[0].setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER: never in fragments
        pair[0].send(bytes(1400))
        self.assertEqual(len(pair[1].recv(2000)), 1400)
        self.lab.set_mtu(0, 2, 1000)
        self.addCleanup(self.lab.set_mtu, 0, 2, 1500)
        with self.assertRaises(OSError):
            pair[0].send(bytes(1400))

    def test_bytes_are_counted_per_nic(self):
        before = [host.counters() for host in self.lab.host]
        self.measure(1, 0.1)
        after = [host.counters() for host in self.lab.host]
        sent = {nic: after[0][nic][1] - before[0][nic][1] for nic in before[0]}
        got = {nic: after[1][nic][0] - before[1][nic][0] for nic in before[1]}
        self.assertGreater(sent["eth1"], 1_000_000)
        self.assertGreater(got["eth1"], 1_000_000)
        self.assertLess(sent["eth0"] + sent["eth2"], 10_000)


class BadNetwork(NetCase):
    """Loss, delay and reordering."""

    def send_numbers(self, count, **network):
        """Numbered packets from h0 to h1: those that came, in their order, and the seconds that the
        first one took."""
        with Lab(hosts=2, nics=1, rate="none", **network) as lab:
            ends = [lab.host[host].socket(socket.SOCK_DGRAM) for host in range(2)]
            for host, end in enumerate(ends):
                self.addCleanup(end.close)
                end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
                end.bind((lab.address(host), PORT))
                end.settimeout(0.3)
            came, took = [], None
            for number in range(count):
                ends[0].sendto(b"%d" % number, (lab.address(1), PORT))
                if number == 0:  # ARP is done with it
                    continue
                if number == 1:
                    began = time.monotonic()
                if number % 100 == 0:  # room in the receiver
                    took = took or self.receive(ends[1], came, began)
            self.receive(ends[1], came, began)
            return [number for number in came if number > 0], took

    @staticmethod
    def receive(end, came, began):
        """What is there; returns after how long number 1 came, when it did."""
        took = None
        try:
            while True:
                came.append(int(end.recv(64)))
                end.settimeout(0.05)
                if came[-1] == 1:
                    took = time.monotonic() - began
        except TimeoutError:
            return took

    def test_packets_are_lost_as_often_as_asked(self):
        came, _ = self.send_numbers(1001, loss=20)
        self.assertTrue(700 < len(came) < 900, len(came))
        self.assertEqual(came, sorted(came))

    def test_packets_are_delayed_in_their_order(self):
        came, took = self.send_numbers(101, delay=40)
        self.assertEqual(came, list(range(1, 101)))
        self.assertTrue(0.039 < took < 0.3, took)

    def test_packets_come_out_of_order_and_all_of_them(self):
        came, _ = self.send_numbers(1001, reorder=5)
        self.assertEqual(sorted(came), list(range(1, 1001)))
        overtaken = sum(1 for at, number in enumerate(came) if number < max(came[:at + 1]))
        self.assertTrue(15 < overtaken < 120, overtaken)

    def test_a_transfer_over_a_bad_network_is_whole(self):
        with Lab(hosts=2, nics=1, rate="100M", loss=1, delay="1", reorder=2) as lab:
            sent = os.urandom(1 << 20)
            with lab.host[1].socket() as door:
                door.bind((lab.address(1), PORT))
                door.listen()
                sender = lab.host[0].socket()
                sender.settimeout(20)
                sender.connect(door.getsockname())
                receiver, _ = door.accept()
            receiver.settimeout(20)
            thread = threading.Thread(target=lambda: (sender.sendall(sent), sender.close()))
            thread.start()
            got = b"".join(iter(lambda: receiver.recv(1 << 16), b""))
            thread.join()
            receiver.close()
            self.assertTrue(got == sent)
            seen = json.loads(lab.switch.run(["ip", "-j", "-s", "link", "show", "p0-0"]))
            seen = seen[0]["stats64"]["rx"]
            self.assertLess(seen["bytes"] / seen["packets"], 1515)  # none is a whole segment


if __name__ == "__main__":
    ranks.main()
