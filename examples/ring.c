/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A message around a ring, then the same by puts: weft run -n 4 -- ./ring
 * Each rank adds its number; rank 0 prints the sum twice.
 */
#include <stdio.h>
#include <stdlib.h>
#include <weft/weft.h>

struct box { /* what the rank before us writes into */
    uint64_t sum;
    uint64_t arrived; /* counts the puts */
};

static void check(weft_status_t status)
{
    if (status != WEFT_OK) {
        fprintf(stderr, "%s: %s\n", weft_status_name(status), weft_error_text());
        exit(1);
    }
}

static uint64_t by_messages(weft_comm_t comm, int rank, int ranks)
{
    uint64_t sum = 0;
    if (rank > 0) {
        check(weft_recv(comm, &sum, sizeof(sum), rank - 1, 1, NULL, NULL));
    }
    sum += (uint64_t)rank;
    check(weft_send(comm, &sum, sizeof(sum), (rank + 1) % ranks, 1, NULL));
    if (rank == 0) {
        check(weft_recv(comm, &sum, sizeof(sum), ranks - 1, 1, NULL, NULL));
    }
    return sum;
}

static uint64_t by_puts(weft_comm_t comm, int rank, int ranks)
{
    struct box *box;
    weft_mem_t mine, next;
    uint64_t sum = 0;
    check(
        weft_alloc(sizeof(*box), (void **)&box)); /* zeroed; ranks of this host write it directly */
    check(weft_mem_register(comm, box, sizeof(*box), &mine));
    /* The rank before us needs the handle; we need that of the rank after us. */
    check(weft_group_begin(comm));
    check(weft_send(comm, &mine, sizeof(mine), (rank + ranks - 1) % ranks, 2, NULL));
    check(weft_recv(comm, &next, sizeof(next), (rank + 1) % ranks, 2, NULL, NULL));
    check(weft_group_end(comm));
    if (rank > 0) {
        check(weft_wait_signal(comm, &box->arrived, 1, WEFT_NO_LIMIT));
        sum = box->sum;
    }
    sum += (uint64_t)rank;
    check(weft_put_signal(comm, &next, offsetof(struct box, sum), &sum, sizeof(sum), &next,
                          offsetof(struct box, arrived), 1));
    check(weft_quiet(comm));
    if (rank == 0) {
        check(weft_wait_signal(comm, &box->arrived, 1, WEFT_NO_LIMIT));
        sum = box->sum;
    }
    check(weft_control_barrier(comm)); /* nobody writes any more */
    check(weft_mem_deregister(comm, &mine));
    check(weft_free(box));
    return sum;
}

int main(void)
{
    weft_comm_t comm;
    int rank, ranks;
    uint64_t sums[2];
    check(weft_init(NULL, &comm));
    check(weft_comm_rank(comm, &rank));
    check(weft_comm_ranks(comm, &ranks));
    sums[0] = by_messages(comm, rank, ranks);
    sums[1] = by_puts(comm, rank, ranks);
    if (rank == 0) {
        printf("the ring sums to %llu by messages, %llu by puts\n", (unsigned long long)sums[0],
               (unsigned long long)sums[1]);
    }
    check(weft_control_barrier(comm));
    check(weft_comm_close(comm));
    return 0;
}
