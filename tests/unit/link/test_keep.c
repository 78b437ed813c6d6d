/* SPDX-License-Identifier: Apache-2.0 */
/* The ring of short frames: full, empty, around its end, acknowledged in part, sent again. */
#include "unit/link/user.h"

/* Many times around, so that every length lies across the end some time. */
static void a_full_ring_empties_in_order(void **state)
{
    static struct pair pair;
    uint32_t pool = pair_up(&pair, 2);
    (void)state;
    fake_posts_max = 10000; /* it is the ring that is full, not the lane */
    for (int round = 0; round < 12; round++) {
        uint32_t before = user_of(&pair.end[1])->said;
        while (say(&pair.end[1])) {
        }
        assert_true(user_of(&pair.end[1])->said - before > 100); /* else the ring is no ring */
        assert_true(pair.end[1].link.keep_len <= pair.end[1].links->keep_room);
        settle(&pair);
    }
    fake_posts_max = 64;
    check_settled(&pair, pool);
    assert_true(pair.end[1].writable > 0); /* who was refused was told that there is room */
    pair_down(&pair);
}

static void before_a_lane_is_up_messages_wait_in_it(void **state)
{
    static struct pair pair;
    (void)state;
    pair_open(&pair, 2);
    users_open(&pair);
    for (int i = 0; i < 50; i++) {
        assert_true(say(&pair.end[0])); /* the lower rank: it is dialled */
    }
    assert_int_equal(pair.end[0].link.keep_unsent, pair.end[0].link.keep_len);
    settle(&pair);
    assert_int_equal(user_of(&pair.end[1])->heard, 50);
    pair_down(&pair);
}

/* Frames of the peer's that the test writes itself. */
static void deliver_ack(struct end *to, uint32_t number)
{
    struct fake_lane *there = lane_of(to->other, 0);
    const struct weft_wire_data ack = {.type = WEFT_DATA_ACK, .ack = number};
    const struct weft_slice nothing = {0};
    fake_post(&there->lane, &ack, &nothing, NULL);
    while (fake_arrive(lane_of(to, 0))) {
    }
    take(to);
}

static void an_acknowledgement_frees_what_it_names_and_no_more(void **state)
{
    static struct pair pair;
    struct weft_link *link = &pair.end[1].link;
    uint32_t first;
    size_t len;
    (void)state;
    pair_up(&pair, 2);
    first = link->sent;
    for (int i = 0; i < 10; i++) {
        assert_true(say(&pair.end[1]));
    }
    len = link->keep_len;
    deliver_ack(&pair.end[1], first + 4);
    assert_int_equal(link->acked, first + 4);
    assert_true(link->keep_len > 0 && link->keep_len < len);
    len = link->keep_len;
    deliver_ack(&pair.end[1], first + 3);  /* late: it says nothing new */
    deliver_ack(&pair.end[1], first + 11); /* never sent */
    assert_int_equal(link->acked, first + 4);
    assert_int_equal(link->keep_len, len);
    deliver_ack(&pair.end[1], first + 10);
    assert_int_equal(link->keep_len, 0);
    settle(&pair);
    pair_down(&pair);
}

static void a_new_lead_begins_with_all_that_is_not_acknowledged(void **state)
{
    static struct pair pair;
    struct weft_link *link = &pair.end[1].link;
    uint32_t pool = pair_up(&pair, 2), first = link->sent;
    (void)state;
    for (int i = 0; i < 10; i++) {
        assert_true(say(&pair.end[1]));
    }
    for (int i = 0; i < 3; i++) {
        fake_arrive(lane_of(&pair.end[0], 0));
        fake_body(lane_of(&pair.end[0], 0));
        take(&pair.end[0]);
    }
    assert_int_equal(user_of(&pair.end[0])->heard, 3);
    deliver_ack(&pair.end[1], first + 3);
    fake_end(lane_of(&pair.end[1], 0));
    take(&pair.end[1]);
    assert_ptr_equal(link->lane, &lane_of(&pair.end[1], 1)->lane);
    assert_int_equal(link->keep_unsent,
                     0); /* it has gone, by the other one: LEAD, seven, and an ACK or two */
    assert_true(fake_queued(link->lane) >= 8);
    settle(&pair);
    check_settled(&pair, pool);
    pair_down(&pair);
}

/* All that has been posted on this lane arrives, and is acknowledged. */
static void bring_all(struct end *to, uint32_t slot)
{
    struct fake_lane *lane = lane_of(to, slot);
    uint32_t number = to->other->link.sent;
    while (fake_both(lane)) {
        take(to);
    }
    assert_int_equal(to->link.received, number);
    deliver_ack(to->other, number);
    assert_int_equal(to->other->link.keep_len, 0);
}

/* What is said now lies where the acknowledged ones lay; then the slow lane sends what it still has (fake_leave looks
 * at it), and it all comes in the end. */
static void use_again(struct pair *pair, uint32_t slot, uint32_t pool)
{
    while (say(&pair->end[1])) {
    }
    while (fake_leave(lane_of(&pair->end[0], slot))) {
    }
    settle(pair);
    check_settled(pair, pool);
    pair_down(pair);
}

static void a_former_lead_does_not_send_what_has_come_by_another(void **state)
{
    static struct pair pair;
    uint32_t pool = pair_up(&pair, 2);
    struct end *end = &pair.end[1];
    size_t queued;
    (void)state;
    for (int i = 0; i < 10; i++) {
        assert_true(say(end));
    }
    fake_begin(lane_of(&pair.end[0], 0)); /* that one goes on */
    queued = fake_queued(&lane_of(end, 0)->lane);
    weft_bundle_told_slow(end->link.bundle, 1);
    assert_ptr_equal(end->link.lane, &lane_of(end, 1)->lane);
    bring_all(&pair.end[0], 1);
    assert_int_equal(fake_queued(&lane_of(end, 0)->lane), queued);
    use_again(&pair, 0, pool);
}

static void a_new_lead_does_not_send_what_has_come_by_the_former(void **state)
{
    static struct pair pair;
    uint32_t pool = pair_up(&pair, 2);
    struct end *end = &pair.end[1];
    (void)state;
    weft_bundle_told_slow(end->link.bundle, 1);
    for (int i = 0; i < 10; i++) {
        assert_true(say(end));
    }
    weft_bundle_told_slow(end->link.bundle, 0);
    assert_ptr_equal(end->link.lane, &lane_of(end, 0)->lane);
    fake_leave(lane_of(&pair.end[0], 0)); /* who leads now */
    fake_begin(lane_of(&pair.end[0], 0));
    bring_all(&pair.end[0], 1);
    use_again(&pair, 0, pool);
}

/* There and back: the first lane has each of them twice. */
static void a_lead_that_leads_again_does_not_send_what_has_come(void **state)
{
    static struct pair pair;
    uint32_t pool = pair_up(&pair, 2);
    struct end *end = &pair.end[1];
    (void)state;
    for (int i = 0; i < 10; i++) {
        assert_true(say(end));
    }
    weft_bundle_told_slow(end->link.bundle, 1);
    weft_bundle_told_slow(end->link.bundle, 0);
    bring_all(&pair.end[0], 1);
    use_again(&pair, 0, pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_ring_empties_in_order),
        cmocka_unit_test(before_a_lane_is_up_messages_wait_in_it),
        cmocka_unit_test(an_acknowledgement_frees_what_it_names_and_no_more),
        cmocka_unit_test(a_new_lead_begins_with_all_that_is_not_acknowledged),
        cmocka_unit_test(a_former_lead_does_not_send_what_has_come_by_another),
        cmocka_unit_test(a_new_lead_does_not_send_what_has_come_by_the_former),
        cmocka_unit_test(a_lead_that_leads_again_does_not_send_what_has_come),
    };
    setenv("WEFT_LOG", "error", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
