#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""When is which way of joining best? Times starts with WEFT_JOIN=direct and =local over hosts x
ranks per host, hosts being network namespaces of this machine (needs root; one host needs none).

    make build && bench/join_ways.py
    bench/join_ways.py --shapes 1x8,4x8 --rounds 50

Every number is of the slowest rank of a start; ways take turns within a round, the first rounds are
dropped. All hosts share this machine's cores, so what a leader saves on the wire (connections and
tables between hosts) is not in these numbers; what it costs in hops and CPU is."""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(HERE)
sys.path.insert(0, os.path.join(TOP, "tests", "net"))
from hosts import Network  # noqa: E402
from ranks import clean_env, die_with_us  # noqa: E402

SHAPES = "1x8,1x64,2x1,8x1,2x2,2x8,4x8,8x8,2x32"
WAYS = ["direct", "local"]
WARMUP = 2


def build(folder, library):
    program = os.path.join(folder, "join_rank")
    subprocess.run(["cc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-I",
                    os.path.join(TOP, "include"), os.path.join(HERE, "join_rank.c"), "-o", program,
                    "-L", library, "-lweft", "-Wl,-rpath," + os.path.abspath(library), "-pthread"],
                   check=True)
    return program


def wait_all(ranks, seconds):
    """None may fail; when one does, the others would wait for it for ever."""
    end = time.monotonic() + seconds
    while any(rank.poll() is None for rank in ranks):
        failed = [rank for rank in ranks if rank.poll() not in (None, 0)]
        if failed or time.monotonic() > end:
            for rank in ranks:
                rank.kill()
            sys.exit("a rank failed" if failed else "not done within %d s" % seconds)
        time.sleep(0.01)


def measure(program, folder, hosts, per_host, rounds):
    """{way: [microseconds of each round]}"""
    network = Network(hosts) if hosts > 1 else None
    shared = os.path.join(folder, "shared")
    out = os.path.join(folder, "out")
    count = hosts * per_host
    env = clean_env(WEFT_LOG="error", WEFT_SOCKET_IFNAME="eth0" if network else "")
    try:
        with open(out, "w", encoding="ascii") as file:
            ranks = [subprocess.Popen(
                (network.host[rank // per_host].where if network else []) +
                [program, shared, str(rank), str(count), str(rounds + WARMUP)] + WAYS,
                env=env, stdout=file, preexec_fn=die_with_us) for rank in range(count)]
            wait_all(ranks, 120)
    finally:
        if network:
            network.close()
        if os.path.exists(shared):
            os.unlink(shared)
    samples = {way: [] for way in WAYS}
    with open(out, encoding="ascii") as file:
        for line in file:
            way, ns = line.split()
            samples[way].append(int(ns) / 1000)
    return {way: values[WARMUP:] for way, values in samples.items()}


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default=SHAPES, help="hosts x ranks per host (%(default)s)")
    parser.add_argument("--rounds", type=int, default=30, help="starts of each way (%(default)s)")
    parser.add_argument("--repeats", type=int, default=3,
                        help="new processes and namespaces this often (%(default)s)")
    parser.add_argument("--library", default=os.path.join(TOP, "build", "release", "lib"),
                        help="folder of libweft.so (%(default)s)")
    options = parser.parse_args()
    print("hosts x ranks   way      p50 us   p10 us   p90 us   medians of repeats    local/direct")
    with tempfile.TemporaryDirectory(prefix="weft-join-") as folder:
        program = build(folder, options.library)
        for shape in options.shapes.split(","):
            hosts, per_host = (int(number) for number in shape.split("x"))
            repeats = [measure(program, folder, hosts, per_host, options.rounds)
                       for _ in range(options.repeats)]
            median = {}
            for way in WAYS:
                values = [value for repeat in repeats for value in repeat[way]]
                median[way] = statistics.median(values)
                medians = " ".join("%.0f" % statistics.median(repeat[way]) for repeat in repeats)
                ratio = "%.2f" % (median[way] / median[WAYS[0]]) if way != WAYS[0] else ""
                print("%5d x %-5d   %-6s %8.0f %8.0f %8.0f   %-20s %s" %
                      (hosts, per_host, way, median[way], percentile(values, 0.1),
                       percentile(values, 0.9), medians, ratio), flush=True)


if __name__ == "__main__":
    main()
