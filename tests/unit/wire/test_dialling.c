/* SPDX-License-Identifier: Apache-2.0 */
/* Calls for a lane: what was written is read, and nothing else is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "wire/wire.h"

#include <string.h>

static void a_call_is_read_as_it_was_written(void **state)
{
    struct weft_wire_dialling here = {.kind = WEFT_DIALLING_HERE, .shm_len = 5, .tcp_len = 3};
    struct weft_wire_dialling no = {.kind = WEFT_DIALLING_NO, .shm_len = 9, .tcp_len = 1};
    struct weft_wire_dialling read;
    uint8_t bytes[WEFT_WIRE_DIALLING_MAX];
    (void)state;
    memcpy(here.shm, "where", 5);
    memcpy(here.tcp, "abc", 3);
    memcpy(no.shm, "no memory", 9);
    no.tcp[0] = WEFT_ERR_MEMORY;
    assert_int_equal(
        weft_wire_dialling_decode(bytes, weft_wire_dialling_encode(&here, bytes), &read), WEFT_OK);
    assert_memory_equal(&read, &here, sizeof(read));
    assert_int_equal(weft_wire_dialling_decode(bytes, weft_wire_dialling_encode(&no, bytes), &read),
                     WEFT_OK);
    assert_memory_equal(&read, &no, sizeof(read));
}

static void a_refusal_has_the_status_of_an_error_or_none(void **state)
{
    struct weft_wire_dialling no = {.kind = WEFT_DIALLING_NO}, read;
    uint8_t bytes[WEFT_WIRE_DIALLING_MAX];
    (void)state;
    assert_int_equal(weft_wire_dialling_decode(bytes, weft_wire_dialling_encode(&no, bytes), &read),
                     WEFT_OK);
    for (unsigned status = 0; status < 256; status++) {
        bool is_error = status >= WEFT_ERR_INVALID && status <= WEFT_ERR_UNSUPPORTED;
        no.tcp_len = 1;
        no.tcp[0] = (uint8_t)status;
        assert_int_equal(
            weft_wire_dialling_decode(bytes, weft_wire_dialling_encode(&no, bytes), &read),
            is_error ? WEFT_OK : WEFT_ERR_PROTOCOL);
    }
    no.tcp_len = 2;
    assert_int_equal(weft_wire_dialling_decode(bytes, weft_wire_dialling_encode(&no, bytes), &read),
                     WEFT_ERR_PROTOCOL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_is_read_as_it_was_written),
        cmocka_unit_test(a_refusal_has_the_status_of_an_error_or_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
