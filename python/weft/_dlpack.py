# SPDX-License-Identifier: Apache-2.0
"""DLPack's structs, read without consuming the capsule: it stays ours, and its owner frees it when we drop it."""
from __future__ import annotations

from ctypes import (POINTER, Structure, c_char_p, c_int, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64,
                    c_void_p, cast, py_object, pythonapi)
from typing import Any

from ._errors import ArrayError
from ._kinds import KINDS, Kind, movable_kind, number_kind

HOST_DEVICES = (1, 3, 11)  # kDLCPU, kDLCUDAHost (pinned), kDLROCMHost
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

    def __init__(self, capsule: Any, tensor: _Tensor, is_read_only: bool):
        self.capsule = capsule
        self.is_read_only = is_read_only
        self.address = (tensor.data or 0) + tensor.byte_offset
        self.kind = _kind_of(tensor)
        self.count = 1
        self.is_contiguous = True
        for i in reversed(range(tensor.ndim)):
            if tensor.strides and tensor.shape[i] > 1 and tensor.strides[i] != self.count:
                self.is_contiguous = False
            self.count *= tensor.shape[i]
        self.is_contiguous = self.is_contiguous or self.count == 0


def _kind_of(tensor: _Tensor) -> Kind:
    kind = None
    if tensor.lanes == 1:
        kind = KINDS.get(_SPECIAL.get(tensor.code, "")) or number_kind(_LETTERS.get(tensor.code, ""), tensor.bits // 8)
    size = tensor.bits * tensor.lanes // 8
    if kind is None and tensor.bits % 8 != 0:
        raise ArrayError("elements of %d bits cannot be sent; convert the array to whole bytes" % tensor.bits)
    return kind or movable_kind("DLPack type %d of %d bits x %d" % (tensor.code, tensor.bits, tensor.lanes), size)


def _capsule_of(data) -> Any:
    try:
        return data.__dlpack__(max_version=(1, 0))
    except TypeError:  # older than DLPack 1.0
        return data.__dlpack__()


def open_tensor(data) -> Tensor:
    """Reads what data.__dlpack__() gives; BufferError of the producer becomes ArrayError."""
    device_type = data.__dlpack_device__()[0] if hasattr(data, "__dlpack_device__") else HOST_DEVICES[0]
    if device_type not in HOST_DEVICES:  # before anything is exported there
        raise ArrayError("the %s is on a device (DLPack type %d); Weft moves memory of the host: copy it there first"
                         % (type(data).__name__, device_type))
    try:
        capsule = _capsule_of(data)
    except (BufferError, RuntimeError) as error:
        raise ArrayError("the %s does not lend its memory: %s" % (type(data).__name__, error)) from error
    if _is_valid(capsule, b"dltensor_versioned"):
        managed = cast(_pointer(capsule, b"dltensor_versioned"), POINTER(_ManagedVersioned)).contents
        return Tensor(capsule, managed.tensor, bool(managed.flags & READ_ONLY))
    older = cast(_pointer(capsule, b"dltensor"), POINTER(_Managed)).contents
    return Tensor(capsule, older.tensor, False)
