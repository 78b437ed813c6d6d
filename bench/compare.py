#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Weft's collectives against Open MPI, MPICH and Gloo on this host.

    make compare                                    all cells, five rounds (about 20 minutes)
    bench/compare.py --rounds 1 --only "shm allreduce 8 n2"
    bench/compare.py --only "alloc allreduce,allgather 4M,64M"

A cell is an operation, a size and a number of ranks over one path. In every round all programs run
a cell directly one after the other, in changing order; around them a flag is bounced between two
cores, because virtual machines move their cores near and far within seconds: when the state changed,
the cell is run once more, and thrown away for this round if it changed again. A cell's value is the
median over the rounds of (best peer / Weft), each round by itself; above 1 Weft is faster. A peer ten
times behind the best one in the first round is left out of the cell later.

Both sides are timed alike: batches back to back, the mean per iteration of each rank, the slowest
rank's; of the batches the median. float32, sum; out of place, except broadcast, which has one buffer
in MPI and Gloo, and rotates its root. Results are checked, always.

Sections: shm (the user's own buffers), alloc (shm, buffers of weft_alloc() at Weft, the peers'
their own), tcp (loopback, peers under the system's congestion control) and cubic (peers under Weft's,
in a network namespace of their own, which needs root).

--only takes words, in any order: sections, operations, sizes, n2 n4 n8; of one kind, any of them;
commas are fine."""
import argparse
import collections
import os
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import coll_peers  # noqa: E402
import coll_results as results  # noqa: E402
from compare_p2p import number_text, size, state_of  # noqa: E402
from coll_results import SECTIONS, Cell, cell_name, path_of  # noqa: E402
from compare_peers import Failed  # noqa: E402

OPS = ["allreduce", "reduce_scatter", "allgather", "broadcast", "alltoall", "barrier"]
SIZES = [8, 1 << 10, 16 << 10, 256 << 10, 4 << 20, 64 << 20]
RANKS = [2, 4, 8]
FAR_BEHIND = 10
TIME_MS = 30  # of the clock, for one cell of one program
TRIES = 2     # of a cell in one round, when the machine's state changes
SINGLE = Cell("shm", "allreduce", 8, 8)


def say(text):
    print(text, file=sys.stderr, flush=True)


# ---- which cells ----

class Choice:
    """What --only has left: of sections, ops, sizes and ranks each."""

    def __init__(self, only):
        kinds = {"section": list(SECTIONS), "op": OPS, "size": [size(one) for one in SIZES],
                 "ranks": ["n%d" % n for n in RANKS]}
        found = {kind: [] for kind in kinds}
        for word in (only or "").replace(",", " ").split():
            kind = self.kind_of(word, kinds)
            if kind is None:
                raise ValueError("--only: \"%s\" is no section (%s), operation (%s), size (%s) or n2 "
                                 "…" % (word, ", ".join(SECTIONS), ", ".join(OPS),
                                        ", ".join(kinds["size"])))
            found[kind].append(word)
        self.sections = found["section"] or kinds["section"]
        self.ops = found["op"] or ([op for op in OPS if op != "barrier"] if found["size"] else OPS)
        self.sizes = [self.bytes_of(word) for word in found["size"] or kinds["size"]]
        self.ranks = [int(word[1:]) for word in found["ranks"] or kinds["ranks"]]

    @staticmethod
    def kind_of(word, kinds):
        for kind, words in kinds.items():
            if word in words:
                return kind
        if word[:1] == "n" and word[1:].isdigit() and int(word[1:]) > 1:
            return "ranks"
        return "size" if word.rstrip("KMG").isdigit() else None

    @staticmethod
    def bytes_of(word):
        shift = {"K": 10, "M": 20, "G": 30}.get(word[-1], 0)
        return int(word.rstrip("KMG")) << shift

    def paths(self):
        return sorted({path_of(section) for section in self.sections})

    def cells(self, path, ranks):
        found = []
        for op in self.ops:
            sizes = [0] if op == "barrier" else self.sizes
            found += [Cell(path, op, count, ranks) for count in sizes]
        return found


# ---- measuring ----

class Rounds:
    """Runs the rounds and keeps every figure: rows of {round, cell, who, way, us, …}."""

    def __init__(self, options, choice, programs):
        self.options, self.choice, self.programs = options, choice, programs
        self.rows = []
        self.singles = []   # of SINGLE, each operation timed by itself
        self.left_out = {}  # (cell, who, way): why
        self.thrown = collections.Counter()
        self.began = time.monotonic()

    def run(self):
        groups = [(path, n) for n in self.choice.ranks for path in self.choice.paths()]
        for number in range(self.options.rounds):
            first, began, before = self.programs.probe(), time.monotonic(), sum(self.thrown.values())
            for path, ranks in groups:
                self.run_group(number, path, ranks)
            last = self.programs.probe()
            say("round %d of %d: %.0f s, flag %s -> %s ns (%s -> %s), %d cells thrown away" % (
                number + 1, self.options.rounds, time.monotonic() - began, number_text(first),
                number_text(last), state_of(first), state_of(last),
                sum(self.thrown.values()) - before))

    def runners_of(self, path, ranks):
        """Peers of a section that was not asked for stay at home; so do spinning ranks that are
        more than the cores."""
        for runner in self.programs.runners:
            if runner.path != path or (runner.name == "openmpi spin" and ranks > os.cpu_count()):
                continue
            if isinstance(runner, coll_peers.Weft) and path == "shm" and \
               ("alloc" if runner.alloc == "shared" else "shm") not in self.choice.sections:
                continue
            if runner.control and not self.is_wanted(runner.control):
                continue
            yield runner

    def is_wanted(self, control):
        is_cubic = control == "cubic" and self.programs.controls[0][0] != "cubic"
        return ("cubic" if is_cubic else "tcp") in self.choice.sections

    def run_group(self, number, path, ranks):
        runners = list(self.runners_of(path, ranks))
        peers = [runner for runner in runners if isinstance(runner, coll_peers.Peer)]
        cells = self.choice.cells(path, ranks)
        wanted = [peer for peer in peers if any(self.ways(cell, peer) for cell in cells)]
        try:
            for peer in wanted:
                peer.open(ranks)
            for peer in wanted:
                self.await_open(peer, ranks)
            for cell in cells:
                self.show_progress(number, cell)
                self.run_cell(number, cell, runners)
            if SINGLE in cells:
                self.run_single(number, runners)
        finally:
            self.programs.close_all()

    @staticmethod
    def await_open(peer, ranks):
        try:
            peer.await_open()
        except Failed as error:
            say("%s, %d ranks: %s" % (peer.name, ranks, error))

    def show_progress(self, number, cell):
        if sys.stderr.isatty():
            sys.stderr.write("\r\033[Kround %d of %d: %s, %.0f s\r" % (
                number + 1, self.options.rounds, cell_name(cell), time.monotonic() - self.began))

    def ways(self, cell, runner):
        return [way for way in runner.ways_of(cell.op)
                if runner.can(cell) and (cell, runner.name, way) not in self.left_out]

    def run_cell(self, number, cell, runners):
        turns = [(runner, way) for runner in runners for way in self.ways(cell, runner)]
        turn = number % len(turns) if turns else 0  # nobody is always first
        for attempt in range(TRIES):
            before = self.programs.probe()
            rows = [self.run_one(number, cell, runner, way)
                    for runner, way in turns[turn:] + turns[:turn]]
            after = self.programs.probe()
            states = {state_of(before), state_of(after)}
            if len(states) == 1 or attempt + 1 == TRIES:
                break
        for row in rows:
            row.update(probe_ns=[before, after], state=states.copy().pop() if len(states) == 1
                       else "changed")
        if len(states) > 1:
            self.thrown[cell] += 1
        self.rows += rows
        if number == 0:
            self.leave_out_far_behind(cell, rows)

    def run_single(self, number, runners):
        """p99 against p50 of the smallest operation when ranks are more than cores."""
        for runner in runners:
            if runner.name in ("weft", "openmpi"):
                row = self.run_one(number, SINGLE, runner, SINGLE.op, "single")
                self.singles += [row] if row["us"] else []

    def run_one(self, number, cell, runner, way, mode="batch"):
        row = {"round": number, "cell": cell, "who": runner.name, "way": way, "us": None,
               "control": runner.control}
        began = time.monotonic()
        try:
            answer = runner.run(cell, way, self.options.time, mode)
            row.update(us=answer.us, p99=answer.p99, bytes=answer.bytes, more=answer.more)
        except Failed as error:
            row["why"] = str(error)
            self.left_out[(cell, runner.name, way)] = str(error)
            say("%s, %s: %s" % (cell_name(cell), runner.name, error))
        row["took_s"] = time.monotonic() - began
        if self.options.verbose:
            say("%-28s %-14s %-18s %12s us, took %.2f s" % (
                cell_name(cell), row["who"], way, "-" if row["us"] is None else "%.2f" % row["us"],
                row["took_s"]))
        return row

    def leave_out_far_behind(self, cell, rows):
        peers = [row for row in rows if row["us"] and not row["who"].startswith("weft")]
        best = min((row["us"] for row in peers), default=None)
        for row in peers:
            if row["us"] > FAR_BEHIND * best:
                self.left_out[(cell, row["who"], row["way"])] = "%.0fx behind" % (row["us"] / best)


# ---- the command ----

def read_options():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    build = os.path.join(os.path.dirname(HERE), "build")
    parser.add_argument("--rounds", type=int, default=5, help="at least 5 count (%(default)s)")
    parser.add_argument("--only", help="words: see above")
    parser.add_argument("--time", type=float, default=TIME_MS, metavar="MS",
                        help="of the clock, per cell and program (%(default)s)")
    parser.add_argument("--times", action="store_true", help="print the times too, not only ratios")
    parser.add_argument("-v", "--verbose", action="store_true", help="say every figure as it comes")
    parser.add_argument("--peers-only", action="store_true", help="without Weft: their times")
    parser.add_argument("--weft", default=os.path.join(build, "weft"),
                        help="the command (%(default)s)")
    parser.add_argument("--build", default=os.path.join(build, "bench"),
                        help="folder for the peers' programs and the page (%(default)s)")
    options = parser.parse_args()
    if options.rounds < 1 or options.time <= 0:
        parser.error("--rounds and --time must be more than 0")
    if not options.peers_only and not shutil.which(options.weft):
        parser.error("no %s; `make build` makes it" % options.weft)
    try:
        return options, Choice(options.only)
    except ValueError as error:
        parser.error(str(error))


def write_page(options, rounds, found):
    data = os.path.join(options.build, "compare.json")
    target = os.path.join(options.build, "compare.html")
    whole = results.page(rounds.rows, found, rounds.choice, options, rounds.programs.skipped)
    whole["rounds"] = [dict(row, cell=cell_name(row["cell"])) for row in rounds.rows]
    results.write_json(data, whole)
    done = subprocess.run([options.weft, "bench", "report", data, "--output", target], check=False)
    if done.returncode == 0:
        print("\nthe page: %s" % target)
    return done.returncode == 0


def main():
    options, choice = read_options()
    if options.rounds < 5:
        say("%d round%s show that it works; from 5 on medians mean something" % (
            options.rounds, "s" if options.rounds > 1 else ""))
    with coll_peers.Programs(None if options.peers_only else options.weft, options.build,
                             choice.paths(), "cubic" in choice.sections, say) as programs:
        rounds = Rounds(options, choice, programs)
        rounds.run()
        found = results.compare(rounds.rows, choice, programs.controls)
    results.print_results(found, choice, options.times)
    print()
    results.print_extras(rounds.rows, rounds.singles)
    results.print_states(rounds.rows)
    for cell, count in rounds.thrown.most_common():
        if count == options.rounds:
            print("%s: thrown away, the machine's state changed in every round" % cell_name(cell))
    is_fine = options.peers_only or write_page(options, rounds, found)
    failed = [row for row in rounds.rows if row["who"].startswith("weft") and row["us"] is None]
    return 0 if is_fine and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
