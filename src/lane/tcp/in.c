/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames in. One system call per look: into the lane's buffer, or, in the middle of a long payload,
 * straight into the memory place() gave, with the buffer behind it for the header that follows. A
 * frame that lies wholly in the buffer is told with its payload where it lies; the buffer is left
 * as it is until the next look, because what was told points into it.
 *
 * A payload that is not whole yet is asked about (HEADER), unless it is short: the rest of those is
 * waited for in the buffer, which costs less than a question. Bulk is always asked about: it may have
 * come by another lane already.
 */
#include "lane/tcp/tcp.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define WAITED_FOR_MAX 2048
static_assert(WAITED_FOR_MAX + WEFT_WIRE_DATA_LEN <= WEFT_LANE_TCP_IN_LEN, "it fits");

static size_t lying_in(const struct weft_lane_tcp *lane)
{
    return lane->in_end - lane->in_start;
}

/* ---- reading ---- */

static void note_end(struct weft_lane_tcp *lane, int error)
{
    char text[96];
    error = error == 0 ? lane->out_error : error;
    if (error == 0) {
        weft_lane_tcp_lose(lane, WEFT_ERR_PEER, "closed the connection");
    } else if (error == ECONNRESET || error == EPIPE) {
        weft_lane_tcp_lose(lane, WEFT_ERR_PEER, "closed the connection (reset)");
    } else {
        snprintf(text, sizeof(text), "%s", strerror(error));
        weft_lane_tcp_lose(lane, WEFT_ERR_NETWORK, text);
    }
}

/* What one receive gave; false: nothing. `room`: what it could have given. */
static bool note_received(struct weft_lane_tcp *lane, ssize_t got, size_t room)
{
    if (got > 0) {
        lane->has_more = (size_t)got == room; /* the socket has more, it seems */
        if (lane->seal != NULL) {
            lane->has_more |= weft_lane_tcp_seal_has_more(lane);
        }
        return true;
    }
    if (got == 0) {
        note_end(lane, 0);
    } else if (errno != EAGAIN && errno != ENOMEM && errno != ENOBUFS) {
        note_end(lane, errno);
    }
    return false;
}

static void note_placed(struct weft_lane_tcp *lane, size_t len)
{
    if ((lane->frame.flags & WEFT_DATA_CHECKED) != 0) {
        lane->crc = weft_wire_crc32c(lane->crc, lane->into, len);
    }
    lane->into += len;
    lane->left -= len;
}

static ssize_t read_message(struct weft_lane_tcp *lane, struct msghdr *message)
{
    ssize_t got;
    if (lane->seal != NULL) {
        return weft_lane_tcp_seal_receive(lane, message->msg_iov, (unsigned)message->msg_iovlen);
    }
    do {
        got = recvmsg(lane->source.fd, message, MSG_DONTWAIT);
    } while (got < 0 && errno == EINTR);
    return got;
}

static ssize_t read_bytes(struct weft_lane_tcp *lane, void *into, size_t room)
{
    ssize_t got;
    if (lane->seal != NULL) {
        return weft_lane_tcp_seal_receive(lane, &(struct iovec){into, room}, 1);
    }
    do {
        got = recv(lane->source.fd, into, room, MSG_DONTWAIT);
    } while (got < 0 && errno == EINTR);
    return got;
}

/* Nothing lies in the buffer: the payload has taken it all. */
static bool receive_placed(struct weft_lane_tcp *lane)
{
    size_t direct = lane->left < WEFT_LANE_TCP_IO_MAX ? lane->left : WEFT_LANE_TCP_IO_MAX;
    bool is_rest = direct == lane->left;
    struct iovec iov[2] = {{lane->into, direct}, {lane->in, sizeof(lane->in)}};
    struct msghdr message = {.msg_iov = iov, .msg_iovlen = is_rest ? 2 : 1};
    size_t room = direct + (is_rest ? sizeof(lane->in) : 0);
    ssize_t got = read_message(lane, &message);
    if (!note_received(lane, got, room)) {
        return false;
    }
    if ((size_t)got > direct) {
        lane->in_start = 0;
        lane->in_end = (uint32_t)((size_t)got - direct);
        got = (ssize_t)direct;
    }
    note_placed(lane, (size_t)got);
    return true;
}

static bool receive_buffered(struct weft_lane_tcp *lane)
{
    size_t room;
    ssize_t got;
    if (lane->in_start > 0) {
        memmove(lane->in, lane->in + lane->in_start, lying_in(lane));
        lane->in_end -= lane->in_start;
        lane->in_start = 0;
    }
    room = sizeof(lane->in) - lane->in_end;
    got = read_bytes(lane, lane->in + lane->in_end, room);
    if (!note_received(lane, got, room)) {
        return false;
    }
    lane->in_end += (uint32_t)got;
    return true;
}

/* ---- taking frames out of what was read; each returns whether there may be another ---- */

static bool lose_damaged(struct weft_lane_tcp *lane, const struct weft_wire_data *frame)
{
    char text[96];
    snprintf(text, sizeof(text), "payload damaged on its way: %u bytes, crc32c", frame->len);
    weft_lane_tcp_lose(lane, WEFT_ERR_PROTOCOL, text);
    return false;
}

static bool tell_landed(struct weft_lane_tcp *lane, struct weft_lane_tcp_tell *tell)
{
    bool is_checked =
        lane->reading == WEFT_LANE_TCP_PLACING && (lane->frame.flags & WEFT_DATA_CHECKED) != 0;
    if (is_checked && lane->crc != lane->frame.payload_crc) {
        return lose_damaged(lane, &lane->frame);
    }
    lane->reading = WEFT_LANE_TCP_HEADER;
    lane->into = NULL;
    weft_lane_tcp_tell(tell, lane, WEFT_DONE_LANDED)->frame = lane->frame;
    return true;
}

static bool sink(struct weft_lane_tcp *lane, struct weft_lane_tcp_tell *tell)
{
    size_t len = lying_in(lane) < lane->left ? lying_in(lane) : lane->left;
    lane->in_start += (uint32_t)len;
    lane->left -= len;
    return lane->left == 0 && tell_landed(lane, tell);
}

/* The dialler's first frame opens the lane; nothing else may be the first. */
static bool take_greeting(struct weft_lane_tcp *lane, const struct weft_wire_data *frame,
                          struct weft_lane_tcp_tell *tell)
{
    if (frame->type != WEFT_DATA_ACK || frame->len != 0 || frame->tag > UINT16_MAX) {
        weft_lane_tcp_lose(lane, WEFT_ERR_PROTOCOL, "did not begin with a greeting");
        return false;
    }
    lane->in_start += WEFT_WIRE_DATA_LEN;
    lane->lane.slot = (uint16_t)frame->tag;
    lane->lane.generation = frame->seq;
    lane->state = WEFT_LANE_TCP_UP;
    lane->lane.is_up = lane->is_known = true;
    weft_lane_tcp_tell(tell, lane, WEFT_DONE_OPENED);
    return true;
}

static bool take_whole(struct weft_lane_tcp *lane, const struct weft_wire_data *frame,
                       struct weft_lane_tcp_tell *tell)
{
    const uint8_t *payload = lane->in + lane->in_start + WEFT_WIRE_DATA_LEN;
    struct weft_done *done;
    if ((frame->flags & WEFT_DATA_CHECKED) != 0 &&
        weft_wire_crc32c(0, payload, frame->len) != frame->payload_crc) {
        return lose_damaged(lane, frame);
    }
    lane->in_start += WEFT_WIRE_DATA_LEN + frame->len;
    done = weft_lane_tcp_tell(tell, lane, WEFT_DONE_ARRIVED);
    done->frame = *frame;
    done->payload = payload;
    return true;
}

static bool take_frame(struct weft_lane_tcp *lane, struct weft_lane_tcp_tell *tell)
{
    struct weft_wire_data frame;
    if (lying_in(lane) < WEFT_WIRE_DATA_LEN) {
        return false;
    }
    if (weft_wire_data_decode(lane->in + lane->in_start, &frame) != WEFT_OK) {
        weft_lane_tcp_lose(lane, WEFT_ERR_PROTOCOL, weft_error_text());
        return false;
    }
    if (lane->state == WEFT_LANE_TCP_GREETING) {
        return take_greeting(lane, &frame, tell);
    }
    if (!weft_wire_data_is_bulk(&frame) && lying_in(lane) - WEFT_WIRE_DATA_LEN >= frame.len) {
        return take_whole(lane, &frame, tell);
    }
    if (frame.len > WAITED_FOR_MAX || weft_wire_data_is_bulk(&frame)) {
        lane->in_start += WEFT_WIRE_DATA_LEN;
        lane->frame = frame;
        lane->reading = WEFT_LANE_TCP_ASKED;
        weft_lane_tcp_tell(tell, lane, WEFT_DONE_HEADER)->frame = frame;
    }
    return false;
}

static bool take_next(struct weft_lane_tcp *lane, struct weft_lane_tcp_tell *tell)
{
    switch (lane->reading) {
    case WEFT_LANE_TCP_HEADER:
        return take_frame(lane, tell);
    case WEFT_LANE_TCP_PLACING:
        return lane->left == 0 && tell_landed(lane, tell);
    case WEFT_LANE_TCP_SINKING:
        return sink(lane, tell);
    case WEFT_LANE_TCP_ASKED:
        break;
    }
    return false;
}

/* Tells until nothing whole is left, or no room: then it goes on with the next poll. */
static void take(struct weft_lane_tcp *lane, struct weft_lane_tcp_tell *tell)
{
    while (weft_lane_tcp_can_tell(tell)) {
        if (!take_next(lane, tell)) {
            return;
        }
    }
    lane->has_more = true;
}

bool weft_lane_tcp_receive(struct weft_lane_tcp *lane, struct weft_lane_tcp_tell *tell)
{
    unsigned told = tell->count;
    bool has_come;
    if (lane->has_more) {
        lane->has_more = false;
        take(lane, tell);
        if (tell->count > told || lane->state == WEFT_LANE_TCP_LOST) {
            lane->has_more |= lane->state != WEFT_LANE_TCP_LOST;
            return true; /* what was told points into the buffer: it is not read into now */
        }
    }
    if (lane->reading == WEFT_LANE_TCP_ASKED || !weft_lane_tcp_can_tell(tell)) {
        return false;
    }
    has_come =
        lane->reading == WEFT_LANE_TCP_PLACING ? receive_placed(lane) : receive_buffered(lane);
    if (has_come) {
        take(lane, tell);
    }
    return has_come;
}

void weft_lane_tcp_place(struct weft_lane *base, const struct weft_slice *slice)
{
    struct weft_lane_tcp *lane = weft_lane_tcp_of(base);
    size_t len = lying_in(lane);
    if (lane->reading == WEFT_LANE_TCP_PLACING && slice->data == NULL) {
        lane->reading = WEFT_LANE_TCP_SINKING; /* the memory is wanted back */
        lane->into = NULL;
        return;
    }
    if (lane->reading != WEFT_LANE_TCP_ASKED || lane->state == WEFT_LANE_TCP_LOST) {
        return;
    }
    len = len < lane->frame.len ? len : lane->frame.len;
    lane->left = lane->frame.len;
    lane->crc = 0;
    if (slice->data == NULL) {
        lane->reading = WEFT_LANE_TCP_SINKING;
        lane->left -= len;
    } else {
        assert(slice->len == lane->frame.len);
        lane->reading = WEFT_LANE_TCP_PLACING;
        lane->into = slice->data;
        if (len > 0) {
            memcpy(lane->into, lane->in + lane->in_start, len);
        }
        note_placed(lane, len);
    }
    lane->in_start += (uint32_t)len;
    lane->has_more |= lane->left == 0;
    weft_lane_tcp_make_ready(lane, 0); /* the rest is likely there already */
}
