# SPDX-License-Identifier: Apache-2.0
"""Messages between two ranks, with tags; done two ways: Comm finishes them, Comm.begin begins them (Request)."""
from __future__ import annotations

from ctypes import byref, c_size_t, create_string_buffer
from typing import TYPE_CHECKING, Any, Generic, List, Optional, TypeVar

from . import _checks
from ._buffers import describe
from ._capi import (WEFT_ANY_SOURCE, WEFT_ANY_TAG, WEFT_CONTROL_MAX, WEFT_ERR_TIMEOUT, WEFT_OK, lib, weft_message_t)
from ._checks import U32_MAX
from ._errors import check
from ._requests import Message
from ._waiting import using, wait_in_slices

if TYPE_CHECKING:
    from ._comm import Comm

ANY_SOURCE = WEFT_ANY_SOURCE
ANY_TAG = WEFT_ANY_TAG
Sent = TypeVar("Sent")
Received = TypeVar("Received")


class Messages(Generic[Sent, Received]):
    """What Comm and Comm.begin have in common. Messages are bytes: any dtype may be sent."""

    def _comm(self) -> Comm:
        raise NotImplementedError

    def _do_message(self, operation: str, function: Any, arguments: tuple, result: Any, keep: Any) -> Any:
        raise NotImplementedError

    def send(self, array: Any, to: int, tag: int = 0) -> Sent:
        """Sends the array's bytes to rank `to`. Done means that the array is yours again, not that it was received."""
        address, count, kind, keep = describe(array, False)
        to, tag = _checks.rank("send", "to", to, self._comm().ranks), _checks.tag("send", tag)
        return self._do_message("send", lib.weft_send, (address, count * kind.size, to, tag), None, keep)

    def recv(self, array: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Received:
        """Receives the next message that fits into the array's memory; a Message says what came. A shorter message
        leaves the rest as it was, a longer one is a TruncatedError."""
        address, count, kind, keep = describe(array, True)
        source, tag = _checks.rank_or_any("recv", source, self._comm().ranks), _checks.tag_or_any("recv", tag)
        found = weft_message_t()
        return self._do_message("recv", lib.weft_recv, (address, count * kind.size, source, tag, byref(found)), found,
                                (keep, found))


class Control:
    """Small messages over the tree that the start built: bytes, without any set-up. Collective, but send and recv."""
    _handle: Any
    ranks: int

    def _call(self, operation: str, function: Any, *arguments: Any) -> None:
        raise NotImplementedError

    def control_barrier(self) -> None:
        """Returns when every rank has come; needs nothing but the control plane."""
        self._call("control_barrier", lib.weft_control_barrier)

    def control_allgather(self, data: bytes) -> List[bytes]:
        """Every rank's bytes, all equally long and at most 64 KiB, in rank order."""
        data = _checks.data("control_allgather", data)
        everything = create_string_buffer(max(1, self.ranks * len(data)))
        self._call("control_allgather", lib.weft_control_allgather, data, len(data), everything)
        raw = everything.raw
        return [raw[rank * len(data):(rank + 1) * len(data)] for rank in range(self.ranks)]

    def control_broadcast(self, data: bytes, root: int = 0) -> bytes:
        """root's bytes to everybody; the others pass as many of their own, which only say how long it is."""
        data = _checks.data("control_broadcast", data)
        root = _checks.rank("control_broadcast", "root", root, self.ranks)
        copy = create_string_buffer(data, max(1, len(data)))
        self._call("control_broadcast", lib.weft_control_broadcast, copy, len(data), root)
        return copy.raw[:len(data)]

    def control_send(self, data: bytes, to: int, tag: int = 0) -> None:
        """Sends at most 64 KiB; waits only while the receiver has not taken what came before."""
        data = _checks.data("control_send", data)
        to = _checks.rank("control_send", "to", to, self.ranks)
        tag = _checks.integer("control_send", "tag", tag, 0, U32_MAX)
        self._call("control_send", lib.weft_control_send, to, tag, data, len(data))

    def control_recv(self, source: int, tag: int = 0) -> bytes:
        """The next control message of this rank with this tag."""
        source = _checks.rank("control_recv", "source", source, self.ranks)
        tag = _checks.integer("control_recv", "tag", tag, 0, U32_MAX)
        room = create_string_buffer(WEFT_CONTROL_MAX)
        length = c_size_t()
        self._call("control_recv", lib.weft_control_recv, source, tag, room, len(room), byref(length))
        return room.raw[:length.value]


def probe(comm: Comm, source: int, tag: int, timeout: Optional[float]) -> Optional[Message]:
    """Of Comm.probe()."""
    source, tag = _checks.rank_or_any("probe", source, comm.ranks), _checks.tag_or_any("probe", tag)
    found = weft_message_t()

    def look(handle: int) -> Optional[Message]:
        status = wait_in_slices(lambda ms: lib.weft_probe(handle, source, tag, ms, byref(found)),
                                lambda: lib.weft_comm_status(handle) == WEFT_OK, timeout)
        if status == WEFT_ERR_TIMEOUT and lib.weft_comm_status(handle) == WEFT_OK:
            return None
        check(status, "probe", handle)
        return Message(found)

    return using(comm, "probe", look)
