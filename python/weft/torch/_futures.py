# SPDX-License-Identifier: Apache-2.0
"""Who ends the works that somebody holds a Future of: a crew of threads, one for a group's collectives, one for its
messages.

One thread of a crew waits for works, and only one. A Future's callbacks are the user's, and may wait for another Future of
the group: whoever is about to run them has another thread wait meanwhile, an idle one or a new one. So there are two
threads usually, and one more for each callback that waits.
"""
import ctypes
import threading
import time
from collections import deque

from .. import _capi as c
from ._work import SLICE_MS

_wait_any = c.lib.weft_wait_any
_DRIVE = object()  # the task to wait for works


class Crew:
    """Of collectives, which end in the order they were begun: the first is waited for, then the next."""

    def __init__(self, name):
        self._name = name
        self._changed = threading.Condition()
        self._works = deque()  # to wait for
        self._ended = deque()  # to tell
        self._threads = set()
        self._idle_count = 0
        self._is_driven = False  # a thread waits for works
        self._is_called = False  # a thread was called and is not here yet
        self._is_stopped = False

    def put(self, work):
        with self._changed:
            self._works.append(work)
            if not self._is_driven:
                self._call()

    def has_works(self):
        return bool(self._works)

    def stop(self, seconds):
        """What has ended is told still, what has not is the caller's to tell. A thread in a callback is not waited for
        any longer than this."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
            threads = self._threads - {threading.current_thread()}
        end = time.monotonic() + seconds
        for thread in threads:
            thread.join(max(end - time.monotonic(), 0))

    def _call(self):
        """There is something to do for one more thread. One that is on its way sees to everything."""
        if self._is_called or self._is_stopped:
            return
        self._is_called = True
        if self._idle_count:
            self._changed.notify()
        else:
            thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
            self._threads.add(thread)
            thread.start()

    def _serve(self):
        self._is_called = False
        while True:
            task = self._next()
            if task is None:
                return
            if task is _DRIVE:
                self._drive_once()
            else:
                task._tell()
                task = None  # its tensors are not ours to keep

    def _next(self):
        """A work to tell, or _DRIVE; None: another thread waits for what comes, or the end has come."""
        with self._changed:
            while True:
                if self._ended:
                    work = self._ended.popleft()
                    if self._ended or self._works and not self._is_driven:
                        self._call()
                    return work
                if self._works and not self._is_driven and not self._is_stopped:
                    self._is_driven = True
                    return _DRIVE
                if self._is_stopped or self._idle_count:
                    self._threads.discard(threading.current_thread())
                    return None
                self._idle_count += 1
                self._changed.wait()
                self._idle_count -= 1
                self._is_called = False

    def _drive_once(self):
        ended = []
        try:
            ended = self._drive()
        finally:
            with self._changed:
                self._is_driven = False
                self._ended.extend(ended)

    def _drive(self):
        """Waits for a moment; the works that have ended."""
        work = self._works[0]
        if not work._advance(SLICE_MS, SLICE_MS / 1000):
            return []
        self._works.popleft()
        return [work]


class MessageCrew(Crew):
    """Of messages, which end in any order: all are waited for at once. A message to oneself ends the wait when there
    is one more."""

    def __init__(self, name, group):
        super().__init__(name)
        self._group = group
        self._bell = c.weft_request_t()

    def put(self, work):
        super().put(work)
        if self._is_driven:
            self._group._ring()

    def _drive(self):
        self._group._set_bell(self._bell)
        held = self._hold()
        try:
            if held:
                self._wait(held, 0 if self._group._leaving else SLICE_MS)
        finally:
            for work in held:
                work._lock.release()
        ended = []
        with self._changed:
            for _ in range(len(self._works)):
                work = self._works.popleft()
                (ended if work._done else self._works).append(work)  # (others may have ended it)
        if not ended and (not held or self._group._leaving):  # others wait for them, or want to
            time.sleep(0.001)
        return ended

    def _hold(self):
        """The works to wait for, whose locks are held now."""
        with self._changed:
            works = list(self._works)
        return [work for work in works if not work._done and work._lock.acquire(False)]

    def _wait(self, held, ms):
        """As long as one is held and has not ended the group is not closed, and the bell can be waited for."""
        held = [None] + [work for work in held if not work._done]
        left = len(held) - 1
        for work in held[1:]:
            work._keep_time()
        requests = (c.weft_request_t * len(held))(self._bell.value, *[work._request.value for work in held[1:]])
        at = ctypes.c_int(-1)
        while left:
            status = _wait_any(requests, len(held), ms, ctypes.byref(at))
            if at.value < 0:
                return
            if at.value == 0:
                self._bell.value = None
            else:
                work, left = held[at.value], left - 1
                work._request.value = None
                work._end(self._group._failure(status) if status else None)
            ms = 0  # what else has ended


def new_crew(group, messages):
    return MessageCrew("weft-messages", group) if messages else Crew("weft-collectives")
