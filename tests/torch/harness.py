# SPDX-License-Identifier: Apache-2.0
"""Runs a test's body as several ranks. The parent imports torch once, and a test forks its ranks from it: a start takes
milliseconds instead of seconds. The parent itself computes nothing with torch, so there is no thread a fork could lose.
"""
import datetime
import faulthandler
import functools
import os
import pickle
import select
import signal
import sys
import time
import traceback
import unittest

import torch
import torch.distributed as dist

import weft.torch

weft.torch.register()  # importing it does so, too
DEADLINE_S = 60  # of one test; a hang is a failure, not a wait
_server = None
_count = 0
_held = []


def store():
    """The port of a store that outlives the ranks. It is a process of its own: the parent has no thread whose locks a
    fork could copy in the wrong moment."""
    global _server
    if _server is None:
        answer, told = os.pipe()
        ends, held = os.pipe()  # at the parent's end, whatever kind of end it is, the server reads its own
        if os.fork() == 0:
            os.close(held)
            server = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
            os.write(told, str(server.port).encode())
            os.read(ends, 1)
            os._exit(0)
        os.close(ends)
        _server = int(os.read(answer, 20))
        os.set_inheritable(held, False)
        _held.append(held)
    return _server


def start(rank, ranks, backend="weft", timeout_s=30, port=None, prefix=""):
    """init_process_group() in a rank."""
    client = dist.TCPStore("127.0.0.1", port, None, False, wait_for_workers=False)
    dist.init_process_group(backend, store=dist.PrefixStore("%s/%s" % (prefix, backend), client), rank=rank,
                            world_size=ranks, timeout=datetime.timedelta(seconds=timeout_s))


class Died(AssertionError):
    """A rank ended without an answer."""


def run_ranks(count, body, deadline_s=DEADLINE_S, may_die=()):
    """Forks `count` ranks, each calls body(rank, count, port, prefix) and returns its answer. The answers in order of
    ranks; an exception of a rank is raised here. may_die: ranks that are killed, or exit, on purpose."""
    global _count
    _count += 1
    port, prefix = store(), "test%d" % _count
    ranks = [_fork(rank, count, body, port, prefix, deadline_s) for rank in range(count)]
    try:
        answers = _collect(ranks, time.monotonic() + deadline_s, may_die)
    finally:
        for pid, pipe in ranks:
            os.close(pipe)
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            os.waitpid(pid, 0)
    failed = ["rank %d:\n%s" % (rank, answer[1]) for rank, answer in enumerate(answers)
              if answer is not None and not answer[0]]
    if failed:
        raise AssertionError("\n".join(failed))
    return [answer[1] if answer is not None else None for answer in answers]


def _fork(rank, count, body, port, prefix, deadline_s):
    mine, theirs = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        os.close(theirs)
        return pid, mine
    for held in [mine] + _held:
        os.close(held)
    faulthandler.dump_traceback_later(deadline_s * 0.8)  # a rank that hangs says where
    try:
        torch.set_num_threads(1)
        answer = (True, body(rank, count, port, prefix))
    except BaseException:
        answer = (False, traceback.format_exc())
    try:
        with os.fdopen(theirs, "wb") as pipe:
            pickle.dump(answer, pipe)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _collect(ranks, end, may_die):
    texts = [b""] * len(ranks)
    open_pipes = {pipe: rank for rank, (_, pipe) in enumerate(ranks)}
    while open_pipes:
        left = end - time.monotonic()
        ready = select.select(list(open_pipes), [], [], max(left, 0))[0]
        if not ready:
            raise Died("no answer in time from ranks %s" % sorted(open_pipes.values()))
        for pipe in ready:
            piece = os.read(pipe, 1 << 20)
            texts[open_pipes[pipe]] += piece
            if not piece:
                del open_pipes[pipe]
    answers = []
    for rank, text in enumerate(texts):
        if text:
            answers.append(pickle.loads(text))
        elif rank in may_die:
            answers.append(None)
        else:
            raise Died("rank %d ended without an answer" % rank)
    return answers


def ranks(count, backend="weft", timeout_s=30):
    """The test method runs in `count` ranks of one group; self.rank and self.ranks say who it is."""
    def decorate(method):
        @functools.wraps(method)
        def test(self):
            def body(rank, ranks_, port, prefix):
                self.rank, self.ranks = rank, ranks_
                start(rank, ranks_, backend, timeout_s, port, prefix)
                answer = method(self)
                dist.destroy_process_group()
                return answer
            run_ranks(count, body)
        return test
    return decorate


class RankTest(unittest.TestCase):
    rank = ranks = None

    def same(self, got, expected, **tolerance):
        """Equal tensors, of one dtype."""
        torch.testing.assert_close(got, expected, **tolerance)
