/* SPDX-License-Identifier: Apache-2.0 */
/* The data before and the check behind every collective's benchmark. The collective itself is done here, on
 * paper: from where the public header says that inputs are to where it says that outputs go. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/bench_coll.h"

#define RANKS 3
#define COUNT 1500                            /* more than a period */
#define WHOLE_LEN ((size_t)RANKS * COUNT * 4) /* of int32_t */
#define ROOT 1

static struct coll_arguments arguments;
static struct coll_plan plan = {.arguments = &arguments, .ranks = RANKS};
static struct coll_cell cell;
static struct coll_rank ranks[RANKS];

static int32_t *input(struct coll_rank *rank)
{
    int32_t *in = (int32_t *)(void *)rank->in, *out = (int32_t *)(void *)rank->out;
    bool is_root = rank->rank == ROOT;
    if (!cell.is_inplace) {
        return in;
    }
    switch (arguments.coll) {
    case WEFT_ALLREDUCE:
    case WEFT_REDUCE:
    case WEFT_REDUCE_SCATTER:
        return out;
    case WEFT_ALLGATHER:
        return out + (size_t)rank->rank * COUNT;
    case WEFT_GATHER:
        return is_root ? out + (size_t)rank->rank * COUNT : in;
    default:
        return in;
    }
}

static int32_t *output(struct coll_rank *rank)
{
    int32_t *in = (int32_t *)(void *)rank->in, *out = (int32_t *)(void *)rank->out;
    bool is_root = rank->rank == ROOT;
    if (cell.is_inplace && arguments.coll == WEFT_REDUCE_SCATTER) {
        return out + (size_t)rank->rank * COUNT;
    }
    if (cell.is_inplace && is_root && arguments.coll == WEFT_BROADCAST) {
        return in;
    }
    if (cell.is_inplace && is_root && arguments.coll == WEFT_SCATTER) {
        return in + (size_t)rank->rank * COUNT;
    }
    return out;
}

static int32_t sum_at(int32_t copies[RANKS][RANKS * COUNT], int index)
{
    int32_t sum = 0;
    for (int from = 0; from < RANKS; from++) {
        sum += copies[from][index];
    }
    return sum;
}

/* What rank gets at index, from copies of all inputs; false: nothing. */
static bool result(int32_t copies[RANKS][RANKS * COUNT], int rank, int index, int32_t *value_p)
{
    int piece = index / COUNT, rest = index % COUNT;
    switch (arguments.coll) {
    case WEFT_ALLREDUCE:
        *value_p = sum_at(copies, index);
        return index < COUNT;
    case WEFT_REDUCE:
        *value_p = sum_at(copies, index);
        return index < COUNT && rank == ROOT;
    case WEFT_REDUCE_SCATTER:
        *value_p = sum_at(copies, (rank * COUNT + index) % (RANKS * COUNT));
        return index < COUNT;
    case WEFT_ALLGATHER:
        *value_p = copies[piece][rest];
        return true;
    case WEFT_GATHER:
        *value_p = copies[piece][rest];
        return rank == ROOT;
    case WEFT_BROADCAST:
        *value_p = copies[ROOT][index];
        return index < COUNT;
    case WEFT_SCATTER:
        *value_p = copies[ROOT][(rank * COUNT + index) % (RANKS * COUNT)];
        return index < COUNT;
    case WEFT_ALLTOALL:
        *value_p = copies[piece][rank * COUNT + rest];
        return true;
    default:
        return false;
    }
}

static int input_count(const struct coll_rank *rank)
{
    bool is_whole = arguments.coll == WEFT_REDUCE_SCATTER || arguments.coll == WEFT_ALLTOALL ||
                    (arguments.coll == WEFT_SCATTER && rank->rank == ROOT);
    return is_whole ? RANKS * COUNT : COUNT;
}

static void do_it(void)
{
    static int32_t copies[RANKS][RANKS * COUNT];
    for (int i = 0; i < RANKS; i++) {
        memcpy(copies[i], input(&ranks[i]), (size_t)input_count(&ranks[i]) * sizeof(int32_t));
    }
    for (int i = 0; i < RANKS; i++) {
        for (int index = 0; index < RANKS * COUNT; index++) {
            int32_t value;
            if (result(copies, i, index, &value)) {
                output(&ranks[i])[index] = value;
            }
        }
    }
}

static void set_up(weft_coll_t coll, bool is_inplace)
{
    size_t pieces = weft_bench_coll_is_cut(coll) ? RANKS : 1;
    arguments = (struct coll_arguments){
        .coll = coll, .dtype = WEFT_I32, .redop = WEFT_SUM, .root = ROOT, .check = 1};
    cell = (struct coll_cell){
        .bytes = pieces * COUNT * sizeof(int32_t), .count = COUNT, .is_inplace = is_inplace};
    for (int i = 0; i < RANKS; i++) {
        ranks[i] = (struct coll_rank){
            .plan = &plan,
            .rank = i,
            .root = ROOT,
            .in = calloc(1, WHOLE_LEN),
            .out = calloc(1, WHOLE_LEN),
            .given = calloc(1, sizeof(struct coll_pattern)),
            .wanted = calloc(1, sizeof(struct coll_pattern)),
        };
        weft_bench_coll_given(WEFT_I32, WEFT_SUM, RANKS, i, ranks[i].given);
        weft_bench_coll_wanted(WEFT_I32, WEFT_SUM, RANKS, ranks[i].wanted);
        weft_bench_coll_prepare(&ranks[i], &cell, true);
    }
}

static void tear_down(void)
{
    for (int i = 0; i < RANKS; i++) {
        free(ranks[i].in);
        free(ranks[i].out);
        free(ranks[i].given);
        free(ranks[i].wanted);
    }
}

static bool has_result(int rank)
{
    bool is_root = rank == ROOT;
    switch (arguments.coll) {
    case WEFT_REDUCE:
    case WEFT_GATHER:
        return is_root;
    case WEFT_BROADCAST:
    case WEFT_SCATTER:
        return !is_root || !cell.is_inplace; /* in place the root's is what it gave */
    default:
        return true;
    }
}

static void for_each(void (*body)(void))
{
    for (unsigned coll = 0; coll < WEFT_COLLS; coll++) {
        int ways = coll == WEFT_BARRIER ? 0 : coll == WEFT_ALLTOALL ? 1 : 2;
        for (int inplace = 0; inplace < ways; inplace++) {
            set_up((weft_coll_t)coll, inplace);
            body();
            tear_down();
        }
    }
}

static void assert_right(void)
{
    char why[COLL_TEXT_LEN] = "";
    do_it();
    for (int i = 0; i < RANKS; i++) {
        if (weft_bench_coll_check(&ranks[i], &cell, why) != 0) {
            fail_msg("%s", why);
        }
    }
}

static void right_results_pass(void **state)
{
    (void)state;
    for_each(assert_right);
}

static void assert_nothing_is_seen(void)
{
    char why[COLL_TEXT_LEN] = "";
    for (int i = 0; i < RANKS; i++) { /* nothing was done: what lies there is stale */
        assert_int_equal(weft_bench_coll_check(&ranks[i], &cell, why) > COUNT / 2, has_result(i));
    }
}

static void what_was_never_written_is_wrong(void **state)
{
    (void)state;
    for_each(assert_nothing_is_seen);
}

static void assert_one_wrong_is_seen(void)
{
    do_it();
    for (int i = 0; i < RANKS; i++) {
        char why[COLL_TEXT_LEN] = "";
        int32_t *last = &output(&ranks[i])[COUNT - 1];
        if (has_result(i)) {
            *last ^= 1;
            assert_int_equal(weft_bench_coll_check(&ranks[i], &cell, why), 1);
            assert_non_null(strstr(why, weft_coll_name(arguments.coll)));
            assert_non_null(strstr(why, cell.is_inplace ? "in place" : "out of place"));
            *last ^= 1;
        }
    }
}

static void one_wrong_element_is_found(void **state)
{
    (void)state;
    for_each(assert_one_wrong_is_seen);
}

/* The clock runs on data that stays what it is, however often it is reduced. */
static void reduced_in_place_the_clock_runs_on_zeros(void **state)
{
    (void)state;
    set_up(WEFT_ALLREDUCE, true);
    weft_bench_coll_prepare(&ranks[0], &cell, false);
    for (size_t i = 0; i < cell.bytes; i++) {
        assert_int_equal(ranks[0].out[i], 0);
    }
    tear_down();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_results_pass),
        cmocka_unit_test(what_was_never_written_is_wrong),
        cmocka_unit_test(one_wrong_element_is_found),
        cmocka_unit_test(reduced_in_place_the_clock_runs_on_zeros),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
