# SPDX-License-Identifier: Apache-2.0
"""weft.init() under the launchers: their environments are those of the C library."""
import shutil
import socket
import subprocess

import numpy as np

import job
from job import RankCase


def rank_adds(comm, ranks):
    assert comm.ranks == int(ranks)
    assert comm.allreduce(np.array([comm.rank + 1]))[0] == comm.ranks * (comm.ranks + 1) / 2


def free_port():
    """With room above it: torchrun's rule is MASTER_PORT + 1 and the following."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return min(probe.getsockname()[1], 65000)


class Starts(RankCase):
    def check_launcher(self, *launcher):
        if not shutil.which(launcher[0]):
            self.skipTest("%s is not installed" % launcher[0])
        done = subprocess.run([*launcher, "-n", "2", *job.command(rank_adds, 2)], env=job.clean_env(),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True,
                              timeout=job.DEADLINE_S)
        self.assertEqual((done.returncode, done.stdout.count("fine\n")), (0, 2), done.stdout)

    def test_under_weft_run(self):
        self.run_ranks(4, rank_adds, 4)

    def test_under_open_mpi(self):
        self.check_launcher("mpirun.openmpi", "--allow-run-as-root", "--oversubscribe")

    def test_under_mpich(self):
        self.check_launcher("mpirun.mpich")

    def test_in_the_environment_of_torchrun(self):
        port = free_port()
        children = []
        for rank in range(2):
            env = job.clean_env(RANK=rank, WORLD_SIZE=2, LOCAL_RANK=rank, LOCAL_WORLD_SIZE=2, MASTER_ADDR="127.0.0.1",
                                MASTER_PORT=port)
            children.append(subprocess.Popen(job.command(rank_adds, 2), env=env, stdout=subprocess.PIPE,
                                             stderr=subprocess.STDOUT, universal_newlines=True))
        for child in children:
            said = child.communicate(timeout=job.DEADLINE_S)[0]
            self.assertEqual((child.returncode, said.count("fine\n")), (0, 1), said)


if __name__ == "__main__":
    job.main(globals())
