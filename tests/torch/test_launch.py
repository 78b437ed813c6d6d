# SPDX-License-Identifier: Apache-2.0
"""Launchers: torchrun with a restart, `weft run`, and the variables of srun and mpirun."""
import datetime
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest

import torch
import torch.distributed as dist

from harness import RankTest, run_ranks, start

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.normpath(os.path.join(HERE, "..", ".."))
FOREIGN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def environment(**more):
    kept = {name: value for name, value in os.environ.items()
            if name not in FOREIGN and not name.startswith(("SLURM_", "OMPI_", "PMI", "TORCHELASTIC_"))}
    kept.update(more)
    return kept


class Variables(RankTest):
    def started_with(self, variables, count=2):
        def body(rank, ranks_, port, prefix):
            os.environ.clear()
            os.environ.update(environment(**{name: str(value) for name, value in variables(rank).items()}))
            dist.init_process_group("weft")
            for _ in range(2):
                tensor = torch.tensor([float(dist.get_rank())])
                dist.all_reduce(tensor)
                dist.destroy_process_group()
                dist.init_process_group("weft")  # and again
            dist.destroy_process_group()
            return tensor.item(), os.environ["RANK"], os.environ["WORLD_SIZE"], os.environ.get("LOCAL_RANK")
        answers = run_ranks(count, body)
        self.assertEqual(answers, [(count * (count - 1) / 2, str(rank), str(count), str(rank))
                                   for rank in range(count)])

    def test_slurm(self):
        job = os.getpid()
        self.started_with(lambda rank: {
            "SLURM_PROCID": rank, "SLURM_STEP_NUM_TASKS": 3, "SLURM_NTASKS": 3, "SLURM_STEP_ID": 0,
            "SLURM_JOB_ID": job, "SLURM_STEP_NODELIST": "localhost", "SLURM_STEP_NUM_NODES": 1,
            "SLURM_LOCALID": rank}, count=3)

    def test_open_mpi(self):
        job = "weft-torch-%d" % os.getpid()
        self.started_with(lambda rank: {
            "OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": 2, "OMPI_COMM_WORLD_LOCAL_RANK": rank,
            "OMPI_COMM_WORLD_LOCAL_SIZE": 2, "PMIX_NAMESPACE": job})

    def test_slurm_with_a_master_that_the_user_named(self):
        port = unused_port()

        def body(rank, ranks_, _port, _prefix):
            os.environ.clear()
            os.environ.update(environment(SLURM_PROCID=str(rank), SLURM_STEP_NUM_TASKS="2", SLURM_LOCALID=str(rank),
                                          MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)))
            dist.init_process_group("weft")
            tensor = torch.ones(1)
            dist.all_reduce(tensor)
            dist.destroy_process_group()
            return tensor.item()
        self.assertEqual(run_ranks(2, body), [2, 2])

    def interrupted(self, waiting, begin):
        """What happens to the rank that waits for the other, and after how many seconds."""
        def body(rank, ranks_, port, prefix):
            if rank != waiting:
                return None
            signal.signal(signal.SIGINT, signal.default_int_handler)

            def press():
                while "join" not in inner_calls(threading.main_thread()):  # until it waits
                    time.sleep(0.01)
                os.kill(os.getpid(), signal.SIGINT)

            threading.Thread(target=press, daemon=True).start()
            begun = time.monotonic()
            try:
                begin(rank, ranks_, port, prefix)
            except KeyboardInterrupt:
                return time.monotonic() - begun
        return run_ranks(2, body)[waiting]

    def test_ctrl_c_ends_a_start_that_waits(self):
        def by_mpirun(rank, ranks_, port, prefix):
            os.environ.clear()
            os.environ.update(environment(
                OMPI_COMM_WORLD_RANK=str(rank), OMPI_COMM_WORLD_SIZE="2", OMPI_COMM_WORLD_LOCAL_RANK=str(rank),
                OMPI_COMM_WORLD_LOCAL_SIZE="2", PMIX_NAMESPACE="weft-torch-%d" % os.getpid()))
            dist.init_process_group("weft", timeout=datetime.timedelta(seconds=50))

        def by_store(rank, ranks_, port, prefix):
            start(rank, ranks_, port=port, prefix=prefix, timeout_s=50)

        for waiting, begin in ((0, by_store), (1, by_store), (0, by_mpirun)):
            took = self.interrupted(waiting, begin)
            self.assertIsNotNone(took, "it was not interrupted")
            self.assertLess(took, 20)

    def test_nothing_is_known(self):
        def body(rank, ranks_, port, prefix):
            os.environ.clear()
            os.environ.update(environment())
            try:
                dist.init_process_group("weft")
            except ValueError as error:
                return str(error)
        self.assertIn("RANK", run_ranks(1, body)[0])  # torch's own words


def inner_calls(thread):
    frame, names = sys._current_frames()[thread.ident], []
    while frame is not None:
        names.append(frame.f_code.co_name)
        frame = frame.f_back
    return names[:3]


def unused_port():
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return place.getsockname()[1]


class Programs(unittest.TestCase):
    def run_program(self, command, script, deadline_s=120, **more):
        with tempfile.TemporaryDirectory() as place:
            path = os.path.join(place, "script.py")
            with open(path, "w") as file:
                file.write(textwrap.dedent(script))
            path_of_weft = os.pathsep.join([os.path.join(TOP, "python"), os.environ.get("PYTHONPATH", "")])
            done = subprocess.run(command + [path, place], timeout=deadline_s, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True,
                                  env=environment(PYTHONPATH=path_of_weft, OMP_NUM_THREADS="1", **more))
            self.assertEqual(done.returncode, 0, done.stdout)
            answers = {}
            for name in os.listdir(place):
                if name.endswith(".json"):
                    with open(os.path.join(place, name)) as file:
                        answers[name[:-5]] = json.load(file)
            return answers

    def test_weft_run(self):
        weft = os.path.join(TOP, "build", "release", "bin", "weft")
        if not os.path.exists(weft):
            self.skipTest("no build/release/bin/weft")
        answers = self.run_program([weft, "run", "-n", "2", sys.executable], """
            import json, sys, torch, torch.distributed as dist, weft.torch
            dist.init_process_group("weft")
            tensor = torch.ones(3) * dist.get_rank()
            dist.all_reduce(tensor)
            json.dump(tensor.tolist(), open("%s/%d.json" % (sys.argv[1], dist.get_rank()), "w"))
            dist.destroy_process_group()
            """)
        self.assertEqual(answers, {"0": [1, 1, 1], "1": [1, 1, 1]})

    def test_the_example_says_once_who_runs(self):
        weft = os.path.join(TOP, "build", "release", "bin", "weft")
        if not os.path.exists(weft):
            self.skipTest("no build/release/bin/weft")
        done = subprocess.run([weft, "run", "-n", "2", sys.executable, os.path.join(TOP, "examples", "ddp_small.py"),
                               "--backend", "weft"], timeout=120, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, env=environment(OMP_NUM_THREADS="1"))
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(done.stdout.count("weft: 2 ranks"), 1, done.stdout)

    def test_torchrun_restarts_after_a_killed_worker(self):
        """The survivor hears within two seconds who died, and the next attempt trains."""
        took = []
        while not took or took[-1] >= 2:
            self.assertLess(len(took), 3, took)  # the machine may be busy with something else
            took.append(self.restart())

    def restart(self):
        """From the death until the other one has heard of it, in seconds."""
        answers = self.run_program(
            [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "1",
             "--monitor-interval", "1"], """
            import json, os, signal, sys, time, torch, torch.distributed as dist, weft.torch
            attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the error is to come from Weft, not from the agent
            dist.init_process_group("weft")
            rank = dist.get_rank()

            def say(what):
                # whole, or not at all: the agent may kill this worker at any moment
                name = "%s/%s-%d" % (sys.argv[1], attempt, rank)
                with open(name, "w") as file:
                    json.dump(what, file)
                os.rename(name, name + ".json")

            tensor = torch.ones(100)
            dist.all_reduce(tensor)
            if attempt == "0" and rank == 1:
                say(time.time())
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                while attempt == "0":
                    dist.all_reduce(tensor)
            except dist.DistBackendError as error:
                say([time.time(), error.name, error.rank, str(error)])
                raise
            say(tensor.tolist())
            dist.destroy_process_group()
            """)
        killed = answers["0-1"]
        heard, name, who, text = answers["0-0"]
        self.assertEqual((name, who), ("ERR_PEER", 1), text)
        self.assertEqual(answers["1-0"], [2] * 100)
        self.assertEqual(answers["1-1"], [2] * 100)
        return heard - killed


if __name__ == "__main__":
    unittest.main()
