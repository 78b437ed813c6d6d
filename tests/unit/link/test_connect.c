/* SPDX-License-Identifier: Apache-2.0 */
/* Which ports a link opens, and where each of them listens and dials from. */
#include "played.h"

static int stage_end(void **state)
{
    stage_close(state);
    cast = (struct cast){0};
    return 0;
}

static int open_without_a(void **state)
{
    cast = (struct cast){.nics = 3, .deaf = 'a', .is_flat = true};
    return stage_open(state);
}

/* The ports after one that cannot listen keep their own NICs. */
static void a_nic_that_cannot_listen_shifts_no_other(void **state)
{
    (void)state;
    assert_int_equal(stage.links->tcp_count, 2);
    for (uint32_t i = 0; i < 2; i++) {
        const struct sockaddr_in *addr = (const struct sockaddr_in *)stage.ports[i].addr;
        assert_string_equal(stage.links->nics[i].name, i == 0 ? "b" : "c");
        assert_string_equal(stage.ports[i].nic, stage.links->nics[i].name);
        assert_int_equal(ntohl(addr->sin_addr.s_addr), 0x0a000002 + i);
        assert_ptr_equal(stage.links->tcp[i], port_of(i + 1));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_nic_that_cannot_listen_shifts_no_other, open_without_a,
                                        stage_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
