# SPDX-License-Identifier: Apache-2.0
"""A lab for tests and benchmarks: hosts with several NICs, made and held by `weft lab --keep`. It
goes with this process, whatever happens to it.

    with Lab(hosts=2, nics=4, rate="1G") as lab:
        lab.host[0].run(["ip", "route", "get", lab.address(1, 0)])
        server = lab.host[1].socket()            # a socket of ours that lives on that host
        lab.link_down(0, 1)                      # eth1 of h0, as `ip link set down` does
        lab.unplug(0, 2)                         # eth2 of h0 loses its carrier
        lab.blackhole(0, 3)                      # eth3 of h0 keeps it, and nothing comes through

Host h has on network k: interface eth<k>, address 10.<k+1>.0.<h+1>/24; its cable ends in port
p<h>-<k> of bridge br<k>, in the switch's namespace."""
import ctypes
import json
import os
import select
import socket
import subprocess
import threading
import unittest

from ranks import CLI, clean_env, die_with_us, wait_until

MAKE_S = 30
CLONE_NEWNET = 0x40000000
libc = ctypes.CDLL(None, use_errno=True)


class NoLab(unittest.SkipTest):
    """There is no lab on this machine; the text says why. A test that meets it is skipped."""


class Host:
    """A namespace; `where` in front of a command runs it there."""

    def __init__(self, lab, name, pid):
        self.lab, self.name, self.pid = lab, name, pid
        self.where = ["nsenter", "--target", str(pid), "--net", "--uts", "--ipc", "--mount",
                      "--wd=."]

    def popen(self, argv, **options):
        """A process there, which ends with us."""
        return subprocess.Popen(self.where + list(argv), preexec_fn=die_with_us, **options)

    def run(self, argv, timeout=60, **options):
        """stdout of a command there; AssertionError with its stderr when it fails."""
        done = subprocess.run(self.where + list(argv), check=False, capture_output=True, text=True,
                              timeout=timeout, preexec_fn=die_with_us, **options)
        if done.returncode != 0:
            raise AssertionError("%s on %s: %s" % (" ".join(argv), self.name, done.stderr))
        return done.stdout

    def socket(self, kind=socket.SOCK_STREAM, proto=0):
        """A socket of this process on that host: only where it was made matters to a socket. By a
        thread of its own, because one thread is on one network."""
        made = []
        thread = threading.Thread(target=self.make_socket, args=(kind, proto, made))
        thread.start()
        thread.join()
        if isinstance(made[0], OSError):
            raise made[0]
        return made[0]

    def make_socket(self, kind, proto, made):
        fd = os.open("/proc/%d/ns/net" % self.pid, os.O_RDONLY)
        try:
            if libc.setns(fd, CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")
            made.append(socket.socket(socket.AF_INET, kind, proto))
        except OSError as error:
            made.append(error)
        finally:
            os.close(fd)

    def counters(self):
        """{interface: (bytes received, bytes sent)}, of all its traffic"""
        found = {}
        with open("/proc/%d/net/dev" % self.pid, encoding="ascii") as file:
            for line in list(file)[2:]:
                name, _, numbers = line.partition(":")
                words = numbers.split()
                found[name.strip()] = (int(words[0]), int(words[8]))
        return found

    def fact(self, device, name):
        """A line of this host's /sys/class/net; "": there is none now."""
        try:
            with open("/proc/%d/root/sys/class/net/%s/%s" % (self.pid, device, name),
                      encoding="ascii") as file:
                return file.read().strip()
        except OSError:
            return ""

    def has_carrier(self, nic):
        """False also when the interface is down."""
        return self.fact("eth%d" % nic, "carrier") == "1"


class Lab:
    """Options as `weft lab --help` has them; rate: "1G" or "1G,250M" or "none"."""

    def __init__(self, hosts=2, nics=4, rate="1G", cli=None, **more):
        argv = [cli or CLI, "lab", "--keep", "--json", "--hosts", str(hosts), "--nics", str(nics),
                "--rate", rate]
        for name, value in more.items():
            argv += ["--" + name, str(value)]
        self.keeper = subprocess.Popen(argv, env=clean_env(), stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                       preexec_fn=die_with_us)
        try:
            self.facts = self.read_facts()
        except BaseException:
            self.close()
            raise
        self.name = self.facts["name"]
        self.links = self.facts["links"]
        self.host = [Host(self, one["name"], one["pid"]) for one in self.facts["hosts"]]
        self.switch = Host(self, "switch", self.facts["switch"]["pid"])

    def read_facts(self):
        ready, _, _ = select.select([self.keeper.stdout], [], [], MAKE_S)
        line = self.keeper.stdout.readline() if ready else ""
        if line:
            return json.loads(line)
        self.keeper.kill()
        said = self.keeper.stderr.read().strip()
        if self.keeper.wait() == 2 and "--help" not in said:  # this machine cannot, or may not
            raise NoLab(said)
        raise AssertionError("no lab: %s" % (said or "not ready in %d s" % MAKE_S))

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    def close(self):
        """Returns when nothing of it is left."""
        self.keeper.stdin.close()
        try:
            self.keeper.wait(10)
        except subprocess.TimeoutExpired:
            self.keeper.kill()
            self.keeper.wait()
        self.keeper.stdout.close()
        self.keeper.stderr.close()

    def address(self, host, nic=0):
        return self.facts["hosts"][host]["nics"][nic]["address"]

    # ---- what may happen to a link ----

    def link_down(self, host, nic):
        """The host takes its own interface down."""
        self.host[host].run(["ip", "link", "set", "eth%d" % nic, "down"])

    def link_up(self, host, nic):
        self.host[host].run(["ip", "link", "set", "eth%d" % nic, "up"])
        self.await_link(host, nic)

    def unplug(self, host, nic):
        """The host's interface stays up and loses its carrier: a cable pulled on the near side."""
        self.switch.run(["ip", "link", "set", "p%d-%d" % (host, nic), "down"])

    def plug(self, host, nic):
        self.switch.run(["ip", "link", "set", "p%d-%d" % (host, nic), "up"])
        self.await_link(host, nic)

    def blackhole(self, host, nic, on=True):
        """Nothing comes through, either way, and neither side's interface tells."""
        self.switch.run(["ip", "link", "set", "p%d-%d" % (host, nic)] +
                        (["nomaster"] if on else ["master", "br%d" % nic]))
        if not on:
            self.await_link(host, nic)

    def await_link(self, host, nic):
        """Until packets pass: the kernel tells of a carrier a little after it is there."""
        wait_until(lambda: self.host[host].fact("eth%d" % nic, "operstate") == "up" and
                   self.switch.fact("p%d-%d" % (host, nic), "brport/state") == "3", 10, "the link")

    def set_mtu(self, host, nic, mtu):
        """At both ends of the host's link."""
        self.host[host].run(["ip", "link", "set", "eth%d" % nic, "mtu", str(mtu)])
        self.switch.run(["ip", "link", "set", "p%d-%d" % (host, nic), "mtu", str(mtu)])

    def set_rate(self, host, nic, bits):
        """bit/s each way, as a number or "250mbit"; None: no limit"""
        ends = ((self.host[host], "eth%d" % nic), (self.switch, "p%d-%d" % (host, nic)))
        for place, device in ends:
            if bits is None:
                place.run(["tc", "qdisc", "delete", "dev", device, "root"])
            else:
                place.run(["tc", "qdisc", "replace", "dev", device, "root", "tbf", "rate",
                           str(bits), "burst", str(self.links["burst_bytes"]), "latency",
                           "%dms" % self.links["latency_ms"]])
