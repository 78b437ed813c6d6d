# SPDX-License-Identifier: Apache-2.0
"""One job of the nemesis: eight ranks at work on the lab's hosts (or on this machine, where there is no lab), what they
have said so far, and the judgement on it. See nemesis.py."""
import os
import signal
import time

import ranks
from ranks import BUILD, Process, clean_env

PROGRAM = os.environ.get("NET_NEMESIS_PROGRAM",
                         os.path.join(BUILD, "tests", "net.nemesis_program"))
RANKS = 8
TIMEOUT_S = 12       # of each operation
MARGIN_S = 2         # for a verdict, and for machines that others use too: as nemesis_program.c has it
START_S = 30
SILENT_S = 10        # a rank that is not stopped says something four times a second
HEAP_MAX = 1 << 20   # what the library may keep for the next job
SLOWNESS = 3 if "NET_SLOW" in os.environ else 1


class Finding(Exception):
    """Weft did not keep its word."""


class Rank(Process):
    """A process of nemesis_program.c and what it has said."""

    def __init__(self, number, host, env, where, leash):
        self.number, self.host = number, host
        self.works, self.verdicts, self.failures, self.lates = [], [], [], []
        self.ops = self.calls = 0
        self.call, self.since = "", 0
        self.heard = time.monotonic()
        self.timeout = None
        self.closed = None
        self.is_started = self.is_killed = False
        self.stops = []  # [(from, to or None)]
        super().__init__([PROGRAM], env, where, [leash] if leash else [])

    def order(self, word):
        try:
            self.child.stdin.write(word + "\n")
            self.child.stdin.flush()
        except OSError:
            pass  # it has ended

    def hear(self):
        """Takes what has arrived; raises when a result was wrong."""
        while not self.arrived.empty():
            item = self.arrived.get()
            if not isinstance(item, dict):
                continue
            self.heard = time.monotonic()
            what = item.pop("event")
            if what == "beat":
                self.ops, self.calls = item["ops"], item["calls"]
                self.call, self.since = item["text"], item["since"]
            elif what == "wrong":
                raise Finding("rank %d: wrong result: %s" % (self.number, item))
            elif what == "started":
                self.is_started = True
            elif what == "works":
                self.works.append(item)
            elif what == "verdict":
                self.verdicts.append(item)
            elif what == "failed":
                self.failures.append(item)
            elif what == "late":
                self.lates.append(item)
            elif what == "timeout":
                self.timeout = item["ms"]
            elif what == "closed":
                self.closed = item

    def await_end(self, within):
        """Its exit status; nothing that it said is lost."""
        try:
            code = self.child.wait(within)
        except ranks.subprocess.TimeoutExpired:
            raise Finding("rank %d does not end" % self.number) from None
        for thread in self.threads:
            thread.join(5)
        self.hear()
        return code

    # ---- stopping ----

    def stop(self):
        self.stops.append((time.monotonic(), None))
        self.child.send_signal(signal.SIGSTOP)

    def go_on(self):
        """Idle when it is not stopped."""
        if self.is_stopped():
            self.child.send_signal(signal.SIGCONT)
            self.stops[-1] = (self.stops[-1][0], time.monotonic())
            self.heard = time.monotonic()

    def is_stopped(self):
        return bool(self.stops) and self.stops[-1][1] is None

    def stood_since(self, begin):
        """How long it was stopped after `begin`."""
        now = time.monotonic()
        return sum(max(0, (end or now) - max(start, begin)) for start, end in self.stops)


class Job:
    """settings: what the seed drew for it; places: the host of each rank."""
    count = 0

    def __init__(self, ground, settings, port, seed):
        Job.count += 1
        self.ground, self.settings = ground, settings
        self.places = settings["places"]
        self.leash = os.pipe() if settings["has_children"] else None
        variables = dict(settings["variables"], WEFT_RANKS=RANKS, NEMESIS_SEED=seed,
                         NEMESIS_TIMEOUT_MS=TIMEOUT_S * 1000, WEFT_TIMEOUT="%ds" % TIMEOUT_S,
                         WEFT_ROOT="%s:%d" % (ground.address(self.places[0]), port))
        if self.leash:
            variables["NEMESIS_LEASH"] = self.leash[0]
        self.rank = [Rank(number, host, clean_env(WEFT_RANK=number, **variables),
                          ground.where(host), self.leash[0] if self.leash else None)
                     for number, host in enumerate(self.places)]
        self.left = set(range(RANKS))  # who is in the team
        self.teams = 1
        self.overdue = 0  # the slowest call, as a part of its deadline

    # ---- looking ----

    def living(self):
        return [self.rank[number] for number in sorted(self.left)]

    def hear(self):
        """What the ranks say; whatever is wrong at any time is a Finding."""
        now = time.monotonic()
        for rank in self.rank:
            rank.hear()
            for late in rank.lates:
                if rank.stood_since(late["began"]) == 0:
                    raise Finding("rank %d: %s kept no deadline: %s" % (rank.number, late["text"], late))
            rank.lates.clear()
            if rank.is_killed or rank.closed or rank.is_stopped():
                continue
            if rank.child.poll() is not None:
                if rank.await_end(5) != 0 or rank.closed is None:
                    raise Finding("rank %d ended by itself: %s" % (rank.number, rank.child.returncode))
            elif now - rank.heard > SILENT_S * SLOWNESS:
                raise Finding("rank %d says nothing" % rank.number)
            elif rank.call and rank.heard - rank.since > (TIMEOUT_S + 2 * MARGIN_S) * SLOWNESS + \
                    rank.stood_since(rank.since):
                raise Finding("rank %d hangs in %s since %.1f s" % (rank.number, rank.call,
                                                                    rank.heard - rank.since))

    def check_calm(self):
        """Nobody has failed."""
        self.hear()
        for rank in self.rank:
            if len(rank.failures) >= self.teams:
                raise Finding("rank %d failed, and nothing should: %s" % (rank.number, rank.failures[-1]))

    def await_all(self, claim, deadline, what, tick=lambda: None):
        """Until it is true of every rank that is left; tick is called meanwhile."""
        while True:
            self.hear()
            tick()
            missing = [rank.number for rank in self.living() if not claim(rank)]
            if not missing:
                return
            if time.monotonic() > deadline():
                raise Finding("%s: not rank %s" % (what, missing))
            time.sleep(0.01)

    def await_works(self, team, since, within, tick=lambda: None):
        """All who are left work as the team-th team, and agree who that is."""
        def failed(rank):
            if len(rank.failures) >= team:
                raise Finding("rank %d could not go on: %s" % (rank.number, rank.failures[-1]))
            return len(rank.works) >= team
        self.await_all(failed, lambda: since + within, "works", tick)
        members = ",".join(str(number) for number in sorted(self.left))
        for rank in self.living():
            if rank.works[team - 1]["text"] != members:
                raise Finding("rank %d works with %s, not with %s" % (
                    rank.number, rank.works[team - 1]["text"], members))

    def await_progress(self, within, tick):
        """Everybody gets on."""
        before = {rank.number: rank.ops for rank in self.living()}
        end = time.monotonic() + within

        def gets_on(rank):
            self.check_calm()
            return rank.ops > before[rank.number]
        self.await_all(gets_on, lambda: end, "progress", tick)

    # ---- the end ----

    def end(self, word, within):
        """All close after this word; nothing is left of them."""
        self.ground.watch(self)
        for rank in self.living():
            rank.order(word)
        end = time.monotonic() + within
        self.await_all(lambda rank: rank.child.poll() is not None, lambda: end, "the end of a process")
        for rank in self.living():
            self.check_closed(rank)
        self.let_go()
        self.ground.check_clean(self)

    @staticmethod
    def check_closed(rank):
        code = rank.await_end(5)
        if rank.closed is None or code != 0:
            raise Finding("rank %d did not close: exit status %s" % (rank.number, code))
        one = rank.closed
        if one["fds"] > 0 or one["threads"] > 0 or one["maps"] > 0 or one["lost"] or \
                one["heap"] > HEAP_MAX:
            raise Finding("rank %d leaks: %s" % (rank.number, one))
        if one["status"] != "OK":
            raise Finding("rank %d closed with %s" % (rank.number, one))

    def let_go(self):
        """The children of ranks end."""
        if self.leash:
            os.close(self.leash[0])
            os.close(self.leash[1])
            self.leash = None

    def kill(self):
        for rank in self.rank:
            rank.kill()
        self.let_go()

    def story(self):
        """All that is known, for a finding."""
        lines = ["job %d: %s, left %s" % (Job.count, self.settings, sorted(self.left))]
        for rank in self.rank:
            lines.append("---- rank %d on h%d, pid %d: %d ops, in %s since %.3f, stopped %s" % (
                rank.number, rank.host, rank.pid, rank.ops, rank.call or "nothing", rank.since, rank.stops))
            for name in ("verdicts", "failures"):
                lines += ["  %s %s" % (name, one) for one in getattr(rank, name)]
            lines += ["  " + line for line in rank.stderr.splitlines()[-12:]]
        return "\n".join(lines)

    def inspect(self):
        """What the flight recorders of those who still run have to say."""
        argv = [ranks.CLI, "inspect"]
        for rank in self.rank:
            if rank.child.poll() is None:
                argv += ["--pid", str(rank.pid)]
        try:
            done = ranks.subprocess.run(argv, check=False, capture_output=True, text=True, timeout=5)
            return done.stdout[:4000] + done.stderr
        except ranks.subprocess.TimeoutExpired:
            return "inspect takes too long"
