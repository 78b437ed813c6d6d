# SPDX-License-Identifier: Apache-2.0
"""Numbers, texts and timeouts that C's types cannot hold are refused, with the range, before anything is sent: none is
cut. A job of one rank is enough."""
import math
import os
import tempfile
import unittest

import numpy as np

import job
from job import assert_raises

import weft

WRAPS = 2**32  # is 0 in 32 bits


class OneRank(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.comm = weft.create(weft.Id.create(), 0, 1)

    @classmethod
    def tearDownClass(cls):
        cls.comm.close()

    def refuse(self, action, *texts):
        return assert_raises(weft.InvalidError, action, *texts, status=weft.InvalidError.status)


class Integers(OneRank):
    def test_of_ranks_and_tags(self):
        comm, data = self.comm, np.zeros(3)
        self.refuse(lambda: comm.send(data, WRAPS), "send: rank `to` is 4294967296; it must be from 0 to 0")
        self.refuse(lambda: comm.send(data, -1), "rank `to` is -1")
        self.refuse(lambda: comm.send(data, 0, WRAPS + 5), "tag is 4294967301; it must be from 0 to 2147483647")
        self.refuse(lambda: comm.send(data, 0, weft.ANY_TAG), "tag is -1")
        self.refuse(lambda: comm.begin.send(data, 0, 2**31), "tag is 2147483648")
        self.refuse(lambda: comm.recv(data, WRAPS), "rank `source` is 4294967296", "weft.ANY_SOURCE")
        self.refuse(lambda: comm.recv(data, 0, -2), "tag is -2", "weft.ANY_TAG")
        self.refuse(lambda: comm.begin.recv(data, 0, WRAPS - 1), "tag is 4294967295")
        self.refuse(lambda: comm.probe(0, 2**64 - 1), "probe: tag is 18446744073709551615")

    def test_of_roots(self):
        comm, data = self.comm, np.zeros(3)
        for call in (comm.broadcast, comm.begin.broadcast, comm.prepare.broadcast, comm.gather, comm.reduce,
                     comm.scatter):
            for root in (WRAPS, -1, 1):
                self.refuse(lambda: call(data, root=root), "rank `root` is %d; it must be from 0 to 0" % root)

    def test_of_the_control_plane(self):
        comm = self.comm
        self.refuse(lambda: comm.control_send(b"x", WRAPS), "control_send: rank `to` is 4294967296")
        self.refuse(lambda: comm.control_send(b"x", 0, WRAPS), "tag is 4294967296; it must be from 0 to 4294967295")
        self.refuse(lambda: comm.control_recv(0, -1), "tag is -1")
        self.refuse(lambda: comm.control_recv(weft.ANY_SOURCE), "rank `source` is -1")
        self.refuse(lambda: comm.control_broadcast(b"x", WRAPS), "rank `root` is 4294967296")

    def test_of_communicators(self):
        comm = self.comm
        self.refuse(lambda: comm.split(2**31), "split: colour is 2147483648; it must be from -2147483648 to 2147483647")
        self.refuse(lambda: comm.split(0, -2**31 - 1), "key is -2147483649")
        made = weft.Id.create()
        self.refuse(lambda: weft.create(made, 0, WRAPS + 1), "ranks is 4294967297; it must be from 1 to 1000000")
        self.refuse(lambda: weft.create(made, WRAPS, 1), "rank `rank` is 4294967296")
        self.refuse(lambda: weft.create(made, 0, 0), "ranks is 0")
        self.refuse(lambda: weft.create(made.text, 0, 1), "id is a str", "weft.Id(text)")
        made.destroy()

    def test_of_one_sided_operations(self):
        comm, data = self.comm, np.ones(8, "uint8")
        words = np.zeros(4, "uint64")
        with comm.register(words) as memory:
            for offset in (2**64 + 8, -8, 2**64 - 8):
                self.refuse(lambda: comm.put(memory, data, offset), "put: offset is %d" % offset)
                self.refuse(lambda: comm.get(memory, data, offset), "get: offset is %d" % offset)
                self.refuse(lambda: comm.put_signal(memory, data, memory, signal_offset=offset),
                            "signal_offset is %d" % offset)
            self.refuse(lambda: comm.put_signal(memory, data, memory, add=2**64 + 1), "add is 18446744073709551617")
            self.refuse(lambda: comm.put_signal(memory, data, memory, add=-1), "add is -1")
            self.refuse(lambda: comm.wait_signal(words, 2**64 + 1), "value is 18446744073709551617")
            self.refuse(lambda: comm.wait_signal(words, -1, timeout=0.01), "value is -1")
            comm.quiet()
            self.assertEqual(words.tolist(), [0] * 4)

    def test_of_pieces(self):
        comm, data = self.comm, np.zeros(3)
        self.refuse(lambda: comm.allgather(data, data.copy(), counts=[WRAPS * WRAPS + 3]), "counts[0] is", "must be")
        self.refuse(lambda: comm.allgather(data, data.copy(), counts=[3], places=[-1]), "places[0] is -1")
        self.refuse(lambda: comm.alltoall(data, counts=[3], out_counts=[3.0]), "out_counts[0] is a float")
        self.refuse(lambda: comm.scatter(data, counts=3), "counts is a int; it must be 1 integers, one per rank")
        self.refuse(lambda: comm.reduce_scatter(data, counts=[1, 2]), "counts has 2 numbers; there are 1 ranks")

    def test_of_memory(self):
        for shape in (WRAPS * WRAPS, (WRAPS, WRAPS), (-1, -1), -4):
            self.refuse(lambda: weft.alloc(shape), "alloc: ")
        for nbytes in (0, -1, WRAPS * WRAPS + 4096):
            self.refuse(lambda: weft.alloc_bytes(nbytes), "alloc: the number of bytes is %d" % nbytes)
        self.refuse(lambda: weft.alloc_bytes(4096.0), "is a float")
        self.assertEqual(weft.alloc(np.int64(3)).shape, (3,))
        self.assertEqual(weft.alloc((np.int32(2), 3), "int16").shape, (2, 3))
        self.assertEqual(weft.alloc((0, 3)).shape, (0, 3))

    def test_that_are_none_are_named(self):
        comm, data = self.comm, np.zeros(3)
        for thing in (1.0, "0", None, [0], np.zeros(2, int)):
            self.refuse(lambda: comm.send(data, thing), "rank `to` is a", type(thing).__name__, "integer from 0 to 0")
            self.refuse(lambda: comm.recv(data, 0, thing), "tag is a", "integer from -1")

    def test_of_numpy_are_as_good(self):
        comm, data = self.comm, np.arange(4)
        out = np.zeros(4, int)
        request = comm.begin.send(data, np.int64(0), np.uint8(7))
        self.assertEqual(comm.recv(out, np.int16(-1), np.int32(7)).tag, 7)
        request.wait()
        self.assertEqual(out.tolist(), data.tolist())
        self.assertEqual(comm.alltoall(data, counts=np.array([4]), out_counts=np.array([4])).tolist(), data.tolist())
        self.assertEqual(comm.reduce_scatter(data, counts=np.array([4], "uint8")).tolist(), data.tolist())


class Pieces(job.RankCase):
    def test_of_small_integers_are_added_up_without_wrapping(self):
        self.run_ranks(2, rank_gives_small_counts)


def rank_gives_small_counts(comm):
    """200 + 100 is 44 in eight bits: the pieces would reach beyond the array."""
    counts = np.array([200, 100], "uint8")
    mine = np.full(counts[comm.rank], comm.rank, "float32")
    assert_raises(weft.InvalidError, lambda: comm.allgather(mine, np.zeros(250, "float32"), counts=counts),
                  "the pieces of `out` end at element 300, it has 250")
    assert comm.allgather(mine, counts=counts).tolist() == [0] * 200 + [1] * 100


class Texts(OneRank):
    def test_are_not_cut(self):
        comm = self.comm
        self.refuse(lambda: comm.allreduce(np.zeros(3), algorithm="ring\0x"), "algorithm has a zero byte")
        self.refuse(lambda: comm.allreduce(np.zeros(3), algorithm=3), "algorithm must be text")
        self.refuse(lambda: weft.init(interface="lo\0"), "interface has a zero byte")
        self.refuse(lambda: weft.Id("weft1:\0"), "zero byte")
        with tempfile.TemporaryDirectory() as folder:
            self.refuse(lambda: comm.dump(os.path.join(folder, "a\0b")), "path has a zero byte")
            self.assertEqual(os.listdir(folder), [])

    def test_of_paths_may_be_objects(self):
        import pathlib
        with tempfile.TemporaryDirectory() as folder:
            self.comm.dump(pathlib.Path(folder) / "here.dump")
            self.assertEqual(os.listdir(folder), ["here.dump"])

    def test_of_reasons_may_be_anything(self):
        with weft.create(weft.Id.create(), 0, 1) as comm:
            comm.abort("a\0b \udc80 ü")
            self.assertIsInstance(comm.error, weft.AbortedError)
            self.assertIn("a b ? ü", str(comm.error))


class Data(OneRank):
    def test_of_the_control_plane_is_all_of_it(self):
        """Not the first len() bytes of something whose elements are longer."""
        words = np.arange(3, dtype="int64")
        self.comm.control_send(words, 0)
        self.assertEqual(self.comm.control_recv(0), words.tobytes())
        self.assertEqual(self.comm.control_allgather(words), [words.tobytes()])
        for thing in (5, "text", [1, 2]):
            self.refuse(lambda: self.comm.control_allgather(thing), "the data is a", "bytes")

    def test_of_handles_is_checked(self):
        for thing in (5, "x" * 64, None, b"short"):
            self.refuse(lambda: self.comm.put(thing, np.zeros(3)), "MemoryHandle" if thing != b"short" else "64 bytes")


class Timeouts(OneRank):
    def test_that_are_no_numbers_are_refused(self):
        comm = self.comm
        request = comm.begin.recv(np.zeros(1), 0)
        for thing in (math.nan, "3", [1]):
            self.refuse(lambda: comm.barrier(timeout=thing), "a timeout is a number of seconds")
            self.refuse(lambda: request.wait(thing), "a timeout is a number of seconds")
            self.refuse(lambda: comm.set_timeout(thing), "a timeout is a number of seconds")
            self.refuse(lambda: weft.wait_all([request], thing), "a timeout is a number of seconds")
        self.assertTrue(request.cancel())

    def test_of_operations_are_not_negative(self):
        """-1 is "for ever" elsewhere; here it would have ended the communicator."""
        self.refuse(lambda: self.comm.barrier(timeout=-1), "a timeout of -1 s", "math.inf")
        self.refuse(lambda: weft.init(start_timeout=-1), "a timeout of -1 s")
        self.comm.barrier()

    def test_of_waits_may_be_infinite(self):
        out = np.zeros(1)
        for timeout in (math.inf, 1e300, np.float32(50), 10**20):
            receive, send = self.comm.begin.recv(out, 0), self.comm.begin.send(np.ones(1), 0)
            weft.wait_all([receive, send], timeout)
            receive, send = self.comm.begin.recv(out, 0), self.comm.begin.send(np.ones(1), 0)
            self.assertEqual(weft.wait_any([receive], timeout)[0], 0)
            send.wait(timeout)
            self.comm.barrier(timeout=timeout)


if __name__ == "__main__":
    job.main(globals())
