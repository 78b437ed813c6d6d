/* SPDX-License-Identifier: Apache-2.0 */
/* Splitting: who is in, in which order, nested, side by side, and frames that come early. */
#include "comm_support.h"

#include <limits.h>

/* Colour and key of a rank in one split of the list below. */
struct choice {
    int colour, key;
};

typedef struct choice (*choose_fn)(int rank, int ranks);

static struct choice by_parity(int rank, int ranks)
{
    (void)ranks;
    return (struct choice){rank % 2, 0};
}

static struct choice reversed(int rank, int ranks)
{
    (void)ranks;
    return (struct choice){0, -rank};
}

static struct choice same_keys(int rank, int ranks)
{
    (void)rank;
    (void)ranks;
    return (struct choice){7, 42};
}

static struct choice all_alone(int rank, int ranks)
{
    (void)ranks;
    return (struct choice){rank, 0};
}

static struct choice some_stay_out(int rank, int ranks)
{
    (void)ranks;
    return (struct choice){rank % 3 == 0 ? -1 - rank : rank % 3, rank};
}

static struct choice nobody(int rank, int ranks)
{
    (void)rank;
    (void)ranks;
    return (struct choice){-1, 0};
}

static struct choice extremes(int rank, int ranks)
{
    static const int keys[] = {INT_MAX, INT_MIN, 0, -1, 1};
    (void)ranks;
    return (struct choice){INT_MAX - rank % 2, keys[rank % 5]};
}

static struct choice rotated(int rank, int ranks)
{
    return (struct choice){rank < ranks / 2, (rank + 3) % ranks};
}

/* The model: whoever has my colour, by key, then by rank. */
static void model_of(choose_fn choose, int rank, int ranks, int *size_p, int *place_p)
{
    struct choice mine = choose(rank, ranks);
    *size_p = *place_p = 0;
    for (int other = 0; other < ranks; other++) {
        struct choice theirs = choose(other, ranks);
        bool is_before = theirs.key < mine.key || (theirs.key == mine.key && other < rank);
        if (theirs.colour == mine.colour) {
            ++*size_p;
            *place_p += is_before;
        }
    }
}

static int split_each_way(int rank, struct harness_shared *shared, void *arg)
{
    static const choose_fn ways[] = {by_parity,     reversed, same_keys, all_alone,
                                     some_stay_out, nobody,   extremes,  rotated};
    weft_comm_t comm = NULL;
    EXPECT_OK(job_join(rank, shared, arg, &comm));
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        struct choice mine = ways[i](rank, shared->ranks);
        weft_comm_t part = (weft_comm_t)&mine; /* anything but NULL */
        int size, place, me = -1, ranks = -1, local = -1, locals = -1;
        EXPECT_OK(weft_comm_split(comm, mine.colour, mine.key, &part));
        if (mine.colour < 0) {
            EXPECT(part == NULL);
            continue;
        }
        model_of(ways[i], rank, shared->ranks, &size, &place);
        EXPECT_OK(weft_comm_rank(part, &me));
        EXPECT_OK(weft_comm_ranks(part, &ranks));
        EXPECT(me == place && ranks == size);
        EXPECT_OK(weft_comm_local(part, &local, &locals));
        EXPECT(local == place && locals == size);
        EXPECT_PASS(
            check_allgather(part, me, ranks, 100, mix(i) + (uint64_t)mine.colour, rank, shared));
        EXPECT_PASS(check_ring(part, me, ranks, 1000, mix(i), rank, shared));
        EXPECT_PASS(check_broadcast(part, me, ranks - 1, 500, mix(i), rank, shared));
        EXPECT_OK(weft_comm_close(part));
    }
    EXPECT_OK(weft_control_barrier(comm));
    EXPECT_OK(weft_comm_close(comm));
    return 0;
}

static void every_way_to_split_gives_the_ranks_the_model_says(void **state)
{
    (void)state;
    run_processes(9, split_each_way, NULL);
    run_threads(6, split_each_way, NULL);
}

static void splits_work_on_a_tree_of_degree_two(void **state)
{
    (void)state;
    setenv("WEFT_TREE_DEGREE", "2", 1);
    run_processes(13, split_each_way, NULL);
    unsetenv("WEFT_TREE_DEGREE");
}

/* ---- nested, side by side ---- */

static int split_in_halves_until_alone(int rank, struct harness_shared *shared, void *arg)
{
    weft_comm_t chain[8] = {NULL};
    int depth = 0, me = rank, ranks = shared->ranks;
    EXPECT_OK(job_join(rank, shared, arg, &chain[0]));
    while (ranks > 1) {
        int upper = me >= ranks / 2;
        EXPECT_OK(weft_comm_split(chain[depth], upper, 0, &chain[depth + 1]));
        depth++;
        EXPECT_OK(weft_comm_rank(chain[depth], &me));
        EXPECT_OK(weft_comm_ranks(chain[depth], &ranks));
    }
    /* all of them still work, the innermost first and the outermost first */
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i <= depth; i++) {
            weft_comm_t comm = chain[turn == 0 ? depth - i : i];
            EXPECT_OK(weft_comm_rank(comm, &me));
            EXPECT_OK(weft_comm_ranks(comm, &ranks));
            EXPECT_PASS(check_allgather(comm, me, ranks, 33, (uint64_t)ranks, rank, shared));
            EXPECT_PASS(check_ring(comm, me, ranks, 77, (uint64_t)ranks, rank, shared));
        }
    }
    EXPECT(weft_comm_close(chain[0]) == WEFT_ERR_BUSY); /* children before parents */
    EXPECT(depth == 0 || strstr(weft_error_text(), "still open") != NULL);
    EXPECT_OK(weft_comm_status(chain[0]));
    for (int i = depth; i >= 0; i--) {
        EXPECT(i > 0 || weft_control_barrier(chain[0]) == WEFT_OK);
        EXPECT_OK(weft_comm_close(chain[i]));
    }
    return 0;
}

static void nested_splits_all_work_and_close_from_the_inside(void **state)
{
    (void)state;
    run_processes(8, split_in_halves_until_alone, NULL);
    run_threads(8, split_in_halves_until_alone, NULL);
}

/* Rows and columns of a grid: each rank is in both and uses them in turn. */
static int rows_and_columns(int rank, struct harness_shared *shared, void *arg)
{
    enum { WIDTH = 3 };
    weft_comm_t comm = NULL, row = NULL, column = NULL;
    int height = shared->ranks / WIDTH;
    EXPECT_OK(job_join(rank, shared, arg, &comm));
    EXPECT_OK(weft_comm_split(comm, rank / WIDTH, rank, &row));
    EXPECT_OK(weft_comm_split(comm, rank % WIDTH, rank, &column));
    for (uint64_t i = 0; i < 20; i++) {
        uint64_t here = mix(i) + (uint64_t)(rank / WIDTH) * 1000;
        uint64_t there = mix(i) + (uint64_t)(rank % WIDTH) * 2000;
        EXPECT_PASS(check_allgather(row, rank % WIDTH, WIDTH, 40, here, rank, shared));
        EXPECT_PASS(check_ring(column, rank / WIDTH, height, 40, there, rank, shared));
        EXPECT_PASS(check_allgather(column, rank / WIDTH, height, 40, there, rank, shared));
        EXPECT_PASS(check_ring(row, rank % WIDTH, WIDTH, 40, here, rank, shared));
        EXPECT_PASS(check_broadcast(comm, rank, (int)i % shared->ranks, 40, i, rank, shared));
    }
    EXPECT_OK(weft_comm_close(column));
    EXPECT_OK(weft_comm_close(row));
    EXPECT_OK(weft_control_barrier(comm));
    EXPECT_OK(weft_comm_close(comm));
    return 0;
}

static void operations_on_rows_and_columns_do_not_mix(void **state)
{
    (void)state;
    run_processes(9, rows_and_columns, NULL);
    run_threads(9, rows_and_columns, NULL);
}

/* ---- early frames ---- */

/* Rank 1 is held up inside the split: everybody else is through and sends to it on the new one. */
static int send_before_the_other_has_it(int rank, struct harness_shared *shared, void *arg)
{
    weft_comm_t comm = NULL, part = NULL;
    uint32_t value = (uint32_t)rank, got;
    int last = shared->ranks - 1;
    EXPECT_OK(job_join(rank, shared, arg, &comm));
    for (int round = 0; round < 30; round++) {
        EXPECT_OK(weft_comm_split(comm, 0, 0, &part));
        if (rank != last) { /* the last leaf of the tree hears of the result last */
            EXPECT_OK(weft_control_send(part, last, 5, &value, sizeof(value)));
        }
        for (int from = 0; rank == last && from < last; from++) {
            EXPECT_OK(weft_control_recv(part, from, 5, &got, sizeof(got), NULL));
            EXPECT(got == (uint32_t)from);
        }
        EXPECT_OK(weft_control_barrier(part));
        EXPECT_OK(weft_comm_close(part));
    }
    EXPECT_OK(weft_control_barrier(comm));
    EXPECT_OK(weft_comm_close(comm));
    return 0;
}

static void frames_that_come_before_the_split_returned_are_kept(void **state)
{
    (void)state;
    setenv("WEFT_TREE_DEGREE", "2", 1);
    run_processes(8, send_before_the_other_has_it, NULL);
    unsetenv("WEFT_TREE_DEGREE");
}

/* A rank may close its part while the others still talk on theirs: nothing of it is missed. */
static int close_with_mail_unread(int rank, struct harness_shared *shared, void *arg)
{
    weft_comm_t comm = NULL, part = NULL;
    uint8_t data[256] = {0};
    EXPECT_OK(job_join(rank, shared, arg, &comm));
    for (int round = 0; round < 10; round++) {
        EXPECT_OK(weft_comm_split(comm, 0, 0, &part));
        EXPECT_OK(weft_control_send(part, (rank + 1) % shared->ranks, 1, data, sizeof(data)));
        EXPECT_OK(weft_comm_close(part)); /* unread mail goes with it */
    }
    EXPECT_PASS(check_all_operations(comm, 9, &shared->word[0], rank, shared));
    EXPECT_OK(weft_control_barrier(comm));
    EXPECT_OK(weft_comm_close(comm));
    return 0;
}

static void mail_of_a_closed_part_is_sunk_and_leaks_nothing(void **state)
{
    (void)state;
    run_processes(4, close_with_mail_unread, NULL);
}

/* More parts over time than the control plane remembers closed ones of. */
static int a_hundred_splits(int rank, struct harness_shared *shared, void *arg)
{
    weft_comm_t comm = NULL;
    EXPECT_OK(job_join(rank, shared, arg, &comm));
    for (int round = 0; round < 100; round++) {
        weft_comm_t part = NULL;
        EXPECT_OK(weft_comm_split(comm, rank % 2, round % 2 ? rank : -rank, &part));
        EXPECT_OK(weft_control_barrier(part));
        EXPECT_OK(weft_comm_close(part));
    }
    EXPECT_OK(weft_control_barrier(comm));
    EXPECT_OK(weft_comm_close(comm));
    return 0;
}

static void a_hundred_splits_in_a_row_work(void **state)
{
    (void)state;
    run_processes(4, a_hundred_splits, NULL);
}

/* ---- failures stay where they belong ---- */

static int abort_one_part(int rank, struct harness_shared *shared, void *arg)
{
    weft_comm_t comm = NULL, part = NULL;
    weft_status_t status;
    EXPECT_OK(job_join(rank, shared, arg, &comm));
    EXPECT_OK(weft_comm_split(comm, rank % 2, 0, &part));
    if (rank == 1) {
        EXPECT_OK(weft_abort(part, "odd ones out"));
    }
    status = weft_control_barrier(part);
    EXPECT(status == (rank % 2 == 1 ? WEFT_ERR_ABORTED : WEFT_OK));
    EXPECT(status == WEFT_OK || strstr(weft_error_text(), "odd ones out") != NULL);
    EXPECT_OK(weft_comm_status(comm)); /* the parent lives */
    EXPECT_PASS(check_all_operations(comm, 5, &shared->word[0], rank, shared));
    EXPECT_OK(weft_comm_close(part));
    EXPECT_OK(weft_control_barrier(comm));
    EXPECT_OK(weft_comm_close(comm));
    return 0;
}

static void aborting_a_part_ends_that_part_only(void **state)
{
    (void)state;
    run_processes(6, abort_one_part, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_way_to_split_gives_the_ranks_the_model_says),
        cmocka_unit_test(splits_work_on_a_tree_of_degree_two),
        cmocka_unit_test(nested_splits_all_work_and_close_from_the_inside),
        cmocka_unit_test(operations_on_rows_and_columns_do_not_mix),
        cmocka_unit_test(frames_that_come_before_the_split_returned_are_kept),
        cmocka_unit_test(mail_of_a_closed_part_is_sunk_and_leaks_nothing),
        cmocka_unit_test(a_hundred_splits_in_a_row_work),
        cmocka_unit_test(aborting_a_part_ends_that_part_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
