# SPDX-License-Identifier: Apache-2.0
"""Ends that come from outside: Ctrl-C after others had the signals, forks in the middle of calls, the interpreter's end with
everything open."""
import os
import signal
import sys
import threading
import time
import warnings

import numpy as np

import job
from job import DEADLINE_S, assert_raises, in_thread, wait_until

import weft

left = None  # what is there when the interpreter ends


def alone():
    return weft.create(weft.Id.create(), 0, 1)


def alone_forks_while_a_thread_waits():
    """The child has neither the thread nor its locks: what it calls says ERR_FORKED."""
    comm = alone()
    request = comm.begin.recv(np.zeros(1), 0)
    warnings.simplefilter("ignore")  # newer Pythons warn of forks in programs with threads
    thread = threading.Thread(target=request.wait)
    thread.start()
    wait_until(lambda: comm._inside)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            assert_raises(weft.ForkedError, request.wait)
            assert_raises(weft.ForkedError, request.cancel)
            assert_raises(weft.ForkedError, lambda: comm.allreduce(np.zeros(1)))
            assert isinstance(comm.error, weft.ForkedError), comm.error
            assert_raises(weft.ForkedError, comm.close)
            own = alone()  # a child may have a job of its own
            assert own.allreduce(np.ones(1))[0] == 1
            own.close()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    comm.send(np.ones(1), 0)
    thread.join(DEADLINE_S)
    assert request.is_done
    comm.close()
    job.say_fine()


def alone_forks_from_a_thread():
    """The forking thread is the child's main one: Ctrl-C reaches what it waits for."""
    warnings.simplefilter("ignore")
    alone().close()  # the parent looks after Ctrl-C already

    def work():
        child = os.fork()
        if child == 0:
            status = 1
            try:
                comm = alone()
                threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
                try:
                    comm.recv(np.zeros(1), 0)
                except (KeyboardInterrupt, weft.AbortedError):  # 3.13.0 raises the first a moment later
                    status = 0
            finally:
                os._exit(status)
        return os.waitpid(child, 0)[1]

    assert in_thread(work) == 0
    job.say_fine()


def alone_is_interrupted_after_an_event_loop():
    """It took the descriptor that tells of signals, and left nobody's behind."""
    alone().close()
    signal.set_wakeup_fd(-1)
    comm = alone()
    threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    begin = time.monotonic()
    try:
        comm.recv(np.zeros(1), 0)
    except KeyboardInterrupt:
        assert time.monotonic() - begin < 50, "only the deadline ended it"
        job.say_fine()


def alone_ends_with_everything_open():
    """At the end of the interpreter: nothing to warn of, whatever is in flight."""
    global left
    comm = alone()
    part = comm.duplicate()
    left = [comm.begin.recv(np.zeros(1 << 16), 0) for _ in range(3)]
    left += [comm.begin.send(np.zeros(1 << 20), 0, 9), part.prepare.allreduce(np.ones(9)).start(),
             part.register(np.zeros(4)), part]
    threading.Thread(target=lambda: comm.probe(0, 77, timeout=DEADLINE_S), daemon=True).start()
    wait_until(lambda: comm._inside)
    job.say_fine()


def alone_ends():
    global left
    left = alone()
    left.barrier()
    job.say_fine()
    sys.exit(0)


class Ends(job.RankCase):
    def test_by_ctrl_c_after_an_event_loop(self):
        self.run_ranks(1, alone_is_interrupted_after_an_event_loop)

    def test_of_the_interpreter_are_quiet(self):
        for function in (alone_ends, alone_ends_with_everything_open):
            said = self.run_ranks(1, function)
            for word in ("Traceback", "Exception", "Warning", "Fatal"):
                self.assertNotIn(word, said)


class Forks(job.RankCase):
    def test_while_a_thread_waits(self):
        self.run_ranks(1, alone_forks_while_a_thread_waits)

    def test_from_a_thread(self):
        self.run_ranks(1, alone_forks_from_a_thread)


if __name__ == "__main__":
    job.main(globals())
