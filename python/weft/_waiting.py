# SPDX-License-Identifier: Apache-2.0
"""Waiting that Ctrl-C can end. Python runs its signal handlers in the main thread, between calls into C. So the main
thread waits for requests in slices; says which communicator it is in when it makes a blocking call (_interrupt.py); and
leaves to a helper thread what neither fits. Other threads just wait.
"""
from __future__ import annotations

import math
import threading
import time
from ctypes import byref, c_void_p
from typing import TYPE_CHECKING, Any, Callable, List, Optional, Tuple, TypeVar

from . import _capi, _checks, _interrupt
from ._capi import WEFT_ERR_TIMEOUT, WEFT_NO_LIMIT, WEFT_OK, lib
from ._errors import InvalidError, failure, last_text
from ._interrupt import current

if TYPE_CHECKING:
    from ._comm import Comm

Result = TypeVar("Result")

SLICE_MS = 100  # the longest that Ctrl-C waits for a request

_get_ident = threading.get_ident


def milliseconds(seconds: Optional[float]) -> int:
    """For waits: None is as long as the operation may take."""
    if seconds is None:
        return WEFT_NO_LIMIT
    number = _checks.seconds(seconds)
    return WEFT_NO_LIMIT if number == math.inf else min(math.ceil(max(number, 0.0) * 1000), WEFT_NO_LIMIT - 1)


def limit(seconds: Optional[float]) -> int:
    """For deadlines: None is 0, the communicator's."""
    if seconds is None:
        return 0
    if _checks.seconds(seconds) < 0:  # -1 is "for ever" elsewhere; here it would end the communicator at once
        raise InvalidError("a timeout of %g s; give the seconds that it may take, None for the communicator's own or "
                           "math.inf" % seconds)
    return max(1, milliseconds(seconds))


def wait_in_slices(step: Callable[[int], int], is_running: Callable[[], Any], timeout: Optional[float]) -> int:
    """Calls step(timeout_ms), in the main thread again and again, until it ends or the time is over."""
    if _get_ident() != _interrupt.MAIN:
        return step(milliseconds(timeout))
    end = math.inf if timeout is None else time.monotonic() + _checks.seconds(timeout)
    while True:
        left = math.ceil(1000 * max(0.0, min(SLICE_MS / 1000, end - time.monotonic())))
        status = step(left)
        if status != WEFT_ERR_TIMEOUT or not is_running() or time.monotonic() >= end:
            return status


def noted(outcome: List[int], function: Callable[..., int], *arguments: Any) -> int:
    """function(*arguments), whose status is in outcome also when a signal handler raises right after it. (Python runs
    handlers after calls that it makes itself; this one list.extend() makes, which puts the status away before.)"""
    outcome.extend(map(function, *[(argument,) for argument in arguments]))
    return outcome[-1]


def in_helper(call: Callable[[], int]) -> Tuple[int, Optional[str]]:
    """call() in a thread of its own when this is the main thread, which Ctrl-C can then leave; its status and text."""
    if _get_ident() != _interrupt.MAIN:
        return call(), None
    outcome: List[Any] = []

    def work():
        try:
            status = call()
            outcome.append((status, last_text() if status != WEFT_OK else None))
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=work, name="weft-helper", daemon=True)
    thread.start()
    thread.join()
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]


# Who makes a call on a communicator is written down in comm._inside, so that nobody closes it meanwhile. A call enters
# first and then looks at the handle; who closes takes the handle away and then looks who is inside: one of them sees the
# other. A signal handler may raise after any call that Python makes, so what must be undone is done after `try` and
# without a call, and undone by a single one, of what is at hand; `with` and methods of ours would leave gaps.

def using(comm: Comm, operation: str, action: Callable[[int], Result]) -> Result:
    """action(handle), while nobody closes the communicator."""
    inside = comm._inside
    leave = inside.pop
    token = (comm,)
    key = id(token)
    try:
        inside[key] = token
        handle = comm._handle
        return action(handle if handle is not None else comm._handle_after_close(token, operation))
    finally:
        leave(key, None)


def glancing(comm: Comm, action: Callable[[Optional[int]], None]) -> None:
    """The same for finalizers, which run wherever the garbage collector likes and so wait for nobody; a handle of None:
    it was closed, or somebody is closing it."""
    inside = comm._inside
    leave = inside.pop
    token = (comm,)
    key = id(token)
    try:
        inside[key] = token
        action(comm._handle)
    finally:
        leave(key, None)


def interruptible(comm: Comm, function: Callable[..., int], *arguments: Any) -> int:
    """A call that may block, of somebody who is inside; returns its status. Ctrl-C aborts the communicator."""
    if _get_ident() != _interrupt.MAIN:
        return function(*arguments)
    try:
        current[0] = (comm,)
        return function(*arguments)
    finally:
        current[0] = None


def blocking(comm: Comm, operation: str, function: Callable[..., int], *arguments: Any) -> None:
    """function(handle, *arguments), which may block: using() and interruptible() in one, as most calls go through here.
    """
    inside = comm._inside
    leave = inside.pop
    token = (comm,)
    key = id(token)
    is_main = _get_ident() == _interrupt.MAIN
    try:
        inside[key] = token
        handle = comm._handle
        if handle is None:
            handle = comm._handle_after_close(token, operation)
        if is_main:
            current[0] = token
        status = function(handle, *arguments)
        if status != WEFT_OK:
            raise failure(status, operation, handle)
    finally:
        try:
            leave(key, None)
        finally:
            if is_main:
                current[0] = None


def is_ended(request: c_void_p) -> bool:
    """Has the request, which nobody waits for any more, come to its end?"""
    is_done = _capi.c_int()
    status = lib.weft_test(byref(request), byref(is_done))
    return bool(is_done.value) or status != WEFT_OK or not request
