# SPDX-License-Identifier: Apache-2.0
"""Where the nemesis works: a lab of hosts with several NICs, or, where there is none, this machine alone. What can be
done to it, and what must not be left there by a job that has ended."""
import ctypes
import os
import random
import socket
import struct
import threading
import time

from lab import CLONE_NEWNET, Lab, libc
from nemesis_job import Finding
from ranks import connections, free_ports

SPEECHES = [b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\x16\x03\x01\x00\xc8\x01\x00\x00\xc4\x03\x03",
            b"\x93\x00\xff\xfe\x80\x7f noise", b"WEFX", b"\n", b"WEFT\x01\x00\x01\x00", b""]
PORT = 23600  # of a lab, which has all of them
CONNECT_S = 5
CLEAN_S = 3  # until the kernel has taken away what ended processes held


def unix_names(pid):
    """Abstract sockets of this process's network that have a name of ours."""
    with open("/proc/%d/net/unix" % pid, encoding="utf-8", errors="replace") as table:
        names = {line.split()[-1] for line in list(table)[1:] if len(line.split()) == 8}
    return {name for name in names if name.startswith("@") and "weft" in name}


def tcp_sockets(pid):
    """Of this process's network: the words of each line."""
    for name in ("tcp", "tcp6"):
        try:
            with open("/proc/%d/net/%s" % (pid, name), encoding="ascii") as table:
                yield from (line.split() for line in list(table)[1:])
        except FileNotFoundError:
            pass  # a kernel without IPv6


def listeners(pid):
    """TCP ports of this process's network on which somebody listens."""
    return {words[1] for words in tcp_sockets(pid) if words[3] == "0A"}


def sockets(pid):
    """All of this process's network that some process holds: what each is, by inode."""
    found = {words[9]: "tcp socket %s" % words[1] for words in tcp_sockets(pid)}
    with open("/proc/%d/net/unix" % pid, encoding="utf-8", errors="replace") as table:
        for line in list(table)[1:]:
            words = line.split()
            found[words[6]] = "unix socket %s" % (words[7] if len(words) > 7 else "without a name")
    return found


def holdings(pid):
    """Inodes of its sockets, and what it has mapped from /dev/shm."""
    inodes, files = set(), set()
    try:
        for fd in os.listdir("/proc/%d/fd" % pid):
            try:
                target = os.readlink("/proc/%d/fd/%s" % (pid, fd))
            except OSError:
                continue  # closed meanwhile
            if target.startswith("socket:["):
                inodes.add(target[len("socket:["):-1])
        with open("/proc/%d/maps" % pid, encoding="utf-8", errors="replace") as maps:
            files = {line.split()[5] for line in maps if " /dev/shm/" in line and "weft" in line}
    except OSError:
        pass  # it has just ended
    return inodes, files


class Machine:
    """This machine: no NICs to lose."""
    hosts, nics = 1, 0
    kinds = ("kill", "two", "stop", "freeze", "strangers", "other", "abort", "leave")

    def __init__(self):
        self.before = {}
        self.held = set(), set()  # by ranks of this job, at any time
        self.remember()

    def keepers(self):
        """A process on each host."""
        return {0: os.getpid()}

    def remember(self):
        """What is there before a job."""
        self.before = {host: (unix_names(pid), listeners(pid)) for host, pid in self.keepers().items()}
        self.held = set(), set()

    def watch(self, job):
        """What its ranks hold now must be gone when they are."""
        for rank in job.rank:
            for known, now in zip(self.held, holdings(rank.pid)):
                known |= now

    @staticmethod
    def where(unused_host):
        return []

    @staticmethod
    def address(unused_host):
        return "127.0.0.1"

    def port(self):
        """For the root of the next job."""
        return free_ports(1)

    def left_behind(self):
        """On this machine others live, too: only what was the ranks' counts."""
        inodes, files = self.held
        inodes = inodes - holdings(os.getpid())[0]  # it has inherited some to them
        return [what for inode, what in sockets(os.getpid()).items() if inode in inodes] + \
               [name for name in files if os.path.exists(name)]

    def check_clean(self, unused_job):
        end = time.monotonic() + CLEAN_S
        while self.left_behind():
            if time.monotonic() > end:
                raise Finding("left behind: %s" % self.left_behind())
            time.sleep(0.02)

    def close(self):
        pass

    # ---- strangers ----

    def send_strangers(self, job, number, seed):
        """So many to every port of each rank, in threads; they come and go by themselves."""
        threads = []
        for host in set(job.places):
            ports = [(end[1], end[2]) for rank in job.living() if rank.host == host and not rank.is_killed
                     for end in self.ports_of(rank)]
            names = sorted(unix_names(self.keepers()[host]))
            threads.append(threading.Thread(target=self.visit, daemon=True,
                                            args=(host, ports, names, number, seed)))
            threads[-1].start()
        return threads

    @staticmethod
    def ports_of(rank):
        try:
            return [end for end in connections(rank.pid) if end[0] == "listening"]
        except OSError:
            return []  # it has just ended

    def enter(self, host):
        pass

    def visit(self, host, ports, names, number, seed):
        chance = random.Random(seed)
        self.enter(host)
        for _ in range(number):
            for address in ports + names:
                self.visit_one(address, chance)

    @staticmethod
    def visit_one(address, chance):
        is_local = isinstance(address, str)
        one = socket.socket(socket.AF_UNIX if is_local else socket.AF_INET)
        try:
            one.settimeout(CONNECT_S)
            one.connect("\0" + address[1:] if is_local else address)
            one.send(chance.choice(SPEECHES))
            if chance.random() < 0.3:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        except OSError:
            pass  # refused, reset, or the rank has ended meanwhile
        finally:
            one.close()


class Hosts(Machine):
    """A lab."""
    kinds = Machine.kinds + ("nic", "loss", "slow")

    def __init__(self, hosts=4, nics=3):
        self.hosts, self.nics = hosts, nics
        self.ports = 0
        self.lab = Lab(hosts=hosts, nics=nics, rate="none")
        super().__init__()

    def keepers(self):
        return {number: host.pid for number, host in enumerate(self.lab.host)}

    def where(self, host):
        return self.lab.host[host].where

    def port(self):
        self.ports += 1
        return PORT + self.ports % 1000

    def address(self, host):
        return self.lab.address(host)

    def watch(self, unused_job):
        """Nobody else lives here."""

    def left_behind(self):
        found = []
        for host, pid in self.keepers().items():
            names, ports = self.before[host]
            found += ["%s on h%d" % (one, host) for one in unix_names(pid) - names]
            found += ["port %s on h%d" % (one, host) for one in listeners(pid) - ports]
            try:
                found += [name for name in os.listdir("/proc/%d/root/dev/shm" % pid) if "weft" in name]
            except OSError:
                pass
        return found

    def close(self):
        self.lab.close()

    def enter(self, host):
        fd = os.open("/proc/%d/ns/net" % self.keepers()[host], os.O_RDONLY)
        try:
            if libc.setns(fd, CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")
        finally:
            os.close(fd)

    # ---- links; each returns what heals it ----

    def break_nic(self, how, host, nic):
        lab = self.lab
        if how == "down":
            lab.link_down(host, nic)
            return lambda: lab.host[host].run(["ip", "link", "set", "eth%d" % nic, "up"])
        if how == "unplug":
            lab.unplug(host, nic)
            return lambda: lab.switch.run(["ip", "link", "set", "p%d-%d" % (host, nic), "up"])
        lab.blackhole(host, nic)
        return lambda: lab.switch.run(["ip", "link", "set", "p%d-%d" % (host, nic), "master", "br%d" % nic])

    def lose(self, percent):
        """Of the packets between all hosts, ARP excepted."""
        self.nft("add table bridge nemesis; delete table bridge nemesis; table bridge nemesis { chain loss { "
                 "type filter hook forward priority 0; ether type { ip, ip6 } "
                 "numgen random mod 100 < %d drop; }; }" % percent)
        return lambda: self.nft("add table bridge nemesis; delete table bridge nemesis")

    def nft(self, commands):
        self.lab.switch.run(["nft", "-f", "-"], input=commands.replace("; ", "\n", 2) + "\n")

    def slow(self, host, nic, bits):
        self.lab.set_rate(host, nic, bits)
        return lambda: self.lab.set_rate(host, nic, None)
