#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torch.distributed over Weft and over Gloo, in the same processes and by turns: allreduces, and steps of a small network under
DistributedDataParallel. Every number is the median of the rounds on rank 0. What is timed is checked after each round: sums against
plain arithmetic, and the two networks, which see different data on each rank, against each other.

    make build && PYTHONPATH=python build/torch-venv/bin/python bench/compare_torch.py --ranks 2,8,10
"""
import argparse
import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import weft.torch

weft.torch.register()

# floats of an allreduce: {ranks: how many times as fast as Gloo it is to be}
AIMS = {430: {2: 5, 8: 20, 10: 20}, 250_000: {2: 3, 4: 3, 8: 3, 10: 3}, 21_000_000: {2: 2, 4: 2, 10: 2}}
DDP_AIMS = {2: 1.5, 10: 4}


def rounds_of(groups, run, check, repeats, rounds):
    """Median seconds of one repeat, per backend; check() raises when a result is wrong."""
    took = {backend: [] for backend in groups}
    for _ in range(rounds):
        for backend, group in groups.items():
            run(backend, group, 1)
            dist.barrier()
            begun = time.perf_counter()
            run(backend, group, repeats)
            took[backend].append((time.perf_counter() - begun) / repeats)
            check(backend, group)
    return {backend: statistics.median(times) for backend, times in took.items()}


def time_allreduce(groups, count, rank, ranks, rounds):
    tensor = torch.zeros(count)  # zeros stay zeros however often they are summed

    def run(_backend, group, repeats):
        for _ in range(repeats):
            dist.all_reduce(tensor, group=group)

    def check(backend, group):
        pattern = torch.arange(count, dtype=torch.float32).remainder_(7)
        tensor.copy_(pattern).add_(rank)
        dist.all_reduce(tensor, group=group)
        wrong = int((tensor != pattern.mul_(ranks).add_(ranks * (ranks - 1) // 2)).sum())
        tensor.zero_()
        if wrong:
            raise RuntimeError("%s: %d of %d sums of an allreduce are wrong" % (backend, wrong, count))

    repeats = max(2, min(100, 40_000_000 // (count * ranks + 200_000)))
    return rounds_of(groups, run, check, repeats, rounds)


def time_ddp(groups, rank, ranks, rounds):
    nets = {}
    torch.manual_seed(rank + 1)  # without a sum over the ranks the networks would part
    given, wanted = torch.randn(16, 10), torch.randn(16, 10)
    for backend, group in groups.items():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 10))
        net = DistributedDataParallel(net, process_group=group)
        nets[backend] = net, torch.optim.SGD(net.parameters(), lr=0.01)

    def run(backend, _group, repeats):
        net, optimizer = nets[backend]
        for _ in range(repeats):
            optimizer.zero_grad()
            nn.functional.mse_loss(net(given), wanted).backward()
            optimizer.step()

    def check(backend, group):
        if backend != list(nets)[-1]:  # the others have made as many steps only when the last one has
            return
        vectors = [nn.utils.parameters_to_vector(net.parameters()).detach() for net, _ in nets.values()]
        mean = vectors[0].clone()
        dist.all_reduce(mean, group=group)
        for vector in vectors + [mean / ranks]:
            if not torch.allclose(vector, vectors[0], rtol=1e-3, atol=1e-5):
                raise RuntimeError("the networks of %s, or of the ranks, differ" % " and ".join(nets))

    return rounds_of(groups, run, check, max(10, 200 // ranks), rounds)


def show(ranks, what, times, aim):
    ratio = times["gloo"] / times["weft"]
    verdict = "" if aim is None else "  (aim %gx%s)" % (aim, "" if ratio >= aim else ", missed")
    print("n = %-3d %-22s weft %10.1f us   gloo %10.1f us   %6.1fx%s"
          % (ranks, what, times["weft"] * 1e6, times["gloo"] * 1e6, ratio, verdict), flush=True)


def rank_main(rank, ranks, path, rounds):
    torch.set_num_threads(1)
    dist.init_process_group("weft", store=dist.FileStore(path, ranks), rank=rank, world_size=ranks)
    groups = {"weft": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
    for count, aims in AIMS.items():
        times = time_allreduce(groups, count, rank, ranks, rounds)
        if rank == 0:
            show(ranks, "allreduce %d B" % (count * 4), times, aims.get(ranks))
    times = time_ddp(groups, rank, ranks, rounds)
    if rank == 0:
        show(ranks, "DDP step", times, DDP_AIMS.get(ranks))
    dist.destroy_process_group()


def run_job(ranks, rounds):
    with tempfile.TemporaryDirectory() as place:
        children = []
        for rank in range(ranks):
            pid = os.fork()  # torch is imported once; the parent never computes with it
            if pid == 0:
                try:
                    rank_main(rank, ranks, os.path.join(place, "store"), rounds)
                except BaseException as error:
                    print("rank %d: %s" % (rank, error), file=sys.stderr, flush=True)
                    os._exit(1)
                os._exit(0)
            children.append(pid)
        return all([os.waitpid(pid, 0)[1] == 0 for pid in children])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ranks", default="2,8,10", help="numbers of ranks (2,8,10)")
    parser.add_argument("--rounds", type=int, default=7, help="rounds per figure (7)")
    options = parser.parse_args()
    fine = [run_job(int(ranks), options.rounds) for ranks in options.ranks.split(",")]
    sys.exit(not all(fine))


if __name__ == "__main__":
    main()
