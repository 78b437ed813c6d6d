# SPDX-License-Identifier: Apache-2.0
"""Exporters of DLPack that are wrong about what they have, or raise: an ArrayError, and no byte of theirs is touched."""
import ctypes
import unittest
from ctypes import POINTER, c_int64, c_void_p, py_object, pythonapi

import numpy as np

import job
from job import assert_raises

import weft
from weft import _buffers, _dlpack

HOST, CUDA = 1, 2
INT, FLOAT, BFLOAT = 0, 2, 4

_make_capsule = ctypes.PYFUNCTYPE(py_object, c_void_p, c_void_p, c_void_p)(("PyCapsule_New", pythonapi))


class Says:
    """Exports float32 x 4 at most, and says what it is told to say."""

    def __init__(self, shape=(4,), major=None, flags=0, name=None, strides=None, has_shape=True, **fields):
        self.memory = ctypes.create_string_buffer(b"x" * 16)
        self.shape, self.strides = (c_int64 * 8)(*shape), (c_int64 * 8)(*(strides or ()))
        told = dict(data=ctypes.addressof(self.memory), device_type=HOST, ndim=len(shape), code=FLOAT, bits=32, lanes=1,
                    shape=ctypes.cast(self.shape, POINTER(c_int64)))
        if strides:
            told["strides"] = ctypes.cast(self.strides, POINTER(c_int64))
        if not has_shape:
            told["shape"] = None
        told.update(fields)
        tensor = _dlpack._Tensor(**{name: value for name, value in told.items() if value is not None})
        self.managed = (_dlpack._Managed(tensor=tensor) if major is None else
                        _dlpack._ManagedVersioned(major=major, flags=flags, tensor=tensor))
        self.name = ctypes.create_string_buffer(name or (b"dltensor" if major is None else b"dltensor_versioned"))

    def __dlpack__(self, **_):
        return _make_capsule(ctypes.addressof(self.managed), ctypes.addressof(self.name), None)

    def __dlpack_device__(self):
        return HOST, 0


class Exporters(unittest.TestCase):
    def describe(self, **told):
        exporter = Says(**told)
        address, count, kind, _ = _buffers.describe(exporter, True)
        self.assertEqual(address, ctypes.addressof(exporter.memory) + told.get("byte_offset", 0))
        return count, kind.name

    def refuse(self, *texts, **told):
        assert_raises(weft.ArrayError, lambda: _buffers.describe(Says(**told), True), *texts)

    def test_that_are_right_are_read(self):
        self.assertEqual(self.describe(), (4, "f32"))
        self.assertEqual(self.describe(shape=(2, 1, 2), strides=(2, 77, 1)), (4, "f32"))
        self.assertEqual(self.describe(shape=()), (1, "f32"))
        self.assertEqual(self.describe(shape=(3, 0, 2)), (0, "f32"))
        self.assertEqual(self.describe(shape=(2,), byte_offset=8), (2, "f32"))
        self.assertEqual(self.describe(major=1, code=BFLOAT, bits=16), (4, "bf16"))
        self.assertEqual(self.describe(lanes=4, shape=(1,)), (1, "DLPack type 2 of 32 bits x 4"))

    def test_whose_memory_is_somewhere_else(self):
        self.refuse("on a device (DLPack type 2)", device_type=CUDA)  # though __dlpack_device__() says otherwise
        self.refuse("there is no such memory", data=None)
        self.refuse("there is no such memory", byte_offset=2**63)

    def test_whose_shape_is_none(self):
        for shape in ((-4,), (-2, -2), (4, -1)):
            self.refuse("its shape is", shape=shape)
        self.refuse("-1 dimensions", ndim=-1)
        self.refuse("100000 dimensions", ndim=100000)
        self.refuse("1 dimensions", has_shape=False)
        self.refuse("there is no such memory", shape=(2**62, 2**62))
        self.refuse("there is no such memory", shape=(2**60, 16))  # 0 in 64 bits
        self.refuse("not contiguous", strides=(2,))

    def test_whose_elements_are_no_bytes(self):
        for bits in (0, 4, 12, 33):
            self.refuse("elements of %d bits" % bits, code=INT, bits=bits)
        self.refuse("bits x 0", lanes=0)
        self.assertEqual(self.describe(code=BFLOAT)[1], "DLPack type 4 of 32 bits x 1")  # no bfloat16

    def test_that_are_read_only_newer_or_used(self):
        self.refuse("read-only", major=1, flags=1)
        self.refuse("speaks DLPack 2", major=2)
        self.refuse("was used before", name=b"used_dltensor")

    def test_that_raise_or_give_something_else(self):
        def raising(error):
            def method(self, **_):
                raise error
            return method

        def exporter(**methods):
            return type("Odd", (), methods)()

        def give(value):
            return lambda self, **_: value

        for error in (ValueError("v"), BufferError("b"), TypeError("t"), KeyError("k"), RuntimeError("r")):
            for odd in (exporter(__dlpack__=raising(error)),
                        exporter(__dlpack__=give(0), __dlpack_device__=raising(error))):
                raised = assert_raises(weft.ArrayError, lambda: _buffers.describe(odd, False),
                                       "the Odd does not lend its memory: %s" % type(error).__name__)
                self.assertIs(raised.__cause__, error)
        for value in (5, None, np.zeros(3)):
            assert_raises(weft.ArrayError, lambda: _buffers.describe(exporter(__dlpack__=give(value)), False),
                          "the Odd lends no tensor")
        for value in (None, (), ("x", 0)):
            assert_raises(weft.ArrayError, lambda: _buffers.describe(
                exporter(__dlpack__=give(0), __dlpack_device__=give(value)), False), "does not lend its memory")

    def test_are_asked_anew_by_each_call(self):
        class Grows:
            def __init__(self):
                self.length = 0

            def __dlpack__(self, **_):
                self.length += 1
                return np.zeros(self.length).__dlpack__()

        grows = Grows()
        self.assertEqual([_buffers.describe(grows, False)[1] for _ in range(3)], [1, 2, 3])


if __name__ == "__main__":
    job.main(globals())
