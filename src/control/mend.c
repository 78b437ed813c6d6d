/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection between hosts may be replaced by another when its path dies (ways.c), and nobody above
 * notices: frames are counted on both sides, and kept until the neighbour has said that they came.
 *
 *   HEARTBEAT  number: so many of yours have come. Whenever it beats; sooner when much came
 *   RESUME     the same, first on a new connection; what had not come follows
 *
 * Counting begins behind the WAYS frame of each direction; HEARTBEAT, WAYS and RESUME themselves do not
 * count. Who tells a number has given up the connection before, so nothing comes twice.
 */
#include "control/internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define TELL_LEN (256u << 10) /* so much came since it was told: do not wait for the heart */
#define KEPT_LEN (64u << 10)  /* a buffer that has grown beyond it goes when it is empty */

struct weft_control_mend *weft_control_mend_open(struct weft_control *control, uint32_t rank)
{
    struct weft_control_mend *mend = calloc(1, sizeof(*mend));
    if (mend == NULL) {
        weft_log(control, WARN, "no memory to mend the connection to rank %u", rank);
        return NULL;
    }
    mend->control = control;
    mend->rank = rank;
    return mend;
}

void weft_control_mend_close(struct weft_control_mend *mend)
{
    if (mend == NULL) {
        return;
    }
    weft_net_conn_close(mend->returning);
    free(mend->kept);
    free(mend);
}

/* ---- out ---- */

static bool reserve(struct weft_control_mend *mend, size_t len)
{
    size_t room = mend->kept_room > 0 ? mend->kept_room : 4096;
    uint8_t *grown;
    if (mend->kept_start > 0 && mend->kept_start + mend->kept_len + len > mend->kept_room) {
        memmove(mend->kept, mend->kept + mend->kept_start, mend->kept_len);
        mend->kept_start = 0;
    }
    while (room < mend->kept_start + mend->kept_len + len) {
        room *= 2;
    }
    if (room == mend->kept_room) {
        return true;
    }
    grown = realloc(mend->kept, room);
    if (grown != NULL) {
        mend->kept = grown;
        mend->kept_room = room;
    }
    return grown != NULL;
}

static bool keep(struct weft_control_mend *mend, struct weft_wire_frame *frame, const void *payload,
                 size_t len)
{
    uint8_t *at;
    if (!reserve(mend, WEFT_WIRE_FRAME_LEN + len)) {
        return false;
    }
    at = mend->kept + mend->kept_start + mend->kept_len;
    frame->len = (uint32_t)len;
    weft_wire_frame_encode(frame, at);
    if (len > 0) {
        memcpy(at + WEFT_WIRE_FRAME_LEN, payload, len);
    }
    mend->kept_len += WEFT_WIRE_FRAME_LEN + len;
    mend->sent++;
    return true;
}

weft_status_t weft_control_say(struct weft_net_conn *conn, struct weft_wire_frame *frame,
                               const void *payload, size_t len)
{
    struct weft_control_mend *mend = conn->edge;
    weft_status_t status;
    if (mend == NULL || !mend->counts_out) {
        return weft_net_conn_send(conn, frame, payload, len);
    }
    if (!keep(mend, frame, payload, len)) {
        weft_net_conn_break(conn);
        return weft_fail(WEFT_ERR_MEMORY, "no memory for %zu bytes to %s", len, conn->peer_text);
    }
    if (mend->is_resuming) {
        return WEFT_OK; /* it goes when the neighbour has said what it has */
    }
    status = weft_net_conn_send(conn, frame, payload, len);
    if (status != WEFT_OK) { /* it was not said, so it does not count */
        mend->kept_len -= WEFT_WIRE_FRAME_LEN + len;
        mend->sent--;
    }
    return status;
}

static size_t kept_frame(const struct weft_control_mend *mend, size_t offset,
                         struct weft_wire_frame *frame_p)
{
    weft_status_t status = weft_wire_frame_decode(mend->kept + mend->kept_start + offset, frame_p);
    assert(status == WEFT_OK); /* it is our own */
    (void)status;
    return WEFT_WIRE_FRAME_LEN + (size_t)frame_p->len;
}

/* Is it a number between what was told before and what we sent? */
static bool is_possible(const struct weft_control_mend *mend, uint32_t number)
{
    return (int32_t)(number - mend->acked) >= 0 && (int32_t)(mend->sent - number) >= 0;
}

static void let_go(struct weft_control_mend *mend, uint32_t number)
{
    while (mend->acked != number) {
        struct weft_wire_frame frame;
        size_t size = kept_frame(mend, 0, &frame);
        mend->kept_start += size;
        mend->kept_len -= size;
        mend->acked++;
    }
    if (mend->kept_len == 0) {
        mend->kept_start = 0;
        if (mend->kept_room > KEPT_LEN) {
            free(mend->kept);
            mend->kept = NULL;
            mend->kept_room = 0;
        }
    }
}

void weft_control_mend_acked(struct weft_net_conn *conn, uint32_t number)
{
    struct weft_control_mend *mend = conn->edge;
    if (mend != NULL && mend->counts_out && is_possible(mend, number)) {
        let_go(mend, number);
    }
}

bool weft_control_mend_is_owed(const struct weft_net_conn *conn)
{
    const struct weft_control_mend *mend = conn != NULL ? conn->edge : NULL;
    return mend != NULL && mend->kept_len > 0;
}

/* ---- in ---- */

static uint32_t count_now(const struct weft_control_mend *mend)
{
    return mend != NULL && mend->counts_in ? mend->received : 0;
}

void weft_control_mend_beat(struct weft_net_conn *conn)
{
    struct weft_control_mend *mend = conn->edge;
    struct weft_control *control = conn->owner;
    struct weft_wire_frame frame = {.type = WEFT_WIRE_HEARTBEAT,
                                    .src = control->self.rank,
                                    .dst = conn->peer_rank,
                                    .number = count_now(mend)};
    if (conn == control->parent) {
        frame.comm = control->heard;
        frame.dst = control->still.rank;
        frame.flags = control->still.are_more ? WEFT_WIRE_FLAG_STILL_MORE : 0;
    } else if (!control->is_word_owed) {
        frame.flags = WEFT_WIRE_FLAG_WORD;
    }
    if (weft_net_conn_send(conn, &frame, NULL, 0) == WEFT_OK && mend != NULL) {
        mend->told = mend->received;
        mend->untold_len = 0;
    }
    weft_count(weft_engine_counters(control->engine), WEFT_COUNTER_HEARTBEATS, 1);
}

bool weft_control_mend_has_news(const struct weft_net_conn *conn)
{
    const struct weft_control_mend *mend = conn->edge;
    return mend != NULL && mend->counts_in && mend->told != mend->received;
}

void weft_control_mend_count(struct weft_net_conn *conn, const struct weft_wire_frame *frame)
{
    struct weft_control_mend *mend = conn->edge;
    if (mend == NULL || !mend->counts_in) {
        return;
    }
    mend->received++;
    mend->untold_len += WEFT_WIRE_FRAME_LEN + (size_t)frame->len;
    /* Who says good-bye waits for our word. */
    if (mend->untold_len >= TELL_LEN || frame->type == WEFT_WIRE_BYE) {
        weft_control_mend_beat(conn);
    }
}

/* ---- from one connection to the next ---- */

void weft_control_mend_move(struct weft_control_mend *mend, struct weft_net_conn *conn)
{
    conn->edge = mend;
    mend->is_resuming = true;
    mend->counts_in = true; /* the word that it would count may have been lost with the path */
}

void weft_control_mend_resume(struct weft_net_conn *conn)
{
    struct weft_control_mend *mend = conn->edge;
    struct weft_wire_frame frame = {.type = WEFT_WIRE_RESUME,
                                    .src = mend->control->self.rank,
                                    .dst = mend->rank,
                                    .number = mend->received};
    mend->told = mend->received;
    mend->untold_len = 0;
    weft_net_conn_send(conn, &frame, NULL, 0);
}

bool weft_control_mend_resumed(struct weft_net_conn *conn, uint32_t number)
{
    struct weft_control_mend *mend = conn->edge;
    if (mend == NULL || !mend->is_resuming || !is_possible(mend, number)) {
        return false;
    }
    let_go(mend, number);
    mend->is_resuming = false;
    weft_net_conn_cork(conn);
    for (size_t offset = 0; offset < mend->kept_len;) {
        struct weft_wire_frame frame;
        size_t size = kept_frame(mend, offset, &frame);
        const uint8_t *payload = mend->kept + mend->kept_start + offset + WEFT_WIRE_FRAME_LEN;
        if (weft_net_conn_send(conn, &frame, payload, frame.len) != WEFT_OK) {
            return false;
        }
        offset += size;
    }
    weft_net_conn_uncork(conn);
    return true;
}
