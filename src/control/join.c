/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way up: how a rank reaches the one it joins through.
 *
 *   root            opens its door and gathers.
 *   on its host     the others join through the root's local socket.
 *   on other hosts  the first rank to come binds the host's leader socket and becomes the leader: it
 *                   gathers its host and joins the root over TCP; the others join through it.
 *   direct          TCP to the root, no leader (WEFT_JOIN=direct, or where local sockets fail).
 *
 * Nobody sleeps between steps: a rank waits for bytes. Only a root that is not there yet is dialled
 * again, after 1 ms, doubling to 128 ms. A root known by several possible ports is dialled on all
 * of them at once: only the right one shows the right job in its challenge, and only that one hears
 * our hello.
 */
#include "control/start.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define RETRY_FIRST_MS 1
#define LEADER_TRIES                                                                               \
    1000 /* between another rank's bind and its listen; then the name is not for us */
#define RETRY_DOUBLINGS 7 /* up to 128 ms */

static void schedule_retry(struct weft_control_start *start, struct weft_control_attempt *attempt)
{
    unsigned doublings = attempt->tries < RETRY_DOUBLINGS ? attempt->tries : RETRY_DOUBLINGS;
    uint64_t at_ns = weft_clock_after_ms((uint64_t)RETRY_FIRST_MS << doublings);
    attempt->tries++;
    if (start->retry.at_ns > at_ns) {
        weft_engine_timer_set(start->control->engine, &start->retry, at_ns);
    }
}

static void where(const struct weft_control_start *start,
                  const struct weft_control_attempt *attempt, char text[WEFT_NET_ADDR_TEXT_LEN])
{
    if (attempt->addr.ss_family == 0) {
        snprintf(text, WEFT_NET_ADDR_TEXT_LEN, "the local socket of %s",
                 start->is_by_leader ? "this host's leader" : "the root");
    } else {
        weft_net_addr_print(&attempt->addr, text);
    }
}

/* May it go well later? Otherwise the start has failed. */
struct failure {
    weft_status_t status;
    const char *why;
    bool is_refused;   /* by the handshake, not by the end of the connection */
    bool is_elsewhere; /* another job or epoch is served there */
    bool is_proved;    /* the refusal came from one who knows the secret */
};

static bool is_late(const struct weft_control_start *start, const struct failure *failure)
{
    if (failure->status == WEFT_ERR_PEER && !failure->is_refused) {
        return true; /* put out by a crowd at the door */
    }
    if (!start->spec.is_above_up &&
        (failure->status == WEFT_ERR_NETWORK || failure->is_elsewhere)) {
        return true; /* the root is not there yet, or still serves another start */
    }
    /* Among several possible ports one may be a stranger's: only who knows the secret can say no. */
    return start->attempt_count > 1 && !failure->is_proved;
}

static void attempt_failed(struct weft_control_start *start, struct weft_control_attempt *attempt,
                           const struct failure *failure)
{
    char place[WEFT_NET_ADDR_TEXT_LEN];
    where(start, attempt, place);
    if (is_late(start, failure)) {
        snprintf(start->latest, sizeof(start->latest), "%s: %.160s", place, failure->why);
        schedule_retry(start, attempt);
        return;
    }
    if (start->is_gatherer && start->spec.door == NULL) {
        weft_control_gather_drop(start); /* those who came through us have done nothing wrong */
    }
    if (failure->status == WEFT_ERR_NETWORK) {
        weft_control_start_fail(
            start->control, failure->status, WEFT_WIRE_NO_RANK,
            "cannot join at %s: %s; is the process that made the id still there?", place,
            failure->why);
    } else {
        weft_control_start_fail(start->control, failure->status, WEFT_WIRE_NO_RANK, "%s: %s", place,
                                failure->why);
    }
}

/* Takes the connection over: on it this rank says who it is. */
static void join_on(struct weft_control_start *start, struct weft_control_attempt *attempt,
                    const struct weft_net_dial *connected)
{
    struct weft_net_dial dial = *connected;
    uint8_t payload[WEFT_WIRE_MEMBER_MAX];
    int left_ms = weft_clock_ms_until(start->spec.deadline_ns);
    weft_status_t status;
    start->me.timeout_ms = left_ms > 0 ? (uint32_t)left_ms : 1;
    start->me.leader = start->is_gatherer ? start->me.rank : WEFT_WIRE_NO_RANK;
    dial.self = &start->control->self;
    dial.purpose = WEFT_WIRE_JOIN;
    dial.payload = payload;
    dial.payload_len = weft_wire_member_encode(&start->me, payload, sizeof(payload));
    dial.ops = &weft_control_conn_ops;
    dial.owner = start->control;
    status = weft_net_conn_open(start->control->engine, &dial, &attempt->conn);
    if (status != WEFT_OK) {
        weft_control_start_fail(start->control, status, start->me.rank, "%s", weft_error_text());
        return;
    }
    attempt->conn->tag = ROLE_UP;
}

static void dial_again(struct weft_control_start *start, struct weft_control_attempt *attempt)
{
    struct weft_net_dial dial;
    bool is_local = attempt->addr.ss_family == 0;
    weft_status_t status =
        is_local ? weft_net_connect_local(start->spec.above_local, start->spec.deadline_ns, &dial)
                 : weft_net_connect(&attempt->addr, &dial);
    if (status == WEFT_OK) {
        join_on(start, attempt, &dial);
    } else {
        attempt_failed(start, attempt,
                       &(struct failure){.status = status, .why = weft_error_text()});
    }
}

static void leave_leader(struct weft_control_start *start);

/* Once the right listener has our hello, the other candidates are left alone. */
bool weft_control_join_has_spoken(const struct weft_control_start *start)
{
    for (unsigned i = 0; i < start->attempt_count; i++) {
        if (start->attempts[i].conn != NULL && weft_net_conn_has_spoken(start->attempts[i].conn)) {
            return true;
        }
    }
    return false;
}

static void retry_fired(struct weft_engine_timer *timer, uint64_t now_ns)
{
    struct weft_control_start *start = WEFT_CONTAINER_OF(timer, struct weft_control_start, retry);
    (void)now_ns;
    timer->at_ns = WEFT_NEVER;
    if (weft_control_join_has_spoken(start)) {
        return;
    }
    for (unsigned i = 0; i < start->attempt_count && start->is_over == 0; i++) {
        if (start->attempts[i].conn == NULL) {
            dial_again(start, &start->attempts[i]);
        }
    }
}

struct weft_control_attempt *weft_control_join_attempt(struct weft_control_start *start,
                                                       struct weft_net_conn *conn)
{
    for (unsigned i = 0; i < start->attempt_count; i++) {
        if (start->attempts[i].conn == conn) {
            return &start->attempts[i];
        }
    }
    return NULL;
}

void weft_control_join_lost(struct weft_control_start *start, struct weft_net_conn *conn,
                            weft_status_t status, const char *why)
{
    struct weft_control_attempt *attempt = weft_control_join_attempt(start, conn);
    char peer[WEFT_NET_ADDR_TEXT_LEN], words[TEXT_LEN];
    bool was_joined = start->first == conn;
    struct failure failure = {status, words, conn->is_refused, conn->is_elsewhere, conn->is_proved};
    uint32_t rank = conn->peer_rank;
    memcpy(peer, conn->peer_text, sizeof(peer));
    snprintf(words, sizeof(words), "%s", why);
    weft_net_conn_close(conn);
    if (attempt != NULL) {
        attempt->conn = NULL;
    }
    if (was_joined) {
        start->first = NULL;
    }
    if (start->has_answer || attempt == NULL || start->is_over != 0) {
        return;
    }
    if (was_joined) {
        weft_control_start_fail(start->control, status == WEFT_ERR_MEMORY ? status : WEFT_ERR_PEER,
                                rank, "rank %u (%s) %s%s during the start", rank, peer,
                                status == WEFT_ERR_MEMORY ? "is lost: " : "", words);
    } else if (start->is_by_leader && !failure.is_refused) {
        leave_leader(start);
    } else {
        attempt_failed(start, attempt, &failure);
    }
}

static weft_status_t serve(struct weft_control_start *start, int fd,
                           struct weft_net_acceptor **acceptor_p)
{
    struct weft_control *control = start->control;
    return weft_net_acceptor_open(control->engine, fd, &control->self,
                                  (uint64_t)control->params->number[WEFT_PARAM_HANDSHAKE_TIMEOUT],
                                  &weft_control_conn_ops, control, acceptor_p);
}

static weft_status_t open_port(struct weft_control_start *start)
{
    const struct weft_params *params = start->control->params;
    struct sockaddr_storage addr;
    struct weft_control_door door;
    weft_status_t status =
        weft_net_addr_towards(params->text[WEFT_PARAM_SOCKET_IFNAME], &start->spec.above[0], &addr);
    if (status == WEFT_OK) {
        status = weft_control_door_open(&addr, params->text[WEFT_PARAM_PORT_RANGE], NULL, &door);
    }
    if (status == WEFT_OK) {
        status = serve(start, door.tcp, &start->tcp);
    }
    if (status == WEFT_OK) {
        start->me.addr = door.addr;
    }
    return status;
}

/* In a job that may need tree parents besides root and leaders every rank opens its ears before it
 * joins: a local socket. Who may lead a group opens a port: for tree children, and for those who lose their parent
 * later. Twice is harmless. */
static weft_status_t open_ears(struct weft_control_start *start, bool is_over_tcp)
{
    struct weft_control *control = start->control;
    const struct weft_control_spec *spec = &start->spec;
    struct weft_control_door door;
    char name[WEFT_WIRE_NAME_LEN];
    weft_status_t status = WEFT_OK;
    bool has_inner_parents =
        spec->has_segments ||
        (int64_t)control->self.ranks - 1 > control->params->number[WEFT_PARAM_TREE_DEGREE];
    if (has_inner_parents && start->own == NULL) {
        weft_wire_local_name(control->self.key, control->self.job, control->self.epoch, "rank",
                             control->self.rank, name);
        status = weft_control_door_open(NULL, "", name, &door);
        if (status == WEFT_ERR_BUSY) {
            return weft_fail(WEFT_ERR_DUPLICATE, "rank %u already runs on this host",
                             control->self.rank);
        }
        status = status == WEFT_OK ? serve(start, door.local, &start->own) : status;
    }
    if (status == WEFT_OK && is_over_tcp && spec->above_count > 0 && start->tcp == NULL) {
        status = open_port(start);
        if (status != WEFT_OK && !has_inner_parents) {
            weft_log(control, INFO, "no other host can attach to this rank later: %s",
                     weft_error_text());
            status = WEFT_OK;
        }
    }
    return status;
}

static weft_status_t open_served_door(struct weft_control_start *start)
{
    struct weft_control_door *door = start->spec.door;
    weft_status_t status = WEFT_OK;
    start->me.addr = door->addr;
    start->keeps_local = door->is_inherited;
    if (door->tcp >= 0) {
        status = serve(start, door->tcp, &start->tcp);
        door->tcp = -1;
    }
    if (status == WEFT_OK && door->local >= 0) {
        status = serve(start, door->local, &start->local);
        door->local = -1;
    }
    status = status == WEFT_OK ? open_ears(start, false) : status;
    return status == WEFT_OK ? weft_control_gather_open(start) : status;
}

static void attempt_add(struct weft_control_start *start, const struct sockaddr_storage *addr)
{
    struct weft_control_attempt *attempt = &start->attempts[start->attempt_count++];
    memset(attempt, 0, sizeof(*attempt));
    if (addr != NULL) {
        attempt->addr = *addr;
    }
}

/* By a local socket: the root's, or this host's leader's. dial NULL: it is not there yet. */
static weft_status_t go_local(struct weft_control_start *start, struct weft_net_dial *dial)
{
    weft_status_t status = start->is_gatherer ? WEFT_OK : open_ears(start, false);
    if (status != WEFT_OK) {
        weft_fd_close(dial != NULL ? dial->fd : -1);
        return status;
    }
    attempt_add(start, NULL);
    if (dial != NULL) {
        join_on(start, &start->attempts[0], dial);
    } else {
        schedule_retry(start, &start->attempts[0]);
    }
    return WEFT_OK;
}

static weft_status_t go_direct(struct weft_control_start *start)
{
    weft_status_t status = start->is_gatherer ? WEFT_OK : open_ears(start, true);
    for (unsigned i = 0; i < start->spec.above_count; i++) {
        attempt_add(start, &start->spec.above[i]);
    }
    for (unsigned i = 0; status == WEFT_OK && i < start->attempt_count && start->is_over == 0;
         i++) {
        dial_again(start, &start->attempts[i]);
    }
    return status;
}

/* The leader is gone, or would not have us and left it to the root to say why: to the root, then. */
static void leave_leader(struct weft_control_start *start)
{
    weft_status_t status;
    start->is_by_leader = false;
    start->attempt_count = 0;
    status = go_direct(start);
    if (status != WEFT_OK) {
        weft_control_start_fail(start->control, status, start->me.rank, "%s", weft_error_text());
    }
}

/* Joins through whoever is this host's leader, or becomes it. */
static weft_status_t go_by_leader(struct weft_control_start *start)
{
    struct weft_control *control = start->control;
    char name[WEFT_WIRE_NAME_LEN];
    struct weft_net_dial dial;
    int fd = -1;
    int tries = LEADER_TRIES;
    weft_status_t status;
    weft_wire_local_name(control->self.key, control->self.job, control->self.epoch, "leader", 0,
                         name);
    do {
        status = weft_net_connect_local(name, start->spec.deadline_ns, &dial);
        if (status == WEFT_OK) {
            memcpy(start->spec.above_local, name, sizeof(name));
            start->is_by_leader = true;
            return go_local(start, &dial);
        }
        /* Nobody there: lead. Somebody bound it in between: join it, as soon as it listens. */
        status = status == WEFT_ERR_NETWORK ? weft_net_listen_local(name, &fd) : status;
        sched_yield();
    } while (status == WEFT_ERR_BUSY && --tries > 0);
    if (status == WEFT_OK) {
        status = serve(start, fd, &start->local);
        status = status == WEFT_OK ? open_ears(start, true) : status;
        status = status == WEFT_OK ? weft_control_gather_open(start) : status;
        if (status != WEFT_OK) {
            return status;
        }
    }
    /* Also when the socket belongs to another user: the network is always there. */
    return go_direct(start);
}

weft_status_t weft_control_join(struct weft_control_start *start)
{
    const struct weft_control_spec *spec = &start->spec;
    struct weft_net_dial dial;
    weft_engine_timer_open(&start->retry, retry_fired);
    if (spec->door != NULL) {
        weft_status_t status = open_served_door(start);
        if (status != WEFT_OK || spec->is_root) {
            return status;
        }
    }
    if (spec->join == WEFT_JOIN_DIRECT && spec->above_count > 0) {
        return go_direct(start);
    }
    if (spec->above_local[0] != '\0' &&
        weft_net_connect_local(spec->above_local, spec->deadline_ns, &dial) == WEFT_OK) {
        return go_local(start, &dial);
    }
    if (spec->is_above_here) {
        return go_local(start, NULL); /* it is only late */
    }
    return start->is_gatherer ? go_direct(start) : go_by_leader(start);
}

void weft_control_join_close(struct weft_control_start *start)
{
    weft_engine_timer_cancel(start->control->engine, &start->retry);
    for (unsigned i = 0; i < start->attempt_count; i++) {
        weft_net_conn_close(start->attempts[i].conn);
    }
    start->first = NULL;
    weft_net_acceptor_close(start->tcp);
    weft_net_acceptor_close(start->own);
    if (start->local != NULL && start->keeps_local) {
        weft_net_acceptor_release(start->local);
    } else {
        weft_net_acceptor_close(start->local);
    }
}
