/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection between two ranks is replaced again and again while it carries mail and collectives:
 * everything comes once and in order. And who may not replace it.
 *
 * Two ranks of this process, as if on two hosts: 127.0.0.1 and 127.0.0.2 are their NICs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "control/internal.h"
#include "harness/harness.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEADLINE_MS 10000
#define CHANNEL 77

static uint8_t key[WEFT_WIRE_KEY_LEN] = "not much of a secret, but one...";

struct rank {
    struct weft_params params;
    struct weft_engine *engine;
    struct weft_control *control;
    struct weft_control_channel *channel;
    struct weft_control_observer observer;
    struct weft_control_spec spec;
    struct weft_control_door door;
    char ended[TEXT_LEN]; /* what the observer heard */
    pthread_t thread;
    uint32_t messages, number;
    _Atomic uint32_t is_done;
    weft_status_t status;
};

struct pair {
    struct rank rank[2];
};

/* ---- two ranks ---- */

static struct sockaddr_storage address(const char *text)
{
    struct sockaddr_storage addr = {0};
    struct sockaddr_in *in = (struct sockaddr_in *)&addr;
    in->sin_family = AF_INET;
    inet_pton(AF_INET, text, &in->sin_addr);
    return addr;
}

static uint32_t two_nics(struct weft_control_observer *observer,
                         struct weft_control_nic nics[WEFT_CONTROL_NICS])
{
    (void)observer;
    memset(nics, 0, 2 * sizeof(*nics));
    nics[0].addr = address("127.0.0.1");
    nics[1].addr = address("127.0.0.2");
    return 2;
}

static uint32_t one_nic(struct weft_control_observer *observer,
                        struct weft_control_nic nics[WEFT_CONTROL_NICS])
{
    return two_nics(observer, nics) - 1;
}

static void called(struct weft_control_observer *observer, uint32_t from, const uint8_t *payload,
                   size_t len)
{
    (void)observer;
    (void)from;
    (void)payload;
    (void)len;
}

static void gone(struct weft_control_observer *observer, uint32_t rank, weft_status_t status,
                 const char *text)
{
    struct rank *self = WEFT_CONTAINER_OF(observer, struct rank, observer);
    (void)rank;
    (void)status;
    snprintf(self->ended, sizeof(self->ended), "%s", text);
}

static void ended(struct weft_control_observer *observer,
                  const struct weft_control_failure *failure)
{
    gone(observer, failure->rank, failure->status, failure->text);
}

static bool reaches(struct weft_control_observer *observer, uint32_t rank, bool *is_alive_p)
{
    (void)observer;
    (void)rank;
    (void)is_alive_p;
    return false;
}

static void *open_rank(void *arg)
{
    struct rank *rank = arg;
    rank->status = weft_control_open(&rank->spec, &rank->control);
    return NULL;
}

static void prepare(struct pair *pair, uint32_t i, bool is_sealed)
{
    struct rank *rank = &pair->rank[i];
    assert_int_equal(weft_params_load(&rank->params), WEFT_OK);
    rank->params.number[WEFT_PARAM_HEARTBEAT] = 10;
    assert_int_equal(weft_engine_open(64, -1, &rank->engine), WEFT_OK);
    rank->spec = (struct weft_control_spec){
        .engine = rank->engine,
        .params = &rank->params,
        .self = {.key = key, .is_authenticated = is_sealed, .rank = i, .ranks = 2, .job = "job"},
        .host = i == 0 ? "left" : "right",
        .deadline_ns = weft_clock_after_ms(DEADLINE_MS),
        .timeout_ms = DEADLINE_MS,
        .join = WEFT_JOIN_DIRECT};
}

static void open_pair(struct pair *pair, bool is_sealed,
                      uint32_t (*nics)(struct weft_control_observer *, struct weft_control_nic *))
{
    struct sockaddr_storage here = address("127.0.0.1");
    memset(pair, 0, sizeof(*pair));
    assert_int_equal(weft_wire_crypto_open(), WEFT_OK);
    for (uint32_t i = 0; i < 2; i++) {
        prepare(pair, i, is_sealed);
    }
    assert_int_equal(weft_control_door_open(&here, "", NULL, &pair->rank[0].door), WEFT_OK);
    pair->rank[0].spec.door = &pair->rank[0].door;
    pair->rank[0].spec.is_root = true;
    assert_int_equal(weft_control_root_addr(&pair->rank[0].door.addr, &pair->rank[1].spec.above[0]),
                     WEFT_OK);
    pair->rank[1].spec.above_count = 1;
    for (uint32_t i = 0; i < 2; i++) {
        pthread_create(&pair->rank[i].thread, NULL, open_rank, &pair->rank[i]);
    }
    for (uint32_t i = 0; i < 2; i++) {
        struct rank *rank = &pair->rank[i];
        pthread_join(rank->thread, NULL);
        assert_int_equal(rank->status, WEFT_OK);
        rank->observer = (struct weft_control_observer){
            .called = called, .gone = gone, .ended = ended, .reaches = reaches, .nics = nics};
        assert_int_equal(weft_control_channel_open(rank->control, CHANNEL, NULL, 0, &rank->channel),
                         WEFT_OK);
        weft_control_observe(rank->control, &rank->observer);
    }
}

static void *close_rank(void *arg)
{
    struct rank *rank = arg;
    weft_control_channel_close(rank->channel);
    weft_control_observe(rank->control, NULL);
    weft_background_leave(rank->engine);
    weft_control_close(rank->control);
    weft_engine_close(rank->engine);
    return NULL;
}

static void close_pair(struct pair *pair)
{
    for (int i = 0; i < 2; i++) {
        pthread_create(&pair->rank[i].thread, NULL, close_rank, &pair->rank[i]);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(pair->rank[i].thread, NULL);
    }
}

/* ---- what the tests look at, under the lock ---- */

static uint32_t locked(struct rank *rank, uint32_t (*look)(struct weft_control *control))
{
    uint32_t value;
    weft_engine_lock(rank->engine);
    value = look(rank->control);
    weft_engine_unlock(rank->engine);
    return value;
}

static bool await(struct rank *rank, uint32_t (*look)(struct weft_control *control))
{
    uint64_t deadline_ns = weft_clock_after_ms(DEADLINE_MS);
    const _Atomic uint32_t never = 0;
    while (locked(rank, look) == 0) {
        if (weft_clock_ns() > deadline_ns) {
            return false;
        }
        weft_engine_wait(rank->engine, &never, weft_clock_after_ms(1));
    }
    return true;
}

static uint32_t knows_ways(struct weft_control *control)
{
    return control->parent_mend != NULL && control->parent_mend->counts_in;
}

static uint32_t is_settled(struct weft_control *control)
{
    return !weft_control_ways_is_seeking(control) && !control->parent_mend->is_resuming;
}

static uint32_t has_nothing_kept(struct weft_control *control)
{
    struct weft_control_mend *mend =
        control->child_count > 0 ? control->children[0].mend : control->parent_mend;
    return mend->kept_len == 0 && mend->sent == mend->acked;
}

static uint32_t no_returning(struct weft_control *control)
{
    return control->children[0].mend->returning == NULL;
}

static uint32_t seek(struct weft_control *control)
{
    return weft_control_ways_seek(control);
}

static uint32_t has_moved(struct weft_control *control)
{
    return control->parent_mend->since == control->parent_mend->round;
}

/* One round; false: a beat came by the old connection meanwhile, so the child stays there. */
static bool try_to_move(struct pair *pair)
{
    assert_true(locked(&pair->rank[1], seek));
    assert_true(await(&pair->rank[1], is_settled));
    return locked(&pair->rank[1], has_moved) != 0;
}

/* Onto a way: the door by which it joined is closed again, and nobody could be called there. */
static void move(struct pair *pair)
{
    uint64_t deadline_ns = weft_clock_after_ms(DEADLINE_MS);
    while (!try_to_move(pair)) {
        assert_true(weft_clock_ns() < deadline_ns);
    }
}

/* ---- mail and collectives, meanwhile ---- */

static size_t len_of(uint32_t i)
{
    static const size_t lens[] = {8, 100, 0, 5000, 16, 30000, 64, 1};
    return lens[i % WEFT_COUNT_OF(lens)];
}

static void fill(uint8_t *data, size_t len, uint32_t i)
{
    for (size_t k = 0; k < len; k++) {
        data[k] = (uint8_t)((size_t)i * 31 + k * 7);
    }
}

static bool do_round(struct rank *rank, uint32_t i, uint8_t *data, uint8_t *expected)
{
    uint32_t mine[2] = {rank->number, i}, all[4];
    size_t len = 777;
    fill(data, len_of(i), i + rank->number);
    rank->status = weft_control_mail_send(rank->channel, 1 - rank->number, i % 3, data, len_of(i),
                                          DEADLINE_MS);
    if (rank->status == WEFT_OK) {
        rank->status = weft_control_mail_recv(rank->channel, 1 - rank->number, i % 3, data, 30000,
                                              &len, DEADLINE_MS);
    }
    fill(expected, len_of(i), i + 1 - rank->number);
    if (rank->status != WEFT_OK || len != len_of(i) || memcmp(data, expected, len) != 0) {
        return false;
    }
    if (i % 4 == 0) {
        rank->status =
            weft_control_allgather_wait(rank->channel, mine, sizeof(mine), all, DEADLINE_MS);
        return rank->status == WEFT_OK && all[0] == 0 && all[1] == i && all[2] == 1 && all[3] == i;
    }
    return true;
}

static void *talk(void *arg)
{
    struct rank *rank = arg;
    uint8_t *data = malloc(30000), *expected = malloc(30000);
    rank->status = WEFT_OK;
    for (uint32_t i = 0; i < rank->messages; i++) {
        if (!do_round(rank, i, data, expected)) {
            rank->status = rank->status != WEFT_OK ? rank->status : WEFT_ERR_PROTOCOL;
            fprintf(stderr, "rank %u, round %u: %s\n", rank->number, i, weft_error_text());
            break;
        }
    }
    atomic_store(&rank->is_done, 1);
    free(data);
    free(expected);
    return NULL;
}

static void begin_talk(struct pair *pair, uint32_t messages)
{
    for (uint32_t i = 0; i < 2; i++) {
        pair->rank[i].messages = messages;
        pair->rank[i].number = i;
        atomic_store(&pair->rank[i].is_done, 0);
        pthread_create(&pair->rank[i].thread, NULL, talk, &pair->rank[i]);
    }
}

static void end_talk(struct pair *pair)
{
    for (int i = 0; i < 2; i++) {
        pthread_join(pair->rank[i].thread, NULL);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pair->rank[i].status, WEFT_OK);
        assert_string_equal(pair->rank[i].ended, "");
    }
}

static void check_replacing(bool is_sealed)
{
    struct pair pair;
    uint32_t moves = 0;
    open_pair(&pair, is_sealed, two_nics);
    assert_true(await(&pair.rank[1], knows_ways));
    for (uint32_t talks = 0; moves <= 20; talks++) {
        assert_true(talks < 20);
        begin_talk(&pair, 3000);
        while (atomic_load(&pair.rank[0].is_done) == 0 && atomic_load(&pair.rank[1].is_done) == 0) {
            moves += try_to_move(&pair);
        }
        end_talk(&pair);
    }
    for (int i = 0; i < 2; i++) {
        assert_true(await(&pair.rank[i], has_nothing_kept)); /* it is told with the next beat */
    }
    close_pair(&pair);
}

static void what_it_carries_comes_once_and_in_order(void **state)
{
    (void)state;
    check_replacing(false);
}

static void sealed_frames_too(void **state)
{
    (void)state;
    check_replacing(true);
}

static void ranks_with_one_nic_each_keep_nothing(void **state)
{
    struct pair pair;
    (void)state;
    open_pair(&pair, false, one_nic);
    begin_talk(&pair, 500);
    end_talk(&pair);
    for (int i = 0; i < 20; i++) { /* two beats of both, at least */
        const _Atomic uint32_t never = 0;
        weft_engine_wait(pair.rank[1].engine, &never, weft_clock_after_ms(5));
    }
    assert_false(locked(&pair.rank[1], knows_ways));
    weft_engine_lock(pair.rank[1].engine);
    assert_null(pair.rank[1].control->parent_mend);
    assert_null(pair.rank[1].control->parent->edge);
    weft_engine_unlock(pair.rank[1].engine);
    close_pair(&pair);
}

/* ---- calls that the child did not make, or gave up ---- */

struct caller {
    struct weft_wire_self self;
    struct weft_net_conn *conn;
    enum { WAITING, OPENED, REFUSED } outcome;
    weft_status_t status; /* REFUSED: what for */
};

static void caller_opened(struct weft_net_conn *conn)
{
    ((struct caller *)conn->owner)->outcome = OPENED;
}

static void caller_lost(struct weft_net_conn *conn, weft_status_t status, const char *why)
{
    struct caller *caller = conn->owner;
    (void)why;
    caller->outcome = REFUSED;
    caller->status = status;
}

static void caller_hello(struct weft_net_conn *conn)
{
    (void)conn;
}

static void caller_frame(struct weft_net_conn *conn, const struct weft_wire_frame *frame,
                         const uint8_t *payload)
{
    (void)conn;
    (void)frame;
    (void)payload;
}

static const struct weft_net_conn_ops caller_ops = {
    .hello = caller_hello, .opened = caller_opened, .frame = caller_frame, .lost = caller_lost};

/* Where the parent listens now: the way that the child knows. */
static struct sockaddr_storage find_way(struct pair *pair)
{
    struct sockaddr_storage addr;
    struct weft_net_conn *conn;
    move(pair);
    weft_engine_lock(pair->rank[1].engine);
    conn = pair->rank[1].control->parent;
    assert_int_equal(weft_net_addr_from_wire(&conn->peer_addr, &addr), WEFT_OK);
    weft_engine_unlock(pair->rank[1].engine);
    return addr;
}

/* As rank `as`, with this round, from one who uses the connection of round `since`. */
static void call(struct pair *pair, const struct sockaddr_storage *addr, uint32_t as,
                 uint32_t round, uint32_t since, struct caller *caller)
{
    struct rank *rank = &pair->rank[1];
    struct weft_net_dial dial;
    uint8_t bytes[8];
    const _Atomic uint32_t never = 0;
    uint64_t deadline_ns = weft_clock_after_ms(DEADLINE_MS);
    put32(bytes, round);
    put32(bytes + 4, since);
    *caller = (struct caller){.self = rank->control->self};
    caller->self.rank = as;
    weft_engine_lock(rank->engine);
    assert_int_equal(weft_net_connect(addr, &dial), WEFT_OK);
    dial.self = &caller->self;
    dial.purpose = WEFT_WIRE_RETURN;
    dial.payload = bytes;
    dial.payload_len = sizeof(bytes);
    dial.ops = &caller_ops;
    dial.owner = caller;
    assert_int_equal(weft_net_conn_open(rank->engine, &dial, &caller->conn), WEFT_OK);
    weft_engine_unlock(rank->engine);
    for (bool is_over = false; !is_over && weft_clock_ns() < deadline_ns;) {
        weft_engine_wait(rank->engine, &never, weft_clock_after_ms(1));
        weft_engine_lock(rank->engine);
        is_over = caller->outcome != WAITING;
        weft_engine_unlock(rank->engine);
    }
}

static void hang_up(struct pair *pair, struct caller *caller)
{
    weft_engine_lock(pair->rank[1].engine);
    weft_net_conn_close(caller->conn);
    weft_engine_unlock(pair->rank[1].engine);
}

static void old_rounds_and_other_ranks_are_refused(void **state)
{
    struct pair pair;
    struct caller caller;
    struct sockaddr_storage addr;
    uint32_t round;
    (void)state;
    open_pair(&pair, true, two_nics);
    assert_true(await(&pair.rank[1], knows_ways));
    addr = find_way(&pair);
    round = pair.rank[1].control->parent_mend->round;
    for (uint32_t i = 0; i < 2; i++) { /* the latest one, and the one before */
        call(&pair, &addr, 1, round - i, round - i - 1, &caller);
        assert_int_equal(caller.outcome, REFUSED);
        assert_int_equal(caller.status, WEFT_ERR_DUPLICATE);
        hang_up(&pair, &caller);
    }
    call(&pair, &addr, 0, round + 1, round, &caller); /* the parent itself */
    assert_int_equal(caller.outcome, REFUSED);
    assert_int_equal(caller.status, WEFT_ERR_PROTOCOL);
    hang_up(&pair, &caller);
    begin_talk(&pair, 200);
    end_talk(&pair);
    close_pair(&pair);
}

static void a_call_that_is_given_up_changes_nothing(void **state)
{
    struct pair pair;
    struct caller caller;
    struct sockaddr_storage addr;
    (void)state;
    open_pair(&pair, true, two_nics);
    assert_true(await(&pair.rank[1], knows_ways));
    addr = find_way(&pair);
    begin_talk(&pair, 1500);
    for (uint32_t i = 0; i < 20; i++) {
        weft_engine_lock(pair.rank[1].engine);
        uint32_t round = ++pair.rank[1].control->parent_mend->round;
        weft_engine_unlock(pair.rank[1].engine);
        call(&pair, &addr, 1, round, 1, &caller);
        assert_int_equal(caller.outcome, OPENED);
        hang_up(&pair, &caller);
        assert_true(await(&pair.rank[0], no_returning));
    }
    end_talk(&pair);
    move(&pair); /* and the child itself may still come */
    begin_talk(&pair, 200);
    end_talk(&pair);
    close_pair(&pair);
}

/* Two calls, one after the other, before the first could say RESUME: what became of the first? */
static bool is_first_kept(uint32_t since_ahead, bool *is_returning_p)
{
    struct pair pair;
    struct caller first, second;
    struct sockaddr_storage addr;
    const struct weft_control_child *child;
    uint32_t round;
    bool is_kept;
    open_pair(&pair, true, two_nics);
    assert_true(await(&pair.rank[1], knows_ways));
    addr = find_way(&pair);
    weft_engine_lock(pair.rank[1].engine);
    round = pair.rank[1].control->parent_mend->round;
    weft_engine_unlock(pair.rank[1].engine);
    call(&pair, &addr, 1, round + 1, round, &first);
    call(&pair, &addr, 1, round + 2, round + since_ahead, &second);
    assert_int_equal(second.outcome, OPENED);
    weft_engine_lock(pair.rank[0].engine);
    child = &pair.rank[0].control->children[0];
    is_kept = child->conn->tag == ROLE_CHILD && child->mend->is_resuming;
    *is_returning_p = child->mend->returning != NULL;
    weft_engine_unlock(pair.rank[0].engine);
    hang_up(&pair, &first);
    hang_up(&pair, &second);
    close_pair(&pair);
    return is_kept;
}

static void a_call_tells_whether_the_one_before_is_used(void **state)
{
    bool is_returning;
    (void)state;
    assert_true(is_first_kept(1, &is_returning)); /* closing it would look like the parent's end */
    assert_true(is_returning);
    assert_false(
        is_first_kept(0, &is_returning)); /* given up by the child: the old one is in use */
    assert_true(is_returning);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_it_carries_comes_once_and_in_order),
        cmocka_unit_test(sealed_frames_too),
        cmocka_unit_test(ranks_with_one_nic_each_keep_nothing),
        cmocka_unit_test(old_rounds_and_other_ranks_are_refused),
        cmocka_unit_test(a_call_that_is_given_up_changes_nothing),
        cmocka_unit_test(a_call_tells_whether_the_one_before_is_used),
    };
    setenv("WEFT_LOG", "error", 1); /* hundreds of moves, each with its warning */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
