/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "comm/hosts.h"

#include <stdlib.h>

struct job {
    uint32_t hosts;
    bool is_by_turns; /* rank r on host r % hosts; else one host after the other */
    uint32_t each;
    bool has_bad_hash;
};
static unsigned long compared;

static uint32_t host_of(const struct job *job, uint32_t rank)
{
    return job->is_by_turns ? rank % job->hosts : rank / job->each;
}

static uint32_t hash(const void *owner, uint32_t rank)
{
    const struct job *job = owner;
    return job->has_bad_hash ? 7 : host_of(job, rank) * 0x9e3779b1u;
}

static bool is_same_host(const void *owner, uint32_t a, uint32_t b)
{
    compared++;
    return host_of(owner, a) == host_of(owner, b);
}

static void check(const struct job *job, uint32_t ranks, bool is_even)
{
    const struct weft_comm_places places = {ranks, job, hash, is_same_host};
    uint32_t *first = calloc(ranks, sizeof(*first)), *index = calloc(ranks, sizeof(*index));
    uint32_t *firsts = calloc(job->hosts, sizeof(*firsts)),
             *counts = calloc(job->hosts, sizeof(*counts));
    bool found = !is_even;

    compared = 0;
    if (first == NULL || index == NULL || firsts == NULL || counts == NULL) {
        abort();
    }
    assert_int_equal(weft_comm_number_hosts(&places, first, index, &found), WEFT_OK);
    for (uint32_t rank = 0; rank < ranks; rank++) {
        uint32_t host = host_of(job, rank);
        firsts[host] = counts[host] == 0 ? rank : firsts[host];
        assert_int_equal(first[rank], firsts[host]);
        assert_int_equal(index[rank], counts[host]++);
    }
    assert_int_equal(found, is_even);
    free(first);
    free(index);
    free(firsts);
    free(counts);
}

static void ranks_are_numbered_host_by_host_in_any_order(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        struct job job = {.hosts = 5, .each = 4, .is_by_turns = i % 2 == 1, .has_bad_hash = i > 1};
        check(&job, 20, true);
        check(&job, 19, false);
        check(&job, 1, true);
    }
}

/* A rank is compared with few others, however many hosts there are. */
static void many_hosts_take_no_longer_for_each_rank(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct job job = {.hosts = 12500, .each = 8, .is_by_turns = i == 1};
        check(&job, 100000, true);
        assert_true(compared < 400000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_are_numbered_host_by_host_in_any_order),
        cmocka_unit_test(many_hosts_take_no_longer_for_each_rank),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
