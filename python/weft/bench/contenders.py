# SPDX-License-Identifier: Apache-2.0
"""Who takes part: Weft as Python programs call it, and Gloo through torch.distributed. Each gives, per operation and
size, a call to time and a check of what it computes."""
import numpy

FLOAT = "float32"


def fill(array, rank):
    """A rank's input; sums of it over any number of ranks below a million are exact."""
    array[:] = (numpy.arange(array.size) % 7 + rank) % 16


def filled(count, rank):
    array = numpy.zeros(count, FLOAT)
    fill(array, rank)
    return array


def wanted(op, count, rank, ranks):
    """What the output must hold, by plain arithmetic."""
    inputs = [filled(count // ranks if op == "allgather" else count, each) for each in range(ranks)]
    piece = slice(rank * (count // ranks), (rank + 1) * (count // ranks))
    if op == "broadcast":
        return inputs[0]
    if op == "allgather":
        return numpy.concatenate(inputs)
    if op == "alltoall":
        return numpy.concatenate([each[piece] for each in inputs])
    total = sum(inputs)
    return total[piece] if op == "reduce_scatter" else total


class Cell:
    """An operation of one size: its arrays (as numpy sees them), and the call that works on them."""

    def __init__(self, op, comm, source, target, call):
        self.op = op
        self.comm = comm
        self.source = source
        self.target = target
        self.call = call

    def count_wrong(self):
        """Runs it once on numbers that tell errors; afterwards there are zeros again, which stay small when summed."""
        if self.op == "barrier":
            self.call()
            return 0
        fill(self.source, self.comm.rank)
        self.call()
        count = max(self.source.size, self.target.size)
        is_wrong = self.target != wanted(self.op, count, self.comm.rank, self.comm.ranks)
        self.source[:] = 0
        self.target[:] = 0
        return int(is_wrong.sum())


def lengths(op, size, ranks):
    """Elements of the source and of the target; None: in place."""
    count = size // 4
    return {"allreduce": (count, None), "broadcast": (count, None), "allgather": (count // ranks, count),
            "reduce_scatter": (count, count // ranks), "alltoall": (count, count), "barrier": (0, None)}[op]


class Weft:
    """weft.Comm, on tensors where Gloo has tensors, so that both pay for the same arrays."""
    name = "weft"

    def __init__(self, comm, has_torch):
        self.comm = comm
        self.zeros = _torch_zeros if has_torch else lambda count: numpy.zeros(count, FLOAT)

    def cell(self, op, size):
        comm = self.comm
        source_len, target_len = lengths(op, size, comm.ranks)
        source = self.zeros(source_len)
        target = source if target_len is None else self.zeros(target_len)
        calls = {"allreduce": lambda: comm.allreduce(source), "broadcast": lambda: comm.broadcast(source),
                 "allgather": lambda: comm.allgather(source, target),
                 "reduce_scatter": lambda: comm.reduce_scatter(source, target),
                 "alltoall": lambda: comm.alltoall(source, target), "barrier": comm.barrier}
        return Cell(op, comm, _as_numpy(source), _as_numpy(target), calls[op])


class Gloo:
    """torch.distributed with its own backend."""
    name = "gloo"

    def __init__(self, comm, dist):
        import torch

        self.comm = comm
        self.dist = dist
        self.version = "gloo of torch %s" % torch.__version__
        torch.set_num_threads(1)
        # newer names first: the older ones warn
        self.gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        self.reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

    def cell(self, op, size):
        """None: this Gloo cannot do it."""
        dist = self.dist
        source_len, target_len = lengths(op, size, self.comm.ranks)
        source = _torch_zeros(source_len)
        target = source if target_len is None else _torch_zeros(target_len)
        calls = {"allreduce": lambda: dist.all_reduce(source), "broadcast": lambda: dist.broadcast(source, 0),
                 "allgather": lambda: self.gather(target, source),
                 "reduce_scatter": lambda: self.reduce_scatter(target, source),
                 "alltoall": lambda: dist.all_to_all_single(target, source), "barrier": dist.barrier}
        cell = Cell(op, self.comm, _as_numpy(source), _as_numpy(target), calls[op])
        try:
            cell.call()
        except (RuntimeError, NotImplementedError, AttributeError):
            return None
        return cell

    def close(self):
        self.dist.destroy_process_group()


def _torch_zeros(count):
    import torch

    return torch.zeros(count)


def _as_numpy(array):
    return array if isinstance(array, numpy.ndarray) else array.numpy()
