# SPDX-License-Identifier: Apache-2.0
"""Works and Futures: what async_op=True gives, in the order and with the meaning it has in Gloo."""
import datetime
import gc
import threading
import time
import unittest
import weakref

import torch
import torch.distributed as dist

from harness import RankTest, ranks


def moment(ms):
    return datetime.timedelta(milliseconds=ms)


class Works(RankTest):
    @ranks(2)
    def test_a_work_waits_and_has_a_result(self):
        tensor = torch.ones(430)
        work = dist.all_reduce(tensor, async_op=True)
        self.assertIsInstance(work, dist.Work)
        self.assertTrue(work.wait())
        self.assertTrue(work.wait())
        self.assertTrue(work.is_completed() and work.is_success())
        self.assertIsNone(work.exception())
        self.assertIs(work.result()[0], tensor)
        self.same(tensor, torch.full((430,), 2.))

    @ranks(2)
    def test_polling_ends(self):
        work = dist.all_reduce(torch.ones(70000), async_op=True)
        while not work.is_completed():
            pass
        self.same(work.result()[0], torch.full((70000,), 2.))

    @ranks(2)
    def test_a_future_ends_with_the_tensors(self):
        tensor = torch.ones(7)
        future = dist.all_reduce(tensor, async_op=True).get_future()
        doubled = future.then(lambda ended: ended.value()[0] * 2)
        self.same(doubled.wait(), torch.full((7,), 4.))
        self.assertTrue(future.done())
        self.same(future.value()[0], tensor)

    @ranks(2)
    def test_a_future_of_an_ended_work(self):
        work = dist.broadcast(torch.ones(3), 0, async_op=True)
        work.wait()
        self.assertTrue(work.get_future().done())
        self.assertIs(work.get_future(), work.get_future())

    @ranks(2)
    def test_a_callback_may_call_again(self):
        ended = threading.Event()
        second = []

        def callback(_future):
            second.append(dist.all_reduce(torch.ones(2), async_op=True))
            second[0].wait()
            ended.set()

        dist.all_reduce(torch.ones(3), async_op=True).get_future().add_done_callback(callback)
        self.assertTrue(ended.wait(20))
        self.same(second[0].result()[0], torch.full((2,), 2.))

    @ranks(2)
    def test_every_collective_has_a_future(self):
        begun = [
            dist.all_gather([torch.zeros(2), torch.zeros(2)], torch.ones(2), async_op=True),
            dist.all_gather_into_tensor(torch.zeros(4), torch.ones(2), async_op=True),
            dist.reduce_scatter_tensor(torch.zeros(2), torch.ones(4), async_op=True),
            dist.reduce_scatter(torch.zeros(2), [torch.ones(2), torch.ones(2)], async_op=True),
            dist.all_to_all_single(torch.zeros(4), torch.ones(4), async_op=True),
            dist.reduce(torch.ones(2), 0, async_op=True),
            dist.gather(torch.ones(2), [torch.zeros(2)] * 2 if self.rank == 0 else None, 0, async_op=True),
            dist.scatter(torch.zeros(2), [torch.ones(2)] * 2 if self.rank == 0 else None, 0, async_op=True),
            dist.barrier(async_op=True),
        ]
        lengths = [len(torch.futures.wait_all([work.get_future()])[0]) for work in begun]
        self.assertEqual(lengths, [2, 1, 1, 1, 1, 1, 2 if self.rank == 0 else 0, 1, 0])

    @ranks(3)
    def test_calls_run_in_the_order_they_were_begun(self):
        tensor = torch.ones(1000)
        works = []
        for turn in range(20):  # each reads what the one before wrote
            works.append(dist.all_reduce(tensor, dist.ReduceOp.AVG, async_op=True))
            works.append(dist.broadcast(tensor, turn % 3, async_op=True))
            works.append(dist.all_reduce(tensor, dist.ReduceOp.SUM if turn % 2 else dist.ReduceOp.AVG, async_op=True))
        works[-1].wait()
        self.same(tensor, torch.full((1000,), 3. ** 10))
        self.assertTrue(all(work.is_completed() for work in works))

    @ranks(2)
    def test_blocking_calls_come_after_those_begun_before(self):
        tensor = torch.ones(100000)
        first = dist.all_reduce(tensor, async_op=True)
        dist.all_reduce(tensor)
        self.same(tensor, torch.full((100000,), 4.))
        self.assertTrue(first.is_completed())

    @ranks(2)
    def test_works_that_nobody_keeps(self):
        tensors = [torch.ones(5000) for _ in range(30)]
        for tensor in tensors:
            dist.all_reduce(tensor, async_op=True)
            dist.all_reduce(torch.ones(5000), async_op=True)  # nobody holds its tensor either
        gc.collect()
        dist.barrier()
        for tensor in tensors:
            self.same(tensor, torch.full((5000,), 2.))

    @ranks(2)
    def test_works_that_nobody_asks_for_are_let_go(self):
        group, other = dist.group.WORLD, 1 - self.rank
        waiting = [dist.irecv(torch.zeros(1), other, tag=9) for _ in range(3)]
        seen = []
        for _ in range(60):
            tensor = torch.ones(10)
            seen.append(weakref.ref(tensor))
            dist.all_reduce(tensor, async_op=True)
            dist.isend(torch.ones(10), other)
            dist.recv(torch.zeros(10), other)
            del tensor
            dist.barrier()
        self.assertLess(len(group._pending), 20)
        self.assertLess(len([one for one in seen if one() is not None]), 20)
        for _ in range(3):
            dist.isend(torch.ones(1), other, tag=9)
        for work in waiting:
            work.wait()

    @ranks(2)
    def test_ended_works_hold_no_tensors(self):
        group = dist.group.WORLD
        for _ in range(10):
            dist.all_gather([torch.zeros(9), torch.zeros(9)], torch.ones(9), async_op=True).wait()
        self.assertEqual(len(group._pending), 0)

    @ranks(2)
    def test_a_wait_that_times_out_leaves_the_work_alive(self):
        if self.rank == 0:
            place = torch.zeros(3)
            work = dist.irecv(place, 1, tag=4)
            with self.assertRaisesRegex(dist.DistBackendError, "timed out"):
                work.wait(moment(50))
            self.assertFalse(work.is_completed())
            dist.send(torch.ones(1), 1)
            self.assertTrue(work.wait(moment(20000)))
            self.same(place, torch.full((3,), 5.))
        else:
            dist.recv(torch.ones(1), 0)
            dist.send(torch.full((3,), 5.), 0, tag=4)

    @ranks(2)
    def test_several_threads_wait_for_one_work(self):
        works = [dist.all_reduce(torch.ones(200000), async_op=True) for _ in range(5)]
        seen = []
        threads = [threading.Thread(target=lambda: seen.extend(work.wait() for work in works)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        self.assertEqual(seen, [True] * 20)

    @ranks(2)
    def test_groups_in_several_threads(self):
        groups = [dist.new_group([0, 1]) for _ in range(3)]
        wrong = []

        def use(group, factor):
            for turn in range(50):
                tensor = torch.full((50,), float(factor))
                dist.all_reduce(tensor, group=group)
                if tensor[0] != 2 * factor:
                    wrong.append((factor, turn))

        threads = [threading.Thread(target=use, args=(group, at + 1)) for at, group in enumerate(groups)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(40)
        self.assertEqual(wrong, [])


class Messages(RankTest):
    @ranks(3)
    def test_ring(self):
        for dtype in (torch.float32, torch.bool, torch.complex64, torch.bfloat16, torch.uint64, torch.float8_e5m2):
            for size in (1, 1000, 300000):
                mine = torch.full((size,), float(self.rank)).to(dtype)
                place = torch.zeros(size).to(dtype)
                works = [dist.isend(mine, (self.rank + 1) % 3), dist.irecv(place, (self.rank - 1) % 3)]
                for work in works:
                    work.wait()
                self.assertTrue(torch.equal(place.view(torch.uint8) if dtype is torch.float8_e5m2 else place,
                                            torch.full((size,), float((self.rank - 1) % 3)).to(dtype)
                                            .view(torch.uint8 if dtype is torch.float8_e5m2 else dtype)))

    @ranks(2)
    def test_tags_keep_messages_apart(self):
        if self.rank == 0:
            for tag in (1, 2, 3):
                dist.send(torch.full((2,), float(tag)), 1, tag=tag)
        else:
            for tag in (3, 1, 2):
                place = torch.zeros(2)
                dist.recv(place, 0, tag=tag)
                self.assertEqual(place[0], tag)

    @ranks(2)
    def test_tags_that_are_none(self):
        for tag in (-1, -2, 2 ** 31 - 1, 2 ** 32 + 7):
            for call in (dist.send, dist.recv, dist.isend, dist.irecv):
                with self.assertRaisesRegex(ValueError, "tag %d; tags are 0 to" % tag):
                    call(torch.ones(2), 1 - self.rank, tag=tag)
        with self.assertRaisesRegex(ValueError, "tags are 0 to"):
            dist.recv(torch.ones(2), tag=-1)
        dist.barrier()

    @ranks(2, timeout_s=1)
    def test_a_receive_that_is_begun_early_ends_nothing(self):
        place = torch.zeros(3)
        work = dist.irecv(place, 0, tag=3) if self.rank else None
        end = time.monotonic() + 2
        more = torch.ones(1)
        while more.item():  # longer than an operation may take; both ranks equally often
            more.fill_(float(time.monotonic() < end))
            dist.broadcast(more, 0)
        if self.rank == 0:
            dist.send(torch.ones(3), 1, tag=3)
        else:
            work.wait()
            self.same(place, torch.ones(3))

    @ranks(3)
    def test_from_anybody(self):
        if self.rank:
            dist.send(torch.full((2,), float(self.rank)), 0)
        else:
            seen = []
            for _ in range(2):
                place = torch.zeros(2)
                source = dist.recv(place)
                self.assertEqual(place[0], source)
                seen.append(source)
            self.assertEqual(sorted(seen), [1, 2])

    @ranks(2)
    def test_non_contiguous(self):
        if self.rank == 0:
            dist.send(torch.arange(6.)[::2], 1)
        else:
            whole = torch.zeros(6)
            dist.recv(whole[1::2], 0)
            self.same(whole, torch.tensor([0., 0, 0, 2, 0, 4]))

    @ranks(2)
    def test_batches_in_any_order(self):
        other = 1 - self.rank
        places = [torch.zeros(200000), torch.zeros(4)]
        ops = [dist.P2POp(dist.irecv, places[0], other), dist.P2POp(dist.irecv, places[1], other, tag=1),
               dist.P2POp(dist.isend, torch.full((4,), 7.), other, tag=1),
               dist.P2POp(dist.isend, torch.ones(200000), other)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        self.same(places[0], torch.ones(200000))
        self.same(places[1], torch.full((4,), 7.))

    @ranks(2)
    def test_futures_of_messages_end_in_any_order(self):
        other = 1 - self.rank
        late, soon = torch.zeros(3), torch.zeros(3)
        late_future = dist.irecv(late, other, tag=1).get_future()
        soon_future = dist.irecv(soon, other, tag=2).get_future()
        dist.isend(torch.full((3,), 2.), other, tag=2)
        self.same(soon_future.wait()[0], torch.full((3,), 2.))
        dist.all_reduce(torch.ones(3), async_op=True).get_future().wait()  # not held up by the one that waits
        self.assertFalse(late_future.done())
        dist.barrier()  # until here nobody has sent it
        dist.isend(torch.full((3,), 1.), other, tag=1)
        self.same(late_future.wait()[0], torch.full((3,), 1.))

    @ranks(2)
    def test_to_oneself(self):
        place = torch.zeros(3)
        work = dist.irecv(place, self.rank)
        dist.isend(torch.full((3,), 4.), self.rank).wait()
        work.wait()
        self.same(place, torch.full((3,), 4.))

    @ranks(2)
    def test_a_message_of_another_size_is_an_error(self):
        if self.rank == 0:
            dist.send(torch.ones(2), 1)
            dist.send(torch.ones(9), 1, tag=1)
        else:
            with self.assertRaisesRegex(dist.DistBackendError, "8 bytes.*takes 12"):
                dist.recv(torch.zeros(3), 0)
            with self.assertRaisesRegex(dist.DistBackendError, "ERR_TRUNCATED"):
                dist.recv(torch.zeros(3), 0, tag=1)
        dist.barrier()


class Objects(RankTest):
    @ranks(3)
    def test_object_helpers(self):
        mine = {"rank": self.rank, "list": list(range(self.rank * 10))}
        everybody = [{"rank": rank, "list": list(range(rank * 10))} for rank in range(3)]
        got = [None] * 3
        dist.all_gather_object(got, mine)
        self.assertEqual(got, everybody)
        got = [None] * 3 if self.rank == 1 else None
        dist.gather_object(mine, got, dst=1)
        if self.rank == 1:
            self.assertEqual(got, everybody)
        spread = ["a", 5, {"x": 1}] if self.rank == 2 else [None] * 3
        dist.broadcast_object_list(spread, src=2)
        self.assertEqual(spread, ["a", 5, {"x": 1}])
        place = [None]
        dist.scatter_object_list(place, everybody if self.rank == 0 else None, src=0)
        self.assertEqual(place[0], mine)
        if self.rank == 0:
            dist.send_object_list([mine, "end"], dst=1)
        elif self.rank == 1:
            place = [None, None]
            dist.recv_object_list(place, src=0)
            self.assertEqual(place, [everybody[0], "end"])


if __name__ == "__main__":
    unittest.main()
