/* SPDX-License-Identifier: Apache-2.0 */
/* Sends while lanes come and go. */
#include "unit/p2p/two.h"

#define LEN ((size_t)1 << 20)
#define TAG 3

/* The announcement is overtaken by the word that its lane leads no more; its bytes still come by that lane. */
static void bytes_that_follow_their_announcement_are_not_lost_with_its_lane(void **state)
{
    static struct two two;
    static uint8_t source[LEN], room[LEN];
    const struct weft_slice slice = {room, LEN};
    struct rank *sender = &two.rank[0], *receiver = &two.rank[1];
    weft_request_t receive, send;
    (void)state;
    memset(source, 7, sizeof(source));
    two_open_lanes(&two, 2, connect_lane_0);
    weft_p2p_recv(receiver->world, &slice, 0, TAG, NULL, &receive);
    settle_lanes(&two, connect_lane_0);
    weft_p2p_send(sender->world, source, LEN, 1, TAG, &send);
    while (fake_leave(lane_at(receiver, 0))) { /* all of it is in the network */
    }
    each_lane(&receiver->end, fake_connect);
    poll_rank(sender);
    poll_rank(receiver);
    fake_end(lane_at(sender, 0)); /* the receiver does not know it yet */
    poll_rank(sender);
    fake_arrive(lane_at(receiver, 1));
    poll_rank(receiver);
    while (fake_both(lane_at(receiver, 0))) {
        poll_rank(receiver);
    }
    settle_two(&two);
    assert_int_equal(weft_p2p_wait(&receive, 0), WEFT_OK);
    assert_int_equal(weft_p2p_wait(&send, 0), WEFT_OK);
    assert_memory_equal(room, source, LEN);
    two_close(&two);
}

/* The control plane has better words, a moment later. */
static void a_send_just_after_the_lane_was_lost_waits_for_the_reason(void **state)
{
    static struct two two;
    static const uint8_t source[8];
    struct rank *sender = &two.rank[0];
    struct weft_p2p_peer *peer;
    weft_request_t send;
    (void)state;
    two_open(&two, 2);
    peer = weft_p2p_peer_of(sender->p2p, 1);
    peer->link.state = WEFT_LINK_DOWN;
    peer->link.status = WEFT_ERR_PEER;
    weft_p2p_peer_lost(peer, WEFT_ERR_PEER, "the connection is lost");
    weft_p2p_send(sender->world, source, sizeof(source), 1, TAG, &send);
    poll_rank(sender);
    assert_int_equal(weft_p2p_wait(&send, 0), WEFT_ERR_TIMEOUT);
    weft_p2p_gone(sender->p2p, 1, WEFT_ERR_PEER, "rank 1 was killed");
    poll_rank(sender);
    assert_int_equal(weft_p2p_wait(&send, 0), WEFT_ERR_PEER);
    assert_string_equal(weft_error_text(), "rank 1 was killed");
    two_close(&two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_that_follow_their_announcement_are_not_lost_with_its_lane),
        cmocka_unit_test(a_send_just_after_the_lane_was_lost_waits_for_the_reason),
    };
    setenv("WEFT_LOG", "off", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
