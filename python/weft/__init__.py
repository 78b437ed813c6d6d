# SPDX-License-Identifier: Apache-2.0
"""Weft: communication for distributed AI.

    import numpy, weft

    with weft.init() as comm:              # under weft run, torchrun, srun, mpirun
        gradients = numpy.ones(1000, "float32")
        comm.allreduce(gradients, op="avg")    # in place
        request = comm.begin.send(gradients, to=(comm.rank + 1) % comm.ranks)
        request.wait()

docs/python.md is the page about it, include/weft/weft.h has every detail.
"""
from . import _capi
from ._comm import Begin, Comm, Id, Prepare, create, init
from ._errors import (AbortedError, ArrayError, AuthError, BusyError, DeadlineError, DuplicateError, Error,
                      ForkedError, InvalidError, MismatchError, NetworkError, OutOfMemoryError, PeerError,
                      ProtocolError, StillRunning, SystemCallError, TruncatedError, UnsupportedError, VersionError)
from ._memory import Memory, MemoryHandle, alloc, alloc_bytes
from ._messages import ANY_SOURCE, ANY_TAG
from ._requests import Message, Operation, Request, wait_all, wait_any

__version__ = _capi.lib.weft_version().decode()

__all__ = [
    "ANY_SOURCE", "ANY_TAG", "AbortedError", "ArrayError", "AuthError", "Begin", "BusyError", "Comm", "DeadlineError",
    "DuplicateError", "Error", "ForkedError", "Id", "InvalidError", "Memory", "MemoryHandle", "Message",
    "MismatchError", "NetworkError", "Operation", "OutOfMemoryError", "PeerError", "Prepare", "ProtocolError",
    "Request", "StillRunning", "SystemCallError", "TruncatedError", "UnsupportedError", "VersionError", "alloc",
    "alloc_bytes", "create", "init", "wait_all", "wait_any"]
