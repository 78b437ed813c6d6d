/* SPDX-License-Identifier: Apache-2.0 */
#include "crew.h"

#include <pthread.h>

static void slots_of_equal_length_wait_for_those_that_lay_there(void **state)
{
    struct crew crew;
    struct weft_board *board = &crew.board[0];

    (void)state;
    open_crew(&crew, RING, RING);
    for (uint32_t i = 0; i < 24; i++) {
        size_t offset;
        uint32_t free_at = weft_board_take(board, RING / 8, &offset);
        assert_int_equal(offset, i % 8 * (RING / 8));
        assert_int_equal(free_at, i < 8 ? 0 : 3 * (i - 8 + 1));
        weft_board_end(board, 3, 0);
    }
    close_crew(&crew);
}

static void slots_do_not_wrap(void **state)
{
    struct crew crew;
    struct weft_board *board = &crew.board[0];
    size_t offset;

    (void)state;
    open_crew(&crew, RING, RING);
    weft_board_take(board, RING - 1000, &offset);
    weft_board_end(board, 1, 0);
    assert_int_equal(weft_board_take(board, 1001, &offset), 1);
    assert_int_equal(offset, 0);
    weft_board_end(board, 1, 0);
    assert_int_equal(weft_board_take(board, RING, &offset), 2); /* all of it fits */
    assert_int_equal(offset, 0);
    close_crew(&crew);
}

static void what_follows_a_gap_does_not_wait_for_who_left_it(void **state)
{
    static const size_t eighths[] = {3, 3, 3, 4}; /* two eighths are left before the third */
    static const uint32_t waits_for[] = {0, 0, 1, 2};
    static const size_t offsets[] = {0, 3, 0, 3};
    struct crew crew;
    struct weft_board *board = &crew.board[0];

    (void)state;
    open_crew(&crew, RING, RING);
    for (size_t i = 0; i < WEFT_COUNT_OF(eighths); i++) {
        size_t offset;
        assert_int_equal(weft_board_take(board, eighths[i] * (RING / 8), &offset), waits_for[i]);
        assert_int_equal(offset, offsets[i] * (RING / 8));
        weft_board_end(board, 1, 0);
    }
    close_crew(&crew);
}

static uint32_t take_little(struct weft_board *board, bool has_slots)
{
    size_t offset;
    return has_slots ? weft_board_take(board, 1, &offset) : weft_board_take_line(board);
}

static void use_lines_again(bool has_slots)
{
    struct crew crew;
    struct weft_board *fast = &crew.board[1];
    struct weft_board_line *first;
    uint32_t slow = RANKS;

    open_crew(&crew, RING, RING);
    first = weft_board_line(fast, 1);
    for (uint32_t i = 0; i < WEFT_BOARD_LINES; i++) {
        assert_true((weft_board_line(fast, 1) == first) == (i == 0));
        assert_int_equal(take_little(fast, has_slots), 0);
        weft_board_end(fast, 7, 0);
    }
    assert_ptr_equal(weft_board_line(fast, 1), first);
    assert_int_equal(take_little(fast, has_slots), 7);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        if (rank != 1) {
            assert_false(weft_board_has_ended(fast, 7, &slow));
            assert_int_equal(slow, rank);
            weft_board_end(&crew.board[rank], 7, 0);
        }
    }
    assert_true(weft_board_has_ended(fast, 7, &slow));
    weft_board_end(fast, 7, 0);
    assert_int_equal(take_little(fast, has_slots), 14);
    close_crew(&crew);
}

static void a_line_is_used_again_after_32_operations(void **state)
{
    (void)state;
    use_lines_again(false);
    use_lines_again(true);
}

static void whoever_has_not_ended_is_named(void **state)
{
    struct crew crew;
    struct weft_board *board = &crew.board[2];
    uint32_t slow = 99;

    (void)state;
    open_crew(&crew, RING, RING);
    assert_true(weft_board_has_ended(board, 0, &slow));
    assert_int_equal(slow, 99);
    weft_board_end(&crew.board[0], 5, 0);
    weft_board_end(&crew.board[3], 5, 0); /* rank 2 itself has not, and is not asked */
    assert_false(weft_board_has_ended(board, 5, &slow));
    assert_int_equal(slow, 1);
    weft_board_end(&crew.board[1], 4, 0);
    assert_true(weft_board_has_ended(board, 4, &slow));
    assert_false(weft_board_has_ended(board, 5, &slow));
    assert_int_equal(slow, 1);
    weft_board_end(&crew.board[1], 1, 0);
    slow = 99;
    assert_true(weft_board_has_ended(board, 5, &slow));
    assert_int_equal(slow, 99);
    close_crew(&crew);
}

static void seats_and_rings_lie_apart_and_within(void **state)
{
    struct crew crew;
    uintptr_t memory;

    (void)state;
    open_crew(&crew, RING, RING);
    memory = (uintptr_t)crew.memory;
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        const struct weft_board *board = &crew.board[rank];
        assert_ptr_equal(board->table, crew.memory);
        assert_true((uintptr_t)board->seats >= (uintptr_t)(board->table + 1));
        assert_int_equal((uintptr_t)board->seats % WEFT_BOARD_STRIDE, 0);
        assert_true((uintptr_t)board->rings >= (uintptr_t)(board->seats + RANKS));
        assert_int_equal((uintptr_t)board->rings % 4096, 0);
        assert_true((uintptr_t)board->rings + RANKS * RING <= memory + weft_board_len(RANKS, RING));
    }
    close_crew(&crew);
    for (uint32_t ranks = 1; ranks <= 4096; ranks *= 2) {
        size_t len = weft_board_ring_len(ranks);
        assert_in_range(len, SMALL, WEFT_BOARD_RING_MAX);
        assert_int_equal(len % SMALL, 0);
        assert_true(len == SMALL || len * ranks <= weft_mem_cache_len() / 2);
    }
}

/* ---- steps that anyone may do ---- */

#define STEPS 1000000 /* longer than a turn of a thread on a busy CPU: they meet */
#define ROUNDS 3

struct claims {
    struct crew crew;
    pthread_barrier_t barrier;
    _Atomic uint8_t times[ROUNDS][STEPS];
};
struct claimer {
    struct claims *claims;
    struct weft_board *board;
};

static void *claim_all(void *arg)
{
    struct claimer *claimer = arg;

    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t count = STEPS - round, step; /* not as many each time */
        pthread_barrier_wait(&claimer->claims->barrier);
        while ((step = weft_board_claim(claimer->board, count)) < count) {
            atomic_fetch_add(&claimer->claims->times[round][step], 1);
        }
        weft_board_end(claimer->board, 1, count);
    }
    return NULL;
}

static void every_step_is_claimed_once(void **state)
{
    struct claims *claims = calloc(1, sizeof(*claims));
    struct claimer claimer[RANKS];
    pthread_t thread[RANKS];

    (void)state;
    assert_non_null(claims);
    open_crew(&claims->crew, SMALL, SMALL);
    assert_int_equal(pthread_barrier_init(&claims->barrier, NULL, RANKS), 0);
    for (uint32_t i = 0; i < RANKS; i++) {
        claimer[i] = (struct claimer){.claims = claims, .board = &claims->crew.board[i]};
        assert_int_equal(pthread_create(&thread[i], NULL, claim_all, &claimer[i]), 0);
    }
    for (uint32_t i = 0; i < RANKS; i++) {
        pthread_join(thread[i], NULL);
    }
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t wrong = 0;
        for (uint32_t step = 0; step < STEPS; step++) {
            wrong += claims->times[round][step] != (step < STEPS - round);
        }
        assert_int_equal(wrong, 0);
    }
    pthread_barrier_destroy(&claims->barrier);
    close_crew(&claims->crew);
    free(claims);
}

/* Who was away at the time of the stop does not come back; who was not is seen. */
static void who_comes_back_to_a_claim_sees_that_claims_were_stopped(void **state)
{
    struct crew *crew = calloc(1, sizeof(*crew));
    struct weft_board *mine, *other;
    (void)state;
    assert_non_null(crew);
    open_crew(crew, SMALL, SMALL);
    mine = &crew->board[0];
    other = &crew->board[1];
    weft_board_begin_claims(other);
    assert_int_equal(weft_board_claim(other, 3), 0);
    weft_board_end_claims(other);
    assert_false(weft_board_is_at_claim(mine, 1));
    assert_true(weft_board_resume_claims(other));
    assert_true(weft_board_is_at_claim(mine, 1));
    assert_int_equal(weft_board_claim(other, 3), 1);
    weft_board_end_claims(other);
    weft_board_stop_claims(mine);
    assert_false(weft_board_resume_claims(other));
    assert_false(weft_board_is_at_claim(mine, 1));
    close_crew(crew);
    free(crew);
}

static void claims_begin_anew_with_each_operation(void **state)
{
    struct crew crew;
    struct weft_board *board = &crew.board[0];

    (void)state;
    open_crew(&crew, SMALL, SMALL);
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(weft_board_claim(board, 2), 0);
        if (i % 2 == 0) { /* else one is left over */
            assert_int_equal(weft_board_claim(board, 2), 1);
            assert_int_equal(weft_board_claim(board, 2), 2);
            assert_int_equal(weft_board_claim(board, 2), 2);
        }
        weft_board_end(board, 1, 2);
        assert_int_equal(board->any_base, 2 * (i + 1));
    }
    assert_int_equal(weft_board_claim(board, 0), 0); /* none */
    assert_int_equal(weft_board_claim(board, 1), 0);
    close_crew(&crew);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_of_equal_length_wait_for_those_that_lay_there),
        cmocka_unit_test(slots_do_not_wrap),
        cmocka_unit_test(what_follows_a_gap_does_not_wait_for_who_left_it),
        cmocka_unit_test(a_line_is_used_again_after_32_operations),
        cmocka_unit_test(whoever_has_not_ended_is_named),
        cmocka_unit_test(seats_and_rings_lie_apart_and_within),
        cmocka_unit_test(every_step_is_claimed_once),
        cmocka_unit_test(who_comes_back_to_a_claim_sees_that_claims_were_stopped),
        cmocka_unit_test(claims_begin_anew_with_each_operation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
