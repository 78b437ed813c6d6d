/* SPDX-License-Identifier: Apache-2.0 */
/* Frames down to the lane and events up from it, with numbers, acknowledgements and credit. */
#include "link/internal.h"

#include <stdlib.h>
#include <string.h>

#define TELL_FRAMES 32

weft_status_t weft_links_open(const struct weft_links_spec *spec, struct weft_links **links_p)
{
    struct weft_links *links = calloc(1, sizeof(*links));
    size_t eager = (size_t)spec->port.params->number[WEFT_PARAM_EAGER];
    if (links == NULL) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory for links");
    }
    links->spec = *spec;
    /* However the ring lies, the longest message finds a place in one piece while the peer keeps less
     * than tell_len to itself; and one such message alone is not worth an acknowledgement, because an
     * answer carries it. */
    links->keep_room = eager * 4 > WEFT_LINK_KEEP ? eager * 4 : WEFT_LINK_KEEP;
    links->tell_len = (uint32_t)(links->keep_room / 8 * 3);
    links->spec.port.addr = spec->addr;
    weft_list_open(&links->roomy);
    *links_p = links;
    return WEFT_OK;
}

void weft_links_close(struct weft_links *links)
{
    if (links == NULL) {
        return;
    }
    weft_lane_shm.port_close(links->shm);
    weft_lane_tcp.port_close(links->tcp);
    free(links);
}

bool weft_links_hear(struct weft_links *links, struct weft_lane_word *word_p)
{
    return links->shm != NULL && weft_lane_shm.hear(links->shm, word_p);
}

const _Atomic uint32_t *weft_links_ear(const struct weft_links *links, uint32_t *value_p)
{
    return links->shm != NULL ? weft_lane_shm.watch(links->shm, value_p) : NULL;
}

const _Atomic uint32_t *weft_links_watch(const struct weft_links *links, uint32_t *value_p)
{
    return links->tcp == NULL && links->shm != NULL && weft_list_is_empty(&links->roomy)
               ? weft_lane_shm.watch(links->shm, value_p)
               : NULL;
}

bool weft_links_arm(struct weft_links *links)
{
    return (links->shm == NULL || weft_lane_shm.arm(links->shm)) &&
           (links->tcp == NULL || weft_lane_tcp.arm(links->tcp));
}

void weft_links_disarm(struct weft_links *links)
{
    if (links->shm != NULL) {
        weft_lane_shm.disarm(links->shm);
    }
    if (links->tcp != NULL) {
        weft_lane_tcp.disarm(links->tcp);
    }
}

void weft_link_open(struct weft_links *links, uint32_t peer, struct weft_link *link)
{
    *link = (struct weft_link){.links = links, .peer = peer, .state = WEFT_LINK_IDLE};
    weft_list_open(&link->roomy);
}

void weft_link_close(struct weft_link *link)
{
    if (link->lane != NULL) {
        link->lane->ops->close(link->lane);
        link->lane = NULL;
    }
    weft_list_remove(&link->roomy);
    free(link->keep);
    link->keep = NULL;
    link->state = WEFT_LINK_DOWN;
}

/* ---- down ---- */

static enum weft_post post(struct weft_link *link, struct weft_wire_data *frame,
                           const struct weft_slice *slice, void *cookie)
{
    /* Short messages in shared memory have no room for it. */
    bool tells_credit = frame->type == WEFT_DATA_ACK || (frame->type == WEFT_DATA_EAGER &&
                                                         (link->lane->caps & WEFT_LANE_SURE) == 0);
    enum weft_post how;
    frame->ack = link->received;
    if (tells_credit) {
        frame->a = link->eager_consumed;
    }
    how = link->lane->ops->post(link->lane, frame, slice, cookie);
    if (how == WEFT_POST_FULL) {
        link->wants_room = true;
    } else {
        link->told = link->received;
        link->untold_len = 0;
        if (tells_credit) {
            link->eager_told = link->eager_consumed;
        }
    }
    return how;
}

/* No lane yet, or others wait for it: into the keep. */
static enum weft_post put_by(struct weft_link *link, struct weft_wire_data *frame,
                             const struct weft_slice *slice)
{
    if (weft_link_keep_open(link) != WEFT_OK || !weft_link_keep_has_room(link, slice->len)) {
        link->wants_room = true;
        return WEFT_POST_FULL;
    }
    frame->number = ++link->sent;
    weft_link_keep_add(link, frame, slice, false);
    return WEFT_POST_SENT;
}

static enum weft_post send_kept(struct weft_link *link, struct weft_wire_data *frame,
                                const struct weft_slice *slice, void *cookie)
{
    enum weft_post how;
    if (weft_link_keep_open(link) != WEFT_OK || !weft_link_keep_has_room(link, slice->len)) {
        link->wants_room = true;
        return WEFT_POST_FULL;
    }
    frame->number = link->sent + 1;
    how = post(link, frame, slice, cookie);
    if (how != WEFT_POST_FULL) {
        void *kept = weft_link_keep_add(link, frame, slice, true); /* the peer is at work with it */
        link->sent++;
        if (how == WEFT_POST_LENT) {
            link->lane->ops->relocate(link->lane, kept);
        }
        return WEFT_POST_SENT;
    }
    return WEFT_POST_FULL;
}

enum weft_post weft_link_send(struct weft_link *link, struct weft_wire_data *frame,
                              const struct weft_slice *slice, void *cookie)
{
    frame->len = (uint32_t)slice->len;
    if (link->state != WEFT_LINK_UP || link->keep_unsent > 0) {
        weft_link_want(link);
        return link->state == WEFT_LINK_DOWN ? WEFT_POST_FULL : put_by(link, frame, slice);
    }
    return (link->lane->caps & WEFT_LANE_SURE) != 0 ? post(link, frame, slice, cookie)
                                                    : send_kept(link, frame, slice, cookie);
}

enum weft_post weft_link_stream(struct weft_link *link, struct weft_wire_data *frame,
                                const struct weft_slice *slice, void *cookie)
{
    frame->len = (uint32_t)slice->len;
    frame->number = 0;
    if (link->state != WEFT_LINK_UP || link->keep_unsent > 0) {
        link->wants_room = true;
        return WEFT_POST_FULL;
    }
    return post(link, frame, slice, cookie);
}

/* ---- acknowledgements and credit ---- */

void weft_link_tell(struct weft_link *link)
{
    struct weft_wire_data frame = {.type = WEFT_DATA_ACK};
    const struct weft_slice nothing = {0};
    link->owes_ack =
        link->state == WEFT_LINK_UP && post(link, &frame, &nothing, NULL) == WEFT_POST_FULL;
}

bool weft_link_is_flushed(const struct weft_link *link)
{
    return link->state == WEFT_LINK_IDLE || link->state == WEFT_LINK_DOWN ||
           (link->keep_len == 0 && link->lane != NULL && link->lane->ops->queued(link->lane) == 0);
}

/* ---- up ---- */

static void note_frame(struct weft_link *link, const struct weft_wire_data *frame)
{
    if ((int32_t)(frame->ack - link->acked) > 0 && link->keep != NULL) {
        weft_link_keep_acked(link, frame->ack);
        if (link->wants_room && weft_list_is_empty(&link->roomy)) {
            weft_list_append(&link->links->roomy, &link->roomy);
        }
    }
    if ((frame->type == WEFT_DATA_EAGER || frame->type == WEFT_DATA_ACK) &&
        frame->a > link->eager_freed && frame->a <= link->eager_sent) {
        link->eager_freed = frame->a;
    }
}

static void note_received(struct weft_link *link, const struct weft_wire_data *frame)
{
    if (frame->number == 0) {
        return;
    }
    link->received = frame->number;
    link->untold_len += frame->len + WEFT_WIRE_DATA_LEN;
    if (link->received - link->told >= TELL_FRAMES || link->untold_len >= link->links->tell_len ||
        frame->type == WEFT_DATA_BYE) {
        weft_link_tell(link);
    }
}

static void protocol_error(struct weft_done *done, const char *text)
{
    done->kind = WEFT_DONE_LOST;
    done->status = WEFT_ERR_PROTOCOL;
    done->text = text;
}

/* Numbers come without gaps on the one lane there is; what has been here before goes to the sink. false:
 * nothing for the user of the link. */
static bool check_number(struct weft_link *link, struct weft_done *done)
{
    static const struct weft_slice sink = {0};
    int32_t ahead = (int32_t)(done->frame.number - link->received);
    if (done->frame.number == 0 || ahead == 1) {
        return true;
    }
    if (ahead > 1) {
        protocol_error(done, "left out a frame");
        return true;
    }
    if (done->kind == WEFT_DONE_HEADER) {
        link->lane->ops->place(link->lane, &sink);
    } else if (done->kind == WEFT_DONE_ARRIVED && done->token != 0) {
        link->lane->ops->release(link->lane, done->token);
    }
    return false;
}

/* What it has sent already may be among the events of this very poll: so it is closed after them. */
static void refuse(struct weft_links *links, struct weft_lane *lane)
{
    lane->owner = NULL;
    lane->next_refused = links->refused;
    links->refused = lane;
}

static void close_refused(struct weft_links *links)
{
    while (links->refused != NULL) {
        struct weft_lane *lane = links->refused;
        links->refused = lane->next_refused;
        lane->ops->close(lane);
    }
}

static bool lane_opened(struct weft_links *links, struct weft_done *done)
{
    struct weft_lane *lane = done->lane;
    struct weft_link *link = lane->owner;
    if (link == NULL) {
        link = links->spec.find(links->spec.context, lane->peer);
        if (link == NULL || link->lane != NULL || link->state == WEFT_LINK_DOWN) {
            refuse(links, lane); /* not wanted (any more) */
            return false;
        }
        lane->owner = link;
        link->lane = lane;
    }
    link->state = WEFT_LINK_UP;
    weft_log(link, INFO, "rank %u by %s (%s)", link->peer, lane->ops->name, lane->peer_text);
    if (weft_link_keep_flush(link) && link->wants_room) {
        link->wants_room = false; /* OPENED says it too */
    }
    return true;
}

static bool lane_lost(struct weft_done *done)
{
    struct weft_lane *lane = done->lane;
    struct weft_link *link = lane->owner;
    if (link->state == WEFT_LINK_CALLING) {
        link->lane = NULL;
        weft_link_fail(link, done->status, done->text);
        if (weft_link_try_elsewhere(link)) {
            refuse(link->links, lane);
            return false;
        }
        weft_link_give_up(link);
        link->lane = lane;
        return true;
    }
    weft_link_fail(link, done->status, done->text);
    return true;
}

/* A lane that was refused in this poll; or that ended before its link knew it. */
static bool drop_of_refused(struct weft_links *links, const struct weft_done *done)
{
    struct weft_lane *lane = done->lane;
    bool is_refused = false;
    for (struct weft_lane *other = links->refused; other != NULL; other = other->next_refused) {
        is_refused |= other == lane;
    }
    if (done->kind == WEFT_DONE_ARRIVED && done->token != 0) {
        lane->ops->release(lane, done->token);
    } else if (done->kind == WEFT_DONE_LOST && !is_refused) {
        refuse(links, lane);
    }
    return false;
}

/* false: nothing for the user of the link */
static bool filter(struct weft_links *links, struct weft_done *done)
{
    struct weft_link *link = done->lane->owner;
    bool is_sure = (done->lane->caps & WEFT_LANE_SURE) != 0;
    if (link == NULL && done->kind != WEFT_DONE_OPENED) {
        return drop_of_refused(links, done);
    }
    switch (done->kind) {
    case WEFT_DONE_ARRIVED:
        note_frame(link, &done->frame);
        if (!is_sure && !check_number(link, done)) {
            return false;
        }
        if (done->kind == WEFT_DONE_LOST) {
            return lane_lost(done);
        }
        note_received(link, &done->frame);
        return done->frame.type != WEFT_DATA_ACK || done->token != 0;
    case WEFT_DONE_HEADER:
        note_frame(link, &done->frame);
        return is_sure ||
               (check_number(link, done) && (done->kind != WEFT_DONE_LOST || lane_lost(done)));
    case WEFT_DONE_LANDED:
        if (done->frame.number != 0 && (int32_t)(done->frame.number - link->received) <= 0) {
            return false; /* a copy, in the sink */
        }
        note_received(link, &done->frame);
        return true;
    case WEFT_DONE_SENT:
        return done->cookie != NULL;
    case WEFT_DONE_WRITABLE:
        if (link->owes_ack) {
            weft_link_tell(link);
        }
        if (!weft_link_keep_flush(link) || !link->wants_room) {
            return false;
        }
        link->wants_room = false;
        return true;
    case WEFT_DONE_OPENED:
        return lane_opened(links, done);
    case WEFT_DONE_LOST:
        return lane_lost(done);
    }
    return false;
}

static unsigned filter_all(struct weft_links *links, struct weft_done *done, unsigned count)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < count; i++) {
        if (filter(links, &done[i])) {
            if (kept != i) {
                done[kept] = done[i];
            }
            kept++;
        }
    }
    close_refused(links);
    return kept;
}

/* The lane had room all along, but the keep had not. */
static unsigned report_roomy(struct weft_links *links, struct weft_done *done)
{
    struct weft_list *node = weft_list_take(&links->roomy);
    struct weft_link *link;
    if (node == NULL) {
        return 0;
    }
    link = WEFT_CONTAINER_OF(node, struct weft_link, roomy);
    if (link->state != WEFT_LINK_UP || !link->wants_room) {
        return 0;
    }
    link->wants_room = false;
    *done = (struct weft_done){.kind = WEFT_DONE_WRITABLE, .lane = link->lane};
    return 1;
}

unsigned weft_links_poll(struct weft_links *links, struct weft_done *done, unsigned room)
{
    unsigned count = report_roomy(links, done);
    if (count > 0) {
        return count;
    }
    if (links->shm != NULL) {
        count = filter_all(links, done, weft_lane_shm.poll(links->shm, done, room));
    }
    if (links->tcp != NULL && room - count >= 4) {
        count += filter_all(links, done + count,
                            weft_lane_tcp.poll(links->tcp, done + count, room - count));
    }
    return count;
}
