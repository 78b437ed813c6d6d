# SPDX-License-Identifier: Apache-2.0
"""What counts as an array, without copies, and how the rest is refused. A job of one rank is enough."""
import array
import ctypes
import mmap
import unittest

import numpy as np

import job
from job import assert_raises

import weft
from weft import _buffers

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None
try:
    import torch
except ImportError:
    torch = None


class Exports:
    """Has DLPack and nothing else."""

    def __init__(self, inner, is_old=False):
        self.inner = inner
        self.is_old = is_old

    def __dlpack__(self, **how):
        if self.is_old and how:
            raise TypeError("unexpected keyword")
        return self.inner.__dlpack__(**({} if not hasattr(np, "from_dlpack") or np.__version__ < "2.1" else how))

    def __dlpack_device__(self):
        return self.inner.__dlpack_device__()


class OneRank(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.comm = weft.create(weft.Id.create(), 0, 1)

    @classmethod
    def tearDownClass(cls):
        cls.comm.close()

    def refuse(self, action, *texts):
        error = assert_raises(weft.ArrayError, action, *texts, status=weft.InvalidError.status)
        self.assertIsInstance(error, (TypeError, ValueError))


class Described(OneRank):
    """(address, count, kind) are those of the memory itself."""

    def check(self, what, address, count, kind, is_written=True):
        got = _buffers.describe(what, is_written)
        self.assertEqual((got[0], got[1], got[2].name), (address, count, kind))

    def test_numpy_arrays_are_used_where_they_lie(self):
        for dtype, kind in (("int8", "i8"), ("uint16", "u16"), ("int64", "i64"), ("float16", "f16"), ("float32", "f32"),
                            ("float64", "f64"), ("bool", "bool"), ("complex64", "complex64")):
            data = np.zeros((3, 5), dtype)
            self.check(data, data.ctypes.data, 15, kind)
            self.check(data[1:], data.ctypes.data + 5 * data.itemsize, 10, kind)

    def test_classes_of_numpy_arrays_are_asked_nothing(self):
        class Lies(np.ndarray):
            size = 10**9
            dtype = np.dtype("float64")

        data = np.zeros(3, "uint8")
        self.check(data.view(Lies), data.ctypes.data, 3, "u8")

    def test_read_only_arrays_are_read(self):
        data = np.arange(6.0)
        data.setflags(write=False)
        self.check(data, data.ctypes.data, 6, "f64", is_written=False)

    def test_foreign_byte_orders_are_moved_only(self):
        data = np.zeros(4, ">f4")
        self.check(data, data.ctypes.data, 4, ">f4")
        self.refuse(lambda: self.comm.allreduce(data), ">f4 cannot be reduced")

    def test_buffers_are_used_where_they_lie(self):
        data = array.array("d", [1, 2, 3])
        self.check(data, data.buffer_info()[0], 3, "f64")
        words = (ctypes.c_uint32 * 7)()
        self.check(words, ctypes.addressof(words), 7, "u32")
        view = memoryview(bytearray(b"0123456789"))
        whole = _buffers.describe(view, True)[0]
        self.check(view[3:], whole + 3, 7, "u8")
        with mmap.mmap(-1, 4096) as pages:
            self.check(pages, ctypes.addressof(ctypes.c_char.from_buffer(pages)), 4096, "u8")

    def test_bytes_are_read_in_place(self):
        text = b"twelve bytes"
        address, count, kind, _ = _buffers.describe(text, False)
        self.assertEqual((ctypes.string_at(address, count), kind.name), (text, "u8"))

    def test_dlpack_is_used_where_it_lies(self):
        data = np.arange(12, dtype="float32").reshape(3, 4)
        for exporter in (Exports(data), Exports(data, is_old=True)):
            self.check(exporter, data.ctypes.data, 12, "f32", is_written=False)
            self.comm.allreduce(exporter)

    def test_a_buffer_cannot_be_resized_while_it_is_lent(self):
        data = bytearray(100)
        keep = _buffers.describe(data, True)[3]
        with self.assertRaises(BufferError):
            data.extend(b"more")
        del keep
        data.extend(b"more")

    @unittest.skipUnless(ml_dtypes, "ml_dtypes is not installed")
    def test_ml_dtypes_are_known(self):
        for name, kind in (("bfloat16", "bf16"), ("float8_e4m3fn", "f8e4m3"), ("float8_e5m2", "f8e5m2")):
            data = np.zeros(8, getattr(ml_dtypes, name))
            self.check(data, data.ctypes.data, 8, kind)

    @unittest.skipUnless(torch, "torch is not installed")
    def test_torch_tensors_are_used_where_they_lie(self):
        for name, kind in (("float32", "f32"), ("bfloat16", "bf16"), ("float16", "f16"), ("int64", "i64"),
                           ("bool", "bool"), ("uint8", "u8"), ("complex64", "complex64"), ("float8_e4m3fn", "f8e4m3")):
            data = torch.zeros(3, 4).to(getattr(torch, name))
            self.check(data, data.data_ptr(), 12, kind)
        self.refuse(lambda: self.comm.allreduce(torch.zeros(3, 4).t()), "not contiguous", "tensor.contiguous()")
        self.refuse(lambda: self.comm.allreduce(torch.zeros(3, device="meta")), "the tensor is on meta")


class Refused(OneRank):
    """What cannot be used as it lies, with words that say what to do; nothing is copied."""

    def test_what_is_not_contiguous(self):
        data = np.zeros((4, 4), "float32")
        for part in (data[:, 1], data[::2], data[:, :2]):
            self.refuse(lambda: self.comm.allreduce(part), "not contiguous", "numpy.ascontiguousarray")
        self.refuse(lambda: self.comm.allreduce(np.asfortranarray(np.zeros((3, 4)))), "not contiguous")
        self.refuse(lambda: self.comm.send(memoryview(bytes(10))[::2], 0), "not contiguous", "bytes(array)")
        self.refuse(lambda: self.comm.send(Exports(data.T), 0), "not contiguous")

    def test_what_is_read_only_and_would_be_written(self):
        data = np.zeros(4)
        data.setflags(write=False)
        self.refuse(lambda: self.comm.allreduce(data), "read-only", "`out`")
        self.refuse(lambda: self.comm.recv(data), "read-only")
        self.refuse(lambda: self.comm.recv(b"1234"), "the bytes (4 bytes) is read-only")
        self.comm.allreduce(data, np.zeros(4))

    def test_what_was_closed(self):
        view, pages = memoryview(bytearray(4)), mmap.mmap(-1, 4096)
        view.release()
        pages.close()
        self.refuse(lambda: self.comm.allreduce(view), "the memoryview does not lend its memory")
        self.refuse(lambda: self.comm.allreduce(pages), "the mmap does not lend its memory")
        self.comm.allreduce(memoryview(bytearray(4)))

    def test_what_is_no_array(self):
        for thing in (3, 4.0, [1, 2], None, "text"):
            self.refuse(lambda: self.comm.allreduce(thing), "is no array")

    def test_what_lies_on_a_device(self):
        class Device:
            def __dlpack_device__(self):
                return 2, 0  # kDLCUDA

            def __dlpack__(self, **how):
                raise AssertionError("exported in vain")

        self.refuse(lambda: self.comm.allreduce(Device()), "on a device", "copy it there first")

    def test_what_is_masked(self):
        self.refuse(lambda: self.comm.allreduce(np.ma.masked_less(np.arange(4.0), 2)), "masked", "filled")

    def test_python_objects(self):
        self.refuse(lambda: self.comm.send(np.array([{}, []], dtype=object), 0), "never pickles")

    def test_dtypes_that_cannot_be_reduced(self):
        self.refuse(lambda: self.comm.allreduce(np.zeros(4, "complex64")), "complex64 cannot be reduced")
        self.refuse(lambda: self.comm.allreduce(np.zeros(4, bool)), "sum of bools is no bool", "max")

    def test_dtypes_and_sizes_that_differ(self):
        self.refuse(lambda: self.comm.allreduce(np.zeros(4, "float32"), np.zeros(4)),
                    "the input is f32 and the output f64")
        assert_raises(weft.InvalidError, lambda: self.comm.allreduce(np.zeros(4), np.zeros(5)),
                      "out has 5 elements and needs 4")
        assert_raises(weft.InvalidError, lambda: self.comm.allreduce(np.zeros(4), op="median"),
                      "op 'median'; there are sum")
        assert_raises(weft.InvalidError, lambda: self.comm.allreduce(np.zeros(4), op="band"), operation="allreduce")
        assert_raises(weft.InvalidError, lambda: self.comm.allreduce(np.zeros(4), op=[]), "op []; there are sum")
        assert_raises(weft.InvalidError, lambda: self.comm.allreduce(np.zeros(4), scale="two"), "scale is a str")

    def test_memory_that_overlaps(self):
        data = np.zeros(10)
        assert_raises(weft.InvalidError, lambda: self.comm.allreduce(data[:8], data[2:]), "overlap")

    def test_outputs_that_cannot_be_made(self):
        self.refuse(lambda: self.comm.allgather(bytearray(4)), "pass `out`")

    def test_pieces_outside_of_the_array(self):
        data = np.zeros(4)
        assert_raises(weft.InvalidError, lambda: self.comm.allgather(data, data, counts=[4], places=[1]),
                      "the pieces of `out` end at element 5, it has 4")
        assert_raises(weft.InvalidError, lambda: self.comm.alltoall(data, data.copy(), counts=[5], out_counts=[5]),
                      "end at element 5")
        assert_raises(weft.InvalidError, lambda: self.comm.reduce_scatter(data, counts=[1, 2]), "2 numbers")


if __name__ == "__main__":
    job.main(globals())
