# SPDX-License-Identifier: Apache-2.0
"""Two hosts, two NICs each, all in one network, as a plain switch makes it. Their routes send everything by the
first NIC, and unless they are told otherwise (arp_ignore, arp_announce) they answer for both addresses by either."""
import ranks
from lab import Lab
from lanes import MOVED, START_S, LanesCase, wait_until


class FlatLab(Lab):
    """eth<k> of host h has 10.1.0.<10 k + h + 1>/24, and all hang on one bridge."""

    def __init__(self, **options):
        super().__init__(**options)
        for h, host in enumerate(self.host):
            for nic in range(1, len(self.facts["hosts"][h]["nics"])):
                self.switch.run(["ip", "link", "set", "p%d-%d" % (h, nic), "master", "br0"])
                host.run(["ip", "address", "flush", "dev", "eth%d" % nic])
                host.run(["ip", "address", "add", self.address(h, nic) + "/24", "dev",
                          "eth%d" % nic])

    def address(self, host, nic=0):
        return "10.1.0.%d" % (10 * nic + host + 1)

    def set_up(self, is_set_up=True):
        """As docs/lanes.md says, or as Linux comes."""
        values = ((1, "arp_ignore"), (2, "arp_announce"), (1, "ignore_routes_with_linkdown"))
        for host in self.host:
            host.run(["sh", "-c", "cd /proc/sys/net/ipv4/conf/all && " + " && ".join(
                "echo %d >%s" % (is_set_up and value, name) for value, name in values) +
                      " && ip neigh flush all"])


class Flat(LanesCase):
    NICS = 2

    @classmethod
    def setUpClass(cls):
        cls.lab = FlatLab(hosts=2, nics=2, rate="1G")
        cls.addClassCleanup(cls.lab.close)
        cls.lab.set_up()

    def sent(self, host):
        counters = self.lab.host[host].counters()
        return [counters["eth%d" % nic][1] for nic in range(self.NICS)]

    def await_sent(self, hosts, nics, what, within=START_S):
        """Until each of these NICs of these hosts has sent bulk from now on."""
        before = [self.sent(host) for host in hosts]

        def moved():
            return all(self.sent(host)[nic] - before[i][nic] > MOVED
                       for i, host in enumerate(hosts) for nic in nics)
        try:
            wait_until(moved, within, what)
        except AssertionError as error:
            now = [self.sent(host) for host in hosts]
            self.fail("%s: sent %s\n%s" % (error, [[b - a for a, b in zip(*pair)] for pair in
                                                   zip(before, now)], self.story(self.latest)))

    def test_every_nic_carries_each_way(self):
        """Of hosts that are set up for several NICs in one network."""
        job = self.job("long", "back")
        self.await_sent((0, 1), (0, 1), "bytes by every NIC, each way")
        self.finish(job)

    def test_hosts_that_answer_by_any_nic(self):
        """By which one rank 0's host hears, and so speaks, is then up to the kernels."""
        self.addCleanup(self.lab.set_up)
        self.lab.set_up(False)
        job = self.job("long", "back")
        self.await_sent((1,), (0, 1), "bytes by every NIC of the dialler")
        self.finish(job)


    def check_without_eth0(self, host, breaks, heals):
        """Of that host: everything goes on by the other NIC, the control connection too."""
        job = self.job("long", "back", "control", WEFT_LOG="link:info,control:info,warn")
        wait_until(lambda: "ways back" in job[1].stderr, 5, "ways back")
        self.addCleanup(heals, host, 0)
        breaks(host, 0)
        self.await_sent((0, 1), (1,), "bytes by the other NIC, each way", 5)
        try:
            wait_until(lambda: "goes by" in job[1].stderr, 5, "the control connection")
        except AssertionError as error:
            self.fail("%s\n%s" % (error, self.story(job)))
        self.finish(job)

    def test_the_first_nic_of_the_dialler_dies(self):
        self.check_without_eth0(1, self.lab.unplug, self.lab.plug)

    def test_the_first_nic_of_the_acceptor_dies(self):
        self.check_without_eth0(0, self.lab.unplug, self.lab.plug)

    def test_the_first_nic_of_the_dialler_dies_before_the_first_message(self):
        self.check_first_message_without_eth0(1)

    def test_the_first_nic_of_the_acceptor_dies_before_the_first_message(self):
        """What the routes say of the root is its address there."""
        self.check_first_message_without_eth0(0)


if __name__ == "__main__":
    ranks.main()
