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
#include "control/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PENDING 1    /* of SHRUNK */
#define WITHDRAWN 2  /* the same */
#define WITHDRAW 1   /* of SHRINK: I do not ask any more */
#define LEAVE_MS 200 /* so long its answer is waited for */
#define ASK_MS 100   /* then twice as long each time */
#define ASK_MAX_MS 1000
#define DECISIONS 8
#define NAMED_MAX 8

/* A decision as it travels; lent. */
struct word {
    uint64_t comm;
    uint32_t number;
    const uint8_t *bytes;
    size_t len;
};

struct decision {
    struct word word;
    uint8_t *bytes; /* owned */
};

/* The coordinator's. */
struct petition {
    struct weft_list node;
    uint64_t comm;
    uint32_t number, count;
    uint32_t *members; /* owned */
    uint8_t *has_asked;
};

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

struct weft_control_shrinks {
    struct decision decisions[DECISIONS];
    uint32_t decided; /* ever */
    struct weft_list petitions;
};

static struct weft_control_shrinks *shrinks_of(struct weft_control *control)
{
    if (control->shrinks == NULL) {
        control->shrinks = calloc(1, sizeof(*control->shrinks));
        if (control->shrinks != NULL) {
            weft_list_open(&control->shrinks->petitions);
        }
    }
    return control->shrinks;
}

static const struct decision *find_decision(const struct weft_control *control, uint64_t comm,
                                            uint32_t number)
{
    for (uint32_t i = 0; control->shrinks != NULL && i < DECISIONS; i++) {
        const struct decision *decision = &control->shrinks->decisions[i];
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
    for (struct weft_list *node = control->channels.next; node != &control->channels;
         node = node->next) {
        struct weft_control_channel *channel =
            WEFT_CONTAINER_OF(node, struct weft_control_channel, node);
        if (channel->id == comm && channel->shrink != NULL) {
            struct shrink_op *op = WEFT_CONTAINER_OF(channel->shrink, struct shrink_op, op);
            return op->number == number ? op : NULL;
        }
    }
    return NULL;
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
                          const struct word *word)
{
    struct weft_wire_frame frame = {.type = WEFT_WIRE_SHRUNK,
                                    .comm = word->comm,
                                    .src = control->self.rank,
                                    .dst = WEFT_WIRE_NO_RANK,
                                    .number = word->number};
    weft_control_say(conn, &frame, word->bytes, word->len);
}

/* Known here from now on, and to all neighbours but the one it came from (NULL: nobody). */
static void take_decision(struct weft_control *control, const struct word *news,
                          const struct weft_net_conn *from)
{
    struct weft_control_shrinks *shrinks = shrinks_of(control);
    struct shrink_op *op = find_op(control, news->comm, news->number);
    struct decision *kept;
    if (find_decision(control, news->comm, news->number) != NULL || shrinks == NULL) {
        return;
    }
    kept = &shrinks->decisions[shrinks->decided++ % DECISIONS];
    free(kept->bytes);
    kept->bytes = malloc(news->len);
    kept->word = (struct word){news->comm, news->number, kept->bytes, news->len};
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

static void told_withdrawn(const struct weft_control *control, const struct weft_wire_frame *frame)
{
    struct shrink_op *op = find_op(control, frame->comm, frame->number);
    if (op != NULL && op->is_leaving) {
        end_late(op);
    }
}

static void told_pending(struct weft_control *control, const struct weft_wire_frame *frame,
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

/* ---- the coordinator ---- */

static void petition_close(struct petition *petition)
{
    weft_list_remove(&petition->node);
    free(petition->members);
    free(petition->has_asked);
    free(petition);
}

static struct petition *petition_of(struct weft_control *control,
                                    const struct weft_wire_frame *frame, const uint8_t *payload)
{
    struct weft_control_shrinks *shrinks = shrinks_of(control);
    struct petition *petition;
    for (struct weft_list *node = shrinks != NULL ? shrinks->petitions.next : NULL;
         node != NULL && node != &shrinks->petitions; node = node->next) {
        petition = WEFT_CONTAINER_OF(node, struct petition, node);
        if (petition->comm == frame->comm && petition->number == frame->number) {
            return petition;
        }
    }
    petition = shrinks != NULL ? calloc(1, sizeof(*petition)) : NULL;
    if (petition == NULL) {
        return NULL; /* it asks again */
    }
    weft_list_open(&petition->node);
    petition->comm = frame->comm;
    petition->number = frame->number;
    petition->count = frame->len / 4;
    petition->members = malloc(((size_t)petition->count + 1) * sizeof(*petition->members));
    petition->has_asked = calloc((size_t)petition->count + 1, 1);
    if (petition->members == NULL || petition->has_asked == NULL) {
        petition_close(petition);
        return NULL;
    }
    for (uint32_t i = 0; i < petition->count; i++) {
        petition->members[i] = get32(payload + 4 * (size_t)i);
    }
    weft_list_append(&shrinks->petitions, &petition->node);
    return petition;
}

struct tally {
    uint32_t asked, missing, maybe_alive;
    bool has_lowest; /* of those who may live */
};

static bool goes_on(const struct weft_control *control, const struct petition *petition, uint32_t i)
{
    return petition->has_asked[i] != 0 && control->is_gone[petition->members[i]] == 0;
}

/* One that has asked may have lost its parent since, and is on its way to another: the decision would not reach it, nor
 * what the others then send. */
static bool is_awaited(struct weft_control *control, const struct petition *petition, uint32_t i)
{
    uint32_t rank = petition->members[i];
    return control->is_gone[rank] == 0 &&
           (!petition->has_asked[i] ||
            (rank != control->self.rank && weft_control_way_to(control, rank) == NULL));
}

static struct tally count(struct weft_control *control, const struct petition *petition)
{
    struct tally tally = {0};
    uint32_t lowest = WEFT_WIRE_NO_RANK;
    for (uint32_t i = 0; i < petition->count; i++) {
        uint32_t rank = petition->members[i];
        uint8_t how = control->is_gone[rank];
        tally.asked += goes_on(control, petition, i);
        tally.missing += is_awaited(control, petition, i);
        if (how == 0 || how == WEFT_GONE_UNREACHED) {
            tally.maybe_alive++;
            if (rank < lowest) {
                lowest = rank;
                tally.has_lowest = goes_on(control, petition, i);
            }
        }
    }
    return tally;
}

static void decide(struct weft_control *control, struct petition *petition,
                   const struct tally *tally)
{
    bool is_majority =
        weft_control_is_majority(tally->asked, tally->maybe_alive, tally->has_lowest);
    uint32_t count = is_majority ? tally->asked : 0;
    size_t len = 8 + 4 * (size_t)count;
    const struct word word = {petition->comm, petition->number, NULL, len};
    uint8_t *bytes = malloc(len);
    uint32_t at = 0;
    if (bytes == NULL) {
        return; /* they ask again */
    }
    put32(bytes, is_majority ? WEFT_OK : WEFT_ERR_NETWORK);
    put32(bytes + 4, count);
    for (uint32_t i = 0; i < petition->count && at < count; i++) {
        if (goes_on(control, petition, i)) {
            put32(bytes + 8 + 4 * (size_t)at++, petition->members[i]);
        }
    }
    petition_close(petition);
    take_decision(control, &(struct word){word.comm, word.number, bytes, len}, NULL);
    free(bytes);
}

void weft_control_shrink_check(struct weft_control *control)
{
    struct weft_list *node;
    if (control->shrinks == NULL || !control->is_top) {
        return;
    }
    for (node = control->shrinks->petitions.next; node != &control->shrinks->petitions;) {
        struct petition *petition = WEFT_CONTAINER_OF(node, struct petition, node);
        struct tally tally = count(control, petition);
        node = node->next;
        if (tally.missing == 0) {
            decide(control, petition, &tally);
        }
    }
}

static void tell_withdrawn(struct weft_control *control, const struct weft_wire_frame *to)
{
    struct weft_wire_frame frame = {.type = WEFT_WIRE_SHRUNK,
                                    .flags = WITHDRAWN,
                                    .comm = to->comm,
                                    .src = control->self.rank,
                                    .dst = to->src,
                                    .number = to->number};
    const uint8_t bytes[8] = {0};
    if (to->src == control->self.rank) {
        told_withdrawn(control, &frame);
    } else {
        weft_control_route(control, &frame, bytes, sizeof(bytes));
    }
}

/* Who is waited for, to one who asks. */
static void tell_pending(struct weft_control *control, const struct petition *petition, uint32_t to)
{
    struct weft_wire_frame frame = {.type = WEFT_WIRE_SHRUNK,
                                    .flags = PENDING,
                                    .comm = petition->comm,
                                    .src = control->self.rank,
                                    .dst = to,
                                    .number = petition->number};
    uint8_t bytes[8 + 4 * NAMED_MAX] = {0};
    uint32_t named = 0;
    for (uint32_t i = 0; i < petition->count && named < NAMED_MAX; i++) {
        if (is_awaited(control, petition, i)) {
            put32(bytes + 8 + 4 * (size_t)named++, petition->members[i]);
        }
    }
    put32(bytes, WEFT_OK);
    put32(bytes + 4, named);
    if (to == control->self.rank) {
        told_pending(control, &frame, bytes);
    } else {
        weft_control_route(control, &frame, bytes, 8 + 4 * (size_t)named);
    }
}

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

static void asked(struct weft_control *control, const struct weft_wire_frame *frame,
                  const uint8_t *payload)
{
    const struct decision *known = find_decision(control, frame->comm, frame->number);
    struct petition *petition = known == NULL ? petition_of(control, frame, payload) : NULL;
    if (known != NULL) {
        struct weft_wire_frame answer = {.type = WEFT_WIRE_SHRUNK,
                                         .comm = frame->comm,
                                         .src = control->self.rank,
                                         .dst = frame->src,
                                         .number = frame->number};
        weft_control_route(control, &answer, known->bytes, known->word.len);
        return;
    }
    for (uint32_t i = 0; petition != NULL && i < petition->count; i++) {
        if (petition->members[i] == frame->src) {
            petition->has_asked[i] = (frame->flags & WITHDRAW) == 0;
        }
    }
    if (petition != NULL && (frame->flags & WITHDRAW) != 0) {
        if (count(control, petition).asked == 0) {
            petition_close(petition); /* nobody asks any more */
        }
        tell_withdrawn(control, frame);
    } else if (petition != NULL) {
        if (count(control, petition).missing > 0) {
            tell_pending(control, petition, frame->src);
        }
        weft_control_shrink_check(control);
    }
}

/* ---- frames ---- */

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
            asked(control, frame, payload);
        } else if (control->parent != NULL) {
            weft_control_say(control->parent, &onward, payload, frame->len);
        }
    } else if (frame->dst < control->self.ranks && frame->dst != control->self.rank) {
        weft_control_route(control, &onward, payload, frame->len);
    } else if ((frame->flags & WITHDRAWN) != 0) {
        told_withdrawn(control, frame);
    } else if ((frame->flags & PENDING) != 0) {
        told_pending(control, frame, payload);
    } else {
        take_decision(control, &(struct word){frame->comm, frame->number, payload, frame->len},
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
    const struct decision *known = find_decision(channel->control, channel->id, op->number);
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
    for (struct weft_list *node = control->shrinks != NULL ? control->shrinks->petitions.next
                                                           : NULL;
         node != NULL && node != &control->shrinks->petitions;) {
        struct petition *petition = WEFT_CONTAINER_OF(node, struct petition, node);
        node = node->next;
        petition_close(petition); /* they ask whoever coordinates now */
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
    struct weft_list *node;
    if (shrinks == NULL) {
        return;
    }
    while ((node = weft_list_take(&shrinks->petitions)) != NULL) {
        petition_close(WEFT_CONTAINER_OF(node, struct petition, node));
    }
    for (uint32_t i = 0; i < DECISIONS; i++) {
        free(shrinks->decisions[i].bytes);
    }
    free(shrinks);
    control->shrinks = NULL;
}
