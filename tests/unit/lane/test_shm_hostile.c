/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A peer gone mad: it scribbles over our inbox, lies about slots, claims and dies, talks nonsense
 * on the socket. The lane is lost, nobody is hurt, the other lanes go on.
 */
#include "shm_support.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>

/* Publishes a cell in b's inbox as rank 0 would; the test spoils it first. */
static struct weft_shm_cell *claim_cell(struct pair *pair, uint32_t *stamp_p)
{
    struct weft_shm_port *port = shm_port(&pair->b);
    uint64_t tail = atomic_fetch_add(&port->inbox.header->tail, 1);
    struct weft_shm_cell *cell = &port->cells[tail & port->mask];
    memset((uint8_t *)cell + sizeof(cell->stamp), 0, sizeof(*cell) - sizeof(cell->stamp));
    cell->type = WEFT_DATA_EAGER;
    cell->len = 8;
    cell->sender = 0;
    cell->lane = shm_lane(&pair->a, 1)->number_there;
    *stamp_p = (uint32_t)tail + 1;
    return cell;
}

static void publish_cell(struct weft_shm_cell *cell, uint32_t stamp)
{
    atomic_store_explicit(&cell->stamp, stamp, memory_order_release);
}

static void expect_protocol_loss(struct pair *pair)
{
    assert_true(step_until(&pair->b, NULL, &pair->b.lost, 1));
    assert_int_equal(pair->b.lost_status, WEFT_ERR_PROTOCOL);
    assert_int_equal(pair->b.arrived, 0);
    assert_true(step_until(&pair->a, NULL, &pair->a.lost, 1)); /* and the offender hears of it */
}

enum spoil {
    SPOIL_NOTHING,
    SPOIL_TYPE_ZERO,
    SPOIL_TYPE,
    SPOIL_LENGTH,
    SPOIL_INLINE_TYPE,
    SPOIL_SENDER,
    SPOIL_SLOT_OUTSIDE,
    SPOIL_LENGTH_WITHOUT_SLOT,
    SPOIL_BODY_TYPE_ZERO,
    SPOIL_BODY_TYPE,
    SPOIL_END
};

static void spoil_cell(struct weft_shm_cell *cell, enum spoil spoil)
{
    switch (spoil) {
    case SPOIL_TYPE_ZERO:
        cell->type = 0;
        break;
    case SPOIL_TYPE:
        cell->type = WEFT_DATA_TYPE_END;
        break;
    case SPOIL_LENGTH:
        cell->len = WEFT_SHM_INLINE + 1;
        break;
    case SPOIL_INLINE_TYPE:
        cell->type = WEFT_DATA_PUT;
        break;
    case SPOIL_SENDER:
        cell->sender = 2;
        break;
    case SPOIL_SLOT_OUTSIDE:
        cell->len = WEFT_SHM_HAS_BODY;
        cell->body = (struct weft_shm_body){.slot = UINT16_MAX, .len = 8, .generation = 1};
        break;
    case SPOIL_LENGTH_WITHOUT_SLOT:
        cell->len = WEFT_SHM_HAS_BODY;
        cell->body = (struct weft_shm_body){.slot = WEFT_SHM_NO_SLOT, .len = 8};
        break;
    case SPOIL_BODY_TYPE_ZERO:
    case SPOIL_BODY_TYPE:
        cell->type = spoil == SPOIL_BODY_TYPE ? WEFT_DATA_TYPE_END : 0;
        cell->len = WEFT_SHM_HAS_BODY;
        cell->body = (struct weft_shm_body){.slot = WEFT_SHM_NO_SLOT};
        break;
    case SPOIL_NOTHING:
    case SPOIL_END:
        break;
    }
}

static void test_a_spoilt_cell_loses_its_lane(void **state)
{
    (void)state;
    for (enum spoil spoil = SPOIL_NOTHING; spoil < SPOIL_END; spoil++) {
        struct pair pair;
        uint32_t stamp;
        struct weft_shm_cell *cell;
        pair_open(&pair);
        cell = claim_cell(&pair, &stamp);
        spoil_cell(cell, spoil);
        publish_cell(cell, stamp);
        if (spoil == SPOIL_NOTHING) {
            assert_true(step_until(&pair.b, NULL, &pair.b.arrived, 1));
        } else {
            expect_protocol_loss(&pair);
        }
        pair_close(&pair);
    }
}

static void test_a_slot_it_cannot_have_filled_loses_its_lane(void **state)
{
    const struct weft_shm_body bodies[] = {
        {.slot = UINT32_MAX - 1, .len = 8, .generation = 9},
        {.slot = 0, .len = 0, .generation = 9},
        {.slot = 0, .len = WEFT_SHM_SMALL_LEN + 1, .generation = 9},
        {.slot = 0, .len = UINT32_MAX, .generation = 9},
        {.slot = 0, .len = 8, .generation = 0},
    };
    (void)state;
    for (unsigned i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        struct pair pair;
        uint32_t stamp;
        struct weft_shm_cell *cell;
        pair_open(&pair);
        assert_int_equal(post_eager(&pair.a, 1, 1, 100), WEFT_POST_SENT); /* the pool is known */
        assert_true(step_until(&pair.b, NULL, &pair.b.arrived, 1));
        pair.b.arrived = 0;
        cell = claim_cell(&pair, &stamp);
        cell->len = WEFT_SHM_HAS_BODY;
        cell->body = bodies[i];
        publish_cell(cell, stamp);
        expect_protocol_loss(&pair);
        pair_close(&pair);
    }
}

static void test_a_slot_sent_twice_while_it_is_held_loses_the_lane(void **state)
{
    struct pair pair;
    uint32_t stamp;
    struct weft_shm_cell *cell;
    (void)state;
    pair_open(&pair);
    pair.b.does_release = false;
    assert_int_equal(post_eager(&pair.a, 1, 1, 100), WEFT_POST_SENT);
    assert_true(step_until(&pair.b, NULL, &pair.b.arrived, 1));
    cell = claim_cell(&pair, &stamp);
    cell->len = WEFT_SHM_HAS_BODY;
    cell->body =
        (struct weft_shm_body){.slot = pair.b.log[0].token - 1, .len = 100, .generation = 77};
    publish_cell(cell, stamp);
    pair.b.arrived = 0;
    expect_protocol_loss(&pair);
    pair_close(&pair);
}

static bool arm_says(struct node *node)
{
    bool may_sleep;
    weft_engine_lock(node->engine);
    may_sleep = OPS->arm(node->port);
    OPS->disarm(node->port);
    weft_engine_unlock(node->engine);
    return may_sleep;
}

static void test_an_overwritten_tail_loses_the_lanes(void **state)
{
    const uint64_t moves[] = {WEFT_SHM_CELLS_MAX + 1, UINT64_C(1) << 40, (uint64_t)-3};
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        struct pair pair;
        pair_open(&pair);
        assert_int_equal(post_eager(&pair.a, 1, 1, 8), WEFT_POST_SENT);
        assert_true(step_until(&pair.b, NULL, &pair.b.arrived, 1));
        pair.b.arrived = 0;
        atomic_fetch_add(&shm_port(&pair.b)->inbox.header->tail, moves[i]);
        assert_false(arm_says(&pair.b)); /* who goes to sleep looks at it */
        expect_protocol_loss(&pair);
        pair_close(&pair);
    }
}

static void test_a_sender_finds_an_overwritten_tail_full(void **state)
{
    struct pair pair;
    (void)state;
    pair_open(&pair);
    atomic_fetch_add(&shm_port(&pair.b)->inbox.header->tail, UINT64_C(1) << 33);
    assert_int_equal(post_eager(&pair.a, 1, 1, 8), WEFT_POST_FULL);
    assert_int_equal(post_eager(&pair.a, 1, 1, 500), WEFT_POST_FULL);
    assert_int_equal(node_poll(&pair.a, 4), 0);
    pair_close(&pair);
}

/* ---- claimed and never published ---- */

/* What a rank leaves that is killed after its claim. */
static void leave_hole(struct node *victim, uint32_t index)
{
    struct weft_shm_port *port = shm_port(victim);
    atomic_store(&port->inbox.lines[index].claiming, 1);
    atomic_fetch_add(&port->inbox.header->tail, 1);
}

static void test_a_dead_claimer_does_not_stop_the_inbox(void **state)
{
    struct node nodes[3];
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        node_open(&nodes[i], i, 3);
    }
    connect_nodes(&nodes[1], &nodes[0]);
    connect_nodes(&nodes[2], &nodes[0]);
    assert_int_equal(post_eager(&nodes[1], 0, 1, 8), WEFT_POST_SENT);
    leave_hole(&nodes[0], 1);
    leave_hole(&nodes[0], 1);
    assert_int_equal(post_eager(&nodes[2], 0, 2, 8), WEFT_POST_SENT);
    assert_true(step_until(&nodes[0], NULL, &nodes[0].arrived, 1));
    for (int i = 0; i < 100; i++) { /* it may be just slow: nothing is passed over */
        node_step(&nodes[0]);
    }
    assert_int_equal(nodes[0].arrived, 1);
    assert_true(arm_says(&nodes[0])); /* nothing to take: who publishes will wake us */
    node_hang_up(&nodes[1], 0);       /* what the kernel does for the dead */
    assert_true(step_until(&nodes[0], NULL, &nodes[0].arrived, 2));
    assert_int_equal(nodes[0].log[1].frame.tag, 2);
    assert_true(step_until(&nodes[0], NULL, &nodes[0].lost, 1));
    assert_int_equal(nodes[0].lost_status, WEFT_ERR_PEER);
    assert_int_equal(post_eager(&nodes[2], 0, 3, 8), WEFT_POST_SENT);
    assert_true(step_until(&nodes[0], NULL, &nodes[0].arrived, 3));
    for (uint32_t i = 0; i < 3; i++) {
        node_close(&nodes[i]);
    }
}

static void test_a_living_claimer_is_waited_for_while_another_dies(void **state)
{
    struct node nodes[3];
    struct weft_shm_cell *cell;
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        node_open(&nodes[i], i, 3);
    }
    connect_nodes(&nodes[1], &nodes[0]);
    connect_nodes(&nodes[2], &nodes[0]);
    leave_hole(&nodes[0], 2); /* rank 2 is in the middle of it */
    leave_hole(&nodes[0], 1);
    node_hang_up(&nodes[1], 0);
    for (int i = 0; i < 100; i++) {
        node_step(&nodes[0]);
    }
    assert_int_equal(nodes[0].lost, 0); /* not drained yet */
    cell = &shm_port(&nodes[0])->cells[0];
    cell->type = WEFT_DATA_EAGER;
    cell->len = 0;
    cell->sender = 2;
    cell->tag = 22;
    cell->lane = shm_lane(&nodes[2], 0)->number_there;
    publish_cell(cell, 1);
    atomic_store(&shm_port(&nodes[0])->inbox.lines[2].claiming, 0);
    assert_true(step_until(&nodes[0], NULL, &nodes[0].lost, 1));
    assert_int_equal(nodes[0].arrived, 1);
    assert_int_equal(nodes[0].log[0].frame.tag, 22);
    for (uint32_t i = 0; i < 3; i++) {
        node_close(&nodes[i]);
    }
}

/* What a rank shows while it is between claim and publish: its message lies in a page that its file
 * does not reach yet, so that the copy stops in a signal handler, which looks. */
static struct {
    int fd;
    const struct weft_shm_port *inbox_of;
    uint32_t claiming;
    uint64_t tail;
} stopped;

static void look_and_go_on(int signal)
{
    (void)signal;
    stopped.claiming = atomic_load(&stopped.inbox_of->inbox.lines[0].claiming);
    stopped.tail = atomic_load(&stopped.inbox_of->inbox.header->tail);
    if (ftruncate(stopped.fd, 4096) != 0) {
        _exit(1); /* it would stop there for ever */
    }
}

static void test_who_claims_is_marked_until_it_has_published(void **state)
{
    const struct weft_wire_data frame = {.type = WEFT_DATA_EAGER, .len = 24};
    struct sigaction action = {.sa_handler = look_and_go_on}, before;
    struct pair pair;
    uint64_t tail;
    void *page;
    (void)state;
    pair_open(&pair);
    stopped.fd = memfd_create("message", MFD_CLOEXEC);
    assert_true(stopped.fd >= 0);
    page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, stopped.fd, 0);
    assert_ptr_not_equal(page, MAP_FAILED);
    stopped.inbox_of = shm_port(&pair.b);
    tail = atomic_load(&stopped.inbox_of->inbox.header->tail);
    assert_int_equal(sigaction(SIGBUS, &action, &before), 0);
    assert_int_equal(post_from(&pair.a, 1, &frame, page, NULL), WEFT_POST_SENT);
    assert_int_equal(sigaction(SIGBUS, &before, NULL), 0);
    assert_int_equal(stopped.tail, tail + 1);
    assert_int_equal(stopped.claiming, 1);
    assert_int_equal(atomic_load(&stopped.inbox_of->inbox.lines[0].claiming), 0);
    munmap(page, 4096);
    close(stopped.fd);
    pair_close(&pair);
}

/* ---- nonsense on the socket ---- */

static void expect_mail_loss(const struct weft_shm_mail *mail, int fd, size_t len)
{
    struct pair pair;
    pair_open(&pair);
    if (len == sizeof(*mail)) {
        assert_true(weft_shm_mail_send(shm_lane(&pair.a, 1)->fd, mail, fd));
    } else {
        int to = shm_lane(&pair.a, 1)->fd;
        assert_int_equal(send(to, mail, len, 0), len); /* completed by half of the next one */
        assert_int_equal(send(to, mail, sizeof(*mail), 0), sizeof(*mail));
        assert_int_equal(send(to, mail, sizeof(*mail), 0), sizeof(*mail));
    }
    expect_protocol_loss(&pair);
    pair_close(&pair);
}

static void test_nonsense_on_the_socket_loses_the_lane(void **state)
{
    struct weft_shm_mail mail = {.magic = WEFT_SHM_MAGIC, .kind = WEFT_SHM_SETUP};
    int fd = memfd_create("short", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int sealed = memfd_create("sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    (void)state;
    assert_int_equal(ftruncate(fd, 4096), 0);
    assert_int_equal(ftruncate(sealed, 4096), 0);
    assert_int_equal(fcntl(sealed, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    expect_mail_loss(&mail, -1, sizeof(mail)); /* a second set-up */
    mail.kind = 99;
    expect_mail_loss(&mail, -1, sizeof(mail));
    mail.kind = WEFT_SHM_RING;
    expect_mail_loss(&mail, -1, 10); /* out of step */
    mail.magic = 0;
    expect_mail_loss(&mail, -1, sizeof(mail));
    mail = (struct weft_shm_mail){.magic = WEFT_SHM_MAGIC, .kind = WEFT_SHM_REGION, .id = 5};
    mail.len = 4096;
    expect_mail_loss(&mail, -1, sizeof(mail)); /* no descriptor */
    expect_mail_loss(&mail, fd, sizeof(mail)); /* not sealed: it could shrink under us */
    mail.len = 8192;
    expect_mail_loss(&mail, sealed, sizeof(mail)); /* shorter than it says */
    mail.kind = WEFT_SHM_POOL;
    mail.pool.small_count = mail.pool.big_count = UINT32_MAX;
    expect_mail_loss(&mail, sealed, sizeof(mail));
    mail.pool.small_count = 1;
    mail.pool.big_count = 0;
    mail.len = 4096 + WEFT_SHM_SMALL_LEN;
    expect_mail_loss(&mail, sealed, sizeof(mail));
    close(fd);
    close(sealed);
}

static void test_a_descriptor_nobody_asked_for_is_closed(void **state)
{
    const struct weft_shm_mail ring = {.magic = WEFT_SHM_MAGIC, .kind = WEFT_SHM_RING};
    struct pair pair;
    (void)state;
    pair_open(&pair);
    assert_true(weft_shm_mail_send(shm_lane(&pair.a, 1)->fd, &ring, STDERR_FILENO));
    assert_int_equal(post_eager(&pair.a, 1, 1, 100),
                     WEFT_POST_SENT); /* its pool is read after it */
    assert_true(step_until(&pair.b, NULL, &pair.b.arrived, 1));
    pair_close(&pair); /* counts descriptors */
}

static void test_a_set_up_that_lies_never_comes_up(void **state)
{
    (void)state;
    for (int lie = 0; lie < 3; lie++) {
        struct pair pair = {.fds_before = weft_fd_count()};
        node_open(&pair.a, 0, 2);
        node_open(&pair.b, 1, 2);
        if (lie == 0) {
            shm_port(&pair.a)->inbox.header->magic = 1;
        } else if (lie == 1) {
            shm_port(&pair.a)->inbox.header->rank = 1;
        } else {
            shm_port(&pair.a)->inbox.header->local_count = 3;
        }
        node_dial(&pair.a, 1);
        assert_true(step_until(&pair.a, &pair.b, &pair.a.lost, 1));
        assert_int_equal(pair.b.opened, 0);
        assert_int_equal(pair.b.lost, 0); /* nobody above had heard of it */
        pair_close(&pair);
    }
}

static void test_a_second_set_up_never_comes_up(void **state)
{
    struct pair pair = {.fds_before = weft_fd_count()};
    struct weft_shm_mail mail = {.magic = WEFT_SHM_MAGIC, .kind = WEFT_SHM_SETUP};
    uint64_t deadline_ns = weft_clock_after_ms(DEADLINE_MS);
    const struct weft_shm_segment *segment;
    (void)state;
    node_open(&pair.a, 0, 2);
    node_open(&pair.b, 1, 2);
    node_dial(&pair.a, 1);
    while (shm_lane(&pair.a, 1)->state == WEFT_SHM_DIALLING && weft_clock_ns() < deadline_ns) {
        node_step(&pair.b);
        node_step(&pair.a);
    }
    assert_int_equal(shm_lane(&pair.a, 1)->state, WEFT_SHM_SETTING_UP); /* its own is on its way */
    segment = shm_port(&pair.a)->inbox.segment;
    mail.id = segment->id;
    mail.len = segment->region.len;
    mail.setup.version = WEFT_SHM_VERSION;
    mail.setup.local_count = 2;
    mail.setup.lane = shm_lane(&pair.a, 1)->number;
    assert_true(weft_shm_mail_send(shm_lane(&pair.a, 1)->fd, &mail, segment->region.fd));
    assert_true(step_until(&pair.b, &pair.a, &pair.a.lost, 1));
    assert_int_equal(pair.b.opened, 0);
    assert_int_equal(segment->refs, 1); /* nobody else has it */
    pair_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_spoilt_cell_loses_its_lane),
        cmocka_unit_test(test_a_slot_it_cannot_have_filled_loses_its_lane),
        cmocka_unit_test(test_a_slot_sent_twice_while_it_is_held_loses_the_lane),
        cmocka_unit_test(test_an_overwritten_tail_loses_the_lanes),
        cmocka_unit_test(test_a_sender_finds_an_overwritten_tail_full),
        cmocka_unit_test(test_a_dead_claimer_does_not_stop_the_inbox),
        cmocka_unit_test(test_a_living_claimer_is_waited_for_while_another_dies),
        cmocka_unit_test(test_who_claims_is_marked_until_it_has_published),
        cmocka_unit_test(test_nonsense_on_the_socket_loses_the_lane),
        cmocka_unit_test(test_a_descriptor_nobody_asked_for_is_closed),
        cmocka_unit_test(test_a_set_up_that_lies_never_comes_up),
        cmocka_unit_test(test_a_second_set_up_never_comes_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
