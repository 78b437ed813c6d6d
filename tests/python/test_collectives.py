# SPDX-License-Identifier: Apache-2.0
"""Every collective x dtype x size x place, against what numpy makes of the same inputs."""
import numpy as np

import job
from job import RankCase, assert_raises

import weft

SIZES = (0, 1, 7, 1000, 70000)
DTYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64")
FLOATS = ("float16", "float32", "float64")
OPS = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum, "band": np.bitwise_and,
       "bor": np.bitwise_or, "bxor": np.bitwise_xor}


def array_of(rank, count, dtype, seed=0):
    """A rank's input, which every rank can tell: small numbers, so that float16 is exact."""
    return ((np.arange(count) * (rank + 3) + rank + seed) % 5).astype(dtype)


def arrays_of(comm, count, dtype, seed=0):
    return [array_of(rank, count, dtype, seed) for rank in range(comm.ranks)]


def reduced(inputs, op):
    if op == "avg":
        return (sum(each.astype("float64") for each in inputs) / len(inputs)).astype(inputs[0].dtype)
    total = inputs[0].copy()
    for other in inputs[1:]:
        total = OPS[op](total, other)
    return total


def expect(got, wanted, *what):
    assert got.dtype == wanted.dtype and got.size == wanted.size, what
    assert np.allclose(got.ravel(), wanted.ravel(), rtol=2e-3 if got.dtype == "float16" else 1e-6), (what, got, wanted)


def cells():
    """dtype, count and op: all ops of a few dtypes, the sum of all."""
    for dtype in DTYPES:
        for count in SIZES:
            yield dtype, count, "sum"
    for op in list(OPS) + ["avg"]:
        for dtype in ("int32", "uint8", "float32"):
            if dtype != "float32" or not op.startswith("b"):
                yield dtype, 33, op


def rank_reduces(comm):
    for dtype, count, op in cells():
        inputs = arrays_of(comm, count, dtype)
        mine = inputs[comm.rank]
        wanted = reduced(inputs, op)
        out = np.empty_like(mine)
        assert comm.allreduce(mine, out, op) is out
        expect(out, wanted, "allreduce", dtype, count, op)
        expect(mine, array_of(comm.rank, count, dtype), "the input stays", dtype, count, op)
        assert comm.allreduce(mine, op=op) is mine
        expect(mine, wanted, "allreduce in place", dtype, count, op)


def rank_reduces_to_root(comm):
    for dtype, count, op in cells():
        for root in {0, comm.ranks - 1}:
            inputs = arrays_of(comm, count, dtype)
            mine = inputs[comm.rank].copy()
            out = np.full_like(mine, 1)
            comm.reduce(mine, out if comm.rank == root else None, op, root)
            expect(mine, inputs[comm.rank], "the input stays", dtype, count, op)
            if comm.rank == root:
                expect(out, reduced(inputs, op), "reduce", dtype, count, op, root)
            result = comm.reduce(mine, op=op, root=root)
            assert result is mine
            if comm.rank == root:
                expect(mine, reduced(inputs, op), "reduce in place", dtype, count, op, root)


def rank_scatters_sums(comm):
    for dtype, count, op in cells():
        inputs = arrays_of(comm, count * comm.ranks, dtype)
        wanted = reduced(inputs, op)[comm.rank * count:(comm.rank + 1) * count]
        mine = inputs[comm.rank]
        expect(comm.reduce_scatter(mine, op=op), wanted, "reduce_scatter", dtype, count, op)
        out = np.empty(count, dtype)
        assert comm.reduce_scatter(mine, out, op) is out
        expect(out, wanted, "reduce_scatter into out", dtype, count, op)
        part = mine[comm.rank * count:(comm.rank + 1) * count]
        comm.reduce_scatter(mine, part, op)
        expect(part, wanted, "reduce_scatter in place", dtype, count, op)


def rank_moves(comm):
    for dtype in DTYPES + ("complex64", "bool", "datetime64[s]"):
        for count in SIZES:
            inputs = arrays_of(comm, count, "int64" if dtype.startswith("datetime") else dtype)
            inputs = [each.astype(dtype) for each in inputs]
            check_gathers(comm, inputs, count, dtype)
            check_broadcast(comm, inputs, count, dtype)
    for dtype in ("int8", "float32", "complex128"):
        for count in SIZES:
            check_alltoall(comm, count, dtype)
            check_scatter(comm, count, dtype)


def same(got, wanted, *what):
    assert got.dtype == wanted.dtype and np.array_equal(got.ravel(), wanted.ravel()), (what, got, wanted)


def check_gathers(comm, inputs, count, dtype):
    wanted = np.concatenate(inputs)
    got = comm.allgather(inputs[comm.rank])
    assert got.shape == (comm.ranks, count)
    same(got, wanted, "allgather", dtype, count)
    out = np.zeros(comm.ranks * count, dtype)
    part = out[comm.rank * count:(comm.rank + 1) * count]
    part[:] = inputs[comm.rank]
    assert comm.allgather(part, out) is out
    same(out, wanted, "allgather in place", dtype, count)
    for root in {0, comm.ranks - 1}:
        got = comm.gather(inputs[comm.rank], root=root)
        assert (got is None) == (comm.rank != root)
        if got is not None:
            same(got, wanted, "gather", dtype, count, root)


def check_broadcast(comm, inputs, count, dtype):
    for root in {0, comm.ranks - 1}:
        mine = inputs[comm.rank].copy()
        if comm.rank == root:
            mine.setflags(write=False)  # root's is only read
        assert comm.broadcast(mine, root) is mine
        same(mine, inputs[root], "broadcast", dtype, count, root)


def check_alltoall(comm, count, dtype):
    inputs = arrays_of(comm, count * comm.ranks, dtype)
    wanted = np.concatenate([each[comm.rank * count:(comm.rank + 1) * count] for each in inputs])
    same(comm.alltoall(inputs[comm.rank]), wanted, "alltoall", dtype, count)
    out = np.empty(count * comm.ranks, dtype)
    assert comm.alltoall(inputs[comm.rank], out) is out
    same(out, wanted, "alltoall into out", dtype, count)


def check_scatter(comm, count, dtype):
    for root in {0, comm.ranks - 1}:
        whole = array_of(root, count * comm.ranks, dtype)
        out = np.empty(count, dtype)
        comm.scatter(whole if comm.rank == root else None, out, root)
        wanted = whole[comm.rank * count:(comm.rank + 1) * count]
        same(out, wanted, "scatter", dtype, count, root)
        if comm.rank == root:
            same(comm.scatter(whole, root=root), wanted, "scatter without out", dtype, count)
        else:
            comm.scatter(None, out, root)


def pieces(comm, which, dtype):
    """Counts that differ by rank, one of them 0, and rank `which`'s array of pieces for everybody."""
    counts = [3 * rank for rank in range(comm.ranks)]
    return counts, array_of(which, sum(counts), dtype)


def rank_moves_uneven_pieces(comm):
    for dtype in ("float32", "uint8", "complex64"):
        counts, whole = pieces(comm, 0, dtype)
        begin = sum(counts[:comm.rank])
        mine = whole[begin:begin + counts[comm.rank]].copy()
        same(comm.allgather(mine, counts=counts), whole, "allgather", dtype)
        same_with_gaps(comm, mine, counts, dtype)
        out = np.empty_like(mine)
        is_root = comm.rank == 1
        got = comm.gather(mine, root=1, counts=counts if is_root else None)
        if is_root:
            same(got, whole, "gather", dtype)
        comm.scatter(whole if is_root else None, out, 1, counts=counts if is_root else None)
        same(out, mine, "scatter", dtype)
        uneven_alltoall(comm, dtype)
    uneven_reduce_scatter(comm)


def same_with_gaps(comm, mine, counts, dtype):
    places = [10 * (comm.ranks - 1 - rank) for rank in range(comm.ranks)]
    out = np.zeros(10 * comm.ranks, dtype)
    comm.allgather(mine, out, counts=counts, places=places)
    for rank in range(comm.ranks):
        whole = pieces(comm, 0, dtype)[1]
        begin = sum(counts[:rank])
        wanted = np.zeros(10, dtype)
        wanted[:counts[rank]] = whole[begin:begin + counts[rank]]
        same(out[places[rank]:places[rank] + 10], wanted, "places", rank)


def uneven_alltoall(comm, dtype):
    """Rank r sends r + q elements to rank q."""
    counts = [comm.rank + other for other in range(comm.ranks)]
    inputs = [array_of(rank, sum(rank + other for other in range(comm.ranks)), dtype) for rank in range(comm.ranks)]
    got = comm.alltoall(inputs[comm.rank], counts=counts, out_counts=counts)
    parts = []
    for rank, each in enumerate(inputs):
        begin = sum(rank + other for other in range(comm.rank))
        parts.append(each[begin:begin + rank + comm.rank])
    same(got, np.concatenate(parts), "alltoall", dtype)


def uneven_reduce_scatter(comm):
    counts = [3 * rank + 1 for rank in range(comm.ranks)]
    inputs = arrays_of(comm, sum(counts), "float32")
    begin = sum(counts[:comm.rank])
    expect(comm.reduce_scatter(inputs[comm.rank], counts=counts),
           reduced(inputs, "sum")[begin:begin + counts[comm.rank]], "reduce_scatter")


def rank_scales_and_chooses(comm):
    inputs = arrays_of(comm, 100, "float32")
    expect(comm.allreduce(inputs[comm.rank].copy(), scale=0.5), reduced(inputs, "sum") * np.float32(0.5), "scale")
    expect(comm.allreduce(inputs[comm.rank].copy(), timeout=30, algorithm="ring"), reduced(inputs, "sum"), "algorithm")
    assert_raises(weft.InvalidError, lambda: comm.allreduce(inputs[comm.rank], algorithm="magic"), "magic")
    assert_raises(weft.InvalidError, lambda: comm.allreduce(inputs[comm.rank], op="max", scale=2.0),
                  "scale is for sums")
    comm.barrier()
    comm.barrier(timeout=30)
    truth = np.array([comm.rank == 0, False, True])
    assert comm.allreduce(truth, op="max").tolist() == [True, False, True]


def rank_uses_shared_memory(comm):
    mine = weft.alloc((300, 100), "float64")
    assert mine.shape == (300, 100) and not mine.any()
    mine[:] = comm.rank + 1
    comm.allreduce(mine, op="max")
    assert (mine == comm.ranks).all()
    assert weft.alloc(0).size == 0


def rank_keeps_shapes(comm):
    inputs = arrays_of(comm, 12 * comm.ranks, "float32")
    mine = inputs[comm.rank].reshape(comm.ranks, 3, 4)
    assert comm.allgather(mine).shape == (comm.ranks, comm.ranks, 3, 4)
    assert comm.reduce_scatter(mine).shape == (1, 3, 4)
    assert comm.alltoall(mine).shape == mine.shape
    assert comm.allreduce(np.ones(())).shape == ()


class Collectives(RankCase):
    def test_reduce_over_all_ranks(self):
        for ranks in (1, 2, 3):
            self.run_ranks(ranks, rank_reduces)

    def test_reduce_to_a_root(self):
        self.run_ranks(3, rank_reduces_to_root)

    def test_reduce_and_scatter(self):
        self.run_ranks(2, rank_scatters_sums)

    def test_move_any_dtype(self):
        for ranks in (2, 3):
            self.run_ranks(ranks, rank_moves)

    def test_move_pieces_of_different_sizes(self):
        self.run_ranks(3, rank_moves_uneven_pieces)

    def test_scale_and_choose_algorithms(self):
        self.run_ranks(2, rank_scales_and_chooses)

    def test_use_memory_of_weft_alloc(self):
        self.run_ranks(2, rank_uses_shared_memory)

    def test_make_outputs_of_the_right_shape(self):
        self.run_ranks(2, rank_keeps_shapes)

    def test_work_over_tcp(self):
        self.run_ranks(2, rank_moves_uneven_pieces, WEFT_PATH="tcp")


if __name__ == "__main__":
    job.main(globals())
