# SPDX-License-Identifier: Apache-2.0
"""Two hosts of two NICs and two ranks each, in network namespaces, under torchrun as docs/pytorch.md has it."""
import json
import os
import subprocess
import sys
import tempfile
import textwrap
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.normpath(os.path.join(HERE, "..", ".."))
sys.path.insert(0, os.path.join(TOP, "tests", "net"))

from lab import Lab  # noqa: E402
from test_launch import environment  # noqa: E402

WEFT = os.path.join(TOP, "build", "release", "bin", "weft")
HOSTS, NICS, EACH = 2, 2, 2
RANKS = HOSTS * EACH
PORT = 23495
DEADLINE_S = 90
BYTES = 32 << 20
PRELUDE = """
    import json, os, signal, sys, time, torch, torch.distributed as dist, weft.torch
    dist.init_process_group("weft")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    def answer(value):
        with open("%s/%d.json" % (sys.argv[1], rank), "w") as file:
            json.dump(value, file)
"""


@unittest.skipUnless(os.path.exists(WEFT), "no build/release/bin/weft")
class SeveralHosts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.lab = Lab(hosts=HOSTS, nics=NICS, rate="1G", cli=WEFT)
        cls.addClassCleanup(cls.lab.close)

    def run_script(self, script, *options):
        """(answers by rank, exit statuses by host, all that was said)"""
        with tempfile.TemporaryDirectory() as place:
            path = os.path.join(place, "script.py")
            with open(path, "w") as file:
                file.write(textwrap.dedent(PRELUDE) + textwrap.dedent(script))
            said = open(os.path.join(place, "said"), "w+")
            jobs = [self.lab.host[host].popen(
                [sys.executable, "-m", "torch.distributed.run", "--nnodes", str(HOSTS), "--node-rank", str(host),
                 "--nproc-per-node", str(EACH), "--master-addr", self.lab.address(0), "--master-port", str(PORT),
                 *options, path, place],
                stdout=said, stderr=subprocess.STDOUT,
                env=environment(PYTHONPATH=os.path.join(TOP, "python"), OMP_NUM_THREADS="1"))
                for host in range(HOSTS)]
            try:
                statuses = [job.wait(DEADLINE_S) for job in jobs]
            finally:
                for job in jobs:
                    job.kill()
                    job.wait()
                said.seek(0)
                words = said.read()
                said.close()
            answers = {}
            for rank in range(RANKS):
                name = os.path.join(place, "%d.json" % rank)
                if os.path.exists(name):
                    with open(name) as file:
                        answers[rank] = json.load(file)
            return answers, statuses, words

    def test_training_is_as_in_one_process_and_a_long_tensor_goes_by_all_nics(self):
        before = self.lab.host[0].counters()
        answers, statuses, words = self.run_script("""
            from torch.nn.parallel import DistributedDataParallel
            def train(model, share, of):
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                for step in range(5):
                    inputs = torch.randn(8, 6, generator=torch.Generator().manual_seed(step))
                    optimizer.zero_grad()
                    model(inputs[share::of]).square().mean().backward()
                    optimizer.step()
                return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
            def model():
                torch.manual_seed(7)
                return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1))
            ours = train(DistributedDataParallel(model()), rank, ranks)
            alone = train(model(), 0, 1)
            tensor = torch.full((%d,), float(rank + 1))
            dist.all_reduce(tensor)
            answer([(ours - alone).abs().max().item(), tensor.min().item(), tensor.max().item()])
            dist.destroy_process_group()
            """ % (BYTES // 4))
        after = self.lab.host[0].counters()
        self.assertEqual(statuses, [0] * HOSTS, words)
        self.assertEqual(sorted(answers), list(range(RANKS)), words)
        for difference, least, most in answers.values():
            self.assertLess(difference, 1e-5, words)
            self.assertEqual((least, most), (10, 10), words)
        for nic in range(NICS):
            sent = after["eth%d" % nic][1] - before["eth%d" % nic][1]
            self.assertGreater(sent, BYTES // 8, words)

    def test_a_killed_rank_is_named_on_the_other_host(self):
        answers, statuses, words = self.run_script("""
            dist.all_reduce(torch.ones(1))
            if rank == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            began = time.monotonic()
            try:
                while True:
                    dist.all_reduce(torch.ones(1000))
            except RuntimeError as error:
                answer([time.monotonic() - began, str(error)])
                os._exit(1)
            """, "--max-restarts", "0")
        self.assertNotEqual(statuses[1], 0, words)
        for rank in (0, 1):  # torchrun may end rank 2 before it says anything
            self.assertIn(rank, answers, words)
            self.assertLess(answers[rank][0], 2, words)
            self.assertIn("rank 3", answers[rank][1], words)


if __name__ == "__main__":
    unittest.main()
