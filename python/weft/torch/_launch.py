# SPDX-License-Identifier: Apache-2.0
"""init_process_group("weft") without RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT: under srun, mpirun and `weft run`.

torch's env:// wants those four, which torchrun sets. Where they are missing and Weft knows the launcher, the ranks meet
over Weft first (weft_init(), docs/bootstrap.md), and rank 0 tells the others where its store listens: a port that the
system chose, so no two jobs can want the same. With the four set, or with rank and world_size given, torch's own way is
taken, untouched.
"""
import ctypes
import os
import socket
import sys
from urllib.parse import urlparse

import torch.distributed as dist

from .. import _capi as c
from ._errors import failure
from ._start import in_helper
from ._work import milliseconds

lib = c.lib

# rank, ranks, local rank, local ranks: as far as the launcher says them
_LAUNCHERS = (
    ("WEFT_RANK", "WEFT_RANKS", "WEFT_LOCAL_RANK", "WEFT_LOCAL_RANKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", ""),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", ""),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)
_TORCH_NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
_ADDRESS_LEN = 256


def register():
    """Takes the place of torch's env:// handler, and asks it whenever it can answer."""
    module = sys.modules["torch.distributed.rendezvous"]  # the name is the function, too
    handlers = module._rendezvous_handlers
    if getattr(handlers.get("env"), "is_weft", False):
        return
    torchs = handlers["env"]

    def handler(url, **settings):
        if _is_for_weft(url):
            return _by_weft(**settings)
        return torchs(url, **settings)

    handler.is_weft = True
    handlers["env"] = handler


def _launcher():
    for names in _LAUNCHERS:
        if names[0] in os.environ and names[1] in os.environ:
            return names
    return None


def _is_for_weft(url):
    names = _launcher()
    if "rank=" in urlparse(url).query or names is None:
        return False
    if "MASTER_ADDR" in os.environ and "MASTER_PORT" in os.environ:
        _say_ranks(names)  # all that is missing
        return False
    return True


def _say_ranks(names):
    for ours, theirs in zip(_TORCH_NAMES, names):
        if theirs in os.environ:
            os.environ.setdefault(ours, os.environ[theirs])


def _by_weft(timeout=None, **_settings):
    """A generator, as torch wants handlers: yields (store, rank, ranks) once."""
    store, facts = in_helper(lambda: _start(timeout))
    for name, value in zip(_TORCH_NAMES, facts):
        os.environ.setdefault(name, str(value))
    yield store, facts[0], facts[1]
    raise RuntimeError("a second rendezvous is not possible")


def _start(timeout):
    limit_ms = milliseconds(timeout) or 0
    config = c.weft_config_t(start_timeout_ms=limit_ms, timeout_ms=limit_ms)
    comm = c.weft_comm_t()
    _check(lib.weft_init(ctypes.byref(config), ctypes.byref(comm)))
    try:
        facts = _facts(comm)
        rank, ranks, _, local_ranks = facts
        store = _meet(comm, rank, ranks, local_ranks == ranks, timeout)
        _check(lib.weft_control_barrier(comm))
        return store, facts
    finally:
        lib.weft_comm_close(comm)


def _facts(comm):
    numbers = [ctypes.c_int() for _ in range(4)]
    at = [ctypes.byref(number) for number in numbers]
    _check(lib.weft_comm_rank(comm, at[0]))
    _check(lib.weft_comm_ranks(comm, at[1]))
    _check(lib.weft_comm_local(comm, at[2], at[3]))
    return [number.value for number in numbers]


def _meet(comm, rank, ranks, on_one_host, timeout):
    settings = {"timeout": timeout} if timeout else {}
    told = ctypes.create_string_buffer(_ADDRESS_LEN)
    store = None
    if rank == 0:
        host = "127.0.0.1" if on_one_host else os.environ.get("MASTER_ADDR", socket.gethostname())
        store = dist.TCPStore(host, 0, ranks, True, wait_for_workers=False, **settings)
        told.value = ("%s %d" % (host, store.port)).encode()
    _check(lib.weft_control_broadcast(comm, told, _ADDRESS_LEN, 0))
    if rank != 0:
        host, port = told.value.decode().split()
        store = dist.TCPStore(host, int(port), ranks, False, wait_for_workers=False, **settings)
    return store


def _check(status):
    if status != c.WEFT_OK:
        raise failure(status)
