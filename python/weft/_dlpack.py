# SPDX-License-Identifier: Apache-2.0
"""DLPack's structs, read without consuming the capsule: it stays ours, and its owner frees it when we drop it."""
from __future__ import annotations

import math
from ctypes import (POINTER, Structure, c_char_p, c_int, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64,
                    c_void_p, cast, py_object, pythonapi)
from typing import Any, Callable, List

from ._checks import LEN_MAX
from ._errors import ArrayError
from ._kinds import KINDS, Kind, movable_kind, number_kind

HOST_DEVICES = (1, 3, 11)  # kDLCPU, kDLCUDAHost (pinned), kDLROCMHost
DIMENSIONS_MAX = 64  # as numpy and torch have it
READ_ONLY = 1  # of DLManagedTensorVersioned.flags
_LETTERS = {0: "i", 1: "u", 2: "f", 6: "b"}  # kDLInt, kDLUInt, kDLFloat, kDLBool
_SPECIAL = {4: "bf16", 10: "f8e4m3", 12: "f8e5m2"}  # kDLBfloat, kDLFloat8_e4m3fn, kDLFloat8_e5m2


class _Tensor(Structure):
    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32),
                ("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16), ("shape", POINTER(c_int64)),
                ("strides", POINTER(c_int64)), ("byte_offset", c_uint64)]


class _Managed(Structure):
    _fields_ = [("tensor", _Tensor), ("manager", c_void_p), ("deleter", c_void_p)]


class _ManagedVersioned(Structure):
    _fields_ = [("major", c_uint32), ("minor", c_uint32), ("manager", c_void_p), ("deleter", c_void_p),
                ("flags", c_uint64), ("tensor", _Tensor)]


_is_valid = pythonapi.PyCapsule_IsValid
_is_valid.argtypes, _is_valid.restype = [py_object, c_char_p], c_int
_pointer = pythonapi.PyCapsule_GetPointer
_pointer.argtypes, _pointer.restype = [py_object, c_char_p], c_void_p


class Tensor:
    """What a capsule says; holds it as long as the memory is used."""

    def __init__(self, who: str, capsule: Any, tensor: _Tensor, is_read_only: bool):
        sizes = _sizes_of(who, tensor)
        self.capsule = capsule
        self.is_read_only = is_read_only
        self.address = (tensor.data or 0) + tensor.byte_offset
        self.kind = _kind_of(tensor)
        self.count = math.prod(sizes)
        self.is_contiguous = self.count == 0 or _are_contiguous(tensor, sizes)
        nbytes = self.count * self.kind.size
        if self.address + nbytes > LEN_MAX or (nbytes > 0 and not tensor.data):
            raise ArrayError("the %s says that it has %d bytes at address %#x; there is no such memory"
                             % (who, nbytes, self.address))


def _sizes_of(who: str, tensor: _Tensor) -> List[int]:
    """The lengths of the dimensions; nothing that an exporter says is taken on trust."""
    if tensor.device_type not in HOST_DEVICES:
        raise _on_a_device(who, tensor.device_type)
    if not 0 <= tensor.ndim <= DIMENSIONS_MAX or (tensor.ndim > 0 and not tensor.shape):
        raise ArrayError("the %s says that it has %d dimensions" % (who, tensor.ndim))
    sizes = tensor.shape[:tensor.ndim] if tensor.ndim > 0 else []
    if any(size < 0 for size in sizes):
        raise ArrayError("the %s says that its shape is %s" % (who, tuple(sizes)))
    return sizes


def _are_contiguous(tensor: _Tensor, sizes: List[int]) -> bool:
    step = 1
    for i in reversed(range(len(sizes))):
        if tensor.strides and sizes[i] > 1 and tensor.strides[i] != step:
            return False
        step *= sizes[i]
    return True


def _kind_of(tensor: _Tensor) -> Kind:
    if tensor.bits == 0 or tensor.bits % 8 != 0 or tensor.lanes == 0:
        raise ArrayError("elements of %d bits x %d cannot be sent; convert the array to whole bytes"
                         % (tensor.bits, tensor.lanes))
    size = tensor.bits // 8 * tensor.lanes
    kind = None
    if tensor.lanes == 1:
        kind = KINDS.get(_SPECIAL.get(tensor.code, "")) or number_kind(_LETTERS.get(tensor.code, ""), size)
    if kind is None or kind.size != size:
        return movable_kind("DLPack type %d of %d bits x %d" % (tensor.code, tensor.bits, tensor.lanes), size)
    return kind


def _on_a_device(who: str, device_type: int) -> ArrayError:
    return ArrayError("the %s is on a device (DLPack type %d); Weft moves memory of the host: copy it there first"
                      % (who, device_type))


def _device_type(data) -> int:
    return int(data.__dlpack_device__()[0]) if hasattr(data, "__dlpack_device__") else HOST_DEVICES[0]


def _capsule_of(data) -> Any:
    try:
        return data.__dlpack__(max_version=(1, 0))
    except TypeError:  # older than DLPack 1.0
        return data.__dlpack__()


def _export(who: str, action: Callable[[Any], Any], data: Any) -> Any:
    try:
        return action(data)
    except Exception as error:
        raise ArrayError("the %s does not lend its memory: %s: %s" % (who, type(error).__name__, error)) from error


def open_tensor(data) -> Tensor:
    """Reads what data.__dlpack__() gives; what the producer raises becomes ArrayError."""
    who = type(data).__name__
    device_type = _export(who, _device_type, data)
    if device_type not in HOST_DEVICES:  # before anything is exported there
        raise _on_a_device(who, device_type)
    capsule = _export(who, _capsule_of, data)
    if _is_valid(capsule, b"dltensor_versioned"):
        managed = cast(_pointer(capsule, b"dltensor_versioned"), POINTER(_ManagedVersioned)).contents
        if managed.major != 1:
            raise ArrayError("the %s speaks DLPack %d, Weft 1; ask for an older form" % (who, managed.major))
        return Tensor(who, capsule, managed.tensor, bool(managed.flags & READ_ONLY))
    if not _is_valid(capsule, b"dltensor"):
        raise ArrayError("the %s lends no tensor: its __dlpack__() gave a %s, or one that was used before"
                         % (who, type(capsule).__name__))
    older = cast(_pointer(capsule, b"dltensor"), POINTER(_Managed)).contents
    return Tensor(who, capsule, older.tensor, False)
