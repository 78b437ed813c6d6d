# SPDX-License-Identifier: Apache-2.0
"""Where an array lies: numpy, torch, the buffer protocol, DLPack. Nothing is copied, ever: what cannot be used as it
lies is refused, and the error says what to do.

describe(array, is_written) gives (address, count, kind, keep). `keep` is what must live as long as the address is used.
How it is found out depends on the array's type only, so the way is looked up by type; neither numpy nor torch is
imported here, whoever has such an array has done that.
"""
from __future__ import annotations

import sys
from ctypes import POINTER, Structure, addressof, byref, c_char, c_int, c_ssize_t, c_void_p, py_object, pythonapi
from typing import Any, Callable, Dict, Tuple

from . import _dlpack
from ._errors import ArrayError
from ._kinds import Kind, format_kind, movable_kind, named_kind, number_kind

Described = Tuple[int, int, Kind, Any]


def _refuse_layout(what: str, cure: str) -> ArrayError:
    return ArrayError("%s is not contiguous; pass %s, or work on a contiguous part" % (what, cure))


def _refuse_read_only(what: str) -> ArrayError:
    return ArrayError("%s is read-only and would be written; pass a writable copy, or another one as `out`" % what)


# ---- numpy ----

_numpy_kinds: Dict[Any, Kind] = {}


def _numpy_kind(dtype) -> Kind:
    if dtype.hasobject:
        raise ArrayError("an array of Python objects (dtype %s) has no bytes to send, and Weft never pickles; convert "
                         "it to numbers first" % dtype)
    kind = None
    if dtype.isnative:
        kind = number_kind(dtype.kind, dtype.itemsize) or named_kind(dtype.name)
    kind = kind or movable_kind(str(dtype), dtype.itemsize)
    _numpy_kinds[dtype] = kind
    return kind


def _describe_numpy(array, is_written: bool) -> Described:
    kind = _numpy_kinds.get(array.dtype) or _numpy_kind(array.dtype)
    try:  # four times as fast as asking numpy; refuses what is read-only, not contiguous or empty
        return addressof(c_char.from_buffer(array)), array.size, kind, array
    except (TypeError, ValueError, BufferError):
        pass
    flags = array.flags
    what = "the array (shape %s, %s)" % (array.shape, array.dtype)
    if not flags.c_contiguous:
        raise _refuse_layout(what, "numpy.ascontiguousarray(array)")
    if is_written and not flags.writeable:
        raise _refuse_read_only(what)
    return array.ctypes.data, array.size, kind, array


def _describe_numpy_subclass(array, is_written: bool) -> Described:
    """By what numpy knows of it, not by properties that the class may have made its own."""
    plain = sys.modules["numpy"].ndarray
    address, count, kind, _ = _describe_numpy(plain.view(array, plain), is_written)
    return address, count, kind, array


def _numpy_empty(array, shape):
    return sys.modules["numpy"].empty(shape, array.dtype)


# ---- torch ----

_torch_kinds: Dict[Any, Kind] = {}


def _torch_kind(dtype) -> Kind:
    name = str(dtype).replace("torch.", "")
    letter = "b" if name == "bool" else name[:1]
    size = dtype.itemsize if hasattr(dtype, "itemsize") else sys.modules["torch"].empty(0, dtype=dtype).element_size()
    kind = named_kind(name) or number_kind(letter, size) if not name.startswith("float8") else named_kind(name)
    kind = kind or movable_kind(name, size)
    _torch_kinds[dtype] = kind
    return kind


def _describe_torch(tensor, is_written: bool) -> Described:
    kind = _torch_kinds.get(tensor.dtype) or _torch_kind(tensor.dtype)
    if not tensor.is_cpu or tensor.layout is not sys.modules["torch"].strided:
        raise ArrayError("the tensor is on %s (%s); Weft moves dense memory of the host: pass a copy of tensor.cpu(), "
                         "or use weft.torch" % (tensor.device, tensor.layout))
    if not tensor.is_contiguous() or tensor.is_neg() or tensor.is_conj():
        raise _refuse_layout("the tensor (shape %s, %s)" % (tuple(tensor.shape), tensor.dtype), "tensor.contiguous()")
    return tensor.data_ptr(), tensor.numel(), kind, tensor


def _torch_empty(tensor, shape):
    return tensor.new_empty(shape)


# ---- the buffer protocol ----

class _PyBuffer(Structure):
    """CPython's Py_buffer."""
    _fields_ = [("buf", c_void_p), ("obj", c_void_p), ("len", c_ssize_t), ("itemsize", c_ssize_t), ("readonly", c_int),
                ("ndim", c_int), ("format", c_void_p), ("shape", c_void_p), ("strides", c_void_p),
                ("suboffsets", c_void_p), ("internal", c_void_p)]


_get_buffer = pythonapi.PyObject_GetBuffer
_get_buffer.argtypes, _get_buffer.restype = [py_object, POINTER(_PyBuffer), c_int], c_int
_release_buffer = pythonapi.PyBuffer_Release
_release_buffer.argtypes, _release_buffer.restype = [POINTER(_PyBuffer)], None


def _address_of(view: memoryview) -> int:
    """Also of read-only memory, which ctypes' from_buffer() refuses."""
    buffer = _PyBuffer()
    _get_buffer(view, byref(buffer), 0)  # 0: PyBUF_SIMPLE
    address = buffer.buf or 0
    _release_buffer(byref(buffer))  # the view holds the memory further on
    return address


def _describe_buffer(data, is_written: bool) -> Described:
    try:
        view = memoryview(data)
        what = "the %s (%d bytes)" % (type(data).__name__, view.nbytes)
    except (ValueError, TypeError, BufferError) as error:  # closed, released
        raise ArrayError("the %s does not lend its memory: %s" % (type(data).__name__, error)) from error
    if not view.c_contiguous:
        raise _refuse_layout(what, "bytes(array)")
    if is_written and view.readonly:
        raise _refuse_read_only(what)
    kind = format_kind(view.format, view.itemsize)
    return _address_of(view), view.nbytes // max(view.itemsize, 1), kind, view


# ---- DLPack ----

def _describe_dlpack(data, is_written: bool) -> Described:
    tensor = _dlpack.open_tensor(data)
    what = "the %s" % type(data).__name__
    if not tensor.is_contiguous:
        raise _refuse_layout(what, "a contiguous copy")
    if is_written and tensor.is_read_only:
        raise _refuse_read_only(what)
    return tensor.address, tensor.count, tensor.kind, tensor


# ---- which way ----

_ways: Dict[type, Callable[[Any, bool], Described]] = {}
_makers: Dict[Callable, Callable] = {_describe_numpy: _numpy_empty, _describe_numpy_subclass: _numpy_empty,
                                     _describe_torch: _torch_empty}


def _is_a(array_type: type, module: str, name: str) -> bool:
    """Without importing the module: who has such an object has imported it."""
    known = getattr(sys.modules.get(module), name, None)
    return known is not None and issubclass(array_type, known)


def _find_way(array) -> Callable[[Any, bool], Described]:
    array_type = type(array)
    way: Callable[[Any, bool], Described]
    if _is_a(array_type, "numpy.ma", "MaskedArray"):
        raise ArrayError("what a masked array hides would be sent too; pass array.filled(…), or its data and mask")
    if _is_a(array_type, "numpy", "ndarray"):
        way = _describe_numpy if array_type is sys.modules["numpy"].ndarray else _describe_numpy_subclass
    elif _is_a(array_type, "torch", "Tensor"):
        way = _describe_torch
    elif _has_buffer(array):
        way = _describe_buffer
    elif hasattr(array, "__dlpack__"):
        way = _describe_dlpack
    else:
        raise ArrayError("%s is no array: pass a numpy array, a torch tensor, or anything with DLPack or the buffer "
                         "protocol; lists and numbers have no memory that other ranks could write to"
                         % array_type.__name__)
    _ways[array_type] = way
    return way


def _has_buffer(array) -> bool:
    try:
        memoryview(array).release()
    except (TypeError, BufferError):
        return False
    except ValueError:  # it has one, but was closed or released
        pass
    return True


def describe(array, is_written: bool) -> Described:
    """(address, count, kind, keep) of an array that is read, or read and written."""
    return (_ways.get(type(array)) or _find_way(array))(array, is_written)


def make_empty(array, shape, what: str):
    """A new array of the same library and dtype, for a result that the caller has given no place for."""
    maker = _makers.get(_ways.get(type(array)) or _find_way(array))
    if maker is None:
        raise ArrayError("%s: pass `out`; only for numpy arrays and torch tensors it is made when it is missing" % what)
    return maker(array, shape)
