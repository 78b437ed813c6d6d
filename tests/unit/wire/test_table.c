/* SPDX-License-Identifier: Apache-2.0 */
#include "support.h"

#include <stdlib.h>

/* A valid table: every rank in a random group, the leader of each group one of its ranks. */
static void table_random(uint64_t *seed, uint32_t ranks, struct weft_wire_table *table)
{
    uint32_t groups = 1 + random_below(seed, ranks);

    assert_int_equal(weft_wire_table_open(ranks, groups, table), WEFT_OK);
    for (uint32_t r = 0; r < ranks; r++) {
        table->group_of[r] = r < groups ? groups - 1 - r : random_below(seed, groups);
        table->pid[r] = (uint32_t)next_random(seed);
    }
    for (uint32_t g = 0; g < groups; g++) {
        table->group[g].leader = groups - 1 - g;
        fill_addr(seed, &table->group[g].addr);
        fill_text(seed, table->group[g].host, WEFT_WIRE_HOST_LEN);
    }
    table->root = table->group[0].leader;
    table->fan_groups = (uint16_t)(1 + random_below(seed, 64));
    table->fan_local = (uint16_t)(1 + random_below(seed, 64));
}

static void assert_tables_equal(const struct weft_wire_table *a, const struct weft_wire_table *b)
{
    assert_int_equal(a->ranks, b->ranks);
    assert_int_equal(a->groups, b->groups);
    assert_int_equal(a->root, b->root);
    assert_int_equal(a->fan_groups, b->fan_groups);
    assert_int_equal(a->fan_local, b->fan_local);
    assert_memory_equal(a->group_of, b->group_of, a->ranks * sizeof(*a->group_of));
    assert_memory_equal(a->pid, b->pid, a->ranks * sizeof(*a->pid));
    for (uint32_t g = 0; g < a->groups; g++) {
        assert_int_equal(a->group[g].leader, b->group[g].leader);
        assert_memory_equal(&a->group[g].addr, &b->group[g].addr, sizeof(a->group[g].addr));
        assert_string_equal(a->group[g].host, b->group[g].host);
    }
}

/* Two groups of three ranks; refusals start from its bytes. */
#define SMALL_LEN (16 + 3 * 8 + 2 * 30 + 2)
static void small_table(uint8_t out[SMALL_LEN])
{
    struct weft_wire_table table;

    assert_int_equal(weft_wire_table_open(3, 2, &table), WEFT_OK);
    table.group_of[1] = 1;
    table.pid[0] = 100;
    table.pid[1] = 101;
    table.pid[2] = 102;
    table.root = 2;
    table.fan_groups = 8;
    table.fan_local = 64;
    table.group[0].leader = 2;
    table.group[0].addr =
        (struct weft_wire_addr){.family = 4, .port = 4411, .bytes = {10, 0, 0, 1}};
    table.group[0].host[0] = 'a';
    table.group[1].leader = 1;
    table.group[1].host[0] = 'b';
    assert_int_equal(weft_wire_table_len(&table), SMALL_LEN);
    assert_int_equal(weft_wire_table_encode(&table, out, SMALL_LEN), SMALL_LEN);
    weft_wire_table_close(&table);
}

static void table_has_the_written_down_bytes(void **state)
{
    uint8_t out[SMALL_LEN];

    (void)state;
    small_table(out);
    assert_hex(out, sizeof(out),
               "03000000"
               "02000000"
               "02000000"
               "0800"
               "4000"
               "00000000"
               "01000000"
               "00000000"
               "64000000"
               "65000000"
               "66000000"
               "02000000"
               "04003b11000000000a000001000000000000000000000000"
               "0100"
               "61"
               "01000000"
               "000000000000000000000000000000000000000000000000"
               "0100"
               "62");
}

static void table_survives_the_round_trip(void **state)
{
    uint64_t seed = 14;

    (void)state;
    for (uint32_t i = 0; i < 300; i++) {
        struct weft_wire_table table, back;
        size_t len;
        uint8_t *out;

        table_random(&seed, 1 + i, &table);
        len = weft_wire_table_len(&table);
        out = malloc(len);
        assert_non_null(out);
        assert_int_equal(weft_wire_table_encode(&table, out, len), len);
        assert_int_equal(weft_wire_table_decode(out, len, &back), WEFT_OK);
        assert_tables_equal(&table, &back);
        weft_wire_table_close(&back);
        weft_wire_table_close(&table);
        free(out);
    }
}

static void table_of_a_hundred_thousand_ranks_is_quick(void **state)
{
    struct weft_wire_table table, back;
    uint64_t seed = 15, start, took;
    size_t len;
    uint8_t *out;

    (void)state;
    table_random(&seed, 100000, &table);
    len = weft_wire_table_len(&table);
    assert_true(len <= WEFT_WIRE_FRAME_MAX);
    out = malloc(len);
    assert_non_null(out);
    start = weft_clock_ns();
    assert_int_equal(weft_wire_table_encode(&table, out, len), len);
    assert_int_equal(weft_wire_table_decode(out, len, &back), WEFT_OK);
    took = weft_clock_ns() - start;
    assert_tables_equal(&table, &back);
    /* a few milliseconds; anything quadratic takes minutes, and sanitizers and busy machines less
     * than this */
    assert_true(took < 2000 * WEFT_NS_PER_MS);
    weft_wire_table_close(&back);
    weft_wire_table_close(&table);
    free(out);
}

static void table_encode_needs_all_its_room(void **state)
{
    struct weft_wire_table table;
    uint64_t seed = 16;
    uint8_t out[1] = {0x77};

    (void)state;
    table_random(&seed, 5, &table);
    assert_int_equal(weft_wire_table_encode(&table, out, weft_wire_table_len(&table) - 1), 0);
    assert_int_equal(out[0], 0x77);
    assert_int_equal(weft_wire_table_encode(&table, NULL, 0), 0);
    weft_wire_table_close(&table);
}

static void table_closes_twice(void **state)
{
    struct weft_wire_table table;

    (void)state;
    assert_int_equal(weft_wire_table_open(4, 2, &table), WEFT_OK);
    weft_wire_table_close(&table);
    assert_null(table.group_of);
    assert_int_equal(table.ranks, 0);
    weft_wire_table_close(&table);
}

static void table_decode_refuses_cuts_and_trailing_bytes(void **state)
{
    uint8_t out[SMALL_LEN + 40] = {0};
    struct weft_wire_table back;

    (void)state;
    small_table(out);
    for (size_t len = 0; len <= sizeof(out); len++) {
        if (len == SMALL_LEN) {
            continue;
        }
        assert_int_equal(weft_wire_table_decode(out, len, &back), WEFT_ERR_PROTOCOL);
    }
}

/* F14: counts are compared with what arrived before anything is allocated. A decoder that believed
 * them would ask for up to 400 GiB here, and fail with ERR_MEMORY or worse. */
static void table_decode_believes_no_count(void **state)
{
    static const uint32_t counts[] = {0,          4,          0x10000,   0x1fffffff,
                                      0x20000000, 0x80000000, UINT32_MAX};
    struct weft_wire_table back;
    uint8_t out[SMALL_LEN];

    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(counts); i++) {
        for (size_t at = 0; at < 8; at += 4) {
            small_table(out);
            store_u32(out + at, counts[i]);
            assert_int_equal(weft_wire_table_decode(out, sizeof(out), &back), WEFT_ERR_PROTOCOL);
        }
        small_table(out);
        store_u32(out, counts[i]);
        store_u32(out + 4, counts[i]);
        assert_int_equal(weft_wire_table_decode(out, sizeof(out), &back), WEFT_ERR_PROTOCOL);
    }
}

static void table_decode_refuses_what_a_reader_would_trip_over(void **state)
{
    static const struct {
        size_t at;
        uint8_t value;
        const char *what;
    } cases[] = {
        {8, 1, "root leads another group"},
        {8, 3, "root is no rank"},
        {12, 0, "fan of groups is zero"},
        {14, 0, "local fan is zero"},
        {16, 2, "a rank in no group"},
        {20, 0, "a leader outside its group, the group empty"},
        {40, 3, "a leader that is no rank"},
        {40, 1, "a leader of another group"},
        {40, 0, "a leader that is not the root"},
        {44, 5, "an unknown address family"},
        {68, WEFT_WIRE_HOST_LEN, "a host name that is too long"},
        {68, 0, "a byte that belongs to nothing"},
    };
    struct weft_wire_table back;
    uint8_t out[SMALL_LEN];

    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(cases); i++) {
        small_table(out);
        assert_int_not_equal(out[cases[i].at], cases[i].value);
        out[cases[i].at] = cases[i].value;
        if (weft_wire_table_decode(out, sizeof(out), &back) != WEFT_ERR_PROTOCOL) {
            fail_msg("accepted: %s", cases[i].what);
        }
    }
    small_table(out);
    assert_int_equal(weft_wire_table_decode(out, sizeof(out), &back), WEFT_OK);
    weft_wire_table_close(&back);
}

/* All bytes that the name claims are there, so only its own bound can refuse it. */
static void table_decode_refuses_a_host_name_that_is_too_long(void **state)
{
    uint8_t out[SMALL_LEN + WEFT_WIRE_HOST_LEN - 1];
    struct weft_wire_table back;

    (void)state;
    memset(out, 'h', sizeof(out));
    small_table(out);
    out[SMALL_LEN - 3] = WEFT_WIRE_HOST_LEN;
    assert_int_equal(weft_wire_table_decode(out, sizeof(out), &back), WEFT_ERR_PROTOCOL);
    out[SMALL_LEN - 3] = WEFT_WIRE_HOST_LEN - 1;
    assert_int_equal(weft_wire_table_decode(out, sizeof(out) - 1, &back), WEFT_OK);
    weft_wire_table_close(&back);
}

static void table_decode_writes_nothing_on_failure(void **state)
{
    struct weft_wire_table back, before;
    uint8_t out[SMALL_LEN];

    (void)state;
    memset(&back, 0x5a, sizeof(back));
    memcpy(&before, &back, sizeof(before));
    small_table(out);
    out[68] = 0;
    assert_int_equal(weft_wire_table_decode(out, sizeof(out), &back), WEFT_ERR_PROTOCOL);
    assert_memory_equal(&back, &before, sizeof(back));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_has_the_written_down_bytes),
        cmocka_unit_test(table_survives_the_round_trip),
        cmocka_unit_test(table_of_a_hundred_thousand_ranks_is_quick),
        cmocka_unit_test(table_encode_needs_all_its_room),
        cmocka_unit_test(table_closes_twice),
        cmocka_unit_test(table_decode_refuses_cuts_and_trailing_bytes),
        cmocka_unit_test(table_decode_believes_no_count),
        cmocka_unit_test(table_decode_refuses_what_a_reader_would_trip_over),
        cmocka_unit_test(table_decode_refuses_a_host_name_that_is_too_long),
        cmocka_unit_test(table_decode_writes_nothing_on_failure),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
