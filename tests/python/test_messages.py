# SPDX-License-Identifier: Apache-2.0
"""Messages, requests, puts and signals between ranks."""
import numpy as np

import job
from job import RankCase, assert_raises

import weft

SIZES = (0, 1, 40, 1000, 300000)


def next_of(comm):
    return (comm.rank + 1) % comm.ranks


def previous_of(comm):
    return (comm.rank - 1) % comm.ranks


def filled(rank, count):
    return ((np.arange(count) + 7 * rank) % 251).astype("uint8")


def rank_passes_a_ring(comm):
    for size in SIZES:
        mine, theirs = filled(comm.rank, size), np.zeros(size, "uint8")
        request = comm.begin.send(mine, next_of(comm), tag=5)
        message = comm.recv(theirs, previous_of(comm), 5)
        request.wait()
        assert (message.source, message.tag, message.nbytes) == (previous_of(comm), 5, size), message
        assert np.array_equal(theirs, filled(previous_of(comm), size))


def rank_sends_any_dtype(comm):
    structured = np.zeros(5, [("a", "i4"), ("b", "f8")])
    structured["a"], structured["b"] = range(5), 0.5
    sent = [np.arange(6, dtype=dtype).reshape(2, 3) for dtype in ("int8", "float16", "complex128", ">i4")]
    for data in sent + [structured]:
        out = np.zeros_like(data)
        weft.wait_all([comm.begin.send(data, next_of(comm)), comm.begin.recv(out, previous_of(comm))])
        assert np.array_equal(out, data), data.dtype
    box = bytearray(5)
    weft.wait_all([comm.begin.send(b"hello", next_of(comm)), comm.begin.recv(box)])
    assert box == b"hello"


def rank_receives_from_anybody(comm):
    if comm.rank != 0:
        comm.send(filled(comm.rank, 10), 0, tag=comm.rank)
        comm.barrier()
        return
    seen = set()
    for _ in range(comm.ranks - 1):
        found = comm.probe(timeout=30)
        out = np.zeros(found.nbytes, "uint8")
        message = comm.recv(out, weft.ANY_SOURCE, weft.ANY_TAG)
        assert message.source == message.tag == found.source
        assert np.array_equal(out, filled(message.source, 10))
        seen.add(message.source)
    assert seen == set(range(1, comm.ranks))
    assert comm.probe() is None
    comm.barrier()


def rank_truncates(comm):
    if comm.rank == 0:
        comm.send(filled(0, 100), 1)
        comm.send(filled(0, 100), 1)
    elif comm.rank == 1:
        assert_raises(weft.TruncatedError, lambda: comm.recv(np.zeros(10, "uint8"), 0), operation="recv")
        long = np.zeros(200, "uint8")
        assert comm.recv(long, 0).nbytes == 100
        assert not long[100:].any()
    assert_raises(weft.InvalidError, lambda: comm.send(b"x", comm.ranks), "rank `to` is %d" % comm.ranks,
                  operation="send")
    assert_raises(weft.InvalidError, lambda: comm.send(b"x", 0, tag=-2), "tag is -2")


def rank_waits_for_requests(comm):
    """A receive that nobody has sent to: test, wait with a limit, then the message comes."""
    out = np.zeros(4, "int32")
    request = comm.begin.recv(out, previous_of(comm), tag=9)
    assert not request.is_done
    assert_raises(weft.BusyError, lambda: request.result, "wait() for it")
    if comm.rank == 0:
        assert not request.test()
        assert_raises(weft.StillRunning, lambda: request.wait(0.05), operation="recv")
        assert_raises(TimeoutError, lambda: weft.wait_any([request], 0.01))
    comm.barrier()
    comm.send(np.full(4, comm.rank, "int32"), next_of(comm), 9)
    message = request.wait(60)
    assert (message.source, message.nbytes, out[0]) == (previous_of(comm), 16, previous_of(comm))
    assert request.is_done and request.test() and request.wait().source == previous_of(comm)
    assert not request.cancel()  # too late


def rank_begins_collectives(comm):
    """Several on their way at once; each keeps its order."""
    arrays = [np.full(1000, comm.rank + i, "float64") for i in range(8)]
    requests = [comm.begin.allreduce(each) for each in arrays]
    requests.append(comm.begin.barrier())
    results = weft.wait_all(requests, 60)
    base = comm.ranks * (comm.ranks - 1) / 2
    for i, result in enumerate(results[:-1]):
        assert result is arrays[i] and (result == base + i * comm.ranks).all(), (i, result[0])
    gathered = comm.begin.allgather(np.array([comm.rank])).wait()
    assert gathered.ravel().tolist() == list(range(comm.ranks))


def rank_waits_for_any(comm):
    outs = [np.zeros(1, "int64") for _ in range(3)]
    requests = [comm.begin.recv(out, previous_of(comm), tag) for tag, out in enumerate(outs)]
    comm.barrier()
    for tag in (2, 0, 1):
        comm.send(np.array([tag * 10]), next_of(comm), tag)
    seen = {}
    for _ in requests:
        index, message = weft.wait_any(requests, 60)
        seen[index] = (message.tag, int(outs[index][0]))
    assert seen == {tag: (tag, tag * 10) for tag in range(3)}, seen
    assert weft.wait_any(requests) == (-1, None)


def rank_cancels(comm):
    request = comm.begin.recv(np.zeros(1), previous_of(comm), tag=77)
    assert request.cancel()
    comm.barrier()
    assert request.is_done
    assert_raises(weft.InvalidError, request.wait, "the recv was cancelled")


def rank_prepares(comm):
    mine, out = np.zeros(100, "float32"), np.zeros(100, "float32")
    with comm.prepare.allreduce(mine, out, op="max") as operation:
        for round in range(20):
            mine[:] = round * (comm.rank + 1)
            assert (operation() if round % 2 else operation.start().wait()) is out
            assert (out == round * comm.ranks).all()
        operation.start()
        assert_raises(weft.BusyError, operation, "still runs")
        operation.wait()
    assert_raises(weft.InvalidError, operation.start, "closed")
    whole = np.zeros((comm.ranks, 3), "int32")
    gathers = comm.prepare.allgather(np.full(3, comm.rank, "int32"), whole)
    gathers()
    assert whole[:, 0].tolist() == list(range(comm.ranks))


def rank_puts(comm, is_shared):
    size = 5000
    box = weft.alloc(size, "uint8") if is_shared == "shared" else np.zeros(size, "uint8")
    signals = weft.alloc(2, "uint64")
    boxes, words = comm.register(box), comm.register(signals)
    handles, flags = boxes.exchange(), words.exchange()
    comm.put(handles[next_of(comm)], filled(comm.rank, 1000))
    comm.fence()
    comm.put_signal(handles[next_of(comm)], filled(comm.rank + 1, 500), flags[next_of(comm)], offset=1000,
                    signal_offset=8, add=3)
    comm.wait_signal(signals, 3, index=1)
    assert np.array_equal(box[1000:1500], filled(previous_of(comm) + 1, 500))
    comm.quiet()
    comm.barrier()
    assert np.array_equal(box[:1000], filled(previous_of(comm), 1000))
    got = np.zeros(1000, "uint8")
    comm.get(bytes(handles[comm.rank]), got)
    comm.quiet()
    assert np.array_equal(got, box[:1000])
    check_bad_puts(comm, handles, signals)
    comm.barrier()
    boxes.deregister()
    words.deregister()


def check_bad_puts(comm, handles, signals):
    assert_raises(weft.InvalidError, lambda: comm.put(handles[0], np.zeros(10, "uint8"), offset=4995), operation="put")
    assert_raises(weft.InvalidError, lambda: comm.put(b"short", np.zeros(10, "uint8")), "64 bytes")
    assert_raises(weft.StillRunning, lambda: comm.wait_signal(signals, 1000, timeout=0.02), "not 1000 yet")
    assert_raises(weft.ArrayError, lambda: comm.wait_signal(signals, 1, index=2), "word 2 of 2")
    assert_raises(weft.ArrayError, lambda: comm.wait_signal(np.zeros(2), 1), "64-bit integers")


def rank_talks_over_the_control_plane(comm):
    assert comm.control_allgather(b"%03d" % comm.rank) == [b"%03d" % rank for rank in range(comm.ranks)]
    assert comm.control_allgather(b"") == [b""] * comm.ranks
    word = b"a\0b" if comm.rank == 1 else b"..."
    assert comm.control_broadcast(word, root=1) == b"a\0b"
    comm.control_send(b"to %d" % next_of(comm), next_of(comm), tag=4)
    assert comm.control_recv(previous_of(comm), tag=4) == b"to %d" % comm.rank
    comm.control_barrier()


class Messages(RankCase):
    def test_go_around_a_ring(self):
        for variables in ({}, {"WEFT_PATH": "tcp"}):
            self.run_ranks(3, rank_passes_a_ring, **variables)

    def test_carry_any_dtype(self):
        self.run_ranks(2, rank_sends_any_dtype)

    def test_come_from_anybody(self):
        self.run_ranks(4, rank_receives_from_anybody)

    def test_that_do_not_fit_are_errors(self):
        self.run_ranks(2, rank_truncates)

    def test_of_the_control_plane(self):
        self.run_ranks(3, rank_talks_over_the_control_plane)


class Requests(RankCase):
    def test_are_tested_and_waited_for(self):
        self.run_ranks(2, rank_waits_for_requests)

    def test_of_collectives_run_in_order(self):
        self.run_ranks(2, rank_begins_collectives)

    def test_are_waited_for_in_any_order(self):
        self.run_ranks(2, rank_waits_for_any)

    def test_are_cancelled(self):
        self.run_ranks(2, rank_cancels)

    def test_are_prepared_once_and_started_often(self):
        self.run_ranks(3, rank_prepares)


class OneSided(RankCase):
    def test_puts_gets_and_signals_in_shared_memory(self):
        self.run_ranks(2, rank_puts, "shared")

    def test_puts_gets_and_signals_in_any_memory(self):
        self.run_ranks(3, rank_puts, "private")

    def test_puts_gets_and_signals_over_tcp(self):
        self.run_ranks(2, rank_puts, "private", WEFT_PATH="tcp")


if __name__ == "__main__":
    job.main(globals())
