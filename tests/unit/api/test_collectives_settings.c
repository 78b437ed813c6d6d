/* SPDX-License-Identifier: Apache-2.0 */
/* Settings change how collectives are made, never what comes out; WEFT_ALGO names the algorithm, for all
 * operations or for some, and a name that is none is refused. */
#include "unit/api/collectives_sweep.h"

#include <sched.h>

/* Every collective, short, middle and long. */
static int run_some(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    static const size_t counts[] = {1, 13, 700, 9000, 40001};
    struct sweep sweep;
    EXPECT_PASS(sweep_open(&sweep, comm, 250000, rank, shared));
    for (weft_coll_t coll = WEFT_ALLREDUCE; coll <= WEFT_BARRIER; coll++) {
        for (size_t i = 0; i < LENS(counts); i++) {
            struct trial trial = sweep_draw(&sweep, coll, counts[i]);
            EXPECT_PASS(sweep_run(&sweep, &trial));
        }
    }
    desk_close(&sweep.desk);
    return 0;
}

struct setting {
    const char *name, *value;
    int ways, ranks;
};

static const struct setting settings[] = {
    {"WEFT_SHM_POOL", "1M", SHM_PROCESSES, 5},
    {"WEFT_CMA", "on", SHM_PROCESSES, 4},
    {"WEFT_CMA", "off", SHM_PROCESSES, 4},
    {"WEFT_EAGER", "0", PROCESSES, 3},
    {"WEFT_EAGER", "128K", TCP_PROCESSES, 4},
    {"WEFT_CHUNK", "16K", TCP_PROCESSES, 3},
    {"WEFT_WINDOW", "1", TCP_PROCESSES, 3},
    {"WEFT_CHECKSUM", "on", TCP_PROCESSES, 5},
    {"WEFT_SECURITY", "integrity", TCP_PROCESSES, 3},
    {"WEFT_SECURITY", "encrypt", TCP_PROCESSES, 4},
    {"WEFT_SPIN", "0", PROCESSES, 4},
    {"WEFT_SPIN", "1000", PROCESSES, 2},
    {"WEFT_ACC", "f32", PROCESSES, 5},
    {"WEFT_DETERMINISTIC", "1", PROCESSES, 6},
    {"WEFT_TREE_DEGREE", "2", PROCESSES, 7},
    {"WEFT_HEARTBEAT", "20ms", PROCESSES, 3},
};

static int forget_settings(void **state)
{
    (void)state;
    unsetenv("WEFT_ALGO");
    for (size_t i = 0; i < LENS(settings); i++) {
        unsetenv(settings[i].name);
    }
    return 0;
}

static void settings_do_not_change_results(void **state)
{
    for (size_t i = 0; i < LENS(settings); i++) {
        snprintf(run_note, sizeof(run_note), ", %s=%s", settings[i].name, settings[i].value);
        setenv(settings[i].name, settings[i].value, 1);
        run_ways(settings[i].ways, settings[i].ranks, run_some);
        forget_settings(state);
    }
    run_note[0] = '\0';
}

/* Each rank knows how many CPUs it may use itself; what they do together must not depend on that. */
static int run_unlike(int rank, struct harness_shared *shared, void *arg)
{
    weft_comm_t comm = NULL;
    cpu_set_t all, one;
    (void)arg;
    CPU_ZERO(&one);
    EXPECT(sched_getaffinity(0, sizeof(all), &all) == 0);
    for (size_t cpu = 0; CPU_COUNT(&one) == 0; cpu++) {
        if (CPU_ISSET(cpu, &all)) {
            CPU_SET(cpu, &one);
        }
    }
    EXPECT(rank != 0 || sched_setaffinity(0, sizeof(one), &one) == 0);
    EXPECT_OK(job_join(rank, shared, NULL, &comm));
    EXPECT_PASS(run_some(comm, rank, shared));
    EXPECT_OK(weft_comm_close(comm));
    return 0;
}

static void ranks_may_have_different_cpus(void **state)
{
    (void)state;
    run_bodies(SHM_PROCESSES, 2, run_unlike);
}

/* More ranks than one pass adds: what goes through the slots is longer than what the call says. */
static int run_many(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    static const weft_dtype_t dtypes[] = {WEFT_BF16, WEFT_F8E5M2};
    enum { COUNT = 60000 };
    (void)shared;
    for (size_t i = 0; i < LENS(dtypes); i++) {
        size_t len = COUNT * weft_dtype_size(dtypes[i]);
        uint8_t *in = allocate(len), *out = allocate(len);
        for (size_t k = 0; k < COUNT; k += 100) {
            double value = rank == (int)(k / 100 % 65) ? 2 : 0;
            values_store(dtypes[i], values_encode(dtypes[i], value), in + k * len / COUNT);
        }
        memset(out, 0xff, len);
        EXPECT_OK(weft_allreduce(comm, in, out, COUNT, dtypes[i], WEFT_SUM, NULL));
        for (size_t k = 0; k < COUNT; k++) {
            double value = values_decode(dtypes[i], values_load(dtypes[i], out + k * len / COUNT));
            EXPECT(value == (k % 100 == 0 ? 2 : 0));
        }
        free(in);
        free(out);
    }
    return 0;
}

static void sums_of_many_ranks_are_widened_within_the_slots(void **state)
{
    (void)state;
    setenv("WEFT_ACC", "f32", 1);
    run_ways(SHM_THREADS, 65, run_many);
}

/* ---- WEFT_ALGO ---- */

/* A name for all operations concerns those that know it; the others are as the model says. */
static void an_algorithm_for_all_operations_is_right(void **state)
{
    (void)state;
    for (size_t b = 0; weft_plan_builders[b] != NULL; b++) {
        const struct weft_plan_builder *builder = weft_plan_builders[b];
        if ((builder->traits & (WEFT_PLAN_SHARED | WEFT_PLAN_EQUAL_ONLY)) == 0) {
            snprintf(run_note, sizeof(run_note), ", WEFT_ALGO=%s", builder->name);
            setenv("WEFT_ALGO", builder->name, 1);
            run_ways(TCP_PROCESSES, 3, run_some);
        }
    }
    run_note[0] = '\0';
}

static const struct weft_plan_builder *find_for(weft_coll_t coll)
{
    size_t b = 0;
    while (weft_plan_builders[b] != NULL && ((weft_plan_builders[b]->colls >> coll & 1) == 0 ||
                                             weft_plan_builders[b]->traits != 0)) {
        b++;
    }
    return weft_plan_builders[b];
}

static void algorithms_per_operation_are_right(void **state)
{
    char value[256];
    (void)state;
    assert_non_null(find_for(WEFT_ALLREDUCE));
    assert_non_null(find_for(WEFT_ALLTOALL));
    snprintf(value, sizeof(value), "allreduce:%s,alltoall:%s", find_for(WEFT_ALLREDUCE)->name,
             find_for(WEFT_ALLTOALL)->name);
    setenv("WEFT_ALGO", value, 1);
    run_ways(PROCESSES, 4, run_some);
}

/* Refused at the start, with the place. */
static void check_refused(const char *name, const char *value, const char *words)
{
    weft_id_t id;
    setenv(name, value, 1);
    assert_int_equal(weft_id_create(NULL, &id), WEFT_ERR_INVALID);
    if (strstr(weft_error_text(), name) == NULL || strstr(weft_error_text(), words) == NULL) {
        fail_msg("%s=%s: %s", name, value, weft_error_text());
    }
    unsetenv(name);
}

static void settings_that_mean_nothing_are_refused(void **state)
{
    (void)state;
    check_refused("WEFT_ALGO", ",", "comma");
    check_refused("WEFT_ALGO", "ring,ring", "second algorithm");
    check_refused("WEFT_COSTS", "copy=9G duplex=7", "duplex=7");
    check_refused("WEFT_COSTS", "copy=9G fast", "at \"fast\"");
    check_refused("WEFT_COSTS", "copy=fast", "at \"copy=fast\"");
}

static void a_name_that_is_none_is_refused(void **state)
{
    (void)state;
    check_refused("WEFT_ALGO", "zigzag", "no algorithm \"zigzag\"");
    check_refused("WEFT_ALGO", "broadcast:chain,allreduce:zigzag", "no algorithm \"zigzag\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(settings_do_not_change_results, forget_settings),
        cmocka_unit_test(ranks_may_have_different_cpus),
        cmocka_unit_test_teardown(sums_of_many_ranks_are_widened_within_the_slots, forget_settings),
        cmocka_unit_test_teardown(an_algorithm_for_all_operations_is_right, forget_settings),
        cmocka_unit_test_teardown(algorithms_per_operation_are_right, forget_settings),
        cmocka_unit_test_teardown(a_name_that_is_none_is_refused, forget_settings),
        cmocka_unit_test(settings_that_mean_nothing_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
