# SPDX-License-Identifier: Apache-2.0
"""Works: operations that were begun, and who ends them.

Weft moves the bytes by itself, whether anybody waits or not. What is left to do in Python is to notice the end: to copy
results into tensors that do not lie in one piece, to let go of the tensors, to complete a Future. Whoever asks does it
(wait(), is_completed()), else whoever begins the next call; a Future has nobody who asks, so each group has threads for
its Futures, from the first one on (_futures.py).
"""
import threading
import time
from ctypes import byref

import torch
import torch.distributed as dist

from .. import _capi as c
from . import _leaving
from . import _tensors as t
from ._errors import BackendError

_wait = c.lib.weft_wait
_wait_all = c.lib.weft_wait_all

# How long one wait in C lasts at most: between two of them Python sees signals.
SLICE_MS = 100
# Collectives of so many bytes take less than a millisecond once all ranks are there: so long they are waited for there and
# then when a Future is asked for.
SHORT_LEN = 256 * 1024
SHORT_MS = 1


def milliseconds(timeout):
    """A timedelta as torch gives it: None where it says "no limit" (not more than 0)."""
    if timeout is None:
        return None
    ms = min(int(timeout.total_seconds() * 1000), c.WEFT_NO_LIMIT - 1)
    return ms if ms > 0 else None


class Work(dist.Work):
    """One operation. `result()` and the Future's value are its tensors, as in Gloo."""
    _group = None
    _is_receive = False
    _is_collective = True

    def __init__(self, tensors, group=None, request=None, after=(), keep=None):
        super().__init__()
        self._tensors = tensors
        self._done = request is None
        self._error = None
        self._future = None
        if not self._done:
            self._group = group
            self._request = request  # one, or an array of them
            self._after = after  # pairs of tensors: copied when it has ended
            self._keep = keep  # memory that is lent
            self._lock = threading.RLock()  # a request belongs to one thread at a time

    # ---- what users call

    def wait(self, timeout=None):
        """Until the operation has ended; its error is raised. After `timeout` DistBackendError, and it goes on."""
        if not self._done:
            self._wait_until_done(milliseconds(timeout))
        if self._error is not None:
            raise self._error
        return True

    def is_completed(self):
        return self._done or self._drive(0, 0)

    def is_success(self):
        return self.is_completed() and self._error is None

    def exception(self):
        return self._error if self.is_completed() else None

    def result(self):
        self.wait()
        return self._tensors

    def synchronize(self):
        self.wait()

    def source_rank(self):
        return self._source_rank()

    def _source_rank(self):
        raise BackendError("only a receive has a source rank")

    def get_future(self):
        """A torch.futures.Future that ends with the work; its value is the list of tensors."""
        if self._future is None:
            if not self._done and self._is_over_soon():
                self._drive(SHORT_MS, 0)  # sooner over than another thread is awake; DDP wants every bucket's Future
            begun = self._new_future()
            if self._done and self._error is None:
                begun.set_result(self._tensors)
                self._future = begun
                return begun
            self._untold = begun
            # A callback that raises is the one way for Python to give a Future an error that C++ sees, too.
            self._future = begun.then(self._future_value)
            if self._done:
                self._tell()
            else:
                self._complete_later()
        return self._future

    # ---- how it ends

    def _new_future(self):
        return torch.futures.Future()

    def _is_over_soon(self):
        group = self._group  # of a work that has ended just now: None
        return group is None or not group._has_futures() and self._is_short()

    def _is_short(self):
        return sum(tensor.nbytes for tensor in self._tensors) <= SHORT_LEN

    def _complete_later(self):
        group = self._group
        if group is not None:  # else it has ended just now, and whoever ended it tells the Future
            group._crew().put(self)
        else:
            self._tell()

    def _future_value(self, _begun):
        if self._error is not None:
            raise self._error
        return self._tensors

    def _tell(self):
        begun = self.__dict__.pop("_untold", None)  # by one thread only: pop is one step
        if begun is not None:
            begun.set_result(self._tensors)

    def _wait_until_done(self, limit_ms):
        if limit_ms is None:
            while not self._drive(SLICE_MS, SLICE_MS / 1000):
                pass
            return
        end = time.monotonic() + limit_ms / 1000
        while True:
            left = max(end - time.monotonic(), 0)
            if self._drive(min(SLICE_MS, int(left * 1000) + 1), min(SLICE_MS / 1000, left)):
                return
            if time.monotonic() >= end:
                raise BackendError("Operation timed out! (waited %d ms; it goes on)" % limit_ms, c.WEFT_ERR_TIMEOUT)

    def _drive(self, ms, lock_s):
        """As _advance(), and the Future is told. Not with a lock held: its callbacks are the user's."""
        if not self._advance(ms, lock_s):
            return False
        self._tell()
        return True

    def _advance(self, ms, lock_s):
        """Waits at most ms for the end, once the thread that waits already (lock_s) lets go. True: it has ended."""
        group = self._group
        if self._done:
            return True
        if group._leaving and ms:  # whoever closes the group wants the lock
            time.sleep(0.001)
            ms = 0
        if self._lock._is_owned():
            return self._advance_in_handler(ms)
        if not (self._lock.acquire(timeout=lock_s) if lock_s else self._lock.acquire(False)):
            return self._done
        try:
            if not self._done:
                status = self._poll(ms)
                if status is None:
                    return False
                self._end(group._failure(status) if status else None)
        finally:
            self._lock.release()
            if group._leaving:
                _leaving.leave_late()
        return True

    def _advance_in_handler(self, ms):
        """This thread is in the middle of waiting for this work, and a signal's handler asks: it would wait for itself."""
        if ms:
            raise BackendError("a signal's handler cannot wait for the operation whose wait it interrupted",
                               c.WEFT_ERR_BUSY)
        return False

    def _poll(self, ms):
        """The result, or None while it goes on."""
        request = self._request
        status = _wait(byref(request), ms)
        return None if status == c.WEFT_ERR_TIMEOUT and request.value is not None else status

    def _end(self, error):
        if error is None:
            try:
                self._copy_back()
            except Exception as raised:  # memory, or a tensor that was changed meanwhile
                error = raised
        self._error = error
        group = self._group
        self._done = True  # before the group is gone: _drive() reads it first
        self._request = self._after = self._keep = self._group = None
        group._pending.pop(self, None)

    def _copy_back(self):
        if self._after:
            t.copy_back(self._after)

    def _give_up(self, error, lock_s):
        """The group closes: nothing of Weft touches the memory any more. False: a thread does not let go of it."""
        if not self._lock.acquire(timeout=lock_s):
            return self._done
        try:
            if not self._done:
                self._end(error)
        finally:
            self._lock.release()
        return True


class ManyWork(Work):
    """Several requests that are one call (coalesced)."""
    _first = None

    def _poll(self, ms):
        requests = self._request
        status = _wait_all(requests, len(requests), ms)
        if not any(requests) or status == c.WEFT_ERR_FORKED:
            return status
        if status != c.WEFT_ERR_TIMEOUT and self._first is None:  # one has failed, others have not ended yet
            self._first = self._group._failure(status)
        return None

    def _end(self, error):
        super()._end(self._first or error)

    def _is_short(self):
        return sum(tensor.nbytes for part in self._tensors
                   for tensor in (part if isinstance(part, list) else (part,))) <= SHORT_LEN


class MessageWork(Work):
    """A send or a receive. They end in any order, so their Futures have other threads than the collectives'."""
    _is_collective = False

    def _is_short(self):
        return False  # nobody knows when the other rank sends

    def _keep_time(self):
        """With the lock held, while it goes on."""

    def _complete_later(self):
        group = self._group
        if group is not None:
            group._crew(messages=True).put(self)
        else:
            self._tell()


class ReceiveWork(MessageWork):
    """keep: (tensor, message). The message must be as long as the tensor. A receive may be begun long before somebody
    sends: it has the group's timeout from when it is waited for."""
    _is_receive = True

    _has_time = True  # its deadline is as it should be

    def wait(self, timeout=None):
        if timeout is None and not self._done:
            self._has_time = False
        return super().wait(timeout)

    def _poll(self, ms):
        status = super()._poll(ms)
        if status is None:  # not before: usually it is over by now
            self._keep_time()
        return status

    def _keep_time(self):
        if not self._has_time:
            self._has_time = True
            c.lib.weft_request_set_timeout(self._request, self._group._timeout_ms)

    def _copy_back(self):
        self._check_length()
        super()._copy_back()

    def _check_length(self):
        tensor, message = self._keep
        self._source = message.source
        room = tensor.numel() * tensor.element_size()
        if message.len != room:
            raise BackendError("rank %d of the group sent %d bytes, the tensor it is received into takes %d; both "
                               "sides need the same shape and dtype" % (message.source, message.len, room),
                               c.WEFT_ERR_MISMATCH)

    def _source_rank(self):
        self.wait()
        return self._source
