/* SPDX-License-Identifier: Apache-2.0 */
/* Ids. Input: mending bits, then the bytes of an id or its text. Text and bytes have one form each.
 */
#include "fuzz.h"

enum { MEND_CRC = 1, IS_TEXT = 2 };

static void check_id(const weft_id_t *id)
{
    struct weft_wire_id facts;
    weft_id_t again = {{0}};
    char text[WEFT_ID_TEXT_LEN];

    if (weft_wire_id_decode(id, &facts) != WEFT_OK) {
        FUZZ_CHECK(weft_wire_id_print_public(id, text) != WEFT_OK);
        return;
    }
    weft_wire_id_encode(&facts, &again);
    FUZZ_CHECK(memcmp(id, &again, sizeof(again)) == 0);
    FUZZ_CHECK(weft_wire_id_print_public(id, text) == WEFT_OK);
    FUZZ_CHECK(fuzz_is_printable(text, sizeof(text)));
    weft_wire_id_print(id, text);
    FUZZ_CHECK(fuzz_is_printable(text, sizeof(text)));
    memset(&again, 0, sizeof(again));
    FUZZ_CHECK(weft_wire_id_parse(text, &again) == WEFT_OK);
    FUZZ_CHECK(memcmp(id, &again, sizeof(again)) == 0);
}

static void fuzz_text(const uint8_t *bytes, size_t len)
{
    char *text = malloc(len + 1), again[WEFT_ID_TEXT_LEN];
    weft_id_t id;

    FUZZ_CHECK(text != NULL);
    memcpy(text, bytes, len);
    text[len] = '\0';
    if (weft_wire_id_parse(text, &id) == WEFT_OK) {
        check_id(&id);
        weft_wire_id_print(&id, again);
        FUZZ_CHECK(strcmp(text, again) == 0);
    }
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weft_id_t id;

    if (size == 0) {
        return 0;
    }
    if ((data[0] & IS_TEXT) != 0) {
        fuzz_text(data + 1, size - 1);
    } else if (size - 1 == sizeof(id)) {
        memcpy(&id, data + 1, sizeof(id));
        if ((data[0] & MEND_CRC) != 0) {
            put_u32(id.bytes + 124, weft_wire_crc32c(0, id.bytes, 124));
        }
        check_id(&id);
    }
    return 0;
}
