# SPDX-License-Identifier: Apache-2.0
"""Reading and writing other ranks' memory without their help. Offsets are bytes into the registered memory."""
from __future__ import annotations

from ctypes import byref
from typing import Any, Dict, Optional, Tuple, Union

from . import _checks
from ._buffers import describe
from ._capi import WEFT_ERR_TIMEOUT, WEFT_NO_LIMIT, WEFT_OK, lib
from ._checks import U64_MAX
from ._errors import ArrayError, StillRunning, check
from ._memory import Memory, MemoryHandle, mem_of
from ._waiting import interruptible, using, wait_in_slices

Where = Union[MemoryHandle, Memory, bytes]
SIGNAL_LEN = 8


class OneSided:
    """What Comm has of it. Local arrays are lent until quiet(), and kept alive until then."""
    _handle: Any
    _lent: Dict[int, Any]

    def _call(self, operation: str, function: Any, *arguments: Any) -> None:
        raise NotImplementedError

    def _begin(self, operation: str, keep: Any, function: Any, *arguments: Any) -> None:
        try:
            self._call(operation, function, *arguments)
        finally:  # also when Ctrl-C came after it was begun. Not before: a quiet() of another thread would take it along
            self._lent[id(keep)] = keep

    def register(self, array: Any) -> Memory:
        """Lets the ranks of this communicator put into and get from the array; fastest in memory of weft.alloc()."""
        return Memory(self, array)  # type: ignore[arg-type]

    def put(self, where: Where, array: Any, offset: int = 0) -> None:
        """Begins to copy the array to another rank's memory."""
        address, count, kind, keep = describe(array, False)
        self._begin("put", keep, lib.weft_put, byref(mem_of(where)), _offset("put", "offset", offset), address,
                    count * kind.size)

    def get(self, where: Where, array: Any, offset: int = 0) -> None:
        """Begins to copy another rank's memory into the array; it is there after quiet()."""
        address, count, kind, keep = describe(array, True)
        self._begin("get", keep, lib.weft_get, byref(mem_of(where)), _offset("get", "offset", offset), address,
                    count * kind.size)

    def put_signal(self, where: Where, array: Any, signal: Where, *, offset: int = 0, signal_offset: int = 0,
                   add: int = 1) -> None:
        """As put(); when the data is there, adds `add` to the 64-bit word at signal + signal_offset of that rank."""
        address, count, kind, keep = describe(array, False)
        self._begin("put_signal", keep, lib.weft_put_signal, byref(mem_of(where)),
                    _offset("put_signal", "offset", offset), address, count * kind.size, byref(mem_of(signal)),
                    _offset("put_signal", "signal_offset", signal_offset),
                    _checks.integer("put_signal", "add", add, 0, U64_MAX))

    def wait_signal(self, signal: Any, value: int, index: int = 0, timeout: Optional[float] = None) -> None:
        """Waits until word `index` of an array of 64-bit integers, registered here, is at least value. StillRunning
        after timeout seconds; without one, DeadlineError at the communicator's deadline, which ends it. PeerError when
        all other ranks have closed or died."""
        address, count, kind, keep = describe(signal, True)
        index = _checks.integer("wait_signal", "index", index, 0, _checks.LEN_MAX)
        value = _checks.integer("wait_signal", "value", value, 0, U64_MAX)
        if kind.name not in ("u64", "i64") or index >= count:
            raise ArrayError("wait_signal: word %d of %d x %s; signals are 64-bit integers" % (index, count, kind.name),
                             operation="wait_signal")
        comm: Any = self
        using(comm, "wait_signal", lambda handle: _wait_for_signal(comm, handle, (address + index * SIGNAL_LEN, value),
                                                                   timeout))
        del keep

    def fence(self) -> None:
        """What is put to a rank after it is there only after what was put before."""
        self._call("fence", lib.weft_fence)

    def quiet(self) -> None:
        """Waits until everything that was put and got is done, at the other side too; raises what failed since."""
        lent, self._lent = self._lent, {}
        try:
            self._call("quiet", lib.weft_quiet)
        except BaseException:
            self._lent.update(lent)  # some may be on their way still
            raise


def _offset(operation: str, name: str, value: Any) -> int:
    return _checks.integer(operation, name, value, 0, _checks.LEN_MAX)


def _wait_for_signal(comm: Any, handle: int, awaited: Tuple[int, int], timeout: Optional[float]) -> None:
    """awaited: the word's address and value."""
    def step(ms: int) -> int:
        return interruptible(comm, lib.weft_wait_signal, handle, *awaited, ms)

    def is_working() -> bool:
        return lib.weft_comm_status(handle) == WEFT_OK

    # only a wait without a limit ends at the communicator's deadline
    status = step(WEFT_NO_LIMIT) if timeout is None else wait_in_slices(step, is_working, timeout)
    if status == WEFT_ERR_TIMEOUT and is_working():
        raise StillRunning("the signal is not %d yet after %g s" % (awaited[1], timeout or 0), operation="wait_signal")
    check(status, "wait_signal", handle)
