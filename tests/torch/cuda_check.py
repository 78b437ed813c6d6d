#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CUDA tensors over Weft, on a machine with a GPU (one is enough: the ranks share it). Not part of `make test-torch`.

    make build && PYTHONPATH=python python3 tests/torch/cuda_check.py [-v]

Works with the PyTorch that is there. Ends with the times of allreduces of CUDA tensors beside those of host tensors.
"""
import os
import sys
import time
import unittest

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import RankTest, ranks, run_ranks, start


def gpu(rank):
    """This rank's device. The parent never asks CUDA anything: a context does not survive a fork."""
    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def late(tensor):
    """The same numbers, from a stream that takes its time to write them."""
    torch.cuda._sleep(20_000_000)  # about 10 ms
    return tensor * 1


class Cuda(RankTest):
    def full(self, size, value, dtype=torch.float32):
        return torch.full(size if isinstance(size, tuple) else (size,), value, dtype=dtype, device=gpu(self.rank))

    def on_host(self, got, expected):
        self.assertTrue(got.is_cuda)
        self.same(got.cpu(), expected)

    @ranks(2)
    def test_collectives_wait_for_the_stream_and_the_stream_for_them(self):
        one = late(self.full(1000, 1. + self.rank))
        dist.all_reduce(one)
        self.on_host(one * 2, torch.full((1000,), 6.))
        dist.broadcast(one.mul_(self.rank), 1)
        self.on_host(one, torch.full((1000,), 3.))
        places = [self.full(3, 0.) for _ in range(2)]
        dist.all_gather(places, late(self.full(3, 5. + self.rank)))
        self.on_host(places[1], torch.full((3,), 6.))
        whole = self.full(4, 0.)
        dist.all_gather_into_tensor(whole, late(self.full(2, 7. + self.rank)))
        self.on_host(whole, torch.tensor([7., 7, 8, 8]))
        dist.all_gather(list(whole.chunk(2)), late(self.full(2, 1. + self.rank)))
        self.on_host(whole, torch.tensor([1., 1, 2, 2]))
        place = self.full(2, 0.)
        dist.reduce_scatter_tensor(place, late(torch.arange(4., device=gpu(self.rank))))
        self.on_host(place, torch.tensor([0., 2]) if self.rank == 0 else torch.tensor([4., 6]))
        dist.all_to_all_single(whole, late(self.full(4, 3. + self.rank)))
        self.on_host(whole, torch.tensor([3., 3, 4, 4]))
        place = late(self.full(2, 1. + self.rank))
        dist.reduce(place, 0)
        self.on_host(place, torch.full((2,), 3. if self.rank == 0 else 2.))
        places = [self.full(2, 0.) for _ in range(2)]
        dist.gather(place, places if self.rank == 0 else None, 0)
        if self.rank == 0:
            self.on_host(torch.stack(places), torch.tensor([[3., 3], [2, 2]]))
        dist.scatter(place, [self.full(2, 1.), self.full(2, 9.)] if self.rank == 0 else None, 0)
        self.on_host(place, torch.full((2,), 1. if self.rank == 0 else 9.))
        dist.barrier()

    @ranks(2)
    def test_dtypes_and_layouts(self):
        for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.uint8, torch.bool):
            one = self.full(130, 1, dtype)
            dist.all_reduce(one)
            self.on_host(one, torch.full((130,), 1 if dtype is torch.bool else 2, dtype=dtype))
        grid = late(self.full((6, 4), 1.))
        dist.all_reduce(grid[:, 1])
        self.on_host(grid.sum(0), torch.tensor([6., 12, 6, 6]))
        turned = late(self.full((3, 5), 2.)).t()
        dist.broadcast(turned, 0)
        self.on_host(turned, torch.full((5, 3), 2.))

    @ranks(2)
    def test_works_and_futures(self):
        tensors = [late(self.full(500, float(turn))) for turn in range(8)]
        begun = time.perf_counter()
        works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
        self.assertLess(time.perf_counter() - begun, 5)
        for turn, (work, tensor) in enumerate(zip(works, tensors)):
            work.wait()
            self.on_host(tensor, torch.full((500,), 2. * turn))
        one = late(self.full(500, 1.))
        after = dist.all_reduce(one, async_op=True).get_future().then(lambda ended: ended.value()[0] + 1)
        self.on_host(after.wait(), torch.full((500,), 3.))
        many = [late(self.full(5, 1.)), self.full(700, 2.)]
        dist.all_reduce_coalesced(many)
        self.on_host(many[1], torch.full((700,), 4.))

    @ranks(2)
    def test_long_tensors_in_pieces(self):
        size = 10_000_019  # 40 MB and a bit
        one = late(torch.arange(size, device=gpu(self.rank)) % 1000).float()
        expected = one.cpu() * 2
        work = dist.all_reduce(one, async_op=True)
        self.on_host(work.get_future().wait()[0], expected)
        work.wait()
        self.on_host(one, expected)
        strided = late(self.full((size, 2), 1.))[:, 0]
        mine = strided if self.rank == 0 else strided.contiguous()  # ranks cut alike, however their tensors lie
        dist.all_reduce(mine)
        self.on_host(mine, torch.full((size,), 2.))
        with torch.inference_mode():
            one = self.full(5, 1.)
            work = dist.all_reduce(one, async_op=True)
        work.wait()
        self.on_host(one, torch.full((5,), 2.))

    @ranks(2)
    def test_host_and_device_in_turn(self):
        for turn in range(10):
            there, here = late(self.full(100, float(turn))), torch.full((100,), float(turn))
            work = dist.all_reduce(there, async_op=True)
            dist.all_reduce(here)
            work.wait()
            self.on_host(there, torch.full((100,), 2. * turn))
            self.same(here, torch.full((100,), 2. * turn))

    @ranks(2)
    def test_messages(self):
        other = 1 - self.rank
        place = self.full(300000, 0.)
        works = [dist.irecv(place, other), dist.isend(late(self.full(300000, 4. + self.rank)), other)]
        for work in works:
            work.wait()
        self.on_host(place, torch.full((300000,), 4. + other))

    @ranks(2)
    def test_memory_that_is_given_back_meanwhile(self):
        for _ in range(50):  # temporaries, which the allocator gives to the next one
            dist.all_reduce(late(self.full(100000, 1.)) if _ % 10 == 0 else self.full(100000, 1.), async_op=True)
            noise = self.full(100000, 99.)
        one = self.full(100000, 1.)
        dist.all_reduce(one)
        del noise
        self.on_host(one, torch.full((100000,), 2.))

    @ranks(2)
    def test_ddp_as_on_the_host(self):
        answers = []
        for device in (torch.device("cpu"), gpu(self.rank)):
            torch.manual_seed(0)
            net = nn.Sequential(nn.Linear(10, 300), nn.Tanh(), nn.Linear(300, 300), nn.Tanh(), nn.Linear(300, 2))
            net = DistributedDataParallel(net.to(device), bucket_cap_mb=0.1)
            optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
            for step in range(5):
                torch.manual_seed(10 * step + self.rank)
                given = torch.randn(16, 10).to(device)
                optimizer.zero_grad()
                net(given).square().mean().backward()
                optimizer.step()
            answers.append([parameter.detach().cpu() for parameter in net.parameters()])
        for host, device in zip(*answers):
            self.same(device, host, rtol=1e-3, atol=1e-4)


def times(rank, count, port, prefix):
    start(rank, count, port=port, prefix=prefix)
    device, lines = gpu(rank), []
    for size in (1000, 250_000, 4_000_000, 64_000_000):
        took = {}
        for kind in ("cpu", "cuda"):
            one = torch.ones(size, device=device if kind == "cuda" else "cpu")
            for turn in range(4):
                torch.cuda.synchronize()
                dist.barrier()
                begun = time.perf_counter()
                dist.all_reduce(one)
                torch.cuda.synchronize()
                took.setdefault(kind, []).append(time.perf_counter() - begun)
        lines.append("%11d bytes  host %8.2f ms  cuda %8.2f ms" % (size * 4, min(took["cpu"]) * 1e3,
                                                                 min(took["cuda"]) * 1e3))
    dist.destroy_process_group()
    return lines


if __name__ == "__main__":
    done = unittest.main(exit=False)
    if done.result.wasSuccessful():
        print("allreduce, 2 ranks, best of 4:\n" + "\n".join(run_ranks(2, times)[0]))
    sys.exit(not done.result.wasSuccessful())
