# SPDX-License-Identifier: Apache-2.0
"""Futures and their callbacks, which may do what they like: call the group, wait for other Futures, end it."""
import gc
import threading
import time
import unittest
import weakref

import torch
import torch.distributed as dist
from weft.torch import _futures

from harness import RankTest, ranks

LONG = 200000  # elements: more than is waited for when a Future is asked for


def begin(elements=LONG):
    return dist.all_reduce(torch.ones(elements), async_op=True).get_future()


class Callbacks(RankTest):
    @ranks(2)
    def test_a_callback_waits_for_another_future(self):
        told = begin(10 * LONG).then(lambda _: begin().wait()[0])
        self.same(told.wait(), torch.full((LONG,), 2.))

    @ranks(2)
    def test_callbacks_that_wait_within_callbacks(self):
        def deeper(levels):
            return begin().then(lambda ended: deeper(levels - 1) if levels else ended.value()[0]).wait()
        self.same(deeper(5), torch.full((LONG,), 2.))

    @ranks(2)
    def test_a_callback_waits_for_a_future_that_was_begun_before(self):
        first, second = begin(), begin()
        self.same(first.then(lambda _: second.wait()[0]).wait(), torch.full((LONG,), 2.))

    @ranks(2)
    def test_a_message_s_callback_waits_for_another_message(self):
        other = 1 - self.rank
        places = [torch.zeros(2), torch.zeros(2)]

        def answer(_ended):
            dist.isend(torch.full((2,), 2.), other, tag=2)
            return dist.irecv(places[1], other, tag=2).get_future().wait()[0]

        dist.isend(torch.ones(2), other, tag=1)  # first: the callback of what has come already is called there and then
        told = dist.irecv(places[0], other, tag=1).get_future().then(answer)
        self.same(told.wait(), torch.full((2,), 2.))

    @ranks(2)
    def test_threads_do_not_pile_up(self):
        begin().wait()
        before = threading.active_count()
        for _ in range(30):
            torch.futures.wait_all([begin(), begin()])
        self.assertLessEqual(threading.active_count(), before + 3)

    @ranks(2)
    def test_nothing_is_kept_once_it_was_told(self):
        seen = []
        for elements in (10, LONG):
            for _ in range(3):
                tensor = torch.ones(elements)
                seen.append(weakref.ref(tensor))
                dist.all_reduce(tensor, async_op=True).get_future().then(lambda _: None).wait()
                del tensor
        end = time.monotonic() + 20
        while any(one() is not None for one in seen) and time.monotonic() < end:
            gc.collect()
        self.assertEqual([one() for one in seen], [None] * 6)

    @ranks(1)
    def test_a_callback_that_calls_the_group_when_it_is_closed(self):
        group, said, ended = dist.group.WORLD, [], threading.Event()

        def callback(_future):
            for call in (lambda: dist.all_reduce(torch.ones(2)), lambda: dist.irecv(torch.ones(2), 0)):
                try:
                    call()
                except dist.DistBackendError as error:
                    said.append(str(error))
            group.abort()
            ended.set()

        dist.irecv(torch.zeros(3), 0, tag=9).get_future().add_done_callback(callback)
        group.abort()
        self.assertTrue(ended.wait(20))
        self.assertEqual(len(said), 2)
        for text in said:
            self.assertIn("aborted", text)

    @ranks(2)
    def test_a_callback_destroys_the_group(self):
        done = threading.Event()
        begin().add_done_callback(lambda _: (dist.destroy_process_group(), done.set()))
        self.assertTrue(done.wait(20))
        self.assertFalse(dist.is_initialized())
        dist.init_process_group("weft", store=dist.HashStore(), rank=0, world_size=1)  # the decorator destroys it


class Time(RankTest):
    @ranks(2)
    def test_get_future_returns_at_once_while_a_rank_is_late(self):
        took = []
        for _ in range(5):  # the machine may be busy with something else
            if self.rank == 1:
                dist.recv(torch.zeros(1), 0)
            begun = time.monotonic()
            futures = [begin(10) for _ in range(20)]
            took.append(time.monotonic() - begun)
            if self.rank == 0:
                dist.send(torch.zeros(1), 1)
            torch.futures.wait_all(futures)
        self.assertLess(min(took), 0.15)

    @ranks(2)
    def test_a_receive_that_waits_costs_nothing(self):
        place = torch.zeros(3)
        future = dist.irecv(place, 1 - self.rank, tag=5).get_future()
        dist.barrier()
        used = []
        for _ in range(3):
            before = time.process_time()
            threading.Event().wait(1)  # what passes here is what is measured
            used.append(time.process_time() - before)
        dist.isend(torch.ones(3), 1 - self.rank, tag=5)
        self.same(future.wait()[0], torch.ones(3))
        self.assertLess(min(used), 0.1)

    @ranks(2)
    def test_messages_are_told_at_once_while_another_is_waited_for(self):
        other = 1 - self.rank
        _futures.SLICE_MS = 10000  # whoever waits for the first looks at the others not before that
        waiting = dist.irecv(torch.zeros(1), other, tag=1).get_future()
        for _ in range(20):
            future = dist.irecv(torch.zeros(1), other, tag=2).get_future()
            dist.isend(torch.ones(1), other, tag=2)
            self.same(future.wait()[0], torch.ones(1))
        self.assertFalse(waiting.done())
        dist.barrier()
        dist.isend(torch.ones(1), other, tag=1)
        waiting.wait()


if __name__ == "__main__":
    unittest.main()
