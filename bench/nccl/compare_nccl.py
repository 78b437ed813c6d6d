#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""NCCL's own collectives over Weft's plugin and over NCCL's sockets, side by side on one GPU.

    python3 bench/nccl/compare_nccl.py --plugin build/release/lib/libnccl-net-weft.so

Each way is a team of processes (nccl_team.c) that NCCL takes for hosts of their own (NCCL_HOSTID) and that share the
GPU by MPS. All teams of one size are alive at once and measured in turn, round by round; the table has medians,
busbw as nccl-tests counts it, and ratios. Every result is checked.
"""
import argparse
import glob
import os
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
OPS = ["allreduce", "allgather", "broadcast", "alltoall"]
SIZES = [8, 1 << 10, 16 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20, 256 << 20]


def size_text(size):
    for unit, shift in (("M", 20), ("K", 10)):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return "%d%s" % (size >> shift, unit)
    return str(size)


def parse_size(text):
    return int(text.rstrip("KMG")) << {"K": 10, "M": 20, "G": 30}.get(text[-1], 0)


def find_nccl():
    found = []
    for folder in sys.path + ["/usr/lib/x86_64-linux-gnu", "/usr/local/lib", "/usr/local/cuda/lib64",
                              "/opt/conda/lib"]:
        found += glob.glob(os.path.join(folder, "nvidia/nccl/lib/libnccl.so.2"))
        found += glob.glob(os.path.join(folder, "libnccl.so.2"))
    try:
        import torch  # where its wheel has it
        base = os.path.dirname(os.path.dirname(torch.__file__))
        found += glob.glob(os.path.join(base, "nvidia/nccl/lib/libnccl.so.2"))
        found += glob.glob(os.path.join(base, "torch/lib/libnccl.so.2"))
    except ImportError:
        pass
    return found[0] if found else "libnccl.so.2"


class Mps:
    """CUDA's own sharing of one GPU: without it ranks are time-sliced, and every operation costs milliseconds."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="weft-mps-")
        os.environ["CUDA_MPS_PIPE_DIRECTORY"] = self.folder
        os.environ["CUDA_MPS_LOG_DIRECTORY"] = self.folder
        self.is_on = shutil.which("nvidia-cuda-mps-control") is not None and subprocess.run(
            ["nvidia-cuda-mps-control", "-d"], check=False).returncode == 0
        if not self.is_on:
            print("no MPS here: small operations will take milliseconds", flush=True)

    def close(self):
        if self.is_on:
            subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", text=True, check=False, timeout=30)
        shutil.rmtree(self.folder, ignore_errors=True)


class Team:
    def __init__(self, program, nccl, name, ranks, settings):
        self.name = name
        env = dict(os.environ, NCCL_SOCKET_IFNAME="lo", NCCL_IB_DISABLE="1",
                   LOCAL_WORLD_SIZE=str(ranks), **settings)  # as torchrun says
        self.log = tempfile.TemporaryFile(mode="w+")
        self.process = subprocess.Popen([program, str(ranks), nccl], env=env, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=self.log, text=True)
        self.read(90)

    def read(self, timeout_s):
        while True:
            ready, _, _ = select.select([self.process.stdout], [], [], timeout_s)
            line = self.process.stdout.readline() if ready else ""
            if line.startswith(("ok", "ready")):
                return line.split()
            if line == "":
                self.log.seek(0)
                raise RuntimeError("%s: %s\n%s" % (self.name, "ended" if ready else "hangs",
                                                   self.log.read()[-3000:]))

    def ask(self, command, timeout_s=60):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        words = self.read(timeout_s)
        return float(words[1]), float(words[2]), int(words[3])

    def close(self):
        try:
            self.process.stdin.close()
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            pass
        self.process.kill()
        self.process.wait()
        self.log.seek(0)
        return self.log.read()


def bus_factor(op, ranks):
    return {"allreduce": 2 * (ranks - 1) / ranks, "broadcast": 1.0}.get(op, (ranks - 1) / ranks)


def iters_for(size, budget_s, guess_s):
    most = 200 if size <= 1 << 20 else 40
    return max(2, min(most, int(budget_s / max(guess_s, 1e-6))))


def measure(teams, op, size, ranks, options):
    """{name: [(seconds, cpu seconds), ...]} of all rounds"""
    found = {team.name: [] for team in teams}
    guess = {}
    size = max(size, 4 * ranks)  # an element for everybody
    for team in teams:
        seconds, _, wrong = team.ask("run %s %d 1 2 1" % (op, size))
        guess[team.name] = seconds
        if wrong:
            raise RuntimeError("%s: %s of %d bytes, %d ranks: %d wrong elements" %
                               (team.name, op, size, ranks, wrong))
    for _ in range(options.rounds):
        for team in teams:
            iters = iters_for(size, options.cell, guess[team.name])
            seconds, cpu, _ = team.ask("run %s %d %d %d 0" % (op, size, 1 + iters // 10, iters))
            found[team.name].append((seconds, cpu))
            guess[team.name] = seconds
    return found


def print_cell(found, names, op, size, ranks):
    seconds = {name: statistics.median(one[0] for one in found[name]) for name in names}
    cpu = {name: statistics.median(one[1] for one in found[name]) for name in names}
    moved = bus_factor(op, ranks) * size * 1e-9
    base = names[1] if len(names) > 1 else names[0]
    line = "%-9s %2d %5s" % (op, ranks, size_text(size))
    for name in names:
        line += "  %10.1f %7.2f %6.3f" % (1e6 * seconds[name], moved / seconds[name],
                                          cpu[name] / (moved * ranks))
    for name in names:
        if name != base:
            line += "  %5.2f %5.2f" % (seconds[base] / seconds[name], cpu[name] / cpu[base])
    print(line, flush=True)


def print_head(names):
    base = names[1] if len(names) > 1 else names[0]
    line = "%-9s %2s %5s" % ("op", "n", "bytes")
    for name in names:
        line += "  %25s" % (name[:12] + ": us busGB/s CPUs/GB")
    for name in names:
        if name != base:
            line += "  %s: speed, CPU against %s" % (name, base)
    print(line, flush=True)


def ways(options):
    """name -> environment; the second one is what the others are compared with"""
    weft = {"NCCL_NET_PLUGIN": os.path.abspath(options.plugin), "NCCL_NET": "Weft"}
    socket = {"NCCL_NET_PLUGIN": "none", "NCCL_NET": "Socket"}
    found = {"weft": weft, "socket": socket}
    if options.best:
        threads, socks = options.best.split("x")
        found["best"] = dict(socket, NCCL_SOCKET_NTHREADS=threads, NCCL_NSOCKS_PERTHREAD=socks)
    for variant in options.variant:
        name, _, settings = variant.partition(":")
        found[name] = dict(weft, **dict(one.split("=", 1) for one in settings.split(",") if one))
    if options.debug:
        for env in found.values():
            env["NCCL_DEBUG"] = options.debug
    return found


def batches(found, ranks):
    """All ways, so many at once as MPS has room for (48 clients); the first two are always there."""
    names = list(found)
    room = max(3, 40 // ranks)
    rest = names[2:] or [None]
    for i in range(0, len(rest), room - 2):
        yield {name: found[name] for name in names[:2] + rest[i:i + room - 2] if name}


def compare(options, program, nccl, ranks, deadline):
    for batch in batches(ways(options), ranks):
        compare_batch(batch, options, program, nccl, ranks, deadline)


def compare_batch(batch, options, program, nccl, ranks, deadline):
    teams = []
    try:
        for name, env in batch.items():
            teams.append(Team(program, nccl, name, ranks, env))
        names = [team.name for team in teams]
        print_head(names)
        for size in sorted(options.sizes, reverse=options.large_first):
            for op in options.ops:
                if time.monotonic() > deadline:
                    print("out of time", flush=True)
                    return
                print_cell(measure(teams, op, size, ranks, options), names, op, size, ranks)
    finally:
        for team in teams:
            said = team.close()
            if options.debug:
                print("---- %s\n%s" % (team.name, said[-6000:]), flush=True)


def cycles(options, program, nccl, deadline):
    """Communicators made and destroyed again and again: none may hang, no result be wrong."""
    team = Team(program, nccl, "weft", 2, dict(ways(options)["weft"], NCCL_DEBUG="WARN"))
    done = 0
    start = time.monotonic()
    try:
        while done < options.cycles and time.monotonic() < deadline:
            _, _, wrong = team.ask("cycle 20 %d" % options.cycle_all, 120)
            if wrong:
                raise RuntimeError("wrong results in cycle %d" % done)
            done += 20
            print("%d set-ups and tear-downs, %.0f ms each" %
                  (done, 1e3 * (time.monotonic() - start) / done), flush=True)
        print("%d of %d: all fine" % (done, options.cycles), flush=True)
    finally:
        print(team.close()[-2000:], flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--plugin", required=True)
    parser.add_argument("--nccl", default=None, help="libnccl.so.2")
    parser.add_argument("--ranks", default="2,4,8")
    parser.add_argument("--ops", default=",".join(OPS), type=lambda text: text.split(","))
    parser.add_argument("--sizes", default=SIZES, type=lambda text: [parse_size(t) for t in text.split(",")])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cell", type=float, default=0.15, help="seconds of one way in one round")
    parser.add_argument("--best", default="4x4", help="threads x sockets of a third way; empty: none")
    parser.add_argument("--variant", action="append", default=[], help="name:ENV=value,… of the plugin")
    parser.add_argument("--cycles", type=int, default=0)
    parser.add_argument("--cycle-all", action="store_true", help="none lives on meanwhile: NCCL unloads the plugin")
    parser.add_argument("--budget", type=float, default=500, help="seconds in all")
    parser.add_argument("--large-first", action="store_true")
    parser.add_argument("--debug", default="", help="NCCL_DEBUG of the teams; their logs are printed")
    options = parser.parse_args()
    deadline = time.monotonic() + options.budget
    is_fine = True
    nccl = options.nccl or find_nccl()
    folder = tempfile.mkdtemp(prefix="weft-nccl-")
    program = os.path.join(folder, "nccl_team")
    subprocess.run(["gcc", "-O2", os.path.join(HERE, "nccl_team.c"), "-o", program, "-ldl", "-lpthread"],
                   check=True)
    mps = Mps()
    print("%s, %s, %d CPUs" % (nccl, time.strftime("%Y-%m-%d"), os.cpu_count()), flush=True)
    try:
        if options.cycles:
            cycles(options, program, nccl, deadline)
        for ranks in [int(text) for text in options.ranks.split(",") if text]:
            try:
                compare(options, program, nccl, ranks, deadline)
            except RuntimeError as error:
                print(error, flush=True)
                is_fine = False
    finally:
        mps.close()
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(not is_fine)


if __name__ == "__main__":
    main()
