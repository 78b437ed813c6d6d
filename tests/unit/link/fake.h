/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lanes without a network: a kind of lane whose frames move when the test says so (ends.h: two ranks whose links
 * use it). What is lent stays lent until it leaves, and is read only then: who gave it back too early is caught.
 *
 *   post -> |out of the sender's memory| leave -> |in the pipe| arrive -> HEADER or ARRIVED; body -> LANDED
 *
 * A lane that is closed takes with it what has not left; what is in the pipe may still arrive, because the other
 * side hears of the end later, or never (cut).
 */
#ifndef WEFT_TESTS_LINK_FAKE_H
#define WEFT_TESTS_LINK_FAKE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "link/internal.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NICS_MAX 4
#define WHOLE_MAX 2048 /* longer envelopes come in two steps, as bulk does */

struct fake_frame {
    struct weft_list node;
    struct weft_wire_data frame;
    struct weft_slice slice; /* lent, until it has left */
    void *cookie;
    uint8_t *owned;
    uint32_t crc; /* of the payload as it was posted */
    bool is_silent;
    bool has_begun; /* to leave: it cannot be replaced any more */
    bool has_left;
};

struct fake_lane {
    struct weft_lane lane;
    struct weft_list node;    /* in its port */
    struct fake_lane *other;  /* NULL: the other end is closed */
    struct weft_list pipe;    /* of what the other end posted, oldest first */
    struct weft_list whole;   /* to be told as ARRIVED */
    struct weft_list told;    /* … and were: their payload is good until the next poll */
    struct fake_frame *begun; /* behind those, told as HEADER */
    bool is_asked, is_body_here, is_header_told;
    struct weft_slice into;
    bool is_open_told, is_lost, is_lost_told;
    bool is_held, is_starved;
    uint32_t silent_ms, posts;
};

struct fake_port {
    struct weft_list lanes;
    uint32_t rank, nic;
};

/* ---- lanes ---- */

static uint32_t fake_posts_max = 64;
static bool fake_parts_change; /* whoever gets memory also writes it meanwhile */
static struct fake_port *fake_ports[2][NICS_MAX];

static inline struct fake_lane *fake_of(const struct weft_lane *lane)
{
    return WEFT_CONTAINER_OF(lane, struct fake_lane, lane);
}

static inline struct fake_frame *fake_frame_at(struct weft_list *node)
{
    return WEFT_CONTAINER_OF(node, struct fake_frame, node);
}

static inline void fake_frame_free(struct fake_frame *frame)
{
    if (frame != NULL) {
        free(frame->owned);
        free(frame);
    }
}

/* Whoever lent it may have it back: a copy is on its way. */
static inline void fake_copy(struct fake_frame *frame)
{
    uint8_t *owned = malloc(frame->slice.len + 1);
    assert_non_null(owned);
    if (frame->slice.len > 0) {
        memcpy(owned, frame->slice.data, frame->slice.len);
    }
    free(frame->owned);
    frame->owned = owned;
    frame->slice.data = owned;
}

extern const struct weft_lane_ops fake_ops;

static inline struct fake_lane *fake_lane_new(struct fake_port *port, uint32_t peer, uint16_t slot,
                                              uint32_t generation)
{
    struct fake_lane *fake = calloc(1, sizeof(*fake));
    assert_non_null(fake);
    fake->lane = (struct weft_lane){.ops = &fake_ops,
                                    .port = (struct weft_lane_port *)(void *)port,
                                    .peer = peer,
                                    .chunk_max = WEFT_WIRE_DATA_MAX,
                                    .slot = slot,
                                    .generation = generation};
    weft_list_open(&fake->pipe);
    weft_list_open(&fake->whole);
    weft_list_open(&fake->told);
    weft_list_append(&port->lanes, &fake->node);
    return fake;
}

static inline void fake_list_empty(struct weft_list *list, bool also_left)
{
    struct weft_list *node = list->next;
    while (node != list) {
        struct fake_frame *frame = fake_frame_at(node);
        node = node->next;
        if (also_left || !frame->has_left) {
            weft_list_remove(&frame->node);
            fake_frame_free(frame);
        }
    }
}

static inline weft_status_t fake_port_open(const struct weft_lane_port_spec *spec,
                                           struct weft_lane_port **port_p)
{
    struct fake_port *port = calloc(1, sizeof(*port));
    assert_non_null(port);
    weft_list_open(&port->lanes);
    port->rank = spec->self->rank;
    port->nic = (uint32_t)(spec->nic[1] - '0');
    fake_ports[port->rank][port->nic] = port;
    *port_p = (struct weft_lane_port *)(void *)port;
    return WEFT_OK;
}

static inline void fake_close(struct weft_lane *base)
{
    struct fake_lane *fake;
    if (base == NULL) {
        return;
    }
    fake = fake_of(base);
    if (fake->other != NULL) {
        fake_list_empty(&fake->other->pipe, false); /* what has not left, goes with us */
        fake->other->other = NULL;
    }
    fake_list_empty(&fake->pipe, true);
    fake_list_empty(&fake->whole, true);
    fake_list_empty(&fake->told, true);
    fake_frame_free(fake->begun);
    weft_list_remove(&fake->node);
    free(fake);
}

static inline void fake_port_close(struct weft_lane_port *base)
{
    struct fake_port *port = (struct fake_port *)(void *)base;
    if (port != NULL) {
        while (!weft_list_is_empty(&port->lanes)) {
            fake_close(&WEFT_CONTAINER_OF(port->lanes.next, struct fake_lane, node)->lane);
        }
        fake_ports[port->rank][port->nic] = NULL;
        free(port);
    }
}

static inline void fake_address(const struct weft_lane_port *base,
                                struct weft_lane_address *address_p)
{
    const struct fake_port *port = (const struct fake_port *)(const void *)base;
    struct weft_wire_addr addr = {.family = 4, .port = (uint16_t)(1000 + port->nic)};
    const uint8_t bytes[4] = {10, (uint8_t)(port->nic + 1), 0, (uint8_t)(port->rank + 1)};
    memcpy(addr.bytes, bytes, sizeof(bytes));
    weft_wire_addr_encode(&addr, address_p->bytes);
    address_p->len = WEFT_WIRE_ADDR_LEN;
}

/* Dialling waits for fake_connect(). */
static inline weft_status_t fake_open(struct weft_lane_port *base,
                                      const struct weft_lane_call *call, struct weft_lane **lane_p)
{
    struct fake_port *port = (struct fake_port *)(void *)base;
    *lane_p = &fake_lane_new(port, call->peer, call->slot, call->generation)->lane;
    return WEFT_OK;
}

static inline enum weft_post fake_post(struct weft_lane *base, const struct weft_wire_data *frame,
                                       const struct weft_slice *slice, void *cookie)
{
    struct fake_lane *fake = fake_of(base);
    struct fake_frame *posted;
    if (!base->is_up || fake->posts >= fake_posts_max) {
        fake->is_starved = true;
        return WEFT_POST_FULL;
    }
    if (fake->other == NULL) {
        return WEFT_POST_LENT; /* into the void */
    }
    posted = calloc(1, sizeof(*posted));
    assert_non_null(posted);
    posted->frame = *frame;
    posted->slice = *slice;
    posted->cookie = cookie;
    posted->crc = weft_wire_crc32c(0, slice->data, slice->len);
    weft_list_append(&fake->other->pipe, &posted->node);
    fake->posts++;
    return WEFT_POST_LENT;
}

static inline void fake_place(struct weft_lane *base, const struct weft_slice *slice)
{
    struct fake_lane *fake = fake_of(base);
    if (fake->begun != NULL && (fake->is_asked || slice->data == NULL)) {
        assert_true(slice->data == NULL || slice->len == fake->begun->frame.len);
        fake->into = *slice;
        fake->is_asked = false;
    }
}

static inline unsigned fake_forget(struct weft_lane *base, const void *cookie, bool is_there)
{
    struct fake_lane *other = fake_of(base)->other;
    unsigned count = 0;
    (void)is_there;
    for (struct weft_list *node = other != NULL ? other->pipe.next : NULL;
         node != NULL && node != &other->pipe; node = node->next) {
        struct fake_frame *frame = fake_frame_at(node);
        if (frame->cookie == cookie && !frame->has_left) {
            fake_copy(frame);
            count += !frame->is_silent;
            frame->cookie = NULL;
        }
    }
    return count;
}

static inline bool fake_replace(struct weft_lane *base, const void *cookie,
                                const struct weft_wire_data *frame)
{
    static uint8_t nothing[1];
    struct fake_lane *other = fake_of(base)->other;
    for (struct weft_list *node = other != NULL ? other->pipe.next : NULL;
         node != NULL && node != &other->pipe; node = node->next) {
        struct fake_frame *posted = fake_frame_at(node);
        if (posted->cookie == cookie && !posted->has_begun) {
            posted->frame = *frame;
            posted->slice = (struct weft_slice){nothing, frame->len};
            posted->crc = weft_wire_crc32c(0, nothing, frame->len);
            posted->cookie = NULL;
            return true;
        }
    }
    return false;
}

static inline void fake_relocate(struct weft_lane *base, void *memory)
{
    struct fake_lane *other = fake_of(base)->other;
    if (other != NULL) {
        struct fake_frame *frame = fake_frame_at(other->pipe.prev);
        frame->slice.data = frame->cookie = memory;
        frame->is_silent = true;
    }
}

static inline uint32_t fake_silent_ms(struct weft_lane *base)
{
    return fake_of(base)->silent_ms;
}

static inline bool fake_is_held(const struct weft_lane *base)
{
    return fake_of(base)->is_held;
}

static inline size_t fake_queued(const struct weft_lane *base)
{
    struct fake_lane *other = fake_of(base)->other;
    size_t count = 0;
    for (struct weft_list *node = other != NULL ? other->pipe.next : NULL;
         node != NULL && node != &other->pipe; node = node->next) {
        count += !fake_frame_at(node)->has_left;
    }
    return count;
}

/* ---- what a lane tells ---- */

static inline bool fake_tell_one(struct fake_lane *fake, struct weft_done *done)
{
    *done = (struct weft_done){.lane = &fake->lane};
    if (fake->lane.is_up && !fake->is_open_told) {
        fake->is_open_told = true;
        done->kind = WEFT_DONE_OPENED;
    } else if (fake->is_starved && fake->lane.is_up && fake->posts < fake_posts_max) {
        fake->is_starved = false;
        done->kind = WEFT_DONE_WRITABLE;
    } else if (!weft_list_is_empty(&fake->whole)) {
        struct fake_frame *frame = fake_frame_at(weft_list_take(&fake->whole));
        weft_list_append(&fake->told, &frame->node);
        done->kind = WEFT_DONE_ARRIVED;
        done->frame = frame->frame;
        done->payload = frame->owned;
    } else if (fake->begun != NULL && !fake->is_header_told) {
        fake->is_header_told = fake->is_asked = true;
        done->kind = WEFT_DONE_HEADER;
        done->frame = fake->begun->frame;
    } else if (fake->begun != NULL && fake->is_body_here) {
        done->kind = WEFT_DONE_LANDED;
        done->frame = fake->begun->frame;
        fake_frame_free(fake->begun);
        fake->begun = NULL;
        fake->is_body_here = false;
    } else if (fake->is_lost && !fake->is_lost_told) {
        fake->is_lost_told = true;
        done->kind = WEFT_DONE_LOST;
        done->status = WEFT_ERR_PEER;
        done->text = "closed the connection";
    } else {
        return false;
    }
    return true;
}

static inline unsigned fake_poll(struct weft_lane_port *base, struct weft_done *done, unsigned room)
{
    struct fake_port *port = (struct fake_port *)(void *)base;
    unsigned count = 0;
    for (struct weft_list *node = port->lanes.next; node != &port->lanes; node = node->next) {
        struct fake_lane *fake = WEFT_CONTAINER_OF(node, struct fake_lane, node);
        fake_list_empty(&fake->told, true);
        while (count < room && fake_tell_one(fake, &done[count])) {
            count++;
        }
    }
    return count;
}

static inline const _Atomic uint32_t *fake_watch(const struct weft_lane_port *port,
                                                 uint32_t *value_p)
{
    (void)port;
    (void)value_p;
    return NULL;
}

static inline bool fake_arm(struct weft_lane_port *port)
{
    (void)port;
    return true;
}

static inline void fake_disarm(struct weft_lane_port *port)
{
    (void)port;
}

static inline void fake_release(struct weft_lane *lane, uint32_t token)
{
    (void)lane;
    (void)token;
}

const struct weft_lane_ops fake_ops = {.name = "fake",
                                       .port_open = fake_port_open,
                                       .port_close = fake_port_close,
                                       .address = fake_address,
                                       .poll = fake_poll,
                                       .watch = fake_watch,
                                       .arm = fake_arm,
                                       .disarm = fake_disarm,
                                       .open = fake_open,
                                       .post = fake_post,
                                       .place = fake_place,
                                       .release = fake_release,
                                       .forget = fake_forget,
                                       .replace = fake_replace,
                                       .relocate = fake_relocate,
                                       .silent_ms = fake_silent_ms,
                                       .is_held = fake_is_held,
                                       .queued = fake_queued,
                                       .close = fake_close};

/* ---- what the test does to them ---- */

/* A lane that was dialled is up, on both sides; false: it is already. */
static inline bool fake_connect(struct fake_lane *dialled)
{
    struct fake_port *there;
    struct fake_lane *accepted;
    uint32_t nic = ((struct fake_port *)(void *)dialled->lane.port)->nic;
    if (dialled->lane.is_up || dialled->is_lost) {
        return false;
    }
    there = fake_ports[dialled->lane.peer][nic];
    accepted = fake_lane_new(there, ((struct fake_port *)(void *)dialled->lane.port)->rank,
                             dialled->lane.slot, dialled->lane.generation);
    dialled->other = accepted;
    accepted->other = dialled;
    dialled->lane.is_up = accepted->lane.is_up = true;
    return true;
}

/* The oldest frame to this lane begins to leave: its header is out. */
static inline bool fake_begin(struct fake_lane *to)
{
    for (struct weft_list *node = to->pipe.next; node != &to->pipe; node = node->next) {
        if (!fake_frame_at(node)->has_left) {
            fake_frame_at(node)->has_begun = true;
            return true;
        }
    }
    return false;
}

/* It leaves its sender's memory; false: there is none. */
static inline bool fake_leave(struct fake_lane *to)
{
    for (struct weft_list *node = to->pipe.next; node != &to->pipe; node = node->next) {
        struct fake_frame *frame = fake_frame_at(node);
        if (!frame->has_left) {
            fake_copy(frame);
            /* whether anybody needs it or not: with checksums a peer would end the link */
            if (!fake_parts_change || frame->frame.type != WEFT_DATA_PART) {
                assert_int_equal(weft_wire_crc32c(0, frame->owned, frame->slice.len), frame->crc);
            }
            frame->has_begun = frame->has_left = true;
            if (to->other != NULL) {
                to->other->posts--;
            }
            return true;
        }
    }
    return false;
}

/* The oldest frame arrives, or its header; false: none has left, or the one before is not through. */
static inline bool fake_arrive(struct fake_lane *to)
{
    struct fake_frame *frame;
    if (weft_list_is_empty(&to->pipe) || to->begun != NULL || to->is_lost || !to->is_open_told) {
        return false;
    }
    frame = fake_frame_at(to->pipe.next);
    if (!frame->has_left && !fake_leave(to)) {
        return false;
    }
    weft_list_remove(&frame->node);
    if (weft_wire_data_is_bulk(&frame->frame) || frame->frame.len > WHOLE_MAX) {
        to->begun = frame;
        to->is_header_told = to->is_body_here = false;
    } else {
        weft_list_append(&to->whole, &frame->node);
    }
    return true;
}

/* The rest of it is here; false: nobody has said where it goes, or there is none. */
static inline bool fake_body(struct fake_lane *to)
{
    if (to->begun == NULL || !to->is_header_told || to->is_asked || to->is_body_here) {
        return false;
    }
    if (to->into.data != NULL) {
        memcpy(to->into.data, to->begun->owned, to->begun->frame.len);
    }
    to->is_body_here = true;
    return true;
}

/* The next header and the next body, whichever are there. */
static inline bool fake_both(struct fake_lane *to)
{
    bool has_arrived = fake_arrive(to);
    return fake_body(to) || has_arrived;
}

/* This end learns that it is over; what was in the pipe is lost. */
static inline void fake_end(struct fake_lane *fake)
{
    fake_list_empty(&fake->pipe, true);
    if (!fake->is_body_here) {
        fake_frame_free(fake->begun);
        fake->begun = NULL;
    }
    fake->is_lost = true;
    fake->lane.is_up = false;
}

#endif
