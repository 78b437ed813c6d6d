# SPDX-License-Identifier: Apache-2.0
"""Where the bytes of a call lie while Weft works on them. In host memory: in the tensors themselves, where those lie in
one piece. (CUDA tensors: _cuda.py.)"""
from . import _tensors as t


class HostStage:
    """Dense host memory for the tensors of one call; it lives as long as the stage."""
    is_cuda = False

    def __init__(self):
        self.after = []  # pairs: what is copied to what when the call has ended
        self.kept = []

    def _keep(self, memory):
        self.kept.append(memory)
        return memory

    def source(self, tensor):
        return self._keep(t.source(tensor))

    def target(self, tensor):
        return self._keep(t.target(tensor, self.after))

    def both(self, tensor):
        return self._keep(t.both(tensor, self.after))

    def flat_source(self, tensors):
        return self._keep(t.flat_source(tensors))

    def flat_target(self, tensors):
        return self._keep(t.flat_target(tensors, self.after))

    def apart(self, source, count, at, room, offset=None):
        """The address of a source of `count` elements, or of a copy where the `room` elements written at `at` lie over
        it. offset: where in the source those may begin nevertheless, in elements; None: nowhere."""
        start, size = t.address(source), source.element_size()
        distance = at - start
        if distance >= count * size or -distance >= room * size or offset is not None and distance == offset * size:
            return start
        return self._keep(t.flat_copy(source, count)).data_ptr()


def for_tensor(tensor, group):
    """A stage for tensors like this one."""
    if tensor.is_cpu:
        return HostStage()
    if tensor.is_cuda:
        return group._stager().stage(tensor.device)
    raise t.ArgumentError("tensors on %s are not supported: Weft takes tensors on cpu and cuda" % tensor.device)


def unless_plain(tensor, group):
    """None for a tensor that needs no stage: what is done most often is done without one."""
    if tensor.is_cpu and t.is_dense(tensor):
        return None
    return for_tensor(tensor, group)


def is_long(tensor):
    from . import _cuda
    return _cuda.is_long(tensor)


def pieces(tensor):
    from . import _cuda
    return _cuda.pieces(tensor)
