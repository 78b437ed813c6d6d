# SPDX-License-Identifier: Apache-2.0
"""The PyTorch backend. Importing this registers it:

    import torch.distributed as dist
    import weft.torch

    dist.init_process_group("weft")

See docs/pytorch.md.
"""
from __future__ import annotations

import datetime
from typing import Optional

import torch.distributed as dist

from . import _launch
from ._collectives import ProcessGroupWeft
from ._errors import ArgumentError, BackendError

__all__ = ["ArgumentError", "BackendError", "ProcessGroupWeft", "monitored_barrier", "register"]


def _create(options, backend_options=None):
    if backend_options is not None:
        raise ArgumentError("the weft backend has no options of its own (`weft params` lists Weft's settings), but "
                            "%r was given" % (backend_options,))
    return ProcessGroupWeft(options.store, options.group_rank, options.group_size, options.timeout)


def register() -> None:
    """Makes "weft" a backend of torch.distributed; harmless when it is one already."""
    if "WEFT" not in dist.Backend._plugins:
        dist.Backend.register_backend("weft", _create, extended_api=True, devices=["cpu", "cuda"])
    _launch.register()


def monitored_barrier(group: Optional[dist.ProcessGroup] = None, timeout: Optional[datetime.timedelta] = None,
                      wait_all_ranks: bool = False) -> None:
    """dist.monitored_barrier(), which takes Gloo only, for groups of Weft: all ranks meet within `timeout` (a timedelta;
    by default the group's), or each gets a DistBackendError that names all who did not come. `wait_all_ranks` is taken
    for compatibility: they are always all named. After an error the group has failed."""
    if group is dist.GroupMember.NON_GROUP_MEMBER:
        return
    chosen = group if group is not None else dist.distributed_c10d._get_default_group()
    if not isinstance(chosen, ProcessGroupWeft):
        raise ArgumentError("weft.torch.monitored_barrier() takes groups of the weft backend, not %s"
                            % dist.get_backend(chosen))
    chosen.monitored_barrier(timeout, wait_all_ranks)


register()
