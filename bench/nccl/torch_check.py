#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch over NCCL over Weft's plugin: two ranks on one GPU all-reduce, gather and exchange tensors, checked.

    python3 bench/nccl/torch_check.py --plugin build/release/lib/libnccl-net-weft.so
"""
import argparse
import os
import socket
import subprocess
import sys
import time


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def run_rank(rank, ranks):
    import torch
    import torch.distributed as dist
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", rank=rank, world_size=ranks)
    for count in (1, 1000, 1 << 18, 1 << 24):
        one = torch.arange(count, device="cuda", dtype=torch.float32) % 97 + rank
        want = (torch.arange(count, device="cuda", dtype=torch.float32) % 97) * ranks + ranks * (ranks - 1) / 2
        dist.all_reduce(one)
        assert torch.equal(one, want), count
        parts = [torch.empty(count, device="cuda") for _ in range(ranks)]
        dist.all_gather(parts, torch.full((count,), float(rank), device="cuda"))
        assert all(bool((part == i).all()) for i, part in enumerate(parts)), count
    start = time.monotonic()
    large = torch.ones(64 << 20, device="cuda", dtype=torch.uint8)
    for _ in range(10):
        dist.all_reduce(large)
    torch.cuda.synchronize()
    if rank == 0:
        print("torch %s, NCCL %s, %d ranks: all fine; all_reduce of 64 MB: %.1f ms" %
              (torch.__version__, torch.cuda.nccl.version(), ranks, 100 * (time.monotonic() - start)))
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--plugin", required=True)
    parser.add_argument("--ranks", type=int, default=2)
    options = parser.parse_args()
    env = dict(os.environ, NCCL_NET_PLUGIN=os.path.abspath(options.plugin), NCCL_NET="Weft",
               NCCL_SOCKET_IFNAME="lo", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
    ranks = [subprocess.Popen([sys.executable, __file__, "rank", str(i), str(options.ranks)],
                              env=dict(env, NCCL_HOSTID="weft-torch-%d" % i)) for i in range(options.ranks)]
    try:
        failed = [one.wait(180) for one in ranks]
    finally:
        for one in ranks:
            one.kill()
    sys.exit(any(failed))


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "rank":
        run_rank(int(sys.argv[2]), int(sys.argv[3]))
    else:
        main()
