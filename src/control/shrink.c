/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who goes on without those who are gone: the survivors of a channel agree on who they are.
 *
 *   SHRINK  up to the coordinator, again and again until it is answered: I ask. Payload: the channel's members. Flags
 *           WITHDRAW: I do not any more; answered as well, for the decision may have been on its way
 *   SHRUNK  to everybody: these go on. Payload: status (4) | how many (4) | ranks (4 each)
 *           flags PENDING, to one who asks: it is not decided, because these have not asked; WITHDRAWN, to one who
 *           does not any more: it will be without you
 *
 * The coordinator decides when every member has asked or is gone. Everybody keeps the latest decisions and tells them
 * to new neighbours, so that one that the coordinator made before it died holds; and because who has got it asks
 * no more, its successor cannot make another without them.
 *
 * Ranks that cannot be reached may live, and may go on too. So only more than half of those who may live are
 * a majority; at exactly half it is the part with the lowest rank.
 */
#include "control/shrink.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEAVE_MS 200 /* so long its answer is waited for */
#define ASK_MS 100   /* then twice as long each time */
#define ASK_MAX_MS 1000

struct shrink_op {
    struct weft_control_op op;
    struct weft_engine_timer timer;
    uint64_t pause_ms;
    uint32_t number;
    uint32_t *ranks; /* lent, room for all members */
    uint32_t count;
    bool is_leaving;             /* its time is up: it withdraws */
    char missing[TEXT_LEN - 80]; /* their names, as many as there is room for */
};

struct weft_control_shrinks *weft_shrinks_of(struct weft_control *control)
{
    if (control->shrinks == NULL) {
        control->shrinks = calloc(1, sizeof(*control->shrinks));
        if (control->shrinks != NULL) {
            weft_list_open(&control->shrinks->petitions);
        }
    }
    return control->shrinks;
}

const struct weft_shrink_decision *weft_shrink_find(const struct weft_control *control,
                                                    uint64_t comm, uint32_t number)
{
    for (uint32_t i = 0; control->shrinks != NULL && i < DECISIONS; i++) {
        const struct weft_shrink_decision *decision = &control->shrinks->decisions[i];
        if (decision->bytes != NULL && decision->word.comm == comm &&
            decision->word.number == number) {
            return decision;
        }
    }
    return NULL;
}

/* ---- who waits ---- */

/* Who waits for this decision here; NULL: nobody. */
static struct shrink_op *find_op(const struct weft_control *control, uint64_t comm, uint32_t number)
{
    const struct weft_control_channel *channel = weft_control_channel_find(control, comm);
    struct shrink_op *op = channel != NULL && channel->shrink != NULL
                               ? WEFT_CONTAINER_OF(channel->shrink, struct shrink_op, op)
                               : NULL;
    return op != NULL && op->number == number ? op : NULL;
}

static void end_op(struct shrink_op *op, weft_status_t status, const char *text)
{
    weft_engine_timer_cancel(op->op.channel->control->engine, &op->timer);
    op->op.channel->shrink = NULL;
    weft_control_op_done(&op->op, status, text);
}

static void complete(struct shrink_op *op, const uint8_t *bytes, size_t len)
{
    struct weft_control_channel *channel = op->op.channel;
    weft_status_t status = (weft_status_t)get32(bytes);
    uint32_t count = get32(bytes + 4);
    bool is_in = false;
    bool is_good = count <= channel->count && len == 8 + 4 * (size_t)count;
    for (uint32_t i = 0; is_good && i < count; i++) {
        op->ranks[i] = get32(bytes + 8 + 4 * (size_t)i);
        is_in |= op->ranks[i] == channel->control->self.rank;
        is_good = op->ranks[i] < channel->control->self.ranks;
    }
    op->count = count;
    if (!is_good) {
        end_op(op, WEFT_ERR_PROTOCOL, "the decision who goes on cannot be read");
    } else if (is_in && status == WEFT_OK) {
        end_op(op, WEFT_OK, "");
    } else {
        end_op(op, WEFT_ERR_NETWORK,
               "this rank is cut off from most of the others, which may go on without it");
    }
}

/* ---- decisions ---- */

static void send_decision(struct weft_control *control, struct weft_net_conn *conn,
                          const struct weft_shrink_word *word)
{
    struct weft_wire_frame frame = {.type = WEFT_WIRE_SHRUNK,
                                    .comm = word->comm,
                                    .src = control->self.rank,
                                    .dst = WEFT_WIRE_NO_RANK,
                                    .number = word->number};
    weft_control_say(conn, &frame, word->bytes, word->len);
}

void weft_shrink_take(struct weft_control *control, const struct weft_shrink_word *news,
                      const struct weft_net_conn *from)
{
    struct weft_control_shrinks *shrinks = weft_shrinks_of(control);
    struct shrink_op *op = find_op(control, news->comm, news->number);
    struct weft_shrink_decision *kept;
    if (weft_shrink_find(control, news->comm, news->number) != NULL || shrinks == NULL) {
        return;
    }
    kept = &shrinks->decisions[shrinks->decided++ % DECISIONS];
    free(kept->bytes);
    kept->bytes = malloc(news->len);
    kept->word = (struct weft_shrink_word){news->comm, news->number, kept->bytes, news->len};
    if (kept->bytes != NULL) {
        memcpy(kept->bytes, news->bytes, news->len);
    }
    if (control->parent != NULL && control->parent != from) {
        send_decision(control, control->parent, news);
    }
    for (uint32_t i = 0; i < control->child_count; i++) {
        if (control->children[i].conn != NULL && control->children[i].conn != from) {
            send_decision(control, control->children[i].conn, news);
        }
    }
    if (op != NULL) {
        complete(op, news->bytes, news->len);
    }
}

void weft_control_shrink_tell(struct weft_control *control, struct weft_net_conn *conn)
{
    for (uint32_t i = 0; control->shrinks != NULL && i < DECISIONS; i++) {
        if (control->shrinks->decisions[i].bytes != NULL) {
            send_decision(control, conn, &control->shrinks->decisions[i].word);
        }
    }
}

/* The words of who gives up: who has not asked yet, or, if we were never told, who should have. */
static void end_late(struct shrink_op *op)
{
    const struct weft_control *control = op->op.channel->control;
    char text[TEXT_LEN], name[128];
    if (op->missing[0] != '\0') {
        snprintf(text, sizeof(text),
                 "not every survivor has called weft_comm_shrink in time; missing: %s",
                 op->missing);
    } else {
        weft_control_name_rank(control, weft_control_coordinator(control), name, sizeof(name));
        snprintf(text, sizeof(text), "no answer in time from %s, which decides who goes on", name);
    }
    end_op(op, WEFT_ERR_TIMEOUT, text);
}

void weft_shrink_told_withdrawn(const struct weft_control *control,
                                const struct weft_wire_frame *frame)
{
    struct shrink_op *op = find_op(control, frame->comm, frame->number);
    if (op != NULL && op->is_leaving) {
        end_late(op);
    }
}

void weft_shrink_told_pending(struct weft_control *control, const struct weft_wire_frame *frame,
                              const uint8_t *payload)
{
    struct shrink_op *op = find_op(control, frame->comm, frame->number);
    uint32_t named = get32(payload + 4);
    size_t len = 0;
    if (op == NULL) {
        return;
    }
    op->missing[0] = '\0';
    for (uint32_t i = 0; i < named && len < sizeof(op->missing); i++) {
        uint32_t rank = get32(payload + 8 + 4 * (size_t)i);
        char name[128];
        if (rank < control->self.ranks) {
            weft_control_name_rank(control, rank, name, sizeof(name));
            len += (size_t)snprintf(op->missing + len, sizeof(op->missing) - len, "%s%s",
                                    len > 0 ? ", " : "", name);
        }
    }
}

/* ---- frames ---- */

static bool is_possible(const struct weft_control *control, const struct weft_wire_frame *frame,
                        const uint8_t *payload)
{
    bool is = frame->src < control->self.ranks && frame->len % 4 == 0 &&
              frame->len / 4 <= control->self.ranks;
    for (uint32_t i = 0; is && i < frame->len / 4; i++) {
        is = get32(payload + 4 * (size_t)i) < control->self.ranks;
    }
    return is;
}

void weft_control_shrink_arrived(struct weft_control *control, struct weft_net_conn *from,
                                 const struct weft_wire_frame *frame, const uint8_t *payload)
{
    struct weft_wire_frame onward = *frame;
    bool is_whole = frame->type == WEFT_WIRE_SHRINK ? is_possible(control, frame, payload)
                                                    : frame->len >= 8 && frame->len % 4 == 0 &&
                                                          get32(payload + 4) == frame->len / 4 - 2;
    if (!is_whole) {
        weft_log(control, ERROR, "rank %u sent a word on survivors that cannot be read",
                 from != NULL ? from->peer_rank : control->self.rank);
    } else if (frame->type == WEFT_WIRE_SHRINK) {
        if (control->is_top) {
            weft_shrink_asked(control, frame, payload);
        } else if (control->parent != NULL) {
            weft_control_say(control->parent, &onward, payload, frame->len);
        }
    } else if (frame->dst < control->self.ranks && frame->dst != control->self.rank) {
        if (from == NULL || weft_control_way_to(control, frame->dst) != from) {
            weft_control_route(control, &onward, payload, frame->len);
        } /* else it is on its way to another parent, and asks again */
    } else if ((frame->flags & WITHDRAWN) != 0) {
        weft_shrink_told_withdrawn(control, frame);
    } else if ((frame->flags & PENDING) != 0) {
        weft_shrink_told_pending(control, frame, payload);
    } else {
        weft_shrink_take(
            control, &(struct weft_shrink_word){frame->comm, frame->number, payload, frame->len},
            from);
    }
}

/* ---- the call ---- */

static void ask(struct shrink_op *op, uint8_t flags)
{
    struct weft_control_channel *channel = op->op.channel;
    struct weft_control *control = channel->control;
    struct weft_wire_frame frame = {.type = WEFT_WIRE_SHRINK,
                                    .flags = flags,
                                    .comm = channel->id,
                                    .src = control->self.rank,
                                    .dst = WEFT_WIRE_NO_RANK,
                                    .number = op->number};
    uint8_t *bytes = calloc(channel->count, 4);
    weft_engine_timer_set(control->engine, &op->timer, weft_clock_after_ms(op->pause_ms));
    op->pause_ms = 2 * op->pause_ms < ASK_MAX_MS ? 2 * op->pause_ms : ASK_MAX_MS;
    if (bytes == NULL) {
        return; /* again later */
    }
    for (uint32_t i = 0; i < channel->count; i++) {
        put32(bytes + 4 * (size_t)i, channel->members[i]);
    }
    frame.len = 4 * channel->count;
    weft_control_shrink_arrived(control, NULL, &frame, bytes); /* may complete it */
    free(bytes);
}

static void ask_again(struct weft_engine_timer *timer, uint64_t now_ns)
{
    struct shrink_op *op = WEFT_CONTAINER_OF(timer, struct shrink_op, timer);
    (void)now_ns;
    ask(op, op->is_leaving ? WITHDRAW : 0);
}

static void run_shrink(struct weft_engine_task *task)
{
    struct shrink_op *op = WEFT_CONTAINER_OF(task, struct shrink_op, op.task);
    struct weft_control_channel *channel = op->op.channel;
    const struct weft_shrink_decision *known =
        weft_shrink_find(channel->control, channel->id, op->number);
    channel->shrink = &op->op;
    if (known != NULL) {
        complete(op, known->bytes, known->word.len);
    } else {
        ask(op, 0);
    }
}

/* At first it withdraws: the decision may be on its way, and count on it. */
static uint64_t give_up(struct weft_control_op *base)
{
    struct shrink_op *op = WEFT_CONTAINER_OF(base, struct shrink_op, op);
    if (op->is_leaving) {
        end_late(op);
        return 0;
    }
    op->is_leaving = true;
    ask(op, WITHDRAW);
    return base->channel->shrink == base ? LEAVE_MS : 0; /* else it is answered already */
}

void weft_control_shrink_abort(struct weft_control_channel *channel, const char *text)
{
    struct shrink_op *op =
        channel->shrink != NULL ? WEFT_CONTAINER_OF(channel->shrink, struct shrink_op, op) : NULL;
    if (op == NULL) {
        return;
    }
    op->is_leaving = true;
    ask(op, WITHDRAW);
    if (channel->shrink == &op->op) {
        end_op(op, WEFT_ERR_ABORTED, text);
    }
}

weft_status_t weft_control_shrink_wait(struct weft_control_channel *channel, uint32_t number,
                                       uint32_t *ranks, uint32_t *count_p, uint64_t timeout_ms)
{
    struct shrink_op op = {.op = {.task = {.run = run_shrink}, .channel = channel},
                           .pause_ms = ASK_MS,
                           .number = number,
                           .ranks = ranks};
    weft_status_t status;
    weft_list_open(&op.op.node);
    weft_engine_timer_open(&op.timer, ask_again);
    status = weft_control_op_run(&op.op, timeout_ms, give_up);
    *count_p = op.count;
    return status;
}

void weft_control_shrink_moved(struct weft_control *control)
{
    if (control->shrinks != NULL) {
        weft_shrink_petitions_close(control->shrinks); /* they ask whoever coordinates now */
    }
    for (struct weft_list *node = control->channels.next; node != &control->channels;
         node = node->next) {
        struct weft_control_channel *channel =
            WEFT_CONTAINER_OF(node, struct weft_control_channel, node);
        if (channel->shrink != NULL) {
            struct shrink_op *op = WEFT_CONTAINER_OF(channel->shrink, struct shrink_op, op);
            op->pause_ms = ASK_MS;
            weft_engine_timer_set(control->engine, &op->timer, weft_clock_ns());
        }
    }
}

void weft_control_shrinks_close(struct weft_control *control)
{
    struct weft_control_shrinks *shrinks = control->shrinks;
    if (shrinks == NULL) {
        return;
    }
    weft_shrink_petitions_close(shrinks);
    for (uint32_t i = 0; i < DECISIONS; i++) {
        free(shrinks->decisions[i].bytes);
    }
    free(shrinks);
    control->shrinks = NULL;
}
