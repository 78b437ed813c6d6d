/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a board hands out, over random operations of ranks that are ahead of each other, against a model that
 * only remembers which operation took each line and each piece of ring last.
 */
#include "crew.h"

#define OPERATIONS 500
#define GRANULES (RING / WEFT_BOARD_STRIDE)

struct model {
    struct crew crew;
    uint64_t seed;
    uint32_t max_shows;
    bool is_tiny;
    uint32_t owner[GRANULES]; /* ordinal of the latest operation there; the first has 1 */
    uint32_t drawn;           /* operations so far */
    struct {
        size_t len; /* 0: only a line */
        size_t offset;
        uint32_t shows;
        uint32_t needed; /* everybody must have ended this one */
    } op[OPERATIONS + 1];
    struct {
        uint32_t taken, ended; /* operations; one more taken than ended: it is in it, or waits */
        uint32_t free_at;
        bool is_in;
    } rank[RANKS];
};

/* As if everybody had just ended operation - 1, at this clock, and nothing was in use. */
static void go_on_from(struct crew *crew, uint32_t operation, uint32_t clock)
{
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        struct weft_board *board = &crew->board[rank];
        board->operation = board->oldest = operation;
        board->clock = board->everybody = clock;
        board->past[(operation - 1) % WEFT_BOARD_LINES].clock = clock;
        for (uint32_t other = 0; other < RANKS; other++) {
            board->known[other] = clock;
        }
        atomic_store(&board->seats[rank].ended, clock);
    }
}

static size_t draw_len(struct model *model)
{
    uint64_t *seed = &model->seed;

    if (model->is_tiny) { /* then lines are used up before the ring is */
        return random_below(seed, 300);
    }
    switch (random_below(seed, 8)) {
    case 0:
        return 0;
    case 1:
        return 1 + random_below(seed, RING);
    case 2:
        return 1 + random_below(seed, 160 << 10); /* around what counts as short */
    case 3:
        return 1 + random_below(seed, 300);
    default:
        return 1 + random_below(seed, 16 << 10);
    }
}

/* Whoever is first at an operation draws it and learns where it lies; that is the same for all. */
static void draw(struct model *model, size_t len, size_t offset)
{
    uint32_t number = ++model->drawn;
    size_t from = offset / WEFT_BOARD_STRIDE;
    size_t to = (offset + len + WEFT_BOARD_STRIDE - 1) / WEFT_BOARD_STRIDE;
    uint32_t needed = number > WEFT_BOARD_LINES ? number - WEFT_BOARD_LINES : 0;

    for (size_t i = from; len > 0 && i < to; i++) {
        needed = model->owner[i] > needed ? model->owner[i] : needed;
        model->owner[i] = number;
    }
    model->op[number].offset = offset;
    model->op[number].needed = needed;
    model->op[number].shows = 1 + random_below(&model->seed, model->max_shows);
}

static void take(struct model *model, uint32_t rank)
{
    struct weft_board *board = &model->crew.board[rank];
    uint32_t number = ++model->rank[rank].taken;
    bool is_first = number > model->drawn;
    size_t offset = 0, len;

    if (is_first) {
        model->op[number].len = draw_len(model);
    }
    len = model->op[number].len;
    model->rank[rank].free_at =
        len == 0 ? weft_board_take_line(board) : weft_board_take(board, len, &offset);
    assert_int_equal(offset % WEFT_BOARD_STRIDE, 0);
    assert_true(offset + len <= (len <= SMALL ? board->short_len : board->ring_len));
    if (is_first) {
        draw(model, len, offset);
    }
    assert_int_equal(offset, model->op[number].offset);
}

/* The next thing that this rank does: takes, enters when it may, ends. */
static void advance(struct model *model, uint32_t rank)
{
    struct weft_board *board = &model->crew.board[rank];
    uint32_t number, slow = RANKS;

    if (model->rank[rank].taken == model->rank[rank].ended) {
        take(model, rank);
    }
    number = model->rank[rank].taken;
    if (model->rank[rank].is_in) {
        weft_board_end(board, model->op[number].shows, 0);
        model->rank[rank].ended = number;
        model->rank[rank].is_in = false;
    } else if (weft_board_has_ended(board, model->rank[rank].free_at, &slow)) {
        for (uint32_t other = 0; other < RANKS; other++) {
            assert_true(model->rank[other].ended >= model->op[number].needed || other == rank);
        }
        model->rank[rank].is_in = true;
    } else { /* for one that is behind: so whoever is last never waits */
        assert_in_range(slow, 0, RANKS - 1);
        assert_true(model->rank[slow].ended + 1 < number);
    }
}

static bool is_everybody_through(const struct model *model)
{
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        if (model->rank[rank].ended < OPERATIONS) {
            return false;
        }
    }
    return true;
}

/* In any order; for a while one rank after another hardly gets anywhere. */
static void play(struct model *model)
{
    uint32_t sleeper = 0;

    for (uint32_t turn = 0; !is_everybody_through(model); turn++) {
        uint32_t rank = random_below(&model->seed, RANKS);
        assert_true(turn < 1000 * OPERATIONS);
        if (turn % 600 == 0) {
            sleeper = random_below(&model->seed, RANKS + 1);
        }
        if (model->rank[rank].ended < OPERATIONS &&
            (rank != sleeper || random_below(&model->seed, 32) == 0)) {
            advance(model, rank);
        }
    }
}

static void play_many(size_t short_len, uint32_t operation, uint32_t clock, uint32_t max_shows)
{
    struct model *model = malloc(sizeof(*model));

    assert_non_null(model);
    for (uint64_t seed = 1; seed <= 12; seed++) {
        memset(model, 0, sizeof(*model));
        model->seed = seed;
        model->max_shows = max_shows;
        model->is_tiny = seed % 4 == 0;
        open_crew(&model->crew, RING, short_len);
        if (operation > 1) {
            go_on_from(&model->crew, operation, clock);
        }
        play(model);
        close_crew(&model->crew);
    }
    free(model);
}

static void memory_is_handed_out_when_all_who_used_it_have_ended(void **state)
{
    (void)state;
    play_many(RING, 1, 0, 5);
}

static void so_it_is_when_short_operations_keep_to_a_part_of_the_ring(void **state)
{
    (void)state;
    play_many(RING / 2, 1, 0, 5);
    play_many(SMALL, 1, 0, 5); /* which some short ones exceed */
}

static void so_it_is_when_the_clock_wraps_around(void **state)
{
    (void)state;
    play_many(RING, 70000, UINT32_MAX - 400, 5);
    play_many(RING / 2, 70000, INT32_MAX - 400, 5);
    play_many(RING, 70000, 5, 1 << 25); /* around several times */
}

static void so_it_is_when_the_number_of_operations_wraps_around(void **state)
{
    (void)state;
    play_many(RING, UINT32_MAX - 200, 100, 5);
    play_many(RING / 2, UINT32_MAX - 200, UINT32_MAX / 4 * 3, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_handed_out_when_all_who_used_it_have_ended),
        cmocka_unit_test(so_it_is_when_short_operations_keep_to_a_part_of_the_ring),
        cmocka_unit_test(so_it_is_when_the_clock_wraps_around),
        cmocka_unit_test(so_it_is_when_the_number_of_operations_wraps_around),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
