# SPDX-License-Identifier: Apache-2.0
"""The life of a process group: its communicator, and how calls are begun on it. (How it ends: _leaving.py.)

Locks: `_lock` is held while a collective is begun (Weft wants one thread at a time there), and as long as a blocking one
takes; `_messages_lock` while a send or receive is begun.
"""
import ctypes
import itertools
import threading

import torch
import torch.distributed as dist

from .. import _capi as c
from .. import _interrupt
from . import _start, _tags
from . import _tensors as t
from ._errors import ArgumentError, failure
from ._futures import new_crew
from ._leaving import Leaving, leave_late
from ._work import ManyWork, Work, milliseconds

lib = c.lib
_get_ident = threading.get_ident
_numbers = itertools.count()
_FEW = 4  # works that nobody may ask for: so many are not looked at


class GroupLife(Leaving):
    """What all calls stand on."""

    def __init__(self, store, rank, ranks, timeout):
        super().__init__(rank, ranks)
        self._comm = None
        self._group_name = self._group_desc = ""
        self._rank, self._ranks = rank, ranks
        self._number = next(_numbers)
        self._sequence = 0
        self._timeout_ms = milliseconds(timeout) or 30 * 60 * 1000
        self._comm = _start.create_comm(store, rank, ranks, self._timeout_ms)
        self._open()
        _interrupt.watch()
        # The first collective makes ready what ranks share, and waits for all of them: here, not in a call that
        # promised to return at once.
        try:
            self._run_blocking(lib.weft_barrier, [], None)
        except BaseException:
            self.abandon()
            raise

    @property
    def _handle(self):
        return self._comm  # as _interrupt.py calls it

    # ---- who we are; torch asks these often, and C++ asks some of them

    def rank(self):
        return self._rank

    def size(self):
        return self._ranks

    def name(self):
        return "weft"

    def getBackendName(self):
        return "weft"

    def _get_backend_name(self):
        return "weft"

    # ProcessGroup keeps name and description in its backends, of which this one has none.

    def setGroupName(self, name):
        self._group_name = name

    def getGroupName(self):
        return self._group_name

    def setGroupDesc(self, text):
        self._group_desc = text

    def getGroupDesc(self):
        return self._group_desc

    @property
    def _device_types(self):
        found = [torch.device("cpu")]
        if torch.cuda.is_available():
            found.append(torch.device("cuda"))
        return found

    def _get_backend(self, _device):
        return self

    def _set_sequence_number_for_group(self):
        pass

    def _get_sequence_number_for_group(self):
        return self._sequence

    supports_splitting = supports_coalescing = supports_time_estimate = supports_shrinking = False

    def eager_connect_single_device(self, _device=None):
        pass

    def _has_hooks(self):
        return False

    def _wait_for_pending_works(self):
        for work in list(self._pending):
            work.wait()

    def set_timeout(self, timeout):
        """How long the operations begun from now on may take."""
        limit = milliseconds(timeout)
        if limit is None:
            raise ArgumentError("the timeout must be at least a millisecond, not %s" % timeout)
        status = lib.weft_comm_set_timeout(self._comm_or_raise(), limit)
        if status != c.WEFT_OK:
            raise self._failure(status)
        self._timeout_ms = limit

    _set_default_timeout = set_timeout

    # ---- errors

    def _failure(self, status):
        """The error of the calling thread's latest call, which returned status."""
        return failure(status, self._comm, self._job_ranks)

    def _job_ranks(self):
        """Which ranks of the job are in the group, in its order; None: torch does not know yet, or any more."""
        try:
            return dist.get_process_group_ranks(self)
        except (KeyError, ValueError, RuntimeError):
            return None

    # ---- beginning operations

    def _comm_or_raise(self):
        if self._comm is None or self._leaving:
            raise ArgumentError("the process group was destroyed or aborted")
        return self._comm

    def _limit(self, opts):
        """The call's own deadline in ms, None if it is the group's."""
        limit = milliseconds(opts.timeout)
        return None if limit == self._timeout_ms else limit

    def _run(self, opts, begin, tensors, stage=None):
        """One collective. begin(comm, request_p or None) makes Weft's call; tensors are the work's result."""
        self._sequence += 1
        if stage is not None and stage.is_cuda:
            return self._stager().run(stage, begin, tensors, self._limit(opts))
        limit = self._limit(opts)
        if limit is None and not getattr(opts, "asyncOp", True):
            return self._run_blocking(begin, tensors, stage)
        after = stage.after if stage is not None else ()
        request = c.weft_request_t()
        if self._stager_made is not None:
            self._stager_made.flush()
        try:
            with self._lock:
                comm = self._comm_or_raise()
                if len(self._pending) > _FEW:
                    self._sweep()
                status = begin(comm, ctypes.byref(request))
                if status != c.WEFT_OK:
                    raise self._failure(status)
                if limit is not None and request.value is not None:
                    lib.weft_request_set_timeout(request, limit)
                work = Work(tensors, self, request, after, (begin, stage))
                self._pending[work] = None
        finally:
            if self._leaving:
                leave_late()
        return work

    def _run_blocking(self, begin, tensors, stage):
        if self._stager_made is not None:
            self._stager_made.flush()
        try:
            with self._lock:
                comm = self._comm_or_raise()
                if len(self._pending) > _FEW:
                    self._sweep()
                if _get_ident() == _interrupt.MAIN:
                    _interrupt.current[0] = (self,)  # for Ctrl-C, which aborts what is waited for
                    try:
                        status = begin(comm, None)
                    finally:
                        _interrupt.current[0] = None
                else:
                    status = begin(comm, None)
                if status != c.WEFT_OK:
                    raise self._failure(status)
        finally:
            if self._leaving:
                leave_late()
        if stage is not None and stage.after:
            t.copy_back(stage.after)
        return Work(tensors)

    def _run_many(self, opts, begins, tensors, stage):
        """Several collectives that are one call."""
        self._sequence += 1
        if self._stager_made is not None:
            self._stager_made.flush()
        try:
            with self._lock:
                work, error = self._begin_many(begins, tensors, stage, self._limit(opts))
        finally:
            if self._leaving:
                leave_late()
        if error is not None:  # what was begun before lends the same tensors
            work._after = ()
            work.wait()
            raise error
        return work

    def _begin_many(self, begins, tensors, stage, limit):
        requests = (c.weft_request_t * len(begins))()
        error = None
        comm = self._comm_or_raise()
        if len(self._pending) > _FEW:
            self._sweep()
        for at, begin in enumerate(begins):
            request = c.weft_request_t()
            status = begin(comm, ctypes.byref(request))
            if status != c.WEFT_OK:
                error = self._failure(status)
                break
            if limit is not None and request.value is not None:
                lib.weft_request_set_timeout(request, limit)
            requests[at] = request.value
        work = ManyWork(tensors, self, requests, stage.after, (begins, stage))
        self._pending[work] = None
        return work, error

    def _run_message(self, begin, kind, tensors, keep, after=None):
        """after: of a receive only."""
        request = c.weft_request_t()
        try:
            with self._messages_lock:
                comm = self._comm_or_raise()
                if len(self._pending) > _FEW:
                    self._sweep()
                status = begin(comm, ctypes.byref(request))
                if status != c.WEFT_OK:
                    raise self._failure(status)
                if after is not None and request.value is not None:
                    lib.weft_request_set_timeout(request, c.WEFT_NO_LIMIT)  # it has one from its wait() on
                work = kind(tensors, self, request, after or (), keep)
                self._pending[work] = None
        finally:
            if self._leaving:
                leave_late()
        return work

    def _sweep(self):
        """Lets go of works that have ended, for nobody may ever ask for them. With a lock held; when there are more
        than a few, each call looks at the two oldest, and what goes on comes behind the others."""
        pending = self._pending
        for _ in range(min(2, len(pending))):
            try:
                work = next(iter(pending))
            except (StopIteration, RuntimeError):  # other threads are at it
                return
            pending.pop(work, None)
            # (one with a Future is ended by the crew, which tells it)
            if not (work._done if work._future is not None else work._advance(0, 0)):
                pending[work] = None

    # ---- for Futures

    def _crew(self, messages=False):
        try:
            with self._messages_lock:
                if messages not in self._crews:
                    self._crews[messages] = new_crew(self, messages)
                return self._crews[messages]
        finally:
            if self._leaving:
                leave_late()

    def _has_futures(self):
        """Collectives that a crew has not seen the end of."""
        crew = self._crews.get(False)
        return crew is not None and crew.has_works()

    def _set_bell(self, request):
        """Receives from this rank itself, unless it does so already."""
        with self._messages_lock:
            if request.value is None and self._comm is not None and not self._leaving:
                lib.weft_recv(self._comm, None, 0, self._rank, _tags.BELL, None, ctypes.byref(request))
                if request.value is not None:
                    lib.weft_request_set_timeout(request, c.WEFT_NO_LIMIT)

    def _ring(self):
        try:
            with self._messages_lock:
                if self._comm is not None and not self._leaving:
                    lib.weft_send(self._comm, None, 0, self._rank, _tags.BELL, None)
        finally:
            if self._leaving:
                leave_late()

    def _stager(self):
        if self._stager_made is None:
            from ._cuda import Stager
            self._stager_made = Stager(self)
        return self._stager_made
