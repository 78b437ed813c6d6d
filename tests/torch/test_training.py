# SPDX-License-Identifier: Apache-2.0
"""What people train with: DDP, FSDP2, tensor parallel, checkpoints. Each is run over Gloo as well, and must come to the
same parameters within the tolerance of floats."""
import os
import shutil
import tempfile
import unittest

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from harness import RankTest, ranks, run_ranks, start


def model(seed=0, wide=32):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(10, wide), nn.ReLU(), nn.Linear(wide, wide), nn.ReLU(), nn.Linear(wide, 3))


def batch(rank, step):
    torch.manual_seed(100 * step + rank)
    return torch.randn(8, 10), torch.randn(8, 3)


def train(net, rank, steps=5, rate=0.1):
    optimizer = torch.optim.SGD(net.parameters(), lr=rate, momentum=0.9)
    for step in range(steps):
        given, wanted = batch(rank, step)
        optimizer.zero_grad()
        nn.functional.mse_loss(net(given), wanted).backward()
        optimizer.step()


def numbers(net):
    """Lists cross the pipe to the parent, which does not compute."""
    return [parameter.detach().flatten().tolist() for parameter in net.parameters()]


class Numbers(Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, at):
        generator = torch.Generator().manual_seed(at)
        return torch.randn(10, generator=generator), torch.randn(3, generator=generator)


class Branches(nn.Module):
    """Uses one of its two branches, so that the other one's parameters have no gradient in that step."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.branches = nn.ModuleList([nn.Linear(10, 3), nn.Linear(10, 3)])
        self.calls = 0

    def forward(self, given):
        self.calls += 1
        return self.branches[self.calls % 2](given)


class TrainingTest(RankTest):
    def over_both(self, body, count=2):
        """body(rank) in ranks of Weft and of Gloo, all answers equal within the tolerance."""
        answers = {}
        for backend in ("weft", "gloo"):
            def rank_body(rank, ranks_, port, prefix, backend=backend):
                self.rank, self.ranks = rank, ranks_
                start(rank, ranks_, backend, port=port, prefix=prefix)
                answer = body(rank)
                dist.barrier()
                dist.destroy_process_group()
                return answer
            answers[backend] = run_ranks(count, rank_body, deadline_s=120)
        self.assertTrue(answers["gloo"][0])
        for mine, theirs in zip(answers["weft"], answers["gloo"]):
            self.close(mine, theirs)
        return answers["weft"]

    def close(self, mine, theirs):
        self.assertEqual(len(mine), len(theirs))
        for one, other in zip(mine, theirs):
            self.assertEqual(len(one), len(other))
            for a, b in zip(one, other):
                self.assertAlmostEqual(a, b, delta=1e-5 * max(1.0, abs(b)))


class Ddp(TrainingTest):
    def test_trains_as_over_gloo(self):
        def body(rank):
            net = DistributedDataParallel(model(seed=rank))  # the ranks begin apart; DDP makes them equal
            train(net, rank)
            return numbers(net)
        answers = self.over_both(body, count=3)
        self.assertEqual(answers[0], answers[1])

    def test_many_gradient_buckets(self):
        def body(rank):
            net = DistributedDataParallel(model(wide=200), bucket_cap_mb=0.05, gradient_as_bucket_view=True)
            train(net, rank)
            return numbers(net)
        self.over_both(body)

    def test_power_sgd_whose_callbacks_wait_for_futures(self):
        def body(rank):
            net = DistributedDataParallel(model(wide=1200), bucket_cap_mb=100)
            state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=64, start_powerSGD_iter=2)
            net.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
            train(net, rank, rate=0.01)
            return [one[:500] for one in numbers(net)]
        self.over_both(body)

    def test_unused_parameters(self):
        def body(rank):
            net = DistributedDataParallel(Branches(), find_unused_parameters=True)
            train(net, rank, steps=4)
            return numbers(net)
        self.over_both(body)

    def test_static_graph_and_buffers(self):
        def body(rank):
            torch.manual_seed(2)
            net = nn.Sequential(nn.Linear(10, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
            net = DistributedDataParallel(net, static_graph=True)
            train(net, rank)
            return numbers(net) + [net.module[1].running_mean.tolist()]
        self.over_both(body)

    def test_accumulated_gradients_without_synchronisation(self):
        def body(rank):
            net = DistributedDataParallel(model())
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            for step in range(3):
                optimizer.zero_grad()
                with net.no_sync():
                    given, wanted = batch(rank, step)
                    nn.functional.mse_loss(net(given), wanted).backward()
                given, wanted = batch(rank, step + 50)
                nn.functional.mse_loss(net(given), wanted).backward()
                optimizer.step()
            return numbers(net)
        self.over_both(body)

    def test_join_of_uneven_inputs(self):
        def body(rank):
            net = DistributedDataParallel(model())
            with Join([net]):
                train(net, rank, steps=3 + 2 * rank)
            return numbers(net)
        self.over_both(body)

    def test_loader_with_forked_workers(self):
        def body(rank):
            net = DistributedDataParallel(model())
            sampler = torch.utils.data.distributed.DistributedSampler(Numbers(), shuffle=False)
            loader = DataLoader(Numbers(), batch_size=4, sampler=sampler, num_workers=2,
                                multiprocessing_context="fork")
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            for _ in range(2):
                for given, wanted in loader:
                    optimizer.zero_grad()
                    nn.functional.mse_loss(net(given), wanted).backward()
                    optimizer.step()
            return numbers(net)
        self.over_both(body)

    def test_communication_hooks(self):
        def body(rank):
            net = DistributedDataParallel(model())
            net.register_comm_hook(dist.group.WORLD, default_hooks.allreduce_hook)
            train(net, rank, steps=3)
            return numbers(net)
        self.over_both(body)

    def test_a_hook_in_half_precision(self):
        def body(rank):
            net = DistributedDataParallel(model())
            net.register_comm_hook(None, default_hooks.fp16_compress_hook)
            train(net, rank, steps=2)
            return numbers(net)
        self.over_both(body)

    def test_sharded_optimizer(self):
        def body(rank):
            net = DistributedDataParallel(model())
            optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam, lr=0.01)
            for step in range(3):
                given, wanted = batch(rank, step)
                optimizer.zero_grad()
                nn.functional.mse_loss(net(given), wanted).backward()
                optimizer.step()
            return numbers(net)
        self.over_both(body)

    def test_a_killed_rank_ends_the_step_with_an_error(self):
        def body(rank, count, port, prefix):
            start(rank, count, port=port, prefix=prefix)
            net = DistributedDataParallel(model())
            train(net, rank, steps=2)
            if rank == 1:
                os.kill(os.getpid(), 9)
            try:
                train(net, rank, steps=1000000)
            except RuntimeError as error:
                return str(error)
        answers = run_ranks(2, body, may_die=[1])
        self.assertIn("ERR_PEER", answers[0])
        self.assertIn("rank 1", answers[0])


class Sharded(TrainingTest):
    def test_fsdp2_trains_as_over_gloo(self):
        def body(rank):
            mesh = init_device_mesh("cpu", (2,))
            net = model()
            for layer in net:
                if isinstance(layer, nn.Linear):
                    fully_shard(layer, mesh=mesh)
            fully_shard(net, mesh=mesh)
            train(net, rank, steps=4)
            return [parameter.full_tensor().detach().flatten().tolist() for parameter in net.parameters()]
        whole = self.over_both(body)
        self.assertEqual(whole[0], whole[1])

    def test_hybrid_sharding_on_a_mesh_of_two_dimensions(self):
        def body(rank):
            mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
            net = model()
            fully_shard(net, mesh=mesh)
            train(net, rank, steps=2)
            return [parameter.full_tensor().detach().flatten().tolist() for parameter in net.parameters()]
        self.over_both(body, count=4)

    def test_tensor_parallel(self):
        def body(rank):
            mesh = init_device_mesh("cpu", (2,))
            net = parallelize_module(model(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
            train(net, 0, steps=3)
            return [(p.full_tensor() if isinstance(p, DTensor) else p).detach().flatten().tolist()
                    for p in net.parameters()]
        self.over_both(body)

    def test_distributed_tensors(self):
        def body(rank):
            mesh = init_device_mesh("cpu", (2,))
            whole = torch.arange(24.).reshape(4, 6)
            answers = []
            for placement in (Shard(0), Shard(1), Replicate()):
                spread = distribute_tensor(whole, mesh, [placement])
                for other in (Shard(0), Shard(1), Replicate()):
                    moved = spread.redistribute(mesh, [other])
                    answers.append(moved.to_local().flatten().tolist())
                    assert torch.equal(moved.full_tensor(), whole)
            product = distribute_tensor(whole, mesh, [Shard(1)]) @ distribute_tensor(whole.t(), mesh, [Shard(0)])
            answers.append(product.full_tensor().flatten().tolist())
            return answers
        self.over_both(body)

    def test_checkpoint(self):
        place = tempfile.mkdtemp(prefix="weft-checkpoint-")

        def body(rank, count, port, prefix):
            start(rank, count, port=port, prefix=prefix)
            mesh = init_device_mesh("cpu", (count,))
            net = model(seed=3)
            fully_shard(net, mesh=mesh)
            train(net, rank, steps=1)
            checkpoint.save({"net": net.state_dict()}, checkpoint_id=place)
            other = model(seed=4)
            fully_shard(other, mesh=mesh)
            state = {"net": other.state_dict()}
            checkpoint.load(state, checkpoint_id=place)
            other.load_state_dict(state["net"])
            for one, two in zip(net.parameters(), other.parameters()):
                assert torch.equal(one.to_local(), two.to_local())
            checkpoint.async_save({"net": net.state_dict()}, checkpoint_id=place + "/async").result()
            dist.destroy_process_group()
        try:
            run_ranks(2, body)
        finally:
            shutil.rmtree(place)


class Functional(RankTest):
    @ranks(2)
    def test_functional_collectives(self):
        import torch.distributed._functional_collectives as functional
        group = dist.group.WORLD
        one = torch.full((4,), 1. + self.rank)
        self.same(functional.all_reduce(one, "sum", group) + 0, torch.full((4,), 3.))
        self.same(functional.all_gather_tensor(one, 0, group) + 0, torch.tensor([1.] * 4 + [2.] * 4))
        self.same(functional.reduce_scatter_tensor(one, "sum", 0, group) + 0, torch.full((2,), 3.))
        self.same(functional.all_to_all_single(one, [2, 2], [2, 2], group) + 0, torch.tensor([1., 1, 2, 2]))
        self.same(functional.broadcast(one, 1, group) + 0, torch.full((4,), 2.))
        both = functional.all_reduce_coalesced([one, one * 2], "max", group)
        self.same(both[1] + 0, torch.full((4,), 4.))

    @ranks(2)
    def test_collectives_with_gradients(self):
        import torch.distributed.nn.functional as functional
        one = torch.full((3,), 1. + self.rank, requires_grad=True)
        functional.all_reduce(one.clone()).sum().backward()
        self.same(one.grad, torch.full((3,), 2.))
        one.grad = None
        torch.stack(functional.all_gather(one)).sum().backward()
        self.same(one.grad, torch.full((3,), 2.))


if __name__ == "__main__":
    unittest.main()
