/* SPDX-License-Identifier: Apache-2.0 */
/* One communicator ends or closes: what others have on its way over the same link is not its business. */
#include "unit/p2p/two.h"

#define PUTS 6u
#define LEN 1000u

struct window {
    uint8_t source[PUTS * LEN], target[PUTS * LEN];
    weft_mem_t mem;
};

static void put_all(struct weft_p2p_comm *from, struct weft_p2p_comm *to, struct window *window)
{
    memset(window, 0, sizeof(*window));
    assert_int_equal(weft_p2p_register(to, window->target, sizeof(window->target), &window->mem),
                     WEFT_OK);
    for (size_t i = 0; i < sizeof(window->source); i++) {
        window->source[i] = (uint8_t)(1 + i * 7 % 251);
    }
    for (size_t i = 0; i < PUTS; i++) {
        const struct weft_p2p_target target = {&window->mem, i * LEN};
        assert_int_equal(weft_p2p_put(from, &target, window->source + i * LEN, LEN, NULL, 0),
                         WEFT_OK);
    }
}

/* Every lane of this rank that bulk goes by. */
static void end_bulk_lanes(struct rank *rank)
{
    for (uint32_t i = 1; i < link_of(rank)->bundle->count; i++) {
        fake_end(lane_at(rank, i));
    }
}

static void puts_survive_the_end_of_another_communicator_and_of_their_lanes(void **state)
{
    static struct two two;
    static struct window window;
    (void)state;
    two_open(&two, 2);
    put_all(two.rank[0].world, two.rank[1].world, &window);
    weft_p2p_ended(two.rank[0].p2p, DUP, WEFT_ERR_ABORTED, "enough");
    end_bulk_lanes(&two.rank[0]);
    settle_two(&two);
    assert_memory_equal(window.target, window.source, sizeof(window.source));
    two_close(&two);
}

static void puts_of_the_communicator_that_ends_are_taken_back(void **state)
{
    static struct two two;
    static struct window window, other;
    (void)state;
    two_open(&two, 2);
    put_all(two.rank[0].world, two.rank[1].world, &other);
    put_all(two.rank[0].dup, two.rank[1].dup, &window);
    weft_p2p_ended(two.rank[0].p2p, DUP, WEFT_ERR_ABORTED, "enough");
    memset(window.source, 0xdd, sizeof(window.source)); /* its owner's again */
    end_bulk_lanes(&two.rank[0]);
    settle_two(&two);
    for (size_t i = 0; i < sizeof(window.target); i++) {
        assert_int_equal(window.target[i], 0); /* what goes again is void */
    }
    assert_memory_equal(other.target, other.source, sizeof(other.source));
    two_close(&two);
}

static void say(struct weft_p2p_comm *comm)
{
    assert_int_equal(weft_p2p_send(comm, "word", 4, 1, 0, NULL), WEFT_OK);
}

static weft_status_t close_dup(struct rank *rank)
{
    weft_status_t status = weft_p2p_comm_close(rank->dup);
    rank->dup = NULL;
    return status;
}

static void closing_does_not_wait_for_what_others_have_on_its_way(void **state)
{
    static struct two two;
    static struct window window;
    (void)state;
    two_open(&two, 2);
    say(two.rank[0].dup);
    settle_two(&two);
    put_all(two.rank[0].world, two.rank[1].world, &window);
    say(two.rank[0].world);
    assert_int_equal(close_dup(&two.rank[0]), WEFT_OK);
    settle_two(&two);
    assert_memory_equal(window.target, window.source, sizeof(window.source));
    two_close(&two);
}

static void closing_waits_for_what_was_sent_there(void **state)
{
    static struct two two;
    static struct window window;
    (void)state;
    two_open(&two, 2);
    say(two.rank[0].dup);
    assert_int_equal(close_dup(&two.rank[0]), WEFT_ERR_TIMEOUT);
    two_close(&two);
    two_open(&two, 2);
    put_all(two.rank[0].dup, two.rank[1].dup, &window);
    assert_int_equal(close_dup(&two.rank[0]), WEFT_ERR_TIMEOUT);
    two_close(&two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(puts_survive_the_end_of_another_communicator_and_of_their_lanes),
        cmocka_unit_test(puts_of_the_communicator_that_ends_are_taken_back),
        cmocka_unit_test(closing_does_not_wait_for_what_others_have_on_its_way),
        cmocka_unit_test(closing_waits_for_what_was_sent_there),
    };
    setenv("WEFT_LOG", "off", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
