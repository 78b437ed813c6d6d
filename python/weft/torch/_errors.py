# SPDX-License-Identifier: Apache-2.0
"""Errors of the backend. They are torch's DistBackendError and Weft's Error at once: what catches NCCL's errors, or those of
the rest of Weft, catches these."""
import torch.distributed as dist

from .. import _capi as c
from .._errors import NOBODY, Error, last_text, verdict_on


class BackendError(dist.DistBackendError, Error):
    """An operation failed. `status` is Weft's number and `name` its name ("ERR_PEER"); `rank`: who failed, of this group,
    where one is known."""

    def __init__(self, text, status=c.WEFT_ERR_INVALID, rank=None):
        Error.__init__(self, text, rank=rank)
        self.status = status

    def __str__(self):
        return "weft " + Error.__str__(self)

    def __reduce__(self):
        return type(self), (self.text, self.status, self.rank)


class ArgumentError(BackendError, ValueError):
    """The call cannot be made like this; nothing was begun and the group goes on."""


def failure(status, comm=None):
    """The error of the calling thread's latest call, which returned status."""
    text = last_text() or c.lib.weft_status_text(status).decode()  # first: another call of ours would replace it
    if status in (c.WEFT_ERR_INVALID, c.WEFT_ERR_UNSUPPORTED):
        return ArgumentError(text, status)
    ended = verdict_on(comm)
    return BackendError(text, status, None if ended is None or ended.rank == NOBODY else ended.rank)
