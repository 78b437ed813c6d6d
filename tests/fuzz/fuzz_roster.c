/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Start-up records. Input: which record, then its bytes. What decodes must encode to bytes that
 * decode to the same, and must keep every promise that readers rely on.
 */
#include "fuzz.h"

static void fuzz_member(const uint8_t *bytes, size_t len)
{
    struct weft_wire_member member, again;
    uint8_t out[WEFT_WIRE_MEMBER_MAX];
    size_t used, out_len, out_used;

    while (len > 0 && weft_wire_member_decode(bytes, len, &member, &used) == WEFT_OK) {
        FUZZ_CHECK(used > 0 && used <= len && used <= sizeof(out));
        FUZZ_CHECK(fuzz_is_printable(member.host, sizeof(member.host)));
        FUZZ_CHECK(fuzz_is_printable(member.settings, sizeof(member.settings)));
        out_len = weft_wire_member_encode(&member, out, sizeof(out));
        FUZZ_CHECK(out_len == used);
        FUZZ_CHECK(weft_wire_member_decode(out, out_len, &again, &out_used) == WEFT_OK);
        FUZZ_CHECK(out_used == out_len && memcmp(bytes, out, 48) == 0);
        FUZZ_CHECK(strcmp(member.host, again.host) == 0);
        FUZZ_CHECK(strcmp(member.settings, again.settings) == 0);
        bytes += used;
        len -= used;
    }
}

static void check_table(const struct weft_wire_table *table, size_t len)
{
    FUZZ_CHECK(table->ranks > 0 && table->groups > 0 && table->groups <= table->ranks);
    FUZZ_CHECK(table->ranks <= len / 8);
    FUZZ_CHECK(table->fan_groups > 0 && table->fan_local > 0);
    FUZZ_CHECK(table->root == table->group[0].leader);
    for (uint32_t r = 0; r < table->ranks; r++) {
        FUZZ_CHECK(table->group_of[r] < table->groups);
    }
    for (uint32_t g = 0; g < table->groups; g++) {
        FUZZ_CHECK(table->group[g].leader < table->ranks);
        FUZZ_CHECK(table->group_of[table->group[g].leader] == g);
        FUZZ_CHECK(fuzz_is_printable(table->group[g].host, WEFT_WIRE_HOST_LEN));
    }
}

static void fuzz_table(const uint8_t *bytes, size_t len)
{
    struct weft_wire_table table, again;
    uint8_t *out, *out_again;

    if (weft_wire_table_decode(bytes, len, &table) != WEFT_OK) {
        return;
    }
    check_table(&table, len);
    out = malloc(len);
    out_again = malloc(len);
    FUZZ_CHECK(out != NULL && out_again != NULL);
    FUZZ_CHECK(weft_wire_table_len(&table) == len);
    FUZZ_CHECK(weft_wire_table_encode(&table, out, len - 1) == 0);
    FUZZ_CHECK(weft_wire_table_encode(&table, out, len) == len);
    FUZZ_CHECK(weft_wire_table_decode(out, len, &again) == WEFT_OK);
    FUZZ_CHECK(weft_wire_table_encode(&again, out_again, len) == len);
    FUZZ_CHECK(memcmp(out, out_again, len) == 0);
    weft_wire_table_close(&again);
    weft_wire_table_close(&table);
    free(out_again);
    free(out);
}

static void fuzz_answer(const uint8_t *bytes, size_t len)
{
    struct weft_wire_answer answer;
    uint8_t out[WEFT_WIRE_ANSWER_LEN];

    if (weft_wire_answer_decode(bytes, len, &answer) == WEFT_OK) {
        FUZZ_CHECK(answer.fan_groups > 0 && answer.fan_local > 0);
        weft_wire_answer_encode(&answer, out);
        FUZZ_CHECK(len == sizeof(out) && memcmp(bytes, out, len) == 0);
    }
}

static void fuzz_notice(const uint8_t *bytes, size_t len)
{
    struct weft_wire_notice notice, again;
    uint8_t out[WEFT_WIRE_NOTICE_MAX];

    if (weft_wire_notice_decode(bytes, len, &notice) == WEFT_OK) {
        FUZZ_CHECK(notice.status != WEFT_OK);
        FUZZ_CHECK(fuzz_is_printable(notice.text, sizeof(notice.text)));
        FUZZ_CHECK(weft_wire_notice_encode(&notice, out) == len);
        FUZZ_CHECK(weft_wire_notice_decode(out, len, &again) == WEFT_OK);
        FUZZ_CHECK(memcmp(bytes, out, 16) == 0 && strcmp(notice.text, again.text) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const records[])(const uint8_t *bytes, size_t len) = {fuzz_member, fuzz_table,
                                                                        fuzz_answer, fuzz_notice};

    if (size > 0) {
        records[data[0] % WEFT_COUNT_OF(records)](data + 1, size - 1);
    }
    return 0;
}
