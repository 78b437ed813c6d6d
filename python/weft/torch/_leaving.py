# SPDX-License-Identifier: Apache-2.0
"""How a rank leaves a group: in peace, after a failure, by an abort, at the end of the program; and in a forked child.

In peace the ranks meet first. They do so with messages of a tag that no call of torch has, and not with a collective: a
barrier of a rank that goes on must never meet the farewell of one that leaves.

Locks: whoever ends a group holds `_end_lock`, takes `_lock` and `_messages_lock`, then each pending work's own. Futures are
told when all of them are released: their callbacks are the user's, and may call the group. A signal's handler may end
the group in the middle of a call that its own thread makes, with locks held: then that call does it, when it has let go of
them (leave_late()).
"""
import atexit
import ctypes
import os
import sys
import threading
import time
import weakref

import torch.distributed as dist

from .. import _capi as c
from .. import _interrupt
from . import _tags
from ._errors import BackendError

lib = c.lib
_open_groups = weakref.WeakSet()
_late = []  # (group, how): ended by a handler, and not yet closed
_closing = set()  # threads that close a group

# How long a rank that leaves in peace waits for the others to come to the same point.
LINGER_MS = 2000
# For how long threads that are in a call may keep their lock after an abort; then the communicator is not freed at all.
_STUCK_S = 10.0

IN_PEACE, AFTER_FAILURE, AT_ONCE, ABORT = range(4)


class Leaving(dist.ProcessGroup):
    """The end of a group. `_comm` is the communicator's address, None once closed."""

    def _open(self):
        self._pid = os.getpid()
        self._leaving = False
        self._pending = {}  # works that have not ended, oldest first: of a dict the keys keep their order
        self._crews = {}  # of threads for Futures, by what they look after: messages or not
        self._stager_made = None
        self._make_locks()
        _open_groups.add(self)

    def _make_locks(self):
        self._lock = threading.RLock()
        self._messages_lock = threading.RLock()
        self._end_lock = threading.RLock()

    # ---- what torch calls

    def abort(self):
        """Ends the group on all ranks: every call on it, also one that waits, raises. Any thread."""
        self._leave(ABORT)

    def shutdown(self):
        """Leaves. In peace (no exception is on its way, the group works) the ranks meet first, so that nobody loses
        a message; for two seconds at most."""
        self._leave(IN_PEACE if sys.exc_info()[0] is None else AFTER_FAILURE)

    def abandon(self):
        """Leaves at once: calls of the other ranks that need this one fail."""
        self._leave(AT_ONCE)

    # ---- how

    def _leave(self, how):
        if self._pid != os.getpid():
            self._comm = None  # a forked child: its handle is dead, and Weft has closed what it had
            return
        if self._is_in_a_call():
            self._leave_later(how)
            return
        with self._end_lock:
            if self._comm is None:
                return
            if how == ABORT:
                lib.weft_abort(self._comm, b"the process group was aborted")
            elif how != AT_ONCE and lib.weft_comm_status(self._comm) == c.WEFT_OK:
                self._say_farewell(how == IN_PEACE)
            works = self._close()
        for work in works:
            work._tell()
        for threads in [*self._crews.values(), self._stager_made]:
            if threads is not None:
                threads.stop(1.0)
        leave_late()

    def _is_in_a_call(self):
        """Of this thread: then it is a signal's handler that asks."""
        return (self._lock._is_owned() or self._messages_lock._is_owned() or self._end_lock._is_owned()
                or threading.get_ident() in _closing
                or any(work._lock._is_owned() for work in list(self._pending)))

    def _leave_later(self, how):
        if how == ABORT and self._comm is not None:
            lib.weft_abort(self._comm, b"the process group was aborted")
        if not self._end_lock._is_owned():  # else it is at it
            self._leaving = True
            _late.append((self, how))

    def _close(self):
        """Frees the communicator. Returns the works that end with it, to be told once no lock is held."""
        self._leaving = True  # from here on nothing is begun
        me = threading.get_ident()
        _closing.add(me)
        locks = []
        try:
            works, lent, are_free = self._take_everything(locks)
            comm, self._comm = self._comm, None
            if are_free:
                with _interrupt.ending:  # Ctrl-C may just have ended the call before this one
                    lib.weft_comm_close(comm)
                del lent  # not before: until here operations may write to it
        finally:
            for lock in locks:
                lock.release()
            _closing.discard(me)
            _open_groups.discard(self)
        return works

    def _take_everything(self, locks):
        """(works, their memory, whether no thread uses the communicator any more)"""
        are_free = True
        for lock in (self._lock, self._messages_lock):
            is_taken = lock.acquire(timeout=1.0)
            if not is_taken:
                lib.weft_abort(self._comm, b"the process group is closed while a call is made on it")
                is_taken = lock.acquire(timeout=_STUCK_S)
            if is_taken:
                locks.append(lock)
            are_free = are_free and is_taken
        works = list(self._pending)
        lent = [(work._keep, work._after, work._tensors) for work in works if not work._done]
        error = BackendError("the process group was closed before the operation had ended", c.WEFT_ERR_ABORTED)
        for work in works:  # what has ended is a result still, the rest ends here
            are_free = (work._advance(0, 0.5) or work._give_up(error, _STUCK_S)) and are_free
        return works, lent, are_free

    # ---- the farewell

    def _say_farewell(self, is_peaceful):
        """What this rank sent is on its way, and in peace what it began is done and all ranks have come here. For
        two seconds at most; what fails meanwhile is no concern of a rank that leaves."""
        end = time.monotonic() + LINGER_MS / 1000
        if is_peaceful and self._stager_made is not None:
            self._stager_made.flush(LINGER_MS / 1000)
        for work in list(self._pending):
            while not (work._is_receive or work._is_collective and not is_peaceful):
                left = end - time.monotonic()
                if left <= 0 or work._advance(int(left * 1000) + 1, left):
                    break
        if is_peaceful:
            self._meet(end)

    def _meet(self, end):
        """Up a tree and down again."""
        children = [rank for rank in (2 * self._rank + 1, 2 * self._rank + 2) if rank < self._ranks]
        parent = [(self._rank - 1) // 2] if self._rank else []
        if (all(self._hear(rank, end) for rank in children) and all(self._tell_rank(rank, end) for rank in parent)
                and all(self._hear(rank, end) for rank in parent)):
            for rank in children:
                self._tell_rank(rank, end)

    def _hear(self, rank, end):
        return self._until(end, lambda request: lib.weft_recv(self._comm, None, 0, rank, _tags.FAREWELL, None, request))

    def _tell_rank(self, rank, end):
        return self._until(end, lambda request: lib.weft_send(self._comm, None, 0, rank, _tags.FAREWELL, request))

    @staticmethod
    def _until(end, begin):
        request = c.weft_request_t()
        if begin(ctypes.byref(request)) != c.WEFT_OK:
            return False
        if request.value is not None:
            lib.weft_request_set_timeout(request, c.WEFT_NO_LIMIT)  # its deadline is not to end the others' group
        left_ms = max(int((end - time.monotonic()) * 1000), 0)
        return lib.weft_wait(ctypes.byref(request), left_ms) == c.WEFT_OK


def leave_late():
    """Ends the groups that a handler wanted to end in the middle of this thread's calls, if it is out of them."""
    for entry in list(_late):
        group, how = entry
        if not group._is_in_a_call():
            try:
                _late.remove(entry)
            except ValueError:  # another thread was here
                continue
            group._leave(how)


@atexit.register
def _leave_all():
    """Whoever exits without destroy_process_group() leaves in the same way, unless an exception is the reason. In the
    order in which the groups were made, youngest first: on all ranks alike, so that they meet."""
    failed = getattr(sys, "last_value", None) is not None
    for group in sorted(_open_groups, key=lambda group: group._number, reverse=True):
        if failed:
            group.abandon()
        else:
            group.shutdown()


def _renew_locks():
    """In a forked child: threads it has not got hold the locks, and look after the Futures. Its calls get ERR_FORKED."""
    _late.clear()
    _closing.clear()
    for group in list(_open_groups):
        group._make_locks()
        group._crews = {}
        for work in list(group._pending):
            work._lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_locks)
