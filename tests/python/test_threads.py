# SPDX-License-Identifier: Apache-2.0
"""Threads, signal handlers and finalizers that meet at one communicator or one request: a clear error, never a handle
that was freed. A job of one rank is enough for nearly all of it."""
import copy
import ctypes
import gc
import pickle
import signal
import sys
import tempfile
import threading
import unittest
import weakref
from unittest import mock

import numpy as np

import job
from job import DEADLINE_S, assert_raises, in_thread, wait_until

import weft
from weft import _collectives, _waiting
from weft._capi import lib


def alone():
    return weft.create(weft.Id.create(), 0, 1)


class Intruder:
    """Stands for a function of the C library: another thread tries to close communicators in the middle of it."""

    def __init__(self, function, comms):
        self.function = function
        self.comms = comms
        self.refused = []

    def __call__(self, *arguments):
        for comm in self.comms:
            error = in_thread(comm.close)
            self.refused.append(isinstance(error, weft.BusyError) and "a thread is in a call" in str(error))
        return self.function(*arguments)


class Closing(unittest.TestCase):
    """No call has the handle taken away from under it."""

    def check(self, name, action, *comms, table=None):
        where = mock.patch.object(lib, name) if table is None else mock.patch.dict(table, {name: None})
        intruder = Intruder(getattr(lib, name) if table is None else table[name], comms)
        with self.subTest(name), where as patched:
            if table is None:
                patched.side_effect = intruder
            else:
                table[name] = intruder
            action()
            self.assertTrue(intruder.refused and all(intruder.refused), intruder.refused)

    def test_is_refused_while_any_call_is_made(self):
        comm = alone()
        data, words = np.zeros(8, "uint8"), np.zeros(2, "uint64")
        memory = comm.register(words)
        self.check("weft_put", lambda: comm.put(memory, data), comm)
        self.check("weft_get", lambda: comm.get(memory, data), comm)
        self.check("weft_put_signal", lambda: comm.put_signal(memory, data, memory, signal_offset=8), comm)
        self.check("weft_fence", comm.fence, comm)
        self.check("weft_quiet", comm.quiet, comm)
        self.check("weft_wait_signal", lambda: comm.wait_signal(words, 1, 1), comm)
        self.check("weft_mem_register", lambda: comm.register(data), comm)
        self.check("weft_mem_deregister", memory.deregister, comm)
        self.check("weft_comm_set_timeout", lambda: comm.set_timeout(50), comm)
        self.check("weft_comm_error_fd", comm.error_fd, comm)
        self.check("weft_comm_get_error", lambda: comm.error, comm)
        self.check("weft_comm_split", lambda: comm.split(-1), comm)
        self.check("weft_control_barrier", comm.control_barrier, comm)
        self.check("weft_probe", comm.probe, comm)
        self.check("allreduce", lambda: comm.allreduce(words), comm, table=_collectives.FUNCTIONS)
        with tempfile.TemporaryDirectory() as folder:
            self.check("weft_dump", lambda: comm.dump(folder), comm)
        self.check("weft_abort", lambda: comm.abort("enough"), comm)
        self.check("weft_comm_shrink", lambda: comm.shrink().close(), comm)
        comm.close()

    def test_is_refused_while_a_request_is_looked_at(self):
        comm, data = alone(), np.zeros(8)
        request = comm.begin.recv(data, 0)
        self.check("weft_test", request.test, comm)
        self.check("weft_request_set_timeout", lambda: request.set_timeout(50), comm)
        self.check("weft_cancel", request.cancel, comm)
        self.check("weft_send", lambda: comm.begin.send(data, 0).wait(), comm)
        self.check("weft_recv", lambda: comm.begin.recv(data, 0).wait(), comm)
        self.check("weft_op_create", lambda: comm.prepare.allreduce(data), comm)
        operation = comm.prepare.allreduce(data)
        self.check("weft_op_start", operation.start, comm)
        self.check("weft_op_wait", operation.wait, comm)
        self.check("weft_collective", operation, comm)
        self.check("weft_op_destroy", operation.close, comm)
        comm.close()

    def test_is_refused_while_dropped_requests_are_looked_after(self):
        comm, data = alone(), np.zeros(8)
        request = comm.begin.recv(data, 0)
        self.check("weft_test", request.__del__, comm)
        request.cancel()
        comm.close()

    def test_is_refused_to_all_communicators_of_wait_any(self):
        comms = [alone() for _ in range(3)]
        requests = [comm.begin.recv(np.zeros(1), 0, 1) for comm in comms]
        comms[1].send(np.ones(1), 0, 1)
        self.check("weft_wait_any", lambda: weft.wait_any(requests, DEADLINE_S), *comms)
        for request in requests:
            request.cancel()
        for comm in comms:
            comm.close()

    def test_waits_for_who_only_looks(self):
        """Another thread asks for the error in a loop; closing comes between two of its calls."""
        comm = alone()
        done = threading.Event()

        def look():
            while not done.is_set():
                if comm.error is not None:
                    return str(comm.error)
            return "never closed"

        said = []
        thread = threading.Thread(target=lambda: said.append(look()))
        thread.start()
        try:
            wait_until(lambda: self.is_closed_now(comm))
        finally:
            done.set()
            thread.join(DEADLINE_S)
        self.assertIn(said[0], ("ERR_INVALID: the communicator was closed", "never closed"))

    def is_closed_now(self, comm):
        try:
            comm.close()
        except weft.BusyError:  # on a machine so busy that the other thread stays inside
            return False
        return True

    def test_inside_of_closing_does_not_wait_for_itself(self):
        """As the garbage collector or a signal handler may do it, in the same thread."""
        comm, other = alone(), alone()
        close = lib.weft_comm_close

        def close_others(handle):
            status = close(handle)
            comm.close()
            if other._handle is not None:
                other.close()
            return status

        with mock.patch.object(lib, "weft_comm_close", close_others):
            self.assertIsNone(in_thread(comm.close))
        self.assertTrue(comm._is_closed and other._is_closed)

    def test_of_a_whole_that_was_dropped_before_its_part(self):
        """In cyclic garbage the order is nobody's: both are closed in the end."""
        comm = alone()
        part = comm.duplicate()
        comm.__del__()
        self.assertFalse(comm._is_closed)
        part.close()
        self.assertTrue(comm._is_closed)


class Closed(unittest.TestCase):
    def test_communicators_say_so(self):
        comm, data, words = alone(), np.zeros(3), np.zeros(1, "uint64")
        memory, operation, handle = comm.register(data), comm.prepare.allreduce(data), bytes(64)
        comm.close()
        for name, action in {
                "allreduce": lambda: comm.allreduce(data), "barrier": comm.barrier, "send": lambda: comm.send(data, 0),
                "recv": lambda: comm.begin.recv(data), "probe": comm.probe, "put": lambda: comm.put(handle, data),
                "get": lambda: comm.get(handle, data), "fence": comm.fence, "quiet": comm.quiet,
                "wait_signal": lambda: comm.wait_signal(words, 1), "register": lambda: comm.register(data),
                "control_barrier": comm.control_barrier, "split": lambda: comm.split(0), "duplicate": comm.duplicate,
                "shrink": comm.shrink, "error_fd": comm.error_fd, "set_timeout": lambda: comm.set_timeout(1),
                "abort": comm.abort, "dump": comm.dump, "broadcast": lambda: comm.prepare.broadcast(data)}.items():
            assert_raises(weft.InvalidError, action, "%s: the communicator was closed" % name, operation=name)
        self.assertEqual(str(comm.error), "ERR_INVALID: the communicator was closed")
        assert_raises(weft.InvalidError, operation, "allreduce: the communicator was closed")
        assert_raises(weft.InvalidError, operation.start, "the operation or its communicator was closed")
        operation.close()
        memory.deregister()
        with comm:
            pass

    def test_is_not_what_a_refused_close_makes(self):
        comm = alone()
        part = comm.duplicate()
        assert_raises(weft.BusyError, comm.close)
        self.assertIsNone(comm.error)
        comm.barrier()
        part.close()
        comm.close()


class Requests(unittest.TestCase):
    """One thread at a time."""

    def setUp(self):
        self.comm = alone()
        self.addCleanup(lambda: self.comm.close())

    def wait_in_thread(self, thing):
        outcome = []
        thread = threading.Thread(target=lambda: outcome.append(thing.wait()))
        thread.start()
        wait_until(lambda: self.comm._inside)
        return thread, outcome

    def test_that_another_thread_waits_for_are_busy(self):
        out = np.zeros(1)
        request = self.comm.begin.recv(out, 0)
        thread, outcome = self.wait_in_thread(request)
        for action in (request.wait, request.test, request.cancel, lambda: request.set_timeout(5),
                       lambda: weft.wait_any([request]), lambda: weft.wait_all([request])):
            assert_raises(weft.BusyError, action, "another thread is waiting for this recv", operation="recv")
        self.assertFalse(request.is_done)
        self.comm.send(np.full(1, 3.0), 0)
        thread.join(DEADLINE_S)
        self.assertEqual((request.is_done, out[0], outcome[0].nbytes), (True, 3, 8))
        self.assertEqual(request.wait().nbytes, 8)  # from here on it is everybody's

    def test_that_a_thread_gave_up_waiting_for_are_free_again(self):
        request = self.comm.begin.recv(np.zeros(1), 0)
        self.assertIsInstance(in_thread(lambda: request.wait(0.01)), weft.StillRunning)
        self.assertTrue(request.cancel())

    def test_that_threads_fight_for_end_once(self):
        for _ in range(200):
            request = self.comm.begin.recv(np.zeros(1), 0)
            outcomes = []

            def work():
                while True:
                    try:
                        outcomes.append(request.wait(DEADLINE_S).nbytes)
                        return
                    except weft.BusyError:
                        pass

            threads = [threading.Thread(target=work) for _ in range(3)]
            for thread in threads:
                thread.start()
            self.comm.send(np.ones(1), 0)
            for thread in threads:
                thread.join(DEADLINE_S)
            self.assertEqual(outcomes, [8] * 3)

    def test_are_operations_too(self):
        operation = self.comm.prepare.allreduce(np.ones(3))
        collective = lib.weft_collective

        def intrude(*arguments):
            for action in (operation.start, operation.wait, operation, operation.close):
                error = in_thread(action)
                self.assertIsInstance(error, weft.BusyError)
                self.assertIn("another thread is waiting for this allreduce", str(error))
            return collective(*arguments)

        with mock.patch.object(lib, "weft_collective", intrude):
            operation()

    def test_may_be_ended_by_a_signal_handler_in_the_middle_of_a_wait(self):
        requests = [self.comm.begin.recv(np.zeros(1), 0) for _ in range(2)]
        said = []

        def handle(*_):
            said.append(requests[len(said)].cancel())
            assert_raises(weft.BusyError, self.comm.close)

        old = signal.signal(signal.SIGUSR1, handle)
        self.addCleanup(lambda: signal.signal(signal.SIGUSR1, old))
        for action in (requests[0].wait, lambda: weft.wait_any([requests[1]])):
            sender = threading.Thread(target=self.signal_when_inside)
            sender.start()
            try:
                self.assertEqual(action(), (-1, None))
            except weft.InvalidError as error:
                self.assertIn("the recv was cancelled", str(error))
            sender.join(DEADLINE_S)
        self.assertEqual(said, [True, True])

    def signal_when_inside(self):
        wait_until(lambda: self.comm._inside)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

    def raise_on_alarm(self):
        """(what SIGALRM's handler raises, a list: it raises once while there is something in it)"""
        class Enough(Exception):
            pass

        armed = []

        def handle(*_):
            if armed:
                armed.clear()
                raise Enough

        old = signal.signal(signal.SIGALRM, handle)
        self.addCleanup(lambda: signal.signal(signal.SIGALRM, old))
        self.addCleanup(lambda: signal.setitimer(signal.ITIMER_REAL, 0))
        return Enough, armed

    @unittest.skipIf(sys.version_info < (3, 10), "runs signal handlers between any two instructions")
    def test_end_as_they_ended_when_a_signal_handler_raises(self):
        """Python runs the handler after C has ended the request and before the result of that call is there."""
        enough, armed = self.raise_on_alarm()
        quiet = mock.patch.object(sys, "unraisablehook", lambda _: None)  # a finalizer may be what is interrupted
        self.addCleanup(quiet.stop)
        quiet.start()
        for turn in range(600):
            request = self.comm.begin.recv(np.zeros(1, "uint8"), 0)
            sending = self.comm.begin.send(np.zeros(9), 0)  # too long
            try:
                try:
                    armed.append(True)
                    signal.setitimer(signal.ITIMER_REAL, 1e-6 * (turn % 60 + 1))
                    weft.wait_any([request]) if turn % 3 == 0 else request.wait() if turn % 3 == 1 else request.test()
                finally:
                    armed.clear()
            except (enough, weft.TruncatedError):
                pass
            assert_raises(weft.TruncatedError, lambda: request.wait(DEADLINE_S))
            sending.wait(DEADLINE_S)
        self.assertFalse(self.comm._inside)

    def test_have_their_status_before_a_signal_handler_runs(self):
        enough, armed = self.raise_on_alarm()
        outcome = []
        armed.append(True)
        with self.assertRaises(enough):
            _waiting.noted(outcome, ctypes.CDLL(None)["raise"], int(signal.SIGALRM))
        self.assertEqual(outcome, [0])

    def test_may_be_given_twice(self):
        request, other = self.comm.begin.recv(np.zeros(1), 0, 1), self.comm.begin.recv(np.zeros(1), 0, 2)
        given = [other, request, request, other, request]
        assert_raises(weft.StillRunning, lambda: weft.wait_any(given, 0.01), "none of 2 operations")
        self.comm.send(np.ones(1), 0, 1)
        self.assertEqual(weft.wait_any(given, DEADLINE_S)[0], 1)
        self.comm.send(np.ones(1), 0, 2)
        self.assertEqual(weft.wait_any(given, DEADLINE_S)[0], 0)
        self.assertEqual((weft.wait_any(given), len(weft.wait_all(given))), ((-1, None), 5))

    def test_that_fail_are_named_by_their_place(self):
        bad, good = self.comm.begin.recv(np.zeros(1, "uint8"), 0, 1), self.comm.begin.recv(np.zeros(1), 0, 2)
        self.comm.send(np.zeros(9), 0, 1)
        assert_raises(weft.TruncatedError, lambda: weft.wait_any([good, bad], DEADLINE_S), index=1)
        self.assertEqual(weft.wait_any([bad]), (-1, None))
        self.comm.send(np.zeros(1), 0, 2)
        assert_raises(weft.TruncatedError, lambda: weft.wait_all(iter([good, bad, good])), index=1)
        self.assertIsNone(assert_raises(weft.InvalidError, lambda: self.comm.send(b"", 7)).index)


class Copies(unittest.TestCase):
    def test_of_what_is_a_handle_are_refused(self):
        """Two owners would free it twice; in another process it is nothing."""
        with alone() as comm:
            request = comm.begin.recv(np.zeros(1), 0)
            for thing in (comm, request, comm.prepare.barrier(), comm.register(np.zeros(1))):
                for action in (copy.copy, copy.deepcopy, pickle.dumps):
                    with self.assertRaises(TypeError) as caught:
                        action(thing)
                    self.assertIn("cannot be copied or pickled", str(caught.exception))
            handle = comm.register(np.zeros(1)).handle
            self.assertEqual(copy.copy(handle), handle)
            request.cancel()


class Leaving(unittest.TestCase):
    def test_with_an_exception_that_cannot_be_printed(self):
        class Odd(Exception):
            def __str__(self):
                raise RuntimeError("no words")

        for error in (Odd(), OSError("a file called \udc80\0"), ValueError("ü" * 500)):
            comm = alone()
            with self.assertRaises(type(error)), comm:
                raise error
            self.assertTrue(comm._is_closed)

    def test_keeps_nothing_that_was_never_begun(self):
        comm = alone()
        comm.abort("enough")

        def attempt(data):
            assert_raises(weft.AbortedError, lambda: comm.begin.send(data, 0))
            assert_raises(weft.InvalidError, lambda: comm.prepare.allreduce(data, op="band"))
            return weakref.ref(data)

        mark = attempt(np.ones(8))
        gc.collect()
        self.assertEqual((mark(), comm._kept), (None, {}))
        comm.close()

    def test_keeps_what_is_put_until_it_is_done(self):
        """A quiet() that did not come to its end lets go of nothing."""
        with alone() as comm:
            memory, data = comm.register(np.zeros(8)), np.ones(8)
            mark = weakref.ref(data)
            comm.put(memory, data)
            del data
            with mock.patch.object(lib, "weft_quiet", side_effect=KeyboardInterrupt), \
                    self.assertRaises(KeyboardInterrupt):
                comm.quiet()
            gc.collect()
            self.assertIsNotNone(mark())
            comm.quiet()
            gc.collect()
            self.assertIsNone(mark())


if __name__ == "__main__":
    job.main(globals())
