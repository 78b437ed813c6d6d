/* SPDX-License-Identifier: Apache-2.0 */
/* Several lanes tell in one poll: what its user has not seen yet can still be taken back. */
#include "unit/link/user.h"

/* The next envelope of this end comes in two steps. */
static void say_long(struct pair *pair, struct end *end)
{
    while (envelope_len(user_of(end)->said + 1) <= WHOLE_MAX) {
        assert_true(say(end));
    }
    settle(pair);
    assert_true(say(end));
}

static void arrive_all(struct end *end, uint32_t slot)
{
    while (fake_arrive(lane_of(end, slot))) {
    }
}

/* Its header, the word that another lane leads now, and its copy: all in one poll. */
static void an_envelope_and_its_copy_in_one_poll_are_one(void **state)
{
    static struct pair pair;
    struct end *end = &pair.end[1], *other = &pair.end[0];
    uint32_t pool = pair_up(&pair, 3);
    (void)state;
    say_long(&pair, end);
    arrive_all(other, 0);
    fake_end(lane_of(end, 0));
    take(end);
    arrive_all(other, 1);
    take(other); /* header() notices a second one */
    settle(&pair);
    check_settled(&pair, pool);
    pair_down(&pair);
}

/* The same, and the old lane's end is in the poll too, before or after the copy. */
static void nor_does_the_end_of_its_lane_make_two_of_it(void **state)
{
    static struct pair pair;
    (void)state;
    for (int nics = 2; nics <= 4; nics++) {
        struct end *end = &pair.end[1], *other = &pair.end[0];
        uint32_t pool = pair_up(&pair, (uint32_t)nics);
        struct fake_lane *old = lane_of(other, 0);
        say_long(&pair, end);
        arrive_all(other, 0);
        fake_end(lane_of(end, 0));
        take(end);
        arrive_all(other, 1);
        old->is_lost = true; /* behind its header */
        old->lane.is_up = false;
        take(other);
        settle(&pair);
        check_settled(&pair, pool);
        pair_down(&pair);
    }
}

static void a_chunk_and_its_copy_in_one_poll_are_one(void **state)
{
    static struct pair pair;
    struct end *end = &pair.end[1], *other = &pair.end[0];
    uint32_t pool = pair_up(&pair, 3);
    (void)state;
    for (uint32_t i = 0; i < 3; i++) { /* whichever comes first in a poll */
        uint32_t old = 0, new = 0;
        assert_true(stream(end));
        for (uint32_t s = 1; s < end->link.bundle->count; s++) {
            old = end->link.bundle->slots[s].flying_count > 0 ? s : old;
        }
        arrive_all(other, old);
        fake_end(lane_of(end, old));
        take(end);
        for (uint32_t s = 1; s < end->link.bundle->count; s++) {
            new = end->link.bundle->slots[s].flying_count > 0 ? s : new;
        }
        arrive_all(other, new);
        take(other);
        assert_int_equal(other->pieces[old].is_there + other->pieces[new].is_there, 1);
        settle(&pair);
    }
    assert_int_equal(user_of(other)->landed, 3);
    check_settled(&pair, pool);
    pair_down(&pair);
}

/* Numbers come without gaps from the lead; a frame that is missing is an error of the peer's. */
static void a_gap_in_the_leads_numbers_ends_the_link(void **state)
{
    static struct pair pair;
    struct end *other = &pair.end[0];
    struct weft_wire_data frame = {.type = WEFT_DATA_EAGER, .len = 0};
    const struct weft_slice nothing = {0};
    (void)state;
    pair_up(&pair, 2);
    frame.number = pair.end[1].link.sent + 2;
    fake_post(&lane_of(&pair.end[1], 0)->lane, &frame, &nothing, NULL);
    arrive_all(other, 0);
    take(other);
    assert_int_equal(other->lost, 1);
    assert_int_equal(other->link.status, WEFT_ERR_PROTOCOL);
    pair_down(&pair);
}

static void numbered_frames_of_another_lane_than_the_lead_go_by(void **state)
{
    static struct pair pair;
    struct end *other = &pair.end[0];
    struct weft_wire_data frame = {.type = WEFT_DATA_EAGER, .tag = 1, .len = 0};
    const struct weft_slice nothing = {0};
    (void)state;
    pair_up(&pair, 2);
    frame.number = pair.end[1].link.sent + 1;
    fake_post(&lane_of(&pair.end[1], 1)->lane, &frame, &nothing, NULL);
    arrive_all(other, 1);
    take(other);
    assert_int_equal(user_of(other)->heard, 0);
    assert_int_equal(other->lost, 0);
    pair_down(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_envelope_and_its_copy_in_one_poll_are_one),
        cmocka_unit_test(nor_does_the_end_of_its_lane_make_two_of_it),
        cmocka_unit_test(a_chunk_and_its_copy_in_one_poll_are_one),
        cmocka_unit_test(a_gap_in_the_leads_numbers_ends_the_link),
        cmocka_unit_test(numbered_frames_of_another_lane_than_the_lead_go_by),
    };
    setenv("WEFT_LOG", "off", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
