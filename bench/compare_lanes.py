#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Weft over all NICs beside one NIC, four bound iperf3 streams and MPTCP, in a lab (root):

    make compare-lanes
    bench/compare_lanes.py --rounds 9 --only 4x1G --json

Three setups: four NICs of 1 Gbit/s, four of 2.5 Gbit/s, and one of 1 Gbit/s with one of 250 Mbit/s.
In every round each program is started anew, in turn, and nobody is always first, so that whatever
the machine does meanwhile hits all alike. Every program uses the same congestion control: cubic,
and in a second table the system's own. Figures are payload per second at the receiver, medians over
the rounds; a start during which others took a tenth of a CPU is marked as busy, and is not counted
when enough others are left.

Weft is `weft bench p2p -m bw` with 64 MB messages, two in flight, one rank on each host, every byte
checked outside the clock; its CPU time is both ranks' while the clock ran, that of the others both
sides' from start to end."""
import argparse
import contextlib
import glob
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from compare_p2p import OTHERS_SHARE, others_cpu_s  # noqa: E402
from lab_peers import Failed, Lab, Mptcp, NoLab, end, finish, iperf_streams  # noqa: E402
from ranks import clean_env  # noqa: E402  (tests/net, by lab_peers)

ROOT_PORT = 7777
MESSAGE = 64 << 20
INFLIGHT = 2
WEFT, ONE, STREAMS, MPTCP = "weft", "weft, eth0 only", "iperf3 per NIC", "mptcp"
# name, rates of the NICs in Mbit/s, and how many times the others Weft should reach
SETUPS = [
    ("4x1G", [1000] * 4, {ONE: 3.8, MPTCP: 1.02, STREAMS: 0.96}),
    ("4x2.5G", [2500] * 4, {STREAMS: 0.93}),
    ("1G+250M", [1000, 250], {STREAMS: 0.95}),
]
CONGESTIONS = ["cubic", "default"]


def say(text):
    print(text, file=sys.stderr, flush=True)


def weft(options, lab, rates, congestion, only=None):
    """Both ranks of a bandwidth benchmark, on hosts 0 and 1. only: the NICs to use."""
    rate = sum(rates[nic] for nic in (only if only is not None else range(len(rates))))
    iters = max(3, round(options.seconds * rate * 1e6 / (8 * MESSAGE * INFLIGHT)))
    argv = [options.weft, "bench", "p2p", "--json", "-m", "bw", "-b", str(MESSAGE), "-e",
            str(MESSAGE), "--inflight", str(INFLIGHT), "--iters", str(iters)]
    env = {"WEFT_RANKS": 2, "WEFT_ROOT": "%s:%d" % (lab.address(0), ROOT_PORT),
           "WEFT_SECRET_FILE": options.secret, "WEFT_TCP_CC": congestion or "auto"}
    if only is not None:
        env["WEFT_SOCKET_IFNAME"] = "=" + ",".join("eth%d" % nic for nic in only)
    started = []
    try:
        for i in range(2):
            started.append(lab.host[i].popen(
                argv, env=clean_env(WEFT_RANK=i, **env), stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        row, = json.loads(finish(started[0], 10 * options.seconds + 60))["results"]
        finish(started[1], 20)
    finally:
        end(started)
    if row["wrong"]:
        raise Failed("%d bytes are wrong" % row["wrong"])
    mbit = 8 * MESSAGE / row["time_us"]["avg"]
    sent = [row["nic_bytes"].get("eth%d" % nic, 0) for nic in range(len(rates))]
    return {"mbit": mbit, "mbit_per_nic": [mbit * one / sum(sent) for one in sent],
            "cpu_s_per_gb": row["cpu_s_per_gb"]}


def mptcp(options, lab, congestion):
    with Mptcp(lab) as peer:
        return peer.measure(options.seconds, congestion)


def ways(options, lab, rates):
    return {
        WEFT: lambda control: weft(options, lab, rates, control),
        ONE: lambda control: weft(options, lab, rates, control, only=[0]),
        STREAMS: lambda control: iperf_streams(lab, options.seconds, None, control),
        MPTCP: lambda control: mptcp(options, lab, control),
    }


def softirq_s():
    """CPU seconds of the kernel's ksoftirqd: packets of ours, though nobody's in the kernel's books."""
    total = 0
    for path in glob.glob("/proc/[0-9]*/stat"):
        with contextlib.suppress(OSError), open(path, encoding="ascii", errors="replace") as file:
            name, _, rest = file.read().partition("(")[2].rpartition(")")
            if name.startswith("ksoftirqd/"):
                total += sum(int(word) for word in rest.split()[11:13])
    return total / os.sysconf("SC_CLK_TCK")


def measure(way, control):
    """One start; "why" in place of figures: it failed."""
    began, others = time.monotonic(), others_cpu_s() - softirq_s()
    try:
        found = way(control)
    except Failed as error:
        found = {"why": str(error)}
    others = others_cpu_s() - softirq_s() - others
    found["is_busy"] = others > OTHERS_SHARE * (time.monotonic() - began)
    return found


def run_setup(options, name, rates):
    """[{"setup", "congestion", "who", "round", …}], every start of every round."""
    starts = []
    rate = ",".join("%dM" % one for one in rates)
    with Lab(hosts=2, nics=len(rates), rate=rate, cli=options.weft) as lab:
        for number in range(options.rounds):
            for congestion in options.congestion:
                able = list(ways(options, lab, rates).items())
                turn = number % len(able)
                for who, way in able[turn:] + able[:turn]:
                    start = measure(way, None if congestion == "default" else congestion)
                    start.update(setup=name, congestion=congestion, who=who, round=number)
                    starts.append(start)
                    say("%s, %s, round %d of %d: %s%s" % (
                        name, congestion, number + 1, options.rounds, describe(start),
                        ", busy" if start["is_busy"] else ""))
    return starts


def describe(start):
    if "why" in start:
        return "%s: %s" % (start["who"], start["why"])
    return "%s %.0f Mbit/s" % (start["who"], start["mbit"])


def quiet_ones(starts):
    """Those of a quiet machine, unless they are too few to mean anything."""
    quiet = [start for start in starts if not start["is_busy"]]
    return quiet if len(quiet) >= 3 else starts


def summarise(starts, setups, congestions):
    """A row per setup, congestion control and program."""
    rows = []
    for name, _, aims in setups:
        for congestion in congestions:
            medians = {}
            mine = [start for start in starts if start["setup"] == name and
                    start["congestion"] == congestion and "mbit" in start]
            for who in (WEFT, ONE, STREAMS, MPTCP):
                all_of_it = [start for start in mine if start["who"] == who]
                found = quiet_ones(all_of_it)
                if not found:
                    continue
                medians[who] = statistics.median(start["mbit"] for start in found)
                nics = zip(*(start["mbit_per_nic"] for start in found))
                rows.append({
                    "setup": name, "congestion": congestion, "who": who, "rounds": len(found),
                    "busy": sum(start["is_busy"] for start in all_of_it), "mbit": medians[who],
                    "min": min(start["mbit"] for start in found),
                    "max": max(start["mbit"] for start in found),
                    "cpu_s_per_gb": statistics.median(start["cpu_s_per_gb"] for start in found),
                    "mbit_per_nic": [statistics.median(nic) for nic in nics],
                    "ratio": medians[WEFT] / medians[who] if WEFT in medians and who != WEFT
                             else None,
                    "aim": aims.get(who),
                })
    return rows


def print_tables(rows, setups, congestions):
    for congestion in congestions:
        print("congestion control: %s" % ("the system's own" if congestion == "default" else
                                          congestion))
        print("%-8s %-16s %7s %-13s %6s %8s %7s %5s  %s" % (
            "setup", "program", "Mbit/s", "from - to", "rounds", "CPU s/GB", "weft x", "aim",
            "per NIC"))
        for name, _, _ in setups:
            for row in rows:
                if (row["setup"], row["congestion"]) == (name, congestion):
                    print(line_of(row))
            print()
    busy = sum(row["busy"] for row in rows)
    if busy:
        print("%d starts had other work beside them: the machine was busy" % busy)


def line_of(row):
    return "%-8s %-16s %7.0f %-13s %6d %8.2f %7s %5s  %s" % (
        row["setup"], row["who"], row["mbit"], "%.0f - %.0f" % (row["min"], row["max"]),
        row["rounds"], row["cpu_s_per_gb"],
        "" if row["ratio"] is None else "%.3f" % row["ratio"],
        "" if row["aim"] is None else "%.2f" % row["aim"],
        " ".join("%.0f" % mbit for mbit in row["mbit_per_nic"]))


def read_options():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="at least 5 count (%(default)s)")
    parser.add_argument("--seconds", type=int, default=3, help="per figure (%(default)s)")
    parser.add_argument("--only", default="", help="setups whose name begins so: 4x1G, 1G, …")
    parser.add_argument("--congestion", default=",".join(CONGESTIONS),
                        help="a list; default is the system's (%(default)s)")
    parser.add_argument("--quick", action="store_true",
                        help="one round of a second each: to see that it works, not to compare")
    parser.add_argument("--weft", default=os.path.join(os.path.dirname(HERE), "build", "weft"),
                        help="the command (%(default)s)")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    options = parser.parse_args()
    options.congestion = options.congestion.split(",")
    if options.quick:
        options.rounds, options.seconds = 1, 1
    if options.rounds < 1 or options.seconds < 1:
        parser.error("--rounds and --seconds must be at least 1")
    if not shutil.which(options.weft):
        parser.error("no %s; `make build` makes it" % options.weft)
    return options


@contextlib.contextmanager
def secret_file():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "secret")
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
            file.write(os.urandom(32))
        yield path


def main():
    options = read_options()
    setups = [setup for setup in SETUPS if setup[0].startswith(options.only)]
    if not setups:
        sys.exit("compare_lanes.py: no setup begins with \"%s\"; there are %s" % (
            options.only, ", ".join(setup[0] for setup in SETUPS)))
    starts = []
    try:
        with secret_file() as options.secret:
            for name, rates, _ in setups:
                starts += run_setup(options, name, rates)
    except NoLab as error:
        sys.exit("compare_lanes.py: %s" % error)
    rows = summarise(starts, setups, options.congestion)
    if options.json:
        print(json.dumps({"rounds": options.rounds, "results": rows, "starts": starts}))
    else:
        print_tables(rows, setups, options.congestion)
    failed = [start for start in starts if start["who"] in (WEFT, ONE) and "why" in start]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
