/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `weft bench p2p` measures, over MPI: the same loops, buffers, clock and medians, so that the
 * difference is the library's. For bench/compare_p2p.py.
 *
 *   mpirun -n 2 mpi_p2p lat|bw BYTES ITERS WARMUP WINDOW     prints "p50_us avg_us" of one message
 */
#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SLOTS_BYTES ((size_t)4 << 20) /* messages in flight share buffers of so much in all */
#define WINDOW_MAX 65536
#define PAGE 4096
enum { TAG_DATA = 1, TAG_ANSWER = 2 };

struct run {
    bool is_lat;
    size_t bytes, slots;
    int iters, warmup, window;
    int rank;
    uint8_t *send, *recv;
    MPI_Request *requests;
    uint64_t *ticks;
};

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

static uint64_t now_ticks(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    return now_ns();
#endif
}

static void bounce(struct run *run)
{
    if (run->rank == 0) {
        MPI_Send(run->send, (int)run->bytes, MPI_BYTE, 1, TAG_DATA, MPI_COMM_WORLD);
    }
    MPI_Recv(run->recv, (int)run->bytes, MPI_BYTE, 1 - run->rank, TAG_DATA, MPI_COMM_WORLD,
             MPI_STATUS_IGNORE);
    if (run->rank == 1) {
        MPI_Send(run->send, (int)run->bytes, MPI_BYTE, 0, TAG_DATA, MPI_COMM_WORLD);
    }
}

static void window(struct run *run)
{
    uint8_t answer = 0;
    for (int i = 0; i < run->window; i++) {
        size_t at = ((size_t)i % run->slots) * run->bytes;
        if (run->rank == 0) {
            MPI_Isend(run->send + at, (int)run->bytes, MPI_BYTE, 1, TAG_DATA, MPI_COMM_WORLD,
                      &run->requests[i]);
        } else {
            MPI_Irecv(run->recv + at, (int)run->bytes, MPI_BYTE, 0, TAG_DATA, MPI_COMM_WORLD,
                      &run->requests[i]);
        }
    }
    MPI_Waitall(run->window, run->requests, MPI_STATUSES_IGNORE);
    if (run->rank == 0) {
        MPI_Recv(&answer, 1, MPI_BYTE, 1, TAG_ANSWER, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Send(&answer, 1, MPI_BYTE, 0, TAG_ANSWER, MPI_COMM_WORLD);
    }
}

static int compare(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

static void report(struct run *run, uint64_t ns, uint64_t ticks)
{
    double us_per_tick = (double)ns / 1e3 / (double)ticks;
    double messages = run->is_lat ? 2 : run->window;
    size_t count = (size_t)run->iters;
    qsort(run->ticks, count, sizeof(run->ticks[0]), compare);
    double p50 = (double)(run->ticks[(count - 1) / 2] + run->ticks[count / 2]) / 2;
    printf("%.6f %.6f\n", p50 * us_per_tick / messages,
           (double)ns / 1e3 / (double)run->iters / messages);
}

static void measure(struct run *run)
{
    void (*once)(struct run *) = run->is_lat ? bounce : window;
    for (int i = 0; i < run->warmup; i++) {
        once(run);
    }
    uint64_t begin_ns = now_ns(), begin = now_ticks(), before = begin;
    for (int i = 0; i < run->iters; i++) {
        once(run);
        uint64_t now = now_ticks();
        run->ticks[i] = now - before;
        before = now;
    }
    uint64_t ns = now_ns() - begin_ns;
    if (run->rank == 0) {
        report(run, ns, before - begin);
    }
}

static void *need(void *memory)
{
    if (memory == NULL) {
        fprintf(stderr, "mpi_p2p: no memory\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return memory;
}

/* Both ranks send the same bytes, so whoever received has what it would have sent. */
static bool is_right(const struct run *run)
{
    bool does_receive = run->is_lat || run->rank == 1;
    return !does_receive || memcmp(run->recv, run->send, run->bytes * run->slots) == 0;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    if (argc != 6) {
        fprintf(stderr, "usage: mpi_p2p lat|bw BYTES ITERS WARMUP WINDOW\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    struct run run = {
        .is_lat = strcmp(argv[1], "lat") == 0,
        .bytes = strtoull(argv[2], NULL, 10),
        .iters = (int)strtol(argv[3], NULL, 10),
        .warmup = (int)strtol(argv[4], NULL, 10),
        .window = (int)strtol(argv[5], NULL, 10),
    };
    if (run.bytes < 1 || run.bytes > INT32_MAX || run.iters < 1 || run.window < 1 ||
        run.window > WINDOW_MAX) {
        fprintf(stderr, "mpi_p2p: numbers out of range\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &run.rank);
    run.slots = SLOTS_BYTES / run.bytes;
    run.slots = run.slots < 1 || run.is_lat ? 1 : run.slots;
    run.slots = run.slots > (size_t)run.window ? (size_t)run.window : run.slots;
    size_t len = (run.bytes * run.slots + PAGE - 1) / PAGE * PAGE;
    run.send = need(aligned_alloc(PAGE, len));
    run.recv = need(aligned_alloc(PAGE, len));
    run.requests = need(calloc((size_t)run.window, sizeof(MPI_Request)));
    run.ticks = need(calloc((size_t)run.iters, sizeof(uint64_t)));
    for (size_t i = 0; i < len; i++) {
        run.send[i] = (uint8_t)(i * 7 + i / 251);
    }
    memset(run.recv, 0, len);
    measure(&run);
    if (!is_right(&run)) {
        fprintf(stderr, "mpi_p2p: wrong bytes at rank %d\n", run.rank);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Finalize();
    return 0;
}
