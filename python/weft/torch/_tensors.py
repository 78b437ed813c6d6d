# SPDX-License-Identifier: Apache-2.0
"""What Weft is told of a tensor: its dtype, the reduction, and memory that lies in one piece.

A tensor whose elements do not lie one after another is copied: before the call if it is read, after it if it is written
(`after` collects those pairs; the work copies them when the operation has ended).
"""
import torch
import torch.distributed as dist

from .. import _capi as c
from ._errors import ArgumentError

# dtype: (Weft's dtype, its elements per element). By name: some came with later versions of torch.
REDUCED = {getattr(torch, name): (dtype, elements) for name, dtype, elements in (
    ("int8", c.WEFT_I8, 1), ("uint8", c.WEFT_U8, 1), ("bool", c.WEFT_U8, 1),
    ("int16", c.WEFT_I16, 1), ("uint16", c.WEFT_U16, 1), ("int32", c.WEFT_I32, 1), ("uint32", c.WEFT_U32, 1),
    ("int64", c.WEFT_I64, 1), ("uint64", c.WEFT_U64, 1),
    ("float16", c.WEFT_F16, 1), ("bfloat16", c.WEFT_BF16, 1), ("float32", c.WEFT_F32, 1), ("float64", c.WEFT_F64, 1),
    ("float8_e4m3fn", c.WEFT_F8E4M3, 1), ("float8_e5m2", c.WEFT_F8E5M2, 1),
    ("complex64", c.WEFT_F32, 2), ("complex128", c.WEFT_F64, 2)) if hasattr(torch, name)}

_Kind = type(dist.ReduceOp.SUM)
# By hash: it is the number of the operation, of a ReduceOp as of its kind, and the quickest thing to ask for.
OPS = {hash(kind): op for kind, op in {
    _Kind.SUM: c.WEFT_SUM, _Kind.AVG: c.WEFT_AVG, _Kind.PRODUCT: c.WEFT_PROD, _Kind.MIN: c.WEFT_MIN,
    _Kind.MAX: c.WEFT_MAX, _Kind.BAND: c.WEFT_BAND, _Kind.BOR: c.WEFT_BOR, _Kind.BXOR: c.WEFT_BXOR,
    _Kind.PREMUL_SUM: c.WEFT_SCALED,
}.items()}
# A bool stays 0 or 1: a sum is "any of them", a product "all of them".
_BOOL_OPS = {
    c.WEFT_SUM: c.WEFT_MAX, c.WEFT_PROD: c.WEFT_MIN, c.WEFT_MIN: c.WEFT_MIN, c.WEFT_MAX: c.WEFT_MAX,
    c.WEFT_BAND: c.WEFT_BAND, c.WEFT_BOR: c.WEFT_BOR, c.WEFT_BXOR: c.WEFT_BXOR,
}
_BITWISE = (c.WEFT_BAND, c.WEFT_BOR, c.WEFT_BXOR)
_LINEAR = (c.WEFT_SUM, c.WEFT_AVG, c.WEFT_SCALED)  # what may be done to both parts of a complex number


def moved(tensor):
    """(Weft's dtype, elements) of a tensor that is only copied: any dtype, at worst as bytes."""
    known = REDUCED.get(tensor.dtype)
    if known is None:
        return c.WEFT_U8, tensor.numel() * tensor.element_size()
    return known[0], tensor.numel() * known[1]


def reduced(tensor, reduce_op):
    """(Weft's dtype, elements, Weft's op, scale or None) of a tensor that is reduced."""
    dtype = tensor.dtype
    known = REDUCED.get(dtype)
    if known is None:
        raise ArgumentError("tensors of %s cannot be reduced; convert them to a dtype of integers or floats" % dtype)
    op = OPS.get(hash(reduce_op))
    if op is None:
        raise ArgumentError("there is no reduction %s in Weft" % (_name(reduce_op)))
    if op == c.WEFT_SUM and dtype is torch.float32:  # the usual one, without further questions
        return c.WEFT_F32, tensor.numel(), op, None
    op, scale = _checked_op(op, _name(reduce_op), dtype, reduce_op)
    return known[0], tensor.numel() * known[1], op, scale


def _name(reduce_op):
    return (reduce_op.op if isinstance(reduce_op, dist.ReduceOp) else reduce_op).name


def _checked_op(op, kind, dtype, reduce_op):
    if dtype is torch.bool:
        if op not in _BOOL_OPS:
            raise ArgumentError("%s of bool tensors means nothing; convert them to an integer or float dtype" % kind)
        return _BOOL_OPS[op], None
    if op in _BITWISE and (dtype.is_floating_point or dtype.is_complex):
        raise ArgumentError("%s needs integers or bool, not %s" % (kind, dtype))
    if dtype.is_complex and op not in _LINEAR:
        raise ArgumentError("%s of complex tensors is not supported" % kind)
    if op != c.WEFT_SCALED:
        return op, None
    if not (dtype.is_floating_point or dtype.is_complex):
        raise ArgumentError("PREMUL_SUM needs floats, not %s" % dtype)
    factor = reduce_op.__getstate__()[1]
    if isinstance(factor, torch.Tensor) and factor.numel() != 1:
        raise ArgumentError("PREMUL_SUM takes one factor, not a tensor of %d" % factor.numel())
    return op, float(factor)


def is_dense(tensor):
    """Its elements lie one after another, as they are meant."""
    return (tensor.layout is torch.strided and tensor.is_contiguous()
            and not tensor.is_neg() and not tensor.is_conj())


def source(tensor):
    """The tensor, or a dense copy to read from."""
    if is_dense(tensor):
        return tensor
    _check_strided(tensor)
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


def target(tensor, after):
    """The tensor, or dense memory to write to, from where it is copied afterwards."""
    if is_dense(tensor):
        return tensor
    _check_writable(tensor)
    dense = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    after.append((tensor, dense))
    return dense


def both(tensor, after):
    """The tensor, or a dense copy that is copied back afterwards."""
    if is_dense(tensor):
        return tensor
    _check_writable(tensor)
    dense = source(tensor)
    after.append((tensor, dense))
    return dense


def _check_strided(tensor):
    if tensor.layout is not torch.strided:
        raise ArgumentError("tensors of layout %s are not supported; use tensor.to_dense()" % tensor.layout)


def _check_writable(tensor):
    _check_strided(tensor)
    if any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape)):
        raise ArgumentError("several elements of an expanded tensor are one place in memory, which cannot be written "
                            "to; use tensor.clone()")


def _lie_in_a_row(tensors):
    end = None
    storage = None
    for tensor in tensors:
        if not is_dense(tensor):
            return False
        if end is None:
            storage = tensor.untyped_storage().data_ptr()
        elif tensor.data_ptr() != end or tensor.untyped_storage().data_ptr() != storage:
            return False
        end = tensor.data_ptr() + tensor.numel() * tensor.element_size()
    return all(tensor.numel() for tensor in tensors)


def flat_source(tensors):
    """One tensor that begins with all elements of these: the first of them where they lie in a row, else a copy."""
    if _lie_in_a_row(tensors):
        return tensors[0]
    for tensor in tensors:
        _check_strided(tensor)
    return torch.cat([tensor.detach().resolve_conj().resolve_neg().reshape(-1) for tensor in tensors])


def flat_target(tensors, after):
    """Memory for all elements of these, one after another, and from there to them afterwards."""
    if _lie_in_a_row(tensors):
        return tensors[0]
    first = tensors[0]
    for tensor in tensors:
        _check_writable(tensor)
    flat = torch.empty(sum(tensor.numel() for tensor in tensors), dtype=first.dtype, device=first.device)
    at = 0
    for tensor in tensors:
        after.append((tensor, flat[at:at + tensor.numel()].view(tensor.shape)))
        at += tensor.numel()
    return flat


def flat_copy(first, count):
    """Of `count` elements that lie in a row and begin with those of a tensor."""
    return first.detach().as_strided((count,), (1,)).clone()


def address(tensor):
    at = tensor.data_ptr()
    return at if at or not tensor.numel() else no_memory(tensor)


def no_memory(tensor):
    raise ArgumentError("a %s has no memory of its own to send or to write to; give the tensor in it (of a DTensor: "
                        "to_local())" % type(tensor).__name__)


def copy_back(pairs, non_blocking=False):
    """[(tensor, dense memory)]. Whoever made a tensor in inference mode may have left it meanwhile, or be another
    thread."""
    for tensor, dense in pairs:
        with torch.inference_mode() if tensor.is_inference() else torch.no_grad():
            tensor.copy_(dense, non_blocking=non_blocking)


def counts(sizes, factor):
    """A C array of element counts; factor: Weft's elements per element."""
    return (c.c_size_t * len(sizes))(*[size * factor for size in sizes])


def check_same(tensors, what):
    """All of one dtype, on one device."""
    first = check_one_device(tensors, what)
    for tensor in tensors:
        if tensor.dtype is not first.dtype:
            raise ArgumentError("%s: tensors of %s and %s in one call" % (what, first.dtype, tensor.dtype))
    return first


def check_one_device(tensors, what):
    """The first of them: where it lies they all lie."""
    if not tensors:
        raise ArgumentError("%s: no tensors were given" % what)
    first = tensors[0]
    for tensor in tensors:
        if tensor.device != first.device:
            raise ArgumentError("%s: tensors on %s and %s in one call" % (what, first.device, tensor.device))
    return first
