#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small network with DistributedDataParallel, once over Gloo and once over Weft, and says how fast each was.

    torchrun --nproc-per-node 2 examples/ddp_small.py        (or srun, mpirun, weft run)

The data is made up: 8 numbers, and the task is to say how many of them are positive. What a training script changes to
use Weft are the two lines marked below. --backend trains over one of them only.
"""
import argparse
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import weft.torch  # registers the backend: line 1 of 2

WARMUP, STEPS, BATCH = 20, 300, 32


def batch(rank, step):
    generator = torch.Generator().manual_seed((step + WARMUP) * 1000 + rank)
    given = torch.randn(BATCH, 8, generator=generator)
    return given, (given > 0).sum(1)


def show(backend, step, loss, begun):
    """A bar that fills, on a terminal; a line at the end elsewhere."""
    done = step == STEPS
    if not (done or sys.stdout.isatty()):
        return
    width = 30 * step // STEPS
    rate = step / (time.perf_counter() - begun)
    print("\r%-5s [%s%s] %3d/%d  loss %.3f  %6.0f steps/s" % (backend, "#" * width, "." * (30 - width), step, STEPS,
                                                            loss, rate), end="\n" if done else "", flush=True)


def train(backend):
    try:
        dist.init_process_group(backend)  # "weft" instead of "gloo": line 2 of 2
    except ValueError as error:  # nothing in the environment says who this is
        sys.exit("%s\nstart me with: torchrun --nproc-per-node 2 %s" % (error, sys.argv[0]))
    rank = dist.get_rank()
    if rank == 0:
        print("%s: %d ranks, torch %s, weft %s" % (backend, dist.get_world_size(), torch.__version__, weft.__version__))
    torch.manual_seed(0)
    net = DistributedDataParallel(nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 9)))
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for step in range(1 - WARMUP, STEPS + 1):  # the first steps start things up: they do not count
        if step == 1:
            dist.barrier()
            begun = time.perf_counter()
        given, wanted = batch(rank, step)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(given), wanted)
        loss.backward()
        optimizer.step()
        if rank == 0 and step > 0 and step % 10 == 0:
            show(backend, step, loss.item(), begun)
    dist.barrier()
    rate = STEPS / (time.perf_counter() - begun)
    weights = torch.cat([parameter.detach().flatten() for parameter in net.parameters()])
    dist.destroy_process_group()
    return rank, rate, weights


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--backend", choices=["gloo", "weft"], help="only this one (default: both)")
    chosen = parser.parse_args().backend
    torch.set_num_threads(1)
    runs = {backend: train(backend) for backend in ([chosen] if chosen else ["gloo", "weft"])}
    rank = next(iter(runs.values()))[0]
    if rank == 0 and not chosen:
        apart = (runs["gloo"][2] - runs["weft"][2]).abs().max().item()
        print("weft %.0f steps/s, gloo %.0f: %.1f times as fast; the weights differ by %.1e at most"
              % (runs["weft"][1], runs["gloo"][1], runs["weft"][1] / runs["gloo"][1], apart))


if __name__ == "__main__":
    main()
