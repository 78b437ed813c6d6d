/* SPDX-License-Identifier: Apache-2.0 */
/* Gets that are refused while their pieces are on their way. */
#include "unit/p2p/two.h"

#define LEN ((size_t)1 << 20) /* two pieces, by two lanes */

static bool asks(const struct rank *rank)
{
    for (uint32_t i = 0; i < WEFT_LINK_SLOTS; i++) {
        if (rank->p2p->peers[rank->other->end.self.rank]->pieces[i].placing == PLACE_PART) {
            return true;
        }
    }
    return false;
}

/* Only lane 0, which brings envelopes; of the others no more than the headers. */
static void move_envelopes(struct two *two)
{
    for (int i = 0; i < 20; i++) {
        for (int k = 0; k < 2; k++) {
            fake_arrive(lane_at(&two->rank[k], 0));
            poll_rank(&two->rank[k]);
        }
    }
}

static void nothing_is_written_into_the_memory_of_a_get_that_was_refused(void **state)
{
    static struct two two;
    static uint8_t source[LEN], room[LEN];
    struct rank *origin = &two.rank[0], *owner = &two.rank[1];
    weft_mem_t mem;
    const struct weft_p2p_target target = {&mem, 0};
    (void)state;
    two_open(&two, 2);
    memset(source, 1, sizeof(source));
    assert_int_equal(weft_p2p_register(owner->world, source, sizeof(source), &mem), WEFT_OK);
    assert_int_equal(weft_p2p_get(origin->world, &target, room, sizeof(room)), WEFT_OK);
    move_envelopes(&two);
    for (uint32_t i = 1; i < link_of(origin)->bundle->count; i++) {
        fake_arrive(lane_at(origin, i));
    }
    poll_rank(origin);
    assert_true(asks(origin)); /* a piece is half way */
    assert_int_equal(weft_p2p_deregister(owner->world, &mem), WEFT_OK);
    move_envelopes(&two);
    assert_int_equal(origin->world->gets_open, 0);
    assert_int_equal(origin->world->side_status, WEFT_ERR_INVALID);
    assert_false(asks(origin));
    memset(room, 0xaa, sizeof(room)); /* quiet has returned: it is its owner's again */
    settle_two(&two);
    for (size_t i = 0; i < sizeof(room); i++) {
        assert_int_equal(room[i], 0xaa);
    }
    two_close(&two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_written_into_the_memory_of_a_get_that_was_refused),
    };
    setenv("WEFT_LOG", "off", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
