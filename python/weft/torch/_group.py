# SPDX-License-Identifier: Apache-2.0
"""The life of a process group: its communicator, how calls are begun on it, and how it ends.

Locks: `_lock` is held while a collective is begun (Weft wants one thread at a time there), and as long as a blocking one
takes; `_messages_lock` while a send or receive is begun; `_end_lock` by whoever ends the group, who takes the other two
and then each pending work's own.
"""
import atexit
import ctypes
import os
import sys
import threading
import weakref

import torch
import torch.distributed as dist

from .. import _capi as c
from .. import _interrupt
from . import _start
from ._errors import ArgumentError, BackendError, failure
from ._work import Completer, ManyWork, Work, milliseconds

lib = c.lib
_open_groups = weakref.WeakSet()

# How long a rank that leaves in peace waits for the others to come to the same point.
LINGER_MS = 2000
_LONG_MS = 3600 * 1000


class GroupLife(dist.ProcessGroup):
    """What all calls stand on. `_comm` is the communicator's address, None once closed."""

    def __init__(self, store, rank, ranks, timeout):
        super().__init__(rank, ranks)
        self._comm = None
        self._group_name = self._group_desc = ""
        self._rank, self._ranks = rank, ranks
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._messages_lock = threading.Lock()
        self._end_lock = threading.Lock()
        self._pending = set()
        self._completers = {}
        self._leaving = False
        self._stager_made = None
        self._sequence = 0
        self._timeout_ms = milliseconds(timeout) or 30 * 60 * 1000
        self._comm = _start.create_comm(store, rank, ranks, self._timeout_ms)
        # The first collective makes ready what ranks share, and waits for all of them: here, not in a call that
        # promised to return at once.
        status = lib.weft_barrier(self._comm, None)
        if status != c.WEFT_OK:
            error = failure(status, self._comm)
            self.abandon()
            raise error
        _interrupt.watch()
        _open_groups.add(self)

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
            raise failure(status)
        self._timeout_ms = limit

    _set_default_timeout = set_timeout

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
        self._flush()
        with self._lock:
            comm = self._comm_or_raise()
            status = begin(comm, ctypes.byref(request))
            if status != c.WEFT_OK:
                raise failure(status, comm)
            if limit is not None and request.value is not None:
                lib.weft_request_set_timeout(request, limit)
            work = Work(tensors, self, request, after, (begin, stage))
            self._pending.add(work)
        return work

    def _run_blocking(self, begin, tensors, stage):
        self._flush()
        with self._lock:
            comm = self._comm_or_raise()
            if threading.get_ident() == _interrupt.MAIN:
                _interrupt.current[0] = (self,)  # for Ctrl-C, which aborts what is waited for
                try:
                    status = begin(comm, None)
                finally:
                    _interrupt.current[0] = None
            else:
                status = begin(comm, None)
            if status != c.WEFT_OK:
                raise failure(status, comm)
        if stage is not None and stage.after:
            with torch.no_grad():
                for tensor, dense in stage.after:
                    tensor.copy_(dense)
        return Work(tensors)

    def _run_many(self, opts, begins, tensors, stage):
        """Several collectives that are one call."""
        self._sequence += 1
        limit = self._limit(opts)
        requests = (c.weft_request_t * len(begins))()
        error = None
        self._flush()
        with self._lock:
            comm = self._comm_or_raise()
            for at, begin in enumerate(begins):
                request = c.weft_request_t()
                status = begin(comm, ctypes.byref(request))
                if status != c.WEFT_OK:
                    error = failure(status, comm)
                    break
                if limit is not None and request.value is not None:
                    lib.weft_request_set_timeout(request, limit)
                requests[at] = request.value
            work = ManyWork(tensors, self, requests, stage.after, (begins, stage))
            self._pending.add(work)
        if error is not None:  # what was begun before lends the same tensors
            work._after = ()
            work.wait()
            raise error
        return work

    def _flush(self):
        """Until what was called before has been begun: with CUDA tensors that waits for the device."""
        if self._stager_made is not None:
            self._stager_made.flush()

    def _run_message(self, begin, kind, tensors, after, keep):
        request = c.weft_request_t()
        with self._messages_lock:
            comm = self._comm_or_raise()
            status = begin(comm, ctypes.byref(request))
            if status != c.WEFT_OK:
                raise failure(status, comm)
            work = kind(tensors, self, request, after, keep)
            self._pending.add(work)
        return work

    def _completer(self, messages=False):
        with self._messages_lock:
            if messages not in self._completers:
                name = "weft-messages" if messages else "weft-collectives"
                self._completers[messages] = Completer(name, in_order=not messages)
            return self._completers[messages]

    def _stager(self):
        if self._stager_made is None:
            from ._cuda import Stager
            self._stager_made = Stager(self)
        return self._stager_made

    # ---- the end

    def abort(self):
        """Ends the group on all ranks: every call on it, also one that waits, raises. Any thread."""
        if self._pid != os.getpid():
            return
        with self._end_lock:
            if self._comm is not None:
                lib.weft_abort(self._comm, b"the process group was aborted")
                self._close()

    def shutdown(self):
        """Leaves. In peace (no exception is on its way, the group works) the ranks meet first, so that nobody loses
        a message; for two seconds at most."""
        if self._pid != os.getpid():
            self._comm = None  # a forked child: its handle is dead, and Weft has closed what it had
            return
        with self._end_lock:
            if self._comm is None:
                return
            if sys.exc_info()[0] is None and lib.weft_comm_status(self._comm) == c.WEFT_OK:
                self._meet()
            self._close()

    def abandon(self):
        """Leaves at once: calls of the other ranks that need this one fail."""
        if self._pid == os.getpid():
            with self._end_lock:
                if self._comm is not None:
                    self._close()

    def _meet(self):
        request = c.weft_request_t()
        self._flush()
        if not self._lock.acquire(timeout=LINGER_MS / 1000):
            return
        try:
            if self._comm is None or lib.weft_barrier(self._comm, ctypes.byref(request)) != c.WEFT_OK:
                return
            if request.value is not None:
                lib.weft_request_set_timeout(request, _LONG_MS)  # its deadline is not to end the others' group
            lib.weft_wait(ctypes.byref(request), LINGER_MS)
        finally:
            self._lock.release()

    def _close(self):
        self._leaving = True  # from here on nothing is begun
        for lock in (self._lock, self._messages_lock):
            if not lock.acquire(timeout=1.0):
                lib.weft_abort(self._comm, b"the process group is closed while a call is made on it")
                lock.acquire()
        lent = self._give_up_pending()
        comm, self._comm = self._comm, None
        with _interrupt.ending:  # Ctrl-C may just have ended the call before this one
            lib.weft_comm_close(comm)
        del lent  # not before: until here operations may write to it
        self._lock.release()
        self._messages_lock.release()
        for thread in [*self._completers.values(), self._stager_made]:
            if thread is not None:
                thread.stop(1.0)
        _open_groups.discard(self)

    def _give_up_pending(self):
        """Works that nobody waited for: what has ended is a result still, the rest ends here. Returns their memory."""
        works = list(self._pending)
        lent = [(work._keep, work._after, work._tensors) for work in works]
        for work in works:
            if not work._drive(0, 0.5):
                work._give_up(BackendError("the process group was closed before the operation had ended",
                                           c.WEFT_ERR_ABORTED))
        return lent


@atexit.register
def _leave_all():
    """Whoever exits without destroy_process_group() leaves in the same way, unless an exception is the reason."""
    failed = getattr(sys, "last_value", None) is not None
    for group in list(_open_groups):
        if failed:
            group.abandon()
        else:
            group.shutdown()
