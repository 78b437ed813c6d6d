# SPDX-License-Identifier: Apache-2.0
"""What one rank of python -m weft.bench does: Weft and its peers take turns in the same processes, on arrays that are
theirs alone; every contender's results are checked before and after its timings."""
import os
import socket
import sys
import time

import numpy

import weft
from weft import _capi

from . import overhead, show
from .contenders import Gloo, Weft

OPS = ("allreduce", "broadcast", "allgather", "reduce_scatter", "alltoall", "barrier")
FLOAT_LEN = 4
TRIAL_S = 0.01  # of the first look at how long a call takes
MOST_CALLS = 100000


def sizes_of(options, op, ranks):
    """Bytes of the whole buffer, each a multiple of what every rank's piece needs."""
    if op == "barrier":
        return [0]
    sizes, size = [], options.minbytes
    step = FLOAT_LEN * (ranks if op in ("allgather", "reduce_scatter", "alltoall") else 1)
    while size <= options.maxbytes:
        rounded = max(step, size // step * step)
        if rounded not in sizes:
            sizes.append(rounded)
        size *= options.stepfactor
    return sizes


def batch(comm, call, count):
    """Seconds per call of the slowest rank, of `count` calls back to back."""
    comm.control_barrier()
    begin = time.perf_counter()
    for _ in range(count):
        call()
    mine = (time.perf_counter() - begin) / count
    return float(comm.allreduce(numpy.array([mine]), op="max")[0])


def choose_count(comm, call, seconds):
    """Calls that take about as long as asked for; the same number on all ranks."""
    count = 1
    while True:
        each = batch(comm, call, count)
        if each * count >= min(TRIAL_S, seconds) or count >= MOST_CALLS:
            return max(1, min(MOST_CALLS, int(seconds / each)))
        count *= 4


def time_cell(comm, contenders, op, size, options):
    """{contender: [seconds per call, one per round], …} and {contender: wrong elements}."""
    cells = [(contender.name, contender.cell(op, size)) for contender in contenders]
    cells = [(name, cell) for name, cell in cells if cell is not None]
    wrong = {name: cell.count_wrong() for name, cell in cells}
    counts = {name: choose_count(comm, cell.call, options.time) for name, cell in cells}
    times = {name: [] for name, _ in cells}
    for number in range(options.rounds):
        for name, cell in cells if number % 2 == 0 else cells[::-1]:
            times[name].append(batch(comm, cell.call, counts[name]))
    for name, cell in cells:
        wrong[name] += cell.count_wrong()
    every = comm.allreduce(numpy.array([wrong[name] for name, _ in cells], "int64"))
    return times, {name: int(every[i]) for i, (name, _) in enumerate(cells)}


def open_gloo(comm):
    """Gloo over the same ranks; None, with the reason on stderr, where there is none."""
    try:
        import torch.distributed as dist
    except ImportError:
        dist = None
    has = comm.allreduce(numpy.array([dist is not None and dist.is_available()], "uint8"), op="min")[0]
    if not has:
        if comm.rank == 0:
            print("torch is not installed: Weft alone is timed, without Gloo beside it", file=sys.stderr)
        return None
    address = numpy.zeros(64, "uint8")
    if comm.rank == 0:
        where = "%s:%d" % (_own_name(comm), _free_port())
        address[:len(where)] = list(where.encode())
    where = comm.broadcast(address).tobytes().rstrip(b"\0").decode()
    dist.init_process_group("gloo", init_method="tcp://" + where, rank=comm.rank, world_size=comm.ranks)
    return Gloo(comm, dist)


def _own_name(comm):
    return "127.0.0.1" if comm.local_ranks == comm.ranks else socket.gethostname()


def _free_port():
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def run(options):
    """The report of rank 0; None on the others."""
    with weft.init() as comm:
        gloo = open_gloo(comm) if set(options.ops) - {"overhead"} else None
        contenders = [Weft(comm, gloo is not None)] + ([gloo] if gloo else [])
        rows = []
        for op in options.ops:
            if op == "overhead":
                rows += overhead.rows(comm, options)
                continue
            for size in sizes_of(options, op, comm.ranks):
                times, wrong = time_cell(comm, contenders, op, size, options)
                rows += [show.row(op, comm.ranks, size, name, times[name], wrong[name], times) for name in times]
                if comm.rank == 0:
                    show.progress("%s, %d ranks, %d bytes" % (op, comm.ranks, size))
        if gloo:
            gloo.close()
        if comm.rank != 0:
            return None
        show.progress("")
        return {"weft": _capi.lib.weft_version().decode(), "bench": "python", "host": {"cores": os.cpu_count()},
                "args": {"ops": options.ops, "rounds": options.rounds}, "peers": gloo.version if gloo else None,
                "results": rows}
