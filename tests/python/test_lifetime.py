# SPDX-License-Identifier: Apache-2.0
"""Who lives how long: requests and their arrays, registered memory, forked children, several communicators, threads."""
import gc
import os
import threading
import weakref

import numpy as np

import job
from job import RankCase, assert_raises

import weft

BIG = 1 << 20  # longer than what is sent before its receive is known


def previous_of(comm):
    return (comm.rank - 1) % comm.ranks


def next_of(comm):
    return (comm.rank + 1) % comm.ranks


def rank_drops_requests(comm):
    """Nobody holds the arrays but Weft: they live until the messages have been taken."""
    marks = []
    for tag in range(3):
        data = np.full(BIG, comm.rank + tag, "uint8")
        marks.append(weakref.ref(data))
        comm.begin.send(data, next_of(comm), tag)  # the request is dropped at once
        del data
    gc.collect()
    assert all(mark() is not None for mark in marks), "an array was freed while it was being sent"
    assert len(comm._orphans) == 3
    comm.barrier()
    for tag in range(3):
        out = np.zeros(BIG, "uint8")
        comm.recv(out, previous_of(comm), tag)
        assert (out == previous_of(comm) + tag).all(), "the message was changed on its way"
    comm.barrier()
    for _ in range(1000):  # an acknowledgement may be on its way still
        comm._sweep()
        if not comm._orphans:
            break
        comm.barrier()
    assert not comm._orphans
    gc.collect()
    assert all(mark() is None for mark in marks), "an array was kept for ever"


def rank_drops_receives(comm):
    """A receive whose request nobody holds is still a receive, and what it receives goes nowhere bad."""
    comm.begin.recv(np.zeros(1000, "uint8"), previous_of(comm), 1)
    gc.collect()
    comm.barrier()
    comm.send(np.ones(1000, "uint8"), next_of(comm), 1)
    comm.barrier()
    operation = comm.prepare.allreduce(np.ones(BIG))
    operation.start()
    del operation
    gc.collect()
    comm.barrier()


def rank_holds_requests(comm):
    """A finished request lets its arrays go."""
    data = np.ones(BIG, "uint8")
    mark = weakref.ref(data)
    request = comm.begin.send(data, next_of(comm))
    del data
    comm.recv(np.zeros(BIG, "uint8"), previous_of(comm))
    request.wait()
    gc.collect()
    assert mark() is None


def rank_lends_to_puts(comm):
    """What is put stays alive until quiet()."""
    memory = comm.register(np.zeros(BIG, "uint8"))
    handles = memory.exchange()
    data = np.full(BIG, 7, "uint8")
    mark = weakref.ref(data)
    comm.put(handles[next_of(comm)], data)
    del data
    gc.collect()
    assert mark() is not None
    comm.quiet()
    gc.collect()
    assert mark() is None
    comm.barrier()
    assert (memory.array == 7).all()
    comm.barrier()


def rank_frees_shared_memory(comm):
    """weft_alloc'd memory goes with its last view, and not before."""
    array = weft.alloc(1000, "int64")
    view = array[10:20]
    mark = weakref.ref(array.base.base if isinstance(array.base, np.ndarray) else array.base)
    del array
    gc.collect()
    view[:] = 5
    assert comm.allreduce(view)[0] == 5 * comm.ranks
    memory = comm.register(view)
    memory.exchange()
    del view
    memory.array[0] = 3
    comm.barrier()
    del memory, mark
    gc.collect()
    for _ in range(50):  # what is freed can be had again
        weft.alloc(1 << 22, "uint8")


def rank_forks(comm):
    array = np.ones(4)
    comm.allreduce(array)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            assert_raises(weft.ForkedError, lambda: comm.allreduce(array), operation="allreduce")
            assert_raises(weft.ForkedError, lambda: comm.begin.send(array, 0))
            assert_raises(weft.ForkedError, lambda: comm.split(0))
            assert_raises(weft.ForkedError, comm.close)
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert comm.allreduce(array)[0] == comm.ranks ** 2


def rank_forks_and_leaves(comm):
    """A child that ends as programs do, with atexit and finalizers, does not end its parent's job."""
    import sys
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(0)
    os.waitpid(child, 0)
    assert comm.allreduce(np.ones(3))[0] == comm.ranks


def rank_splits(comm):
    parts = comm.split(comm.rank % 2, -comm.rank)
    members = [rank for rank in range(comm.ranks) if rank % 2 == comm.rank % 2][::-1]
    assert (parts.ranks, parts.rank) == (len(members), members.index(comm.rank))
    assert parts.allreduce(np.array([comm.rank]))[0] == sum(members)
    nobody = comm.split(-1 if comm.rank else 0)
    assert (nobody is None) == (comm.rank != 0)
    with comm.duplicate() as twin:
        first, second = np.ones(100), np.ones(100)
        requests = [comm.begin.allreduce(first), twin.begin.allreduce(second)]
        weft.wait_all(requests)
        assert first[0] == second[0] == comm.ranks
    assert_raises(weft.BusyError, comm.close)  # parts is open
    parts.close()
    if nobody is not None:
        nobody.close()
    comm.set_timeout(30)
    assert comm.local_ranks == comm.ranks and comm.local_rank == comm.rank


def rank_drops_parts(comm):
    """Communicators that nobody closes are closed when nobody holds them, and then the whole can be."""
    for _ in range(3):
        part = comm.split(0)
        part.barrier()
        comm.barrier()
        del part
        gc.collect()
    comm.barrier()


def rank_uses_threads(comm):
    """Each thread has a communicator; messages of all threads share one."""
    twins = [comm.duplicate() for _ in range(3)]
    failures = []

    def work(number):
        try:
            for round in range(50):
                got = twins[number].allreduce(np.full(10, number + round, "float64"))
                assert (got == (number + round) * comm.ranks).all()
                out = np.zeros(3, "int32")
                sending = comm.begin.send(np.full(3, number, "int32"), next_of(comm), tag=number)
                comm.recv(out, previous_of(comm), number)
                sending.wait()
                assert (out == number).all()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    for twin in twins:
        twin.barrier()
        twin.close()


def rank_waits_without_the_gil(comm):
    """A thread waits in a receive; the main thread runs on and sends what it waits for."""
    out = np.zeros(1)
    begun = threading.Event()

    def receive():
        begun.set()
        comm.recv(out, previous_of(comm), 3)

    thread = threading.Thread(target=receive)
    thread.start()
    begun.wait()
    comm.barrier()
    if thread.is_alive() and comm._inside:
        assert_raises(weft.BusyError, comm.close, "a thread is in a call")
    comm.barrier()  # nobody sends before
    comm.send(np.array([4.0]), next_of(comm), 3)
    thread.join()
    assert out[0] == 4


def alone_threads_are_ranks():
    """Ranks as threads of one process, which make their communicators themselves."""
    made = weft.Id.create()
    assert "weft1:" in made.text and made.text != str(made)
    again = weft.Id(made.text)
    sums = {}

    def work(rank):
        with weft.create(made if rank == 0 else again, rank, 3, start_timeout=60) as comm:
            sums[rank] = comm.allreduce(np.array([rank + 1.0]))[0]

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sums == {0: 6, 1: 6, 2: 6}, sums
    job.say_fine()


class Lifetime(RankCase):
    def test_of_arrays_whose_sends_are_dropped(self):
        self.run_ranks(2, rank_drops_requests)

    def test_of_arrays_whose_sends_are_dropped_over_tcp(self):
        self.run_ranks(2, rank_drops_requests, WEFT_PATH="tcp")

    def test_of_arrays_whose_receives_are_dropped(self):
        self.run_ranks(2, rank_drops_receives)

    def test_of_arrays_whose_requests_are_done(self):
        self.run_ranks(2, rank_holds_requests)

    def test_of_arrays_that_are_put(self):
        self.run_ranks(2, rank_lends_to_puts, WEFT_PATH="tcp")

    def test_of_shared_memory(self):
        self.run_ranks(2, rank_frees_shared_memory)


class Forks(RankCase):
    def test_leave_dead_handles_in_the_child(self):
        self.run_ranks(2, rank_forks)

    def test_do_not_end_the_parents_job(self):
        self.run_ranks(2, rank_forks_and_leaves)


class Communicators(RankCase):
    def test_are_split_and_duplicated(self):
        self.run_ranks(4, rank_splits)

    def test_that_are_dropped_are_closed(self):
        self.run_ranks(2, rank_drops_parts)

    def test_are_used_by_threads(self):
        self.run_ranks(2, rank_uses_threads)

    def test_wait_without_the_interpreters_lock(self):
        self.run_ranks(2, rank_waits_without_the_gil)

    def test_of_threads_that_are_ranks(self):
        self.run_ranks(1, alone_threads_are_ranks)


if __name__ == "__main__":
    job.main(globals())
