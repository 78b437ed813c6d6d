# SPDX-License-Identifier: Apache-2.0
"""The collectives, written once and done three ways: Comm finishes them, Comm.begin begins them (Request), Comm.prepare
makes them ready (Operation). Every rank makes the same calls in the same order, with the same sizes and dtypes."""
from __future__ import annotations

from ctypes import c_size_t
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Dict, Generic, List, Optional, Sequence, Tuple, TypeVar

from . import _capi, _checks
from ._buffers import describe, make_empty
from ._capi import lib
from ._checks import numbers, refuse
from ._errors import ArrayError
from ._kinds import OPS, Kind
from ._waiting import limit

if TYPE_CHECKING:
    from ._comm import Comm

Result = TypeVar("Result")
Counts = Optional[Sequence[int]]
Numbers = Optional[List[int]]  # the same, checked
Array = Any  # numpy array, torch tensor, or anything with DLPack or the buffer protocol

SCALED = OPS["scaled"]

# The fields of weft_call_t in the order in which each function takes them, after the communicator.
_MOVES = ("in_", "out", "count", "dtype")
FIELDS = {"allreduce": _MOVES + ("op",), "reduce_scatter": _MOVES + ("op",), "allgather": _MOVES,
          "broadcast": _MOVES + ("root",), "reduce": _MOVES + ("op", "root"), "gather": _MOVES + ("root",),
          "scatter": _MOVES + ("root",), "alltoall": _MOVES, "barrier": ()}
FUNCTIONS = {name: getattr(lib, "weft_" + name) for name in FIELDS}
CODES = {lib.weft_coll_name(code).decode(): code for code in range(_capi.WEFT_COLLS)}


def _op_code(operation: str, op: str, kind: Kind) -> int:
    code = kind.ops.get(op) if isinstance(op, str) else None
    if code is not None:
        return code
    if not isinstance(op, str) or op not in OPS:
        raise refuse(operation, "op %r; there are %s" % (op, ", ".join(OPS)))
    if kind.code is None:
        raise ArrayError("%s: %s cannot be reduced; reduce its parts (.real, .imag, a view of numbers), or convert it"
                         % (operation, kind.name), operation=operation)
    raise ArrayError("%s: %s of bools is no bool; use op=\"max\" (or), \"min\" (and), or a view of integers"
                     % (operation, op), operation=operation)


def _check_same(operation: str, kind: Kind, other: Kind) -> None:
    if kind is not other:
        raise ArrayError("%s: the input is %s and the output %s; make them the same (array.astype, tensor.to)"
                         % (operation, kind.name, other.name), operation=operation)


def _check_count(operation: str, what: str, count: int, wanted: int) -> None:
    if count != wanted:
        raise refuse(operation, "%s has %d elements and needs %d" % (what, count, wanted))


class _Arrays:
    """Sizes and places of pieces for weft_call_t, as C has them."""

    def __init__(self, operation: str, ranks: int):
        self.operation = operation
        self.ranks = ranks
        self.fields: Dict[str, Any] = {}

    def add(self, name: str, values: Numbers, factor: int) -> None:
        if values is not None:  # whoever counts nothing may lie anywhere; it does not leave C's numbers
            self.fields[name] = (c_size_t * self.ranks)(*[min(value * factor, _checks.U64_MAX) for value in values])

    def add_side(self, side: str, counts: Numbers, places: Numbers, kind: Kind, room: int) -> None:
        """The pieces of one array, which has `room` elements; refuses pieces that lie outside of it."""
        if places is not None and counts is None:
            raise refuse(self.operation, "%s_places need %s_counts" % (side, side))
        self.add(side + "_counts", counts, kind.move_factor)
        self.add(side + "_places", places, kind.move_factor)
        if counts is not None:
            begins = places if places is not None else [0] + list(accumulate(counts))
            ends = max(begin + count if count else 0 for begin, count in zip(begins, counts))
            if ends > room:
                raise refuse(self.operation, "the pieces of `%s` end at element %d, it has %d" % (side, ends, room))


Call = Tuple[tuple, Any, Any, Optional[Dict[str, Any]]]  # arguments, result, keep, fields of weft_call_t beyond them


class Collectives(Generic[Result]):
    """What Comm, Comm.begin and Comm.prepare have in common.

    Arrays must be contiguous; nothing is copied behind your back. `timeout` (seconds) and `algorithm` are of this call
    alone. counts and places (elements, one per rank) are for pieces of different sizes.
    """

    def _comm(self) -> Comm:
        raise NotImplementedError

    def _do(self, operation: str, call: Call) -> Result:
        raise NotImplementedError

    def allreduce(self, array: Array, out: Optional[Array] = None, op: str = "sum", *, scale: Optional[float] = None,
                  timeout: Optional[float] = None, algorithm: Optional[str] = None) -> Result:
        """Reduces over all ranks, to all ranks, and returns out; in place when out is None.

        op: sum, prod, min, max, avg, band, bor, bxor. scale: every input is multiplied by it, then summed."""
        address, count, kind, keep = describe(array, out is None)
        into, into_keep, result = address, None, array
        if out is not None:
            into, into_count, into_kind, into_keep = describe(out, True)
            _check_same("allreduce", kind, into_kind)
            _check_count("allreduce", "out", into_count, count)
            result = out
        code = _op_code("allreduce", op, kind)
        fields = None
        if scale is not None or timeout is not None or algorithm is not None:
            code, fields = _spelled_out("allreduce", code, scale, timeout, algorithm)
        return self._do("allreduce", ((address, into, count, kind.code, code), result, (keep, into_keep), fields))

    def reduce(self, array: Array, out: Optional[Array] = None, op: str = "sum", root: int = 0, *,
               scale: Optional[float] = None, timeout: Optional[float] = None,
               algorithm: Optional[str] = None) -> Result:
        """As allreduce(), but only root's out is written (root's array when out is None)."""
        comm = self._comm()
        root = _checks.rank("reduce", "root", root, comm.ranks)
        is_root = comm.rank == root
        address, count, kind, keep = describe(array, is_root and out is None)
        into, into_keep, result = address, None, array
        if is_root and out is not None:
            into, into_count, into_kind, into_keep = describe(out, True)
            _check_same("reduce", kind, into_kind)
            _check_count("reduce", "out", into_count, count)
            result = out
        code, fields = _spelled_out("reduce", _op_code("reduce", op, kind), scale, timeout, algorithm)
        arguments = (address, into if is_root else None, count, kind.code, code, root)
        return self._do("reduce", (arguments, result, (keep, into_keep), fields))

    def reduce_scatter(self, array: Array, out: Optional[Array] = None, op: str = "sum", *, counts: Counts = None,
                       places: Counts = None, scale: Optional[float] = None, timeout: Optional[float] = None,
                       algorithm: Optional[str] = None) -> Result:
        """Reduces over all ranks; rank r gets the r-th of `ranks` equal pieces, in out. counts, places: of the pieces.
        When out is None it is made, for numpy and torch: the first dimension divided by the ranks."""
        comm = self._comm()
        counts, places = _pieces("reduce_scatter", comm, counts, places)
        address, count, kind, keep = describe(array, False)
        piece = _piece("reduce_scatter", comm, count, counts)
        if out is None:
            out = make_empty(array, _part_shape(array, comm.ranks, piece, counts), "reduce_scatter")
        into, into_count, into_kind, into_keep = describe(out, True)
        _check_same("reduce_scatter", kind, into_kind)
        _check_count("reduce_scatter", "out", into_count, piece)
        code, fields = _spelled_out("reduce_scatter", _op_code("reduce_scatter", op, kind), scale, timeout, algorithm)
        arrays = _Arrays("reduce_scatter", comm.ranks)
        arrays.add_side("in", counts, places, kind, count)
        return self._do("reduce_scatter", ((address, into, piece, kind.code, code), out, (keep, into_keep),
                                           _merged(fields, arrays)))

    def allgather(self, array: Array, out: Optional[Array] = None, *, counts: Counts = None, places: Counts = None,
                  timeout: Optional[float] = None, algorithm: Optional[str] = None) -> Result:
        """Every rank's array, one after another in rank order, in everybody's out. counts, places: of the pieces.
        When out is None it is made, for numpy and torch: one more dimension in front."""
        comm = self._comm()
        counts, places = _pieces("allgather", comm, counts, places)
        address, count, kind, keep = describe(array, False)
        if out is None:
            out = make_empty(array, _whole_shape(array, comm.ranks, counts), "allgather")
        into, into_count, into_kind, into_keep = describe(out, True)
        _check_same("allgather", kind, into_kind)
        arrays = _Arrays("allgather", comm.ranks)
        _check_gathered("allgather", comm, count, into_count, counts)
        arrays.add_side("out", counts, places, kind, into_count)
        _, fields = _spelled_out("allgather", 0, None, timeout, algorithm)
        return self._do("allgather", (_moved(address, into, count, kind), out, (keep, into_keep),
                                      _merged(fields, arrays)))

    def gather(self, array: Array, out: Optional[Array] = None, root: int = 0, *, counts: Counts = None,
               places: Counts = None, timeout: Optional[float] = None, algorithm: Optional[str] = None) -> Result:
        """As allgather(), but only root's out is written; the others need none and get None. counts, places: of the
        pieces, which root alone says."""
        comm = self._comm()
        root = _checks.rank("gather", "root", root, comm.ranks)
        address, count, kind, keep = describe(array, False)
        _, fields = _spelled_out("gather", 0, None, timeout, algorithm)
        if comm.rank != root:
            return self._do("gather", (_moved(address, None, count, kind) + (root,), None, keep, fields))
        counts, places = _pieces("gather", comm, counts, places)
        if out is None:
            out = make_empty(array, _whole_shape(array, comm.ranks, counts), "gather")
        into, into_count, into_kind, into_keep = describe(out, True)
        _check_same("gather", kind, into_kind)
        _check_gathered("gather", comm, count, into_count, counts)
        arrays = _Arrays("gather", comm.ranks)
        arrays.add_side("out", counts, places, kind, into_count)
        return self._do("gather", (_moved(address, into, count, kind) + (root,), out, (keep, into_keep),
                                   _merged(fields, arrays)))

    def scatter(self, array: Optional[Array], out: Optional[Array] = None, root: int = 0, *, counts: Counts = None,
                places: Counts = None, timeout: Optional[float] = None, algorithm: Optional[str] = None) -> Result:
        """Rank r's out becomes the r-th of `ranks` equal pieces of root's array; the others pass None as array. counts,
        places: of the pieces, which root alone says. out may be None on root, for numpy and torch."""
        comm = self._comm()
        root = _checks.rank("scatter", "root", root, comm.ranks)
        address, keep, kind, arrays = None, None, None, _Arrays("scatter", comm.ranks)
        if comm.rank == root:
            if array is None:
                raise refuse("scatter", "root needs the array that is scattered")
            counts, places = _pieces("scatter", comm, counts, places)
            address, count, kind, keep = describe(array, False)
            piece = _piece("scatter", comm, count, counts)
            arrays.add_side("in", counts, places, kind, count)
            if out is None:
                out = make_empty(array, _part_shape(array, comm.ranks, piece, counts), "scatter")
        elif out is None:
            raise refuse("scatter", "a rank that is not root needs `out`")
        into, into_count, into_kind, into_keep = describe(out, True)
        if kind is not None:
            _check_same("scatter", kind, into_kind)
            _check_count("scatter", "out", into_count, piece)
        _, fields = _spelled_out("scatter", 0, None, timeout, algorithm)
        return self._do("scatter", (_moved(address, into, into_count, into_kind) + (root,), out, (keep, into_keep),
                                    _merged(fields, arrays)))

    def broadcast(self, array: Array, root: int = 0, *, timeout: Optional[float] = None,
                  algorithm: Optional[str] = None) -> Result:
        """root's array to everybody's array, in place; returns it."""
        comm = self._comm()
        root = _checks.rank("broadcast", "root", root, comm.ranks)
        is_root = comm.rank == root
        address, count, kind, keep = describe(array, not is_root)
        _, fields = _spelled_out("broadcast", 0, None, timeout, algorithm)
        return self._do("broadcast", (_moved(address if is_root else None, address, count, kind) + (root,), array, keep,
                                      fields))

    def alltoall(self, array: Array, out: Optional[Array] = None, *, counts: Counts = None, places: Counts = None,
                 out_counts: Counts = None, out_places: Counts = None, timeout: Optional[float] = None,
                 algorithm: Optional[str] = None) -> Result:
        """Piece q of rank r's array becomes piece r of rank q's out. counts, places: of this rank's array, out_counts,
        out_places: of its out, for pieces of different sizes (give both counts). When out is None it is made, for numpy
        and torch, as large as the array."""
        comm = self._comm()
        if (counts is None) != (out_counts is None):
            raise refuse("alltoall", "give both counts and out_counts, or none")
        counts, places = _pieces("alltoall", comm, counts, places)
        out_counts, out_places = _pieces("alltoall", comm, out_counts, out_places, "out_")
        address, count, kind, keep = describe(array, False)
        if out is None:
            shape = tuple(array.shape) if out_counts is None else (sum(out_counts),)
            out = make_empty(array, shape, "alltoall")
        into, into_count, into_kind, into_keep = describe(out, True)
        _check_same("alltoall", kind, into_kind)
        piece = _piece("alltoall", comm, count, counts)
        if counts is None:
            _check_count("alltoall", "out", into_count, count)
        arrays = _Arrays("alltoall", comm.ranks)
        arrays.add_side("in", counts, places, kind, count)
        arrays.add_side("out", out_counts, out_places, kind, into_count)
        _, fields = _spelled_out("alltoall", 0, None, timeout, algorithm)
        return self._do("alltoall", (_moved(address, into, piece, kind), out, (keep, into_keep),
                                     _merged(fields, arrays)))

    def barrier(self, *, timeout: Optional[float] = None) -> Result:
        """Returns when every rank has come."""
        return self._do("barrier", ((), None, None, _spelled_out("barrier", 0, None, timeout, None)[1]))


def _moved(address: Optional[int], into: Optional[int], count: int, kind: Kind) -> tuple:
    return address, into, count * kind.move_factor, kind.move_code


def _spelled_out(operation: str, code: int, scale: Optional[float], timeout: Optional[float],
                 algorithm: Optional[str]) -> Tuple[int, Optional[Dict[str, Any]]]:
    """The op's code and the fields of weft_call_t for what the plain functions have no argument for."""
    fields: Dict[str, Any] = {}
    if scale is not None:
        if code not in (OPS["sum"], SCALED):
            raise refuse(operation, "scale is for sums")
        code, fields["scale"] = SCALED, _factor(operation, scale)
    if timeout is not None:
        fields["timeout_ms"] = limit(timeout)
    if algorithm is not None:
        fields["algorithm"] = _checks.text(operation, "algorithm", algorithm)
    return code, fields or None


def _factor(operation: str, scale: Any) -> float:
    try:
        return float(scale)
    except (TypeError, ValueError, OverflowError):
        raise refuse(operation, "scale is a %s; it must be a number" % type(scale).__name__) from None


def _merged(fields: Optional[Dict[str, Any]], arrays: _Arrays) -> Optional[Dict[str, Any]]:
    return dict(fields or {}, **arrays.fields) if arrays.fields else fields


def _pieces(operation: str, comm: Comm, counts: Counts, places: Counts, side: str = "") -> Tuple[Numbers, Numbers]:
    return (numbers(operation, side + "counts", counts, comm.ranks),
            numbers(operation, side + "places", places, comm.ranks))


def _piece(operation: str, comm: Comm, count: int, counts: Numbers) -> int:
    """Elements of this rank's piece of an array of `count`."""
    if counts is not None:
        return counts[comm.rank]
    if count % comm.ranks != 0:
        raise refuse(operation, "%d elements cannot be divided among %d ranks; give counts" % (count, comm.ranks))
    return count // comm.ranks


def _check_gathered(operation: str, comm: Comm, count: int, into_count: int, counts: Numbers) -> None:
    if counts is None:
        _check_count(operation, "out", into_count, comm.ranks * count)
    elif counts[comm.rank] != count:
        raise refuse(operation, "counts says %s; this rank, %d of %d, has %d elements"
                     % (counts, comm.rank, comm.ranks, count))


def _whole_shape(array: Array, ranks: int, counts: Numbers) -> Tuple[int, ...]:
    """Of what is gathered from arrays like this one."""
    if counts is not None:
        return (sum(counts),)
    return (ranks,) + tuple(getattr(array, "shape", ()))


def _part_shape(array: Array, ranks: int, piece: int, counts: Numbers) -> Tuple[int, ...]:
    """Of one rank's part: the first dimension is divided when it can be."""
    shape: List[int] = list(getattr(array, "shape", ()))
    if counts is not None or not shape or shape[0] % ranks != 0:
        return (piece,)
    return (shape[0] // ranks,) + tuple(shape[1:])
