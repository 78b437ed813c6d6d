# SPDX-License-Identifier: Apache-2.0
"""The staging of CUDA tensors, with a device that is made of host memory: its copies end when the test says so. On a GPU
the same is done by cuda_check.py."""
import contextlib
import threading
import unittest

import torch
import torch.distributed as dist
from weft.torch import _cuda, _stage

from harness import RankTest, ranks


class Gate:
    """An event of the device: it happens when the copies are let go."""

    def __init__(self, device, copy):
        self._device, self._copy = device, copy

    def synchronize(self):
        assert self._device.open.wait(30)
        copy, self._copy = self._copy, None
        if copy is not None:
            copy()


class FakeDevice:
    def __init__(self, _device):
        self.open = threading.Event()
        self.open.set()
        self.waited_for = []
        self.ups = 0

    def to_host(self, dense):
        host = torch.full_like(dense, 77)  # what is there before the copy
        return host, Gate(self, lambda: host.copy_(dense))

    def host_like(self, dense):
        return torch.empty_like(dense)

    def before_writing(self):
        pass

    def to_device(self, writes, after):
        for tensor, host in writes:
            tensor.copy_(host)
        for tensor, dense in after:
            tensor.copy_(dense)
        self.ups += 1
        return self.ups

    def let_current_wait(self, event):
        assert event is not None
        self.waited_for.append(event)

    def new_future(self):
        return torch.futures.Future()

    def with_results(self):
        return contextlib.nullcontext()


class Staging(RankTest):
    def stage_everything(self):
        """All tensors of this rank are on the device from now on."""
        group = dist.group.WORLD
        group._stager_made = _cuda.Stager(group, FakeDevice)
        plain = _stage.HostStage

        def for_tensor(tensor, group):
            return group._stager().stage("fake") if tensor.dtype is not torch.int32 else plain()
        _stage.for_tensor = for_tensor
        _stage.unless_plain = for_tensor
        self.group = group
        self.device = group._stager().stage("fake").device

    @ranks(2)
    def test_each_collective(self):
        self.stage_everything()
        mine = torch.full((6,), 1. + self.rank)
        dist.all_reduce(mine)
        self.same(mine, torch.full((6,), 3.))
        strided = torch.full((4, 2), 1. + self.rank)
        dist.all_reduce(strided[:, 0])
        self.same(strided[:, 0], torch.full((4,), 3.))
        mine += self.rank
        dist.broadcast(mine, 1)
        self.same(mine, torch.full((6,), 4.))
        places = [torch.zeros(2), torch.zeros(2)]
        dist.all_gather(places, torch.full((2,), float(self.rank)))
        self.same(places[1], torch.ones(2))
        whole = torch.zeros(4)
        dist.all_gather(list(whole.chunk(2)), torch.full((2,), 5. + self.rank))
        self.same(whole, torch.tensor([5., 5, 6, 6]))
        dist.all_gather_into_tensor(whole, torch.full((2,), 7. + self.rank))
        self.same(whole, torch.tensor([7., 7, 8, 8]))
        place = torch.zeros(2)
        dist.reduce_scatter_tensor(place, torch.arange(4.))
        self.same(place, torch.tensor([0., 2]) if self.rank == 0 else torch.tensor([4., 6]))
        dist.reduce_scatter(place, [torch.ones(2), torch.ones(2) * 2])
        self.same(place, torch.full((2,), 2. + 2 * self.rank))
        dist.reduce(place, 0)
        self.same(place, torch.full((2,), 6. if self.rank == 0 else 4.))
        dist.gather(place, places if self.rank == 0 else None, 0)
        self.same(places, [torch.full((2,), 6.), torch.full((2,), 4.)] if self.rank == 0
                  else [torch.zeros(2), torch.ones(2)])
        dist.scatter(place, [torch.ones(2), torch.ones(2) * 9] if self.rank == 0 else None, 0)
        self.same(place, torch.ones(2) if self.rank == 0 else torch.full((2,), 9.))
        dist.all_to_all_single(whole, torch.full((4,), 3. + self.rank))
        self.same(whole, torch.tensor([3., 3, 4, 4]))
        dist.all_to_all(places, [torch.full((2,), 10. * self.rank + to) for to in range(2)])
        self.same(places[1], torch.full((2,), 10. + self.rank))
        dist.barrier()
        self.assertGreaterEqual(len(self.device.waited_for), 12)  # every wait made the stream wait

    @ranks(2)
    def test_coalesced_and_long(self):
        self.stage_everything()
        tensors = [torch.ones(3), torch.ones(5)]
        dist.all_reduce_coalesced(tensors)
        self.same(tensors[1], torch.full((5,), 2.))
        _cuda.PIECE_LEN = 1024
        long = torch.arange(1000.)
        ups = self.device.ups
        work = dist.all_reduce(long, async_op=True)
        self.same(work.get_future().wait()[0], torch.arange(1000.) * 2)
        self.assertEqual(self.device.ups - ups, 4)  # pieces of 256
        work.wait()
        outputs = [torch.zeros(1), torch.zeros(2)]
        with dist._coalescing_manager(self.group):
            for at, output in enumerate(outputs):
                dist.reduce_scatter_tensor(output, torch.arange(2. * (at + 1)))
        self.same(outputs[0], torch.tensor([2. * self.rank]))

    @ranks(2)
    def test_long_tensors_are_cut_alike_however_they_lie(self):
        self.stage_everything()
        _cuda.PIECE_LEN = 1024
        whole = torch.arange(2000.) if self.rank == 0 else torch.arange(1000.) * 2
        mine = whole[::2] if self.rank == 0 else whole
        work = dist.all_reduce(mine, async_op=True)
        work.wait()
        self.same(mine, torch.arange(1000.) * 4)
        if self.rank == 0:
            self.same(whole[1::2], torch.arange(1000.) * 2 + 1)  # what lies between is left alone
        dist.all_reduce(mine)
        self.same(mine, torch.arange(1000.) * 8)

    @ranks(2)
    def test_calls_return_while_the_device_is_busy_and_keep_their_order(self):
        self.stage_everything()
        self.device.open.clear()
        one = torch.ones(4)
        first = dist.all_reduce(one, async_op=True)  # of a device that has not come so far
        second = dist.all_reduce(torch.ones(4) * 2, dist.ReduceOp.MAX, async_op=True)
        self.assertFalse(first.is_completed() or second.is_completed())
        threading.Timer(0.2, self.device.open.set).start()
        on_host = torch.ones(3, dtype=torch.int32)
        dist.all_reduce(on_host)  # comes after both, though it need not wait for the device itself
        self.assertEqual(on_host.tolist(), [2, 2, 2])
        self.assertTrue(first.wait() and second.wait())
        self.same(one, torch.full((4,), 2.))

    @ranks(2)
    def test_messages(self):
        self.stage_everything()
        other = 1 - self.rank
        place = torch.zeros(5)
        works = [dist.irecv(place, other), dist.isend(torch.full((5,), 4. + self.rank), other)]
        for work in works:
            work.wait()
        self.same(place, torch.full((5,), 4. + other))
        if self.rank == 0:
            dist.send(torch.ones(2), 1)
        else:
            with self.assertRaisesRegex(dist.DistBackendError, "takes 12"):
                dist.recv(torch.zeros(3), 0)
        dist.barrier()

    @ranks(2)
    def test_what_cannot_be_begun_is_said_by_the_work(self):
        self.stage_everything()
        dist.all_reduce(torch.ones(2))
        self.device.open.clear()
        work = dist.all_reduce(torch.ones(2), async_op=True)
        self.group._leaving = True  # the group is closed before the device has come so far
        self.device.open.set()
        with self.assertRaisesRegex(dist.DistBackendError, "destroyed"):
            work.wait()
        self.group._leaving = False
        dist.barrier()


if __name__ == "__main__":
    unittest.main()
