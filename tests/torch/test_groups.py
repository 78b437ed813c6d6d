# SPDX-License-Identifier: Apache-2.0
"""Groups: sub-groups, several at once, destroy and start again, abort; errors, timeouts, ranks that die."""
import datetime
import os
import pickle
import signal
import threading
import time
import unittest

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
import weft.torch
from weft import _capi as c
from weft import _interrupt
from weft.torch import _leaving

from harness import RankTest, ranks, run_ranks, start


def seconds(count):
    return datetime.timedelta(seconds=count)


class Groups(RankTest):
    @ranks(4)
    def test_sub_groups(self):
        odd, even = dist.new_group([1, 3]), dist.new_group([0, 2])
        turned = dist.new_group([3, 2, 1, 0])
        mine, peers = (odd, [1, 3]) if self.rank % 2 else (even, [0, 2])
        tensor = torch.full((4,), float(self.rank))
        dist.all_reduce(tensor, group=mine)
        self.same(tensor, torch.full((4,), float(sum(peers))))
        places = [torch.zeros(1), torch.zeros(1)]
        dist.all_gather(places, torch.tensor([float(self.rank)]), group=mine)
        self.assertEqual([int(place) for place in places], peers)
        tensor = torch.full((2,), float(self.rank))
        dist.broadcast(tensor, peers[1], group=mine)
        self.same(tensor, torch.full((2,), float(peers[1])))
        self.assertEqual(dist.get_rank(mine), peers.index(self.rank))
        dist.barrier(group=turned)
        if self.rank == peers[0]:
            dist.send(torch.ones(3), peers[1], group=mine)
        else:
            dist.recv(torch.zeros(3), peers[0], group=mine)
        dist.destroy_process_group(mine)
        dist.barrier()

    @ranks(2)
    def test_what_torch_asks_of_a_group(self):
        group = dist.group.WORLD
        self.assertIsInstance(group, weft.torch.ProcessGroupWeft)
        self.assertEqual((dist.get_backend(), group.name(), group.rank(), group.size()),
                         ("weft", "weft", self.rank, 2))
        self.assertEqual(group._device_types[0], torch.device("cpu"))
        self.assertTrue(dist.distributed_c10d._get_object_coll_device() == "cpu")
        self.assertEqual(dist.get_process_group_ranks(group), [0, 1])
        self.assertEqual((group.group_name, group.group_desc), ("0", "default_pg"))
        before = group._get_sequence_number_for_group()
        dist.barrier()
        self.assertGreater(group._get_sequence_number_for_group(), before)

    @ranks(2)
    def test_calls_on_the_group_itself(self):
        group = dist.group.WORLD
        tensor = torch.ones(3)
        group.allreduce(tensor).wait()
        group.allreduce([tensor], dist.ReduceOp.MAX).wait()
        group.broadcast(tensor, 0).wait()
        group.barrier().wait()
        self.same(tensor, torch.full((3,), 2.))

    @ranks(1)
    def test_alone(self):
        tensor = torch.ones(3)
        dist.all_reduce(tensor)
        dist.barrier()
        places = [torch.zeros(3)]
        dist.all_gather(places, tensor)
        dist.all_to_all_single(places[0], tensor * 2)
        self.same(places[0], torch.full((3,), 2.))

    @ranks(2)
    def test_only_the_other_rank_is_in_the_group(self):
        group = dist.new_group([1])
        if self.rank == 0:
            self.assertIs(group, dist.GroupMember.NON_GROUP_MEMBER)
        else:
            dist.all_reduce(torch.ones(2), group=group)

    def test_start_again_in_one_process(self):
        def body(rank, count, port, prefix):
            for turn in range(4):  # the same store and the same names: keys of the last time must not be taken for new
                start(rank, count, port=port, prefix=prefix)
                tensor = torch.full((2,), float(turn))
                dist.all_reduce(tensor)
                sub = dist.new_group([0, 1])
                dist.all_reduce(tensor, group=sub)
                assert tensor[0] == 4 * turn, tensor
                dist.destroy_process_group()
                assert not dist.is_initialized()
        run_ranks(2, body)

    def test_nothing_is_left_of_a_destroyed_group(self):
        def body(rank, count, port, prefix):
            def use():
                start(rank, count, port=port, prefix=prefix)
                dist.all_reduce(torch.ones(4), async_op=True).get_future().wait()
                dist.destroy_process_group()
                return len(os.listdir("/proc/self/fd")), threading.active_count()
            first = use()
            for _ in range(5):
                last = use()
            # (torch keeps the store of a start until the next one)
            assert last[0] <= first[0] + 2 and last[1] <= first[1], (first, last)
        run_ranks(2, body)

    def test_the_secret_is_gone_from_the_store_after_the_start(self):
        def body(rank, count, port, prefix):
            start(rank, count, port=port, prefix=prefix)
            store = dist.TCPStore("127.0.0.1", port, None, False, wait_for_workers=False)
            dist.barrier()
            keys = [key for key in store.list_keys() if prefix in str(key) and "weft/id" in str(key)]
            dist.destroy_process_group()
            return keys
        self.assertEqual(run_ranks(2, body), [[], []])

    def test_exit_without_destroy(self):
        def body(rank, count, port, prefix):
            start(rank, count, port=port, prefix=prefix)
            dist.all_reduce(torch.ones(3))
            begun = time.monotonic()
            _leaving._leave_all()  # what atexit calls
            assert time.monotonic() - begun < 20
            return len(_leaving._open_groups)
        self.assertEqual(run_ranks(3, body), [0, 0, 0])

    @ranks(2)
    def test_timeout_of_a_group_can_be_set(self):
        dist.group.WORLD.set_timeout(seconds(7))
        dist.all_reduce(torch.ones(3))
        with self.assertRaises(ValueError):
            dist.group.WORLD.set_timeout(seconds(0))


class Errors(RankTest):
    """Each names what is wrong; what is refused leaves the group as it was."""

    def refused(self, text, call, *arguments, **settings):
        with self.assertRaisesRegex(dist.DistBackendError, text) as caught:
            call(*arguments, **settings)
        self.assertIsInstance(caught.exception, ValueError)

    @ranks(2)
    def test_arguments(self):
        group, op = dist.group.WORLD, dist.ReduceOp
        self.refused("BAND needs integers", dist.all_reduce, torch.ones(3), op.BAND)
        self.refused("AVG of bool", dist.all_reduce, torch.ones(3, dtype=torch.bool), op.AVG)
        self.refused("PREMUL_SUM needs floats", dist.all_reduce, torch.ones(3, dtype=torch.int32),
                     dist._make_nccl_premul_sum(2.0))
        self.refused("cannot be reduced", dist.all_reduce, torch.ones(3).to(torch.float8_e4m3fnuz))
        self.refused("complex", group.allreduce, [torch.ones(3, dtype=torch.complex64)], op.MAX)
        self.refused("to_dense", dist.all_reduce, torch.eye(3).to_sparse())
        self.refused("clone", dist.all_reduce, torch.ones(1).expand(4))
        self.refused("on meta", dist.all_reduce, torch.ones(3, device="meta"))
        self.refused("one tensor", group.allreduce, [torch.ones(1), torch.ones(1)])
        self.refused("3 output tensors for 2 ranks", dist.all_gather, [torch.ones(1)] * 3, torch.ones(1))
        self.refused("its place", dist.all_gather, [torch.ones(4), torch.ones(4)], torch.ones(3))
        self.refused("needs 2 times", dist.all_gather_into_tensor, torch.ones(7), torch.ones(3))
        self.refused("needs 2 times", dist.reduce_scatter_tensor, torch.ones(3), torch.ones(7))
        self.refused("float32 and torch.int32", group._allgather_base, torch.ones(6),
                     torch.ones(3, dtype=torch.int32))
        self.refused("equal pieces", dist.all_to_all_single, torch.ones(3), torch.ones(3))
        self.refused("split", dist.all_to_all_single, torch.ones(4), torch.ones(4), [1, 1], [2, 2])
        self.refused("split", dist.all_to_all_single, torch.ones(4), torch.ones(4), [-1, 5], [-1, 5])
        on_meta = [torch.ones(3), torch.ones(3, device="meta")]
        self.refused("on cpu and meta", dist.all_reduce_coalesced, on_meta)
        self.refused("on cpu and meta", dist.all_gather_coalesced, [[torch.ones(3)] * 2] * 2, on_meta)
        self.refused("on cpu and meta", group.allgather_into_tensor_coalesced, [torch.ones(6)] * 2, on_meta)
        self.refused("on cpu and meta", group.reduce_scatter_tensor_coalesced, on_meta, [torch.ones(6)] * 2)
        self.refused("rank 5", group.broadcast, [torch.ones(2)], 5)
        self.refused("rank 9", group.send, [torch.ones(2)], 9, 0)
        self.refused("has 2 elements", dist.gather, torch.ones(3), [torch.ones(2)] * 2 if self.rank == 0 else None, 0
                     ) if self.rank == 0 else None
        if self.rank == 0:  # the other rank has not called: this one refused before it began
            dist.send(torch.ones(1), 1)
        else:
            dist.recv(torch.ones(1), 0)
        dist.all_reduce(torch.ones(3))

    @ranks(2)
    def test_tensors_that_only_stand_for_others(self):
        sharded = distribute_tensor(torch.ones(4), init_device_mesh("cpu", (2,)), [Shard(0)])
        for call in (lambda: dist.all_reduce(sharded), lambda: dist.broadcast(sharded, 0),
                     lambda: dist.all_reduce_coalesced([torch.ones(2), sharded]), lambda: dist.send(sharded, 1 - self.rank)):
            self.refused("to_local", call)
        dist.barrier()

    @ranks(2)
    def test_gloo_barrier_is_not_ours_and_ours_is(self):
        with self.assertRaises(ValueError):
            dist.monitored_barrier()
        weft.torch.monitored_barrier(timeout=seconds(10))
        weft.torch.monitored_barrier(wait_all_ranks=True)

    def test_options_that_do_not_exist(self):
        def body(rank, count, port, prefix):
            store = dist.TCPStore("127.0.0.1", port, None, False, wait_for_workers=False)
            try:
                dist.init_process_group("weft", store=store, rank=0, world_size=1, pg_options=object())
            except dist.DistBackendError as error:
                return str(error)
        self.assertIn("weft params", run_ranks(1, body)[0])

    def failing(self, count, body, may_die=()):
        def wrapped(rank, ranks_, port, prefix):
            start(rank, ranks_, port=port, prefix=prefix)
            dist.all_reduce(torch.ones(4))
            begun = time.monotonic()
            try:
                body(rank)
            except dist.DistBackendError as error:
                return error.name, error.rank, str(error), time.monotonic() - begun
            return None
        return run_ranks(count, wrapped, may_die=may_die)

    def test_ranks_that_make_different_calls(self):
        def body(rank):
            dist.all_reduce(torch.ones(3 + rank))
        for name, _, text, _ in self.failing(2, body):
            self.assertEqual(name, "ERR_MISMATCH")
            self.assertIn("f32 x 3", text)
            self.assertIn("f32 x 4", text)

    def test_a_rank_that_does_not_come_is_named_at_the_deadline(self):
        def body(rank):
            dist.group.WORLD.set_timeout(seconds(1))
            if rank == 1:
                while c.lib.weft_comm_status(dist.group.WORLD._comm) == c.WEFT_OK:
                    time.sleep(0.02)  # alive, but elsewhere
            else:
                dist.all_reduce(torch.ones(3))
        answers = self.failing(3, body)
        for rank in (0, 2):
            name, _, text, took = answers[rank]
            self.assertEqual(name, "ERR_TIMEOUT")
            self.assertIn("rank 1", text)
            self.assertGreater(took, 0.9)

    def test_a_receive_that_is_waited_for_ends_at_the_deadline(self):
        def body(rank):
            dist.group.WORLD.set_timeout(seconds(1))
            if rank == 1:
                while c.lib.weft_comm_status(dist.group.WORLD._comm) == c.WEFT_OK:
                    time.sleep(0.02)  # alive, but elsewhere
            else:
                dist.recv(torch.ones(3), 1)
        name, _, text, took = self.failing(2, body)[0]
        self.assertEqual(name, "ERR_TIMEOUT")
        self.assertRegex(text, "rank 1.*receive")
        self.assertGreater(took, 0.9)

    def test_monitored_barrier_names_all_who_are_missing(self):
        def body(rank):
            if rank == 0:
                weft.torch.monitored_barrier(timeout=seconds(1), wait_all_ranks=True)
            else:
                while c.lib.weft_comm_status(dist.group.WORLD._comm) == c.WEFT_OK:
                    time.sleep(0.02)  # alive, but elsewhere
        name, _, text, _ = self.failing(3, body)[0]
        self.assertEqual(name, "ERR_TIMEOUT")
        self.assertRegex(text, "1.*2")

    def test_a_killed_rank_is_named_at_once(self):
        def body(rank):
            if rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            while True:
                dist.all_reduce(torch.ones(3))
        longest = []
        for _ in range(4):  # a second is promised; the machine may be busy with something else
            answers = self.failing(3, body, may_die=[1])
            for rank in (0, 2):
                name, who, text, _ = answers[rank]
                self.assertEqual((name, who), ("ERR_PEER", 1), text)
                self.assertNotIn("of the job", text)
            longest.append(max(answers[0][3], answers[2][3]))
            if longest[-1] < 1:
                return
        self.fail("it took %s s" % longest)

    def test_a_killed_rank_of_a_sub_group_has_its_number_in_the_job(self):
        def body(rank):
            group = dist.new_group([1, 2])
            if rank == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                while rank:
                    dist.all_reduce(torch.ones(3), group=group)
            except dist.DistBackendError as error:
                text = pickle.loads(pickle.dumps(error))
                assert (text.rank, text.global_rank) == (1, 2), (error.rank, error.global_rank)
                raise
        name, who, text, _ = self.failing(3, body, may_die=[2])[1]
        self.assertEqual((name, who), ("ERR_PEER", 1))
        self.assertIn("rank 1 of this group is rank 2 of the job", text)

    def test_errors_reach_works_and_futures(self):
        def body(rank):
            if rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            work = dist.all_reduce(torch.ones(3), async_op=True)
            future = work.get_future()
            chained = future.then(lambda ended: ended.value())
            for one in (future, chained):
                try:
                    one.wait()
                except RuntimeError as error:
                    assert "ERR_PEER" in str(error), error
                else:
                    raise AssertionError("the future of a failed work has no error")
            assert not work.is_success() and work.exception().name == "ERR_PEER"
            work.wait()
        self.assertEqual(self.failing(2, body, may_die=[1])[0][0], "ERR_PEER")

    def test_abort_ends_calls_that_wait_on_all_ranks(self):
        def body(rank):
            if rank == 1:
                work = dist.irecv(torch.ones(3), 0, tag=3)  # never comes
                threading.Thread(target=dist.group.WORLD.abort).start()
                work.wait()
            else:
                dist.all_reduce(torch.ones(3))
        for name, _, text, _ in self.failing(3, body):
            self.assertEqual(name, "ERR_ABORTED")
            self.assertIn("aborted", text)

    def test_ctrl_c_ends_a_call_that_waits(self):
        def body(rank, count, port, prefix):
            signal.signal(signal.SIGINT, signal.default_int_handler)
            start(rank, count, port=port, prefix=prefix)

            def press():
                while _interrupt.current[0] is None:  # until the main thread calls
                    time.sleep(0.01)
                os.kill(os.getpid(), signal.SIGINT)

            try:
                if rank == 0:
                    threading.Thread(target=press, daemon=True).start()
                    dist.all_reduce(torch.ones(3))
                else:
                    dist.recv(torch.ones(3), 0)
            except KeyboardInterrupt:
                return "interrupted"
            except dist.DistBackendError as error:
                return error.name
        mine, others = run_ranks(2, body)
        self.assertEqual(mine, "interrupted")
        self.assertIn(others, ["ERR_ABORTED", "ERR_PEER"])  # the latter if it came just before the wait

    def test_errors_can_be_pickled_and_are_of_both_families(self):
        for kind in (weft.torch.BackendError, weft.torch.ArgumentError):
            error = pickle.loads(pickle.dumps(kind("who and what", c.WEFT_ERR_PEER, 3)))
            self.assertEqual((type(error), error.name, error.rank, str(error)),
                             (kind, "ERR_PEER", 3, "weft ERR_PEER: who and what"))
            self.assertIsInstance(error, dist.DistBackendError)
            self.assertIsInstance(error, weft.Error)

    def test_abort_process_group_and_start_again(self):
        def body(rank, count, port, prefix):
            start(rank, count, port=port, prefix=prefix)
            try:
                work = dist.all_reduce(torch.ones(3), async_op=True) if rank == 0 else None
            except dist.DistBackendError:
                work = None  # the other rank was quicker
            dist.distributed_c10d._abort_process_group()
            if work is not None:
                with self.assertRaises(dist.DistBackendError):
                    work.wait()
            start(rank, count, port=port, prefix=prefix + "again")
            dist.all_reduce(torch.ones(3))
            dist.destroy_process_group()
        run_ranks(2, body)

    @ranks(2)
    def test_calls_on_a_destroyed_group(self):
        group = dist.new_group([0, 1])
        dist.destroy_process_group(group)
        self.refused("destroyed", group.allreduce, [torch.ones(2)])
        group.abort()
        group.shutdown()

    def test_a_forked_child_is_told(self):
        def body(rank, count, port, prefix):
            start(rank, count, port=port, prefix=prefix)
            read, write = os.pipe()
            pid = os.fork()
            if pid == 0:
                try:
                    dist.all_reduce(torch.ones(2))
                    os.write(write, b"no error")
                except dist.DistBackendError as error:
                    os.write(write, error.name.encode())
                dist.destroy_process_group()  # touches nothing
                os._exit(0)
            os.waitpid(pid, 0)
            told = os.read(read, 100).decode()
            dist.all_reduce(torch.ones(2))
            dist.destroy_process_group()
            return told
        self.assertEqual(run_ranks(2, body), ["ERR_FORKED", "ERR_FORKED"])

    def test_a_missing_rank_at_the_start_is_named(self):
        def body(rank, count, port, prefix):
            if rank == 2:
                return None
            try:
                start(rank, count, port=port, prefix=prefix, timeout_s=2)
            except (dist.DistError, RuntimeError) as error:
                return str(error)
        answers = run_ranks(3, body)
        self.assertIn("2", answers[0])
        self.assertTrue(answers[1])


if __name__ == "__main__":
    unittest.main()
