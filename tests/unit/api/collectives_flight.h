/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that are begun and not yet done: each has memory and a request of its own. */
#ifndef WEFT_TESTS_API_COLLECTIVES_FLIGHT_H
#define WEFT_TESTS_API_COLLECTIVES_FLIGHT_H

#include "unit/api/collectives.h"

struct flight {
    struct trial trial;
    struct desk desk;
    weft_request_t request;
    weft_op_t op;
    bool is_up;
};

/* What is drawn is the same on every rank of the communicator; kinds of memory, and whether it is in place,
 * are each rank's own. */
static inline void flight_draw(struct flight *flight, uint64_t seed, size_t most, int me, int ranks)
{
    static const size_t fractions[] = {1, 3, 40, 1000, 100000};
    uint64_t random = values_mix(seed), own = values_mix(seed ^ (uint64_t)(me + 1) << 48);
    struct trial *trial = &flight->trial;
    *flight = (struct flight){.trial = {.coll = (weft_coll_t)(random % WEFT_COLLS),
                                        .root = (int)(random / 16 % (uint64_t)ranks),
                                        .scale = trial_scale(random / 512),
                                        .is_in_place = (own >> 32 & 1) != 0,
                                        .has_gaps = (random >> 33 & 7) == 0,
                                        .seed = random,
                                        .me = me,
                                        .ranks = ranks}};
    trial_pair((size_t)(random >> 40), &trial->dtype, &trial->op);
    trial->has_gaps = trial->has_gaps && trial_has_pieces(trial->coll);
    trial->count = most / fractions[random / 4096 % LENS(fractions)];
    trial->count = trial->coll == WEFT_BARRIER ? 0 : values_mix(random) % (trial->count + 1);
    desk_open(&flight->desk,
              (trial->count + TRIAL_GAP) * 8 *
                      (trial_has_pieces(trial->coll) ? (size_t)ranks : (size_t)1) +
                  1024,
              own % 4 == 0 ? MEMORY_SHARED : MEMORY_PRIVATE,
              own / 8 % 4 == 0 ? MEMORY_SHARED : MEMORY_PRIVATE);
}

/* Its call is made: returns at once. */
static inline int flight_begin(struct flight *flight, weft_comm_t comm, int rank,
                               struct harness_shared *shared)
{
    flight->trial.desk = &flight->desk; /* the flight has come to its place */
    trial_prepare(&flight->trial);
    EXPECT_PASS(trial_expect_ok(&flight->trial, trial_begin(&flight->trial, comm, &flight->request),
                                rank, shared));
    flight->is_up = true;
    return 0;
}

/* It has ended with this status: judged and forgotten. */
static inline int flight_end(struct flight *flight, weft_status_t status, int rank,
                             struct harness_shared *shared)
{
    EXPECT(flight->is_up && flight->request == NULL);
    EXPECT_PASS(trial_expect_ok(&flight->trial, status, rank, shared));
    EXPECT_PASS(trial_check(&flight->trial, rank, shared));
    desk_close(&flight->desk);
    flight->is_up = false;
    return 0;
}

/* One that is up, in an order of this rank's own. */
static inline int flight_pick(const struct flight *flights, int count, uint64_t random)
{
    int first = (int)(random % (uint64_t)count);
    for (int i = 0; i < count; i++) {
        if (flights[(first + i) % count].is_up) {
            return (first + i) % count;
        }
    }
    return -1;
}

/* Waits for all that are up, in one of the ways to wait and in any order. */
static inline int flight_end_all(struct flight *flights, int count, uint64_t random, int rank,
                                 struct harness_shared *shared)
{
    uint64_t deadline_ns = harness_now_ns() + WAIT_MS * UINT64_C(1000000);
    int at;
    while ((at = flight_pick(flights, count, random)) >= 0) {
        weft_status_t status = WEFT_OK;
        weft_request_t *request = &flights[at].request;
        int is_done = *request == NULL;
        random = values_mix(random);
        switch (random % 3) {
        case 0:
            status = weft_wait(request, WAIT_MS);
            break;
        case 1:
            while (!is_done && harness_now_ns() < deadline_ns) {
                status = weft_test(request, &is_done);
            }
            break;
        default:
            do {
                status = weft_wait(request, 0);
            } while (status == WEFT_ERR_TIMEOUT && *request != NULL &&
                     harness_now_ns() < deadline_ns);
        }
        EXPECT_PASS(flight_end(&flights[at], status, rank, shared));
    }
    return 0;
}

#endif
