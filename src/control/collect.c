/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small collectives: contributions go up a tree of the channel's members, the result comes down.
 * Barrier, allgather and broadcast differ only in what travels. A rank returns only when the result
 * is there, so nobody is ever more than one call ahead, and one set of buffers per channel is
 * enough.
 *
 *   GATHER  signature (12) | count (4) | count × { rank (4) | len bytes }
 *   SPREAD  signature (12) | result
 *
 * The signature says what was called; two that differ end the channel and both calls are named.
 */
#include "control/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIGNATURE_LEN 12
#define GATHER_HEAD_LEN (SIGNATURE_LEN + 4)
#define RESULT_MAX (32u << 20)
#define TIMED_OUT " timed out"
#define GRACE_MS 40

struct collect_op {
    struct weft_control_op op;
    struct weft_control_signature call;
    const void *mine;
    void *result;
    bool has_waited_on;
};

static const char *call_name(uint32_t kind)
{
    static const char *const names[] = {"nothing", "barrier", "allgather", "broadcast"};
    return kind < WEFT_COUNT_OF(names) ? names[kind] : "something unknown";
}

static void put_signature(uint8_t *bytes, const struct weft_control_signature *call)
{
    put32(bytes, call->kind);
    put32(bytes + 4, call->len);
    put32(bytes + 8, call->root);
}

static struct weft_control_signature get_signature(const uint8_t *bytes)
{
    return (struct weft_control_signature){
        .kind = get32(bytes), .len = get32(bytes + 4), .root = get32(bytes + 8)};
}

static uint32_t purpose_of(const struct weft_control_signature *call)
{
    return call->kind == WEFT_CALL_ALLGATHER ? call->root & 0xff : WEFT_PURPOSE_ITSELF;
}

/* In the user's words: collectives have the same names. */
static void print_call(const struct weft_control_signature *call, uint32_t number, char *text,
                       size_t room)
{
    uint32_t purpose = purpose_of(call);
    if (purpose == WEFT_PURPOSE_MEET) {
        snprintf(text, room, "%s, its first collective",
                 weft_coll_name((weft_coll_t)(call->root >> 8)));
    } else if (purpose != WEFT_PURPOSE_ITSELF) {
        snprintf(text, room, "weft_comm_%s (control call #%u)",
                 purpose == WEFT_PURPOSE_SPLIT ? "split" : "duplicate", number);
    } else if (call->kind == WEFT_CALL_BROADCAST) {
        snprintf(text, room, "control broadcast #%u of %u B from rank %u", number, call->len,
                 call->root);
    } else if (call->kind == WEFT_CALL_ALLGATHER) {
        snprintf(text, room, "control allgather #%u of %u B", number, call->len);
    } else {
        snprintf(text, room, "control %s #%u", call_name(call->kind), number);
    }
}

/* ---- ending ---- */

static void reset(struct weft_control_channel *channel)
{
    channel->collect = NULL;
    channel->seen.kind = 0;
    memset(channel->has_come, 0, sizeof(channel->has_come));
    channel->come_count = 0;
    channel->gathered_len = 0;
    channel->gathered_count = 0;
}

static void finish(struct weft_control_channel *channel, weft_status_t status, const char *text)
{
    struct weft_control_op *op = channel->collect;
    reset(channel);
    channel->calls++;
    weft_control_op_done(op, status, text);
}

void weft_control_collect_end(struct weft_control_channel *channel, weft_status_t status,
                              const char *text)
{
    if (channel->collect != NULL) {
        finish(channel, status, text);
    }
}

/* The verdict that comes back ends the channel, here as everywhere. */
static void fail_channel(struct weft_control_channel *channel, weft_status_t status, uint32_t rank,
                         const char *text)
{
    struct weft_wire_notice notice = {.status = status, .rank = rank};
    snprintf(notice.text, sizeof(notice.text), "%s", text);
    weft_control_report_own(channel->control, channel->id, &notice);
}

struct caller {
    const struct weft_control_signature *call;
    uint32_t rank;
};

static void mismatch(struct weft_control_channel *channel, struct caller one, struct caller other)
{
    char text[TEXT_LEN], left[72], right[72], a[WEFT_CONTROL_RANK_LEN], b[WEFT_CONTROL_RANK_LEN];
    print_call(one.call, channel->calls, left, sizeof(left));
    print_call(other.call, channel->calls, right, sizeof(right));
    snprintf(text, sizeof(text),
             "%s called %.64s, %s called %.64s; all ranks must make the same calls",
             weft_control_print_rank(one.rank, channel->members[one.rank], a), left,
             weft_control_print_rank(other.rank, channel->members[other.rank], b), right);
    fail_channel(channel, WEFT_ERR_MISMATCH, channel->members[other.rank], text);
}

static bool is_same(const struct weft_control_signature *a, const struct weft_control_signature *b)
{
    uint32_t purpose = purpose_of(a);
    return a->kind == b->kind && a->len == b->len &&
           (purpose == WEFT_PURPOSE_MEET ? purpose == purpose_of(b) : a->root == b->root);
}

/* ---- going up ---- */

static bool keep(struct weft_control_channel *channel, const void *entries, size_t len,
                 uint32_t count)
{
    if (channel->gathered_room - channel->gathered_len < len) {
        size_t room = channel->gathered_room == 0 ? 4096 : channel->gathered_room;
        uint8_t *grown;
        while (room < channel->gathered_len + len) {
            room *= 2;
        }
        grown = realloc(channel->gathered, room);
        if (grown == NULL) {
            fail_channel(channel, WEFT_ERR_MEMORY, channel->members[channel->rank],
                         "no memory to gather");
            return false;
        }
        channel->gathered = grown;
        channel->gathered_room = room;
    }
    if (len > 0) {
        memcpy(channel->gathered + channel->gathered_len, entries, len);
    }
    channel->gathered_len += len;
    channel->gathered_count += count;
    return true;
}

static bool keep_own(struct weft_control_channel *channel, const struct collect_op *op)
{
    uint8_t rank[4];
    bool has_data = op->call.kind == WEFT_CALL_ALLGATHER ||
                    (op->call.kind == WEFT_CALL_BROADCAST && op->call.root == channel->rank);
    put32(rank, channel->rank);
    return !has_data ||
           (keep(channel, rank, sizeof(rank), 1) && keep(channel, op->mine, op->call.len, 0));
}

static void send_up(struct weft_control_channel *channel, const struct weft_control_signature *call)
{
    struct weft_control *control = channel->control;
    struct weft_wire_frame frame = {.type = WEFT_WIRE_GATHER,
                                    .comm = channel->id,
                                    .src = control->self.rank,
                                    .dst = channel->members[channel->parent],
                                    .number = channel->calls};
    size_t len = GATHER_HEAD_LEN + channel->gathered_len;
    uint8_t *bytes = malloc(len);
    if (bytes == NULL) {
        fail_channel(channel, WEFT_ERR_MEMORY, control->self.rank, "no memory to gather");
        return;
    }
    put_signature(bytes, call);
    put32(bytes + SIGNATURE_LEN, channel->gathered_count);
    if (channel->gathered_len > 0) {
        memcpy(bytes + GATHER_HEAD_LEN, channel->gathered, channel->gathered_len);
    }
    weft_control_route(control, &frame, bytes, len);
    free(bytes);
}

/* ---- coming down ---- */

static void spread(struct weft_control_channel *channel, const uint8_t *bytes, size_t len)
{
    struct weft_control *control = channel->control;
    for (uint32_t i = 0; i < channel->child_count; i++) {
        struct weft_wire_frame frame = {.type = WEFT_WIRE_SPREAD,
                                        .comm = channel->id,
                                        .src = control->self.rank,
                                        .dst = channel->members[channel->children[i]],
                                        .number = channel->calls};
        weft_control_route(control, &frame, bytes, len);
    }
}

static size_t result_len(const struct weft_control_channel *channel,
                         const struct weft_control_signature *call)
{
    if (call->kind == WEFT_CALL_BARRIER) {
        return 0;
    }
    return call->kind == WEFT_CALL_ALLGATHER ? (size_t)call->len * channel->count : call->len;
}

static void take_result(struct weft_control_channel *channel, const uint8_t *result)
{
    struct collect_op *op = WEFT_CONTAINER_OF(channel->collect, struct collect_op, op);
    size_t len = result_len(channel, &op->call);
    if (len > 0) {
        memcpy(op->result, result, len);
    }
    channel->have_all_called = true;
    finish(channel, WEFT_OK, "");
}

/* Puts the gathered entries where they belong; false: one is missing or there twice. `has` is zeroed
 * room for a byte per rank. */
static bool arrange(const struct weft_control_channel *channel,
                    const struct weft_control_signature *call, uint8_t *result, uint8_t *has)
{
    size_t entry_len = 4 + (size_t)call->len;
    bool is_allgather = call->kind == WEFT_CALL_ALLGATHER;
    uint32_t expected = is_allgather ? channel->count : call->kind == WEFT_CALL_BROADCAST;
    if (channel->gathered_count != expected || channel->gathered_len != expected * entry_len) {
        return false;
    }
    for (uint32_t i = 0; i < expected; i++) {
        const uint8_t *entry = channel->gathered + i * entry_len;
        uint32_t rank = get32(entry);
        if (rank >= channel->count || has[rank]++ != 0) {
            return false;
        }
        memcpy(result + (is_allgather ? (size_t)rank * call->len : 0), entry + 4, call->len);
    }
    return true;
}

static void complete(struct weft_control_channel *channel,
                     const struct weft_control_signature *call)
{
    size_t len = SIGNATURE_LEN + result_len(channel, call);
    uint8_t *bytes = calloc(1, len + channel->count);
    if (bytes == NULL || !arrange(channel, call, bytes + SIGNATURE_LEN, bytes + len)) {
        fail_channel(channel, bytes == NULL ? WEFT_ERR_MEMORY : WEFT_ERR_PROTOCOL,
                     channel->members[channel->rank],
                     "the contributions to a collective do not add up");
    } else {
        put_signature(bytes, call);
        spread(channel, bytes, len);
        take_result(channel, bytes + SIGNATURE_LEN);
    }
    free(bytes);
}

/* Everybody below has come, and so has our own caller? */
static void progress(struct weft_control_channel *channel)
{
    struct collect_op *op;
    if (channel->collect == NULL || channel->come_count < channel->child_count) {
        return;
    }
    op = WEFT_CONTAINER_OF(channel->collect, struct collect_op, op);
    if (channel->parent == WEFT_WIRE_NO_RANK) {
        complete(channel, &op->call);
    } else {
        send_up(channel, &op->call);
    }
}

static void take_gather(struct weft_control_channel *channel, uint32_t child,
                        const struct weft_wire_frame *frame, const uint8_t *payload)
{
    struct weft_control_signature theirs = get_signature(payload);
    struct caller them = {&theirs, channel->children[child]};
    struct caller before = {&channel->seen, channel->seen_rank};
    if (channel->has_come[child] || frame->number != channel->calls) {
        fail_channel(channel, WEFT_ERR_PROTOCOL, frame->src, "a rank is ahead of the others");
        return;
    }
    if (channel->collect != NULL) {
        before = (struct caller){&WEFT_CONTAINER_OF(channel->collect, struct collect_op, op)->call,
                                 channel->rank};
    }
    if (before.call->kind != 0 && !is_same(before.call, &theirs)) {
        mismatch(channel, before, them);
        return;
    }
    channel->seen = theirs;
    channel->seen_rank = them.rank;
    channel->has_come[child] = 1;
    channel->come_count++;
    if (keep(channel, payload + GATHER_HEAD_LEN, frame->len - GATHER_HEAD_LEN,
             get32(payload + SIGNATURE_LEN))) {
        progress(channel);
    }
}

static void take_spread(struct weft_control_channel *channel, const struct weft_wire_frame *frame,
                        const uint8_t *payload)
{
    struct weft_control_signature theirs = get_signature(payload);
    const struct collect_op *op = channel->collect != NULL
                                      ? WEFT_CONTAINER_OF(channel->collect, struct collect_op, op)
                                      : NULL;
    if (op == NULL || frame->number != channel->calls || !is_same(&op->call, &theirs) ||
        frame->len != SIGNATURE_LEN + result_len(channel, &theirs)) {
        fail_channel(channel, WEFT_ERR_PROTOCOL, frame->src, "a result came that nobody waits for");
        return;
    }
    spread(channel, payload, frame->len);
    take_result(channel, payload + SIGNATURE_LEN);
}

void weft_control_collect_arrived(struct weft_control_channel *channel,
                                  const struct weft_wire_frame *frame, const uint8_t *payload)
{
    uint32_t rank;
    char text[TEXT_LEN];
    if (atomic_load(&channel->ended) != 0 ||
        !weft_control_channel_is_member(channel, frame->src, &rank)) {
        return;
    }
    if (weft_control_channel_is_cut(channel, text)) {
        return; /* some have heard that a rank closed and given up, others not yet */
    }
    if (frame->type == WEFT_WIRE_SPREAD && frame->len >= SIGNATURE_LEN && rank == channel->parent) {
        take_spread(channel, frame, payload);
        return;
    }
    for (uint32_t i = 0; i < channel->child_count && frame->len >= GATHER_HEAD_LEN; i++) {
        if (channel->children[i] == rank) {
            take_gather(channel, i, frame, payload);
            return;
        }
    }
    fail_channel(channel, WEFT_ERR_PROTOCOL, frame->src, "a contribution that cannot be read");
}

/* ---- the caller ---- */

static void run_collect(struct weft_engine_task *task)
{
    struct collect_op *op = WEFT_CONTAINER_OF(task, struct collect_op, op.task);
    struct weft_control_channel *channel = op->op.channel;
    char text[TEXT_LEN];
    if (atomic_load(&channel->ended) != 0) {
        weft_control_op_done(&op->op, (weft_status_t)atomic_load(&channel->ended), channel->text);
        return;
    }
    if (weft_control_channel_is_cut(channel, text)) {
        weft_control_op_done(&op->op, WEFT_ERR_PEER, text);
        return;
    }
    channel->collect = &op->op;
    if (channel->seen.kind != 0 && !is_same(&op->call, &channel->seen)) {
        mismatch(channel, (struct caller){&op->call, channel->rank},
                 (struct caller){&channel->seen, channel->seen_rank});
        return;
    }
    if (keep_own(channel, op)) {
        progress(channel);
    }
}

/* The lowest gatherer that misses a child gives up first, so that the verdict names who is really
 * absent and not an inner rank that waits for it; who only waits for the result gives up last. */
static uint64_t result_grace_ms(const struct weft_control_channel *channel)
{
    return (channel->height + 2) * (uint64_t)GRACE_MS;
}

static uint64_t grace_ms(const struct weft_control_channel *channel)
{
    return channel->child_count == 0 ? result_grace_ms(channel)
                                     : (channel->height - 1 - channel->depth) * (uint64_t)GRACE_MS;
}

/* The first of the children that have not come; the words name all. */
static uint32_t name_absent(const struct weft_control_channel *channel, const char *call,
                            char text[TEXT_LEN])
{
    char name[128];
    uint32_t absent = WEFT_WIRE_NO_RANK;
    size_t len = (size_t)snprintf(text, TEXT_LEN, "%s" TIMED_OUT "; absent:", call);
    for (uint32_t i = 0; i < channel->child_count && len < TEXT_LEN; i++) {
        if (!channel->has_come[i]) {
            bool is_first = text[len - 1] == ':';
            absent = is_first ? channel->children[i] : absent;
            weft_control_name_rank(channel->control, channel->members[channel->children[i]], name,
                                   sizeof(name));
            len +=
                (size_t)snprintf(text + len, TEXT_LEN - len, "%s%s", is_first ? " " : ", ", name);
        }
    }
    return absent;
}

void weft_control_collect_late(struct weft_control *control, uint64_t comm,
                               struct weft_wire_notice *notice)
{
    const struct weft_control_channel *channel = weft_control_channel_find(control, comm);
    const struct collect_op *op = channel != NULL && channel->collect != NULL
                                      ? WEFT_CONTAINER_OF(channel->collect, struct collect_op, op)
                                      : NULL;
    char text[TEXT_LEN], call[80], late[96];
    if (op == NULL || channel->come_count == channel->child_count) {
        return;
    }
    print_call(&op->call, channel->calls, call, sizeof(call));
    snprintf(late, sizeof(late), "%s" TIMED_OUT, call);
    if (strncmp(notice->text, late, strlen(late)) == 0) { /* not what else waits for us */
        notice->rank = channel->members[name_absent(channel, call, text)];
        snprintf(notice->text, sizeof(notice->text), "%s", text);
    }
}

/* The deadline: the communicator has ended. Who gathers knows who is absent. */
static uint64_t give_up(struct weft_control_op *waiting)
{
    struct collect_op *op = WEFT_CONTAINER_OF(waiting, struct collect_op, op);
    struct weft_control_channel *channel = waiting->channel;
    char text[TEXT_LEN], call[80], name[128];
    uint32_t absent = channel->parent == WEFT_WIRE_NO_RANK ? 0 : channel->parent;
    if (channel->come_count == channel->child_count && channel->child_count > 0 &&
        !op->has_waited_on && channel->parent != WEFT_WIRE_NO_RANK) {
        op->has_waited_on = true; /* nobody is missing below: it only waits for the result */
        return result_grace_ms(channel) - grace_ms(channel);
    }
    print_call(&op->call, channel->calls, call, sizeof(call));
    if (channel->come_count == channel->child_count) {
        weft_control_name_rank(channel->control, channel->members[absent], name, sizeof(name));
        snprintf(text, sizeof(text), "%s" TIMED_OUT ": no result from %s, which gathers it", call,
                 name);
    } else {
        absent = name_absent(channel, call, text);
    }
    memcpy(waiting->text, text, sizeof(waiting->text));
    waiting->blamed = channel->members[absent];
    fail_channel(channel, WEFT_ERR_TIMEOUT, channel->members[absent], text);
    return 0;
}

static weft_status_t collect(struct weft_control_channel *channel, struct collect_op *op,
                             uint64_t timeout_ms)
{
    op->op.task.run = run_collect;
    op->op.channel = channel;
    if (result_len(channel, &op->call) > RESULT_MAX) {
        return weft_fail(
            WEFT_ERR_INVALID,
            "control %s of %u B over %u ranks is too large for the control plane (%u MiB)",
            call_name(op->call.kind), op->call.len, channel->count, RESULT_MAX >> 20);
    }
    return weft_control_op_run(&op->op, timeout_ms + grace_ms(channel), give_up);
}

weft_status_t weft_control_barrier_wait(struct weft_control_channel *channel, uint64_t timeout_ms)
{
    struct collect_op op = {.call = {.kind = WEFT_CALL_BARRIER}};
    return collect(channel, &op, timeout_ms);
}

weft_status_t weft_control_allgather_wait(struct weft_control_channel *channel, const void *mine,
                                          size_t len, void *all, uint64_t timeout_ms)
{
    const struct weft_control_gather gather = {.mine = mine, .len = len, .all = all};
    return weft_control_gather_wait(channel, &gather, timeout_ms);
}

weft_status_t weft_control_gather_wait(struct weft_control_channel *channel,
                                       const struct weft_control_gather *gather,
                                       uint64_t timeout_ms)
{
    struct collect_op op = {
        .call = {.kind = WEFT_CALL_ALLGATHER,
                 .len = (uint32_t)gather->len,
                 .root = (uint32_t)gather->purpose | (uint32_t)gather->coll << 8},
        .mine = gather->mine,
        .result = gather->all};
    return collect(channel, &op, timeout_ms);
}

uint32_t weft_control_channel_calls(const struct weft_control_channel *channel)
{
    return channel->calls;
}

bool weft_control_channel_is_in_call(const struct weft_control_channel *channel, char *text,
                                     size_t room)
{
    if (channel->collect == NULL) {
        return false;
    }
    print_call(&WEFT_CONTAINER_OF(channel->collect, struct collect_op, op)->call, channel->calls,
               text, room);
    return true;
}

weft_status_t weft_control_broadcast_wait(struct weft_control_channel *channel, void *data,
                                          size_t len, uint32_t root, uint64_t timeout_ms)
{
    struct collect_op op = {
        .call = {.kind = WEFT_CALL_BROADCAST, .len = (uint32_t)len, .root = root},
        .mine = data,
        .result = data};
    return collect(channel, &op, timeout_ms);
}
