# SPDX-License-Identifier: Apache-2.0
"""Reading and writing other ranks' memory without their help. Offsets are bytes into the registered memory."""
from __future__ import annotations

from ctypes import byref
from typing import Any, Dict, Optional, Union

from ._buffers import describe
from ._capi import WEFT_ERR_TIMEOUT, WEFT_NO_LIMIT, lib
from ._errors import ArrayError, StillRunning, check
from ._memory import Memory, MemoryHandle, mem_of
from ._waiting import blocking, wait_in_slices

Where = Union[MemoryHandle, Memory, bytes]
SIGNAL_LEN = 8


class OneSided:
    """What Comm has of it. Local arrays are lent until quiet(), and kept alive until then."""
    _handle: Any
    _lent: Dict[int, Any]

    def _lend(self, keep: Any) -> None:
        """After the operation was begun: a quiet() of another thread that came before does not take this one along."""
        self._lent[id(keep)] = keep

    def register(self, array: Any) -> Memory:
        """Lets the ranks of this communicator put into and get from the array; fastest in memory of weft.alloc()."""
        return Memory(self, array)  # type: ignore[arg-type]

    def put(self, where: Where, array: Any, offset: int = 0) -> None:
        """Begins to copy the array to another rank's memory."""
        address, count, kind, keep = describe(array, False)
        check(lib.weft_put(self._handle, byref(mem_of(where)), offset, address, count * kind.size), "put",
              self._handle)
        self._lend(keep)

    def get(self, where: Where, array: Any, offset: int = 0) -> None:
        """Begins to copy another rank's memory into the array; it is there after quiet()."""
        address, count, kind, keep = describe(array, True)
        check(lib.weft_get(self._handle, byref(mem_of(where)), offset, address, count * kind.size), "get",
              self._handle)
        self._lend(keep)

    def put_signal(self, where: Where, array: Any, signal: Where, *, offset: int = 0, signal_offset: int = 0,
                   add: int = 1) -> None:
        """As put(); when the data is there, adds `add` to the 64-bit word at signal + signal_offset of that rank."""
        address, count, kind, keep = describe(array, False)
        check(lib.weft_put_signal(self._handle, byref(mem_of(where)), offset, address, count * kind.size,
                                  byref(mem_of(signal)), signal_offset, add), "put_signal", self._handle)
        self._lend(keep)

    def wait_signal(self, signal: Any, value: int, index: int = 0, timeout: Optional[float] = None) -> None:
        """Waits until word `index` of an array of 64-bit integers, registered here, is at least value. StillRunning
        after timeout seconds; without one, DeadlineError at the communicator's deadline, which ends it."""
        address, count, kind, keep = describe(signal, True)
        if kind.name not in ("u64", "i64") or not 0 <= index < count:
            raise ArrayError("wait_signal: word %d of %d x %s; signals are 64-bit integers" % (index, count, kind.name),
                             operation="wait_signal")
        address += index * SIGNAL_LEN

        def step(ms: int) -> int:
            return blocking(self, lib.weft_wait_signal, self._handle, address, value, ms)

        # only a wait without a limit ends at the communicator's deadline
        status = step(WEFT_NO_LIMIT) if timeout is None else wait_in_slices(step, self._is_working, timeout)
        if status == WEFT_ERR_TIMEOUT and self._is_working():
            raise StillRunning("the signal is not %d yet after %g s" % (value, timeout or 0), operation="wait_signal")
        check(status, "wait_signal", self._handle)

    def fence(self) -> None:
        """What is put to a rank after it is there only after what was put before."""
        check(lib.weft_fence(self._handle), "fence", self._handle)

    def quiet(self) -> None:
        """Waits until everything that was put and got is done, at the other side too; raises what failed since."""
        lent, self._lent = self._lent, {}
        status = blocking(self, lib.weft_quiet, self._handle)
        del lent
        check(status, "quiet", self._handle)

    def _is_working(self) -> bool:
        raise NotImplementedError
