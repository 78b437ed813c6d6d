/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the peers' programs share (C11 and C++17): they wait for orders, time one collective, check every
 * element and answer. bench/compare.py keeps one job of each peer alive and asks them in turn, cell by cell,
 * so that whatever the machine does meanwhile hits all alike. Between orders every rank sleeps (rank 0 in
 * read(), the others on a futex): who is not asked uses no CPU.
 *
 *   order    <op> <bytes> <time ms> batch|single
 *   answer   <op> <ranks> <bytes> <p50 us> <p99 us> <min us> <samples> <iterations each> <wrong elements>
 *            or "<op> no: why"
 *
 * Time is taken as `weft bench` does: batches back to back, the mean per iteration of each rank, of each batch
 * the slowest rank's; single: every operation by itself, again the slowest rank's. Bytes follow nccl-tests:
 * the buffer of allreduce and broadcast, the whole send buffer of reduce_scatter and alltoall, the whole receive
 * buffer of allgather. Float32, sum; broadcast rotates its root and has one buffer per rank.
 */
#ifndef WEFT_BENCH_PEER_H
#define WEFT_BENCH_PEER_H

#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PEER_RANKS_MAX 64
#define PEER_SAMPLES_MAX 4096
#define PEER_BATCHES_MAX 100
#define PEER_BATCH_S 0.010 /* the rule of cli/bench_coll_plan.c, in the same numbers */
#define PEER_ITERS_MIN 3
#define PEER_ITERS_MAX 5000
#define PEER_LONG_S 2.0
#define PEER_COLD_S 0.020
#define PEER_WARM_S 0.02
#define PEER_WARM_MAX 1000
#define PEER_WARM_TRIES 3
#define PEER_FIRST 4 /* samples before it are those of the warm-up */
#define PEER_ONCE_BYTES ((size_t)8 << 20)
#define PEER_PERIOD 1009 /* of the data: prime, so that pieces in a wrong place are seen */

enum peer_kind {
    PEER_ALLREDUCE,
    PEER_REDUCE_SCATTER,
    PEER_ALLGATHER,
    PEER_BROADCAST,
    PEER_ALLTOALL,
    PEER_BARRIER
};

/* In a file that all ranks map. */
struct peer_shared {
    uint32_t order; /* the futex: which order is the latest */
    int is_over, is_single;
    char op[32];
    size_t bytes;
    double time_s;
    uint64_t wrong;
    uint64_t sample_ps[PEER_SAMPLES_MAX];
};

/* One way of one library to do one collective. */
struct peer_op {
    const char *name; /* "allreduce", "allreduce_hd" */
    enum peer_kind kind;
    int is_in_place; /* works on `out` alone */
};

struct peer_cell {
    const struct peer_op *op;
    size_t whole, piece; /* elements of the buffer, and of one rank's part of it */
};

/* The library: how many and which of its ranks we are, its ways, and how to run them. */
struct peer {
    int rank, ranks;
    const struct peer_op *ops;
    int op_count;
    void (*barrier)(void);
    int (*prepare)(const struct peer_cell *cell); /* 0: it cannot do that */
    void (*run)(const struct peer_cell *cell);
    struct peer_shared *shared;
    float *in, *out;
    size_t room; /* bytes of each */
    int root;    /* of the broadcast just done; it turns, so that no rank runs ahead */
};

static struct peer peer;

static double peer_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void peer_die(const char *what)
{
    fprintf(stderr, "rank %d: %s\n", peer.rank, what);
    exit(4);
}

/* Nobody outlives the one who started us. */
static void peer_die_with_parent(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
}

static void peer_map(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)sizeof(struct peer_shared)) != 0) {
        peer_die("cannot open the shared file");
    }
    void *map = mmap(NULL, sizeof(struct peer_shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
        peer_die("cannot map the shared file");
    }
    close(fd);
    peer.shared = (struct peer_shared *)map;
}

/* ---- data ---- */

static float peer_value(int rank, size_t index)
{
    return (float)((size_t)(rank + 1) * (1 + index % PEER_PERIOD % 97));
}

/* Grown when a larger cell comes; pages are there, and read and written, before any clock. */
static void peer_take_buffers(size_t bytes)
{
    if (bytes <= peer.room) {
        return;
    }
    free(peer.in);
    free(peer.out);
    peer.room = bytes < 4096 ? 4096 : bytes;
    if (posix_memalign((void **)&peer.in, 4096, peer.room) != 0 ||
        posix_memalign((void **)&peer.out, 4096, peer.room) != 0) {
        peer_die("no memory for the buffers");
    }
    for (size_t i = 0; i < peer.room / sizeof(float); i++) {
        peer.in[i] = peer_value(peer.rank, i);
    }
}

static uint64_t peer_differ(const float *data, size_t count, float factor, size_t first)
{
    uint64_t wrong = 0;
    for (size_t i = 0; i < count; i++) {
        wrong += data[i] != factor * (float)(1 + (first + i) % PEER_PERIOD % 97);
    }
    return wrong;
}

static uint64_t peer_check(const struct peer_cell *cell)
{
    float sum = (float)peer.ranks * (float)(peer.ranks + 1) / 2;
    size_t mine = (size_t)peer.rank * cell->piece;
    uint64_t wrong = 0;
    switch (cell->op->kind) {
    case PEER_ALLREDUCE:
        return peer_differ(peer.out, cell->whole, sum, 0);
    case PEER_REDUCE_SCATTER:
        return peer_differ(peer.out, cell->piece, sum, mine);
    case PEER_BROADCAST:
        return peer.rank == peer.root
                   ? 0
                   : peer_differ(peer.out, cell->whole, (float)(peer.root + 1), 0);
    case PEER_ALLGATHER:
    case PEER_ALLTOALL:
        for (int from = 0; from < peer.ranks; from++) {
            wrong += peer_differ(peer.out + (size_t)from * cell->piece, cell->piece,
                                 (float)(from + 1), cell->op->kind == PEER_ALLTOALL ? mine : 0);
        }
        return wrong;
    default:
        return 0;
    }
}

/* ---- time ---- */

static void peer_keep_slowest(uint64_t *sample, double seconds)
{
    uint64_t mine = (uint64_t)(seconds * 1e12), seen = __atomic_load_n(sample, __ATOMIC_RELAXED);
    while (seen < mine && !__atomic_compare_exchange_n(sample, &seen, mine, 0, __ATOMIC_SEQ_CST,
                                                       __ATOMIC_RELAXED)) {
    }
}

/* One batch; its slowest rank's mean goes to the sample. */
static void peer_batch(const struct peer_cell *cell, int iters, uint64_t *sample)
{
    peer.barrier();
    double begin = peer_now();
    for (int i = 0; i < iters; i++) {
        peer.run(cell);
    }
    peer_keep_slowest(sample, (peer_now() - begin) / iters);
    peer.barrier();
}

static int peer_clamp(double value, int least, int most)
{
    return value < least ? least : value > most ? most : (int)value;
}

/* Until a batch has lasted: the first ones find everything cold, any may meet other work. */
static double peer_estimate(const struct peer_cell *cell)
{
    double best = 1e9;
    int count = cell->whole * sizeof(float) >= PEER_ONCE_BYTES ? 1 : PEER_ITERS_MIN;
    if (cell->op->kind == PEER_BROADCAST && count < peer.ranks) {
        count = peer.ranks; /* every root */
    }
    for (int tries = 0;; tries++) {
        uint64_t *sample = &peer.shared->sample_ps[tries];
        peer_batch(cell, count, sample);
        double seconds = (double)(*sample > 0 ? *sample : 1) / 1e12;
        best = seconds < best ? seconds : best;
        if (tries >= PEER_WARM_TRIES || (tries > 0 && count >= PEER_WARM_MAX) ||
            count * best >= (tries > 0 ? PEER_WARM_S / 2 : PEER_COLD_S)) {
            return best;
        }
        count = peer_clamp(PEER_WARM_S / best, PEER_ITERS_MIN, PEER_WARM_MAX);
    }
}

static void peer_singles(const struct peer_cell *cell, int count, uint64_t *samples)
{
    static double own[PEER_SAMPLES_MAX];
    peer.barrier();
    double before = peer_now();
    for (int i = 0; i < count; i++) {
        peer.run(cell);
        double now = peer_now();
        own[i] = now - before;
        before = now;
    }
    for (int i = 0; i < count; i++) {
        peer_keep_slowest(&samples[i], own[i]);
    }
    peer.barrier();
}

static int peer_compare(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

static void peer_answer(const struct peer_cell *cell, uint64_t *samples, int count, int iters)
{
    qsort(samples, (size_t)count, sizeof(samples[0]), peer_compare);
    double p50 = ((double)samples[(count - 1) / 2] + (double)samples[count / 2]) / 2;
    printf("%s %d %zu %.4f %.4f %.4f %d %d %llu\n", cell->op->name, peer.ranks,
           cell->whole * sizeof(float), p50 / 1e6,
           (double)samples[(count * 99 + 99) / 100 - 1] / 1e6, (double)samples[0] / 1e6, count,
           iters, (unsigned long long)peer.shared->wrong);
    fflush(stdout);
}

static void peer_measure(const struct peer_cell *cell)
{
    struct peer_shared *shared = peer.shared;
    size_t bytes = cell->whole * sizeof(float);
    memset(peer.out, 0, peer.room < bytes ? peer.room : bytes);
    double seconds = peer_estimate(cell);
    int iters = peer_clamp(PEER_BATCH_S / seconds, PEER_ITERS_MIN, PEER_ITERS_MAX);
    iters = iters * seconds > PEER_LONG_S ? 1 : iters;
    int count = peer_clamp(shared->time_s / (iters * seconds), 1, PEER_BATCHES_MAX);
    if (shared->is_single) {
        count = peer_clamp(shared->time_s / seconds, 10, PEER_SAMPLES_MAX - PEER_FIRST);
        iters = 1;
        peer_singles(cell, count, shared->sample_ps + PEER_FIRST);
    }
    for (int i = 0; i < count && !shared->is_single; i++) {
        peer_batch(cell, iters, &shared->sample_ps[PEER_FIRST + i]);
    }
    if (cell->op->is_in_place) { /* timed on zeros, which stay zeros; once more for the check */
        memcpy(peer.out, peer.in, bytes);
        peer.barrier();
        peer.run(cell);
    }
    __atomic_fetch_add(&shared->wrong, peer_check(cell), __ATOMIC_SEQ_CST);
    peer.barrier();
    if (peer.rank == 0) {
        peer_answer(cell, shared->sample_ps + PEER_FIRST, count, iters);
    }
}

/* ---- orders ---- */

static int peer_read_order(void)
{
    struct peer_shared *shared = peer.shared;
    static char line[128];
    char word[16];
    double time_ms;
    if (fgets(line, sizeof(line), stdin) == NULL ||
        sscanf(line, "%31s %zu %lf %15s", shared->op, &shared->bytes, &time_ms, word) != 4) {
        return 0;
    }
    shared->time_s = time_ms / 1e3;
    shared->is_single = strcmp(word, "single") == 0;
    shared->wrong = 0;
    memset(shared->sample_ps, 0, sizeof(shared->sample_ps));
    return 1;
}

static void peer_obey(void)
{
    struct peer_cell cell = {NULL, 0, 0};
    for (int i = 0; i < peer.op_count; i++) {
        if (strcmp(peer.ops[i].name, peer.shared->op) == 0) {
            cell.op = &peer.ops[i];
        }
    }
    if (cell.op != NULL && cell.op->kind != PEER_BARRIER) {
        int is_cut = cell.op->kind != PEER_ALLREDUCE && cell.op->kind != PEER_BROADCAST;
        cell.whole = peer.shared->bytes / sizeof(float);
        cell.piece = cell.whole / (size_t)peer.ranks;
        if (is_cut) {
            cell.piece = cell.piece > 0 ? cell.piece : 1;
            cell.whole = cell.piece * (size_t)peer.ranks;
        }
    }
    peer_take_buffers(cell.whole * sizeof(float) + 1);
    if (cell.op == NULL || !peer.prepare(&cell)) {
        if (peer.rank == 0) {
            printf("%s no: not offered\n", peer.shared->op);
            fflush(stdout);
        }
        return;
    }
    peer_measure(&cell);
}

/* Until rank 0's stdin ends. */
static void peer_serve(void)
{
    struct peer_shared *shared = peer.shared;
    for (uint32_t seen = 0;; seen++) {
        if (peer.rank == 0) {
            shared->is_over = !peer_read_order();
            __atomic_fetch_add(&shared->order, 1, __ATOMIC_SEQ_CST);
            syscall(SYS_futex, &shared->order, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
        }
        while (__atomic_load_n(&shared->order, __ATOMIC_SEQ_CST) == seen) {
            syscall(SYS_futex, &shared->order, FUTEX_WAIT, seen, NULL, NULL, 0);
        }
        if (shared->is_over) {
            return;
        }
        peer_obey();
        peer.barrier(); /* nobody still reads the order when the next one is written */
    }
}

#endif
