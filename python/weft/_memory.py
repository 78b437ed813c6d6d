# SPDX-License-Identifier: Apache-2.0
"""Memory that ranks of this host read and write directly, and memory that other ranks may put into and get from."""
from __future__ import annotations

import ctypes
import math
import weakref
from ctypes import byref, c_char, c_void_p
from typing import TYPE_CHECKING, Any, List, Optional, Sequence, Union

from . import _checks
from ._buffers import describe
from ._capi import lib, weft_mem_t
from ._errors import Error, InvalidError, check
from ._requests import Kept

if TYPE_CHECKING:
    from ._comm import Comm

HANDLE_LEN = ctypes.sizeof(weft_mem_t)


def alloc_bytes(nbytes: int) -> memoryview:
    """Zeroed, page-aligned memory from weft_alloc(), freed when nobody looks at it any more. Sending from it is one
    copy or none on one host. torch: torch.frombuffer(weft.alloc_bytes(n), dtype=…)."""
    nbytes = _checks.integer("alloc", "the number of bytes", nbytes, 1, _checks.LEN_MAX)
    address = c_void_p()
    check(lib.weft_alloc(nbytes, byref(address)), "alloc")
    assert address.value is not None
    memory = (c_char * nbytes).from_address(address.value)
    # Views of it hold it, and arrays in flight are held by their requests: when it goes, nothing uses it.
    weakref.finalize(memory, lib.weft_free, address.value).atexit = False
    return memoryview(memory).cast("B")


def alloc(shape: Union[int, Sequence[int]], dtype: Any = "float32"):
    """A zeroed numpy array in such memory."""
    import numpy

    dtype = numpy.dtype(dtype)
    if dtype.hasobject:
        raise InvalidError("alloc: Python objects cannot lie in shared memory", operation="alloc")
    listed = (shape,) if hasattr(shape, "__index__") else tuple(shape)  # type: ignore[arg-type]
    dimensions = [_checks.integer("alloc", "a dimension", each, 0, _checks.LEN_MAX) for each in listed]
    count = math.prod(dimensions)
    if count * dtype.itemsize == 0:
        return numpy.zeros(dimensions, dtype)
    return numpy.frombuffer(alloc_bytes(count * dtype.itemsize), dtype).reshape(dimensions)


class MemoryHandle:
    """Names a rank's registered memory: plain bytes (bytes(handle)), made again by MemoryHandle(data)."""
    __slots__ = ("_mem",)

    def __init__(self, data: bytes):
        copy = _checks.data("MemoryHandle", data)
        if len(copy) != HANDLE_LEN:
            raise InvalidError("a handle has %d bytes, not %d" % (HANDLE_LEN, len(copy)), operation="MemoryHandle")
        self._mem = weft_mem_t.from_buffer_copy(copy)

    def __bytes__(self) -> bytes:
        return bytes(self._mem)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MemoryHandle) and bytes(self) == bytes(other)

    def __hash__(self) -> int:
        return hash(bytes(self))


class Memory:
    """An array that the ranks of a communicator may put into and get from, until it is deregistered or dropped."""
    _comm: Optional[Comm] = None  # while it is registered

    def __init__(self, comm: Comm, array: Any):
        address, count, kind, keep = describe(array, True)
        self._keep = Kept(comm, keep)
        self.array = array
        self.nbytes = count * kind.size
        self.handle = MemoryHandle(bytes(HANDLE_LEN))
        self._comm = comm  # before: when Ctrl-C comes after it was registered, the finalizer knows
        try:
            comm._call("register", lib.weft_mem_register, address, self.nbytes, byref(self.handle._mem))
        except Error:
            self._comm = None
            self._keep.let_go()
            raise

    def __reduce__(self) -> Any:
        raise TypeError("a weft.Memory cannot be copied or pickled; pass on bytes(memory.handle)")

    def exchange(self) -> List[MemoryHandle]:
        """Everybody's handles in rank order. Collective: every rank has registered something."""
        if self._comm is None:
            raise InvalidError("the memory was deregistered", operation="exchange")
        return [MemoryHandle(data) for data in self._comm.control_allgather(bytes(self.handle))]

    def deregister(self) -> None:
        """Later accesses of other ranks fail."""
        comm, self._comm = self._comm, None
        if comm is not None and not comm._is_closed:
            comm._call("deregister", lib.weft_mem_deregister, byref(self.handle._mem))
            self._keep.let_go()

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, kind, error, trace) -> None:
        self.deregister()

    def __del__(self) -> None:
        if self._comm is not None:
            self._comm._deregister(self.handle._mem, self._keep)


def mem_of(where: Union[MemoryHandle, Memory, bytes]) -> weft_mem_t:
    """The C struct of a handle, however it is given."""
    if isinstance(where, MemoryHandle):
        return where._mem
    if isinstance(where, Memory):
        return where.handle._mem
    return MemoryHandle(where)._mem
