#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What several NICs give without Weft, in a lab (tests/net/lab.py): one bound iperf3 stream per
NIC, and one MPTCP connection over all of them. From host 0 to host 1; figures are the receiver's.

    with Lab(hosts=2, nics=4, rate="1G") as lab:
        iperf_streams(lab, 5)   # {"mbit": 3825.0, "mbit_per_nic": [...], "cpu_s_per_gb": 0.31}
        with Mptcp(lab) as peer:
            peer.measure(5)

By itself it prints both, in turn:  bench/lab_peers.py --rounds 3 --rate 2.5G"""
import argparse
import json
import os
import resource
import shutil
import socket
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "tests", "net"))
from lab import Lab, NoLab  # noqa: E402
from ranks import wait_until  # noqa: E402

PORT = 5201
IPPROTO_MPTCP = 262
WARM_S = 1  # until every path is at its rate; not counted (iperf3 takes whole seconds)


class Failed(Exception):
    """A run that gave no figure; the text says why."""


def cpu_s():
    """CPU seconds of all children that have ended: both sides of a run."""
    return sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


def is_listening(host, address, port):
    """Looks, and does not connect: an iperf3 -1 takes one client only."""
    wanted = "%s:%04X" % (socket.inet_aton(address)[::-1].hex().upper(), port)
    with open("/proc/%d/net/tcp" % host.pid, encoding="ascii") as file:
        return any(line.split()[1] == wanted and line.split()[3] == "0A" for line in list(file)[1:])


def start(host, argv):
    return host.popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                      stderr=subprocess.PIPE, text=True)


def finish(process, seconds):
    """Its stdout."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise Failed("not done within %d s" % seconds) from None
    if process.returncode != 0:
        raise Failed((err.strip() or out.strip() or "no words").splitlines()[-1])
    return out


def end(processes):
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


def figures(mbit_per_nic, mbit, gb, cpu):
    return {"mbit": mbit, "mbit_per_nic": mbit_per_nic, "cpu_s_per_gb": cpu / gb if gb else None}


# ---- iperf3, one stream bound to each NIC ----

def iperf_streams(lab, seconds, nics=None, congestion=None):
    """All NICs, or those of the list `nics`. congestion: None is the kernel's."""
    nics = list(range(len(lab.facts["hosts"][0]["nics"]))) if nics is None else nics
    if not shutil.which("iperf3"):
        raise Failed("no iperf3 here")
    before = cpu_s()
    servers = [start(lab.host[1], ["iperf3", "-s", "-1", "-p", str(PORT), "-B",
                                   lab.address(1, nic)]) for nic in nics]
    clients = []
    try:
        for nic in nics:
            address = lab.address(1, nic)
            wait_until(lambda: is_listening(lab.host[1], address, PORT), 10, "iperf3 -s")
        argv = ["iperf3", "-p", str(PORT), "-t", str(seconds), "-O", str(WARM_S), "-J"]
        argv += ["-C", congestion] if congestion else []
        clients = [start(lab.host[0], argv + ["-c", lab.address(1, nic), "-B",
                                              lab.address(0, nic)]) for nic in nics]
        ends = [json.loads(finish(client, seconds + 20))["end"] for client in clients]
        for server in servers:
            finish(server, 10)
    finally:
        end(servers + clients)
    mbit = [one["sum_received"]["bits_per_second"] / 1e6 for one in ends]
    # all that was sent counts for the CPU, the warm-up too
    gb = sum(mbit) * (seconds + WARM_S) / 8e3
    return figures(mbit, sum(mbit), gb, cpu_s() - before)


# ---- MPTCP ----

# Run on the hosts: one prints what came after the warm-up, the other sends.
SERVE = """
import json, socket, sys, time
address, port, warm, proto, control = sys.argv[1:6]
door = socket.socket(socket.AF_INET, socket.SOCK_STREAM, int(proto))
door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
if control:
    door.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
door.bind((address, int(port)))
door.listen()
guest, _ = door.accept()
place = memoryview(bytearray(1 << 20))
total = counted = 0
first = began = ended = None
while True:
    got = guest.recv_into(place)
    if got == 0:
        break
    total += got
    now = time.monotonic()
    first = first or now
    if began is not None:
        counted += got
        ended = now
    elif now - first >= float(warm):
        began = now
print(json.dumps({"bytes": total, "mbit": counted * 8e-6 / (ended - began)}))
"""
SEND = """
import socket, sys, time
address, source, port, seconds, proto, control = sys.argv[1:7]
end = socket.socket(socket.AF_INET, socket.SOCK_STREAM, int(proto))
if control:
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
end.bind((source, 0))
end.connect((address, int(port)))
block = bytes(1 << 20)
until = time.monotonic() + float(seconds)
while time.monotonic() < until:
    end.sendall(block)
end.close()
"""


class Mptcp:
    """One connection whose subflows use every NIC: the receiver announces its other addresses, the
    sender connects to them. On leaving the lab is as before."""

    def __init__(self, lab):
        self.lab = lab
        self.nics = len(lab.facts["hosts"][0]["nics"])

    def __enter__(self):
        why = self.refusal()
        if why:
            raise Failed(why)
        extra = str(self.nics - 1)
        for host in self.lab.host[:2]:
            host.run(["ip", "mptcp", "limits", "set", "subflows", extra, "add_addr_accepted",
                      extra])
        for nic in range(1, self.nics):
            self.lab.host[1].run(["ip", "mptcp", "endpoint", "add", self.lab.address(1, nic), "dev",
                                  "eth%d" % nic, "signal"])
        return self

    def __exit__(self, *unused):
        for host in self.lab.host[:2]:
            host.run(["ip", "mptcp", "endpoint", "flush"])

    def refusal(self):
        """Why there is no MPTCP on the hosts; None: there is."""
        if self.nics > 9:
            return "MPTCP has at most 8 subflows besides the first"
        try:
            self.lab.host[0].socket(proto=IPPROTO_MPTCP).close()
        except OSError as error:
            return "no MPTCP in this kernel: %s" % error
        return None

    def measure(self, seconds, congestion=None):
        lab = self.lab
        before = cpu_s()
        counted = lab.host[1].counters()
        common = [str(IPPROTO_MPTCP), congestion or ""]
        # on all addresses: a subflow is refused where nobody listens
        server = start(lab.host[1], [sys.executable, "-c", SERVE, "0.0.0.0", str(PORT),
                                     str(WARM_S)] + common)
        client = None
        try:
            wait_until(lambda: is_listening(lab.host[1], "0.0.0.0", PORT), 10, "a listener")
            client = start(lab.host[0], [sys.executable, "-c", SEND, lab.address(1),
                                         lab.address(0), str(PORT), str(seconds + WARM_S)] + common)
            finish(client, seconds + 20)
            found = json.loads(finish(server, 20))
        finally:
            end([server] + ([client] if client else []))
        after = lab.host[1].counters()
        shares = [after[nic][0] - counted[nic][0] for nic in
                  ("eth%d" % i for i in range(self.nics))]
        return figures([found["mbit"] * share / sum(shares) for share in shares], found["mbit"],
                       found["bytes"] / 1e9, cpu_s() - before)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", default="1G", help="of the NICs (%(default)s)")
    parser.add_argument("--nics", type=int, default=4)
    parser.add_argument("--seconds", type=int, default=3, help="per figure (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--congestion", help="cubic, bbr, …; the kernel's when not given")
    parser.add_argument("--weft", default=os.path.join(os.path.dirname(HERE), "build", "weft"))
    options = parser.parse_args()
    found = {}
    try:
        with Lab(hosts=2, nics=options.nics, rate=options.rate, cli=options.weft) as lab:
            for _ in range(options.rounds):
                ways = {"one iperf3": lambda: iperf_streams(lab, options.seconds, [0],
                                                            options.congestion),
                        "%d x iperf3" % options.nics: lambda: iperf_streams(
                            lab, options.seconds, None, options.congestion)}
                for name, way in ways.items():
                    found.setdefault(name, []).append(way())
                with Mptcp(lab) as peer:
                    found.setdefault("mptcp", []).append(
                        peer.measure(options.seconds, options.congestion))
    except (NoLab, Failed) as error:
        sys.exit("lab_peers.py: %s" % error)
    for name, rounds in found.items():
        print("%-12s %8.0f Mbit/s (%s), %.2f CPU s per GB, per NIC %s" % (
            name, statistics.median(one["mbit"] for one in rounds),
            ", ".join("%.0f" % one["mbit"] for one in rounds),
            statistics.median(one["cpu_s_per_gb"] for one in rounds),
            ", ".join("%.0f" % mbit for mbit in rounds[-1]["mbit_per_nic"])))


if __name__ == "__main__":
    main()
