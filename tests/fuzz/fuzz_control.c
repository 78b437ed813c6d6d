/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control plane after the start: frames from neighbours that are let in and have gone mad. Input: a byte that says
 * which of two states it begins in, then
 *
 *   top     rank 0 of six on three hosts, which coordinates; frames of one neighbour, each a few bytes (see
 *           next_frame()) and its payload
 *   middle  rank 2 of twelve on six hosts, with a parent and children on other hosts and its own, which knows other
 *           ways to its parent: frames of any neighbour, neighbours that are lost, time that passes, and
 *           ranks that come to heal the tree or to adopt this one (see step())
 *
 * Nothing leaves it, for its connections are closed and none can be made. Nothing may crash, or hold more than its
 * bounds.
 */
#include "fuzz.h"

#include "control/heal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <sys/socket.h>

#define RANKS_MAX 12
#define MIDDLE 2
#define STEPS_MAX 32
#define COMM 77
#define PART 78
#define FRAMES_MAX 16
#define PAYLOAD_MAX 512

static bool is_in_middle;
static bool is_lost; /* top: it was put out, nothing more of it is read */

/* ---- what is not there ---- */

void __wrap_weft_control_neighbour_lost(struct weft_control *control, struct weft_net_conn *conn,
                                        weft_status_t status, const char *why);
void __real_weft_control_neighbour_lost(struct weft_control *control, struct weft_net_conn *conn,
                                        weft_status_t status, const char *why);

void __wrap_weft_control_neighbour_lost(struct weft_control *control, struct weft_net_conn *conn,
                                        weft_status_t status, const char *why)
{
    FUZZ_CHECK(status != WEFT_OK && why != NULL);
    if (is_in_middle) {
        __real_weft_control_neighbour_lost(control, conn, status, why);
    }
    is_lost = true;
}

weft_status_t __wrap_weft_net_connect(const struct sockaddr_storage *addr,
                                      struct weft_net_dial *dial_p);
weft_status_t __wrap_weft_net_connect(const struct sockaddr_storage *addr,
                                      struct weft_net_dial *dial_p)
{
    (void)addr;
    (void)dial_p;
    return weft_fail(WEFT_ERR_NETWORK, "nobody is called from here");
}

weft_status_t __wrap_weft_net_connect_from(const struct sockaddr_storage *from, const char *device,
                                           const struct sockaddr_storage *addr,
                                           struct weft_net_dial *dial_p);
weft_status_t __wrap_weft_net_connect_from(const struct sockaddr_storage *from, const char *device,
                                           const struct sockaddr_storage *addr,
                                           struct weft_net_dial *dial_p)
{
    (void)from;
    (void)device;
    return __wrap_weft_net_connect(addr, dial_p);
}

weft_status_t __wrap_weft_net_connect_local(const char *name, uint64_t deadline_ns,
                                            struct weft_net_dial *dial_p);
weft_status_t __wrap_weft_net_connect_local(const char *name, uint64_t deadline_ns,
                                            struct weft_net_dial *dial_p)
{
    (void)name;
    (void)deadline_ns;
    return __wrap_weft_net_connect(NULL, dial_p);
}

weft_status_t __wrap_weft_control_door_open(const struct sockaddr_storage *addr,
                                            const char *port_range, const char *local_name,
                                            struct weft_control_door *door_p);
weft_status_t __wrap_weft_control_door_open(const struct sockaddr_storage *addr,
                                            const char *port_range, const char *local_name,
                                            struct weft_control_door *door_p)
{
    (void)addr;
    (void)port_range;
    (void)local_name;
    (void)door_p;
    return weft_fail(WEFT_ERR_SYSTEM, "nobody is let in here");
}

void __wrap_weft_heal_serve_local(struct weft_control_heal *heal);
void __wrap_weft_heal_serve_local(struct weft_control_heal *heal)
{
    heal->serve_ns = 0;
}

ssize_t __wrap_send(int fd, const void *bytes, size_t len, int flags);

/* What the kernel says of a socket that is none, without asking it. */
ssize_t __wrap_send(int fd, const void *bytes, size_t len, int flags)
{
    FUZZ_CHECK(fd == -1 && bytes != NULL && len > 0);
    (void)flags;
    errno = EBADF;
    return -1;
}

int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t len);

/* The same. */
int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
    FUZZ_CHECK(fd == -1 && value != NULL && len > 0);
    (void)level;
    (void)name;
    errno = EBADF;
    return -1;
}

/* ---- the rank ---- */

/* Two ranks on each host. */
static void open_table(struct weft_control *control, uint32_t ranks)
{
    struct weft_wire_table *table = &control->table;
    uint32_t hosts = ranks / 2;
    FUZZ_CHECK(weft_wire_table_open(ranks, hosts, table) == WEFT_OK);
    for (uint32_t rank = 0; rank < ranks; rank++) {
        table->group_of[rank] = rank / 2;
        table->pid[rank] = INT32_MAX - rank; /* no process has it */
    }
    for (uint32_t host = 0; host < hosts; host++) {
        table->group[host].leader = host * 2;
        table->group[host].addr =
            (struct weft_wire_addr){.family = 4, .port = (uint16_t)(host + 1)};
        snprintf(table->group[host].host, WEFT_WIRE_HOST_LEN, "node%u", host);
    }
    weft_control_tree_fans(hosts - 1, 1, 3, &table->fan_groups, &table->fan_local);
    FUZZ_CHECK(weft_control_tree_open(table, &control->tree) == WEFT_OK);
}

static struct weft_control *control_open(struct weft_engine *engine,
                                         const struct weft_params *params, uint32_t self,
                                         uint32_t count)
{
    struct weft_control *control = calloc(1, sizeof(*control));
    uint32_t ranks[RANKS_MAX];
    FUZZ_CHECK(control != NULL);
    control->engine = engine;
    control->params = params;
    control->self = fuzz_self(self, count);
    control->parent_rank = WEFT_WIRE_NO_RANK;
    control->is_top = self == 0;
    weft_list_open(&control->parting);
    weft_list_open(&control->channels);
    weft_list_open(&control->early);
    weft_list_open(&control->early_calls);
    weft_engine_timer_open(&control->news, weft_control_news_fire);
    weft_engine_timer_open(&control->heart, NULL);
    open_table(control, count);
    control->child_count = weft_control_tree_children(&control->tree, self, ranks, RANKS_MAX);
    control->children = calloc(control->child_count + 1, sizeof(*control->children));
    control->child_room = control->child_count + 1;
    control->is_gone = calloc(count, sizeof(*control->is_gone));
    control->is_out = calloc(count, sizeof(*control->is_out));
    FUZZ_CHECK(control->children != NULL && control->is_gone != NULL && control->is_out != NULL);
    for (uint32_t i = 0; i < control->child_count; i++) {
        control->children[i].rank = ranks[i];
    }
    return control;
}

/* A connection that says nothing and hears nothing: its socket is none. */
static void is_empty(struct weft_engine_source *source, uint32_t events)
{
    (void)source;
    (void)events;
}

static struct weft_net_conn *conn_open(struct weft_control *control, uint32_t rank,
                                       enum weft_control_role role)
{
    struct weft_net_conn *conn = calloc(1, sizeof(*conn));
    FUZZ_CHECK(conn != NULL);
    conn->source.fd = -1;
    conn->source.ready = is_empty;
    conn->engine = control->engine;
    conn->ops = &weft_control_conn_ops;
    conn->owner = control;
    conn->peer_rank = rank;
    conn->tag = role;
    conn->state = WEFT_CONN_OPEN;
    conn->is_local = weft_control_is_same_host(control, control->self.rank, rank);
    weft_list_open(&conn->node);
    return conn;
}

/* ---- who listens ---- */

static void called(struct weft_control_observer *observer, uint32_t from, const uint8_t *payload,
                   size_t len)
{
    (void)observer;
    (void)payload;
    (void)len;
    FUZZ_CHECK(from < RANKS_MAX);
}

static void gone(struct weft_control_observer *observer, uint32_t rank, weft_status_t status,
                 const char *text)
{
    (void)observer;
    FUZZ_CHECK(rank < RANKS_MAX && text != NULL);
    (void)status;
}

static void ended(struct weft_control_observer *observer,
                  const struct weft_control_failure *failure)
{
    (void)observer;
    FUZZ_CHECK(failure->status != WEFT_OK && failure->text != NULL);
}

static bool reaches(struct weft_control_observer *observer, uint32_t rank, bool *is_alive_p)
{
    (void)observer;
    *is_alive_p = rank % 2 == 0;
    return rank % 3 == 0;
}

static uint32_t nics(struct weft_control_observer *observer,
                     struct weft_control_nic nics[WEFT_CONTROL_NICS])
{
    (void)observer;
    for (uint32_t i = 0; i < 2; i++) {
        struct sockaddr_in *addr = (struct sockaddr_in *)&nics[i].addr;
        nics[i] = (struct weft_control_nic){.prefix_len = 24};
        addr->sin_family = AF_INET;
        addr->sin_addr.s_addr = htonl(0x7f000101 + 256 * i);
    }
    return 2;
}

static struct weft_control_observer observer = {
    .called = called, .gone = gone, .ended = ended, .reaches = reaches, .nics = nics};

/* Its neighbours are there, the healer stands by, and the parent is asked for its ways. */
static void open_neighbours(struct weft_control *control)
{
    FUZZ_CHECK(control->child_count > 2);
    control->parent_rank = 0;
    control->parent = conn_open(control, 0, ROLE_PARENT);
    for (uint32_t i = 0; i < control->child_count; i++) {
        struct weft_control_child *child = &control->children[i];
        child->conn = conn_open(control, child->rank, ROLE_CHILD);
        child->mend = i > 0 ? weft_control_mend_open(control, child->rank) : NULL;
        if (child->mend != NULL) { /* it has asked for ways, and was told */
            child->mend->counts_in = child->mend->counts_out = true;
            child->conn->edge = child->mend;
        }
    }
    weft_control_heal_open(control);
    weft_control_observe(control, &observer);
    FUZZ_CHECK(control->heal != NULL && control->ways != NULL && control->parent_mend != NULL);
}

/* ---- frames ---- */

struct source {
    const uint8_t *at;
    size_t len;
};

static uint8_t next_byte(struct source *source)
{
    if (source->len == 0) {
        return 0;
    }
    source->len--;
    return *source->at++;
}

/* Small, or one of those that overflow. */
static uint32_t next_number(struct source *source)
{
    static const uint32_t large[] = {UINT32_MAX, UINT32_MAX - 1, 1U << 31, WEFT_WIRE_NO_RANK};
    uint8_t byte = next_byte(source);
    return byte < 252 ? byte : large[byte - 252];
}

static struct weft_wire_frame next_frame(struct source *source)
{
    static const uint64_t comms[] = {0, COMM, PART, 79};
    static const uint8_t types[] = {
        WEFT_WIRE_HEARTBEAT, WEFT_WIRE_BYE,    WEFT_WIRE_CLOSED, WEFT_WIRE_REPORT,
        WEFT_WIRE_VERDICT,   WEFT_WIRE_BELOW,  WEFT_WIRE_SHRINK, WEFT_WIRE_SHRUNK,
        WEFT_WIRE_GATHER,    WEFT_WIRE_SPREAD, WEFT_WIRE_MAIL,   WEFT_WIRE_MAIL_ACK,
        WEFT_WIRE_CALL,      WEFT_WIRE_WAYS,   WEFT_WIRE_RESUME, WEFT_WIRE_DOORS};
    struct weft_wire_frame frame = {.type = types[next_byte(source) % sizeof(types)]};
    frame.flags = next_byte(source);
    frame.comm = comms[next_byte(source) % 4];
    frame.src = next_number(source);
    frame.dst = next_number(source);
    frame.number = next_number(source);
    frame.len = (uint32_t)next_byte(source) * 2;
    frame.len = frame.len < PAYLOAD_MAX ? frame.len : PAYLOAD_MAX;
    frame.len = frame.len < source->len ? frame.len : (uint32_t)source->len;
    return frame;
}

/* Of its length, so that a byte more is seen; owned by the caller. */
static uint8_t *next_payload(struct source *source, const struct weft_wire_frame *frame)
{
    uint8_t *payload = malloc(frame->len + 1);
    FUZZ_CHECK(payload != NULL);
    memcpy(payload, source->at, frame->len);
    source->at += frame->len;
    source->len -= frame->len;
    return payload;
}

static void take_frames(struct weft_control *control, struct source *source)
{
    struct weft_net_conn from = {.source.fd = -1,
                                 .engine = control->engine,
                                 .ops = &weft_control_conn_ops,
                                 .owner = control,
                                 .state = WEFT_CONN_OPEN};
    from.peer_rank = 1 + next_byte(source) % (control->self.ranks - 1);
    for (int i = 0; i < FRAMES_MAX && source->len > 0 && !is_lost; i++) {
        struct weft_wire_frame frame = next_frame(source);
        uint8_t *payload = next_payload(source, &frame);
        weft_control_arrived(control, &from, &frame, payload);
        free(payload);
    }
    free(from.out);
}

/* ---- in the middle ---- */

/* The nth of its connections; NULL: it has none. */
static struct weft_net_conn *pick_conn(struct weft_control *control, uint8_t number)
{
    struct weft_net_conn *conns[2 * RANKS_MAX + 4];
    struct weft_control_heal *heal = control->heal;
    uint32_t count = 0;
    if (control->parent != NULL) {
        conns[count++] = control->parent;
    }
    if (heal->adopter != NULL) {
        conns[count++] = heal->adopter;
    }
    if (!weft_list_is_empty(&heal->visitors)) {
        conns[count++] = WEFT_CONTAINER_OF(heal->visitors.next, struct weft_net_conn, node);
    }
    if (control->aside != NULL && !weft_list_is_empty(&control->aside->edges)) {
        conns[count++] =
            WEFT_CONTAINER_OF(control->aside->edges.next, struct weft_control_edge, node)->conn;
    }
    for (uint32_t i = 0; i < control->child_count && count + 2 <= WEFT_COUNT_OF(conns); i++) {
        const struct weft_control_child *child = &control->children[i];
        if (child->conn != NULL) {
            conns[count++] = child->conn;
        }
        if (child->mend != NULL && child->mend->returning != NULL) {
            conns[count++] = child->mend->returning;
        }
    }
    return count > 0 ? conns[number % count] : NULL;
}

/* As the net room does around what it calls: a connection that is closed meanwhile goes afterwards. */
static void enter(struct weft_net_conn *conn)
{
    conn->is_in_call = true;
}

static void leave(struct weft_net_conn *conn)
{
    conn->is_in_call = false;
    if (conn->is_to_free) {
        conn->is_to_free = false;
        conn->state = WEFT_CONN_DEAD;
        weft_net_conn_close(conn);
    }
}

static void hear(struct source *source, struct weft_net_conn *conn)
{
    struct weft_wire_frame frame = next_frame(source);
    uint8_t *payload = next_payload(source, &frame);
    enter(conn);
    conn->ops->frame(conn, &frame, payload);
    leave(conn);
    free(payload);
}

static void lose(struct source *source, struct weft_net_conn *conn)
{
    static const weft_status_t how[] = {WEFT_ERR_PEER, WEFT_ERR_NETWORK, WEFT_ERR_MEMORY,
                                        WEFT_ERR_PROTOCOL};
    weft_status_t status = how[next_byte(source) % 4];
    conn->state = WEFT_CONN_DEAD;
    enter(conn);
    conn->ops->lost(conn, status, "closed the connection");
    leave(conn);
}

/* A child calls by another way; as after its hello. */
static void come_back(struct weft_control *control, uint32_t rank)
{
    for (uint32_t i = 0; i < control->child_count; i++) {
        struct weft_control_child *child = &control->children[i];
        struct weft_control_mend *mend = child->mend;
        if (child->rank == rank && child->conn != NULL && mend != NULL && mend->counts_out &&
            mend->returning == NULL) {
            mend->round++;
            mend->returning = conn_open(control, rank, ROLE_RETURNING);
            mend->returning->purpose = WEFT_WIRE_RETURN;
            mend->returning->edge = mend;
            return;
        }
    }
}

/* Somebody has come to be below this rank, or above it, or beside the tree; the same. */
static void come(struct weft_control *control, struct source *source)
{
    uint8_t how = next_byte(source) % 4;
    uint32_t rank = next_byte(source) % control->self.ranks;
    struct weft_control_heal *heal = control->heal;
    struct weft_net_conn *conn;
    if (how == 0) {
        come_back(control, rank);
    } else if (how == 1 && heal->adopter == NULL) {
        conn = heal->adopter = conn_open(control, rank, ROLE_ADOPTER);
        conn->purpose = WEFT_WIRE_ADOPT;
    } else if (how == 2) {
        conn = conn_open(control, rank, ROLE_VISITOR);
        conn->purpose = WEFT_WIRE_HEAL;
        weft_list_append(&heal->visitors, &conn->node);
    } else if (how == 3 && rank != control->self.rank && !control->is_gone[rank] &&
               weft_control_aside_due(control)) {
        conn = conn_open(control, rank, ROLE_ASIDE);
        conn->purpose = WEFT_WIRE_ASIDE;
        weft_control_aside_take(control, conn);
    }
}

static void let_pass(struct weft_control *control, struct source *source)
{
    static const uint64_t steps_ms[] = {0, 3, 130, 600, 5000};
    uint64_t now_ns = weft_clock_ns() + steps_ms[next_byte(source) % 5] * WEFT_NS_PER_MS;
    control->heal->timer.fire(&control->heal->timer, now_ns);
    weft_control_ways_beat(control);
    (void)weft_control_ways_seek(control);
}

static void step(struct weft_control *control, struct source *source)
{
    uint8_t what = next_byte(source);
    struct weft_net_conn *conn = pick_conn(control, what >> 4);
    switch (what & 7) {
    case 0:
        let_pass(control, source);
        break;
    case 1:
        come(control, source);
        break;
    case 2:
        if (conn != NULL) {
            lose(source, conn);
        }
        break;
    default:
        if (conn != NULL) {
            hear(source, conn);
        }
    }
}

static void check_bounds(const struct weft_control *control)
{
    FUZZ_CHECK(control->child_count <= control->child_room);
    FUZZ_CHECK(control->child_count < 2 * control->self.ranks);
    FUZZ_CHECK(control->parent == NULL || control->parent->peer_rank < control->self.ranks);
    for (uint32_t i = 0; i < control->child_count; i++) {
        FUZZ_CHECK(control->children[i].rank < control->self.ranks);
    }
}

static void take_steps(struct weft_control *control, struct source *source)
{
    for (int i = 0; i < STEPS_MAX && source->len > 0; i++) {
        step(control, source);
        check_bounds(control);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct weft_engine *engine;
    static struct weft_params params;
    static const uint32_t part[] = {0, 2, 5};
    struct source source = {.at = data, .len = size};
    struct weft_control_channel *all, *some;
    struct weft_control *control;
    if (engine == NULL) {
        weft_log_configure("off");
        FUZZ_CHECK(weft_params_load(&params) == WEFT_OK);
        weft_log_configure("off");
        FUZZ_CHECK(weft_engine_open(64, -1, &engine) == WEFT_OK);
    }
    is_lost = false;
    is_in_middle = (next_byte(&source) & 1) != 0;
    control = is_in_middle ? control_open(engine, &params, MIDDLE, RANKS_MAX)
                           : control_open(engine, &params, 0, 6);
    FUZZ_CHECK(weft_control_channel_open(control, COMM, NULL, control->self.ranks, &all) ==
               WEFT_OK);
    FUZZ_CHECK(weft_control_channel_open(control, PART, part, 3, &some) == WEFT_OK);
    if (is_in_middle) {
        open_neighbours(control); /* it takes the lock itself */
    }
    weft_engine_lock(engine);
    if (is_in_middle) {
        take_steps(control, &source);
    } else {
        take_frames(control, &source);
    }
    weft_engine_unlock(engine);
    weft_control_channel_close(some);
    weft_control_channel_close(all);
    control->is_closing = true; /* no good-byes */
    weft_control_close(control);
    return 0;
}
