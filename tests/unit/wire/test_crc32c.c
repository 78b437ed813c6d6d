/* SPDX-License-Identifier: Apache-2.0 */
#include "support.h"

typedef uint32_t (*crc_fn)(uint32_t crc, const void *data, size_t len);

static const crc_fn ways[] = {weft_wire_crc32c, weft_wire_crc32c_portable};

/* RFC 3720, B.4 */
static void crc32c_gives_the_known_answers(void **state)
{
    uint8_t bytes[32];

    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(ways); i++) {
        memset(bytes, 0, sizeof(bytes));
        assert_int_equal(ways[i](0, bytes, sizeof(bytes)), 0x8a9136aa);
        memset(bytes, 0xff, sizeof(bytes));
        assert_int_equal(ways[i](0, bytes, sizeof(bytes)), 0x62a8ab43);
        for (uint8_t b = 0; b < 32; b++) {
            bytes[b] = b;
        }
        assert_int_equal(ways[i](0, bytes, sizeof(bytes)), 0x46dd794e);
        for (uint8_t b = 0; b < 32; b++) {
            bytes[b] = (uint8_t)(31 - b);
        }
        assert_int_equal(ways[i](0, bytes, sizeof(bytes)), 0x113fdb5c);
        assert_int_equal(ways[i](0, "123456789", 9), 0xe3069283);
        assert_int_equal(ways[i](0, "", 0), 0);
    }
}

static void crc32c_is_the_same_with_and_without_the_cpu(void **state)
{
    uint8_t bytes[300];
    uint64_t seed = 1;

    (void)state;
    fill_random(&seed, bytes, sizeof(bytes));
    for (size_t from = 0; from < 16; from++) {
        for (size_t len = 0; len <= sizeof(bytes) - from; len++) {
            assert_int_equal(weft_wire_crc32c(5, bytes + from, len),
                             weft_wire_crc32c_portable(5, bytes + from, len));
        }
    }
}

static void crc32c_can_be_continued_anywhere(void **state)
{
    uint8_t bytes[100];
    uint64_t seed = 2;

    (void)state;
    fill_random(&seed, bytes, sizeof(bytes));
    for (size_t i = 0; i < WEFT_COUNT_OF(ways); i++) {
        uint32_t whole = ways[i](0, bytes, sizeof(bytes));

        for (size_t cut = 0; cut <= sizeof(bytes); cut++) {
            uint32_t first = ways[i](0, bytes, cut);

            assert_int_equal(ways[i](first, bytes + cut, sizeof(bytes) - cut), whole);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crc32c_gives_the_known_answers),
        cmocka_unit_test(crc32c_is_the_same_with_and_without_the_cpu),
        cmocka_unit_test(crc32c_can_be_continued_anywhere),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
