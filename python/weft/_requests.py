# SPDX-License-Identifier: Apache-2.0
"""Operations that were begun and not finished, and operations that are made ready once and started often.

Both keep the arrays they use alive. One that is dropped while it runs is handed to its communicator, which keeps the
arrays until the C library is done with them.
"""
from __future__ import annotations

import collections
import contextlib
import math
import threading
import time
from ctypes import byref, c_int, c_void_p
from typing import TYPE_CHECKING, Any, Callable, Deque, Dict, List, Optional, Sequence, Tuple, Union

from . import _checks
from ._capi import (WEFT_ERR_BUSY, WEFT_ERR_FORKED, WEFT_ERR_TIMEOUT, WEFT_OK, lib, weft_message_t, weft_op_t,
                    weft_request_t)
from ._errors import BusyError, Error, InvalidError, StillRunning, check, failure
from ._waiting import blocking, interruptible, is_ended, limit, wait_in_slices

if TYPE_CHECKING:
    from ._comm import Comm


class Message:
    """What a receive or a probe found: source, tag and nbytes."""
    __slots__ = ("source", "tag", "nbytes")

    def __init__(self, found: weft_message_t):
        self.source = found.source
        self.tag = found.tag
        self.nbytes = found.len

    def __repr__(self) -> str:
        return "Message(source=%d, tag=%d, nbytes=%d)" % (self.source, self.tag, self.nbytes)


class _Alone:
    """Inside of this, one thread alone uses a request or an operation, and nobody closes its communicator; `as` gives
    the communicator's handle, None when it was closed before."""
    __slots__ = ("_used",)

    def __init__(self, used: Union[Request, Operation]):
        self._used = used

    def __enter__(self) -> Optional[int]:
        used = self._used
        if not used._guard.acquire(blocking=False):  # the same thread may: a signal handler in the middle of a wait
            raise _of_another_thread(used)
        comm = used._comm
        comm._inside[id(self)] = self
        if comm._handle is not None:
            return comm._handle
        try:
            return comm._handle_or_none(self)
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: Any) -> None:
        self._used._left()
        self._used._comm._inside.pop(id(self), None)
        self._used._guard.release()


def _of_another_thread(used: Union[Request, Operation]) -> Error:
    handle = used._comm._handle
    if handle is not None and lib.weft_comm_status(handle) == WEFT_ERR_FORKED:  # the thread stayed in the parent
        return failure(WEFT_ERR_FORKED, used.operation, handle)
    return BusyError("another thread is waiting for this %s; it belongs to one thread at a time"
                     % used.operation, operation=used.operation)


class Request:
    """An operation on its way. wait() or test() it; the arrays are Weft's until then. One thread at a time: a second
    one that waits for it, tests or cancels it meanwhile gets a BusyError.

    result  what the blocking call would have returned (an array, a Message), once it is done
    """

    def __init__(self, comm: Comm, operation: str, result: Any, keep: Any):
        self.operation = operation
        self._comm = comm
        self._handle = c_void_p()
        self._result = result
        self._keep = keep
        self._error: Optional[Error] = None
        self._is_done = False  # set last: who sees it sees the result or the error, too
        self._guard = threading.RLock()

    def __repr__(self) -> str:
        return "<weft.Request of %s, %s>" % (self.operation, "done" if self._is_done else "running")

    def __reduce__(self) -> Any:
        raise TypeError("a weft.Request cannot be copied or pickled: it is an operation of this process")

    @property
    def is_done(self) -> bool:
        """Whether wait() or test() has seen its end; looks at nothing."""
        return self._is_done

    @property
    def result(self) -> Any:
        if not self._is_done:
            raise BusyError("the %s has not ended; wait() for it" % self.operation, operation=self.operation)
        if self._error is not None:
            raise self._error
        return Message(self._result) if isinstance(self._result, weft_message_t) else self._result

    def _end(self, error: Optional[Error] = None) -> None:
        if not self._is_done:  # a signal handler in the middle of a wait may have been first
            self._error = error
            self._keep = None
            self._is_done = True

    def _end_as(self, status: int, comm_handle: int) -> None:
        self._end(None if status == WEFT_OK else failure(status, self.operation, comm_handle))

    def _left(self) -> None:
        """Of _Alone."""
        if not self._handle and not self._is_done:  # an exception came between its end and our knowing how it ended
            self._end(Error("a signal handler raised when the %s had just ended; how, is not known" % self.operation,
                            operation=self.operation))

    def _is_running(self, comm_handle: Optional[int]) -> bool:
        if comm_handle is None:  # closing ended it
            self._handle = c_void_p()
            self._end(InvalidError("the communicator was closed before the %s was done" % self.operation,
                                   operation=self.operation))
        return not self._is_done

    def wait(self, timeout: Optional[float] = None) -> Any:
        """Waits for the end, at most timeout seconds, and returns result. StillRunning: the wait is over, it is not."""
        if self._is_done:
            return self.result
        with _Alone(self) as comm_handle:
            if self._is_running(comm_handle):
                assert comm_handle is not None
                reference = byref(self._handle)
                status = wait_in_slices(lambda ms: lib.weft_wait(reference, ms), lambda: self._handle, timeout)
                if status == WEFT_ERR_TIMEOUT and self._handle:
                    raise StillRunning("the %s goes on; it has not ended within %g s" % (self.operation, timeout or 0),
                                       operation=self.operation)
                self._end_as(status, comm_handle)
        return self.result

    def test(self) -> bool:
        """Whether it has ended; drives it on, does not block. Raises what it failed with."""
        if not self._is_done:
            with _Alone(self) as comm_handle:
                if self._is_running(comm_handle):
                    assert comm_handle is not None
                    is_done = c_int()
                    status = lib.weft_test(byref(self._handle), byref(is_done))
                    if not is_done.value and status == WEFT_OK:
                        return False
                    self._end_as(status, comm_handle)
        if self._error is not None:
            raise self._error
        return True

    def cancel(self) -> bool:
        """True: nothing has happened and nothing will. False: too late, wait for it."""
        if self._is_done:
            return False
        with _Alone(self) as comm_handle:
            if not self._is_running(comm_handle):
                return False
            status = lib.weft_cancel(byref(self._handle))
            if status == WEFT_ERR_BUSY:
                return False
            check(status, "cancel", comm_handle)
            self._end(InvalidError("the %s was cancelled" % self.operation, operation=self.operation))
        return True

    def set_timeout(self, seconds: Optional[float]) -> None:
        """How long it may take from now on; the communicator fails when it takes longer."""
        with _Alone(self) as comm_handle:
            if self._is_running(comm_handle):
                check(lib.weft_request_set_timeout(self._handle, limit(seconds)), "set_timeout", comm_handle)

    def __del__(self) -> None:
        if self._handle:
            self._comm._adopt(self._handle, self._keep)


def wait_all(requests: Sequence[Request], timeout: Optional[float] = None) -> List[Any]:
    """Waits for all of them, at most timeout seconds; their results. Raises the first failure once all have ended, with
    its place in the list as `index`."""
    requests = list(requests)
    end = math.inf if timeout is None else time.monotonic() + _checks.seconds(timeout)
    failed: Optional[Error] = None
    for at, request in enumerate(requests):
        try:
            request.wait(None if timeout is None else max(0.0, end - time.monotonic()))
        except Error as error:
            if failed is None:
                failed, error.index = error, at
    if failed is not None:
        raise failed
    return [request.result for request in requests]


def wait_any(requests: Sequence[Request], timeout: Optional[float] = None) -> Tuple[int, Any]:
    """Waits for one that has not ended yet: (its index, its result). (-1, None): all had ended before. The error of one
    that failed has its `index`."""
    requests = list(requests)
    with contextlib.ExitStack() as stack:
        comms = {}
        for request in requests:
            if not request._is_done:
                comm_handle = stack.enter_context(_Alone(request))
                if request._is_running(comm_handle):
                    comms[request] = comm_handle
        at = _wait_for_one(requests, comms, timeout) if comms else -1
    if at < 0:
        return -1, None
    try:
        return at, requests[at].result
    except Error as error:
        error.index = at
        raise


def _wait_for_one(requests: List[Request], comms: Dict[Request, Any], timeout: Optional[float]) -> int:
    """Of wait_any(): which one ended. comms: the handles of the communicators of those that run."""
    handles = (weft_request_t * len(requests))()
    index = c_int(-1)

    def step(ms: int) -> int:
        # anew for each slice: a signal handler may have waited for one of them since
        handles[:] = [request._handle.value for request in requests]
        try:
            return lib.weft_wait_any(handles, len(handles), ms, byref(index))
        finally:
            if index.value >= 0:
                requests[index.value]._handle.value = None

    status = wait_in_slices(step, lambda: index.value < 0, timeout)
    if index.value >= 0:
        ended = requests[index.value]
        ended._end_as(status, comms[ended])
    elif status == WEFT_ERR_TIMEOUT:
        raise StillRunning("none of %d operations has ended within %g s" % (len(comms), timeout or 0),
                           operation="wait_any")
    else:
        check(status, "wait_any", next(iter(comms.values())))
    return index.value


class Operation:
    """A collective that is made ready once and started many times, with the same arrays: comm.prepare makes it.
    Calling it starts it and waits. One thread at a time, as a Request."""

    def __init__(self, comm: Comm, operation: str, call: Any, result: Any, keep: Any):
        self.operation = operation
        self._comm = comm
        self._handle = weft_op_t()
        self._result = result
        self._keep: Any = (keep, call)
        self._call = byref(call)
        self._is_running = False
        self._guard = threading.RLock()
        with comm._used(operation) as comm_handle:
            check(lib.weft_op_create(comm_handle, byref(call), byref(self._handle)), operation, comm_handle)

    def __repr__(self) -> str:
        return "<weft.Operation %s, %s>" % (self.operation, "running" if self._is_running else "ready")

    def __reduce__(self) -> Any:
        raise TypeError("a weft.Operation cannot be copied or pickled: it belongs to a communicator of this process")

    def _left(self) -> None:
        """Of _Alone."""

    def _check_open(self, comm_handle: Optional[int]) -> int:
        if comm_handle is None or not self._handle:
            raise InvalidError("the operation or its communicator was closed", operation=self.operation)
        return comm_handle

    def start(self) -> Operation:
        """Begins it; the arrays are Weft's until wait() has returned."""
        with _Alone(self) as comm_handle:
            comm_handle = self._check_open(comm_handle)
            check(interruptible(self._comm, lib.weft_op_start, self._handle), self.operation, comm_handle)
            self._is_running = True
        return self

    def wait(self, timeout: Optional[float] = None) -> Any:
        """Waits for the end and returns the array with the result. StillRunning as Request.wait()."""
        with _Alone(self) as comm_handle:
            comm_handle = self._check_open(comm_handle)

            def is_working() -> bool:
                return lib.weft_comm_status(comm_handle) == WEFT_OK

            status = wait_in_slices(lambda ms: lib.weft_op_wait(self._handle, ms), is_working, timeout)
            if status == WEFT_ERR_TIMEOUT and is_working():
                raise StillRunning("the %s goes on; it has not ended within %g s" % (self.operation, timeout or 0),
                                   operation=self.operation)
            self._is_running = False
            check(status, self.operation, comm_handle)
        return self._result

    def __call__(self) -> Any:
        """Start and wait in one, which is faster than both."""
        if not self._guard.acquire(blocking=False):
            raise _of_another_thread(self)
        try:
            if self._is_running:
                raise BusyError("the %s still runs; wait for it first" % self.operation, operation=self.operation)
            if not self._handle:
                raise InvalidError("the operation was closed", operation=self.operation)
            blocking(self._comm, self.operation, lib.weft_collective, self._call, None)
        finally:
            self._guard.release()
        return self._result

    def close(self) -> None:
        """Gives up what it holds; BusyError while it runs."""
        with _Alone(self):
            if self._handle:
                check(lib.weft_op_destroy(self._handle), "close", None)
                self._handle = weft_op_t()
                self._keep = None

    def __enter__(self) -> Operation:
        return self

    def __exit__(self, kind, error, trace) -> None:
        self.close()

    def __del__(self) -> None:
        if self._handle:
            self._comm._adopt_op(self._handle, self._keep)


class Orphans:
    """What runs on after nobody waits for it any more: its arrays live here until it has ended."""

    def __init__(self) -> None:
        # (has it ended?, what it uses, is it an operation); taken from one end and put to the other, so that two
        # threads, or the garbage collector in the middle of it, never look after the same one
        self._running: Deque[Tuple[Callable[[], bool], Any, bool]] = collections.deque()

    def adopt(self, request: c_void_p, keep: Any) -> None:
        self._running.append((lambda: is_ended(request), keep, False))

    def adopt_op(self, op: c_void_p, keep: Any) -> None:
        self._running.append((lambda: lib.weft_op_destroy(op) != WEFT_ERR_BUSY, keep, True))

    def sweep(self) -> None:
        """Lets go of what has ended; of somebody who is inside."""
        for _ in range(len(self._running)):
            try:
                orphan = self._running.popleft()
            except IndexError:  # another thread is at it
                return
            if not orphan[0]():
                self._running.append(orphan)

    def end(self) -> None:
        """After the communicator was closed: requests went with it, operations are left."""
        while self._running:
            has_ended, _, is_op = self._running.popleft()
            if is_op:
                has_ended()

    def __len__(self) -> int:
        return len(self._running)
