/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gathering: what the root does, and on a smaller scale a host's leader and the root of a segment.
 * Ranks arrive by connection (their hello carries their record) or in the MEMBERS frames of
 * gatherers below. The root answers when all are there; the others pass up what came in one round
 * in one frame.
 *
 * Whoever cannot be taken (taken rank, other size, other settings) is told why and goes; the others
 * never notice. Only a rank that had joined and is lost fails the start at once: it cannot succeed
 * any more.
 */
#include "control/start.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WATCH_MS 3

static void send_batch(struct weft_control_start *start)
{
    struct weft_wire_frame frame = {.type = WEFT_WIRE_MEMBERS, .src = start->me.rank};
    if (start->first != NULL && start->batch_len > 0) {
        weft_net_conn_send(start->first, &frame, start->batch, start->batch_len);
        start->batch_len = 0;
    }
}

static void flush_batch(struct weft_engine_task *task)
{
    struct weft_control_start *start = WEFT_CONTAINER_OF(task, struct weft_control_start, flush);
    start->is_flush_posted = false;
    send_batch(start);
}

void weft_control_gather_up_opened(struct weft_control_start *start)
{
    send_batch(start); /* the task may be queued; it must not be queued twice */
}

static void pass_up(struct weft_control_start *start, const struct weft_wire_member *member)
{
    if (start->batch_room - start->batch_len < WEFT_WIRE_MEMBER_MAX) {
        size_t room = start->batch_room == 0 ? 4096 : start->batch_room * 2;
        uint8_t *grown = realloc(start->batch, room);
        if (grown == NULL) {
            weft_control_start_fail(start->control, WEFT_ERR_MEMORY, start->me.rank,
                                    "no memory for members");
            return;
        }
        start->batch = grown;
        start->batch_room = room;
    }
    start->batch_len += weft_wire_member_encode(member, start->batch + start->batch_len,
                                                start->batch_room - start->batch_len);
    if (!start->is_flush_posted) {
        start->is_flush_posted = true;
        weft_engine_post(start->control->engine, &start->flush);
    }
}

/* ---- may this rank join? ---- */

static bool do_settings_differ(const struct weft_control_start *start,
                               const struct weft_wire_member *member, char *why, size_t room)
{
    char name[WEFT_PARAM_TEXT_LEN], mine[WEFT_PARAM_TEXT_LEN], theirs[WEFT_PARAM_TEXT_LEN];
    if (!weft_params_differ(start->me.settings, member->settings, name, mine, theirs)) {
        return false;
    }
    snprintf(
        why, room,
        "settings differ: %.40s is %.40s on rank %u and %.40s on rank %u; give all ranks the same",
        name, theirs, member->rank, mine, start->me.rank);
    return true;
}

/* How a rank that has joined is called in texts. */
static void describe(const struct weft_control_start *start, uint32_t rank, char *text, size_t room)
{
    if (rank == start->me.rank) {
        snprintf(text, room, "pid %u on %s", start->me.pid, start->me.host);
    } else {
        snprintf(text, room, "%s", start->via[rank]->peer_text);
    }
}

static weft_status_t check(const struct weft_control_start *start,
                           const struct weft_wire_member *member, const char *peer, char *why,
                           size_t room)
{
    char holder[WEFT_NET_ADDR_TEXT_LEN];
    uint32_t ranks = start->control->self.ranks;
    if (member->ranks != ranks) {
        snprintf(why, room, "rank %u (%s) says that the job has %u ranks, rank %u (%s) says %u",
                 member->rank, peer, member->ranks, start->me.rank, start->me.host, ranks);
        return WEFT_ERR_MISMATCH;
    }
    if (member->rank >= ranks) {
        snprintf(why, room, "rank %u (%s) is not below the number of ranks, %u", member->rank, peer,
                 ranks);
        return WEFT_ERR_INVALID;
    }
    if (start->leader_of[member->rank] != WEFT_WIRE_NO_RANK) {
        describe(start, member->rank, holder, sizeof(holder));
        snprintf(why, room, "rank %u is taken by %s; %s came second", member->rank, holder, peer);
        return WEFT_ERR_DUPLICATE;
    }
    if (do_settings_differ(start, member, why, room)) {
        return WEFT_ERR_MISMATCH;
    }
    return WEFT_OK;
}

static void note_refusal(struct weft_control_start *start, const char *why)
{
    static struct weft_log_limiter limiter;
    uint32_t held_back;
    start->refused++;
    snprintf(start->latest_refusal, sizeof(start->latest_refusal), "%s", why);
    if (weft_log_limit(&limiter, weft_clock_ns(), &held_back)) {
        weft_log(control, WARN, "refused: %s (%u more held back)", why, held_back);
    }
}

/* Tells one rank that joined through `conn` that it must go. */
static void reject(struct weft_net_conn *conn, uint32_t rank, weft_status_t status, const char *why)
{
    struct weft_wire_notice notice = {.status = status, .rank = rank};
    struct weft_wire_frame frame = {.type = WEFT_WIRE_REJECT, .dst = rank};
    uint8_t bytes[WEFT_WIRE_NOTICE_MAX];
    snprintf(notice.text, sizeof(notice.text), "%s", why);
    weft_net_conn_send(conn, &frame, bytes, weft_wire_notice_encode(&notice, bytes));
}

/* ---- taking it ---- */

static bool record(struct weft_control_start *start, const struct weft_wire_member *member,
                   struct weft_net_conn *conn)
{
    uint64_t until_ns = weft_clock_after_ms(member->timeout_ms);
    start->leader_of[member->rank] = member->leader;
    start->pid_of[member->rank] = member->pid;
    start->via[member->rank] = conn;
    start->joined++;
    if (until_ns < start->deadline_ns) {
        start->deadline_ns = until_ns;
    }
    if (member->leader == member->rank) {
        struct weft_control_leader *leader = calloc(1, sizeof(*leader));
        if (leader == NULL) {
            weft_control_start_fail(start->control, WEFT_ERR_MEMORY, start->me.rank,
                                    "no memory for a host");
            return false;
        }
        leader->rank = member->rank;
        leader->addr = member->addr;
        memcpy(leader->host, member->host, sizeof(leader->host));
        weft_list_append(&start->leaders, &leader->node);
    }
    if (!start->spec.is_root && member->rank != start->me.rank) {
        pass_up(start, member);
    }
    return true;
}

/* Answer a little before the first of them gives up, so that everybody hears who is missing. */
static void set_deadline(struct weft_control_start *start)
{
    uint64_t now_ns = weft_clock_ns();
    uint64_t left = start->deadline_ns > now_ns ? start->deadline_ns - now_ns : 0;
    uint64_t margin = left / 10 < 200 * WEFT_NS_PER_MS ? left / 10 : 200 * WEFT_NS_PER_MS;
    if (start->spec.is_root && start->deadline.at_ns > start->deadline_ns - margin) {
        weft_engine_timer_set(start->control->engine, &start->deadline,
                              start->deadline_ns - margin);
    }
}

static uint32_t group_index(const struct weft_control_start *start, const uint32_t *index,
                            uint32_t rank)
{
    return index[start->leader_of[rank]];
}

/* Group 0 is the root's own, the others follow by the rank of their leader. */
static weft_status_t fill_table(struct weft_control_start *start, uint32_t *index,
                                struct weft_wire_table *table)
{
    uint32_t next = 1;
    uint32_t *size = calloc(table->groups, sizeof(*size));
    uint32_t most = 0;
    if (size == NULL) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory for the table");
    }
    for (uint32_t rank = 0; rank < table->ranks; rank++) {
        if (start->leader_of[rank] == rank) {
            index[rank] = rank == start->me.rank ? 0 : next++;
        }
    }
    for (struct weft_list *node = start->leaders.next; node != &start->leaders; node = node->next) {
        const struct weft_control_leader *leader =
            WEFT_CONTAINER_OF(node, struct weft_control_leader, node);
        struct weft_wire_group *group = &table->group[index[leader->rank]];
        group->leader = leader->rank;
        group->addr = leader->addr;
        memcpy(group->host, leader->host, sizeof(group->host));
    }
    for (uint32_t rank = 0; rank < table->ranks; rank++) {
        uint32_t group = group_index(start, index, rank);
        table->group_of[rank] = group;
        table->pid[rank] = start->pid_of[rank];
        most = ++size[group] > most ? size[group] : most;
    }
    free(size);
    table->root = start->me.rank;
    weft_control_tree_fans(table->groups - 1, most - 1,
                           (uint32_t)start->control->params->number[WEFT_PARAM_TREE_DEGREE],
                           &table->fan_groups, &table->fan_local);
    if (table->groups > 1) {
        weft_control_heal_open_port(start->control, &table->group[0].addr);
    }
    return WEFT_OK;
}

static weft_status_t build_table(struct weft_control_start *start)
{
    uint32_t ranks = start->control->self.ranks;
    uint32_t groups = 0;
    uint32_t *index = calloc(ranks, sizeof(*index));
    weft_status_t status;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        groups += start->leader_of[rank] == rank;
    }
    if (index == NULL) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory for the table of %u ranks", ranks);
    }
    status = weft_wire_table_open(ranks, groups, &start->control->table);
    if (status == WEFT_OK) {
        status = fill_table(start, index, &start->control->table);
    }
    free(index);
    if (status != WEFT_OK) {
        return status;
    }
    start->table_len = weft_wire_table_len(&start->control->table);
    start->table_bytes = malloc(start->table_len);
    if (start->table_bytes == NULL) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory for the table of %u ranks", ranks);
    }
    weft_wire_table_encode(&start->control->table, start->table_bytes, start->table_len);
    return WEFT_OK;
}

static void finish_if_all(struct weft_control_start *start)
{
    if (!start->spec.is_root || start->joined < start->control->self.ranks ||
        start->table_bytes != NULL) {
        return;
    }
    if (build_table(start) != WEFT_OK) {
        weft_control_start_fail(start->control, WEFT_ERR_MEMORY, start->me.rank, "%s",
                                weft_error_text());
        return;
    }
    weft_engine_timer_cancel(start->control->engine, &start->deadline);
    weft_control_place(start);
}

void weft_control_gather_hello(struct weft_control_start *start, struct weft_net_conn *conn)
{
    const struct weft_wire_handshake *shake = weft_net_conn_hello(conn);
    struct weft_wire_member member;
    size_t used;
    char why[TEXT_LEN] = "";
    weft_status_t status =
        weft_wire_member_decode(shake->payload, shake->payload_len, &member, &used);
    if (status == WEFT_OK && (used != shake->payload_len || member.rank != shake->peer_rank)) {
        status = WEFT_ERR_PROTOCOL;
    }
    if (status != WEFT_OK) {
        weft_net_conn_refuse(conn, WEFT_ERR_PROTOCOL, "the hello holds no member record");
        return;
    }
    status = start->table_bytes != NULL ? WEFT_ERR_DUPLICATE
                                        : check(start, &member, conn->peer_text, why, sizeof(why));
    if (status != WEFT_OK && !start->spec.is_root && start->spec.door == NULL) {
        /* Which of the two is wrong, it or this leader, is for the root to say. */
        weft_net_conn_close(conn);
        return;
    }
    if (status != WEFT_OK) {
        snprintf(why + strlen(why), sizeof(why) - strlen(why), "%s",
                 why[0] ? "" : "all ranks have joined");
        note_refusal(start, why);
        weft_net_conn_refuse(conn, status, why);
        return;
    }
    conn->tag = ROLE_ARRIVAL;
    weft_list_append(&start->arrivals, &conn->node);
    /* A rank that gathers says so by naming itself; it waits for our word before it sends its
     * members. */
    if (member.leader == member.rank) {
        weft_net_conn_accept(conn);
    }
    if (start->is_watching || member.leader == member.rank) {
        weft_net_conn_watch(conn);
    }
    member.leader = conn->is_local ? start->me.rank : member.rank;
    if (conn->is_local && (uint32_t)conn->peer_pid != member.pid) {
        member.pid |= WEFT_WIRE_PID_FOREIGN; /* a container that counts its processes by itself */
    }
    if (member.addr.family == 0 && !conn->is_local) {
        member.addr = conn->peer_addr; /* who listens nowhere is known by where it came from */
        member.addr.port = 0;
    }
    if (record(start, &member, conn)) {
        set_deadline(start);
        finish_if_all(start);
    }
}

void weft_control_gather_members(struct weft_control_start *start, struct weft_net_conn *conn,
                                 const uint8_t *payload, size_t len)
{
    char why[TEXT_LEN];
    while (len > 0) {
        struct weft_wire_member member;
        size_t used;
        weft_status_t status = weft_wire_member_decode(payload, len, &member, &used);
        if (status != WEFT_OK || member.leader >= start->control->self.ranks) {
            weft_control_start_fail(start->control, WEFT_ERR_PROTOCOL, conn->peer_rank,
                                    "rank %u (%s) sent members that cannot be read",
                                    conn->peer_rank, conn->peer_text);
            return;
        }
        payload += used;
        len -= used;
        status = check(start, &member, conn->peer_text, why, sizeof(why));
        if (status != WEFT_OK) {
            note_refusal(start, why);
            reject(conn, member.rank, status, why);
        } else if (!record(start, &member, conn)) {
            return;
        }
    }
    set_deadline(start);
    finish_if_all(start);
}

/* ---- failing ---- */

void weft_control_gather_lost(struct weft_control_start *start, struct weft_net_conn *conn,
                              weft_status_t status, const char *why)
{
    struct weft_control *control = start->control;
    uint32_t rank = conn->peer_rank;
    char peer[WEFT_NET_ADDR_TEXT_LEN];
    memcpy(peer, conn->peer_text, sizeof(peer));
    weft_list_remove(&conn->node);
    for (uint32_t i = 0; start->via != NULL && i < control->self.ranks; i++) {
        if (start->via[i] == conn) {
            start->via[i] = NULL;
        }
    }
    weft_net_conn_close(conn);
    if (!start->spec.is_root && start->first != NULL) {
        struct weft_wire_notice notice = {.status = status, .rank = rank};
        struct weft_wire_frame frame = {.type = WEFT_WIRE_REPORT, .src = start->me.rank};
        uint8_t bytes[WEFT_WIRE_NOTICE_MAX];
        snprintf(notice.text, sizeof(notice.text), "rank %u (%s) joined and then %s", rank, peer,
                 why);
        weft_net_conn_send(start->first, &frame, bytes, weft_wire_notice_encode(&notice, bytes));
    }
    weft_control_start_fail(control, status, rank, "rank %u (%s) joined and then %s", rank, peer,
                            why);
}

void weft_control_gather_drop(struct weft_control_start *start)
{
    struct weft_list *node;
    while ((node = weft_list_take(&start->arrivals)) != NULL) {
        weft_net_conn_close(WEFT_CONTAINER_OF(node, struct weft_net_conn, node));
    }
}

void weft_control_gather_fail(struct weft_control_start *start)
{
    while (!weft_list_is_empty(&start->arrivals)) {
        struct weft_net_conn *conn =
            WEFT_CONTAINER_OF(start->arrivals.next, struct weft_net_conn, node);
        weft_list_remove(&conn->node);
        reject(conn, WEFT_WIRE_NO_RANK, start->status, start->text);
        weft_net_conn_refuse(conn, start->status, start->text);
    }
}

/* From above, for a rank that joined through me. */
void weft_control_gather_forward(struct weft_control_start *start,
                                 const struct weft_wire_frame *frame, const uint8_t *payload)
{
    struct weft_net_conn *conn =
        frame->dst < start->control->self.ranks ? start->via[frame->dst] : NULL;
    struct weft_wire_frame onward = *frame;
    struct weft_wire_notice notice;
    struct weft_wire_answer answer;
    if (conn == NULL) {
        return;
    }
    if (frame->type == WEFT_WIRE_ANSWER &&
        weft_wire_answer_decode(payload, frame->len, &answer) == WEFT_OK &&
        answer.parent == start->me.rank) {
        return; /* it has me already, and gets the table on this connection */
    }
    if (frame->type == WEFT_WIRE_REJECT && conn->peer_rank == frame->dst &&
        weft_wire_notice_decode(payload, frame->len, &notice) == WEFT_OK) {
        weft_list_remove(&conn->node);
        start->via[frame->dst] = NULL;
        start->leader_of[frame->dst] = WEFT_WIRE_NO_RANK;
        start->joined--;
        weft_net_conn_refuse(conn, notice.status, notice.text);
        return;
    }
    weft_net_conn_accept(conn);
    weft_net_conn_send(conn, &onward, payload, frame->len);
    if (frame->type == WEFT_WIRE_ANSWER && conn->peer_rank == frame->dst) {
        weft_control_part(start->control, conn);
        weft_control_place_check(start);
    }
}

/* "3, 5-7 and 12 more" */
static void list_missing(const struct weft_control_start *start, char *text, size_t room)
{
    uint32_t ranks = start->control->self.ranks;
    size_t len = 0;
    unsigned ranges = 0;
    text[0] = '\0';
    for (uint32_t first = 0; first < ranks; first++) {
        uint32_t last = first;
        if (start->leader_of[first] != WEFT_WIRE_NO_RANK) {
            continue;
        }
        while (last + 1 < ranks && start->leader_of[last + 1] == WEFT_WIRE_NO_RANK) {
            last++;
        }
        if (++ranges > 8) {
            snprintf(text + len, room - len, ", …");
            return;
        }
        len += (size_t)snprintf(text + len, room - len, last > first ? "%s%u-%u" : "%s%u",
                                len > 0 ? ", " : "", first, last);
        first = last;
    }
}

/* What else may have kept them out: this process's own limits, refusals, wrong secrets. */
static weft_status_t find_hint(const struct weft_control_start *start, char *hint, size_t room)
{
    struct weft_net_acceptor *const doors[] = {start->tcp, start->local};
    const char *latest = "";
    hint[0] = '\0';
    if (start->refused > 0) {
        snprintf(hint, room, "; refused: %.140s", start->latest_refusal);
        return WEFT_ERR_TIMEOUT;
    }
    for (size_t i = 0; i < WEFT_COUNT_OF(doors); i++) {
        unsigned strangers;
        if (doors[i] == NULL) {
            continue;
        }
        if (weft_net_acceptor_error(doors[i])[0] != '\0') {
            snprintf(hint, room, "; %s", weft_net_acceptor_error(doors[i]));
            return WEFT_ERR_SYSTEM;
        }
        strangers = weft_net_acceptor_refused(doors[i], &latest);
        if (strangers > 0) {
            snprintf(hint, room, "; %u connections had a wrong secret, the latest from %s",
                     strangers, latest);
        }
    }
    return WEFT_ERR_TIMEOUT;
}

static void deadline_fired(struct weft_engine_timer *timer, uint64_t now_ns)
{
    struct weft_control_start *start =
        WEFT_CONTAINER_OF(timer, struct weft_control_start, deadline);
    uint32_t ranks = start->control->self.ranks;
    char missing[96];
    char hint[160];
    weft_status_t status = find_hint(start, hint, sizeof(hint));
    (void)now_ns;
    list_missing(start, missing, sizeof(missing));
    weft_control_start_fail(start->control, status, WEFT_WIRE_NO_RANK,
                            "%u of %u ranks did not join in time: %s%s", ranks - start->joined,
                            ranks, missing, hint);
}

/* ---- opening ---- */

/* In a quick start nobody is lost between hello and table, and the system calls to notice it can wait
 * until the tables are out. */
static void watch_fired(struct weft_engine_timer *timer, uint64_t now_ns)
{
    struct weft_control_start *start = WEFT_CONTAINER_OF(timer, struct weft_control_start, watch);
    (void)now_ns;
    start->is_watching = true;
    for (struct weft_list *node = start->arrivals.next; node != &start->arrivals;
         node = node->next) {
        weft_net_conn_watch(WEFT_CONTAINER_OF(node, struct weft_net_conn, node));
    }
}

weft_status_t weft_control_gather_open(struct weft_control_start *start)
{
    uint32_t ranks = start->control->self.ranks;
    start->leader_of = malloc(ranks * sizeof(*start->leader_of));
    start->pid_of = calloc(ranks, sizeof(*start->pid_of));
    start->via = calloc(ranks, sizeof(struct weft_net_conn *));
    if (start->leader_of == NULL || start->pid_of == NULL || start->via == NULL) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory to gather %u ranks", ranks);
    }
    memset(start->leader_of, 0xff, ranks * sizeof(*start->leader_of));
    start->is_gatherer = true;
    start->flush.run = flush_batch;
    start->deadline_ns = start->spec.deadline_ns;
    weft_engine_timer_open(&start->watch, watch_fired);
    weft_engine_timer_open(&start->deadline, deadline_fired);
    weft_engine_timer_set(start->control->engine, &start->watch, weft_clock_after_ms(WATCH_MS));
    start->me.leader = start->me.rank;
    if (!record(start, &start->me, NULL)) {
        return WEFT_ERR_MEMORY;
    }
    set_deadline(start);
    finish_if_all(start);
    return WEFT_OK;
}

void weft_control_gather_close(struct weft_control_start *start)
{
    struct weft_list *node;
    weft_engine_timer_cancel(start->control->engine, &start->deadline);
    weft_engine_timer_cancel(start->control->engine, &start->watch);
    if (start->is_flush_posted) {
        weft_engine_run_tasks(start->control->engine); /* it is queued, and lies in what we free */
    }
    while ((node = weft_list_take(&start->leaders)) != NULL) {
        free(WEFT_CONTAINER_OF(node, struct weft_control_leader, node));
    }
    free(start->leader_of);
    free(start->pid_of);
    free(start->via);
    free(start->batch);
    free(start->table_bytes);
}
