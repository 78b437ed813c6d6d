# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C while the main thread waits inside the C library.

Python notes a signal and runs its handler when the main thread is back from C, which may be at the deadline only. So
Python is asked to also write a byte into a socket (signal.set_wakeup_fd), and a thread that sleeps there aborts the
communicator the main thread waits on: the call returns, Python raises KeyboardInterrupt, and the other ranks are told
why. Only where Ctrl-C means KeyboardInterrupt: a handler of the program's own is none of our business. Where the
program (or asyncio) uses the wakeup descriptor itself, Ctrl-C waits until the call returns.

Requests are waited for in slices instead, so that nothing is lost there.
"""
from __future__ import annotations

import atexit
import os
import signal
import socket
import threading
import time
from typing import Any, Dict, List, Optional, Tuple

from ._capi import lib

GRACE_S = 0.2  # a call that returns by itself within this time is left alone

MAIN = threading.main_thread().ident  # read as _interrupt.MAIN: it changes in a child that another thread forked

# What the main thread is in: (communicator,), a new tuple for each call, so that `is` tells calls apart.
current: List[Optional[Tuple[Any]]] = [None]

# Held while what the main thread waits on is aborted, and while a communicator is closed: never both at once. The
# garbage collector or a signal handler may close one in the middle of either, so a thread can take it twice.
ending = threading.RLock()

_state: Dict[str, Any] = {"thread": None, "writer": None}


def _free_main_thread(reader: socket.socket) -> None:
    """Of the sleeping thread: a byte is the number of a signal."""
    with reader:
        while True:
            numbers = reader.recv(64)
            if not numbers:
                return
            if signal.SIGINT in numbers and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                _end_call()


def _end_call() -> None:
    """Aborts what the main thread waits on, if it is still in the same call after a moment."""
    token = current[0]
    if token is None:
        return
    time.sleep(GRACE_S)
    with ending:
        if current[0] is token:
            lib.weft_abort(token[0]._handle, b"interrupted (SIGINT)")


def _take_wakeup_fd(fd: int) -> bool:
    try:
        others = signal.set_wakeup_fd(fd, warn_on_full_buffer=False)
    except ValueError:  # in an interpreter that hears no signals
        return False
    if others not in (-1, fd):  # somebody has use for it already
        signal.set_wakeup_fd(others)
    return others in (-1, fd)


def watch() -> None:
    """Begins to look after Ctrl-C; called whenever a communicator is made. Again, when an event loop that has ended
    since took the descriptor and gave it back to nobody."""
    if threading.get_ident() != MAIN:
        return
    if _state["writer"] is not None:
        _take_wakeup_fd(_state["writer"].fileno())
        return
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    if not _take_wakeup_fd(writer.fileno()):
        reader.close()
        writer.close()
        return
    thread = threading.Thread(target=_free_main_thread, args=(reader,), name="weft-interrupt", daemon=True)
    thread.start()
    _state.update(thread=thread, writer=writer)


def _forget_in_child() -> None:
    """A forked child's signals are not its parent's."""
    global MAIN, ending
    MAIN = threading.get_ident()
    ending = threading.RLock()  # the old one may be held by a thread that the child has not
    writer = _state["writer"]
    current[0] = None
    if writer is not None:
        _give_wakeup_fd_back(writer)


def _give_wakeup_fd_back(writer: socket.socket) -> None:
    used = signal.set_wakeup_fd(-1)
    if used not in (-1, writer.fileno()):  # somebody else's by now
        signal.set_wakeup_fd(used)
    writer.close()
    _state.update(thread=None, writer=None)


def _stop() -> None:
    """At the end of the interpreter, so that nothing is left to warn of."""
    thread, writer = _state["thread"], _state["writer"]
    if writer is not None:
        _give_wakeup_fd_back(writer)
        thread.join(1.0)


os.register_at_fork(after_in_child=_forget_in_child)
atexit.register(_stop)
