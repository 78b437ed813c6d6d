/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happened to a rank, and how everybody hears of it.
 *
 * Dead: a neighbour sees the end of its connection (or of its process) without a good-bye. It
 * reports to the coordinator, the top of the tree, which numbers the verdict and floods it down,
 * so that all ranks get the same one. Who has lost its way up looks for another (heal.c), and judges for its own
 * subtree only if there is none.
 *
 * Closed in good order: no verdict. The news goes up and then down, gathered for a few
 * milliseconds, because at the end of a job all ranks close and nobody needs to hear of it. Because
 * frames keep their order along the tree, nobody hears that a rank closed before what it sent.
 */
#include "control/heal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEWS_MS 5

static void mark_gone(struct weft_control *control, uint32_t rank, uint8_t how)
{
    control->gone_count += control->is_gone[rank] == 0;
    control->is_gone[rank] = how;
    control->is_out[rank] = 1;
}

/* ---- verdicts ---- */

/* Of a notice, to whoever is next. */
static struct weft_wire_frame frame_of(const struct weft_control *control, enum weft_wire_type type,
                                       uint64_t comm)
{
    return (struct weft_wire_frame){
        .type = (uint8_t)type, .comm = comm, .src = control->self.rank, .dst = WEFT_WIRE_NO_RANK};
}

/* Greater than all that this rank knows of, and no other rank gives it: who coordinates may be two for a while, or have died
 * before everybody heard of its latest. */
uint32_t weft_control_next_verdict(uint32_t latest, uint32_t rank, uint32_t ranks)
{
    return latest + 1 + (rank + ranks - latest % ranks) % ranks;
}

/* A member was `rank`, or messages between members went over it, and some may be lost. */
static bool is_concerned(const struct weft_control_channel *channel, uint32_t rank)
{
    const struct weft_control *control = channel->control;
    uint8_t was_out = control->is_out[rank];
    bool is = false;
    control->is_out[rank] = 0; /* as the ways were */
    for (uint32_t i = 0; i < channel->count && !is; i++) {
        is = weft_control_tree_passes(&control->tree, control->is_out, control->self.rank,
                                      channel->members[i], rank);
    }
    control->is_out[rank] = was_out;
    return is;
}

static void apply(struct weft_control *control, uint64_t comm,
                  const struct weft_wire_notice *notice)
{
    for (struct weft_list *node = control->channels.next; node != &control->channels;
         node = node->next) {
        struct weft_control_channel *channel =
            WEFT_CONTAINER_OF(node, struct weft_control_channel, node);
        if (comm == 0 ? is_concerned(channel, notice->rank) : channel->id == comm) {
            weft_control_channel_end_by(channel, notice);
        }
    }
}

static void apply_to_rank(struct weft_control *control, const struct weft_wire_notice *notice)
{
    weft_log(control, WARN, "%s", notice->text);
    apply(control, 0, notice);
    mark_gone(control, notice->rank,
              notice->status == WEFT_ERR_NETWORK ? WEFT_GONE_UNREACHED : WEFT_GONE_DEAD);
    if (control->observer != NULL) {
        control->observer->gone(control->observer, notice->rank, notice->status, notice->text);
    }
    weft_control_heal_changed(control, false);
    weft_control_shrink_check(control);
}

static bool is_known(const struct weft_control *control, uint64_t comm,
                     const struct weft_wire_notice *notice)
{
    return comm == 0 ? notice->rank >= control->self.ranks || control->is_gone[notice->rank]
                     : weft_control_history_has(control, comm);
}

void weft_control_judge(struct weft_control *control, uint64_t comm,
                        const struct weft_wire_notice *notice)
{
    struct weft_wire_frame frame = frame_of(control, WEFT_WIRE_VERDICT, comm);
    uint8_t bytes[WEFT_WIRE_NOTICE_MAX];
    size_t len = weft_wire_notice_encode(notice, bytes);
    weft_control_heal_judged(control, comm, notice->rank);
    if (is_known(control, comm, notice)) {
        return;
    }
    control->verdicts = notice->number > control->verdicts ? notice->number : control->verdicts;
    control->judged_ns = weft_clock_ns();
    control->is_word_owed = true;
    weft_control_history_add(control, comm, notice);
    weft_control_flood(control, &frame, bytes, len);
    weft_control_aside_flood(control, &frame, bytes, len);
    if (comm == 0) {
        apply_to_rank(control, notice);
    } else if (weft_control_channel_find(control, comm) != NULL) {
        apply(control, comm, notice);
    } else {
        /* A channel that this rank is about to open ends as soon as it does. */
        frame.len = (uint32_t)len;
        weft_control_deliver(control, &frame, bytes);
    }
    weft_control_word_check(control);
}

/* A coordinator that has slept may have been stood in for: the verdict may lie before it; of a new one somebody may know it
 * already. And who cannot reach some may be the one that cannot be reached. */
static bool may_judge(struct weft_control *control, const struct weft_wire_notice *notice)
{
    if (!control->is_top && !weft_control_aside_stands_in(control)) {
        return false;
    }
    if (notice->number != 0 || control->heal == NULL) {
        return true;
    }
    return !weft_control_heart_is_waking(control) && !weft_control_heal_is_hearing(control) &&
           (!control->is_top || notice->status != WEFT_ERR_NETWORK ||
            weft_control_part_of(control) != WEFT_PART_UNKNOWN);
}

/* Who waits names those it waits for, who may wait themselves, or have said what does not come on its way. */
static void name_who_stands_still(struct weft_control *control, uint64_t comm,
                                  struct weft_wire_notice *notice)
{
    char name[128], words[160], said[sizeof(notice->text)];
    bool is_member;
    uint32_t still = weft_control_still_find(control, comm, &is_member);
    if (still == WEFT_WIRE_NO_RANK || weft_control_stands_still(control, notice->rank)) {
        return;
    }
    if (is_member && !weft_control_may_stand_still(control, notice->rank)) {
        notice->rank = still;
    }
    weft_control_name_rank(control, still, name, sizeof(name));
    if (strstr(notice->text, name) == NULL) {
        int len = snprintf(words, sizeof(words), "; %s stands still", name);
        memcpy(said, notice->text, sizeof(said));
        snprintf(notice->text, sizeof(notice->text), "%.*s%s", (int)sizeof(said) - 1 - len, said,
                 words);
    }
}

/* The verdict, or, in the smaller part of a job, words without a number. */
static void number(struct weft_control *control, uint64_t comm, struct weft_wire_notice *notice)
{
    size_t len = strlen(notice->text);
    if (notice->number != 0) {
        return; /* another coordinator has given it */
    }
    if (notice->status == WEFT_ERR_TIMEOUT) {
        name_who_stands_still(control, comm, notice);
    }
    if (control->is_top && notice->status == WEFT_ERR_NETWORK &&
        weft_control_part_of(control) == WEFT_PART_FEW) {
        snprintf(notice->text + len, sizeof(notice->text) - len, "; nor can most of the others");
    } else {
        notice->number =
            weft_control_next_verdict(control->verdicts, control->self.rank, control->self.ranks);
    }
}

/* A verdict that has come around our parent, or from one below who stands in for it: it must not hear first that we
 * close for that. */
static void pass_up(struct weft_control *control, uint64_t comm,
                    const struct weft_wire_notice *notice)
{
    struct weft_wire_frame frame = frame_of(control, WEFT_WIRE_VERDICT, comm);
    uint8_t bytes[WEFT_WIRE_NOTICE_MAX];
    if (control->parent != NULL && notice->number != 0 &&
        (comm != 0 || notice->rank != control->parent_rank)) {
        weft_control_say(control->parent, &frame, bytes, weft_wire_notice_encode(notice, bytes));
    }
}

void weft_control_report(struct weft_control *control, uint64_t comm,
                         const struct weft_wire_notice *notice)
{
    struct weft_wire_notice verdict = *notice;
    struct weft_wire_frame frame = frame_of(control, WEFT_WIRE_REPORT, comm);
    uint8_t bytes[WEFT_WIRE_NOTICE_MAX];
    bool is_kept;
    if (is_known(control, comm, notice)) {
        return;
    }
    if (notice->status == WEFT_ERR_TIMEOUT && notice->number == 0 &&
        notice->rank == control->self.rank) {
        weft_control_collect_late(control, comm, &verdict); /* we are there, and know who is not */
    }
    if (control->is_top && comm == 0 && notice->number == 0 && notice->status == WEFT_ERR_NETWORK &&
        weft_control_conn_to(control, notice->rank) != NULL) {
        weft_control_heal_judged(control, comm, notice->rank); /* it has come back meanwhile */
        return;
    }
    if (may_judge(control, notice)) {
        number(control, comm, &verdict);
        pass_up(control, comm, &verdict); /* it hears of it when it goes on */
        weft_control_judge(control, comm, &verdict);
        return;
    }
    is_kept = weft_control_heal_keep(control, comm, &verdict) && weft_control_aside_due(control);
    if (control->is_top && is_kept) {
        return; /* not yet */
    }
    if (control->parent != NULL) {
        size_t len = weft_wire_notice_encode(&verdict, bytes);
        weft_control_say(control->parent, &frame, bytes, len);
        weft_control_aside_up(control, &frame, bytes, len);
    } else if (!is_kept || !weft_control_heal_is_hopeful(control)) {
        weft_control_judge(control, comm, &verdict);
    }
}

/* Statuses whose words tell what is missing somewhere, and not where. */
static bool needs_a_name(weft_status_t status)
{
    return status == WEFT_ERR_MEMORY || status == WEFT_ERR_SYSTEM || status == WEFT_ERR_NETWORK;
}

void weft_control_report_own(struct weft_control *control, uint64_t comm,
                             const struct weft_wire_notice *notice)
{
    struct weft_wire_notice signed_notice = *notice;
    char name[128], who[144];
    if (needs_a_name(notice->status)) {
        weft_control_name_rank(control, control->self.rank, name, sizeof(name));
        int len = snprintf(who, sizeof(who), ", says %s", name);
        snprintf(signed_notice.text, sizeof(signed_notice.text), "%.*s%s",
                 (int)sizeof(signed_notice.text) - 1 - len, notice->text, who);
    } else if (notice->status == WEFT_ERR_TIMEOUT) {
        name_who_stands_still(control, comm, &signed_notice);
    }
    weft_control_report(control, comm, &signed_notice);
}

/* Somebody lost its connection to one that lives: we would see its end. That a process has ended was seen by whoever
 * gave the verdict; we may be about to. */
static bool is_contradicted(struct weft_control *control, const struct weft_wire_notice *notice)
{
    bool is_verdict = notice->number != 0 && notice->status != WEFT_ERR_NETWORK;
    return notice->rank == control->self.rank ||
           weft_control_aside_is_leaving(control, notice->rank) ||
           (!is_verdict && weft_control_conn_to(control, notice->rank) != NULL);
}

void weft_control_notice_arrived(struct weft_control *control, const struct weft_net_conn *from,
                                 const struct weft_wire_frame *frame, const uint8_t *payload)
{
    struct weft_wire_notice notice;
    if (weft_wire_notice_decode(payload, frame->len, &notice) != WEFT_OK) {
        weft_log(control, ERROR, "rank %u sent a verdict that cannot be read", frame->src);
        return;
    }
    if (frame->type == WEFT_WIRE_REPORT && frame->comm == 0 && is_contradicted(control, &notice)) {
        return;
    }
    if (frame->type == WEFT_WIRE_REPORT) {
        weft_control_report(control, frame->comm, &notice);
        return;
    }
    if (from == control->parent) {
        weft_control_word_told(control);
    } else if (!is_known(control, frame->comm, &notice)) {
        pass_up(control, frame->comm, &notice);
    }
    weft_control_judge(control, frame->comm, &notice);
    weft_control_word_check(control); /* of one that was known, too, our parent waits to hear */
}

/* There is no way over it any more: what waits for those behind it fails. */
static void tell_channels(struct weft_control *control, uint32_t rank)
{
    if (control->is_gone == NULL || rank >= control->self.ranks || !control->is_gone[rank]) {
        return; /* it died: the verdict ends them */
    }
    for (struct weft_list *node = control->channels.next; node != &control->channels;
         node = node->next) {
        weft_control_channel_rank_closed(WEFT_CONTAINER_OF(node, struct weft_control_channel, node),
                                         rank);
    }
}

void weft_control_neighbour_lost(struct weft_control *control, struct weft_net_conn *conn,
                                 weft_status_t status, const char *why)
{
    struct weft_wire_notice notice = {.status = status, .rank = conn->peer_rank};
    bool is_known_rank = conn->peer_rank < control->self.ranks && control->is_gone != NULL;
    char name[128], self[128];
    conn->edge = NULL;
    weft_control_ways_forget(control, conn->peer_rank);
    if (is_known_rank) {
        control->is_out[conn->peer_rank] = 1;
    }
    if (conn == control->parent) {
        control->parent = NULL;
        weft_control_word_new_parent(control);
        if (control->heal != NULL) {
            control->heal->parent_heard_ns = conn->heard_ns;
            control->heal->way = weft_control_ways_used(control, conn);
        }
        weft_control_heal_orphaned(control, status == WEFT_ERR_NETWORK);
        tell_channels(control, conn->peer_rank);
    }
    for (uint32_t i = 0; i < control->child_count; i++) {
        if (control->children[i].conn == conn) {
            control->children[i].conn = NULL;
        }
    }
    if (is_known_rank && !control->is_closing) {
        weft_control_name_rank(control, conn->peer_rank, name, sizeof(name));
        if (status == WEFT_ERR_MEMORY) { /* it is not the neighbour that failed */
            weft_control_name_rank(control, control->self.rank, self, sizeof(self));
            snprintf(notice.text, sizeof(notice.text), "%s lost its connection to %.100s: %s", self,
                     name, why);
        } else {
            snprintf(notice.text, sizeof(notice.text), "%s %s", name, why);
        }
        weft_net_conn_close(conn);
        weft_control_report(control, 0, &notice);
        return;
    }
    weft_net_conn_close(conn);
}

/* ---- good-byes ---- */

static void send_closed(struct weft_control *control, struct weft_net_conn *conn,
                        const uint32_t *ranks, uint32_t count)
{
    struct weft_wire_frame frame = {
        .type = WEFT_WIRE_CLOSED, .src = control->self.rank, .dst = WEFT_WIRE_NO_RANK};
    uint8_t *bytes = malloc((size_t)count * 4);
    if (bytes == NULL) {
        return; /* who waits for them finds out at the deadline */
    }
    for (uint32_t i = 0; i < count; i++) {
        put32(bytes + (size_t)i * 4, ranks[i]);
    }
    if (conn != NULL) {
        weft_control_say(conn, &frame, bytes, (size_t)count * 4);
    } else {
        weft_control_flood(control, &frame, bytes, (size_t)count * 4);
    }
    free(bytes);
}

void weft_control_tell_closed(struct weft_control *control, struct weft_net_conn *conn)
{
    for (uint32_t rank = 0; control->gone_count > 0 && rank < control->self.ranks; rank++) {
        if (control->is_gone[rank] == WEFT_GONE_CLOSED) {
            send_closed(control, conn, &rank, 1);
        }
    }
}

static void apply_closed(struct weft_control *control, uint32_t rank)
{
    char name[128];
    char text[TEXT_LEN];
    mark_gone(control, rank, WEFT_GONE_CLOSED);
    weft_control_heal_judged(control, 0, rank);
    if (control->observer != NULL) {
        weft_control_name_rank(control, rank, name, sizeof(name));
        snprintf(text, sizeof(text), "%s closed its communicator", name);
        control->observer->gone(control->observer, rank, WEFT_ERR_PEER, text);
    }
    for (struct weft_list *node = control->channels.next; node != &control->channels;
         node = node->next) {
        weft_control_channel_rank_closed(WEFT_CONTAINER_OF(node, struct weft_control_channel, node),
                                         rank);
    }
    weft_control_shrink_check(control);
    weft_control_heal_changed(control, true);
}

void weft_control_news_flush(struct weft_control *control)
{
    if (control->closed_count > 0) {
        send_closed(control, NULL, control->closed, control->closed_count);
        control->closed_count = 0;
    }
}

void weft_control_news_fire(struct weft_engine_timer *timer, uint64_t now_ns)
{
    (void)now_ns;
    weft_control_news_flush(WEFT_CONTAINER_OF(timer, struct weft_control, news));
}

static void keep_news(struct weft_control *control, uint32_t rank)
{
    if (control->closed_count == control->closed_room) {
        uint32_t room = control->closed_room == 0 ? 64 : control->closed_room * 2;
        uint32_t *grown = realloc(control->closed, room * sizeof(*grown));
        if (grown == NULL) {
            return;
        }
        control->closed = grown;
        control->closed_room = room;
    }
    control->closed[control->closed_count++] = rank;
}

/* Up to the root, which tells all; without a way up, to those below. */
static void pass_on(struct weft_control *control, uint32_t rank)
{
    keep_news(control, rank);
    if (control->is_top || control->parent == NULL || rank == control->parent_rank) {
        if (weft_list_is_empty(&control->news.node)) {
            weft_engine_timer_set(control->engine, &control->news, weft_clock_after_ms(NEWS_MS));
        }
    } else {
        /* Kept too: should we close before the root's word comes, our children hear it from us. */
        send_closed(control, control->parent, &rank, 1);
    }
}

void weft_control_rank_closed(struct weft_control *control, uint32_t rank)
{
    if (rank >= control->self.ranks || control->is_gone == NULL || control->is_gone[rank] ||
        control->is_closing) {
        return;
    }
    apply_closed(control, rank);
    pass_on(control, rank);
}

void weft_control_closed_arrived(struct weft_control *control, struct weft_net_conn *from,
                                 const struct weft_wire_frame *frame, const uint8_t *payload)
{
    bool is_from_above = from == control->parent;
    struct weft_wire_frame onward = *frame;
    for (uint32_t i = 0; i + 4 <= frame->len && !control->is_closing; i += 4) {
        uint32_t rank = get32(payload + i);
        if (rank >= control->self.ranks || rank == control->self.rank || control->is_gone[rank]) {
            continue;
        }
        apply_closed(control, rank);
        if (!is_from_above) {
            pass_on(control, rank);
        }
    }
    if (is_from_above) {
        weft_control_flood(control, &onward, payload, frame->len);
    }
}
