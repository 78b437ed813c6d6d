/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sealed lanes (WEFT_SECURITY above auth): the stream of frames travels in records, see wire/record.c. Above
 * this file nothing changes: out.c's posts are sealed instead of written, in.c reads bytes that are already
 * proved to be the peer's, in their order. So no header is believed and no byte placed before its tag was right.
 *
 *   posts --seal--> out: whole records, kept until the socket took them --send-->
 *   --recv--> in: records as they come --open--> where in.c wants the bytes
 *
 * A post's memory is free again when it is sealed. Short frames share records; a long payload has records of its
 * own, so that the other side can open them straight into the memory it was asked for. Records that do not fit
 * where in.c reads to are opened where they lie, and taken from there piece by piece.
 */
#include "lane/tcp/tcp.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

/* Gathered in one record: so much fits into in.c's buffer beside what is left there. */
#define SHORT_MAX ((size_t)WEFT_LANE_TCP_IN_LEN / 2)
#define BUFFER_LEN                                                                                 \
    (4 * (WEFT_WIRE_RECORD_MAX + WEFT_WIRE_RECORD_HEAD_LEN + WEFT_WIRE_RECORD_TAG_LEN))
static_assert(SHORT_MAX <= WEFT_WIRE_RECORD_MAX, "a record holds it");

struct weft_lane_tcp_seal {
    struct weft_wire_sealer sender, receiver;
    uint32_t out_start, out_end;     /* sealed, not written */
    uint32_t in_start, in_end;       /* read, not opened */
    uint32_t plain_start, plain_end; /* of `in`, opened, not taken */
    bool has_more;                   /* the latest receive filled all there was */
    uint8_t out[BUFFER_LEN], in[BUFFER_LEN];
};

weft_status_t weft_lane_tcp_seal_open(struct weft_lane_tcp *lane, const uint8_t *send_key,
                                      const uint8_t *recv_key, bool is_aes)
{
    struct weft_lane_tcp_seal *seal = weft_secret_map(sizeof(*seal));
    if (seal == NULL) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory for a sealed lane");
    }
    weft_wire_sealer_open(&seal->sender, send_key, lane->security, is_aes);
    weft_wire_sealer_open(&seal->receiver, recv_key, lane->security, is_aes);
    weft_secret_scrub_stack();
    lane->seal = seal;
    return WEFT_OK;
}

void weft_lane_tcp_seal_close(struct weft_lane_tcp *lane)
{
    weft_secret_unmap(lane->seal, sizeof(*lane->seal));
    lane->seal = NULL;
}

/* ---- out ---- */

/* Copies whole short frames, and the header of a long one, behind each other; returns how many bytes. */
static size_t gather(struct weft_lane_tcp *lane, uint8_t *into, size_t room)
{
    size_t len = 0;
    for (uint32_t i = lane->next; i != lane->tail; i++) {
        const struct weft_lane_tcp_post *post = weft_lane_tcp_post_at(lane, i);
        size_t payload_len = post->slice.len;
        bool is_short = sizeof(post->header) + payload_len <= SHORT_MAX;
        size_t part = sizeof(post->header) + (is_short ? payload_len : 0);
        if (part > room - len) {
            break;
        }
        memcpy(into + len, post->header, sizeof(post->header));
        if (is_short && payload_len > 0) {
            memcpy(into + len + sizeof(post->header), post->slice.data, payload_len);
        }
        len += part;
        if (!is_short) {
            break;
        }
    }
    return len;
}

/* Seals what fits into one record; false: there is nothing, or no room. */
static bool seal_next(struct weft_lane_tcp *lane)
{
    struct weft_lane_tcp_seal *seal = lane->seal;
    uint8_t *record = seal->out + seal->out_end;
    size_t room = sizeof(seal->out) - seal->out_end, len;
    const struct weft_lane_tcp_post *post = weft_lane_tcp_post_at(lane, lane->next);
    if (lane->next == lane->tail || room < weft_wire_record_len(SHORT_MAX)) {
        return false;
    }
    room -= weft_wire_record_len(0);
    if (post->written == 0) {
        uint8_t *bytes = record + WEFT_WIRE_RECORD_HEAD_LEN;
        len = gather(lane, bytes, room < SHORT_MAX ? room : SHORT_MAX);
        seal->out_end += (uint32_t)weft_wire_record_seal(&seal->sender, bytes, len, record);
    } else {
        size_t done = post->written - sizeof(post->header);
        len = post->slice.len - done;
        len = len < WEFT_WIRE_RECORD_MAX ? len : WEFT_WIRE_RECORD_MAX;
        if (len > room) {
            return false;
        }
        seal->out_end += (uint32_t)weft_wire_record_seal(
            &seal->sender, (const uint8_t *)post->slice.data + done, len, record);
    }
    weft_lane_tcp_advance(lane, len);
    return true;
}

/* false: the socket did not take all. */
static bool write_sealed(struct weft_lane_tcp *lane)
{
    struct weft_lane_tcp_seal *seal = lane->seal;
    size_t len = seal->out_end - seal->out_start;
    ssize_t sent;
    do {
        sent = send(lane->source.fd, seal->out + seal->out_start, len, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (sent < 0 && errno == EINTR);
    len = weft_lane_tcp_note_sent(lane, sent);
    if (lane->state == WEFT_LANE_TCP_LOST) {
        return false; /* and the seal is gone */
    }
    seal->out_start += (uint32_t)len;
    if (seal->out_start < seal->out_end) {
        return false;
    }
    seal->out_start = seal->out_end = 0;
    return true;
}

size_t weft_lane_tcp_seal_queued(const struct weft_lane_tcp *lane)
{
    return lane->seal->out_end - lane->seal->out_start;
}

bool weft_lane_tcp_seal_flush(struct weft_lane_tcp *lane)
{
    struct weft_lane_tcp_seal *seal = lane->seal;
    size_t done = 0;
    while (done < WEFT_LANE_TCP_IO_MAX && lane->out_error == 0) {
        if (seal->out_start == 0) { /* else room is made first, at once */
            while (seal_next(lane)) {
            }
        }
        if (seal->out_start == seal->out_end) {
            return true;
        }
        done += weft_lane_tcp_seal_queued(lane);
        if (!write_sealed(lane)) {
            return false;
        }
    }
    return false;
}

/* ---- in ---- */

/* Where the caller reads to: pieces of memory, filled one after the other. */
struct target {
    struct iovec *iov;
    unsigned count;
    size_t filled, total; /* of the first piece; of all */
};

static size_t target_room(struct target *target)
{
    while (target->count > 0 && target->filled == target->iov->iov_len) {
        target->iov++;
        target->count--;
        target->filled = 0;
    }
    return target->count > 0 ? target->iov->iov_len - target->filled : 0;
}

static uint8_t *target_take(struct target *target, size_t len)
{
    uint8_t *place = (uint8_t *)target->iov->iov_base + target->filled;
    target->filled += len;
    target->total += len;
    return place;
}

static void take_plain(struct weft_lane_tcp_seal *seal, struct target *target)
{
    size_t len = seal->plain_end - seal->plain_start, room = target_room(target);
    len = len < room ? len : room;
    memcpy(target_take(target, len), seal->in + seal->plain_start, len);
    seal->plain_start += (uint32_t)len;
}

/* A record is wrong. What came before it is the peer's and is told first: then this one is met again. */
static void lose_at(struct weft_lane_tcp *lane, const struct target *target)
{
    if (target->total == 0) {
        weft_lane_tcp_lose(lane, WEFT_ERR_PROTOCOL, weft_error_text());
    }
}

/* Is a whole record there? *len_p: what it gives. */
static bool has_record(struct weft_lane_tcp *lane, const struct target *target, size_t *len_p)
{
    const struct weft_lane_tcp_seal *seal = lane->seal;
    size_t lying = seal->in_end - seal->in_start;
    if (lying < WEFT_WIRE_RECORD_HEAD_LEN) {
        return false;
    }
    if (weft_wire_record_peek(seal->in + seal->in_start, len_p) != WEFT_OK) {
        lose_at(lane, target);
        return false;
    }
    return lying >= weft_wire_record_len(*len_p);
}

static bool open_record(struct weft_lane_tcp *lane, size_t len, struct target *target)
{
    struct weft_lane_tcp_seal *seal = lane->seal;
    uint8_t *record = seal->in + seal->in_start;
    bool is_direct = len <= target_room(target);
    uint8_t *out = is_direct ? (uint8_t *)target->iov->iov_base + target->filled
                             : record + WEFT_WIRE_RECORD_HEAD_LEN;
    if (weft_wire_record_open(&seal->receiver, record, len, out) != WEFT_OK) {
        lose_at(lane, target);
        return false;
    }
    if (is_direct) {
        target_take(target, len);
    } else {
        seal->plain_start = (uint32_t)(out - seal->in);
        seal->plain_end = seal->plain_start + (uint32_t)len;
    }
    seal->in_start += (uint32_t)weft_wire_record_len(len);
    return true;
}

/* Opens what is whole. Where a record does not fit, the caller first looks at what it has got: it may know a
 * better place then. */
static void open_all(struct weft_lane_tcp *lane, struct target *target)
{
    struct weft_lane_tcp_seal *seal = lane->seal;
    size_t len;
    while (target_room(target) > 0) {
        if (seal->plain_start < seal->plain_end) {
            take_plain(seal, target);
        } else if (!has_record(lane, target, &len) ||
                   (target->total > 0 && len > target_room(target)) ||
                   !open_record(lane, len, target)) {
            return;
        }
    }
}

/* Nothing whole is there: what is left moves to the front. */
static ssize_t refill(struct weft_lane_tcp *lane)
{
    struct weft_lane_tcp_seal *seal = lane->seal;
    size_t lying = seal->in_end - seal->in_start, room = sizeof(seal->in) - lying;
    ssize_t got;
    assert(room > 0 && seal->plain_start == seal->plain_end);
    memmove(seal->in, seal->in + seal->in_start, lying);
    seal->in_start = 0;
    seal->in_end = (uint32_t)lying;
    do {
        got = recv(lane->source.fd, seal->in + lying, room, MSG_DONTWAIT);
    } while (got < 0 && errno == EINTR);
    seal->in_end += got > 0 ? (uint32_t)got : 0;
    seal->has_more = got == (ssize_t)room;
    return got;
}

/* Whole records are opened before an end is seen. */
ssize_t weft_lane_tcp_seal_receive(struct weft_lane_tcp *lane, struct iovec *iov, unsigned count)
{
    struct target target = {.iov = iov, .count = count};
    ssize_t got;
    open_all(lane, &target);
    if (target.total == 0 && lane->state != WEFT_LANE_TCP_LOST) {
        got = refill(lane);
        if (got <= 0) {
            return got;
        }
        open_all(lane, &target);
    }
    if (target.total == 0) {
        errno = EAGAIN;
        return -1;
    }
    return (ssize_t)target.total;
}

bool weft_lane_tcp_seal_has_more(const struct weft_lane_tcp *lane)
{
    const struct weft_lane_tcp_seal *seal = lane->seal;
    size_t lying = seal->in_end - seal->in_start, len = 0;
    return seal->has_more || seal->plain_start < seal->plain_end ||
           (lying >= WEFT_WIRE_RECORD_HEAD_LEN &&
            (weft_wire_record_peek(seal->in + seal->in_start, &len) != WEFT_OK ||
             lying >= weft_wire_record_len(len)));
}
