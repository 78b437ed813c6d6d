/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank of bench/join_ways.py. All ranks run on this machine, wherever their network is, and
 * share a file: a barrier, the id of the round, and each round's slowest time per way. The ways
 * take turns within a round, so that whatever the machine does meanwhile hits all alike. As in
 * `weft bench bootstrap` the clock runs from the barrier to the return of weft_comm_create();
 * making the id and closing are outside.
 *
 *   join_rank FILE RANK RANKS ROUNDS [WAY…]
 */
#include <weft/weft.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS_MAX 1000
#define WAYS_MAX 4

struct shared {
    _Atomic int is_ready;
    pthread_barrier_t barrier;
    weft_id_t id;
    _Atomic uint64_t slowest_ns[ROUNDS_MAX][WAYS_MAX];
};

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

static void keep_slowest(_Atomic uint64_t *slowest_ns, uint64_t ns)
{
    uint64_t seen = atomic_load(slowest_ns);
    while (seen < ns && !atomic_compare_exchange_weak(slowest_ns, &seen, ns)) {
    }
}

/* The file holds zeros of the right length; rank 0 fills it, the others wait for that. */
static struct shared *share(const char *path, int rank, int ranks)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    int fd = open(path, O_RDWR | O_CLOEXEC | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(struct shared)) != 0) {
        return NULL;
    }
    struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (shared == MAP_FAILED) {
        return NULL;
    }
    if (rank == 0) {
        pthread_barrierattr_t attr;
        pthread_barrierattr_init(&attr);
        pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
        pthread_barrier_init(&shared->barrier, &attr, (unsigned)ranks);
        atomic_store(&shared->is_ready, 1);
    }
    while (!atomic_load(&shared->is_ready)) {
        nanosleep(&pause, NULL);
    }
    return shared;
}

static bool run_once(struct shared *shared, int rank, int ranks, _Atomic uint64_t *slowest_ns)
{
    weft_comm_t comm;
    weft_status_t status = rank == 0 ? weft_id_create(NULL, &shared->id) : WEFT_OK;
    pthread_barrier_wait(&shared->barrier);
    uint64_t begin_ns = now_ns();
    if (status == WEFT_OK) {
        status = weft_comm_create(&shared->id, rank, ranks, NULL, &comm);
    }
    uint64_t end_ns = now_ns();
    if (status != WEFT_OK) {
        fprintf(stderr, "rank %d: %s: %s\n", rank, weft_status_name(status), weft_error_text());
        return false;
    }
    keep_slowest(slowest_ns, end_ns - begin_ns);
    status = weft_control_barrier(comm);
    pthread_barrier_wait(&shared->barrier);
    weft_comm_close(comm);
    pthread_barrier_wait(&shared->barrier);
    return status == WEFT_OK;
}

int main(int argc, char **argv)
{
    int ways = argc - 5;
    if (ways < 1 || ways > WAYS_MAX || (int)strtol(argv[4], NULL, 10) > ROUNDS_MAX) {
        fprintf(stderr, "usage: join_rank FILE RANK RANKS ROUNDS WAY...\n");
        return 2;
    }
    int rank = (int)strtol(argv[2], NULL, 10), ranks = (int)strtol(argv[3], NULL, 10),
        rounds = (int)strtol(argv[4], NULL, 10);
    struct shared *shared = share(argv[1], rank, ranks);
    if (shared == NULL) {
        perror("join_rank");
        return 1;
    }
    for (int round = 0; round < rounds; round++) {
        for (int turn = 0; turn < ways; turn++) {
            int way = (turn + round) % ways;
            setenv("WEFT_JOIN", argv[5 + way], 1);
            if (!run_once(shared, rank, ranks, &shared->slowest_ns[round][way])) {
                return 1;
            }
        }
    }
    for (int round = 0; rank == 0 && round < rounds; round++) {
        for (int way = 0; way < ways; way++) {
            printf("%s %lu\n", argv[5 + way], (unsigned long)shared->slowest_ns[round][way]);
        }
    }
    return 0;
}
