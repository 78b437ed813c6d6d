# SPDX-License-Identifier: Apache-2.0
"""How ranks leave: together, one before the others, in a signal's handler, after an exception, at exit."""
import os
import signal
import threading
import time
import unittest

import torch
import torch.distributed as dist
from weft import _interrupt
from weft.torch import _leaving

from harness import RankTest, ranks, run_ranks, start


def try_it(call):
    """(name, rank, text) of the error; None: there was none."""
    try:
        call()
        return None
    except dist.DistBackendError as error:
        return error.name, error.rank, str(error)


def store_of(port, prefix):
    return dist.PrefixStore(prefix, dist.TCPStore("127.0.0.1", port, None, False, wait_for_workers=False))


class Leaving(RankTest):
    def left_alone(self, call, is_late):
        """What the call says in rank 1 when rank 0 has left, or leaves just now."""
        def body(rank, count, port, prefix):
            store = store_of(port, prefix)
            start(rank, count, port=port, prefix=prefix)
            dist.all_reduce(torch.ones(2))
            if rank == 0:
                dist.destroy_process_group()
                store.set("left", "yes")
                return None
            if is_late:
                store.wait(["left"])
            return try_it(call)
        return run_ranks(2, body)[1]

    def test_no_call_meets_the_farewell_of_a_rank_that_leaves(self):
        for call in (dist.barrier, lambda: dist.all_reduce(torch.ones(2)),
                     lambda: dist.barrier(async_op=True).wait()):
            for is_late in (False, True):
                name, who, text = self.left_alone(call, is_late)
                self.assertEqual((name, who), ("ERR_PEER", 0))
                self.assertRegex(text, "rank 0 .*closed")

    @ranks(3)
    def test_what_was_begun_is_done_when_all_have_left(self):
        tensor, place = torch.ones(1000000), torch.zeros(3)
        dist.all_reduce(tensor, async_op=True)
        if self.rank == 2:
            dist.irecv(place, 0)
        elif self.rank == 0:
            dist.isend(torch.ones(3), 2)
        dist.destroy_process_group()
        self.same(tensor, torch.full((1000000,), 3.))
        self.same(place, torch.full((3,), float(self.rank == 2)))
        dist.init_process_group("weft", store=dist.HashStore(), rank=0, world_size=1)  # the decorator destroys it

    def test_what_was_sent_arrives_when_an_exception_was_handled(self):
        def body(rank, count, port, prefix):
            store = store_of(port, prefix)
            start(rank, count, port=port, prefix=prefix)
            place = torch.zeros(3000000)
            try:
                raise KeyError
            except KeyError:
                if rank == 0:
                    dist.isend(torch.ones(3000000), 1)
                    store.set("sent", "yes")
                    dist.destroy_process_group()
                    return None
            store.wait(["sent"])
            dist.recv(place, 0)
            return place.sum().item()
        self.assertEqual(run_ranks(2, body)[1], 3000000)

    def test_groups_meet_in_one_order_at_exit(self):
        def body(rank, count, port, prefix):
            start(rank, count, port=port, prefix=prefix)
            kept = [[object()] * 100 * rank]  # the ranks' memory differs, and with it the order of a set
            for turn in range(5):
                kept.append((torch.ones(1 + 100 * rank * turn), dist.new_group([0, 1, 2])))
            begun = time.monotonic()
            _leaving._leave_all()  # what atexit calls
            return time.monotonic() - begun
        for took in run_ranks(3, body):
            self.assertLess(took, _leaving.LINGER_MS / 1000)


class Signals(RankTest):
    """A handler runs in the main thread, in the middle of whatever call it makes."""

    def handled(self, handler, call, is_in_call):
        """Rank 0 gets the signal while it is in the call, which rank 1 then makes, too. What the call said, and whether
        the handler came to its end."""
        def body(rank, count, port, prefix):
            store = store_of(port, prefix)
            ended = []
            start(rank, count, port=port, prefix=prefix)
            group = dist.group.WORLD

            def press():
                while not is_in_call(group):
                    time.sleep(0.001)
                os.kill(os.getpid(), signal.SIGUSR1)
                store_of(port, prefix).set("pressed", "yes")

            if rank == 0:
                signal.signal(signal.SIGUSR1, lambda *_: (handler(), ended.append(True)))
                threading.Thread(target=press, daemon=True).start()
            else:
                store.wait(["pressed"])
            said = try_it(lambda: call(rank))
            if rank == 1 and dist.is_initialized():
                dist.destroy_process_group()
            return said, ended, group._comm is None
        mine, other = run_ranks(2, body, deadline_s=30)
        self.assertEqual(mine[1], [True])
        self.assertTrue(mine[2], "the group is still open")
        return mine[0], other[0]

    def test_a_handler_destroys_the_group_in_a_collective(self):
        said = self.handled(dist.destroy_process_group, lambda _: dist.all_reduce(torch.ones(10)),
                            lambda _: _interrupt.current[0] is not None)
        self.assertEqual(said, (None, None))

    def test_a_handler_aborts_the_group_in_a_collective(self):
        mine, other = self.handled(lambda: dist.group.WORLD.abort(), lambda _: dist.all_reduce(torch.ones(10)),
                                   lambda _: _interrupt.current[0] is not None)
        self.assertIsNone(mine)  # it had ended when the handler came
        self.assertIn(other and other[0], [None, "ERR_ABORTED"])

    def test_a_handler_destroys_the_group_in_a_receive(self):
        self.handled(dist.destroy_process_group,
                     lambda rank: dist.send(torch.ones(10), 0) if rank else dist.recv(torch.zeros(10), 1),
                     lambda group: group._pending)

    def test_a_handler_aborts_the_group_in_a_receive(self):
        mine, other = self.handled(lambda: dist.group.WORLD.abort(),
                                   lambda rank: dist.barrier() if rank else dist.recv(torch.zeros(10), 1),
                                   lambda group: group._pending)
        self.assertEqual([mine[0], other[0]], ["ERR_ABORTED", "ERR_ABORTED"])

    def test_a_handler_destroys_and_raises(self):
        def handler():
            dist.destroy_process_group()
            raise SystemExit

        def body(rank, count, port, prefix):
            start(rank, count, port=port, prefix=prefix)
            group = dist.group.WORLD
            if rank == 1:
                return try_it(lambda: dist.recv(torch.zeros(1), 0))

            def press():
                while not group._pending:
                    time.sleep(0.001)
                os.kill(os.getpid(), signal.SIGUSR1)

            signal.signal(signal.SIGUSR1, lambda *_: handler())
            threading.Thread(target=press, daemon=True).start()
            try:
                dist.recv(torch.zeros(1), 1)
            except SystemExit:
                return group._comm is None
        left, other = run_ranks(2, body, deadline_s=30)
        self.assertTrue(left)
        self.assertEqual(other[0], "ERR_PEER")
        self.assertIn("rank 0", other[2])


class Forks(RankTest):
    def test_a_child_that_was_forked_while_a_thread_is_in_a_call(self):
        def body(rank, count, port, prefix):
            store = store_of(port, prefix)
            start(rank, count, port=port, prefix=prefix)
            if rank == 1:
                store.wait(["ended"])
                dist.all_reduce(torch.ones(3))
                dist.destroy_process_group()
                return None
            thread = threading.Thread(target=lambda: dist.all_reduce(torch.ones(3)), daemon=True)
            thread.start()
            while not dist.group.WORLD._lock._is_owned() and dist.group.WORLD._lock.acquire(False):
                dist.group.WORLD._lock.release()  # until the thread has it
                time.sleep(0.001)
            read, write = os.pipe()
            pid = os.fork()
            if pid == 0:
                said = try_it(lambda: dist.all_reduce(torch.ones(3)))
                os.write(write, said[0].encode() if said else b"no error")
                os._exit(0)
            os.close(write)
            told = os.read(read, 100).decode()
            os.waitpid(pid, 0)
            store.set("ended", "yes")
            thread.join(20)
            dist.destroy_process_group()
            return told
        self.assertEqual(run_ranks(2, body, deadline_s=30)[0], "ERR_FORKED")


if __name__ == "__main__":
    unittest.main()
