# SPDX-License-Identifier: Apache-2.0
"""Errors of the backend. They are torch's DistBackendError and Weft's Error at once: what catches NCCL's errors, or those of
the rest of Weft, catches these."""
import torch.distributed as dist

from .. import _capi as c
from .._errors import NOBODY, Error, last_text, verdict_on

_RANKS_SHOWN = 16


class BackendError(dist.DistBackendError, Error):
    """An operation failed. `status` is Weft's number and `name` its name ("ERR_PEER"); `rank`: who failed, of this group,
    where one is known; `global_rank`: its number in the job."""

    def __init__(self, text, status=c.WEFT_ERR_INVALID, rank=None, global_rank=None):
        Error.__init__(self, text, rank=rank)
        self.status = status
        self.global_rank = global_rank

    def __str__(self):
        return "weft " + Error.__str__(self)

    def __reduce__(self):
        return type(self), (self.text, self.status, self.rank, self.global_rank)


class ArgumentError(BackendError, ValueError):
    """The call cannot be made like this; nothing was begun and the group goes on."""


def failure(status, comm=None, job_ranks=None):
    """The error of the calling thread's latest call, which returned status. job_ranks() gives the job's numbers of the
    group's ranks, or None."""
    text = last_text() or c.lib.weft_status_text(status).decode()  # first: another call of ours would replace it
    if status in (c.WEFT_ERR_INVALID, c.WEFT_ERR_UNSUPPORTED):
        return ArgumentError(text, status)
    ended = verdict_on(comm)
    rank = None if ended is None or ended.rank == NOBODY else ended.rank
    ranks = job_ranks() if job_ranks is not None else None
    if not ranks:
        return BackendError(text, status, rank)
    global_rank = ranks[rank] if rank is not None and rank < len(ranks) else None
    return BackendError(text + _in_the_job(ranks, rank), status, rank, global_rank)


def _in_the_job(ranks, rank):
    """Texts have the group's numbers: whoever looks for the process wants the job's."""
    if ranks == list(range(len(ranks))):
        return ""
    if rank is not None and rank < len(ranks):
        return "; rank %d of this group is rank %d of the job" % (rank, ranks[rank])
    shown = ", ".join(map(str, ranks[:_RANKS_SHOWN])) + (", ..." if len(ranks) > _RANKS_SHOWN else "")
    return "; this group's ranks are, in the job, %s" % shown
