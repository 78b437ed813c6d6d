# SPDX-License-Identifier: Apache-2.0
"""Every collective x dtype x async x group x shapes, against what it must be."""
import unittest

import torch
import torch.distributed as dist

from harness import RankTest, ranks

INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64, torch.uint64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
COMPLEX = [torch.complex64, torch.complex128]
EIGHTS = [torch.float8_e4m3fn, torch.float8_e5m2]
MOVED = INTEGERS + FLOATS + COMPLEX + EIGHTS + [torch.bool, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]
SHAPES = [(), (1,), (430,), (3, 5), (2, 0), (0,), (2, 3, 4), (70000,)]


def values(rank, shape, dtype, seed=0):
    """Small numbers, other ones on every rank, that every dtype can hold and add."""
    count = torch.Size(shape).numel()
    numbers = (torch.arange(count, dtype=torch.int64) * 7 + rank * 3 + seed) % 5 + 1
    if dtype is torch.bool:
        return (numbers > 3).reshape(shape)
    return numbers.to(torch.float64).to(dtype).reshape(shape)


def numbers_of(tensor):
    """In a dtype that torch can compare and compute with."""
    if tensor.dtype.is_complex:
        return tensor.to(torch.complex128)
    return tensor.to(torch.float64) if tensor.dtype is not torch.bool else tensor


def finish(work):
    if work is not None:
        work.wait()


class Moved(RankTest):
    """What is copied, not reduced: any dtype."""

    def each(self):
        turn = 0
        for dtype in MOVED:
            for shape in SHAPES if dtype is torch.float32 else [(430,), (2, 3)]:
                turn += 1
                yield dtype, shape, turn % 2 == 0

    def check(self, got, expected):
        self.assertEqual(got.dtype, expected.dtype)
        self.same(numbers_of(got), numbers_of(expected))

    @ranks(3)
    def test_broadcast(self):
        for dtype, shape, is_async in self.each():
            root = sum(shape) % self.ranks
            tensor = values(self.rank, shape, dtype)
            finish(dist.broadcast(tensor, root, async_op=is_async))
            self.check(tensor, values(root, shape, dtype))

    @ranks(3)
    def test_all_gather_list(self):
        for dtype, shape, is_async in self.each():
            places = [torch.zeros(shape, dtype=torch.float32).to(dtype) for _ in range(self.ranks)]
            finish(dist.all_gather(places, values(self.rank, shape, dtype), async_op=is_async))
            for rank, place in enumerate(places):
                self.check(place, values(rank, shape, dtype))

    @ranks(3)
    def test_all_gather_into_tensor(self):
        for dtype, shape, is_async in self.each():
            if shape == ():
                continue
            for stacked in (False, True):
                whole = (self.ranks,) + shape if stacked else (self.ranks * shape[0],) + shape[1:]
                place = torch.zeros(whole, dtype=torch.float32).to(dtype)
                finish(dist.all_gather_into_tensor(place, values(self.rank, shape, dtype), async_op=is_async))
                pieces = [values(rank, shape, dtype) for rank in range(self.ranks)]
                self.check(place.view(-1), torch.cat([piece.view(-1) for piece in pieces]))

    @ranks(3)
    def test_gather(self):
        for dtype, shape, is_async in self.each():
            root = sum(shape) % self.ranks
            places = [torch.zeros(shape, dtype=torch.float32).to(dtype) for _ in range(self.ranks)]
            finish(dist.gather(values(self.rank, shape, dtype), places if self.rank == root else None, root,
                               async_op=is_async))
            if self.rank == root:
                for rank, place in enumerate(places):
                    self.check(place, values(rank, shape, dtype))

    @ranks(3)
    def test_scatter(self):
        for dtype, shape, is_async in self.each():
            root = sum(shape) % self.ranks
            pieces = [values(rank, shape, dtype, 9) for rank in range(self.ranks)]
            place = torch.zeros(shape, dtype=torch.float32).to(dtype)
            finish(dist.scatter(place, pieces if self.rank == root else None, root, async_op=is_async))
            self.check(place, pieces[self.rank])

    @ranks(3)
    def test_all_to_all_list(self):
        for dtype, shape, is_async in self.each():
            pieces = [values(self.rank, shape, dtype, to) for to in range(self.ranks)]
            places = [torch.zeros(shape, dtype=torch.float32).to(dtype) for _ in range(self.ranks)]
            finish(dist.all_to_all(places, pieces, async_op=is_async))
            for rank, place in enumerate(places):
                self.check(place, values(rank, shape, dtype, self.rank))

    @ranks(3)
    def test_all_to_all_list_of_uneven_pieces(self):
        pieces = [torch.full((self.rank + to, 2), 10. * self.rank + to) for to in range(self.ranks)]
        places = [torch.zeros(rank + self.rank, 2) for rank in range(self.ranks)]
        dist.all_to_all(places, pieces)
        for rank, place in enumerate(places):
            self.same(place, torch.full((rank + self.rank, 2), 10. * rank + self.rank))

    @ranks(3)
    def test_all_to_all_single(self):
        for dtype, shape, is_async in self.each():
            if shape == ():
                continue
            whole = (self.ranks,) + shape
            stacked = torch.bool if dtype is torch.bool else torch.float32  # not every dtype can be stacked
            pieces = torch.stack([values(self.rank, shape, stacked, to) for to in range(self.ranks)]).to(dtype)
            place = torch.zeros(whole, dtype=torch.float32).to(dtype)
            finish(dist.all_to_all_single(place, pieces, async_op=is_async))
            expected = torch.stack([values(r, shape, stacked, self.rank) for r in range(self.ranks)]).to(dtype)
            self.check(place, expected)

    @ranks(3)
    def test_all_to_all_single_with_splits(self):
        give = [self.rank + to + 1 for to in range(self.ranks)]
        take = [rank + self.rank + 1 for rank in range(self.ranks)]
        for is_async in (False, True):
            pieces = torch.cat([torch.full((rows, 3), 10 * self.rank + to) for to, rows in enumerate(give)])
            place = torch.zeros(sum(take), 3, dtype=pieces.dtype)
            finish(dist.all_to_all_single(place, pieces, take, give, async_op=is_async))
            self.same(place, torch.cat([torch.full((rows, 3), 10 * rank + self.rank)
                                        for rank, rows in enumerate(take)]))

    @ranks(2)
    def test_all_to_all_single_of_nothing_to_some(self):
        give, take = ([0, 2], [0, 1]) if self.rank == 0 else ([1, 0], [2, 0])
        place = torch.zeros(sum(take), dtype=torch.complex64)
        dist.all_to_all_single(place, torch.full((sum(give),), 1j + self.rank), take, give)
        self.same(place, torch.full((sum(take),), 1j + (1 - self.rank)))

    @ranks(3)
    def test_all_gather_of_uneven_tensors(self):
        places = [torch.zeros(rank + 1) for rank in range(self.ranks)]
        dist.all_gather(places, torch.full((self.rank + 1,), float(self.rank)))
        for rank, place in enumerate(places):
            self.same(place, torch.full((rank + 1,), float(rank)))

    @ranks(2)
    def test_barrier(self):
        dist.barrier()
        work = dist.barrier(async_op=True)
        work.wait()
        self.assertEqual(work.get_future().wait(), [])


class Reduced(RankTest):
    """SUM, PRODUCT, MIN, MAX, AVG, BAND, BOR, BXOR, PREMUL_SUM."""

    def expected(self, op, shape, dtype, seed=0):
        parts = [values(rank, shape, dtype, seed) for rank in range(self.ranks)]
        if dtype is torch.bool:
            whole = torch.stack(parts).to(torch.int64)
            kinds = {dist.ReduceOp.SUM: whole.amax, dist.ReduceOp.PRODUCT: whole.amin, dist.ReduceOp.MAX: whole.amax,
                     dist.ReduceOp.MIN: whole.amin, dist.ReduceOp.BAND: whole.amin, dist.ReduceOp.BOR: whole.amax}
            return kinds[op](0).to(torch.bool) if op in kinds else (whole.sum(0) % 2).to(torch.bool)
        whole = torch.stack([numbers_of(part) for part in parts])
        if op == dist.ReduceOp.SUM:
            got = whole.sum(0)
        elif op == dist.ReduceOp.PRODUCT:
            got = whole.prod(0)
        elif op == dist.ReduceOp.MIN:
            got = whole.amin(0)
        elif op == dist.ReduceOp.MAX:
            got = whole.amax(0)
        elif op == dist.ReduceOp.AVG:
            got = whole.sum(0) / self.ranks
            if not (dtype.is_floating_point or dtype.is_complex):
                got = got.trunc()
        else:
            got = self.bitwise(op, whole.to(torch.int64)).to(torch.float64)
        return got

    def bitwise(self, op, whole):
        got = whole[0]
        for part in whole[1:]:
            got = got & part if op == dist.ReduceOp.BAND else got | part if op == dist.ReduceOp.BOR else got ^ part
        return got

    def each(self):
        op = dist.ReduceOp
        for dtype in INTEGERS + FLOATS + COMPLEX + EIGHTS + [torch.bool]:
            ops = [op.SUM, op.AVG]
            if not dtype.is_complex:
                ops += [op.PRODUCT, op.MIN, op.MAX]
            if dtype in INTEGERS or dtype is torch.bool:
                ops += [op.BAND, op.BOR, op.BXOR]
            if dtype is torch.bool:
                ops.remove(op.AVG)
            for kind in ops:
                for shape in SHAPES if dtype is torch.float32 and kind == op.SUM else [(430,)]:
                    yield dtype, kind, shape

    def check(self, got, expected):
        rough = {torch.bfloat16: 1e-2, torch.float16: 1e-3, torch.float8_e4m3fn: 0.07, torch.float8_e5m2: 0.13}
        limit = rough.get(got.dtype, 1e-6)
        self.same(numbers_of(got), expected, rtol=limit, atol=limit)

    @ranks(3)
    def test_all_reduce(self):
        for turn, (dtype, op, shape) in enumerate(self.each()):
            tensor = values(self.rank, shape, dtype)
            finish(dist.all_reduce(tensor, op, async_op=turn % 2 == 0))
            self.check(tensor, self.expected(op, shape, dtype))

    @ranks(2)
    def test_reduce(self):
        for dtype, op, shape in self.each():
            root = sum(shape) % self.ranks
            tensor = values(self.rank, shape, dtype)
            finish(dist.reduce(tensor, root, op, async_op=True))
            if self.rank == root:
                self.check(tensor, self.expected(op, shape, dtype))
            else:
                self.same(numbers_of(tensor), numbers_of(values(self.rank, shape, dtype)))

    @ranks(3)
    def test_reduce_scatter_list_and_tensor(self):
        for dtype, op, shape in self.each():
            if shape == () or dtype.is_complex:
                continue
            pieces = [values(self.rank, shape, dtype, seed=to) for to in range(self.ranks)]
            place = torch.zeros(shape).to(dtype)
            finish(dist.reduce_scatter(place, pieces, op, async_op=True))
            self.check(place, self.expected(op, shape, dtype, seed=self.rank))
            place = torch.zeros(shape).to(dtype)
            if dtype not in EIGHTS:
                dist.reduce_scatter_tensor(place, torch.cat(pieces), op)
                self.check(place, self.expected(op, shape, dtype, seed=self.rank))

    @ranks(2)
    def test_reduce_scatter_of_complex_and_of_uneven_pieces(self):
        place = torch.zeros(3, dtype=torch.complex64)
        dist.reduce_scatter_tensor(place, torch.full((6,), 1 + 2j))
        self.same(place, torch.full((3,), 2 + 4j))
        place = torch.zeros(self.rank + 1)
        dist.reduce_scatter(place, [torch.ones(1), torch.ones(2) * 3])
        self.same(place, torch.full((self.rank + 1,), 2. if self.rank == 0 else 6.))

    @ranks(2)
    def test_premultiplied_sum(self):
        op = dist._make_nccl_premul_sum(0.5)
        for dtype in FLOATS:
            tensor = torch.full((430,), 2. * (self.rank + 1)).to(dtype)
            dist.all_reduce(tensor, op)
            self.same(tensor, torch.full((430,), 3.).to(dtype))
        tensor = torch.full((5,), 4.)
        dist.reduce(tensor, 1, dist._make_nccl_premul_sum(torch.tensor([0.25])))
        if self.rank == 1:
            self.same(tensor, torch.full((5,), 2.))
        place = torch.zeros(2)
        dist.reduce_scatter_tensor(place, torch.ones(4), op)
        self.same(place, torch.ones(2))

    @ranks(2)
    def test_a_sum_that_is_premultiplied_with_nothing(self):
        op = dist._make_nccl_premul_sum(0.0)
        tensor = torch.ones(2)
        dist.all_reduce(tensor, op)
        self.same(tensor, torch.zeros(2))
        tensor = torch.ones(2)
        dist.reduce(tensor, 0, op)
        self.same(tensor, torch.full((2,), float(self.rank)))
        place = torch.ones(2)
        dist.reduce_scatter_tensor(place, torch.ones(4), op)
        self.same(place, torch.zeros(2))
        place = torch.ones(2)
        dist.reduce_scatter(place, [torch.ones(2), torch.ones(2)], op)
        self.same(place, torch.zeros(2))

    @ranks(2)
    def test_a_nan_is_not_lost(self):
        tensor = torch.tensor([float("nan") if self.rank else 1., 2.])
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
        self.assertTrue(tensor[0].isnan())
        self.assertEqual(tensor[1], 2)

    @ranks(3)
    def test_coalesced(self):
        tensors = [torch.full((size,), float(self.rank)) for size in (1, 430, 0, 7)]
        dist.all_reduce_coalesced(tensors)
        for tensor in tensors:
            self.same(tensor, torch.full_like(tensor, 3))
        future = dist.all_reduce_coalesced(tensors, async_op=True)
        self.assertEqual(len(future.wait()), 4)
        self.same(tensors[1], torch.full((430,), 9.))

    @ranks(2)
    def test_coalescing_manager(self):
        group = dist.group.WORLD
        tensors = [torch.ones(3) * (self.rank + 1), torch.ones(2, 2)]
        with dist._coalescing_manager(group, async_ops=True) as manager:
            for tensor in tensors:
                dist.all_reduce(tensor)
        manager.wait()
        self.same(tensors[0], torch.full((3,), 3.))
        places = [torch.zeros(2), torch.zeros(4)]
        with dist._coalescing_manager(group):
            for at, place in enumerate(places):
                dist.all_gather_into_tensor(place, torch.full((at + 1,), float(self.rank)))
        self.same(places[1], torch.tensor([0., 0, 1, 1]))
        outputs = [torch.zeros(1), torch.zeros(2)]
        with dist._coalescing_manager(group):
            for at, output in enumerate(outputs):
                dist.reduce_scatter_tensor(output, torch.arange(2. * (at + 1)))
        self.same(outputs[1], torch.tensor([0., 2.]) if self.rank == 0 else torch.tensor([4., 6.]))

    @ranks(2)
    def test_all_gather_coalesced(self):
        lists = [[torch.zeros(2) for _ in range(2)], [torch.zeros(3) for _ in range(2)]]
        dist.all_gather_coalesced(lists, [torch.full((2,), float(self.rank)), torch.full((3,), 5. + self.rank)])
        self.same(lists[0][1], torch.ones(2))
        self.same(lists[1][0], torch.full((3,), 5.))
        inputs = [torch.full((2,), 7. + self.rank), torch.full((3,), 9. + self.rank)]
        got = dist.all_gather_coalesced(lists, inputs, async_op=True).wait()  # a Future's value, nested as in Gloo
        self.same(got[0], [torch.full((2,), 7.), torch.full((2,), 8.)])
        self.same(got[1], [torch.full((3,), 9.), torch.full((3,), 10.)])


class InSubGroups(RankTest):
    """Roots and sources are numbers of the job, pieces come in the group's order."""

    @ranks(4)
    def test_each_collective(self):
        group, members = dist.new_group([3, 1]), [1, 3]
        if self.rank not in members:
            return
        for dtype in (torch.float32, torch.int64, torch.complex64, torch.bool):
            for is_async in (False, True):
                self.check_moved(group, members, dtype, is_async)
                if dtype is not torch.bool:
                    self.check_reduced(group, members, dtype, is_async)

    def check_moved(self, group, members, dtype, is_async):
        settings = {"group": group, "async_op": is_async}
        mine, all_of_them = values(self.rank, (5,), dtype), [values(rank, (5,), dtype) for rank in members]
        tensor = mine.clone()
        finish(dist.broadcast(tensor, 3, **settings))
        self.same(tensor, all_of_them[1])
        places = [torch.zeros(5, dtype=dtype) for _ in members]
        finish(dist.all_gather(places, mine, **settings))
        self.same(places, all_of_them)
        places = [torch.zeros(5, dtype=dtype) for _ in members]
        finish(dist.gather(mine, places if self.rank == 3 else None, 3, **settings))
        if self.rank == 3:
            self.same(places, all_of_them)
        place = torch.zeros(5, dtype=dtype)
        finish(dist.scatter(place, all_of_them if self.rank == 3 else None, 3, **settings))
        self.same(place, mine)
        whole = torch.zeros(10, dtype=dtype)
        finish(dist.all_to_all_single(whole, torch.cat([mine, mine]), **settings))
        self.same(whole, torch.cat(all_of_them))

    def check_reduced(self, group, members, dtype, is_async):
        settings = {"group": group, "async_op": is_async}
        parts = [values(rank, (6,), dtype) for rank in members]
        mine, total = values(self.rank, (6,), dtype), parts[0] + parts[1]
        tensor = mine.clone()
        finish(dist.all_reduce(tensor, **settings))
        self.same(tensor, total)
        tensor = mine.clone()
        finish(dist.reduce(tensor, 3, **settings))
        self.same(tensor, total if self.rank == 3 else mine)
        place = torch.zeros(3, dtype=dtype)
        finish(dist.reduce_scatter_tensor(place, mine, **settings))
        self.same(place, total.chunk(2)[members.index(self.rank)])
        place = torch.zeros(3, dtype=dtype)
        finish(dist.reduce_scatter(place, list(mine.chunk(2)), **settings))
        self.same(place, total.chunk(2)[members.index(self.rank)])

    @ranks(4)
    def test_messages(self):
        group = dist.new_group([1, 3])
        place = torch.zeros(2)
        if self.rank == 1:
            dist.send(torch.ones(2), 3, group=group)
            dist.isend(torch.full((2,), 2.), 3, group=group, tag=4).wait()
        elif self.rank == 3:
            self.assertEqual(dist.recv(place, group=group), 1)
            self.same(place, torch.ones(2))
            dist.irecv(place, 1, group=group, tag=4).wait()
            self.same(place, torch.full((2,), 2.))


class InOneMemory(RankTest):
    """Outputs that lie over inputs, in place or not: the result is as if they were apart."""

    @ranks(2)
    def test_all_to_all(self):
        expected = torch.tensor([0., 1, 10, 11]) if self.rank == 0 else torch.tensor([2., 3, 12, 13])
        tensor = torch.arange(4.) + 10 * self.rank
        dist.all_to_all_single(tensor, tensor)
        self.same(tensor, expected)
        tensor = torch.arange(4.) + 10 * self.rank
        dist.all_to_all(list(tensor.chunk(2)), list(tensor.chunk(2)))
        self.same(tensor, expected)
        tensor = torch.arange(5.) - 1 + 10 * self.rank
        dist.all_to_all_single(tensor[:4], tensor[1:])
        self.same(tensor[:4], expected)

    @ranks(2)
    def test_reduce_scatter(self):
        expected = torch.tensor([0., 2]) if self.rank == 0 else torch.tensor([4., 6])
        for at in (0, 1, self.rank):  # in place for one rank, for the other, for both
            for as_list in (False, True):
                whole = torch.arange(4.)
                place = whole.chunk(2)[at]
                if as_list:
                    dist.reduce_scatter(place, list(whole.chunk(2)))
                else:
                    dist.reduce_scatter_tensor(place, whole)
                self.same(place, expected)
        whole = torch.arange(4.)
        dist.reduce_scatter_tensor(whole[1:3], whole)
        self.same(whole[1:3], expected)

    @ranks(2)
    def test_gathers_and_scatter(self):
        expected = torch.tensor([1., 1, 2, 2])
        for at in (0, 1, self.rank):
            whole = torch.zeros(4)
            mine = whole.chunk(2)[at].fill_(1. + self.rank)
            dist.all_gather_into_tensor(whole, mine)
            self.same(whole, expected)
            whole = torch.zeros(4)
            mine = whole.chunk(2)[at].fill_(1. + self.rank)
            dist.all_gather(list(whole.chunk(2)), mine)
            self.same(whole, expected)
            whole = torch.zeros(4)
            mine = whole.chunk(2)[at].fill_(1. + self.rank)
            dist.gather(mine, list(whole.chunk(2)) if self.rank == 1 else None, 1)
            if self.rank == 1:
                self.same(whole, expected)
            whole = torch.tensor([5., 5, 6, 6])
            dist.scatter(whole.chunk(2)[at], list(whole.chunk(2)) if self.rank == 1 else None, 1)
            self.same(whole.chunk(2)[at], torch.full((2,), 5. + self.rank))


class Layouts(RankTest):
    """Tensors that do not lie in one piece are copied there and back."""

    def strided(self):
        whole = torch.arange(24.).reshape(4, 6) + self.rank
        return [whole.t(), whole[:, ::2], whole[1:3, 1:4], whole.unsqueeze(0).permute(2, 0, 1)]

    @ranks(2)
    def test_in_place(self):
        for is_async in (False, True):
            for at in range(4):
                tensor, other = self.strided()[at], self.strided()[at].clone()
                finish(dist.all_reduce(tensor, async_op=is_async))
                self.same(tensor, other * 2 + (1 if self.rank == 0 else -1))
                tensor = self.strided()[at]
                finish(dist.broadcast(tensor, 1, async_op=is_async))
                self.same(tensor, other + (1 - self.rank))

    @ranks(2)
    def test_elements_between_are_left_alone(self):
        whole = torch.arange(10.)
        dist.all_reduce(whole[::2])
        self.same(whole, torch.tensor([0., 1, 4, 3, 8, 5, 12, 7, 16, 9]))

    @ranks(2)
    def test_in_and_out(self):
        place = torch.zeros(3, 4).t()
        other = torch.zeros(3, 4).t()
        dist.all_gather([place, other], torch.full((3, 4), 7. + self.rank).t())
        self.same(place, torch.full((4, 3), 7.))
        self.same(other, torch.full((4, 3), 8.))
        out = torch.zeros(4, 2)[:, 0]
        dist.all_gather_into_tensor(out, torch.arange(4.)[::2])
        self.same(out, torch.tensor([0., 2, 0, 2]))
        out = torch.zeros(4)[::2]
        dist.reduce_scatter_tensor(out, torch.arange(8.)[::2])
        self.same(out, torch.tensor([0., 4]) if self.rank == 0 else torch.tensor([8., 12]))
        out = torch.zeros(2, 4).t()
        dist.all_to_all_single(out, (torch.arange(8.).view(2, 4) + 10 * self.rank).t())
        self.assertEqual(out[0, 0], 0 if self.rank == 0 else 2)

    @ranks(2)
    def test_pieces_of_one_tensor(self):
        whole = torch.zeros(6)
        dist.all_gather(list(whole.chunk(2)), torch.full((3,), 1. + self.rank))
        self.same(whole, torch.tensor([1., 1, 1, 2, 2, 2]))

    @ranks(2)
    def test_parameters_that_require_gradients(self):
        for tensor in (torch.ones(3, 2, requires_grad=True), torch.nn.Parameter(torch.ones(3, 2).t())):
            with torch.no_grad():
                dist.all_reduce(tensor)
            self.same(tensor.detach(), torch.full_like(tensor, 2).detach())
        tensor = torch.nn.Parameter(torch.ones(3, 4).t() * self.rank)
        finish(dist.broadcast(tensor.data, 1, async_op=True))
        self.same(tensor.detach(), torch.ones(4, 3))

    @ranks(2)
    def test_inference_tensors_outside_inference_mode(self):
        with torch.inference_mode():
            strided = torch.ones(4, 3).t()
            works = [dist.all_reduce(strided, async_op=True)]
            soon, late = [[torch.zeros(size), torch.zeros(size)] for size in (5, 100000)]
            works.append(dist.all_gather(soon, torch.ones(5), async_op=True))
            future = dist.all_gather(late, torch.ones(100000), async_op=True).get_future()  # ended by a thread of ours
        for work in works:
            work.wait()
        future.wait()
        dist.all_reduce(strided)
        with torch.inference_mode():
            self.same(strided, torch.full((3, 4), 4.))
            self.same(soon[1], torch.ones(5))
            self.same(late[1], torch.ones(100000))

    @ranks(2)
    def test_conjugate_views(self):
        tensor = torch.full((3,), 1 + 2j).conj()
        dist.group.WORLD.broadcast([tensor], 0).wait()
        self.same(tensor.resolve_conj(), torch.full((3,), 1 - 2j))
        places = [torch.zeros(3, dtype=torch.complex64) for _ in range(2)]
        dist.group.WORLD.allgather([places], [tensor]).wait()
        self.same(places[1], torch.full((3,), 1 - 2j))


if __name__ == "__main__":
    unittest.main()
