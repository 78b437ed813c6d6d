/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"

#include "capture.h"

#include <stdlib.h>

#define PIECES 500

static void pieces_are_zeroed_aligned_and_apart(void **state)
{
    struct weft_arena arena;
    unsigned char *pieces[PIECES];
    size_t lens[PIECES];
    unsigned seed = 7;

    (void)state;
    weft_arena_open(&arena, 256);
    for (unsigned i = 0; i < PIECES; i++) {
        seed = seed * 1103515245U + 12345U;
        lens[i] = (seed >> 16) % 400; /* some larger than a block, some empty */
        pieces[i] = weft_arena_take(&arena, lens[i]);
        assert_non_null(pieces[i]);
        assert_int_equal((uintptr_t)pieces[i] % 16, 0);
        for (size_t j = 0; j < lens[i]; j++) {
            assert_int_equal(pieces[i][j], 0);
        }
        memset(pieces[i], (int)(i % 255 + 1), lens[i]);
    }
    /* nobody wrote into a neighbour */
    for (unsigned i = 0; i < PIECES; i++) {
        for (size_t j = 0; j < lens[i]; j++) {
            assert_int_equal(pieces[i][j], i % 255 + 1);
        }
    }
    weft_arena_close(&arena);
}

static void small_pieces_share_a_block(void **state)
{
    struct weft_arena arena;
    unsigned char *a, *b;

    (void)state;
    weft_arena_open(&arena, 256);
    a = weft_arena_take(&arena, 1);
    b = weft_arena_take(&arena, 1);
    assert_ptr_equal(b, a + 16);
    weft_arena_close(&arena);
}

static void a_large_piece_leaves_the_open_block_in_use(void **state)
{
    struct weft_arena arena;
    unsigned char *a, *b;

    (void)state;
    weft_arena_open(&arena, 256);
    a = weft_arena_take(&arena, 16);
    assert_non_null(weft_arena_take(&arena, 5000));
    b = weft_arena_take(&arena, 16);
    assert_ptr_equal(b, a + 16);
    weft_arena_close(&arena);
}

static void an_impossible_length_is_refused(void **state)
{
    struct weft_arena arena;

    (void)state;
    weft_arena_open(&arena, 256);
    assert_null(weft_arena_take(&arena, SIZE_MAX));
    assert_null(weft_arena_take(&arena, SIZE_MAX - 20));
    assert_non_null(weft_arena_take(&arena, 1));
    weft_arena_close(&arena);
}

static void a_closed_arena_can_be_used_again(void **state)
{
    struct weft_arena arena;

    (void)state;
    weft_arena_open(&arena, 64);
    weft_arena_close(&arena);
    weft_arena_close(&arena);
    assert_non_null(weft_arena_take(&arena, 100));
    weft_arena_close(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_zeroed_aligned_and_apart),
        cmocka_unit_test(small_pieces_share_a_block),
        cmocka_unit_test(a_large_piece_leaves_the_open_block_in_use),
        cmocka_unit_test(an_impossible_length_is_refused),
        cmocka_unit_test(a_closed_arena_can_be_used_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
