# SPDX-License-Identifier: Apache-2.0
"""The calls that torch.distributed and C++ make on a process group, as Weft's.

Names: torch renamed some of them between versions (`_allgather_base` is `all_gather_single` now); both are here.
"""
import ctypes
import datetime

import torch
from torch._C import _distributed_c10d as c10d

from .. import _capi as c
from . import _stage, _tags
from . import _tensors as t
from ._errors import ArgumentError
from ._group import GroupLife
from ._work import MessageWork, ReceiveWork

lib = c.lib
_byref = ctypes.byref


def _one(tensors, what):
    """torch gives lists of one; some callers give the tensor itself."""
    if isinstance(tensors, torch.Tensor):
        return tensors
    if len(tensors) != 1:
        raise ArgumentError("%s takes one tensor, not %d" % (what, len(tensors)))
    return tensors[0]


def _options(given, kind, field=None):
    """The options, or new ones that have only the operation or the root in them: pg.allreduce(tensor, ReduceOp.SUM)."""
    if isinstance(given, kind):
        return given
    made = kind[0]() if isinstance(kind, tuple) else kind()
    if given is not None and field is not None:
        setattr(made, field, given)
    return made


def _call(coll, dtype, **settings):
    """A begin for any collective, with what the short calls have no room for."""
    call = c.weft_call_t(coll=coll, dtype=dtype, **settings)
    return lambda comm, request: lib.weft_collective(comm, _byref(call), request)


class ProcessGroupWeft(GroupLife):
    """torch.distributed over Weft."""

    # ---- reductions

    def allreduce(self, tensors, opts=None):
        opts = _options(opts, (c10d.AllreduceOptions, c10d.AllreduceCoalescedOptions), "reduceOp")
        tensor = _one(tensors, "allreduce")
        stage, memory = _stage.unless_plain(tensor, self), tensor
        if stage is not None:
            if stage.is_cuda and _stage.is_long(tensor):
                return self._allreduce_in_pieces(tensor, opts)
            memory = stage.both(tensor)
        return self._run(opts, self._allreduce_begin(memory, opts.reduceOp), [tensor], stage)

    def _allreduce_in_pieces(self, tensor, opts):
        after = []
        pieces = _stage.pieces(t.both(tensor, after))
        return self._join([self.allreduce([piece], opts) for piece in pieces], [tensor], after)

    def _allreduce_begin(self, memory, reduce_op):
        dtype, count, op, scale = t.reduced(memory, reduce_op)
        at = memory.data_ptr() or t.address(memory)
        if scale is None:
            return lambda comm, request: lib.weft_allreduce(comm, at, at, count, dtype, op, request)
        return _call(c.WEFT_ALLREDUCE, dtype, op=op, scale=scale, in_=at, out=at, count=count)

    def allreduce_coalesced(self, tensors, opts=None):
        opts = _options(opts, c10d.AllreduceCoalescedOptions, "reduceOp")
        stage = _stage.for_tensor(t.check_one_device(tensors, "allreduce_coalesced"), self)
        if stage.is_cuda:
            return self._join([self.allreduce([tensor], opts) for tensor in tensors], list(tensors))
        begins = [self._allreduce_begin(stage.both(tensor), opts.reduceOp) for tensor in tensors]
        return self._run_many(opts, begins, list(tensors), stage)

    def reduce(self, tensors, opts=None):
        opts = _options(opts, c10d.ReduceOptions, "rootRank")
        tensor = _one(tensors, "reduce")
        root = self._checked_rank(opts.rootRank, "reduce")
        stage = _stage.for_tensor(tensor, self)
        memory = stage.both(tensor) if root == self._rank else stage.source(tensor)
        dtype, count, op, scale = t.reduced(memory, opts.reduceOp)
        at = t.address(memory)
        begin = _call(c.WEFT_REDUCE, dtype, op=op, root=root, scale=1.0 if scale is None else scale, in_=at,
                      out=at if root == self._rank else None, count=count)
        return self._run(opts, begin, [tensor], stage)

    def reduce_scatter(self, outputs, inputs, opts=None):
        opts = _options(opts, c10d.ReduceScatterOptions, "reduceOp")
        output = _one(outputs, "reduce_scatter")
        pieces = inputs[0] if isinstance(inputs[0], (list, tuple)) else inputs
        self._check_list(pieces, "reduce_scatter", "input")
        t.check_same([output] + list(pieces), "reduce_scatter")
        if pieces[self._rank].numel() != output.numel():
            raise ArgumentError("reduce_scatter: the output has %d elements, piece %d of the input, which it is for, %d"
                                % (output.numel(), self._rank, pieces[self._rank].numel()))
        stage = _stage.for_tensor(output, self)
        source, memory = stage.flat_source(pieces), stage.target(output)
        sizes = [piece.numel() for piece in pieces]
        start = stage.apart(source, sum(sizes), t.address(memory), output.numel(), sum(sizes[:self._rank]))
        begin = self._reduce_scatter_begin(start, memory, opts.reduceOp, None if len(set(sizes)) == 1 else sizes)
        return self._run(opts, begin, [output], stage)

    def _reduce_scatter_begin(self, start, memory, reduce_op, sizes=None):
        dtype, count, op, scale = t.reduced(memory, reduce_op)
        at = memory.data_ptr()
        if scale is None and sizes is None:
            return lambda comm, request: lib.weft_reduce_scatter(comm, start, at, count, dtype, op, request)
        factor = t.REDUCED[memory.dtype][1]
        return _call(c.WEFT_REDUCE_SCATTER, dtype, op=op, scale=1.0 if scale is None else scale, in_=start, out=at,
                     count=count, in_counts=t.counts(sizes, factor) if sizes else None)

    def _reduce_scatter_base(self, output, source, opts=None):
        opts = _options(opts, c10d.ReduceScatterOptions, "reduceOp")
        stage = _stage.for_tensor(output, self)
        begin = self._reduce_scatter_base_begin(stage, output, source, opts)
        return self._run(opts, begin, [output], stage)

    def _reduce_scatter_base_begin(self, stage, output, source, opts):
        t.check_same([output, source], "reduce_scatter_tensor")
        if source.numel() != output.numel() * self._ranks:
            raise ArgumentError("reduce_scatter_tensor: the input has %d elements; it needs %d times the output's %d"
                                % (source.numel(), self._ranks, output.numel()))
        memory, count = stage.target(output), output.numel()
        start = stage.apart(stage.source(source), source.numel(), t.address(memory), count, self._rank * count)
        return self._reduce_scatter_begin(start, memory, opts.reduceOp)

    reduce_scatter_single = _reduce_scatter_base

    def reduce_scatter_tensor_coalesced(self, outputs, inputs, opts=None):
        opts = _options(opts, c10d.ReduceScatterOptions, "reduceOp")
        if not outputs or len(outputs) != len(inputs):
            raise ArgumentError("reduce_scatter: %d outputs and %d inputs" % (len(outputs), len(inputs)))
        stage = _stage.for_tensor(t.check_one_device([*outputs, *inputs], "reduce_scatter"), self)
        if stage.is_cuda:
            return self._join([self._reduce_scatter_base(*pair, opts) for pair in zip(outputs, inputs)], list(outputs))
        begins = [self._reduce_scatter_base_begin(stage, output, source, opts)
                  for output, source in zip(outputs, inputs)]
        return self._run_many(opts, begins, list(outputs), stage)

    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    # ---- gathering and spreading

    def allgather(self, outputs, inputs, opts=None):
        opts = _options(opts, c10d.AllgatherOptions)
        source = _one(inputs, "allgather")
        places = outputs[0] if isinstance(outputs[0], (list, tuple)) else outputs
        stage = _stage.for_tensor(source, self)
        return self._run(opts, self._allgather_begin(stage, places, source), list(places), stage)

    def _allgather_begin(self, stage, places, source):
        self._check_list(places, "allgather", "output")
        t.check_same([source] + list(places), "allgather")
        sizes = [place.numel() for place in places]
        if sizes[self._rank] != source.numel():
            raise ArgumentError("allgather: the input has %d elements, its place in the outputs (number %d) %d"
                                % (source.numel(), self._rank, sizes[self._rank]))
        at = t.address(stage.flat_target(places))
        start = stage.apart(stage.source(source), source.numel(), at, sum(sizes), -sum(sizes[:self._rank]))
        dtype, count = t.moved(source)
        if len(set(sizes)) == 1:
            return lambda comm, request: lib.weft_allgather(comm, start, at, count, dtype, request)
        return _call(c.WEFT_ALLGATHER, dtype, in_=start, out=at, count=count,
                     out_counts=t.counts(sizes, count // source.numel() if source.numel() else self._factor(source)))

    def allgather_coalesced(self, output_lists, inputs, opts=None):
        opts = _options(opts, c10d.AllgatherOptions)
        if not inputs or len(output_lists) != len(inputs):
            raise ArgumentError("allgather_coalesced: %d output lists and %d inputs" % (len(output_lists), len(inputs)))
        result = [list(places) for places in output_lists]
        stage = _stage.for_tensor(t.check_one_device(sum(result, list(inputs)), "allgather_coalesced"), self)
        if stage.is_cuda:
            return self._join([self.allgather([pair[0]], [pair[1]], opts) for pair in zip(result, inputs)], result)
        begins = [self._allgather_begin(stage, places, source) for places, source in zip(output_lists, inputs)]
        return self._run_many(opts, begins, result, stage)

    def _allgather_base(self, output, source, opts=None):
        opts = _options(opts, c10d.AllgatherOptions)
        stage = _stage.for_tensor(source, self)
        return self._run(opts, self._allgather_base_begin(stage, output, source), [output], stage)

    def _allgather_base_begin(self, stage, output, source):
        t.check_same([output, source], "all_gather_into_tensor")
        if output.numel() != source.numel() * self._ranks:
            raise ArgumentError("all_gather_into_tensor: the output has %d elements; it needs %d times the input's %d"
                                % (output.numel(), self._ranks, source.numel()))
        at, count = t.address(stage.target(output)), source.numel()
        start = stage.apart(stage.source(source), count, at, output.numel(), -self._rank * count)
        dtype, count = t.moved(source)
        return lambda comm, request: lib.weft_allgather(comm, start, at, count, dtype, request)

    all_gather_single = _allgather_base

    def allgather_into_tensor_coalesced(self, outputs, inputs, opts=None):
        opts = _options(opts, c10d.AllgatherOptions)
        if not outputs or len(outputs) != len(inputs):
            raise ArgumentError("all_gather_into_tensor: %d outputs and %d inputs" % (len(outputs), len(inputs)))
        stage = _stage.for_tensor(t.check_one_device([*inputs, *outputs], "all_gather_into_tensor"), self)
        if stage.is_cuda:
            return self._join([self._allgather_base(*pair, opts) for pair in zip(outputs, inputs)], list(outputs))
        begins = [self._allgather_base_begin(stage, output, source) for output, source in zip(outputs, inputs)]
        return self._run_many(opts, begins, list(outputs), stage)

    all_gather_single_coalesced = allgather_into_tensor_coalesced

    def broadcast(self, tensors, opts=None):
        opts = _options(opts, c10d.BroadcastOptions, "rootRank")
        tensor = _one(tensors, "broadcast")
        root = self._checked_rank(opts.rootRank, "broadcast")
        stage = _stage.for_tensor(tensor, self)
        memory = stage.both(tensor) if root == self._rank else stage.target(tensor)
        dtype, count = t.moved(memory)
        at = t.address(memory)
        return self._run(opts, lambda comm, request: lib.weft_broadcast(comm, at, at, count, dtype, root, request),
                         [tensor], stage)

    def gather(self, outputs, inputs, opts=None):
        opts = _options(opts, c10d.GatherOptions, "rootRank")
        source = _one(inputs, "gather")
        root = self._checked_rank(opts.rootRank, "gather")
        stage = _stage.for_tensor(source, self)
        memory, at, places, count = stage.source(source), None, [], source.numel()
        if root == self._rank:
            places = self._root_list(outputs, source, "gather", "output")
            at = t.address(stage.flat_target(places))
            start = stage.apart(memory, count, at, count * self._ranks, -root * count)
        else:
            start = t.address(memory)
        dtype, count = t.moved(source)
        return self._run(opts, lambda comm, request: lib.weft_gather(comm, start, at, count, dtype, root, request),
                         list(places), stage)

    def scatter(self, outputs, inputs, opts=None):
        opts = _options(opts, c10d.ScatterOptions, "rootRank")
        output = _one(outputs, "scatter")
        root = self._checked_rank(opts.rootRank, "scatter")
        stage = _stage.for_tensor(output, self)
        start, at, count = None, t.address(stage.target(output)), output.numel()
        if root == self._rank:
            source = stage.flat_source(self._root_list(inputs, output, "scatter", "input"))
            start = stage.apart(source, count * self._ranks, at, count, root * count)
        dtype, count = t.moved(output)
        return self._run(opts, lambda comm, request: lib.weft_scatter(comm, start, at, count, dtype, root, request),
                         [output], stage)

    def alltoall_base(self, output, source, output_sizes, input_sizes, opts=None):
        opts = _options(opts, c10d.AllToAllOptions)
        t.check_same([output, source], "all_to_all_single")
        stage = _stage.for_tensor(output, self)
        at = t.address(stage.target(output))
        start = stage.apart(stage.source(source), source.numel(), at, output.numel())
        dtype, count = t.moved(source)
        if not output_sizes and not input_sizes:
            if source.numel() != output.numel() or source.shape[:1].numel() % self._ranks:
                raise ArgumentError("all_to_all_single: input %s and output %s cannot be cut into %d equal pieces"
                                    % (tuple(source.shape), tuple(output.shape), self._ranks))
            piece = count // self._ranks
            return self._run(opts, lambda comm, request: lib.weft_alltoall(comm, start, at, piece, dtype, request),
                             [output], stage)
        begin = _call(c.WEFT_ALLTOALL, dtype, in_=start, out=at,
                      in_counts=self._split_counts(source, input_sizes, "input"),
                      out_counts=self._split_counts(output, output_sizes, "output"))
        return self._run(opts, begin, [output], stage)

    all_to_all_single = alltoall_base

    def alltoall(self, outputs, inputs, opts=None):
        opts = _options(opts, c10d.AllToAllOptions)
        self._check_list(inputs, "all_to_all", "input")
        self._check_list(outputs, "all_to_all", "output")
        first = t.check_same(list(outputs) + list(inputs), "all_to_all")
        stage = _stage.for_tensor(first, self)
        give, take = [tensor.numel() for tensor in inputs], [tensor.numel() for tensor in outputs]
        at = t.address(stage.flat_target(outputs))
        start = stage.apart(stage.flat_source(inputs), sum(give), at, sum(take))
        factor = self._factor(first)
        begin = _call(c.WEFT_ALLTOALL, t.moved(first)[0], in_=start, out=at,
                      in_counts=t.counts(give, factor), out_counts=t.counts(take, factor))
        return self._run(opts, begin, list(outputs), stage)

    def barrier(self, opts=None):
        opts = _options(opts, c10d.BarrierOptions)
        return self._run(opts, lambda comm, request: lib.weft_barrier(comm, request), [])

    def monitored_barrier(self, timeout=None, wait_all_ranks=False):
        """A barrier whose error names the ranks that did not come in time, all of them, on every rank."""
        opts = c10d.BarrierOptions()
        opts.timeout = timeout if timeout is not None else datetime.timedelta(milliseconds=self._timeout_ms)
        self.barrier(opts).wait()

    # ---- messages

    def send(self, tensors, to, tag=0):
        tensor = _one(tensors, "send")
        self._checked_rank(to, "send")
        _tags.checked(tag, "send")
        stage = _stage.for_tensor(tensor, self)
        memory = stage.source(tensor)
        if stage.is_cuda:
            stage.wait_for_sources()
        at, length = t.address(memory), memory.numel() * memory.element_size()
        return self._run_message(lambda comm, request: lib.weft_send(comm, at, length, to, tag, request),
                                 MessageWork, [tensor], memory)

    def recv(self, tensors, source, tag=0):
        self._checked_rank(source, "recv")
        return self._receive(_one(tensors, "recv"), source, tag)

    def recv_anysource(self, tensors, tag=0):
        return self._receive(_one(tensors, "recv"), c.WEFT_ANY_SOURCE, tag)

    recvAnysource = recv_anysource

    def _receive(self, tensor, source, tag):
        _tags.checked(tag, "recv")
        stage = _stage.for_tensor(tensor, self)
        memory = stage.target(tensor)
        at, room = t.address(memory), memory.numel() * memory.element_size()
        message = c.weft_message_t()
        kind = self._stager().receive_work(stage) if stage.is_cuda else ReceiveWork
        return self._run_message(
            lambda comm, request: lib.weft_recv(comm, at, room, source, tag, _byref(message), request),
            kind, [tensor], (memory, message), stage.after)

    def _join(self, works, tensors, after=()):
        return self._stager().join(works, tensors, after)

    # ---- checks

    def _checked_rank(self, rank, what):
        if not 0 <= rank < self._ranks:
            raise ArgumentError("%s: rank %d is not in the group, which has %d" % (what, rank, self._ranks))
        return rank

    def _check_list(self, tensors, what, side):
        if len(tensors) != self._ranks:
            raise ArgumentError("%s: %d %s tensors for %d ranks" % (what, len(tensors), side, self._ranks))

    def _root_list(self, lists, like, what, side):
        pieces = lists[0] if lists and isinstance(lists[0], (list, tuple)) else lists
        self._check_list(pieces, what, side)
        t.check_same([like] + list(pieces), what)
        for at, piece in enumerate(pieces):
            if piece.numel() != like.numel():
                raise ArgumentError("%s: %s number %d has %d elements, this rank's tensor %d"
                                    % (what, side, at, piece.numel(), like.numel()))
        return pieces

    @staticmethod
    def _factor(tensor):
        """Weft's elements per element of a tensor that is only moved."""
        known = t.REDUCED.get(tensor.dtype)
        return known[1] if known else tensor.element_size()

    def _split_counts(self, tensor, sizes, side):
        """Elements of each rank's piece, from pieces of the first dimension."""
        rows = tensor.shape[0] if tensor.dim() else 0
        if not sizes:
            if rows % self._ranks:
                raise ArgumentError("all_to_all_single: %d rows of the %s cannot be cut into %d equal pieces"
                                    % (rows, side, self._ranks))
            sizes = [rows // self._ranks] * self._ranks
        if len(sizes) != self._ranks or sum(sizes) != rows or min(sizes) < 0:
            raise ArgumentError("all_to_all_single: the %s split %s is not for %d ranks and %d rows"
                                % (side, list(sizes), self._ranks, rows))
        row = (tensor.numel() // rows if rows else 0) * self._factor(tensor)
        return t.counts(sizes, row)
