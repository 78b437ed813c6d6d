# SPDX-License-Identifier: Apache-2.0
"""What went wrong, as exceptions: one class per status of the C library, all of them weft.Error."""
from __future__ import annotations

from ctypes import byref
from typing import Optional

from . import _capi
from ._capi import lib

NOBODY = -1  # weft_error_t.rank when no rank in particular is to blame


class Error(Exception):
    """Anything that Weft reports.

    status     the number of the C library (weft.ERR_PEER …), and name its name
    rank       the rank that failed or is to blame, when one is known; of the communicator that was used
    operation  what this rank called ("allreduce")
    verdict    the coordinator's number of the failure, the same on all ranks; 0: this rank's own judgement
    index      which of the requests given to wait_any() or wait_all() it is of; None: of no such list
    text       who, what and what to do
    """
    status = _capi.WEFT_OK

    def __init__(self, text: str, *, operation: str = "", rank: Optional[int] = None, verdict: int = 0):
        super().__init__(text)
        self.text = text
        self.operation = operation
        self.rank = rank
        self.verdict = verdict
        self.index: Optional[int] = None

    def __str__(self) -> str:
        return "%s: %s" % (self.name, self.text)

    @property
    def name(self) -> str:
        return lib.weft_status_name(self.status).decode()


class InvalidError(Error, ValueError):
    """An argument or a setting is wrong. The communicator goes on."""
    status = _capi.WEFT_ERR_INVALID


class ArrayError(InvalidError, TypeError):
    """An array cannot be used as it is (dtype, layout, read-only, where it lies); the text says what to do."""


class OutOfMemoryError(Error, MemoryError):
    status = _capi.WEFT_ERR_MEMORY


class SystemCallError(Error):
    """The operating system refused a request."""
    status = _capi.WEFT_ERR_SYSTEM


class DeadlineError(Error, TimeoutError):
    """The deadline passed; the text names who is waited for."""
    status = _capi.WEFT_ERR_TIMEOUT


class StillRunning(DeadlineError):
    """Only the wait is over: the operation goes on, and its memory stays lent."""


class PeerError(Error, ConnectionError):
    """A rank died or closed: see rank."""
    status = _capi.WEFT_ERR_PEER


class NetworkError(Error, ConnectionError):
    status = _capi.WEFT_ERR_NETWORK


class AuthError(Error):
    """The job's secret was wrong or missing."""
    status = _capi.WEFT_ERR_AUTH


class VersionError(Error):
    status = _capi.WEFT_ERR_VERSION


class ProtocolError(Error):
    status = _capi.WEFT_ERR_PROTOCOL


class MismatchError(Error):
    """The ranks made different calls or have different settings; the text names both."""
    status = _capi.WEFT_ERR_MISMATCH


class DuplicateError(Error):
    status = _capi.WEFT_ERR_DUPLICATE


class TruncatedError(Error):
    """The message was longer than the array; its beginning may have been written."""
    status = _capi.WEFT_ERR_TRUNCATED


class AbortedError(Error):
    """A rank aborted the communicator; the text has its reason."""
    status = _capi.WEFT_ERR_ABORTED


class ForkedError(Error):
    """The communicator belongs to the parent process: a forked child starts its own, or none."""
    status = _capi.WEFT_ERR_FORKED


class BusyError(Error):
    status = _capi.WEFT_ERR_BUSY


class UnsupportedError(Error, NotImplementedError):
    status = _capi.WEFT_ERR_UNSUPPORTED


_CLASSES = {each.status: each for each in (
    InvalidError, OutOfMemoryError, SystemCallError, DeadlineError, PeerError, NetworkError, AuthError, VersionError,
    ProtocolError, MismatchError, DuplicateError, TruncatedError, AbortedError, ForkedError, BusyError,
    UnsupportedError)}


def last_text() -> str:
    """What the C library said about this thread's latest failure."""
    return lib.weft_error_text().decode(errors="replace")


def verdict_on(handle) -> Optional[_capi.weft_error_t]:
    """How the communicator ended; None: it works, or nothing can be said of it."""
    error = _capi.weft_error_t()
    if handle is None or lib.weft_comm_get_error(handle, byref(error)) != _capi.WEFT_OK:
        return None
    return error if error.status != _capi.WEFT_OK else None


def failure(status: int, operation: str, handle=None, text: Optional[str] = None) -> Error:
    """The exception for a status that a call on the communicator returned; text: of the thread that made it."""
    if text is None:
        text = last_text()  # first, before another call of ours replaces it
    ended = verdict_on(handle)
    error = _CLASSES.get(status, Error)(text, operation=operation)
    error.status = status  # also of a newer library, whose class we do not have
    if ended is not None and ended.status == status:
        error.rank = None if ended.rank == NOBODY else ended.rank
        error.verdict = ended.verdict
    return error


def check(status: int, operation: str, handle=None) -> None:
    if status != _capi.WEFT_OK:
        raise failure(status, operation, handle)


def closed(operation: str) -> InvalidError:
    words = "the communicator was closed"
    return InvalidError("%s: %s" % (operation, words) if operation else words, operation=operation)
