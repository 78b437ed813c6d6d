# SPDX-License-Identifier: Apache-2.0
"""Operations that were begun and not finished, and operations that are made ready once and started often.

Both keep the arrays they use alive. One that is dropped while it runs is handed to its communicator, which keeps the
arrays until the C library is done with them.
"""
from __future__ import annotations

import collections
import time
from ctypes import byref, c_int, c_void_p
from typing import TYPE_CHECKING, Any, Callable, Deque, List, Optional, Sequence, Tuple

from ._capi import WEFT_ERR_BUSY, WEFT_ERR_TIMEOUT, WEFT_OK, lib, weft_message_t, weft_op_t, weft_request_t
from ._errors import BusyError, Error, InvalidError, StillRunning, check, failure
from ._waiting import blocking, is_ended, limit, wait_in_slices

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


class Request:
    """An operation on its way. wait() or test() it; the arrays are Weft's until then.

    result  what the blocking call would have returned (an array, a Message), once it is done
    """

    def __init__(self, comm: Comm, operation: str, result: Any, keep: Any):
        self.operation = operation
        self._comm = comm
        self._handle = c_void_p()
        self._result = result
        self._keep = keep
        self._error: Optional[Error] = None

    def __repr__(self) -> str:
        return "<weft.Request of %s, %s>" % (self.operation, "running" if self._handle else "done")

    @property
    def is_done(self) -> bool:
        """Whether wait() or test() has seen its end; looks at nothing."""
        return not self._handle

    @property
    def result(self) -> Any:
        if self._handle:
            raise BusyError("the %s has not ended; wait() for it" % self.operation, operation=self.operation)
        if self._error is not None:
            raise self._error
        return Message(self._result) if isinstance(self._result, weft_message_t) else self._result

    def _end(self, status: int, text: Optional[str] = None) -> None:
        self._keep = None
        if status != WEFT_OK:
            self._error = failure(status, self.operation, self._comm._handle, text)

    def _check_comm(self) -> None:
        if self._comm._handle is None and self._handle:
            self._handle = c_void_p()  # closing ended it
            self._keep = None
            self._error = InvalidError("the communicator was closed before the %s was done" % self.operation,
                                       operation=self.operation)

    def wait(self, timeout: Optional[float] = None) -> Any:
        """Waits for the end, at most timeout seconds, and returns result. StillRunning: the wait is over, it is not."""
        self._check_comm()
        if self._handle:
            reference = byref(self._handle)
            with self._comm._used():
                status = wait_in_slices(lambda ms: lib.weft_wait(reference, ms), lambda: self._handle, timeout)
            if status == WEFT_ERR_TIMEOUT and self._handle:
                raise StillRunning("the %s goes on; it has not ended within %g s" % (self.operation, timeout or 0),
                                   operation=self.operation)
            self._end(status)
        return self.result

    def test(self) -> bool:
        """Whether it has ended; drives it on, does not block. Raises what it failed with."""
        self._check_comm()
        if self._handle:
            is_done = c_int()
            status = lib.weft_test(byref(self._handle), byref(is_done))
            if not is_done.value and status == WEFT_OK:
                return False
            self._end(status)
        if self._error is not None:
            raise self._error
        return True

    def cancel(self) -> bool:
        """True: nothing has happened and nothing will. False: too late, wait for it."""
        self._check_comm()
        if not self._handle:
            return False
        status = lib.weft_cancel(byref(self._handle))
        if status == WEFT_ERR_BUSY:
            return False
        check(status, "cancel", self._comm._handle)
        self._keep = None
        self._error = InvalidError("the %s was cancelled" % self.operation, operation=self.operation)
        return True

    def set_timeout(self, seconds: Optional[float]) -> None:
        """How long it may take from now on; the communicator fails when it takes longer."""
        self._check_comm()
        if self._handle:
            check(lib.weft_request_set_timeout(self._handle, limit(seconds)), "set_timeout", self._comm._handle)

    def __del__(self) -> None:
        if self._handle and self._comm._handle is not None:
            self._comm._adopt(self._handle, self._keep)


def wait_all(requests: Sequence[Request], timeout: Optional[float] = None) -> List[Any]:
    """Waits for all of them, at most timeout seconds; their results. Raises the first failure once all have ended."""
    end = None if timeout is None else time.monotonic() + timeout
    failed: Optional[Error] = None
    for request in requests:
        try:
            request.wait(None if end is None else max(0.0, end - time.monotonic()))
        except Error as error:
            failed = failed or error
    if failed is not None:
        raise failed
    return [request.result for request in requests]


def wait_any(requests: Sequence[Request], timeout: Optional[float] = None) -> Tuple[int, Any]:
    """Waits for one that has not ended yet: (its index, its result). (-1, None): all had ended before."""
    for request in requests:
        request._check_comm()
    handles = (weft_request_t * len(requests))(*[request._handle.value for request in requests])
    index = c_int(-1)
    running = [request for request in requests if request._handle]
    if not running:
        return -1, None
    with running[0]._comm._used():
        status = wait_in_slices(lambda ms: lib.weft_wait_any(handles, len(handles), ms, byref(index)),
                                lambda: index.value < 0, timeout)
    if index.value < 0:
        if status == WEFT_ERR_TIMEOUT:
            raise StillRunning("none of %d operations has ended within %g s" % (len(running), timeout or 0),
                               operation="wait_any")
        check(status, "wait_any", running[0]._comm._handle)
        return -1, None
    ended = requests[index.value]
    ended._handle = c_void_p(handles[index.value])
    ended._end(status)
    return index.value, ended.result


class Operation:
    """A collective that is made ready once and started many times, with the same arrays: comm.prepare makes it.
    Calling it starts it and waits."""

    def __init__(self, comm: Comm, operation: str, call: Any, result: Any, keep: Any):
        self.operation = operation
        self._comm = comm
        self._handle = weft_op_t()
        self._result = result
        self._keep: Any = (keep, call)
        self._call = byref(call)
        self._is_running = False
        check(lib.weft_op_create(comm._handle, byref(call), byref(self._handle)), operation, comm._handle)

    def __repr__(self) -> str:
        return "<weft.Operation %s, %s>" % (self.operation, "running" if self._is_running else "ready")

    def _check_comm(self) -> None:
        if self._comm._handle is None or not self._handle:
            raise InvalidError("the operation or its communicator was closed", operation=self.operation)

    def start(self) -> Operation:
        """Begins it; the arrays are Weft's until wait() has returned."""
        self._check_comm()
        check(blocking(self._comm, lib.weft_op_start, self._handle), self.operation, self._comm._handle)
        self._is_running = True
        return self

    def wait(self, timeout: Optional[float] = None) -> Any:
        """Waits for the end and returns the array with the result. StillRunning as Request.wait()."""
        self._check_comm()
        with self._comm._used():
            status = wait_in_slices(lambda ms: lib.weft_op_wait(self._handle, ms), self._comm._is_working, timeout)
        if status == WEFT_ERR_TIMEOUT and self._comm._is_working():
            raise StillRunning("the %s goes on; it has not ended within %g s" % (self.operation, timeout or 0),
                               operation=self.operation)
        self._is_running = False
        check(status, self.operation, self._comm._handle)
        return self._result

    def __call__(self) -> Any:
        """Start and wait in one, which is faster than both."""
        self._check_comm()
        if self._is_running:
            raise BusyError("the %s still runs; wait for it first" % self.operation, operation=self.operation)
        comm = self._comm
        check(blocking(comm, lib.weft_collective, comm._handle, self._call, None), self.operation, comm._handle)
        return self._result

    def close(self) -> None:
        """Gives up what it holds; BusyError while it runs."""
        if self._handle:
            check(lib.weft_op_destroy(self._handle), "close", None)
            self._handle = weft_op_t()
            self._keep = None

    def __enter__(self) -> Operation:
        return self

    def __exit__(self, kind, error, trace) -> None:
        self.close()

    def __del__(self) -> None:
        if self._handle and lib.weft_op_destroy(self._handle) == WEFT_ERR_BUSY:
            self._comm._adopt_op(self._handle, self._keep)


class Orphans:
    """What runs on after nobody waits for it any more: its arrays live here until it has ended."""

    def __init__(self) -> None:
        # (has it ended?, what it uses); taken from one end and put to the other, so that two threads, or the garbage
        # collector in the middle of it, never look after the same one
        self._running: Deque[Tuple[Callable[[], bool], Any]] = collections.deque()

    def adopt(self, request: c_void_p, keep: Any) -> None:
        if request and not is_ended(request):
            self._running.append((lambda: is_ended(request), keep))

    def adopt_op(self, op: c_void_p, keep: Any) -> None:
        self._running.append((lambda: lib.weft_op_destroy(op) != WEFT_ERR_BUSY, keep))

    def sweep(self) -> None:
        """Lets go of what has ended."""
        for _ in range(len(self._running)):
            try:
                orphan = self._running.popleft()
            except IndexError:  # another thread is at it
                return
            if not orphan[0]():
                self._running.append(orphan)

    def __len__(self) -> int:
        return len(self._running)
