# SPDX-License-Identifier: Apache-2.0
"""Operations that were begun and not finished, and operations that are made ready once and started often.

Both keep the arrays they use alive. One that is dropped while it runs is handed to its communicator, which keeps the
arrays until the C library is done with them.
"""
from __future__ import annotations

import collections
import itertools
import math
import threading
import time
from ctypes import byref, c_int, c_void_p
from typing import TYPE_CHECKING, Any, Callable, Deque, Dict, List, Optional, Sequence, Tuple, TypeVar, Union

from . import _checks
from ._capi import (WEFT_ERR_BUSY, WEFT_ERR_FORKED, WEFT_ERR_TIMEOUT, WEFT_OK, lib, weft_message_t, weft_op_t,
                    weft_request_t)
from ._errors import BusyError, Error, InvalidError, StillRunning, check, failure
from ._waiting import blocking, interruptible, is_ended, limit, noted, wait_in_slices

if TYPE_CHECKING:
    from ._comm import Comm

Result = TypeVar("Result")
_get_ident = threading.get_ident


class Message:
    """What a receive or a probe found: source, tag and nbytes."""
    __slots__ = ("source", "tag", "nbytes")

    def __init__(self, found: weft_message_t):
        self.source = found.source
        self.tag = found.tag
        self.nbytes = found.len

    def __repr__(self) -> str:
        return "Message(source=%d, tag=%d, nbytes=%d)" % (self.source, self.tag, self.nbytes)


class Kept:
    """What an operation uses: its communicator holds it until it is let go of, whatever becomes of the rest. (A signal
    handler that raises in the middle of a finalizer ends it there.)"""
    __slots__ = ("_held_by", "_what")

    def __init__(self, comm: Comm, what: Any):
        self._held_by = comm._kept
        self._what = what
        self._held_by[id(self)] = self

    def let_go(self) -> None:
        self._what = None
        self._held_by.pop(id(self), None)


# One thread at a time uses a request or an operation: it is written down in _users, and only the first one there may go
# on. The same thread may come again, in a signal handler. The order of everything here is as _waiting.py says.

def _alone(thing: Union[Request, Operation], action: Callable[[Optional[int]], Result]) -> Result:
    """action(the communicator's handle), while this thread alone uses the thing and nobody closes the communicator;
    a handle of None: it was closed before."""
    comm, users = thing._comm, thing._users
    leave, finish = comm._inside.pop, users.pop
    ident = _get_ident()
    token = (thing,)
    key = id(token)
    try:
        users[key] = ident
        if len(users) > 1 and list(users.values())[0] != ident:
            raise _of_another_thread(thing)
        comm._inside[key] = token
        handle = comm._handle
        return action(handle if handle is not None else comm._handle_or_none(token))
    finally:
        try:
            leave(key, None)
        finally:
            finish(key, None)


def _all_alone(requests: List[Request], action: Callable[[List[Optional[int]]], Result]) -> Result:
    """The same for several."""
    ident = _get_ident()
    token = (requests,)
    key = id(token)
    marks = [request._users for request in requests] + [request._comm._inside for request in requests]
    undo, run = map(dict.pop, marks, itertools.repeat(key), itertools.repeat(None)), list
    try:
        for request in requests:
            request._users[key] = ident
            if list(request._users.values())[0] != ident:
                raise _of_another_thread(request)
            request._comm._inside[key] = token
        return action([request._comm._handle if request._comm._handle is not None
                       else request._comm._handle_or_none(token) for request in requests])
    finally:
        run(undo)


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
    _handle: Any = None

    def __init__(self, comm: Comm, operation: str, result: Any, keep: Any):
        self.operation = operation
        self._comm = comm
        self._result = result
        self._keep = Kept(comm, keep)
        self._any: Any = None  # (handles, place, statuses) of the latest wait_any()
        self._error: Optional[Error] = None
        self._outcome: List[int] = []  # statuses of waits; the last one is its own once the handle is NULL
        self._is_done = False  # set last: who sees it sees the result or the error, too
        self._users: Dict[int, int] = {}  # threads that are in a call on it: the first one may be
        self._handle = c_void_p()

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
            self._is_done = True
            self._keep.let_go()

    def _end_as(self, status: int, comm_handle: Optional[int]) -> None:
        self._end(None if status == WEFT_OK else failure(status, self.operation, comm_handle))

    def _is_running(self, comm_handle: Optional[int]) -> bool:
        if self._any is not None and self._any[0][self._any[1]] is None:  # it was the one that ended
            self._outcome = self._any[2]
            self._handle.value = None
        if comm_handle is None:  # closing ended it
            self._handle = c_void_p()
            self._end(InvalidError("the communicator was closed before the %s was done" % self.operation,
                                   operation=self.operation))
        elif not self._handle and self._outcome:  # a signal handler raised when it had just ended
            self._end_as(self._outcome[-1], comm_handle)
        return not self._is_done

    def wait(self, timeout: Optional[float] = None) -> Any:
        """Waits for the end, at most timeout seconds, and returns result. StillRunning: the wait is over, it is not."""
        if not self._is_done:
            _alone(self, lambda comm_handle: self._wait(comm_handle, timeout))
        return self.result

    def _wait(self, comm_handle: Optional[int], timeout: Optional[float]) -> None:
        if not self._is_running(comm_handle):
            return
        reference = byref(self._handle)
        status = wait_in_slices(lambda ms: noted(self._outcome, lib.weft_wait, reference, ms), lambda: self._handle,
                                timeout)
        if status == WEFT_ERR_TIMEOUT and self._handle:
            raise StillRunning("the %s goes on; it has not ended within %g s" % (self.operation, timeout or 0),
                               operation=self.operation)
        self._end_as(status, comm_handle)

    def test(self) -> bool:
        """Whether it has ended; drives it on, does not block. Raises what it failed with."""
        if not self._is_done and not _alone(self, self._test):
            return False
        if self._error is not None:
            raise self._error
        return True

    def _test(self, comm_handle: Optional[int]) -> bool:
        if self._is_running(comm_handle):
            is_done = c_int()
            status = noted(self._outcome, lib.weft_test, byref(self._handle), byref(is_done))
            if not is_done.value and status == WEFT_OK:
                return False
            self._end_as(status, comm_handle)
        return True

    def cancel(self) -> bool:
        """True: nothing has happened and nothing will. False: too late, wait for it."""
        return not self._is_done and _alone(self, self._cancel)

    def _cancel(self, comm_handle: Optional[int]) -> bool:
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
        def set_it(comm_handle: Optional[int]) -> None:
            if self._is_running(comm_handle):
                check(lib.weft_request_set_timeout(self._handle, limit(seconds)), "set_timeout", comm_handle)

        _alone(self, set_it)

    def __del__(self) -> None:
        if self._handle:
            self._comm._adopt(self)
        elif self._handle is not None:
            self._keep.let_go()  # it was never begun, or is over


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
    open_ones = [request for request in requests if not request._is_done]

    def wait(handles: List[Optional[int]]) -> int:
        comms = {request: handle for request, handle in zip(open_ones, handles) if request._is_running(handle)}
        return _wait_for_one(requests, comms, timeout) if comms else -1

    at = _all_alone(open_ones, wait)
    if at < 0:
        return -1, None
    try:
        return at, requests[at].result
    except Error as error:
        error.index = at
        raise


def _wait_for_one(requests: List[Request], comms: Dict[Request, Any], timeout: Optional[float]) -> int:
    """Of wait_any(): which one ended. comms: the handles of the communicators of those that run."""
    index = c_int(-1)
    places: Dict[Request, int] = {}
    for at, request in enumerate(requests):
        if request in comms:
            places.setdefault(request, at)  # of one that is there twice, the first

    def step(ms: int) -> int:
        # anew for each slice: a signal handler may have waited for one of them since
        handles = (weft_request_t * len(requests))()
        outcome: List[int] = []
        for request, at in places.items():
            handles[at] = request._handle.value
            request._any = (handles, at, outcome) if handles[at] is not None else None
        return noted(outcome, lib.weft_wait_any, handles, len(handles), ms, byref(index))

    status = wait_in_slices(step, lambda: index.value < 0, timeout)
    if index.value >= 0:
        ended = requests[index.value]
        ended._is_running(comms[ended])
    elif status == WEFT_ERR_TIMEOUT:
        raise StillRunning("none of %d operations has ended within %g s" % (len(comms), timeout or 0),
                           operation="wait_any")
    else:
        check(status, "wait_any", next(iter(comms.values())))
    return index.value


class Operation:
    """A collective that is made ready once and started many times, with the same arrays: comm.prepare makes it.
    Calling it starts it and waits. One thread at a time, as a Request."""
    _handle: Any = None

    def __init__(self, comm: Comm, operation: str, call: Any, result: Any, keep: Any):
        self.operation = operation
        self._comm = comm
        self._result = result
        self._keep = Kept(comm, (keep, call))
        self._call = byref(call)
        self._is_running = False
        self._outcome: List[int] = []  # statuses of waits since it was started
        self._users: Dict[int, int] = {}
        self._handle = weft_op_t()
        comm._call(operation, lib.weft_op_create, byref(call), byref(self._handle))

    def __repr__(self) -> str:
        return "<weft.Operation %s, %s>" % (self.operation, "running" if self._is_running else "ready")

    def __reduce__(self) -> Any:
        raise TypeError("a weft.Operation cannot be copied or pickled: it belongs to a communicator of this process")

    def _check_open(self, comm_handle: Optional[int]) -> None:
        if comm_handle is None or not self._handle:
            raise InvalidError("the operation or its communicator was closed", operation=self.operation)

    def start(self) -> Operation:
        """Begins it; the arrays are Weft's until wait() has returned."""
        _alone(self, self._start)
        return self

    def _start(self, comm_handle: Optional[int]) -> None:
        self._check_open(comm_handle)
        check(interruptible(self._comm, lib.weft_op_start, self._handle), self.operation, comm_handle)
        self._is_running = True

    def _wait_once(self, ms: int) -> int:
        if self._outcome and self._outcome[-1] != WEFT_ERR_TIMEOUT:  # a signal handler raised when it had just ended
            return self._outcome[-1]
        return noted(self._outcome, lib.weft_op_wait, self._handle, ms)

    def wait(self, timeout: Optional[float] = None) -> Any:
        """Waits for the end and returns the array with the result. StillRunning as Request.wait()."""
        _alone(self, lambda comm_handle: self._wait(comm_handle, timeout))
        return self._result

    def _wait(self, comm_handle: Optional[int], timeout: Optional[float]) -> None:
        def is_working() -> bool:
            return lib.weft_comm_status(comm_handle) == WEFT_OK

        self._check_open(comm_handle)
        status = wait_in_slices(self._wait_once, is_working, timeout)
        if status == WEFT_ERR_TIMEOUT and is_working():
            raise StillRunning("the %s goes on; it has not ended within %g s" % (self.operation, timeout or 0),
                               operation=self.operation)
        self._is_running = False
        self._outcome = []
        check(status, self.operation, comm_handle)

    def __call__(self) -> Any:
        """Start and wait in one, which is faster than both."""
        users = self._users
        finish = users.pop
        ident = _get_ident()
        token = (self,)
        key = id(token)
        try:  # _alone(), spelled out for speed
            users[key] = ident
            if len(users) > 1 and list(users.values())[0] != ident:
                raise _of_another_thread(self)
            if self._is_running:
                raise BusyError("the %s still runs; wait for it first" % self.operation, operation=self.operation)
            if not self._handle:
                self._check_open(None)
            blocking(self._comm, self.operation, lib.weft_collective, self._call, None)
        finally:
            finish(key, None)
        return self._result

    def close(self) -> None:
        """Gives up what it holds; BusyError while it runs."""
        _alone(self, self._destroy)

    def _destroy(self, _: Any) -> None:
        if self._handle:
            check(lib.weft_op_destroy(self._handle), "close", None)
            self._handle = weft_op_t()
            self._keep.let_go()

    def __enter__(self) -> Operation:
        return self

    def __exit__(self, kind, error, trace) -> None:
        self.close()

    def __del__(self) -> None:
        if self._handle:
            self._comm._adopt_op(self)
        elif self._handle is not None:
            self._keep.let_go()  # it was never made


class Orphans:
    """What runs on after nobody waits for it any more: its arrays live here until it has ended."""

    def __init__(self) -> None:
        # (has it ended?, what it uses, is it an operation); taken from one end and put to the other, so that two
        # threads, or the garbage collector in the middle of it, never look after the same one
        self._running: Deque[Tuple[Callable[[], bool], Kept, bool]] = collections.deque()

    def adopt(self, request: c_void_p, keep: Kept) -> None:
        self._running.append((lambda: is_ended(request), keep, False))

    def adopt_op(self, op: c_void_p, keep: Kept) -> None:
        self._running.append((lambda: lib.weft_op_destroy(op) != WEFT_ERR_BUSY, keep, True))

    def sweep(self) -> None:
        """Lets go of what has ended; of somebody who is inside."""
        for _ in range(len(self._running)):
            try:
                orphan = self._running.popleft()
            except IndexError:  # another thread is at it
                return
            if orphan[0]():
                orphan[1].let_go()
            else:
                self._running.append(orphan)

    def end(self) -> None:
        """After the communicator was closed: requests went with it, operations are left."""
        while self._running:
            has_ended, _, is_op = self._running.popleft()
            if is_op:
                has_ended()

    def __len__(self) -> int:
        return len(self._running)
