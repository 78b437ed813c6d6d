/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel says of interfaces when it is asked; its news is what tests/net hears. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "topo/topo.h"

#include <stdlib.h>

/* Loopback only: others may come and go while we look. */
static void loopback_is_as_the_list_says(void **state)
{
    struct weft_topo_nic *nics = NULL;
    unsigned count = 0, asked = 0;
    (void)state;
    assert_int_equal(weft_topo_nics(&nics, &count), WEFT_OK);
    for (unsigned i = 0; i < count; i++) {
        bool is_up = !nics[i].is_up;
        if (nics[i].is_loopback) {
            assert_true(weft_topo_carrier_ask(nics[i].name, &is_up));
            assert_int_equal(is_up, nics[i].is_up);
            asked++;
        }
    }
    assert_true(asked > 0);
    free(nics);
}

static void of_a_stranger_nothing_is_said(void **state)
{
    bool is_up = true;
    (void)state;
    assert_false(weft_topo_carrier_ask("nobody", &is_up));
    assert_true(is_up);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loopback_is_as_the_list_says),
        cmocka_unit_test(of_a_stranger_nothing_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
