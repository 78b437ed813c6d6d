/* SPDX-License-Identifier: Apache-2.0 */
/* Rank 1 closes the second communicator: whatever rank 0 has there that needs it hears so. */
#include "unit/p2p/two.h"

#define LEN ((size_t)1 << 20)
#define TAG 5

static uint8_t memory[LEN];
static const struct weft_slice room = {memory, LEN};

static void close_dup(struct rank *rank)
{
    assert_int_equal(weft_p2p_comm_close(rank->dup), WEFT_OK);
    rank->dup = NULL;
}

/* It is over because the other one has closed. */
static void assert_closed(weft_request_t *request)
{
    int is_done;
    assert_int_equal(weft_p2p_test(request, &is_done), WEFT_ERR_PEER);
    assert_true(is_done);
    assert_non_null(strstr(weft_error_text(), "rank 1"));
    assert_non_null(strstr(weft_error_text(), "closed"));
}

static void receives_and_sends_hear_of_it(void **state)
{
    static struct two two;
    weft_request_t request[3];
    (void)state;
    two_open(&two, 2);
    weft_p2p_recv(two.rank[0].dup, &room, 1, TAG, NULL, &request[0]);
    weft_p2p_recv(two.rank[0].dup, &room, WEFT_MATCH_ANY, TAG, NULL, &request[1]);
    weft_p2p_send(two.rank[0].dup, memory, LEN, 1, TAG, &request[2]);
    settle_two(&two);
    close_dup(&two.rank[1]);
    settle_two(&two);
    assert_closed(&request[0]);
    assert_int_equal(request[1]->status, WEFT_ERR_PEER); /* nobody else is left */
    weft_p2p_wait(&request[1], 0);
    assert_closed(&request[2]);
    two_close(&two);
}

static void what_begins_afterwards_hears_of_it_at_once(void **state)
{
    static struct two two;
    weft_request_t request;
    (void)state;
    two_open(&two, 1);
    close_dup(&two.rank[1]);
    settle_two(&two);
    assert_int_equal(weft_p2p_send(two.rank[0].dup, memory, 8, 1, TAG, NULL), WEFT_ERR_PEER);
    assert_int_equal(weft_p2p_recv(two.rank[0].dup, &room, 1, TAG, NULL, NULL), WEFT_ERR_PEER);
    assert_int_equal(weft_p2p_recv(two.rank[0].dup, &room, WEFT_MATCH_ANY, TAG, NULL, NULL),
                     WEFT_ERR_PEER);
    weft_p2p_recv(two.rank[0].world, &room, 1, TAG, NULL, &request); /* this one is open */
    settle_two(&two);
    assert_false(weft_p2p_is_done(request));
    assert_int_equal(weft_p2p_send(two.rank[1].world, memory, 8, 0, TAG, NULL), WEFT_OK);
    settle_two(&two);
    assert_int_equal(weft_p2p_wait(&request, 0), WEFT_OK);
    two_close(&two);
}

static void what_it_sent_before_is_received(void **state)
{
    static struct two two;
    weft_message_t message;
    (void)state;
    two_open(&two, 2);
    assert_int_equal(weft_p2p_send(two.rank[1].dup, memory, 5000, 0, TAG, NULL), WEFT_OK);
    settle_two(&two);
    close_dup(&two.rank[1]);
    settle_two(&two);
    assert_int_equal(weft_p2p_recv(two.rank[0].dup, &room, 1, TAG, &message, NULL), WEFT_OK);
    assert_int_equal(message.len, 5000);
    assert_int_equal(weft_p2p_recv(two.rank[0].dup, &room, 1, TAG, NULL, NULL), WEFT_ERR_PEER);
    two_close(&two);
}

/* As quiet does; but it does not wait. */
static weft_request_t flush(struct weft_p2p_comm *comm)
{
    struct weft_request *request = weft_p2p_request_take(comm, REQUEST_FLUSH);
    weft_request_t handle;
    request->peer = comm->peers[1];
    request->rank = 1;
    weft_p2p_request_run(request, &handle);
    return handle;
}

/* is_late: they come when it is closed already, and the word of that is lost in time. */
static void check_onesided(bool is_late)
{
    static struct two two;
    static uint8_t window[64];
    weft_mem_t mem;
    const struct weft_p2p_target target = {&mem, 0};
    weft_request_t request;
    two_open(&two, 2);
    assert_int_equal(weft_p2p_register(two.rank[1].dup, window, sizeof(window), &mem), WEFT_OK);
    if (is_late) {
        close_dup(&two.rank[1]);
    }
    assert_int_equal(weft_p2p_put(two.rank[0].dup, &target, memory, sizeof(window), NULL, 0),
                     WEFT_OK);
    assert_int_equal(weft_p2p_get(two.rank[0].dup, &target, memory, sizeof(window)), WEFT_OK);
    request = flush(two.rank[0].dup);
    if (!is_late) {
        close_dup(&two.rank[1]);
    }
    settle_two(&two);
    assert_closed(&request);
    assert_int_equal(two.rank[0].dup->gets_open, 0);
    assert_int_equal(two.rank[0].dup->side_status, WEFT_ERR_PEER);
    assert_int_equal(weft_p2p_put(two.rank[0].dup, &target, memory, 8, NULL, 0), WEFT_ERR_PEER);
    two_close(&two);
}

static void onesided_operations_hear_of_it(void **state)
{
    (void)state;
    check_onesided(false);
    check_onesided(true);
}

/* There is no link, so nobody could say it. */
static void a_receive_that_waits_asks_and_is_told(void **state)
{
    static struct two two;
    weft_request_t request;
    (void)state;
    memset(&two, 0, sizeof(two));
    rank_open(&two, 0, 1);
    rank_open(&two, 1, 1);
    weft_p2p_recv(two.rank[0].dup, &room, 1, TAG, NULL, &request);
    close_dup(&two.rank[1]);
    settle_two(&two);
    assert_false(weft_p2p_is_done(request));
    for (int i = 0; i < 2; i++) { /* it is met, and has waited */
        two.rank[0].p2p->sweep.fire(&two.rank[0].p2p->sweep, weft_clock_ns());
    }
    settle_two(&two);
    assert_closed(&request);
    two_close(&two);
}

static void the_question_is_answered_when_it_is_closed(void **state)
{
    static struct two two;
    weft_request_t request;
    (void)state;
    memset(&two, 0, sizeof(two));
    rank_open(&two, 0, 1);
    rank_open(&two, 1, 1);
    weft_p2p_recv(two.rank[0].dup, &room, 1, TAG, NULL, &request);
    for (int i = 0; i < 2; i++) {
        two.rank[0].p2p->sweep.fire(&two.rank[0].p2p->sweep, weft_clock_ns());
    }
    settle_two(&two);
    assert_false(weft_p2p_is_done(request));
    close_dup(&two.rank[1]);
    settle_two(&two);
    assert_closed(&request);
    two_close(&two);
}

static struct weft_p2p_peer *loses_its_link(struct rank *rank)
{
    struct weft_p2p_peer *peer = weft_p2p_peer_of(rank->p2p, rank->other->end.self.rank);
    weft_p2p_peer_lost(peer, WEFT_ERR_PEER, "closed the connection (reset)");
    return peer;
}

/* How often, at most 100 times, it may fire until the peer is given up. */
static int graces_of(struct weft_p2p_peer *peer)
{
    int fired = 0;
    while (!peer->is_going && fired < 100) {
        fired++;
        peer->grace.fire(&peer->grace, weft_clock_ns());
    }
    return fired;
}

/* The control plane says that it has closed, and the path of that may be dead for a while. */
static void who_closed_in_good_order_is_not_lost_before_a_path_would_be(void **state)
{
    struct two two;
    (void)state;
    two_open(&two, 2);
    assert_int_equal(graces_of(loses_its_link(&two.rank[0])), 1);
    link_of(&two.rank[1])->is_ended = true;
    assert_in_range(graces_of(loses_its_link(&two.rank[1])), 5000 / 300, 30);
    two_close(&two);
}

static void the_word_waits_for_a_communicator_that_is_not_open_yet(void **state)
{
    static struct two two;
    const uint64_t id = 103;
    struct weft_p2p_comm *comm;
    (void)state;
    two_open(&two, 1);
    weft_p2p_forget(two.rank[1].p2p, id); /* it never had messages there */
    weft_p2p_say_closed(two.rank[1].p2p, id, NULL, 2);
    settle_two(&two);
    assert_int_equal(weft_p2p_comm_open(two.rank[0].p2p, id, 0, 2, NULL, &comm), WEFT_OK);
    assert_int_equal(weft_p2p_recv(comm, &room, 1, TAG, NULL, NULL), WEFT_ERR_PEER);
    weft_p2p_ended(two.rank[0].p2p, id, WEFT_ERR_ABORTED, "the test is over");
    assert_int_equal(weft_p2p_comm_close(comm), WEFT_OK);
    two_close(&two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(receives_and_sends_hear_of_it),
        cmocka_unit_test(what_begins_afterwards_hears_of_it_at_once),
        cmocka_unit_test(what_it_sent_before_is_received),
        cmocka_unit_test(onesided_operations_hear_of_it),
        cmocka_unit_test(a_receive_that_waits_asks_and_is_told),
        cmocka_unit_test(the_question_is_answered_when_it_is_closed),
        cmocka_unit_test(who_closed_in_good_order_is_not_lost_before_a_path_would_be),
        cmocka_unit_test(the_word_waits_for_a_communicator_that_is_not_open_yet),
    };
    setenv("WEFT_LOG", "off", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
