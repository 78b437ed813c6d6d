# SPDX-License-Identifier: Apache-2.0
"""CUDA tensors: through pinned host memory, until Weft reads the device's memory itself.

    current stream   ...compute...  |                              | what uses the result
    stream "down"                    copy to host                  |
    stager's thread                   waits, begins                |
    Weft                                   the operation           |
    completer's thread                                  starts the copy back
    stream "up"                                          copy to device

Only a send blocks the thread that calls, until its bytes are on the host. Collectives are begun in the order they were
called, each as soon as its bytes are on the host, so the copies of one overlap the operation before it. work.wait() blocks
until the operation has ended, and makes the current stream wait for the copy back. Long tensors go in pieces, for the same
overlap within one call.
"""
import ctypes
import math
import threading
import time
from queue import SimpleQueue

import torch

from .. import _capi as c
from . import _tensors as t
from ._errors import BackendError
from ._work import SLICE_MS, ReceiveWork, Work

PIECE_LEN = 8 << 20


class CudaDevice:
    """The few things that are done with a device; tests have another one of these."""

    def __init__(self, device):
        self._device = device
        self._down = torch.cuda.Stream(device)
        self._up = torch.cuda.Stream(device)

    def to_host(self, dense):
        """Starts a copy to pinned memory, after what the current stream does to the tensor; (copy, event)."""
        host = self.host_like(dense)
        self._down.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._down):
            host.copy_(dense, non_blocking=True)
            dense.record_stream(self._down)
            return host, self._down.record_event()

    def host_like(self, dense):
        return torch.empty(dense.shape, dtype=dense.dtype, pin_memory=True)

    def before_writing(self):
        """What the current stream does to the output comes before the copy back."""
        self._up.wait_stream(torch.cuda.current_stream(self._device))

    def to_device(self, writes, after):
        """Starts the copies back, [(tensor, pinned memory)], then those between tensors; an event."""
        with torch.cuda.stream(self._up):
            t.copy_back(writes, non_blocking=True)
            t.copy_back(after)
            for tensor, _ in [*writes, *after]:
                tensor.record_stream(self._up)
            return self._up.record_event()

    def let_current_wait(self, event):
        torch.cuda.current_stream(self._device).wait_event(event)

    def new_future(self):
        return torch.futures.Future(devices=[self._device])

    def with_results(self):
        """A Future that is given its value in here knows that the copy back comes first."""
        return torch.cuda.stream(self._up)


class DeviceStage:
    """Pinned memory for the tensors of one call; the interface is HostStage's."""
    is_cuda = True

    def __init__(self, device):
        self.device = device
        self.after = []  # on the device, when the result is there
        self.writes = []
        self.events = []  # of copies to the host
        self.kept = []

    def _read(self, dense):
        host, event = self.device.to_host(dense)
        self.events.append(event)
        self.kept.append((dense, host))
        return host

    def _write(self, dense):
        host = self.device.host_like(dense)
        self.writes.append((dense, host))
        return host

    def source(self, tensor):
        return self._read(t.source(tensor))

    def target(self, tensor):
        return self._write(t.target(tensor, self.after))

    def both(self, tensor):
        dense = t.both(tensor, self.after)
        host = self._read(dense)
        self.writes.append((dense, host))
        return host

    def flat_source(self, tensors):
        return self._read(_whole(t.flat_source(tensors), tensors))

    def flat_target(self, tensors):
        return self._write(_whole(t.flat_target(tensors, self.after), tensors))

    def apart(self, source, *_where):
        return t.address(source)  # each has its own pinned memory

    def wait_for_sources(self):
        for event in self.events:
            event.synchronize()


def _whole(first, tensors):
    """Tensors that lie in a row are named by their first one; a copy needs all of them."""
    count = sum(tensor.numel() for tensor in tensors)
    return first if first.numel() == count else first.as_strided((count,), (1,))


def is_long(tensor):
    return tensor.nbytes > PIECE_LEN  # and nothing else: all ranks must cut alike


def pieces(dense):
    """Views of a dense tensor."""
    return dense.view(-1).split(PIECE_LEN // dense.element_size())


class _OnDevice:
    """What a work with tensors on a device does otherwise. `_stage` is its DeviceStage."""
    _event = None

    def wait(self, timeout=None):
        super().wait(timeout)
        self._device.let_current_wait(self._event)
        return True

    def _copy_back(self):
        self._check_received()
        self._event = self._device.to_device(self._stage.writes, self._stage.after)

    def _check_received(self):
        pass

    def _is_short(self):
        return False

    def _new_future(self):
        return self._device.new_future()

    def _tell(self):
        with self._device.with_results():
            super()._tell()

    def _end(self, error):
        super()._end(error)
        self._stage = None


class StagedWork(_OnDevice, Work):
    """A collective. Until the stager has begun it there is no request."""

    def __init__(self, tensors, group, stage):
        super().__init__(tensors, group, request=c.weft_request_t(), keep=stage)
        self._device = stage.device
        self._stage = stage
        self._begun = threading.Event()
        self._refused = None

    def _poll(self, ms):
        if not self._begun.wait(ms / 1000):
            return None
        if self._refused is not None:
            raise self._refused
        return super()._poll(ms)

    def _advance(self, ms, lock_s):
        try:
            return super()._advance(ms, lock_s)
        except BackendError as error:  # it was refused when it was begun
            if error is not self._refused:
                raise
            return self._give_up(error, lock_s)


class StagedReceive(_OnDevice, ReceiveWork):
    """A receive; keep: (pinned memory, message), as ReceiveWork wants it."""

    def __init__(self, stage, *arguments):
        super().__init__(*arguments)
        self._device = stage.device
        self._stage = stage

    def _check_received(self):
        self._check_length()


class JoinedWork(Work):
    """Several works that are one call. after: pairs of tensors on the device, copied when all of them have ended."""
    _event = None

    def __init__(self, works, tensors, group, after=()):
        super().__init__(tensors, group, request=c.weft_request_t(), after=after, keep=works)
        self._works = works

    def wait(self, timeout=None):
        super().wait(timeout)
        for work in self._works:
            work.wait()  # streams wait, too
        if self._event is not None:
            self._works[0]._device.let_current_wait(self._event)
        return True

    def _copy_back(self):
        if self._after:
            self._event = self._works[0]._device.to_device((), self._after)

    def _advance(self, ms, lock_s):
        if self._done:
            return True
        for work in self._works:
            if not work._advance(ms, lock_s):
                return False
        with self._lock:
            if not self._done:
                self._end(next((work._error for work in self._works if work._error is not None), None))
        return True

    def _is_short(self):
        return False

    def _new_future(self):
        return self._works[0]._new_future()

    def _tell(self):
        with self._works[0]._device.with_results():
            super()._tell()


class Stager:
    """One per group: begins staged collectives in order, each when its bytes are on the host."""

    def __init__(self, group, make_device=CudaDevice):
        self._group = group
        self._make_device = make_device
        self._devices = {}
        self._queue = SimpleQueue()
        self._changed = threading.Condition()
        self._waiting = 0  # called, but not begun
        self._thread = threading.Thread(target=self._serve, name="weft-stager", daemon=True)
        self._thread.start()

    def stage(self, device):
        if device not in self._devices:
            self._devices[device] = self._make_device(device)
        return DeviceStage(self._devices[device])

    def run(self, stage, begin, tensors, limit_ms):
        group = self._group
        group._comm_or_raise()
        stage.device.before_writing()
        work = StagedWork(tensors, group, stage)
        group._pending[work] = None
        with self._changed:
            self._waiting += 1
        self._queue.put((work, stage, begin, limit_ms))
        return work

    def receive_work(self, stage):
        stage.device.before_writing()
        return lambda *arguments: StagedReceive(stage, *arguments)

    def join(self, works, tensors, after=()):
        work = JoinedWork(works, tensors, self._group, after)
        self._group._pending[work] = None
        return work

    def flush(self, seconds=math.inf):
        """Until everything that was called is begun: what comes next comes after it."""
        end = time.monotonic() + seconds
        with self._changed:
            while self._waiting and self._thread.is_alive() and time.monotonic() < end:
                self._changed.wait(SLICE_MS / 1000)

    def stop(self, seconds):
        self._queue.put(None)
        self._thread.join(seconds)

    def _serve(self):
        while True:
            job = self._queue.get()
            if job is None:
                return
            try:
                self._begin(*job)
            finally:
                job = None  # memory of the device and pinned memory are not ours to keep
                with self._changed:
                    self._waiting -= 1
                    self._changed.notify_all()

    def _begin(self, work, stage, begin, limit_ms):
        try:
            stage.wait_for_sources()
            with self._group._lock:
                comm = self._group._comm_or_raise()
                status = begin(comm, ctypes.byref(work._request))
                if status != c.WEFT_OK:
                    raise self._group._failure(status)
                if limit_ms is not None and work._request.value is not None:
                    c.lib.weft_request_set_timeout(work._request, limit_ms)
        except Exception as error:  # of the device, too
            work._refused = error if isinstance(error, BackendError) else BackendError(str(error), c.WEFT_ERR_SYSTEM)
        work._begun.set()
        if not work._done:
            self._group._crew().put(work)
