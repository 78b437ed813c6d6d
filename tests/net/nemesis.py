#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The nemesis: eight ranks work without a pause (collectives, messages, puts, control) while every second one random
fault strikes. What must hold, whatever strikes:

  exact or error   every result is checked by the rank that gets it
  deadlines        every call returns by its deadline and a margin
  one verdict      all who are left name the same rank with the same words, in time
  no lie           who is named was struck; what can be survived fails nothing
  no leak          descriptors, threads, mappings, memory, sockets, children of each job that has ended

    nemesis.py [--seconds 10] [--seed 7] [--faults kill,nic] [--first N] [--list]       `make soak`

The schedule follows from the seed: fault N of a seed is always the same; --first begins with it. --list prints it."""
import argparse
import collections
import os
import random
import secrets
import sys
import tempfile
import time

from lab import NoLab
from nemesis_faults import Faults, describe, draw, settings
from nemesis_ground import Hosts, Machine
from nemesis_job import Finding, Job, START_S

EVERY_S = 1
PROGRESS_S = 5    # between lines of a soak
JOB_FAULTS = 25   # a job that nothing ends is ended after so many


class Nemesis:
    def __init__(self, options, ground):
        self.options, self.ground = options, ground
        self.kinds = [kind for kind in ground.kinds if not options.faults or kind in options.faults]
        self.fault = options.first
        self.jobs = self.calls = self.ops = 0
        self.struck = collections.Counter()
        self.slowest = {}
        self.begin = time.monotonic()
        self.told = self.begin
        self.folder = tempfile.TemporaryDirectory(prefix="weft-nemesis-")
        self.job = self.faults = None

    def tell(self, words):
        if not self.options.quiet:
            print("%8.2f  %s" % (time.monotonic() - self.begin, words), flush=True)

    def is_over(self):
        return time.monotonic() - self.begin >= self.options.seconds

    def secret(self):
        path = os.path.join(self.folder.name, "secret")
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
            file.write(secrets.token_hex(32))
        return path

    def start(self):
        chosen = settings(self.options.seed, self.jobs, self.ground)
        chosen["variables"].update(WEFT_SECRET_FILE=self.secret(), WEFT_SECURITY=chosen["security"])
        self.jobs += 1
        self.ground.remember()
        self.job = Job(self.ground, chosen, self.ground.port(), self.options.seed + self.jobs)
        self.faults = Faults(self.job, self.ground, self.tell)
        self.tell("job %d: ranks on hosts %s, %s%s" % (
            self.jobs, chosen["places"], " ".join("%s=%s" % one for one in chosen["variables"].items()
                                                  if one[0] not in ("WEFT_SECRET_FILE", "WEFT_LOG")),
            ", with children" if chosen["has_children"] else ""))
        self.job.await_works(1, time.monotonic(), START_S)

    def run_job(self):
        """Until a fault ends it, or time does."""
        self.start()
        goes_on, number = True, 0
        try:
            while goes_on and number < JOB_FAULTS and not self.is_over():
                self.let_pass(EVERY_S)
                self.ground.watch(self.job)
                fault = draw(self.options.seed, self.fault, self.kinds)
                self.tell("fault %d: %s" % (self.fault, describe(fault)))
                self.fault += 1
                number += 1
                self.struck[fault["kind"]] += 1
                goes_on = self.faults.strike(fault)
            if goes_on:
                self.end_in_peace()
        finally:
            self.count()

    def end_in_peace(self):
        """What is broken heals, all get on, and stop."""
        self.faults.heal_all()
        self.job.await_progress(2 * START_S, self.faults.tick)
        self.job.end("stop", START_S)

    def count(self):
        self.calls += sum(rank.closed["calls"] if rank.closed else rank.calls for rank in self.job.rank)
        self.ops += max(rank.ops for rank in self.job.rank)
        for kind, took in self.faults.slowest.items():
            self.slowest[kind] = max(self.slowest.get(kind, 0), took)

    def let_pass(self, seconds):
        """Nobody fails meanwhile."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.job.check_calm()
            self.faults.tick()
            time.sleep(0.02)
        if self.options.quiet and time.monotonic() - self.told > PROGRESS_S:
            self.told = time.monotonic()
            print("%6.0f s: %d faults, %d jobs, %d calls" % (
                self.told - self.begin, self.fault - self.options.first, self.jobs,
                self.calls + sum(rank.calls for rank in self.job.rank)), flush=True)

    def run(self):
        """The exit status."""
        try:
            while self.jobs == 0 or not self.is_over():
                self.run_job()
        except Finding as finding:
            print("FOUND by seed %d at fault %d: %s" % (self.options.seed, self.fault - 1, finding))
            print(self.job.story())
            print(self.job.inspect(), flush=True)
            return 1
        finally:
            if self.faults:
                self.faults.heal_all()
            if self.job:
                self.job.kill()
            self.summary()
        return 0

    def summary(self):
        print("seed %d: %d jobs, %d operations, %d calls in %.0f s" % (
            self.options.seed, self.jobs, self.ops, self.calls, time.monotonic() - self.begin))
        print("%-10s %7s  %s" % ("fault", "struck", "slowest verdict, alone"))
        for kind in self.ground.kinds:
            if self.struck[kind]:
                took = self.slowest.get(kind)
                print("%-10s %7d  %s" % (kind, self.struck[kind], "%.2f s" % took if took else "-"))
        sys.stdout.flush()


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--seed", type=int, default=None, help="otherwise one of the clock's, which is told")
    parser.add_argument("--faults", type=lambda text: text.split(","), help="only these kinds")
    parser.add_argument("--first", type=int, default=0, help="the number of the fault to begin with")
    parser.add_argument("--list", type=int, metavar="N", help="prints the first N faults and strikes nobody")
    parser.add_argument("--machine", action="store_true", help="without a lab, also where there could be one")
    parser.add_argument("--quiet", action="store_true", help="a line each few seconds, not one for each fault")
    options = parser.parse_args()
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(1 << 32)
    return options


def main():
    options = read_options()
    try:
        ground = Machine() if options.machine else Hosts()
    except NoLab as reason:
        print("no lab, NICs are left alone: %s" % reason)
        ground = Machine()
    print("seed %d" % options.seed, flush=True)
    try:
        if options.list is not None:
            for number in range(options.first, options.first + options.list):
                print("%4d  %s" % (number, describe(draw(options.seed, number, options.faults or ground.kinds))))
            return 0
        return Nemesis(options, ground).run()
    finally:
        ground.close()


if __name__ == "__main__":
    sys.exit(main())
