/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of floats that depend on their order. With WEFT_DETERMINISTIC=1 the bits are those of adding in rank
 * order, whatever the path, the pieces it travels in, the memory and the collective; another algorithm is
 * refused. Without it all ranks still have the same bits, or replicas of a model would drift apart.
 */
#include "plan/plan.h"
#include "unit/api/collectives.h"

#define CASES 45
#define MOST ((size_t)45000)

/* Numbers of many magnitudes: no two orders of adding them agree for long. */
static void fill_rough(weft_dtype_t dtype, uint64_t seed, int rank, size_t count, uint8_t *to)
{
    int spread = dtype == WEFT_F8E4M3 || dtype == WEFT_F8E5M2 ? 4 : 10;
    for (size_t i = 0; i < count; i++) {
        uint64_t random = values_mix(seed ^ values_mix((uint64_t)rank << 40 ^ i));
        double value = (double)(random >> 12) * 0x1p-52 + 0.5;
        int exponent = (int)(random % (uint64_t)spread) - spread / 2;
        value = ldexp((random & 1024) != 0 ? -value : value, exponent);
        values_store(dtype, values_encode(dtype, value), to + i * weft_dtype_size(dtype));
    }
}

struct sum {
    weft_coll_t coll;
    weft_dtype_t dtype;
    weft_redop_t op;
    size_t count; /* of the whole vector; a multiple of the ranks */
    int root;
    uint64_t seed;
    bool is_in_place;
};

static struct sum draw_sum(uint64_t number, int ranks)
{
    static const weft_coll_t colls[] = {WEFT_ALLREDUCE, WEFT_REDUCE_SCATTER, WEFT_REDUCE};
    static const weft_dtype_t dtypes[] = {WEFT_F32, WEFT_F64,    WEFT_F16,   WEFT_BF16,
                                          WEFT_F32, WEFT_F8E4M3, WEFT_F8E5M2};
    static const weft_redop_t ops[] = {WEFT_SUM, WEFT_AVG, WEFT_SCALED, WEFT_SUM, WEFT_PROD};
    static const size_t counts[] = {1, 5, 16, 1000, 5000, 20000};
    uint64_t random = values_mix(number);
    struct sum sum = {.coll = colls[number % LENS(colls)],
                      .dtype = dtypes[number % LENS(dtypes)],
                      .op = ops[random % LENS(ops)],
                      .root = (int)(random / 64 % (uint64_t)ranks),
                      .seed = random,
                      .is_in_place = (random >> 40 & 1) != 0};
    sum.count = counts[random / 4096 % LENS(counts)] * (size_t)ranks;
    sum.count = sum.count <= MOST ? sum.count : MOST / (size_t)ranks * (size_t)ranks;
    return sum;
}

/* ---- one sum ---- */

struct vectors {
    uint8_t *in, *out;
    size_t len; /* of the output that this rank has */
};

static weft_status_t make_sum(weft_comm_t comm, const struct sum *sum, int rank, int ranks,
                              const char *algorithm, struct vectors *vectors)
{
    size_t size = weft_dtype_size(sum->dtype), piece = sum->count / (size_t)ranks;
    weft_call_t call = WEFT_CALL_INIT;
    bool has_pieces = sum->coll == WEFT_REDUCE_SCATTER;
    size_t mine = has_pieces ? (size_t)rank * piece * size : 0;
    fill_rough(sum->dtype, sum->seed, rank, sum->count, vectors->in);
    call.coll = sum->coll;
    call.dtype = sum->dtype;
    call.op = sum->op;
    call.root = sum->root;
    call.scale = 1.0 / 3.0;
    call.count = has_pieces ? piece : sum->count;
    call.in = vectors->in;
    call.out = vectors->out;
    call.algorithm = algorithm;
    vectors->len = sum->coll == WEFT_REDUCE && rank != sum->root ? 0 : call.count * size;
    if (!sum->is_in_place) {
        return weft_collective(comm, &call, NULL);
    }
    call.out = vectors->in + mine;
    weft_status_t status = weft_collective(comm, &call, NULL);
    memcpy(vectors->out, vectors->in + mine, vectors->len);
    return status;
}

static uint64_t hash_of(const uint8_t *bytes, size_t len)
{
    uint64_t hash = len, word;
    for (size_t at = 0; at < len; at += sizeof(word)) {
        word = 0;
        memcpy(&word, bytes + at, len - at < sizeof(word) ? len - at : sizeof(word));
        hash = values_mix(hash ^ word);
    }
    return hash;
}

static void open_vectors(struct vectors *vectors, enum memory kind)
{
    vectors->in = desk_take(kind, MOST * 8);
    vectors->out = desk_take(kind, MOST * 8);
}

static void close_vectors(const struct vectors *vectors, enum memory kind)
{
    desk_return(kind, vectors->in, MOST * 8);
    desk_return(kind, vectors->out, MOST * 8);
}

/* ---- rank order, by hand ---- */

/* f32 and f64 are added in their own type, one rank after the other. */
static bool is_in_rank_order(const struct sum *sum, int rank, int ranks, const uint8_t *out)
{
    size_t piece = sum->count / (size_t)ranks, size = weft_dtype_size(sum->dtype);
    size_t first = sum->coll == WEFT_REDUCE_SCATTER ? (size_t)rank * piece : 0;
    size_t count = sum->coll == WEFT_REDUCE_SCATTER ? piece : sum->count;
    uint8_t *of_rank = allocate(sum->count * size);
    double *wide = allocate(count * sizeof(*wide));
    bool is_right = true;
    for (int r = 0; r < ranks; r++) {
        fill_rough(sum->dtype, sum->seed, r, sum->count, of_rank);
        for (size_t i = 0; i < count; i++) {
            double next =
                values_decode(sum->dtype, values_load(sum->dtype, of_rank + (first + i) * size));
            double folded = r == 0 ? next : wide[i] + next;
            wide[i] = sum->dtype == WEFT_F32 ? (double)(float)folded : folded;
        }
    }
    for (size_t i = 0; i < count; i++) {
        is_right &= values_load(sum->dtype, out + i * size) == values_encode(sum->dtype, wide[i]);
    }
    free(of_rank);
    free(wide);
    return is_right;
}

/* ---- settings that must not matter ---- */

struct setting {
    int way;
    const char *name, *value;
    enum memory kind;
};

static const struct setting settings[] = {
    {SHM_PROCESSES, "WEFT_TIMEOUT", "60s", MEMORY_PRIVATE},
    {SHM_PROCESSES, "WEFT_TIMEOUT", "60s", MEMORY_SHARED},
    {SHM_PROCESSES, "WEFT_SHM_POOL", "1M", MEMORY_PRIVATE},
    {SHM_PROCESSES, "WEFT_CMA", "on", MEMORY_PRIVATE},
    {SHM_THREADS, "WEFT_CMA", "off", MEMORY_FILE},
    {TCP_PROCESSES, "WEFT_TIMEOUT", "60s", MEMORY_PRIVATE},
    {TCP_PROCESSES, "WEFT_CHUNK", "64K", MEMORY_SHARED},
    {TCP_PROCESSES, "WEFT_EAGER", "0", MEMORY_PRIVATE},
    {TCP_THREADS, "WEFT_WINDOW", "1", MEMORY_PRIVATE},
};

#define RANKS_MOST 9

/* What each rank got under the first setting; the others compare. */
struct board {
    uint64_t hash[CASES][RANKS_MOST];
};
static struct board *board; /* shared with all ranks */
static size_t setting_at;

static int run_setting(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    const struct setting *setting = &settings[setting_at];
    int ranks = shared->ranks, cases = IS_THREAD_SANITIZED || IS_ADDRESS_SANITIZED ? 12 : CASES;
    struct vectors vectors;
    open_vectors(&vectors, setting->kind);
    for (int i = 0; i < cases; i++) {
        struct sum sum = draw_sum((uint64_t)i, ranks);
        bool is_plain = sum.op == WEFT_SUM && (sum.dtype == WEFT_F32 || sum.dtype == WEFT_F64);
        EXPECT_OK(make_sum(comm, &sum, rank, ranks, NULL, &vectors));
        uint64_t hash = hash_of(vectors.out, vectors.len);
        if (setting_at == 0) {
            board->hash[i][rank] = hash;
        }
        if (setting_at == 0 && is_plain && vectors.len > 0) {
            EXPECT(is_in_rank_order(&sum, rank, ranks, vectors.out));
        }
        if (board->hash[i][rank] != hash) {
            return harness_say(
                shared, rank, FAILED, "%s %s %s of %zu has other bits with %s=%s over %s",
                weft_coll_name(sum.coll), weft_dtype_name(sum.dtype), weft_redop_name(sum.op),
                sum.count, setting->name, setting->value, getenv("WEFT_PATH"));
        }
    }
    close_vectors(&vectors, setting->kind);
    return 0;
}

static void deterministic_bits_do_not_depend_on_paths_and_pieces(void **state)
{
    static const int ranks[] = {2, 3, 5, 9};
    (void)state;
    board = (struct board *)(void *)desk_take(MEMORY_FILE, sizeof(*board));
    setenv("WEFT_DETERMINISTIC", "1", 1);
    for (size_t i = 0; i < LENS(ranks); i++) {
        for (setting_at = 0; setting_at < LENS(settings); setting_at++) {
            setenv(settings[setting_at].name, settings[setting_at].value, 1);
            run_ways(settings[setting_at].way, ranks[i], run_setting);
            unsetenv(settings[setting_at].name);
        }
    }
    desk_return(MEMORY_FILE, (uint8_t *)board, sizeof(*board));
}

/* ---- other algorithms ---- */

static bool knows_reduction(const struct weft_plan_builder *builder)
{
    return (builder->colls &
            (1U << WEFT_ALLREDUCE | 1U << WEFT_REDUCE_SCATTER | 1U << WEFT_REDUCE)) != 0;
}

/* Refused, with words that say why; or it is one that adds in rank order, and does. */
static int check_algorithm(weft_comm_t comm, const struct weft_plan_builder *builder,
                           weft_coll_t coll, int rank, struct harness_shared *shared)
{
    struct sum sum = {coll, WEFT_F32, WEFT_SUM, 30 * (size_t)shared->ranks, 0, 7, false};
    bool is_in_order = (builder->traits & WEFT_PLAN_IN_RANK_ORDER) != 0;
    struct vectors vectors;
    weft_status_t status;
    open_vectors(&vectors, MEMORY_PRIVATE);
    status = make_sum(comm, &sum, rank, shared->ranks, builder->name, &vectors);
    if (status == WEFT_OK) {
        EXPECT(is_in_order);
        EXPECT(vectors.len == 0 || is_in_rank_order(&sum, rank, shared->ranks, vectors.out));
    } else {
        EXPECT(status == WEFT_ERR_UNSUPPORTED || status == WEFT_ERR_INVALID);
        EXPECT(strstr(weft_error_text(), builder->name) != NULL);
        EXPECT(is_in_order || strcasestr(weft_error_text(), "deterministic") != NULL);
    }
    close_vectors(&vectors, MEMORY_PRIVATE);
    EXPECT_OK(weft_comm_status(comm)); /* it goes on */
    return 0;
}

static int run_refused(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    static const weft_coll_t colls[] = {WEFT_ALLREDUCE, WEFT_REDUCE_SCATTER, WEFT_REDUCE};
    int others = 0;
    for (size_t b = 0; weft_plan_builders[b] != NULL; b++) {
        const struct weft_plan_builder *builder = weft_plan_builders[b];
        others += knows_reduction(builder) && (builder->traits & WEFT_PLAN_IN_RANK_ORDER) == 0;
        for (size_t i = 0; i < LENS(colls); i++) {
            if ((builder->colls >> colls[i] & 1) != 0) {
                EXPECT_PASS(check_algorithm(comm, builder, colls[i], rank, shared));
            }
        }
    }
    EXPECT(others > 3); /* there was something to refuse */
    return 0;
}

static void deterministic_mode_refuses_other_algorithms(void **state)
{
    (void)state;
    setenv("WEFT_DETERMINISTIC", "1", 1);
    run_ways(PROCESSES, 4, run_refused);
}

/* By the environment too: at the start or by the first call that it is about. */
static int run_contradiction(int rank, struct harness_shared *shared, void *arg)
{
    weft_comm_t comm = NULL;
    float in[8] = {0}, out[8];
    weft_status_t status = job_join(rank, shared, NULL, &comm);
    (void)arg;
    if (status == WEFT_OK) {
        status = weft_allreduce(comm, in, out, 8, WEFT_F32, WEFT_SUM, NULL);
    }
    EXPECT(status == WEFT_ERR_UNSUPPORTED || status == WEFT_ERR_INVALID);
    EXPECT(strstr(weft_error_text(), "ring") != NULL);
    EXPECT(strcasestr(weft_error_text(), "deterministic") != NULL);
    weft_comm_close(comm);
    return 0;
}

static void deterministic_mode_refuses_weft_algo_too(void **state)
{
    (void)state;
    setenv("WEFT_DETERMINISTIC", "1", 1);
    setenv("WEFT_ALGO", "ring", 1);
    run_bodies(PROCESSES, 3, run_contradiction);
}

/* ---- without the mode ---- */

static int check_equal(weft_comm_t comm, const struct sum *sum, const char *algorithm, int rank,
                       struct harness_shared *shared)
{
    struct vectors vectors;
    uint64_t hash, all[RANKS_MOST];
    weft_status_t status;
    open_vectors(&vectors, MEMORY_PRIVATE);
    status = make_sum(comm, sum, rank, shared->ranks, algorithm, &vectors);
    hash = hash_of(vectors.out, vectors.len);
    close_vectors(&vectors, MEMORY_PRIVATE);
    if (algorithm != NULL && status == WEFT_ERR_UNSUPPORTED) {
        return 0;
    }
    EXPECT_OK(status);
    EXPECT_OK(weft_control_allgather(comm, &hash, sizeof(hash), all));
    for (int r = 0; r < shared->ranks; r++) {
        if (all[r] != all[0]) {
            return harness_say(shared, rank, FAILED, "allreduce %s of %zu by %s: rank %d differs",
                               weft_dtype_name(sum->dtype), sum->count,
                               algorithm != NULL ? algorithm : "the model", r);
        }
    }
    return 0;
}

static int run_equal(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    static const weft_dtype_t dtypes[] = {WEFT_F32, WEFT_BF16, WEFT_F16};
    static const size_t counts[] = {1, 100, 4000, 40000};
    for (size_t b = 0; b == 0 || weft_plan_builders[b - 1] != NULL; b++) {
        const struct weft_plan_builder *builder = b == 0 ? NULL : weft_plan_builders[b - 1];
        if (builder != NULL && (builder->colls >> WEFT_ALLREDUCE & 1) == 0) {
            continue;
        }
        for (size_t i = 0; i < 4 * LENS(dtypes); i++) {
            struct sum sum = {
                WEFT_ALLREDUCE, dtypes[i % LENS(dtypes)], WEFT_SUM, counts[i / LENS(dtypes)], 0, i,
                false};
            EXPECT_PASS(
                check_equal(comm, &sum, builder != NULL ? builder->name : NULL, rank, shared));
        }
    }
    return 0;
}

static void all_ranks_have_the_same_bits_in_any_mode(void **state)
{
    (void)state;
    run_ways(PROCESSES, 3, run_equal);
    run_ways(PROCESSES, 8, run_equal);
}

/* ---- between the hops ---- */

/* 2048 + 1 is 2048 in f16, and stays so however often; in f32 all the ones count. */
static int check_wide(weft_comm_t comm, weft_dtype_t dtype, const char *algorithm, int rank,
                      struct harness_shared *shared)
{
    enum { COUNT = 700 };
    uint8_t in[COUNT * 2], out[COUNT * 2];
    double large = ldexp(1, values_format(dtype).mantissa + 1), want = large + shared->ranks - 1;
    size_t size = weft_dtype_size(dtype);
    weft_call_t call = WEFT_CALL_INIT;
    weft_status_t status;
    for (size_t i = 0; i < COUNT; i++) {
        bool is_large = i % (size_t)shared->ranks == (size_t)rank;
        values_store(dtype, values_encode(dtype, is_large ? large : 1), in + i * size);
    }
    call.coll = WEFT_ALLREDUCE;
    call.dtype = dtype;
    call.in = in;
    call.out = out;
    call.count = COUNT;
    call.algorithm = algorithm;
    status = weft_collective(comm, &call, NULL);
    if (status == WEFT_ERR_UNSUPPORTED) {
        return 0;
    }
    EXPECT_OK(status);
    for (size_t i = 0; i < COUNT; i++) {
        double got = values_decode(dtype, values_load(dtype, out + i * size));
        if (got != values_decode(dtype, values_encode(dtype, want))) {
            return harness_say(shared, rank, FAILED, "%s by %s: element %zu is %g, not %g",
                               weft_dtype_name(dtype), algorithm, i, got, want);
        }
    }
    return 0;
}

static int run_wide(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    static const weft_dtype_t dtypes[] = {WEFT_F16, WEFT_BF16, WEFT_F8E4M3, WEFT_F8E5M2};
    for (size_t b = 0; weft_plan_builders[b] != NULL; b++) {
        for (size_t i = 0; i < LENS(dtypes); i++) {
            if ((weft_plan_builders[b]->colls >> WEFT_ALLREDUCE & 1) != 0) {
                EXPECT_PASS(check_wide(comm, dtypes[i], weft_plan_builders[b]->name, rank, shared));
            }
        }
    }
    return 0;
}

static void weft_acc_keeps_small_floats_wide_between_the_hops(void **state)
{
    (void)state;
    setenv("WEFT_ACC", "f32", 1);
    run_ways(PROCESSES, 3, run_wide);
    run_ways(PROCESSES, 5, run_wide);
    run_ways(PROCESSES, 8, run_wide);
}

/* After every test, also one that failed. */
static int forget_settings(void **state)
{
    (void)state;
    unsetenv("WEFT_DETERMINISTIC");
    unsetenv("WEFT_ALGO");
    unsetenv("WEFT_ACC");
    for (size_t i = 0; i < LENS(settings); i++) {
        unsetenv(settings[i].name);
    }
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(deterministic_bits_do_not_depend_on_paths_and_pieces,
                                  forget_settings),
        cmocka_unit_test_teardown(deterministic_mode_refuses_other_algorithms, forget_settings),
        cmocka_unit_test_teardown(deterministic_mode_refuses_weft_algo_too, forget_settings),
        cmocka_unit_test_teardown(weft_acc_keeps_small_floats_wide_between_the_hops,
                                  forget_settings),
        cmocka_unit_test_teardown(all_ranks_have_the_same_bits_in_any_mode, forget_settings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
