# SPDX-License-Identifier: Apache-2.0
"""What goes into C is looked at here, once: ctypes cuts numbers that do not fit and text at its first zero byte, and
says nothing. Refused is an InvalidError that says which argument it is and what it may be."""
from __future__ import annotations

import math
import os
from operator import index
from typing import Any, List, Optional, Union

from ._capi import WEFT_RANKS_MAX
from ._errors import InvalidError

INT_MIN, INT_MAX = -2**31, 2**31 - 1
U32_MAX, U64_MAX = 2**32 - 1, 2**64 - 1
LEN_MAX = 2**63 - 1  # of memory: no array is longer


def refuse(operation: str, text: str) -> InvalidError:
    return InvalidError("%s: %s" % (operation, text), operation=operation)


def integer(operation: str, name: str, value: Any, low: int, high: int, note: str = "") -> int:
    """An int from low to high of anything that counts as one (numpy's, too)."""
    try:
        number = index(value)
    except TypeError:
        raise refuse(operation, "%s is a %s; it must be an integer from %d to %d%s"
                     % (name, type(value).__name__, low, high, note)) from None
    if not low <= number <= high:
        raise refuse(operation, "%s is %d; it must be from %d to %d%s" % (name, number, low, high, note))
    return number


def rank(operation: str, name: str, value: Any, ranks: int) -> int:
    """Of a communicator of so many."""
    if type(value) is int and 0 <= value < ranks:  # nearly always; keeps the call short
        return value
    return integer(operation, "rank `%s`" % name, value, 0, ranks - 1)


def rank_or_any(operation: str, value: Any, ranks: int) -> int:
    if type(value) is int and -1 <= value < ranks:
        return value
    return integer(operation, "rank `source`", value, -1, ranks - 1, " (-1 is weft.ANY_SOURCE)")


def tag(operation: str, value: Any) -> int:
    if type(value) is int and 0 <= value <= INT_MAX:
        return value
    return integer(operation, "tag", value, 0, INT_MAX)


def tag_or_any(operation: str, value: Any) -> int:
    if type(value) is int and -1 <= value <= INT_MAX:
        return value
    return integer(operation, "tag", value, -1, INT_MAX, " (-1 is weft.ANY_TAG)")


def ranks(operation: str, value: Any) -> int:
    return integer(operation, "ranks", value, 1, WEFT_RANKS_MAX)


def numbers(operation: str, name: str, values: Any, count: int) -> Optional[List[int]]:
    """Counts or places, one per rank, as plain ints: those of numpy would wrap around when they are added."""
    if values is None:
        return None
    try:
        listed = list(values)
    except TypeError:
        raise refuse(operation, "%s is a %s; it must be %d integers, one per rank"
                     % (name, type(values).__name__, count)) from None
    if len(listed) != count:
        raise refuse(operation, "%s has %d numbers; there are %d ranks" % (name, len(listed), count))
    return [integer(operation, "%s[%d]" % (name, at), value, 0, LEN_MAX) for at, value in enumerate(listed)]


def text(operation: str, name: str, value: Union[str, os.PathLike, None]) -> Optional[bytes]:
    """A name or a path for C; None stays."""
    if value is None:
        return None
    try:
        encoded = os.fsencode(value)
    except (TypeError, UnicodeError):
        raise refuse(operation, "%s must be text, not %s" % (name, ascii(value)[:100])) from None
    if b"\0" in encoded:
        raise refuse(operation, "%s has a zero byte in it: %s" % (name, ascii(value)[:100]))
    return encoded


def seconds(value: Any) -> float:
    """Of a timeout; what is negative is over already."""
    try:
        number = float(value) if not isinstance(value, (str, bytes, bytearray)) else math.nan
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if math.isnan(number):
        raise InvalidError("a timeout is a number of seconds or None, not %s" % ascii(value)[:100])
    return number


def data(operation: str, value: Any) -> bytes:
    """A copy of the bytes of anything that has some."""
    try:
        return memoryview(value).tobytes()
    except TypeError:
        raise refuse(operation, "the data is a %s; it must be bytes" % type(value).__name__) from None
