# SPDX-License-Identifier: Apache-2.0
"""Ranks weave a picture: each one computes every n-th row of the Mandelbrot set and leaves the others empty; one
allreduce lays all threads over each other, and then every rank holds the whole cloth.

    pip install . numpy && weft run -n 4 -- python3 examples/numpy_allreduce.py
    PYTHONPATH=python build/weft run -n 4 -- python3 examples/numpy_allreduce.py     # after `make build`
"""
import sys
import time
import zlib

import numpy

import weft

WIDTH, HEIGHT, ROUNDS = 78, 28, 60
SHADES = " .:-=+*#%@"
COLOURS = (36, 33, 35, 32, 34, 31)  # of a terminal, one per rank


def weave(rank, ranks):
    """This rank's rows: how long each point stays near the origin, as a shade; zeros elsewhere."""
    cloth = numpy.zeros((HEIGHT, WIDTH), "float32")
    rows = numpy.arange(rank, HEIGHT, ranks)
    point = numpy.linspace(-2.1, 0.7, WIDTH)[None, :] + 1j * numpy.linspace(-1.15, 1.15, HEIGHT)[rows, None]
    z = numpy.zeros_like(point)
    stayed = numpy.zeros(point.shape, "float32")
    for _ in range(ROUNDS):
        near = abs(z) < 2
        z[near] = z[near] ** 2 + point[near]
        stayed += near
    cloth[rows] = 9 * (stayed / ROUNDS) ** 0.6
    return cloth


def draw(cloth, ranks):
    """Row by row, in the colour of the rank that wove it where the output is a terminal."""
    for row, line in enumerate(cloth):
        text = "".join(SHADES[int(shade)] for shade in line)
        if sys.stdout.isatty():
            text = "\033[%dm%s\033[0m" % (COLOURS[row % ranks % len(COLOURS)], text)
        print(text)


def main():
    with weft.init() as comm:
        cloth = weave(comm.rank, comm.ranks)
        comm.barrier()
        begin = time.perf_counter()
        comm.allreduce(cloth)  # in place: rows of others are zeros, so the sum is the picture
        microseconds = (time.perf_counter() - begin) * 1e6
        checksums = comm.allgather(numpy.array([zlib.crc32(cloth.tobytes())], "uint32"))
        slowest = comm.allreduce(numpy.array([microseconds]), op="max")[0]
        if comm.rank == 0:
            draw(cloth, comm.ranks)
            is_same = len(set(checksums.ravel().tolist())) == 1
            print("%d ranks wove %d rows and joined them (%.1f KB) in %.0f us; all hold the same picture: %s"
                  % (comm.ranks, HEIGHT, cloth.nbytes / 1e3, slowest, "yes" if is_same else "NO"))


if __name__ == "__main__":
    main()
