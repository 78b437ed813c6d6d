#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Weft against its peers, point to point on this host: Open MPI, UCX, libfabric, iperf3.

    make compare-p2p
    bench/compare_p2p.py --rounds 9 --only shm --json

In every round each program is started anew for each cell (operation and size), Weft and its peers
in turn, so that whatever the machine does meanwhile hits all alike. Around each start a flag is
bounced between two cores: virtual machines move their cores near and far within seconds, and
figures of different states cannot be compared. So medians are taken per state, and a start whose
state changed is thrown away; when other work took a tenth of a CPU meanwhile, the state is "busy"
and the figure worth little. A ratio above 1 says that Weft is better: "weft x" with the user's own
buffers, as the peers have them, "alloc x" with buffers from weft_alloc().

TCP peers run twice: under the system's congestion control, and under cubic (Weft's on loopback) in
a network namespace of their own, which needs root. Latency is half a round trip, the median of
single ones (fi_pingpong: the mean); bandwidth is the mean over windows of messages. put_lat is a
put with its quiet at Weft, half a round trip of puts at UCX; put_flush is a put with its quiet at
Weft, with its flush at UCX (bench/ucx_put.c).

ucx_perftest sends memory that it never wrote: over tcp all of it is the kernel's page of zeros.
Both its sides run with a library that writes their buffers first (bench/real_memory.c), so that
its figures, too, are those of real memory."""
import argparse
import collections
import json
import os
import resource
import shutil
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import compare_peers as peers  # noqa: E402

Cell = collections.namedtuple("Cell", "path op bytes iters warmup window")
CELLS = [
    Cell("shm", "lat", 8, 20000, 2000, 1),
    Cell("shm", "lat", 64 << 10, 4000, 400, 1),
    Cell("shm", "bw", 1 << 20, 30, 3, 64),
    Cell("shm", "bw", 64 << 20, 10, 1, 2),
    Cell("shm", "put_lat", 64 << 10, 4000, 400, 1),
    Cell("shm", "put_bw", 1 << 20, 30, 3, 64),
    Cell("tcp", "lat", 8, 10000, 1000, 1),
    Cell("tcp", "lat", 64 << 10, 3000, 300, 1),
    Cell("tcp", "bw", 1 << 20, 20, 2, 64),
    Cell("tcp", "bw", 64 << 20, 8, 1, 2),
    Cell("tcp", "put_flush", 8 << 10, 4000, 400, 1),
    Cell("tcp", "put_flush", 64 << 10, 4000, 400, 1),
]
STATES = [("sibling", 38), ("near", 140), ("far", 1500)]  # name, flag below so many ns
OTHERS_SHARE = 0.1  # of one CPU: with more the machine is busy, and nothing was measured


def state_of(probe_ns):
    """In which state the flag found the machine; "busy": somebody else had one of the cores."""
    if probe_ns is None:
        return "busy"
    return next((name for name, limit in STATES if probe_ns < limit), "busy")


def size(count):
    for unit, shift in (("M", 20), ("K", 10)):
        if count >= 1 << shift:
            return "%d%s" % (count >> shift, unit)
    return str(count)


def cell_name(cell):
    return "%s %s %s" % (cell.path, cell.op, size(cell.bytes))


def others_cpu_s():
    """CPU seconds of everybody but us and the programs we have started."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system = (int(word) for word in file.readline().split()[1:4])
    mine = sum(sum(resource.getrusage(who)[:2])
               for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return (user + nice + system) / os.sysconf("SC_CLK_TCK") - mine


def measure(runner, cell, probe):
    """One start: {"value", "probe_ns", "state"}; value None: it failed, and "why" says how."""
    before = probe()
    why = None
    began, others_s = time.monotonic(), others_cpu_s()
    try:
        value = runner.run(cell)
    except peers.Failed as error:
        value, why = None, str(error)
    others_s = others_cpu_s() - others_s
    is_busy = others_s > OTHERS_SHARE * (time.monotonic() - began) + 2 / os.sysconf("SC_CLK_TCK")
    after = probe()
    states = {"busy"} if is_busy else {state_of(before), state_of(after)}
    state = states.pop() if len(states) == 1 else "changed"
    return {"value": value, "why": why, "probe_ns": [before, after], "state": state}


def run_rounds(options, cells, runners, probe):
    """[{"round", "cell", "who", …}], every start of every round."""
    starts = []
    for number in range(options.rounds):
        first = probe()
        began = time.monotonic()
        for cell in cells:
            able = [runner for runner in runners if runner.can(cell)]
            turn = number % len(able) if able else 0  # nobody is always first
            for runner in able[turn:] + able[:turn]:
                start = measure(runner, cell, probe)
                start.update(round=number, cell=cell, who=runner.name)
                starts.append(start)
                if start["why"]:
                    say("%s, %s: %s" % (cell_name(cell), runner.name, start["why"]))
        last = probe()
        states = collections.Counter(start["state"] for start in starts
                                     if start["round"] == number)
        mark = "" if state_of(first) == state_of(last) else "  <- the state changed"
        say("round %d of %d: %.0f s, flag %s -> %s ns (%s -> %s), starts: %s%s" % (
            number + 1, options.rounds, time.monotonic() - began, number_text(first),
            number_text(last), state_of(first), state_of(last),
            ", ".join("%d %s" % (count, state) for state, count in states.most_common()), mark))
    return starts


def say(text):
    print(text, file=sys.stderr, flush=True)


def number_text(number):
    return "?" if number is None else "%.0f" % number


def compare(starts, cells):
    """Rows per cell, state and program: the median, how many, and Weft's advantage."""
    rows = []
    for cell in cells:
        mine = [start for start in starts if start["cell"] == cell and start["value"] is not None]
        for state in [name for name, _ in STATES] + ["busy"]:
            values = collections.defaultdict(list)
            for start in mine:
                if start["state"] == state:
                    values[start["who"]].append(start["value"])
            medians = {who: statistics.median(found) for who, found in values.items()}
            for who in sorted(medians, key=lambda name: (name not in peers.WEFTS, name)):
                rows.append({
                    "path": cell.path, "op": cell.op, "bytes": cell.bytes, "state": state,
                    "who": who, "median": medians[who],
                    "unit": "us" if peers.is_latency(cell) else "GB/s", "rounds": len(values[who]),
                    "min": min(values[who]), "max": max(values[who]),
                    "ratio": advantage(cell, medians, peers.WEFTS[0], who),
                    "ratio_alloc": advantage(cell, medians, peers.WEFTS[1], who),
                })
    return rows


def advantage(cell, medians, weft, who):
    """How many times better Weft is; None for Weft itself or without it."""
    if who in peers.WEFTS or weft not in medians:
        return None
    peer, mine = medians[who], medians[weft]
    return peer / mine if peers.is_latency(cell) else mine / peer


def print_table(rows):
    print("%-17s %-7s %-19s %9s %-4s %6s %-17s %6s %7s" % (
        "cell", "state", "program", "median", "unit", "rounds", "from - to", "weft x", "alloc x"))
    before = None
    for row in rows:
        name = "%s %s %s" % (row["path"], row["op"], size(row["bytes"]))
        if before not in (None, (name, row["state"])):
            print()
        before = (name, row["state"])
        ratios = ["" if row[key] is None else "%.2f" % row[key] for key in ("ratio", "ratio_alloc")]
        print("%-17s %-7s %-19s %9.3f %-4s %6d %-17s %6s %7s" % (
            name, row["state"], row["who"], row["median"], row["unit"], row["rounds"],
            "%.3f - %.3f" % (row["min"], row["max"]), *ratios))


def read_options():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    top = os.path.dirname(HERE)
    parser.add_argument("--rounds", type=int, default=5, help="at least 5 count (%(default)s)")
    parser.add_argument("--only", help="cells whose name begins so: shm, \"tcp lat\", …")
    parser.add_argument("--quick", action="store_true",
                        help="a tenth of the iterations: to see that it works, not to compare")
    parser.add_argument("--weft", default=os.path.join(top, "build", "weft"),
                        help="the command (%(default)s)")
    parser.add_argument("--build", default=os.path.join(top, "build", "bench"),
                        help="folder for the small C programs (%(default)s)")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    if not shutil.which(options.weft):
        parser.error("no %s; `make build` makes it" % options.weft)
    return options


def chosen_cells(options):
    cells = [cell for cell in CELLS if cell_name(cell).startswith(options.only or "")]
    if not cells:
        sys.exit("compare_p2p.py: no cell begins with \"%s\"; there are %s" % (
            options.only, ", ".join(cell_name(cell) for cell in CELLS)))
    if options.quick:
        cells = [cell._replace(iters=max(2, cell.iters // 10), warmup=max(1, cell.warmup // 10))
                 for cell in cells]
    return cells


def main():
    options = read_options()
    cells = chosen_cells(options)
    if options.rounds < 5:
        say("%d rounds show that it works; from 5 on medians mean something" % options.rounds)
    with peers.Peers(options.weft, options.build, any(cell.path == "tcp" for cell in cells),
                     say) as found:
        starts = run_rounds(options, cells, found.runners, found.probe)
    rows = compare(starts, cells)
    if options.json:
        print(json.dumps({"rounds": options.rounds, "skipped": found.skipped, "results": rows,
                          "starts": [dict(start, cell=cell_name(start["cell"]))
                                     for start in starts]}))
    else:
        print_table(rows)
    failed = [start for start in starts if start["who"] in peers.WEFTS and start["why"]]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
