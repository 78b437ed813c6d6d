/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks and the bytes they are, against a plain reference: cache lines are dealt out to blocks in order, as
 * many to each, and pieces lie where the caller says or one after another.
 */
#include "exec/bind.h"

#include "../plan/support.h"

#include <stdlib.h>

#define RANKS_MAX 9
#define LINE 64
#define CASES 400 /* of each collective */

/* What IN and OUT of a rank are. */
enum shape { VECTOR, PIECES, OWN };
static const struct {
    enum shape in, out;
} shapes[WEFT_COLLS] = {
    [WEFT_ALLREDUCE] = {VECTOR, VECTOR}, [WEFT_REDUCE_SCATTER] = {PIECES, OWN},
    [WEFT_ALLGATHER] = {OWN, PIECES},    [WEFT_BROADCAST] = {VECTOR, VECTOR},
    [WEFT_REDUCE] = {VECTOR, VECTOR},    [WEFT_GATHER] = {OWN, PIECES},
    [WEFT_SCATTER] = {PIECES, OWN},      [WEFT_ALLTOALL] = {PIECES, PIECES},
    [WEFT_BARRIER] = {VECTOR, VECTOR},
};

struct sample {
    struct weft_plan plan;
    struct weft_exec_group group;
    struct weft_exec_data data;
    struct side {
        size_t counts[RANKS_MAX], places[RANKS_MAX];
    } in, out;
    struct weft_binding binding;
};

/* ---- the reference ---- */

struct span {
    size_t from, len;
};

static struct span deal_out(size_t len, uint32_t blocks, uint32_t block)
{
    size_t lines = (len + LINE - 1) / LINE;
    size_t each = blocks == 1 ? len : (lines + blocks - 1) / blocks * LINE;
    struct span span = {.from = len, .len = 0};

    if (block * each < len) {
        span.from = block * each;
        span.len = len - span.from < each ? len - span.from : each;
    }
    return span;
}

static size_t count_of(const struct sample *sample, const size_t *counts, uint32_t piece)
{
    return counts != NULL ? counts[piece] : sample->data.count;
}

/* One after another, or where the caller says. */
static struct span find_piece(const struct sample *sample, const size_t *counts,
                              const size_t *places, uint32_t piece)
{
    size_t element = weft_dtype_size(sample->data.dtype);
    struct span span = {.from = 0, .len = count_of(sample, counts, piece) * element};

    if (sample->data.is_cut) {
        return deal_out(sample->data.count * element, sample->group.ranks, piece);
    }
    for (uint32_t i = 0; i < piece; i++) {
        span.from += count_of(sample, counts, i) * element;
    }
    if (places != NULL) {
        span.from = places[piece] * element;
    }
    return span;
}

static struct span piece_of(const struct sample *sample, enum weft_plan_space space, uint32_t piece)
{
    const struct weft_exec_data *data = &sample->data;
    bool is_in = space == WEFT_SPACE_IN, is_out = space == WEFT_SPACE_OUT;
    enum shape shape = is_in ? shapes[sample->plan.coll].in : shapes[sample->plan.coll].out;
    struct span span;

    if (!is_in && !is_out) { /* the data as such: whatever lengths the pieces have, without gaps */
        return find_piece(sample, data->in_counts != NULL ? data->in_counts : data->out_counts,
                          NULL, piece);
    }
    if (shape == PIECES) {
        return is_in ? find_piece(sample, data->in_counts, data->in_places, piece)
                     : find_piece(sample, data->out_counts, data->out_places, piece);
    }
    span = find_piece(sample, is_in ? data->out_counts : data->in_counts, NULL, piece);
    span.from = 0;
    return span;
}

static uint32_t pieces_in(const struct sample *sample)
{
    return shapes[sample->plan.coll].in == VECTOR ? 1 : sample->group.ranks;
}

static uint32_t blocks_per_piece(const struct sample *sample)
{
    return shapes[sample->plan.coll].in == VECTOR ? sample->plan.parts : sample->plan.segments;
}

static struct span whole(const struct sample *sample, enum weft_plan_space space, uint32_t piece)
{
    if (shapes[sample->plan.coll].in == VECTOR) {
        return (struct span){0, sample->data.count * weft_dtype_size(sample->data.dtype)};
    }
    return piece_of(sample, space, piece);
}

/* Does this rank have that piece there? */
static bool has_piece(const struct sample *sample, enum weft_plan_space space, uint32_t piece)
{
    enum shape in = shapes[sample->plan.coll].in, out = shapes[sample->plan.coll].out;
    bool is_own = (space == WEFT_SPACE_IN && in == OWN) || (space == WEFT_SPACE_OUT && out == OWN);

    return !is_own || piece == sample->group.rank;
}

/* ---- samples ---- */

static size_t draw_count(uint64_t *seed)
{
    switch (random_below(seed, 6)) {
    case 0:
        return 0;
    case 1:
        return 1 + random_below(seed, 5000);
    case 2:
        return 64 * (size_t)random_below(seed, 20);
    default:
        return 1 + random_below(seed, 200);
    }
}

/* Anywhere, in any order, with gaps. */
static void draw_places(uint64_t *seed, const size_t *counts, uint32_t ranks, size_t *places)
{
    uint32_t first = random_below(seed, ranks);
    bool is_up = random_below(seed, 2) == 0;
    size_t at = random_below(seed, 100);

    for (uint32_t i = 0; i < ranks; i++) {
        uint32_t piece = (is_up ? first + i : first + ranks - i) % ranks;
        places[piece] = at;
        at += counts[piece] + 10 * (size_t)random_below(seed, 3);
    }
}

static void draw_side(uint64_t *seed, const struct sample *sample, struct side *side,
                      const size_t **counts_p, const size_t **places_p)
{
    bool is_uneven = random_below(seed, 3) > 0;

    for (uint32_t i = 0; i < sample->group.ranks; i++) {
        side->counts[i] = is_uneven ? draw_count(seed) : sample->data.count;
    }
    draw_places(seed, side->counts, sample->group.ranks, side->places);
    *counts_p = is_uneven ? side->counts : NULL;
    *places_p = random_below(seed, 2) == 0 ? side->places : NULL;
}

static void draw_sample(uint64_t *seed, weft_coll_t coll, struct sample *sample)
{
    static const weft_dtype_t dtypes[] = {WEFT_I8, WEFT_BF16, WEFT_F32, WEFT_F64};
    uint32_t ranks = 1 + random_below(seed, RANKS_MAX);

    *sample = (struct sample){
        .plan = {.coll = coll,
                 .ranks = ranks,
                 .parts = 1 + random_below(seed, 40),
                 .segments = 1 + random_below(seed, 7),
                 .slots = random_below(seed, 5),
                 .slot_blocks = 1 + random_below(seed, 3)},
        .group = {.ranks = ranks, .rank = random_below(seed, ranks)},
        .data = {.dtype = dtypes[random_below(seed, 4)], .count = draw_count(seed)},
    };
    if ((coll == WEFT_REDUCE_SCATTER || coll == WEFT_ALLGATHER) && random_below(seed, 3) == 0) {
        sample->data.is_cut = true;
        return;
    }
    if (shapes[coll].in == PIECES) {
        draw_side(seed, sample, &sample->in, &sample->data.in_counts, &sample->data.in_places);
    }
    if (shapes[coll].out == PIECES) {
        draw_side(seed, sample, &sample->out, &sample->data.out_counts, &sample->data.out_places);
    }
}

static const enum weft_plan_space spaces[] = {WEFT_SPACE_IN, WEFT_SPACE_OUT, WEFT_SPACE_NONE,
                                              WEFT_SPACE_TMP, WEFT_SPACE_SLOT};

typedef void (*piece_fn)(uint64_t *seed, const struct sample *sample, enum weft_plan_space space,
                         uint32_t piece);

static void for_every_piece(piece_fn fn)
{
    uint64_t seed = 11;

    for (unsigned i = 0; i < WEFT_COLLS * CASES; i++) {
        struct sample sample;
        draw_sample(&seed, (weft_coll_t)(i % WEFT_COLLS), &sample);
        weft_bind(&sample.plan, &sample.group, &sample.data, &sample.binding);
        for (size_t space = 0; space < WEFT_COUNT_OF(spaces); space++) {
            for (uint32_t piece = 0; piece < pieces_in(&sample); piece++) {
                if (has_piece(&sample, spaces[space], piece)) {
                    fn(&seed, &sample, spaces[space], piece);
                }
            }
        }
    }
}

/* ---- what holds for every piece ---- */

static void compare(uint64_t *seed, const struct sample *sample, enum weft_plan_space space,
                    uint32_t piece)
{
    uint32_t blocks = blocks_per_piece(sample);
    struct span all = whole(sample, space, piece);

    (void)seed;
    for (uint32_t i = 0; i < blocks; i++) {
        struct span span = deal_out(all.len, blocks, i);
        uint32_t block = piece * blocks + i;
        assert_int_equal(weft_bind_offset(&sample->binding, space, block), all.from + span.from);
        assert_int_equal(weft_bind_len(&sample->binding, space, block, 1), span.len);
        assert_true(span.len <= weft_bind_unit(&sample->binding));
    }
}

static void blocks_are_the_bytes_of_the_reference(void **state)
{
    (void)state;
    for_every_piece(compare);
}

static void cover(uint64_t *seed, const struct sample *sample, enum weft_plan_space space,
                  uint32_t piece)
{
    uint32_t blocks = blocks_per_piece(sample);
    struct span all = whole(sample, space, piece);
    size_t at = all.from;

    (void)seed;
    for (uint32_t block = piece * blocks; block < (piece + 1) * blocks; block++) {
        size_t len = weft_bind_len(&sample->binding, space, block, 1);
        assert_int_equal(weft_bind_offset(&sample->binding, space, block), at);
        if (len > 0) {
            assert_int_equal((at - all.from) % LINE, 0);
        }
        at += len;
    }
    assert_int_equal(at, all.from + all.len);
}

static void blocks_begin_at_cache_lines_and_cover_all_of_a_piece_once(void **state)
{
    (void)state;
    for_every_piece(cover);
}

/* Over several pieces only where they lie one after another. */
static void measure_ranges(uint64_t *seed, const struct sample *sample, enum weft_plan_space space,
                           uint32_t piece)
{
    bool is_in_a_row = space != WEFT_SPACE_IN && space != WEFT_SPACE_OUT;
    uint32_t per_piece = blocks_per_piece(sample);
    uint32_t end = (is_in_a_row ? pieces_in(sample) : piece + 1) * per_piece;
    uint32_t block = piece * per_piece + random_below(seed, per_piece);
    uint32_t blocks = random_below(seed, end - block + 1);
    size_t sum = 0;

    for (uint32_t i = 0; i < blocks; i++) {
        sum += weft_bind_len(&sample->binding, space, block + i, 1);
    }
    assert_int_equal(weft_bind_len(&sample->binding, space, block, blocks), sum);
    assert_int_equal(weft_bind_len(&sample->binding, space, block, 0), 0);
}

static void a_range_is_as_long_as_its_blocks(void **state)
{
    (void)state;
    for_every_piece(measure_ranges);
}

/* ---- by hand ---- */

static size_t slots_of(const struct sample *sample)
{
    struct weft_binding binding;
    weft_bind(&sample->plan, &sample->group, &sample->data, &binding);
    return sample->plan.slots * binding.slot_len;
}

static void slots_have_room_for_the_longest_blocks(void **state)
{
    struct sample sample = {
        .plan = {.coll = WEFT_ALLTOALL, .segments = 2, .slots = 3, .slot_blocks = 5},
        .group = {.ranks = 3, .rank = 1},
        .data = {.dtype = WEFT_F32, .count = 10},
        .in.counts = {0, 100, 7},
        .out.counts = {5, 20, 200},
    };

    (void)state;
    assert_int_equal(slots_of(&sample), 3 * 5 * 64);
    sample.data.in_counts = sample.in.counts; /* 400 bytes in two blocks: 256 and 144 */
    assert_int_equal(slots_of(&sample), 3 * 5 * 256);
    sample.data.out_counts = sample.out.counts;
    assert_int_equal(slots_of(&sample), 3 * 5 * 448);
    sample.plan.slots = 0;
    assert_int_equal(slots_of(&sample), 0);
    sample.plan = (struct weft_plan){
        .coll = WEFT_ALLREDUCE, .parts = 3, .segments = 2, .slots = 1, .slot_blocks = 1};
    sample.data = (struct weft_exec_data){.dtype = WEFT_F32, .count = 100};
    assert_int_equal(slots_of(&sample), 192);
    sample.plan.coll = WEFT_REDUCE_SCATTER; /* pieces of 192, 192 and 16 bytes, two blocks each */
    sample.data.is_cut = true;
    assert_int_equal(slots_of(&sample), 128);
}

/* The count stands beside arrays that say everything: it may be anything. */
static void where_arrays_say_the_lengths_the_count_says_nothing(void **state)
{
    static const weft_coll_t colls[] = {WEFT_REDUCE_SCATTER, WEFT_ALLGATHER, WEFT_GATHER,
                                        WEFT_SCATTER, WEFT_ALLTOALL};
    const size_t counts[3] = {4, 5, 6};

    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(colls); i++) {
        bool has_in = colls[i] != WEFT_ALLGATHER && colls[i] != WEFT_GATHER;
        bool has_out = colls[i] != WEFT_REDUCE_SCATTER && colls[i] != WEFT_SCATTER;
        const struct weft_plan plan = {.coll = (uint32_t)colls[i], .segments = 1};
        const struct weft_exec_group group = {.ranks = 3, .rank = 1};
        const struct weft_exec_data data = {.dtype = WEFT_F32,
                                            .count = (size_t)1 << 40,
                                            .in_counts = has_in ? counts : NULL,
                                            .out_counts = has_out ? counts : NULL};
        struct weft_binding binding;
        weft_bind(&plan, &group, &data, &binding);
        assert_int_equal(weft_bind_unit(&binding), 24);
    }
}

/* Such slots lie in the lines of the board. */
static void one_block_is_not_made_longer(void **state)
{
    struct sample sample = {
        .plan = {.coll = WEFT_ALLREDUCE, .parts = 1, .segments = 1, .slots = 1, .slot_blocks = 1},
        .group = {.ranks = 3, .rank = 1},
        .data = {.dtype = WEFT_F32, .count = 2},
    };

    (void)state;
    assert_int_equal(slots_of(&sample), 8);
    sample.plan.coll = WEFT_ALLGATHER;
    assert_int_equal(slots_of(&sample), 8);
    sample.group = (struct weft_exec_group){.ranks = 1};
    sample.data.is_cut = true;
    assert_int_equal(slots_of(&sample), 8);
}

/* A rank that is not the root of a gather knows only how long its own piece is. */
static void a_piece_of_ones_own_is_as_long_as_one_says(void **state)
{
    const struct weft_plan plan = {.coll = WEFT_GATHER, .segments = 2};
    const struct weft_exec_group group = {.ranks = 4, .rank = 3};
    const struct weft_exec_data data = {.dtype = WEFT_F64, .count = 30};
    struct weft_binding binding;

    (void)state;
    weft_bind(&plan, &group, &data, &binding);
    assert_int_equal(weft_bind_offset(&binding, WEFT_SPACE_IN, 6), 0);
    assert_int_equal(weft_bind_len(&binding, WEFT_SPACE_IN, 6, 1), 128);
    assert_int_equal(weft_bind_offset(&binding, WEFT_SPACE_IN, 7), 128);
    assert_int_equal(weft_bind_len(&binding, WEFT_SPACE_IN, 7, 1), 112);
    assert_int_equal(weft_bind_len(&binding, WEFT_SPACE_IN, 6, 2), 240);
}

static void nothing_is_cut_into_empty_blocks(void **state)
{
    const struct weft_exec_group group = {.ranks = 3, .rank = 2};
    const struct weft_exec_data data = {.dtype = WEFT_F32, .count = 0};

    (void)state;
    for (uint32_t coll = 0; coll < WEFT_COLLS; coll++) {
        const struct weft_plan plan = {
            .coll = coll, .parts = 6, .segments = 2, .slots = 2, .slot_blocks = 1};
        struct weft_binding binding;
        weft_bind(&plan, &group, &data, &binding);
        for (uint32_t block = 0; block < 6; block++) {
            assert_int_equal(weft_bind_offset(&binding, WEFT_SPACE_OUT, block), 0);
            assert_int_equal(weft_bind_len(&binding, WEFT_SPACE_OUT, block, 1), 0);
        }
        assert_int_equal(weft_bind_unit(&binding), 0);
        assert_int_equal(binding.slot_len, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_the_bytes_of_the_reference),
        cmocka_unit_test(blocks_begin_at_cache_lines_and_cover_all_of_a_piece_once),
        cmocka_unit_test(a_range_is_as_long_as_its_blocks),
        cmocka_unit_test(slots_have_room_for_the_longest_blocks),
        cmocka_unit_test(where_arrays_say_the_lengths_the_count_says_nothing),
        cmocka_unit_test(one_block_is_not_made_longer),
        cmocka_unit_test(a_piece_of_ones_own_is_as_long_as_one_says),
        cmocka_unit_test(nothing_is_cut_into_empty_blocks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
