/* SPDX-License-Identifier: Apache-2.0 */
/* What the header says in a few words about special values and refusals, held to it word by word. */
#include "unit/api/collectives.h"

#include <float.h>
#include <sys/wait.h>

/* ---- special values ---- */

/* -7 over 2 ranks is -3, not -4; and what wraps is divided after it has wrapped. */
static int run_integer_avg(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    int32_t in[4] = {rank == 0 ? -4 : -3, rank == 0 ? 4 : 3, INT32_MAX, -1}, out[4] = {0};
    int8_t small[3] = {100, -100, (int8_t)(rank == 0 ? -128 : 1)}, small_out[3] = {0};
    uint8_t bytes[2] = {200, 255}, bytes_out[2] = {0};
    EXPECT(shared->ranks == 2);
    EXPECT_OK(weft_allreduce(comm, in, out, 4, WEFT_I32, WEFT_AVG, NULL));
    EXPECT(out[0] == -3 && out[1] == 3 && out[2] == -1 && out[3] == -1);
    EXPECT_OK(weft_allreduce(comm, small, small_out, 3, WEFT_I8, WEFT_AVG, NULL));
    EXPECT(small_out[0] == -28 && small_out[1] == 28 && small_out[2] == -63);
    EXPECT_OK(weft_allreduce(comm, bytes, bytes_out, 2, WEFT_U8, WEFT_AVG, NULL));
    EXPECT(bytes_out[0] == 72 && bytes_out[1] == 127);
    return 0;
}

static void avg_of_integers_is_the_wrapped_sum_divided_towards_zero(void **state)
{
    (void)state;
    run_ways(PROCESSES, 2, run_integer_avg);
}

/* One thread of nine does the dividing, or several: each element once. */
static int run_avg_once(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    enum { COUNT = 3001 };
    static _Thread_local int64_t in[COUNT], out[COUNT];
    for (int i = 0; i < COUNT; i++) {
        in[i] = (int64_t)i * 1000003 + rank;
    }
    EXPECT_OK(weft_allreduce(comm, in, out, COUNT, WEFT_I64, WEFT_AVG, NULL));
    for (int i = 0; i < COUNT; i++) {
        EXPECT(out[i] == (int64_t)i * 1000003 + (shared->ranks - 1) / 2);
    }
    return 0;
}

static void avg_divides_each_element_once(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 9; ranks++) {
        run_ways(PROCESSES, ranks, run_avg_once);
    }
}

static double decoded(weft_dtype_t dtype, const uint8_t *bytes, size_t i)
{
    return values_decode(dtype, values_load(dtype, bytes + i * weft_dtype_size(dtype)));
}

/* Each rank in turn has the NaN, each time at another element. */
static int check_nan(weft_comm_t comm, weft_dtype_t dtype, weft_redop_t op, int rank,
                     struct harness_shared *shared)
{
    enum { COUNT = 200 };
    uint8_t in[COUNT * 8], out[COUNT * 8];
    size_t size = weft_dtype_size(dtype);
    for (size_t i = 0; i < COUNT; i++) {
        bool is_nan = i % 3 == 0 && (int)(i / 3) % shared->ranks == rank;
        values_store(dtype, values_encode(dtype, is_nan ? NAN : (double)(rank - 1)), in + i * size);
    }
    EXPECT_OK(weft_allreduce(comm, in, out, COUNT, dtype, op, NULL));
    for (size_t i = 0; i < COUNT; i++) {
        double value = decoded(dtype, out, i), want = op == WEFT_MIN ? -1.0 : shared->ranks - 2;
        if (i % 3 == 0 ? !isnan(value) : value != want) {
            return harness_say(shared, rank, FAILED, "%s %s: element %zu is %g",
                               weft_dtype_name(dtype), weft_redop_name(op), i, value);
        }
    }
    return 0;
}

static int run_nan(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    for (weft_dtype_t dtype = WEFT_F16; dtype <= WEFT_F8E5M2; dtype++) {
        EXPECT_PASS(check_nan(comm, dtype, WEFT_MIN, rank, shared));
        EXPECT_PASS(check_nan(comm, dtype, WEFT_MAX, rank, shared));
    }
    return 0;
}

static void a_nan_wins_min_and_max(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 8; ranks += ranks > 2 ? 5 : 1) {
        run_ways(PROCESSES, ranks, run_nan);
    }
}

/* NaNs and infinities in a sum stay where they are; what overflows is infinite. */
static int run_specials(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    float big = FLT_MAX, in[5] = {rank == 0 ? NAN : 1, rank == 1 ? INFINITY : 1, big,
                                  rank == 0 ? INFINITY : -INFINITY, (float)rank};
    float out[5] = {0};
    EXPECT_OK(weft_allreduce(comm, in, out, 5, WEFT_F32, WEFT_SUM, NULL));
    EXPECT(isnan(out[0]) && isinf(out[1]) && out[1] > 0 && isinf(out[2]) && out[2] > 0);
    EXPECT(isnan(out[3]) && 2 * out[4] == (float)(shared->ranks * (shared->ranks - 1)));
    return 0;
}

static void sums_know_nan_and_infinity(void **state)
{
    (void)state;
    run_ways(PROCESSES, 2, run_specials);
    run_ways(PROCESSES, 5, run_specials);
}

/* What gradient averaging needs: scale 1/n, not exact, and off by no more than its rounding. */
static int run_scaled(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    static const weft_dtype_t dtypes[] = {WEFT_F16, WEFT_BF16, WEFT_F32, WEFT_F64};
    enum { COUNT = 500 };
    int ranks = shared->ranks;
    for (size_t d = 0; d < LENS(dtypes); d++) {
        weft_dtype_t dtype = dtypes[d];
        size_t size = weft_dtype_size(dtype);
        double step = ldexp(1.0, -values_format(dtype).mantissa);
        uint8_t in[COUNT * 8], out[COUNT * 8];
        weft_call_t call = WEFT_CALL_INIT;
        for (size_t i = 0; i < COUNT; i++) {
            double value = (double)(i % 50) + (double)rank;
            values_store(dtype, values_encode(dtype, value), in + i * size);
        }
        call.coll = WEFT_ALLREDUCE;
        call.dtype = dtype;
        call.op = WEFT_SCALED;
        call.scale = 1.0 / ranks;
        call.in = in;
        call.out = out;
        call.count = COUNT;
        EXPECT_OK(weft_collective(comm, &call, NULL));
        for (size_t i = 0; i < COUNT; i++) {
            double want = (double)(i % 50) + (ranks - 1) / 2.0;
            EXPECT(fabs(decoded(dtype, out, i) - want) <= (want + 1) * step * (ranks + 1));
        }
    }
    return 0;
}

static void a_scaled_sum_scales_every_input(void **state)
{
    (void)state;
    run_ways(PROCESSES, 3, run_scaled);
    run_ways(PROCESSES, 8, run_scaled);
}

/* ---- nothing, and nobody else ---- */

static int run_nothing(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    int last = shared->ranks - 1;
    EXPECT_OK(weft_allreduce(comm, NULL, NULL, 0, WEFT_F32, WEFT_SUM, NULL));
    EXPECT_OK(weft_reduce_scatter(comm, NULL, NULL, 0, WEFT_I8, WEFT_MAX, NULL));
    EXPECT_OK(weft_allgather(comm, NULL, NULL, 0, WEFT_U64, NULL));
    EXPECT_OK(weft_broadcast(comm, NULL, NULL, 0, WEFT_F16, last, NULL));
    EXPECT_OK(weft_reduce(comm, NULL, NULL, 0, WEFT_F64, WEFT_AVG, last, NULL));
    EXPECT_OK(weft_gather(comm, NULL, NULL, 0, WEFT_I16, 0, NULL));
    EXPECT_OK(weft_scatter(comm, NULL, NULL, 0, WEFT_U16, 0, NULL));
    EXPECT_OK(weft_alltoall(comm, NULL, NULL, 0, WEFT_BF16, NULL));
    EXPECT_OK(weft_barrier(comm, NULL));
    return 0;
}

static void nothing_may_be_reduced_and_moved(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 1, run_nothing);
    run_ways(EVERY_WAY, 3, run_nothing);
}

/* Nobody is behind a barrier before the last has reached it. */
static int run_barrier(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    for (uint32_t round = 1; round <= 300; round++) {
        weft_request_t request = NULL;
        atomic_fetch_add(&shared->word[0], 1);
        if (round % 3 == 0) {
            EXPECT_OK(weft_barrier(comm, &request));
            EXPECT_OK(weft_wait(&request, WAIT_MS));
        } else {
            EXPECT_OK(weft_barrier(comm, NULL));
        }
        EXPECT(atomic_load(&shared->word[0]) >= round * (uint32_t)shared->ranks);
    }
    return 0;
}

static void a_barrier_lets_nobody_through_before_all_have_come(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 9; ranks += ranks < 5 ? 1 : 2) {
        run_ways(ranks == 3 ? EVERY_WAY : PROCESSES, ranks, run_barrier);
    }
}

/* ---- refusals ---- */

/* The call is refused here and now, and the communicator goes on. */
#define EXPECT_INVALID(call)                                                                       \
    do {                                                                                           \
        EXPECT((call) == WEFT_ERR_INVALID);                                                        \
        EXPECT(strlen(weft_error_text()) > 0);                                                     \
    } while (0)

static int run_bad_words(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    float in[64] = {1}, out[64] = {0};
    weft_dtype_t no_dtype = (weft_dtype_t)WEFT_DTYPES;
    weft_redop_t no_op = (weft_redop_t)WEFT_REDOPS;
    EXPECT_INVALID(weft_allreduce(comm, in, out, 4, no_dtype, WEFT_SUM, NULL));
    EXPECT_INVALID(weft_allreduce(comm, in, out, 4, (weft_dtype_t)-1, WEFT_SUM, NULL));
    EXPECT_INVALID(weft_allreduce(comm, in, out, 4, WEFT_F32, no_op, NULL));
    EXPECT_INVALID(weft_allreduce(comm, in, out, 4, WEFT_F32, (weft_redop_t)-1, NULL));
    EXPECT_INVALID(weft_allreduce(comm, in, out, 4, WEFT_F32, WEFT_BXOR, NULL));
    EXPECT_INVALID(weft_reduce_scatter(comm, in, out, 4, WEFT_F16, WEFT_BAND, NULL));
    EXPECT_INVALID(weft_reduce(comm, in, out, 4, WEFT_F8E4M3, WEFT_BOR, 0, NULL));
    EXPECT_INVALID(weft_allreduce(comm, in, out, 4, WEFT_I32, WEFT_SCALED, NULL));
    EXPECT_INVALID(weft_allgather(comm, in, out, 4, no_dtype, NULL));
    EXPECT(in[0] == 1 && out[0] == 0);
    EXPECT_OK(weft_barrier(comm, NULL));
    return 0;
}

static int run_bad_numbers(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    float in[64] = {1}, out[64] = {0};
    int n = shared->ranks;
    const size_t counts[3] = {4, 4, 4};
    const size_t places[3] = {SIZE_MAX / 4 - 3, 4, 8}; /* in bytes that wraps around */
    weft_call_t call = WEFT_CALL_INIT;
    EXPECT_INVALID(weft_broadcast(comm, in, out, 4, WEFT_F32, -1, NULL));
    EXPECT_INVALID(weft_broadcast(comm, in, out, 4, WEFT_F32, n, NULL));
    EXPECT_INVALID(weft_reduce(comm, in, out, 4, WEFT_F32, WEFT_SUM, n, NULL));
    EXPECT_INVALID(weft_gather(comm, in, out, 4, WEFT_F32, -1, NULL));
    EXPECT_INVALID(weft_scatter(comm, in, out, 4, WEFT_F32, n + 5, NULL));
    EXPECT_INVALID(weft_alltoall(comm, in, in, 4, WEFT_F32, NULL));
    EXPECT_INVALID(weft_allgather(comm, in, out, SIZE_MAX / 8, WEFT_F64, NULL));
    EXPECT_INVALID(weft_allreduce(comm, in, out, SIZE_MAX / 2, WEFT_F32, WEFT_SUM, NULL));
    call.coll = WEFT_ALLGATHER;
    call.dtype = WEFT_F32;
    call.in = in;
    call.out = out;
    call.count = 4;
    call.out_counts = counts;
    call.out_places = places;
    EXPECT_INVALID(weft_collective(comm, &call, NULL));
    call.coll = WEFT_ALLTOALL;
    call.out_counts = NULL; /* pieces of one length, at odd places */
    EXPECT_INVALID(weft_collective(comm, &call, NULL));
    call.in_places = places;
    call.out_places = NULL;
    EXPECT_INVALID(weft_collective(comm, &call, NULL));
    EXPECT(in[0] == 1 && out[0] == 0);
    EXPECT_OK(weft_barrier(comm, NULL));
    return 0;
}

static int run_no_buffers(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    float data[64] = {1};
    weft_request_t request = NULL;
    EXPECT_INVALID(weft_allreduce(comm, NULL, data, 4, WEFT_F32, WEFT_SUM, NULL));
    EXPECT_INVALID(weft_allreduce(comm, data, NULL, 4, WEFT_F32, WEFT_SUM, &request));
    EXPECT_INVALID(weft_reduce_scatter(comm, NULL, data, 4, WEFT_F32, WEFT_SUM, NULL));
    EXPECT_INVALID(weft_allgather(comm, data, NULL, 4, WEFT_F32, NULL));
    EXPECT_INVALID(weft_allgather(comm, NULL, data, 4, WEFT_F32, NULL));
    EXPECT_INVALID(weft_broadcast(comm, data, NULL, 4, WEFT_F32, 0, NULL));
    EXPECT_INVALID(weft_reduce(comm, NULL, data, 4, WEFT_F32, WEFT_SUM, 0, NULL));
    EXPECT_INVALID(weft_gather(comm, NULL, data, 4, WEFT_F32, 0, NULL));
    EXPECT_INVALID(weft_scatter(comm, data, NULL, 4, WEFT_F32, 0, &request));
    EXPECT_INVALID(weft_alltoall(comm, data, NULL, 4, WEFT_F32, NULL));
    EXPECT(request == NULL);
    EXPECT_INVALID(weft_barrier(NULL, NULL));
    EXPECT_INVALID(weft_allreduce(NULL, data, data, 4, WEFT_F32, WEFT_SUM, NULL));
    EXPECT_OK(weft_barrier(comm, NULL));
    return 0;
}

static int run_bad_calls(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    float in[8] = {0}, out[8] = {0};
    weft_call_t call = WEFT_CALL_INIT;
    weft_status_t status;
    EXPECT_INVALID(weft_collective(comm, NULL, NULL));
    EXPECT_INVALID(weft_collective(NULL, &call, NULL));
    call.size = 0;
    EXPECT_INVALID(weft_collective(comm, &call, NULL));
    call.size = 8;
    EXPECT_INVALID(weft_collective(comm, &call, NULL));
    call.size = sizeof(call);
    call.coll = (weft_coll_t)WEFT_COLLS;
    EXPECT_INVALID(weft_collective(comm, &call, NULL));
    call.coll = WEFT_ALLREDUCE;
    call.dtype = WEFT_F32;
    call.in = in;
    call.out = out;
    call.count = 8;
    call.algorithm = "no such algorithm";
    status = weft_collective(comm, &call, NULL);
    EXPECT(status == WEFT_ERR_INVALID || status == WEFT_ERR_UNSUPPORTED);
    EXPECT(strstr(weft_error_text(), "no such algorithm") != NULL);
    call.coll = WEFT_BROADCAST;
    call.algorithm = "ring"; /* which is for other operations */
    EXPECT(weft_collective(comm, &call, NULL) == WEFT_ERR_UNSUPPORTED);
    EXPECT(strstr(weft_error_text(), "ring") != NULL);
    call.coll = WEFT_ALLREDUCE;
    call.algorithm = "hierarchical"; /* there is one host */
    EXPECT(weft_collective(comm, &call, NULL) == WEFT_ERR_UNSUPPORTED);
    EXPECT_OK(weft_barrier(comm, NULL)); /* it goes on */
    return 0;
}

static void bad_arguments_are_refused_and_harm_nobody(void **state)
{
    (void)state;
    run_ways(PROCESSES, 2, run_bad_words);
    run_ways(PROCESSES, 3, run_bad_words);
    run_ways(PROCESSES, 3, run_bad_numbers);
    run_ways(SHM_PROCESSES, 1, run_bad_words);
    run_ways(SHM_PROCESSES, 1, run_bad_numbers);
    run_ways(PROCESSES, 2, run_no_buffers);
    run_ways(PROCESSES, 3, run_bad_calls);
}

/* A field that a collective has no use for says nothing, and so cannot differ. */
static int run_unused(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    int32_t in[8] = {rank}, out[8] = {0};
    weft_call_t call = WEFT_CALL_INIT;
    call.in = in;
    call.out = out;
    call.dtype = WEFT_I32;
    call.count = 8;
    call.root = rank;
    call.scale = rank + 0.5;
    call.coll = WEFT_ALLREDUCE;
    EXPECT_OK(weft_collective(comm, &call, NULL));
    call.op = (weft_redop_t)rank;
    call.count = 2;
    call.coll = WEFT_ALLGATHER;
    EXPECT_OK(weft_collective(comm, &call, NULL));
    call.dtype = (weft_dtype_t)rank;
    call.count = (size_t)rank * 100;
    call.coll = WEFT_BARRIER;
    EXPECT_OK(weft_collective(comm, &call, NULL));
    return 0;
}

static void fields_without_a_use_may_differ(void **state)
{
    (void)state;
    run_ways(PROCESSES, 3, run_unused);
}

/* Beside arrays that say how long the pieces are, the count may be anything, and what is empty needs no
 * buffer. */
static int run_pieces_beside_a_count(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    static const size_t in_counts[3] = {4, 0, 6};
    int32_t in[10], out[6] = {0}, all[10] = {0};
    size_t own = in_counts[rank], place = rank == 2 ? 4 : 0;
    weft_call_t call = WEFT_CALL_INIT;
    EXPECT(shared->ranks == 3);
    for (int i = 0; i < 10; i++) {
        in[i] = i + rank;
    }
    call.coll = WEFT_REDUCE_SCATTER;
    call.dtype = WEFT_I32;
    call.in = in;
    call.out = own > 0 ? out : NULL;
    call.count = (size_t)1 << 40;
    call.in_counts = in_counts;
    EXPECT_OK(weft_collective(comm, &call, NULL));
    for (size_t i = 0; i < own; i++) {
        EXPECT(out[i] == 3 * (int32_t)(place + i) + 3);
    }
    call = (weft_call_t)WEFT_CALL_INIT;
    call.coll = WEFT_ALLGATHER;
    call.dtype = WEFT_I32;
    call.in = own > 0 ? in : NULL;
    call.out = all;
    call.count = SIZE_MAX;
    call.out_counts = in_counts;
    EXPECT_OK(weft_collective(comm, &call, NULL));
    EXPECT(all[0] == 0 && all[3] == 3 && all[4] == 2 && all[9] == 7);
    return 0;
}

static void a_count_beside_arrays_is_not_used(void **state)
{
    (void)state;
    run_ways(PROCESSES, 3, run_pieces_beside_a_count);
}

/* ---- communicators that have ended, or are not ours ---- */

static int run_after_abort(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    float data[8] = {0};
    weft_request_t request = NULL;
    weft_call_t call = WEFT_CALL_INIT;
    weft_comm_t again = NULL, half = NULL;
    weft_op_t op = NULL;
    EXPECT_OK(weft_comm_duplicate(comm, &again));
    EXPECT_OK(weft_op_create(again, &call, &op));
    EXPECT_OK(weft_barrier(again, NULL));
    atomic_fetch_add(&shared->word[0], 1); /* or the abort would meet this barrier */
    if (rank == 0) {
        EXPECT(harness_wait_for(&shared->word[0], (uint32_t)shared->ranks, WAIT_MS));
        EXPECT_OK(weft_abort(again, "enough"));
    } else {
        EXPECT(weft_barrier(again, NULL) == WEFT_ERR_ABORTED);
        EXPECT(strstr(weft_error_text(), "enough") != NULL);
    }
    EXPECT(weft_allreduce(again, data, data, 8, WEFT_F32, WEFT_SUM, NULL) == WEFT_ERR_ABORTED);
    EXPECT(weft_barrier(again, &request) == WEFT_ERR_ABORTED && request == NULL);
    EXPECT(weft_op_start(op) == WEFT_ERR_ABORTED);
    EXPECT(weft_comm_duplicate(again, &half) == WEFT_ERR_ABORTED && half == NULL);
    EXPECT_OK(weft_op_destroy(op));
    EXPECT_OK(weft_barrier(comm, NULL)); /* the parent is another matter */
    EXPECT_OK(weft_comm_close(again));
    return 0;
}

static void calls_on_an_aborted_communicator_say_so(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 3, run_after_abort);
}

static int run_forked(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    float data[8] = {0};
    weft_call_t call = WEFT_CALL_INIT;
    weft_op_t op = NULL;
    int status = -1;
    pid_t pid;
    EXPECT_OK(weft_barrier(comm, NULL));
    EXPECT_OK(weft_op_create(comm, &call, &op));
    pid = fork();
    if (pid == 0) {
        bool is_dead =
            weft_allreduce(comm, data, data, 8, WEFT_F32, WEFT_SUM, NULL) == WEFT_ERR_FORKED &&
            weft_barrier(comm, NULL) == WEFT_ERR_FORKED && weft_op_start(op) == WEFT_ERR_FORKED;
        _exit(is_dead ? 0 : 1);
    }
    EXPECT(pid > 0 && waitpid(pid, &status, 0) == pid);
    EXPECT(status == 0);
    EXPECT_OK(weft_op_start(op));
    EXPECT_OK(weft_op_wait(op, WAIT_MS));
    EXPECT_OK(weft_op_destroy(op));
    EXPECT_OK(weft_barrier(comm, NULL));
    return 0;
}

static void a_forked_child_finds_the_communicator_dead(void **state)
{
    (void)state;
    if (IS_THREAD_SANITIZED) {
        skip(); /* it does not follow forks of processes with threads */
    }
    run_ways(PROCESSES, 2, run_forked);
}

/* ---- words ---- */

static void names_and_sizes_are_as_listed(void **state)
{
    (void)state;
#define CHECK_DTYPE(name, number, bytes, text)                                                     \
    assert_string_equal(weft_dtype_name(WEFT_##name), text);                                       \
    assert_int_equal(weft_dtype_size(WEFT_##name), bytes);
    WEFT_DTYPE_LIST(CHECK_DTYPE)
#define CHECK_REDOP(name, number, text) assert_string_equal(weft_redop_name(WEFT_##name), text);
    WEFT_REDOP_LIST(CHECK_REDOP)
#define CHECK_COLL(name, number, text) assert_string_equal(weft_coll_name(WEFT_##name), text);
    WEFT_COLL_LIST(CHECK_COLL)
    assert_string_equal(weft_dtype_name((weft_dtype_t)99), "?");
    assert_string_equal(weft_redop_name((weft_redop_t)-1), "?");
    assert_string_equal(weft_coll_name((weft_coll_t)99), "?");
    assert_int_equal(weft_dtype_size((weft_dtype_t)-1), 0);
}

/* What waits to be reduced lies in scratch memory, each message at a multiple of 64 bytes: lengths with
 * which it would just fill its pages, on communicators that have had no longer ones. */
static int check_scratch(weft_comm_t comm, const char *algorithm, size_t count, int rank,
                         struct harness_shared *shared)
{
    static _Thread_local uint8_t in[4096], out[4096];
    weft_call_t call = WEFT_CALL_INIT;
    weft_comm_t fresh;
    memset(in, rank + 1, sizeof(in));
    call.coll = WEFT_REDUCE;
    call.dtype = WEFT_U8;
    call.in = in;
    call.out = out;
    call.count = count;
    call.algorithm = algorithm;
    EXPECT_OK(weft_comm_split(comm, 0, rank, &fresh));
    EXPECT_OK(weft_collective(fresh, &call, NULL));
    EXPECT_OK(weft_comm_close(fresh));
    for (size_t i = 0; i < count && rank == 0; i++) {
        EXPECT(out[i] == shared->ranks * (shared->ranks + 1) / 2);
    }
    return 0;
}

static int run_scratch(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    const size_t counts[] = {4095, 2047, 1365, 1364, 1023, 819};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        EXPECT_PASS(check_scratch(comm, "binomial", counts[i], rank, shared));
        EXPECT_PASS(check_scratch(comm, "binary", counts[i], rank, shared));
    }
    return 0;
}

static void scratch_memory_is_as_long_as_what_waits_there(void **state)
{
    (void)state;
    for (int ranks = 3; ranks <= 6; ranks++) {
        run_ways(PROCESSES, ranks, run_scratch);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(avg_of_integers_is_the_wrapped_sum_divided_towards_zero),
        cmocka_unit_test(avg_divides_each_element_once),
        cmocka_unit_test(a_nan_wins_min_and_max),
        cmocka_unit_test(sums_know_nan_and_infinity),
        cmocka_unit_test(a_scaled_sum_scales_every_input),
        cmocka_unit_test(nothing_may_be_reduced_and_moved),
        cmocka_unit_test(a_barrier_lets_nobody_through_before_all_have_come),
        cmocka_unit_test(bad_arguments_are_refused_and_harm_nobody),
        cmocka_unit_test(fields_without_a_use_may_differ),
        cmocka_unit_test(a_count_beside_arrays_is_not_used),
        cmocka_unit_test(calls_on_an_aborted_communicator_say_so),
        cmocka_unit_test(a_forked_child_finds_the_communicator_dead),
        cmocka_unit_test(names_and_sizes_are_as_listed),
        cmocka_unit_test(scratch_memory_is_as_long_as_what_waits_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
