/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments of collectives that cannot be: buffers that lie across each other, kinds that are none. */
#include "unit/api/collectives.h"

/* The call is refused here and now, and the communicator goes on. */
#define EXPECT_INVALID(call)                                                                       \
    do {                                                                                           \
        EXPECT((call) == WEFT_ERR_INVALID);                                                        \
        EXPECT(strlen(weft_error_text()) > 0);                                                     \
    } while (0)

/* Neither the same nor apart: refused. (Rank 1's own piece is in the middle.) */
static int run_overlapping(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    float data[64] = {1};
    const size_t counts[3] = {4, 2, 4}, places[3] = {20, 0, 10};
    weft_call_t call = WEFT_CALL_INIT;
    size_t me = (size_t)rank, other = (me + 1) % 3;
    EXPECT_INVALID(weft_allreduce(comm, data, data + 3, 4, WEFT_F32, WEFT_SUM, NULL));
    EXPECT(strstr(weft_error_text(), "overlap") != NULL);
    EXPECT_INVALID(weft_allreduce(comm, data + 1, data, 4, WEFT_F32, WEFT_SUM, NULL));
    EXPECT_INVALID(weft_broadcast(comm, data, data + 1, 4, WEFT_F32, rank, NULL));
    EXPECT_INVALID(weft_reduce(comm, data + 3, data, 4, WEFT_F32, WEFT_SUM, rank, NULL));
    EXPECT_INVALID(weft_allgather(comm, &data[4 * other], data, 4, WEFT_F32, NULL));
    EXPECT(strstr(weft_error_text(), "overlap") != NULL);
    EXPECT_INVALID(weft_allgather(comm, &data[4 * me + 1], data, 4, WEFT_F32, NULL));
    EXPECT_INVALID(weft_gather(comm, data + 11, data, 4, WEFT_F32, rank, NULL));
    EXPECT_INVALID(weft_reduce_scatter(comm, data, &data[4 * other], 4, WEFT_F32, WEFT_SUM, NULL));
    EXPECT_INVALID(weft_scatter(comm, data + 3, data, 4, WEFT_F32, rank, NULL));
    EXPECT_INVALID(weft_alltoall(comm, data, data + 11, 4, WEFT_F32, NULL));
    call.coll = WEFT_ALLGATHER;
    call.dtype = WEFT_F32;
    call.out = data;
    call.out_counts = counts;
    call.in = data + 9; /* the last one, where only the sum of the others says it */
    EXPECT_INVALID(weft_collective(comm, &call, NULL));
    call.out_places = places;
    call.in = data + places[other];
    EXPECT_INVALID(weft_collective(comm, &call, NULL));
    EXPECT_OK(weft_barrier(comm, NULL));
    return 0;
}

/* Close neighbours, and a gap between pieces, are no overlap. */
static int run_close_by(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    float data[64];
    const size_t counts[3] = {4, 4, 4}, places[3] = {20, 0, 10};
    weft_call_t call = WEFT_CALL_INIT;
    for (int i = 0; i < 64; i++) {
        data[i] = (float)rank;
    }
    EXPECT_OK(weft_allreduce(comm, data, data + 4, 4, WEFT_F32, WEFT_SUM, NULL));
    EXPECT(data[3] == (float)rank && data[4] == 3 && data[7] == 3 && data[8] == (float)rank);
    EXPECT_OK(weft_allgather(comm, data, data + 4, 4, WEFT_F32, NULL));
    EXPECT(data[4] == 0 && data[8] == 1 && data[15] == 2);
    EXPECT_OK(weft_broadcast(comm, data + (rank == 0 ? 0 : 33), data + 32, 1, WEFT_F32, 0, NULL));
    EXPECT(data[32] == 0);
    call.coll = WEFT_ALLGATHER;
    call.dtype = WEFT_F32;
    call.out = data;
    call.out_counts = counts;
    call.out_places = places;
    data[5] = (float)rank + 10;
    call.in = data + 5; /* 5 to 8: nobody's place */
    EXPECT_OK(weft_collective(comm, &call, NULL));
    EXPECT(data[20] == 10 && data[0] == 11 && data[10] == 12);
    return 0;
}

static void buffers_that_overlap_are_refused(void **state)
{
    (void)state;
    run_ways(PROCESSES, 3, run_overlapping);
    run_ways(PROCESSES, 3, run_close_by);
}

static int run_no_op(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    float in[4] = {0}, out[4];
    EXPECT_INVALID(weft_allreduce(comm, in, out, 4, WEFT_F32, (weft_redop_t)99, NULL));
    EXPECT(strstr(weft_error_text(), "redop 99") != NULL);
    EXPECT(strstr(weft_error_text(), "bitwise") == NULL);
    return 0;
}

static void a_reduction_that_is_none_is_called_by_its_number(void **state)
{
    (void)state;
    run_ways(SHM_PROCESSES, 1, run_no_op);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buffers_that_overlap_are_refused),
        cmocka_unit_test(a_reduction_that_is_none_is_called_by_its_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
