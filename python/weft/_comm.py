# SPDX-License-Identifier: Apache-2.0
"""Communicators: a rank's handle on a job or on a part of it."""
from __future__ import annotations

import atexit
import itertools
import os
import threading
import time
import weakref
from ctypes import byref, c_int, c_void_p, create_string_buffer
from typing import Any, Callable, Dict, List, Optional, Union

from . import _checks, _interrupt
from ._capi import (WEFT_ID_TEXT_LEN, WEFT_OK, lib, weft_call_t, weft_comm_t, weft_config_t, weft_id_t, weft_mem_t)
from ._collectives import CODES, FIELDS, FUNCTIONS, Call, Collectives
from ._errors import BusyError, Error, InvalidError, check, closed, failure, last_text, verdict_on
from ._messages import ANY_SOURCE, ANY_TAG, Control, Message, Messages, probe
from ._onesided import OneSided
from ._requests import Kept, Operation, Orphans, Request
from ._waiting import blocking, glancing, in_helper, limit, noted, using

INT_MIN, INT_MAX = _checks.INT_MIN, _checks.INT_MAX
LOOK_S = 0.05  # longer than a call that does not wait is inside

_open_comms: weakref.WeakValueDictionary = weakref.WeakValueDictionary()
_numbers = itertools.count()


class Id:
    """Says where the root listens and proves membership: give Id.text to the other ranks where strangers cannot read.
    str() is for logs: it leaves the secret out."""

    def __init__(self, text: str):
        self._id = weft_id_t()
        check(lib.weft_id_parse(_checks.text("Id", "the id", text) or b"", byref(self._id)), "Id")

    @classmethod
    def create(cls, *, interface: Optional[str] = None) -> Id:
        """Makes one and opens the root's door at once. This process must also create() a communicator with it."""
        made = cls.__new__(cls)
        made._id = weft_id_t()
        check(lib.weft_id_create(byref(_config(None, None, interface)), byref(made._id)), "Id.create")
        return made

    def _print(self, function: Callable) -> str:
        text = create_string_buffer(WEFT_ID_TEXT_LEN)
        check(function(byref(self._id), text), "Id")
        return text.value.decode()

    @property
    def text(self) -> str:
        """The form to pass on, with the secret."""
        return self._print(lib.weft_id_print)

    def __str__(self) -> str:
        return self._print(lib.weft_id_print_public)

    def destroy(self) -> None:
        """Closes the door of an id that no communicator took."""
        lib.weft_id_destroy(byref(self._id))


def _config(timeout: Optional[float], start_timeout: Optional[float], interface: Optional[str]) -> weft_config_t:
    return weft_config_t(timeout_ms=limit(timeout), start_timeout_ms=limit(start_timeout),
                         interface=_checks.text("init", "interface", interface or None))


def _call_struct(operation: str, call: Call) -> weft_call_t:
    arguments, _, _, fields = call
    return weft_call_t(coll=CODES[operation], **dict(zip(FIELDS[operation], arguments)), **(fields or {}))


def _shape_call(operation: str, call: Call):
    """The C function, its arguments from the communicator to the request, and what must live until it is done."""
    arguments, _, keep, fields = call
    if fields is None:
        return FUNCTIONS[operation], arguments, keep
    struct = _call_struct(operation, call)
    return lib.weft_collective, (byref(struct),), (keep, struct)


class Begin(Collectives[Request], Messages[Request, Request]):
    """The same calls, begun only: each returns a Request at once, and its arrays are Weft's until that has ended."""

    def __init__(self, comm: Comm):
        self.__comm = comm

    def _comm(self) -> Comm:
        return self.__comm

    def _do(self, operation: str, call: Call) -> Request:
        comm = self.__comm
        function, arguments, keep = _shape_call(operation, call)
        request = Request(comm, operation, call[1], keep)
        comm._sweep()
        # the first collective of a communicator waits for all ranks, so this may block
        blocking(comm, operation, function, *arguments, byref(request._handle))
        return request

    def _do_message(self, operation: str, function: Any, arguments: tuple, result: Any, keep: Any) -> Request:
        comm = self.__comm
        request = Request(comm, operation, result, keep)
        comm._sweep()
        blocking(comm, operation, function, *arguments, byref(request._handle))
        return request


class Prepare(Collectives[Operation]):
    """The same collectives, made ready once (local, nothing is sent): each returns an Operation to start often."""

    def __init__(self, comm: Comm):
        self.__comm = comm

    def _comm(self) -> Comm:
        return self.__comm

    def _do(self, operation: str, call: Call) -> Operation:
        return Operation(self.__comm, operation, _call_struct(operation, call), call[1], call[2])


class Comm(Collectives[Any], Messages[None, Message], OneSided, Control):
    """A communicator. weft.init() and weft.create() make the first one.

    rank, ranks              who am I, of how many
    local_rank, local_ranks  the same among the ranks of this host

    `with` closes it at the end: after a meeting of all ranks when all went well; with an abort that tells the other
    ranks what happened when an exception passes.
    """

    def __init__(self, handle: c_void_p, parent: Optional[Comm] = None):
        self._handle: Optional[int] = handle.value
        self._parent = parent  # must be closed after this one, so it lives as long
        self._inside: Dict[int, Any] = {}  # who is in a call on it (_waiting.py): closing is refused
        self._closing = threading.RLock()  # held by who closes it
        self._is_closed = False
        self._is_dropped = False  # nobody holds it any more: to be closed after its parts
        self._lent = {}
        self._kept: Dict[int, Kept] = {}  # arrays of requests, operations and registered memory
        self._orphans = Orphans()
        self.rank = self._ask("weft_comm_rank")
        self.ranks = self._ask("weft_comm_ranks")
        local_rank, local_ranks = c_int(), c_int()
        check(lib.weft_comm_local(self._handle, byref(local_rank), byref(local_ranks)), "local", self._handle)
        self.local_rank, self.local_ranks = local_rank.value, local_ranks.value
        _open_comms[next(_numbers)] = self
        _interrupt.watch()

    def __repr__(self) -> str:
        return "<weft.Comm rank %d of %d%s>" % (self.rank, self.ranks, "" if self._handle is not None else ", closed")

    def _ask(self, name: str) -> int:
        value = c_int()
        check(getattr(lib, name)(self._handle, byref(value)), name, self._handle)
        return value.value

    def __reduce__(self) -> Any:
        raise TypeError("a weft.Comm cannot be copied or pickled: it is this process's handle on a job; duplicate() "
                        "makes another communicator of the same ranks")

    # ---- how calls are done ----

    def _comm(self) -> Comm:
        return self

    def _do(self, operation: str, call: Call) -> Any:
        arguments, result, _, fields = call
        if fields is None:  # the short way
            blocking(self, operation, FUNCTIONS[operation], *arguments, None)
        else:
            function, arguments, keep = _shape_call(operation, call)
            blocking(self, operation, function, *arguments, None)
            del keep
        return result

    def _do_message(self, operation: str, function: Any, arguments: tuple, result: Any, keep: Any) -> Any:
        blocking(self, operation, function, *arguments, None)
        return None if result is None else Message(result)

    def _call(self, operation: str, function: Callable, *arguments: Any) -> None:
        """A call without a request, which may block."""
        blocking(self, operation, function, *arguments)

    def _is_working(self) -> bool:
        return using(self, "status", lib.weft_comm_status) == WEFT_OK

    def _handle_or_none(self, token: Any) -> Optional[int]:
        """For who is inside, by this token, and found no handle: somebody closes it, or tries to. None: it was closed.
        """
        self._inside.pop(id(token), None)  # who closes does not wait for those who wait for it
        with self._closing:
            self._inside[id(token)] = token
            return self._handle

    def _handle_after_close(self, token: Any, operation: str) -> int:
        handle = self._handle_or_none(token)
        if handle is None:
            raise closed(operation)
        return handle

    def _adopt(self, request: Request) -> None:
        """Of a request that is dropped. The garbage collector calls this wherever it likes, so it waits for nobody."""
        if not self._is_closed:
            self._orphans.adopt(request._handle, request._keep)
            self._sweep()

    def _adopt_op(self, op: Operation) -> None:
        if not self._is_closed:
            self._orphans.adopt_op(op._handle, op._keep)
            self._sweep()
        else:
            lib.weft_op_destroy(op._handle)

    def _sweep(self) -> None:
        if self._orphans:
            glancing(self, lambda handle: None if handle is None else self._orphans.sweep())  # None: closing ends them

    def _deregister(self, mem: weft_mem_t, keep: Kept) -> None:
        """Of registered memory that is dropped."""
        def deregister(handle: Optional[int]) -> None:
            if handle is not None:  # else other ranks may write to it until it is closed
                lib.weft_mem_deregister(handle, byref(mem))
                keep.let_go()

        glancing(self, deregister)

    @property
    def begin(self) -> Begin:
        """comm.begin.allreduce(array) and its kin: begun only, a Request is returned at once."""
        return Begin(self)

    @property
    def prepare(self) -> Prepare:
        """comm.prepare.allreduce(array) and its kin: an Operation to start often, for the shortest way per call."""
        return Prepare(self)

    def probe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, timeout: Optional[float] = 0.0) -> Optional[Message]:
        """The message that recv() would get now, without receiving it; None: none has come within timeout seconds."""
        return probe(self, source, tag, timeout)

    # ---- other communicators ----

    def _make(self, operation: str, function: Callable, *arguments: Any) -> Optional[Comm]:
        handle = weft_comm_t()
        try:
            self._call(operation, function, *arguments, byref(handle))
        except BaseException:  # Ctrl-C, when it was just made
            lib.weft_comm_close(handle)
            raise
        return Comm(handle, self) if handle else None

    def split(self, colour: int, key: int = 0) -> Optional[Comm]:
        """A communicator of the ranks with the same colour, ordered by key, then rank; None for a negative colour.
        Collective. Close it before this one."""
        return self._make("split", lib.weft_comm_split, _checks.integer("split", "colour", colour, INT_MIN, INT_MAX),
                          _checks.integer("split", "key", key, INT_MIN, INT_MAX))

    def duplicate(self) -> Comm:
        """The same ranks again, with an order of calls of their own. Collective."""
        made = self._make("duplicate", lib.weft_comm_duplicate)
        assert made is not None
        return made

    def shrink(self) -> Comm:
        """A communicator of those who are left after ranks died or closed. Collective among them; this one stays open
        and is closed after the new one."""
        def shrink(handle_p: Any) -> int:
            return using(self, "shrink", lambda handle: lib.weft_comm_shrink(handle, handle_p))

        return _Start().run("shrink", shrink, parent=self)

    # ---- how it is ----

    @property
    def error(self) -> Optional[Error]:
        """What ended this communicator (an exception to look at or raise); None while it works. Any thread."""
        try:
            return using(self, "", _error_of)
        except InvalidError as error:
            return error  # it was closed

    def error_fd(self) -> int:
        """A descriptor that becomes readable once the communicator has ended, for poll and event loops; do not read or
        close it."""
        fd = c_int()
        self._call("error_fd", lib.weft_comm_error_fd, byref(fd))
        return fd.value

    def set_timeout(self, seconds: Optional[float]) -> None:
        """How long operations begun from now on may take; None: as WEFT_TIMEOUT says."""
        self._call("set_timeout", lib.weft_comm_set_timeout, limit(seconds))

    def abort(self, reason: str = "") -> None:
        """Ends the communicator on all ranks: every call on it, also one that waits, raises AbortedError."""
        words = reason.encode(errors="replace").replace(b"\0", b" ")
        self._call("abort", lib.weft_abort, words or None)

    def dump(self, path: Union[str, os.PathLike, None] = None) -> None:
        """Writes this rank's flight recorder for `weft inspect`; path: a file or a directory, None: WEFT_DUMP's."""
        self._call("dump", lib.weft_dump, _checks.text("dump", "path", path or None))

    # ---- the end ----

    def close(self) -> None:
        """Flushes what this rank sent, tells the others and frees everything; local. Let the ranks meet (barrier)
        before, or use `with`. Requests that are not done end here."""
        with self._closing:
            if self._handle is not None:
                self._close_now()
                self._orphans.end()
        if self._parent is not None and self._parent._is_dropped:
            self._parent._close_quietly()

    def _is_left_alone(self) -> bool:
        """Whether nobody is in a call; who only looks at something is waited for."""
        end = time.monotonic() + LOOK_S
        while self._inside and time.monotonic() < end:
            time.sleep(LOOK_S / 50)
        return not self._inside

    def _close_now(self) -> None:
        handle, self._handle = self._handle, None  # from here on nobody gets in
        outcome: List[int] = []
        try:
            if not self._is_left_alone():
                raise BusyError("close: a thread is in a call on this communicator; abort() it first, or wait",
                                operation="close")
            with _interrupt.ending:  # Ctrl-C may just have ended the call before this one
                noted(outcome, lib.weft_comm_close, handle)
        finally:
            if not outcome or outcome[0] in (BusyError.status, InvalidError.status):  # nothing has happened
                self._handle = handle
            else:
                self._is_closed = True
                self._lent = {}
                self._kept.clear()
        if outcome[0] != WEFT_OK:
            raise failure(outcome[0], "close", None, last_text())

    def _close_quietly(self) -> None:
        try:
            self.close()
        except Error:
            pass  # nobody is there to hear it

    def __enter__(self) -> Comm:
        return self

    def __exit__(self, kind, error, trace) -> None:
        if self._handle is None:
            return
        if kind is not None and not (kind is SystemExit and error.code in (None, 0)):
            try:
                if self._is_working():
                    self.abort(_summary(kind, error))
            except Error:
                pass  # it ended in this moment
            self._close_quietly()
            return
        if self._is_working():
            self.control_barrier()
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self._is_dropped = True
            self._close_quietly()


def _error_of(handle: int) -> Optional[Error]:
    ended = verdict_on(handle)
    if ended is not None:
        return failure(ended.status, "", handle, ended.text.decode(errors="replace"))
    status = lib.weft_comm_status(handle)
    return None if status == WEFT_OK else failure(status, "", handle)  # a forked child's


def _summary(kind: type, error: BaseException) -> str:
    """An exception in a line, for the other ranks."""
    try:
        return ("%s: %s" % (kind.__name__, error))[:200]
    except Exception:  # its own __str__ fails
        return kind.__name__


class _Start:
    """Stands for the communicator that is being made, while a helper thread makes it."""

    def __init__(self) -> None:
        self.handle = weft_comm_t()
        self.is_wanted = True
        self.lock = threading.Lock()  # of is_wanted

    def run(self, operation: str, function: Callable, *arguments: Any, parent: Optional[Comm] = None) -> Comm:
        try:
            status, text = in_helper(lambda: self._create(function, arguments))
        except BaseException:  # Ctrl-C
            with self.lock:
                self.is_wanted = False
                lib.weft_comm_close(self.handle)  # if it is there
            raise
        if status != WEFT_OK:
            raise failure(status, operation, parent._handle if parent else None, text)
        return Comm(self.handle, parent)

    def _create(self, function: Callable, arguments: tuple) -> int:
        made = weft_comm_t()
        status = function(*arguments, byref(made))
        with self.lock:
            if self.is_wanted:
                self.handle = made
            else:
                lib.weft_comm_close(made)
        return status


def init(*, timeout: Optional[float] = None, start_timeout: Optional[float] = None,
         interface: Optional[str] = None) -> Comm:
    """Joins the job that the environment describes: weft run, torchrun, Slurm, mpirun (docs/bootstrap.md).

    timeout: seconds that one operation may take (WEFT_TIMEOUT). start_timeout: that the start may take, after which
    the missing ranks are named (WEFT_START_TIMEOUT). interface: as WEFT_SOCKET_IFNAME."""
    return _Start().run("init", lib.weft_init, byref(_config(timeout, start_timeout, interface)))


def create(id: Id, rank: int, ranks: int, *, timeout: Optional[float] = None, start_timeout: Optional[float] = None,
           interface: Optional[str] = None) -> Comm:
    """Joins the job of the id as rank of ranks, without a launcher; the process that made the id must take part."""
    if not isinstance(id, Id):
        raise _checks.refuse("create", "id is a %s; make one of its text: weft.Id(text)" % type(id).__name__)
    ranks = _checks.ranks("create", ranks)
    return _Start().run("create", lib.weft_comm_create, byref(id._id), _checks.rank("create", "rank", rank, ranks),
                        ranks, byref(_config(timeout, start_timeout, interface)))


def _close_all() -> None:
    """At the end of the interpreter, youngest first: parts go before the whole. (A forked child closes nothing: the C
    library sees to that.)"""
    for number in sorted(_open_comms.keys(), reverse=True):
        comm = _open_comms.get(number)
        if comm is not None:
            comm._close_quietly()


atexit.register(_close_all)


def _forget_in_child() -> None:
    """A forked child has none of the threads that were in calls."""
    for comm in list(_open_comms.values()):
        comm._inside.clear()
        comm._closing = threading.RLock()


os.register_at_fork(after_in_child=_forget_in_child)
