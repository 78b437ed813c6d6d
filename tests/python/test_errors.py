# SPDX-License-Identifier: Apache-2.0
"""What breaks is an exception that names the status, the rank and the operation: on every rank, and in words."""
import os
import pickle
import select
import signal
import subprocess
import sys
import time
import unittest

import numpy as np

import job
from job import RankCase, assert_raises, say_fine

import weft


def alone_mismatched():
    comm = weft.init()
    action = (lambda: comm.allreduce(np.zeros(10))) if comm.rank == 0 else (lambda: comm.broadcast(np.zeros(20)))
    comm.control_barrier()
    error = assert_raises(weft.MismatchError, action, "rank 0 called allreduce", "called broadcast",
                          status=10, name="ERR_MISMATCH", operation="allreduce" if comm.rank == 0 else "broadcast")
    assert isinstance(comm.error, weft.MismatchError) and error.text
    say_fine()


def alone_other_count():
    comm = weft.init()
    assert_raises(weft.MismatchError, lambda: comm.allreduce(np.zeros(10 + comm.rank)), "x 10", "x 11")
    assert_raises(weft.MismatchError, lambda: comm.allreduce(np.zeros(10)))
    say_fine()


def alone_with_a_dead_rank():
    """Ranks 0 and 1 of a job of three, all started by hand, so that no launcher ends them when rank 2 dies."""
    comm = weft.init()
    assert comm.error is None
    fd = comm.error_fd()
    comm.barrier()
    if comm.rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    error = assert_raises(weft.PeerError, lambda: comm.allreduce(np.ones(1000)), "rank 2", rank=2,
                          operation="allreduce", name="ERR_PEER")
    assert isinstance(error, ConnectionError)
    assert (comm.error.rank, comm.error.status) == (2, weft.PeerError.status)
    assert select.select([fd], [], [], 30)[0] == [fd]
    with comm.shrink() as rest:
        assert (rest.rank, rest.ranks) == (comm.rank, 2)
        assert rest.allreduce(np.ones(10))[0] == 2
    comm.close()
    say_fine()


def alone_closed_by_a_rank():
    comm = weft.init()
    comm.barrier()
    if comm.rank == 1:
        comm.close()
        say_fine()
        return
    assert_raises(weft.PeerError, lambda: comm.recv(np.zeros(1), 1), "rank 1", "closed")
    say_fine()


def alone_aborted():
    comm = weft.init()
    if comm.rank == 1:
        comm.abort("the loss is not a number")
    assert_raises(weft.AbortedError, lambda: [comm.barrier() for _ in range(2)], "the loss is not a number")
    say_fine()


def alone_left_by_an_exception():
    """`with` tells the others what happened."""
    try:
        with weft.init() as comm:
            rank = comm.rank
            comm.barrier()
            if rank == 1:
                raise KeyError("batch 7")
            comm.barrier()
    except KeyError:
        assert rank == 1
    except weft.AbortedError as error:
        assert rank != 1 and "KeyError" in str(error) and "batch 7" in str(error), error
    say_fine()


def alone_left_by_exit():
    """sys.exit() inside of `with` is an end like any other."""
    with weft.init() as comm:
        comm.barrier()
        say_fine()
        sys.exit()


def alone_late():
    """Rank 1 does not come: the deadline names it."""
    comm = weft.init()
    comm.barrier()
    if comm.rank == 1:
        assert_raises(weft.DeadlineError, lambda: comm.control_recv(0))  # the verdict reaches it there
    else:
        error = assert_raises(weft.DeadlineError, lambda: comm.allreduce(np.zeros(10), timeout=1.5), "rank 1",
                              "has not entered", operation="allreduce")
        assert isinstance(error, TimeoutError) and not isinstance(error, weft.StillRunning)
    say_fine()


def alone_without_the_others():
    assert_raises(weft.DeadlineError, lambda: weft.init(start_timeout=0.3), operation="init")
    say_fine()


def alone_without_a_launcher():
    assert_raises(weft.InvalidError, weft.init, operation="init")
    say_fine()


def alone_used_after_close():
    comm = weft.create(weft.Id.create(), 0, 1)
    request = comm.begin.recv(np.zeros(3), 0)
    comm.close()
    comm.close()
    assert_raises(weft.InvalidError, lambda: comm.allreduce(np.zeros(3)))
    assert_raises(weft.InvalidError, request.wait, "the communicator was closed before the recv was done")
    assert repr(comm) == "<weft.Comm rank 0 of 1, closed>"
    say_fine()


def alone_interrupted(when):
    """Ctrl-C ends a wait that nothing else would end, and the other rank is told."""
    comm = weft.init()
    if comm.rank == 1:
        assert_raises(weft.Error, lambda: comm.recv(np.zeros(1), 0, 99))
        if when == "call":
            assert isinstance(comm.error, weft.AbortedError) and "interrupted (SIGINT)" in str(comm.error), comm.error
        say_fine()
        return
    if when == "call":
        waiting = lambda: comm.recv(np.zeros(1), 1)  # noqa: E731
    else:
        waiting = comm.begin.recv(np.zeros(1), 1).wait
    subprocess.Popen([sys.executable, "-c", "import os, time; time.sleep(1); os.kill(%d, 2)" % os.getpid()])
    begin = time.monotonic()
    try:
        waiting()
    except KeyboardInterrupt:
        assert time.monotonic() - begin < 50, "only the deadline ended it"
        say_fine()
        if when == "request":
            assert comm.error is None
        comm.close()
        return
    raise AssertionError("KeyboardInterrupt was swallowed")


def start_by_hand(ranks, function, *arguments):
    """Ranks without a launcher that would end the others when one fails; (status, output) of each."""
    name = "py-%d-%s" % (os.getpid(), "-".join([function.__name__, *arguments]))
    children = []
    for rank in range(ranks):
        env = job.clean_env(WEFT_RANK=rank, WEFT_RANKS=ranks, WEFT_LOCAL_RANKS=ranks, WEFT_JOB=name)
        children.append(subprocess.Popen(job.command(function, *arguments), env=env, stdout=subprocess.PIPE,
                                         stderr=subprocess.STDOUT, universal_newlines=True))
    try:
        return [(child.communicate(timeout=job.DEADLINE_S)[0], child.returncode) for child in children]
    finally:
        for child in children:
            child.kill()
            child.wait()


class Errors(RankCase):
    def check_by_hand(self, ranks, function, *arguments, dead=()):
        for rank, (output, status) in enumerate(start_by_hand(ranks, function, *arguments)):
            if rank in dead:
                self.assertNotEqual(status, 0)
            else:
                self.assertEqual(status, 0, output)
                self.assertIn("fine\n", output)

    def test_of_different_calls_name_both(self):
        self.check_by_hand(3, alone_mismatched)

    def test_of_different_counts_name_both(self):
        self.check_by_hand(2, alone_other_count)

    def test_of_a_dead_rank_name_it_and_the_others_go_on(self):
        self.check_by_hand(3, alone_with_a_dead_rank, dead=(2,))

    def test_of_a_rank_that_does_not_come_name_it(self):
        self.check_by_hand(2, alone_late)

    def test_of_a_closed_rank_name_it(self):
        self.check_by_hand(2, alone_closed_by_a_rank)

    def test_of_an_abort_have_its_reason(self):
        self.check_by_hand(3, alone_aborted)

    def test_of_one_rank_are_told_to_the_others_by_with(self):
        self.check_by_hand(3, alone_left_by_an_exception)

    def test_are_not_made_of_exit(self):
        self.check_by_hand(3, alone_left_by_exit)

    def test_of_ctrl_c_in_a_call_come_at_once(self):
        self.check_by_hand(2, alone_interrupted, "call")

    def test_of_ctrl_c_in_a_wait_leave_the_communicator(self):
        self.check_by_hand(2, alone_interrupted, "request")

    def check_alone(self, function, **variables):
        job_done = subprocess.run(job.command(function), env=job.clean_env(**variables), stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, universal_newlines=True, timeout=job.DEADLINE_S)
        self.assertEqual((job_done.returncode, job_done.stdout.count("fine\n")), (0, 1), job_done.stdout)

    def test_of_a_start_name_who_is_missing(self):
        self.check_alone(alone_without_the_others, WEFT_RANK=0, WEFT_RANKS=2, WEFT_LOCAL_RANKS=2,
                         WEFT_JOB="py-%d-missing" % os.getpid())

    def test_of_no_launcher_say_so(self):
        self.check_alone(alone_without_a_launcher)

    def test_of_a_closed_communicator(self):
        self.check_alone(alone_used_after_close)


class Classes(unittest.TestCase):
    def test_there_is_one_for_every_status(self):
        from weft import _capi, _errors
        for status in range(1, 17):
            kind = _errors._CLASSES[status]
            self.assertTrue(issubclass(kind, weft.Error) and issubclass(kind, Exception))
            self.assertIn(kind.__name__, weft.__all__)
            error = kind("text", operation="send", rank=3, verdict=1)
            self.assertEqual(error.name, _capi.lib.weft_status_name(status).decode())
            self.assertEqual(str(error), error.name + ": text")
            there = pickle.loads(pickle.dumps(error))  # as pools of processes do
            self.assertEqual((str(there), there.rank, there.operation), (str(error), 3, "send"))


if __name__ == "__main__":
    job.main(globals())
