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
from typing import Any, Callable, Optional, Tuple

from . import _capi
from ._capi import WEFT_ERR_TIMEOUT, WEFT_NO_LIMIT, WEFT_OK, lib
from ._errors import last_text
from ._interrupt import MAIN, current

SLICE_MS = 100  # the longest that Ctrl-C waits for a request

_get_ident = threading.get_ident


def milliseconds(seconds: Optional[float]) -> int:
    """For waits: None is as long as the operation may take."""
    if seconds is None or seconds == math.inf:
        return WEFT_NO_LIMIT
    return min(math.ceil(max(seconds, 0.0) * 1000), WEFT_NO_LIMIT - 1)


def limit(seconds: Optional[float]) -> int:
    """For deadlines: None is 0, the communicator's."""
    return 0 if seconds is None else max(1, milliseconds(seconds))


def wait_in_slices(step: Callable[[int], int], is_running: Callable[[], Any], timeout: Optional[float]) -> int:
    """Calls step(timeout_ms), in the main thread again and again, until it ends or the time is over."""
    if _get_ident() != MAIN:
        return step(milliseconds(timeout))
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        left = SLICE_MS if end is None else min(SLICE_MS, max(0, math.ceil((end - time.monotonic()) * 1000)))
        status = step(left)
        if status != WEFT_ERR_TIMEOUT or not is_running() or (end is not None and time.monotonic() >= end):
            return status


def in_helper(call: Callable[[], int]) -> Tuple[int, Optional[str]]:
    """call() in a thread of its own when this is the main thread, which Ctrl-C can then leave; its status and text."""
    if _get_ident() != MAIN:
        return call(), None
    outcome = []

    def work():
        status = call()
        outcome.append((status, last_text() if status != WEFT_OK else None))

    thread = threading.Thread(target=work, name="weft-helper", daemon=True)
    thread.start()
    thread.join()
    return outcome[0]


def blocking(comm, function: Callable[..., int], *arguments: Any) -> int:
    """A call that may block; returns its status. Nobody closes the communicator meanwhile."""
    inside = comm._inside
    inside.append(None)
    if _get_ident() != MAIN:
        try:
            return function(*arguments)
        finally:
            inside.pop()
    current[0] = (comm,)  # for Ctrl-C
    try:
        return function(*arguments)
    finally:
        current[0] = None
        inside.pop()


def is_ended(request: c_void_p) -> bool:
    """Has the request, which nobody waits for any more, come to its end?"""
    is_done = _capi.c_int()
    status = lib.weft_test(byref(request), byref(is_done))
    return bool(is_done.value) or status != WEFT_OK or not request
