# SPDX-License-Identifier: Apache-2.0
"""What Python adds to one call: an allreduce of 8 bytes, said in different ways. With one rank nobody is waited for, so
the time is Python's and ctypes', and a third of a microsecond of the C library's."""
import time

import numpy

import weft
from weft._capi import WEFT_F32, WEFT_SUM, lib

from . import show

CALLS = 20000


def ways(comm):
    """(what it is, a call)"""
    array, other = numpy.zeros(2, "float32"), numpy.zeros(2, "float32")
    prepared = comm.prepare.allreduce(array)
    arguments = (comm._handle, array.ctypes.data, array.ctypes.data, 2, WEFT_F32, WEFT_SUM, None)
    found = [("ctypes alone", lambda: lib.weft_allreduce(*arguments)),
             ("comm.prepare.allreduce(array), called", prepared),
             ("comm.allreduce(array)", lambda: comm.allreduce(array)),
             ("comm.allreduce(array, out)", lambda: comm.allreduce(array, other)),
             ("comm.begin.allreduce(array).wait()", lambda: comm.begin.allreduce(array).wait())]
    try:
        import torch
    except ImportError:
        return found
    tensor = torch.zeros(2)
    return found + [("comm.allreduce(tensor)", lambda: comm.allreduce(tensor))]


def seconds(call):
    begin = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - begin) / CALLS


def rows(comm, options):
    """Of a job of one rank, which rank 0 makes beside the one that runs."""
    if comm.rank != 0:
        return []
    with weft.create(weft.Id.create(), 0, 1) as alone:
        called = ways(alone)
        for _, call in called:
            seconds(call)
        times = {name: [] for name, _ in called}
        for _ in range(options.rounds):
            for name, call in called:
                times[name].append(seconds(call))
        del called
    return [show.row("overhead", 1, 8, name, times[name], 0, {}) for name in times]
