# SPDX-License-Identifier: Apache-2.0
"""The faults of the nemesis: how each is drawn from the seed, how it strikes, and what must come of it. A fault that
must be survived heals later by itself, and nobody may fail meanwhile; a fatal one ends the communicator, with one
verdict for all who are left, who then shrink and go on, or end, as the seed says."""
import os
import random
import re
import signal
import time

from nemesis_job import MARGIN_S, RANKS, SLOWNESS, TIMEOUT_S, Finding

BUSY_S = 2 * SLOWNESS     # how long a loaded machine may keep a rank waiting, besides
KILLED_S = 1              # from a death to the verdict on all who are left
MISMATCH_S = 3            # from the order to make another call: that comes within 16 operations
ABORT_S = 1
PATH_S = 6                # … when a path is broken at the same time
END_S = 10 * SLOWNESS     # from the word to the end of all processes
FREEZE_MS = 2500
RAIL_S = 8                # so long after a NIC has healed no NIC of another rail is broken
WEIGHTS = {"kill": 4, "two": 1, "stop": 4, "freeze": 1, "nic": 5, "loss": 2, "slow": 1, "strangers": 2,
           "other": 2, "abort": 1, "leave": 1}
# of the failed call and of the communicator; who cannot go on, while others could, aborts
STATUS = {"kill": ("ERR_PEER",), "two": ("ERR_PEER",), "leave": ("ERR_PEER", "ERR_ABORTED"),
          "other": ("ERR_MISMATCH",), "abort": ("ERR_ABORTED",), "freeze": ("ERR_TIMEOUT", "ERR_ABORTED")}


def draw(seed, number, kinds):
    """The number-th fault of a seed; victims are counted among those who live when it strikes."""
    chance = random.Random("%d fault %d" % (seed, number))
    kinds = [kind for kind in WEIGHTS if kind in kinds]
    fault = {"kind": chance.choices(kinds, [WEIGHTS[kind] for kind in kinds])[0],
             "victim": chance.randrange(1 << 16), "second": chance.randrange(1 << 16),
             "seconds": round(chance.uniform(0.2, 2), 2),
             "how": chance.choice(("down", "unplug", "blackhole")), "nic": chance.randrange(1 << 16),
             "amount": chance.randrange(1, 6), "shrinks": chance.random() < 0.5,
             "gap": round(chance.uniform(0, 0.02), 3)}
    if fault["kind"] == "nic" and chance.random() < 0.2:
        fault["seconds"] = round(chance.uniform(6, 9), 2)
    if chance.random() < 0.2:
        fault["victim"] = 0  # the first one coordinates, and is the root at first
    return fault


def describe(fault):
    """One line of the schedule."""
    more = {"stop": "#{victim} for {seconds} s", "nic": "{how} #{victim}.{nic} for {seconds} s",
            "loss": "{amount} % for {seconds} s", "slow": "#{victim}.{nic} for {seconds} s", "strangers": "{amount}",
            "two": "#{victim}, #{second} after {gap} s, shrinks {shrinks}"}
    return fault["kind"] + " " + more.get(fault["kind"], "#{victim}, shrinks {shrinks}").format(**fault)


def names(text, number):
    return re.search(r"rank %d\b" % number, text) is not None


class Faults:
    """Strikes on one job. running: what still has to be healed, as (when, what, how)."""

    def __init__(self, job, ground, tell):
        self.job, self.ground, self.tell = job, ground, tell
        self.running = []
        self.rail, self.rail_until = None, 0
        self.strangers = []
        # at the latest fatal strike
        self.was_calm, self.is_nic_broken = True, False
        self.slowest = {}  # per kind, seconds until everybody knew

    # ---- what heals ----

    def tick(self):
        now = time.monotonic()
        for one in [one for one in self.running if one[0] <= now]:
            self.running.remove(one)
            one[2]()
            self.tell("healed: %s" % one[1])

    def heal_all(self):
        for one in self.running:
            one[2]()
        self.running = []
        for thread in self.strangers:
            thread.join(30)
        self.strangers = []

    def heals(self, fault, what, heal):
        self.running.append((time.monotonic() + fault["seconds"], what, heal))

    def is_calm(self):
        return not self.running

    # ---- what strikes ----

    def strike(self, fault):
        """True: the job goes on; False: it is over, and another one begins."""
        kind = fault["kind"]
        if kind in STATUS:
            return self.strike_dead(fault)
        getattr(self, "strike_" + kind)(fault)
        return True

    def victim(self, fault, name="victim"):
        living = self.job.living()
        return living[fault[name] % len(living)]

    def strike_stop(self, fault):
        rank = self.victim(fault)
        if rank.is_stopped():
            return
        self.tell("rank %d stops for %.2f s" % (rank.number, fault["seconds"]))
        rank.stop()
        self.heals(fault, "rank %d goes on" % rank.number, rank.go_on)

    def strike_nic(self, fault):
        """One of several, and of one rail until it has been whole for a while: every two hosts keep a path."""
        host = self.job.places[self.victim(fault).number]
        now = time.monotonic()
        if self.rail is None or now > self.rail_until:
            self.rail = fault["nic"] % self.ground.nics
        what = "eth%d of h%d" % (self.rail, host)
        if any(one[1].endswith(what) for one in self.running):
            return
        self.rail_until = max(self.rail_until, now + fault["seconds"] + RAIL_S)
        self.tell("%s of %s for %.2f s" % (fault["how"], what, fault["seconds"]))
        self.heals(fault, what, self.ground.break_nic(fault["how"], host, self.rail))

    def strike_loss(self, fault):
        if any(one[1] == "loss" for one in self.running):
            return
        self.tell("%d %% of packets are lost for %.2f s" % (fault["amount"], fault["seconds"]))
        self.heals(fault, "loss", self.ground.lose(fault["amount"]))

    def strike_slow(self, fault):
        host, nic = self.job.places[self.victim(fault).number], fault["nic"] % self.ground.nics
        what = "slow eth%d of h%d" % (nic, host)
        if any(one[1].endswith(what) for one in self.running):
            return
        self.tell("%s for %.2f s" % (what, fault["seconds"]))
        self.heals(fault, what, self.ground.slow(host, nic, "%dmbit" % (20 * fault["amount"])))

    def strike_strangers(self, fault):
        self.tell("strangers, %d at every door" % (4 * fault["amount"]))
        self.strangers += self.ground.send_strangers(self.job, 4 * fault["amount"], fault["victim"])

    # ---- what ends the communicator ----

    def strike_dead(self, fault):
        kind = fault["kind"]
        victims = [self.victim(fault)]
        if kind == "two" and self.victim(fault, "second") is not victims[0]:
            victims.append(self.victim(fault, "second"))
        numbers = [rank.number for rank in victims]
        self.tell("%s of rank %s, then %s" % (kind, numbers, "shrink" if fault["shrinks"] else "restart"))
        if kind == "freeze":
            self.hurry()
        self.was_calm = is_calm = self.is_calm()
        self.is_nic_broken = any(" of h" in what for _, what, _ in self.running)
        since = getattr(self, "do_" + kind)(fault, victims)
        limit = self.limit(kind, is_calm)
        if kind == "freeze":  # it has not failed before it goes on; the others have
            self.await_failures(kind, victims, since, limit)
            victims[0].go_on()
        self.await_failures(kind, [], since, limit)
        self.check_verdicts(kind, numbers, since, limit, is_calm)
        if kind in ("abort", "other", "freeze"):
            victims = []
        return self.go_on(fault, victims)

    @staticmethod
    def limit(kind, is_calm):
        limit = {"freeze": FREEZE_MS / 1000 + MARGIN_S, "other": MISMATCH_S, "abort": ABORT_S}.get(kind, KILLED_S)
        return limit * SLOWNESS + BUSY_S + (0 if is_calm else PATH_S)

    def do_kill(self, unused_fault, victims):
        for rank in victims:
            rank.is_killed = True
            rank.child.send_signal(signal.SIGKILL)
            self.job.left.discard(rank.number)
        return time.monotonic()

    def do_two(self, fault, victims):
        self.do_kill(fault, victims[:1])
        time.sleep(fault["gap"])  # not to wait for anything: so far apart they die
        return self.do_kill(fault, victims[1:])

    def do_leave(self, unused_fault, victims):
        victims[0].order("leave")
        end = time.monotonic() + TIMEOUT_S
        self.await_one(lambda: victims[0].child.poll() is not None, end, "rank %d leaves" % victims[0].number)
        self.job.check_closed(victims[0])
        self.job.left.discard(victims[0].number)
        return time.monotonic()

    def do_other(self, unused_fault, victims):
        victims[0].order("other")
        return time.monotonic()

    def do_abort(self, unused_fault, victims):
        victims[0].order("abort")
        return time.monotonic()

    def do_freeze(self, unused_fault, victims):
        victims[0].go_on()
        victims[0].stop()
        return time.monotonic()

    def hurry(self):
        """All get a deadline that is worth waiting for."""
        for rank in self.job.living():
            rank.timeout = None
            rank.order("timeout %d" % FREEZE_MS)
        end = time.monotonic() + TIMEOUT_S
        self.job.await_all(lambda rank: rank.timeout == FREEZE_MS, lambda: end, "another deadline", self.tick)

    def await_one(self, claim, end, what):
        while not claim():
            self.tick()
            self.job.hear()
            if time.monotonic() > end:
                raise Finding("not in time: %s" % what)
            time.sleep(0.005)

    def await_failures(self, kind, but, since, limit):
        """Everybody else's call has returned, and says why. Who was stopped has time from then on; so have all, for it
        may be the one who passes the news on."""
        def deadline():
            ends = [end for rank in self.job.rank if rank not in but for begin, end in rank.stops
                    if end is not None] + [since]
            if any(rank.is_stopped() for rank in self.job.living() if rank not in but):
                return time.monotonic() + 1
            return max(ends) + limit + BUSY_S  # check_verdicts() has the exact times
        self.job.await_all(lambda rank: rank in but or len(rank.failures) >= self.job.teams, deadline,
                           "an end by %s" % kind, self.tick)

    def check_verdicts(self, kind, victims, since, limit, is_calm):
        verdicts = {rank.number: rank.verdicts[-1] for rank in self.job.living()}
        failures = {rank.number: rank.failures[-1] for rank in self.job.living()}
        for number, one in verdicts.items():
            if one["status"] not in STATUS[kind] or failures[number]["status"] not in STATUS[kind]:
                raise Finding("rank %d should have got %s of rank %s: %s, %s" % (
                    number, STATUS[kind], victims, one, failures[number]))
            is_named = any(names(one["text"], victim) for victim in victims)
            if kind in ("kill", "two", "abort", "leave") and one["blamed"] not in victims and \
                    not (is_named and (kind == "leave" or not self.was_calm)):
                raise Finding("rank %d blames the wrong one, not %s: %s" % (number, victims, one))
        self.check_one_verdict(kind, victims, verdicts)
        took = max(one["time"] for number, one in verdicts.items()
                   if kind != "freeze" or number not in victims) - since
        if is_calm and not any(rank.stood_since(since) for rank in self.job.living() if rank.number not in victims):
            self.slowest[kind] = max(self.slowest.get(kind, 0), took)
            if took > limit:
                raise Finding("%s took %.2f s: %s" % (kind, took, verdicts))
        self.tell("everybody knows after %.2f s: %s" % (took, next(iter(verdicts.values()))["text"]))

    def check_one_verdict(self, kind, victims, verdicts):
        """Word for word, for all who reach the coordinator, by its number. Ranks whose parent dies while packets are
        lost, or while the NIC is down by which the next one would be found, may not. That a rank has closed everybody
        finds by itself, and several abort."""
        if kind == "leave" or (kind in ("kill", "two") and self.is_nic_broken):
            return
        texts = {one["text"] for one in verdicts.values() if one["number"] > 0 or kind != "freeze"}
        numbers = {one["number"] for one in verdicts.values()}
        if len(texts) > 1 or (kind != "freeze" and 0 in numbers and self.was_calm):
            raise Finding("not one verdict: %s" % verdicts)
        # Who aborts has waited in a part of the communicator, to which it need not belong; who waits for any rank, or
        # for a signal, knows nobody.
        waited = [one for one in verdicts.values()
                  if one["status"] == "ERR_TIMEOUT" and "no rank has " not in one["text"]]
        if kind == "freeze" and waited and not any(names(one["text"], victims[0]) for one in waited):
            raise Finding("nobody names rank %d: %s" % (victims[0], verdicts))

    def go_on(self, fault, gone):
        """The survivors shrink, or the job is over."""
        job = self.job
        for rank in gone:
            rank.await_end(5)
        if not fault["shrinks"] or len(job.left) < RANKS // 2:
            self.heal_all()
            job.end("end", END_S)
            return False
        job.teams += 1
        for rank in job.living():
            rank.order("shrink")
        is_calm = self.is_calm()
        limit = TIMEOUT_S + MARGIN_S + BUSY_S + (0 if is_calm else PATH_S)
        job.await_works(job.teams, time.monotonic(), limit, self.tick)
        self.tell("%d ranks go on" % len(job.left))
        return True


def settings(seed, number, ground):
    """Of the number-th job: where its ranks are, and what they are told."""
    chance = random.Random("%d job %d" % (seed, number))
    hosts = list(range(chance.randint(min(2, ground.hosts), ground.hosts)))
    places = hosts + [chance.choice(hosts) for _ in range(RANKS - len(hosts))]
    chance.shuffle(places)
    variables = {"WEFT_TREE_DEGREE": chance.choice((2, 64, 64)), "WEFT_CHECKSUM": chance.choice(("off", "on")),
                 "WEFT_PATH": chance.choice(("auto", "auto", "tcp")),
                 "WEFT_LOG": os.environ.get("WEFT_LOG", "error")}
    return {"places": places, "variables": variables, "has_children": chance.random() < 0.3,
            "security": chance.choice(("auth", "auth", "integrity", "encrypt"))}
