# SPDX-License-Identifier: Apache-2.0
"""Communicators: a rank's handle on a job or on a part of it."""
from __future__ import annotations

import atexit
import itertools
import weakref
from ctypes import byref, c_int, c_void_p, create_string_buffer
from typing import Any, Callable, Optional

from ._capi import (WEFT_ID_TEXT_LEN, WEFT_OK, lib, weft_call_t, weft_comm_t, weft_config_t, weft_id_t)
from ._collectives import CODES, FIELDS, FUNCTIONS, Call, Collectives
from ._errors import BusyError, Error, InvalidError, check, failure, last_text, verdict_on
from ._interrupt import ending, watch
from ._messages import ANY_SOURCE, ANY_TAG, Control, Message, Messages, probe
from ._onesided import OneSided
from ._requests import Operation, Orphans, Request
from ._waiting import blocking, in_helper, limit

_open_comms: weakref.WeakValueDictionary = weakref.WeakValueDictionary()
_numbers = itertools.count()


class Id:
    """Says where the root listens and proves membership: give Id.text to the other ranks where strangers cannot read.
    str() is for logs: it leaves the secret out."""

    def __init__(self, text: str):
        self._id = weft_id_t()
        check(lib.weft_id_parse(text.encode(), byref(self._id)), "Id")

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
                         interface=interface.encode() if interface else None)


def _call_struct(operation: str, call: Call) -> weft_call_t:
    arguments, _, _, fields = call
    return weft_call_t(coll=CODES[operation], **dict(zip(FIELDS[operation], arguments)), **(fields or {}))


def _shape_call(comm: Comm, operation: str, call: Call):
    """The C function, its arguments up to the request, and what must live until it is done."""
    arguments, _, keep, fields = call
    if fields is None:
        return FUNCTIONS[operation], (comm._handle, *arguments), keep
    struct = _call_struct(operation, call)
    return lib.weft_collective, (comm._handle, byref(struct)), (keep, struct)


class Begin(Collectives[Request], Messages[Request, Request]):
    """The same calls, begun only: each returns a Request at once, and its arrays are Weft's until that has ended."""

    def __init__(self, comm: Comm):
        self.__comm = comm

    def _comm(self) -> Comm:
        return self.__comm

    def _do(self, operation: str, call: Call) -> Request:
        comm = self.__comm
        function, arguments, keep = _shape_call(comm, operation, call)
        request = Request(comm, operation, call[1], keep)
        comm._sweep()
        # the first collective of a communicator waits for all ranks, so this may block
        check(blocking(comm, function, *arguments, byref(request._handle)), operation, comm._handle)
        return request

    def _do_message(self, operation: str, function: Any, arguments: tuple, result: Any, keep: Any) -> Request:
        comm = self.__comm
        request = Request(comm, operation, result, keep)
        comm._sweep()
        check(function(*arguments, byref(request._handle)), operation, comm._handle)
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
        self._inside: list = []  # a token per call that is inside the C library: closing waits for none of them
        self._lent = {}
        self._orphans = Orphans()
        self.rank = self._ask("weft_comm_rank")
        self.ranks = self._ask("weft_comm_ranks")
        local_rank, local_ranks = c_int(), c_int()
        check(lib.weft_comm_local(self._handle, byref(local_rank), byref(local_ranks)), "local", self._handle)
        self.local_rank, self.local_ranks = local_rank.value, local_ranks.value
        _open_comms[next(_numbers)] = self
        watch()

    def __repr__(self) -> str:
        return "<weft.Comm rank %d of %d%s>" % (self.rank, self.ranks, "" if self._handle is not None else ", closed")

    def _ask(self, name: str) -> int:
        value = c_int()
        check(getattr(lib, name)(self._handle, byref(value)), name, self._handle)
        return value.value

    # ---- how calls are done ----

    def _comm(self) -> Comm:
        return self

    def _do(self, operation: str, call: Call) -> Any:
        arguments, result, _, fields = call
        if fields is None:  # the short way
            status = blocking(self, FUNCTIONS[operation], self._handle, *arguments, None)
        else:
            function, arguments, keep = _shape_call(self, operation, call)
            status = blocking(self, function, *arguments, None)
            del keep
        if status != WEFT_OK:
            raise failure(status, operation, self._handle)
        return result

    def _do_message(self, operation: str, function: Any, arguments: tuple, result: Any, keep: Any) -> Any:
        check(blocking(self, function, *arguments, None), operation, self._handle)
        return None if result is None else Message(result)

    def _call(self, operation: str, function: Callable, *arguments: Any) -> None:
        """A call without a request, which may block."""
        check(blocking(self, function, self._handle, *arguments), operation, self._handle)

    def _used(self) -> _Used:
        return _Used(self)

    def _is_working(self) -> bool:
        return lib.weft_comm_status(self._handle) == WEFT_OK

    def _adopt(self, request: c_void_p, keep: Any) -> None:
        self._orphans.adopt(request, keep)

    def _adopt_op(self, op: Any, keep: Any) -> None:
        self._orphans.adopt_op(op, keep)

    def _sweep(self) -> None:
        if self._orphans:
            self._orphans.sweep()

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
        self._call(operation, function, *arguments, byref(handle))
        return Comm(handle, self) if handle else None

    def split(self, colour: int, key: int = 0) -> Optional[Comm]:
        """A communicator of the ranks with the same colour, ordered by key, then rank; None for a negative colour.
        Collective. Close it before this one."""
        return self._make("split", lib.weft_comm_split, colour, key)

    def duplicate(self) -> Comm:
        """The same ranks again, with an order of calls of their own. Collective."""
        made = self._make("duplicate", lib.weft_comm_duplicate)
        assert made is not None
        return made

    def shrink(self) -> Comm:
        """A communicator of those who are left after ranks died or closed. Collective among them; this one stays open
        and is closed after the new one."""
        return _Start().run("shrink", lib.weft_comm_shrink, self._handle, parent=self)

    # ---- how it is ----

    @property
    def error(self) -> Optional[Error]:
        """What ended this communicator (an exception to look at or raise); None while it works. Any thread."""
        ended = verdict_on(self._handle)
        if ended is None:
            return None
        return failure(ended.status, "", self._handle, ended.text.decode(errors="replace"))

    def error_fd(self) -> int:
        """A descriptor that becomes readable once the communicator has ended, for poll and event loops; do not read or
        close it."""
        return self._ask("weft_comm_error_fd")

    def set_timeout(self, seconds: Optional[float]) -> None:
        """How long operations begun from now on may take; None: as WEFT_TIMEOUT says."""
        check(lib.weft_comm_set_timeout(self._handle, limit(seconds)), "set_timeout", self._handle)

    def abort(self, reason: str = "") -> None:
        """Ends the communicator on all ranks: every call on it, also one that waits, raises AbortedError."""
        check(lib.weft_abort(self._handle, reason.encode() or None), "abort", self._handle)

    def dump(self, path: Optional[str] = None) -> None:
        """Writes this rank's flight recorder for `weft inspect`; path: a file or a directory, None: WEFT_DUMP's."""
        check(lib.weft_dump(self._handle, path.encode() if path else None), "dump", self._handle)

    # ---- the end ----

    def close(self) -> None:
        """Flushes what this rank sent, tells the others and frees everything; local. Let the ranks meet (barrier)
        before, or use `with`. Requests that are not done end here."""
        if self._handle is None:
            return
        if self._inside:
            raise BusyError("close: a thread is in a call on this communicator; abort() it first, or wait",
                            operation="close")
        with ending:  # Ctrl-C may just have ended the call before this one
            status = lib.weft_comm_close(self._handle)
        if status in (BusyError.status, InvalidError.status):  # nothing has happened
            raise failure(status, "close", self._handle)
        text = last_text()
        self._handle = None
        self._lent = {}
        self._orphans = Orphans()
        if status != WEFT_OK:
            raise failure(status, "close", None, text)

    def _close_quietly(self) -> None:
        try:
            self.close()
        except Error:
            pass  # nobody is there to hear it

    def __enter__(self) -> Comm:
        return self

    def __exit__(self, kind, error, trace) -> None:
        if kind is not None and not (kind is SystemExit and error.code in (None, 0)):
            if self._handle is not None and self._is_working():
                lib.weft_abort(self._handle, ("%s: %s" % (kind.__name__, error)).encode()[:200])
            self._close_quietly()
            return
        if self._handle is not None and self._is_working():
            self.control_barrier()
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self._close_quietly()


class _Used:
    """Marks a communicator as being used by a call."""
    __slots__ = ("_inside",)

    def __init__(self, comm: Comm):
        self._inside = comm._inside

    def __enter__(self) -> None:
        self._inside.append(None)

    def __exit__(self, kind, error, trace) -> None:
        self._inside.pop()


class _Start:
    """Stands for the communicator that is being made, while a helper thread makes it."""

    def __init__(self) -> None:
        self.handle = weft_comm_t()
        self.is_wanted = True

    def run(self, operation: str, function: Callable, *arguments: Any, parent: Optional[Comm] = None) -> Comm:
        try:
            status, text = in_helper(lambda: self._create(function, arguments))
        except BaseException:  # Ctrl-C
            self.is_wanted = False
            raise
        if status != WEFT_OK:
            raise failure(status, operation, parent._handle if parent else None, text)
        return Comm(self.handle, parent)

    def _create(self, function: Callable, arguments: tuple) -> int:
        status = function(*arguments, byref(self.handle))
        if status == WEFT_OK and not self.is_wanted:
            lib.weft_comm_close(self.handle)
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
    return _Start().run("create", lib.weft_comm_create, byref(id._id), rank, ranks,
                        byref(_config(timeout, start_timeout, interface)))


def _close_all() -> None:
    """At the end of the interpreter, youngest first: parts go before the whole. (A forked child closes nothing: the C
    library sees to that.)"""
    for number in sorted(_open_comms.keys(), reverse=True):
        comm = _open_comms.get(number)
        if comm is not None:
            comm._close_quietly()


atexit.register(_close_all)
