/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames out. A post is written where it stands, header and user memory in one system call; what
 * the socket does not take waits in a ring of fixed length, in order. A ring entry is free again
 * when its SENT was told.
 *
 *   head            next            tail
 *    | written, to tell | to be written |
 *
 * With MSG_ZEROCOPY the kernel reads header and memory later: such posts always stand in the ring,
 * until the error queue says that every system call that carried a part of them is done.
 *
 * Where payloads are checked, answers to gets are copied first (copies.c).
 *
 * A peer that is gone is not noticed here: what it said before it went may still be unread, and
 * reading finds the end.
 */
#include "lane/tcp/tcp.h"

#include <assert.h>
#include <errno.h>
#include <linux/errqueue.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define IOVECS 16
#define SMALL_LEN 512 /* copied behind the header: one plain send is cheaper than a gathering one */

static size_t total_len(const struct weft_lane_tcp_post *post)
{
    return sizeof(post->header) + post->slice.len;
}

size_t weft_lane_tcp_note_sent(struct weft_lane_tcp *lane, ssize_t sent)
{
    if (sent >= 0) {
        return (size_t)sent;
    }
    if (errno == EPIPE || errno == ECONNRESET) {
        lane->out_error = errno; /* epoll tells of it too */
    } else if (errno != EAGAIN && errno != ENOBUFS && errno != ENOMEM) {
        weft_lane_tcp_lose(lane, WEFT_ERR_NETWORK, strerror(errno));
    }
    return 0;
}

/* Adds what is left of a post, at most `room` bytes; returns how many iovecs. */
static unsigned gather(struct weft_lane_tcp_post *post, struct iovec *iov, size_t room)
{
    size_t skip = post->written, len;
    unsigned count = 0;
    if (skip < sizeof(post->header)) {
        len = sizeof(post->header) - skip;
        iov[count++] = (struct iovec){post->header + skip, len};
        room -= len < room ? len : room;
        skip = 0;
    } else {
        skip -= sizeof(post->header);
    }
    len = post->slice.len - skip;
    len = len < room ? len : room;
    if (len > 0) {
        iov[count++] = (struct iovec){(uint8_t *)post->slice.data + skip, len};
    }
    return count;
}

static size_t write_iovecs(struct weft_lane_tcp *lane, struct iovec *iov, unsigned count, int flags)
{
    struct msghdr message = {.msg_iov = iov, .msg_iovlen = count};
    ssize_t sent;
    do {
        sent = sendmsg(lane->source.fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT | flags);
    } while (sent < 0 && errno == EINTR);
    if (sent < 0 && flags != 0) {
        return 0; /* the caller tries without */
    }
    return weft_lane_tcp_note_sent(lane, sent);
}

/* One post by itself, not yet in the ring. */
static size_t write_one(struct weft_lane_tcp *lane, struct weft_lane_tcp_post *post)
{
    uint8_t small[sizeof(post->header) + SMALL_LEN];
    struct iovec iov[2];
    ssize_t sent;
    if (post->slice.len > SMALL_LEN) {
        return write_iovecs(lane, iov, gather(post, iov, WEFT_LANE_TCP_IO_MAX), 0);
    }
    memcpy(small, post->header, sizeof(post->header));
    if (post->slice.len > 0) {
        memcpy(small + sizeof(post->header), post->slice.data, post->slice.len);
    }
    do {
        sent = send(lane->source.fd, small, total_len(post), MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (sent < 0 && errno == EINTR);
    return weft_lane_tcp_note_sent(lane, sent);
}

void weft_lane_tcp_advance(struct weft_lane_tcp *lane, size_t sent)
{
    lane->queued -= sent;
    while (sent > 0) {
        struct weft_lane_tcp_post *post = weft_lane_tcp_post_at(lane, lane->next);
        size_t part = total_len(post) - post->written;
        part = part < sent ? part : sent;
        post->written += part;
        sent -= part;
        if (post->written < total_len(post)) {
            return;
        }
        lane->next++;
    }
}

/* false: the kernel would not (too much pinned already): it is sent the plain way. */
static bool write_zerocopy(struct weft_lane_tcp *lane, struct weft_lane_tcp_post *post)
{
    struct iovec iov[2];
    size_t sent = write_iovecs(lane, iov, gather(post, iov, WEFT_LANE_TCP_IO_MAX), MSG_ZEROCOPY);
    if (sent == 0) {
        return errno == EAGAIN;
    }
    if (post->zero_count == 0) {
        post->zero_first = lane->zero_sent;
    }
    post->zero_count++;
    post->zero_left++;
    lane->zero_sent++;
    weft_lane_tcp_advance(lane, sent);
    return true;
}

/* Posts up to the next one that wants zero copy, in one call. */
static void write_gathered(struct weft_lane_tcp *lane)
{
    struct iovec iov[IOVECS];
    unsigned count = 0;
    size_t room = WEFT_LANE_TCP_IO_MAX;
    for (uint32_t i = lane->next; i != lane->tail && count + 2 <= IOVECS && room > 0; i++) {
        struct weft_lane_tcp_post *post = weft_lane_tcp_post_at(lane, i);
        unsigned more;
        if (post->is_zerocopy && i != lane->next) {
            break;
        }
        more = gather(post, iov + count, room);
        for (; more > 0; more--, count++) {
            room -= iov[count].iov_len < room ? iov[count].iov_len : room;
        }
    }
    weft_lane_tcp_advance(lane, write_iovecs(lane, iov, count, 0));
}

void weft_lane_tcp_flush(struct weft_lane_tcp *lane)
{
    struct weft_lane_tcp_post *post = weft_lane_tcp_post_at(lane, lane->next);
    if (weft_lane_tcp_queued(&lane->lane) == 0 || lane->out_error != 0) {
        /* Only now: a stream that fills the socket again and again need not ask each time. */
        weft_engine_want(weft_lane_tcp_port_of(lane->lane.port)->spec.engine, &lane->source,
                         EPOLLIN);
        return;
    }
    if (lane->seal != NULL) {
        weft_lane_tcp_seal_flush(lane);
        return;
    }
    if (!post->is_zerocopy || !write_zerocopy(lane, post)) {
        write_gathered(lane);
    }
}

static void want_out(struct weft_lane_tcp *lane)
{
    weft_engine_want(weft_lane_tcp_port_of(lane->lane.port)->spec.engine, &lane->source,
                     EPOLLIN | EPOLLOUT);
}

/* false: an answer that must be copied, and there is no room. */
static bool fill(struct weft_lane_tcp *lane, struct weft_lane_tcp_post *post,
                 const struct weft_wire_data *frame, const struct weft_slice *slice)
{
    assert(frame->len == slice->len);
    post->slice = *slice;
    /* Messages that go ahead are kept by the link, and their memory is given back at once. */
    post->is_zerocopy = frame->type != WEFT_DATA_EAGER && slice->len >= lane->zerocopy_min;
    if (lane->is_checked && slice->len > 0) {
        struct weft_wire_data checked = *frame;
        if (frame->type == WEFT_DATA_PART && !weft_lane_tcp_copies_add(lane, post)) {
            return false;
        }
        checked.flags |= WEFT_DATA_CHECKED;
        checked.payload_crc = weft_wire_crc32c(0, post->slice.data, slice->len);
        weft_wire_data_encode(&checked, post->header);
    } else {
        weft_wire_data_encode(frame, post->header);
    }
    return true;
}

/* The next free entry of the ring, filled; not yet part of it. NULL: no room for what it needs besides. */
static struct weft_lane_tcp_post *prepare(struct weft_lane_tcp *lane,
                                          const struct weft_wire_data *frame,
                                          const struct weft_slice *slice, void *cookie)
{
    struct weft_lane_tcp_post *post = weft_lane_tcp_post_at(lane, lane->tail);
    post->cookie = cookie;
    post->owned = NULL;
    post->copied = 0;
    post->written = 0;
    post->is_silent = false;
    post->zero_count = post->zero_left = 0;
    return fill(lane, post, frame, slice) ? post : NULL;
}

/* Like send_or_keep: what is sealed is out of the ring. */
static enum weft_post seal_or_keep(struct weft_lane_tcp *lane,
                                   const struct weft_lane_tcp_post *post)
{
    bool is_first = lane->next == lane->tail;
    lane->queued += total_len(post);
    lane->tail++;
    if (!is_first || !weft_lane_tcp_seal_flush(lane)) {
        if (lane->state == WEFT_LANE_TCP_LOST) {
            return WEFT_POST_LENT;
        }
        want_out(lane);
    }
    if (!is_first || lane->next != lane->tail) {
        return WEFT_POST_LENT;
    }
    lane->next = --lane->tail;
    return WEFT_POST_SENT;
}

static enum weft_post send_or_keep(struct weft_lane_tcp *lane, struct weft_lane_tcp_post *post)
{
    size_t sent = 0;
    if (lane->seal != NULL) {
        return seal_or_keep(lane, post);
    }
    if (lane->next == lane->tail && !post->is_zerocopy) {
        sent = write_one(lane, post);
        if (sent == total_len(post)) {
            lane->copies_tail -= post->copied;
            return WEFT_POST_SENT;
        }
    }
    lane->queued += total_len(post);
    lane->tail++;
    weft_lane_tcp_advance(lane, sent);
    if (post->is_zerocopy && lane->next + 1 == lane->tail) {
        weft_lane_tcp_flush(lane);
    }
    if (lane->next != lane->tail) {
        want_out(lane);
    }
    return WEFT_POST_LENT;
}

enum weft_post weft_lane_tcp_post(struct weft_lane *base, const struct weft_wire_data *frame,
                                  const struct weft_slice *slice, void *cookie)
{
    struct weft_lane_tcp *lane = weft_lane_tcp_of(base);
    struct weft_lane_tcp_post *post;
    if (!base->is_up || lane->tail - lane->head == WEFT_LANE_TCP_POSTS) {
        lane->is_starved = true;
        return WEFT_POST_FULL;
    }
    post = prepare(lane, frame, slice, cookie);
    if (post == NULL) {
        lane->is_starved = true;
        lane->lacked = slice->len;
        return WEFT_POST_FULL;
    }
    return send_or_keep(lane, post);
}

void weft_lane_tcp_greet(struct weft_lane_tcp *lane)
{
    const struct weft_wire_data ack = {
        .type = WEFT_DATA_ACK, .tag = lane->lane.slot, .seq = lane->lane.generation};
    const struct weft_slice nothing = {NULL, 0};
    struct weft_lane_tcp_post *post = prepare(lane, &ack, &nothing, NULL);
    post->is_silent = true;
    send_or_keep(lane, post);
}

/* ---- what was sent ---- */

/* Calls number first … last are done. */
static void note_zero_done(struct weft_lane_tcp *lane, uint32_t first, uint32_t last)
{
    lane->zero_done += last - first + 1;
    for (uint32_t i = lane->head; i != lane->tail; i++) {
        struct weft_lane_tcp_post *post = weft_lane_tcp_post_at(lane, i);
        /* relative to the post's own first call: numbers wrap */
        int64_t from = (int32_t)(first - post->zero_first);
        int64_t to = (int32_t)(last - post->zero_first);
        if (post->zero_left == 0) {
            continue;
        }
        from = from > 0 ? from : 0;
        to = to < post->zero_count ? to : (int64_t)post->zero_count - 1;
        post->zero_left -= to >= from ? (uint32_t)(to - from + 1) : 0;
    }
}

static bool reap_one(struct weft_lane_tcp *lane)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(struct sock_extended_err) + sizeof(struct sockaddr_in6))];
    } control;
    struct msghdr message = {.msg_control = &control, .msg_controllen = sizeof(control)};
    struct sock_extended_err error;
    const struct cmsghdr *part;
    if (recvmsg(lane->source.fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) {
        return errno == EINTR;
    }
    part = CMSG_FIRSTHDR(&message);
    if (part == NULL || part->cmsg_len < CMSG_LEN(sizeof(error))) {
        return true;
    }
    memcpy(&error, CMSG_DATA(part), sizeof(error));
    if (error.ee_origin == SO_EE_ORIGIN_ZEROCOPY) {
        note_zero_done(lane, error.ee_info, error.ee_data);
        if (error.ee_code == SO_EE_CODE_ZEROCOPY_COPIED) {
            lane->zerocopy_min = SIZE_MAX; /* it copied after all: asking for more only costs */
        }
    }
    return true;
}

void weft_lane_tcp_reap(struct weft_lane_tcp *lane)
{
    while (lane->zero_done != lane->zero_sent && reap_one(lane)) {
    }
}

bool weft_lane_tcp_tell_sent(struct weft_lane_tcp *lane, struct weft_lane_tcp_tell *tell)
{
    while (lane->head != lane->next && weft_lane_tcp_post_at(lane, lane->head)->zero_left == 0) {
        struct weft_lane_tcp_post *post = weft_lane_tcp_post_at(lane, lane->head);
        if (!post->is_silent) {
            if (!weft_lane_tcp_can_tell(tell)) {
                return true;
            }
            weft_lane_tcp_tell(tell, lane, WEFT_DONE_SENT)->cookie = post->cookie;
        }
        free(post->owned);
        lane->copies_head += post->copied;
        lane->head++;
    }
    if (lane->is_starved && lane->lane.is_up && lane->tail - lane->head < WEFT_LANE_TCP_POSTS &&
        (lane->lacked == 0 || weft_lane_tcp_copies_fit(lane))) {
        if (!weft_lane_tcp_can_tell(tell)) {
            return true;
        }
        lane->is_starved = false;
        lane->lacked = 0;
        weft_lane_tcp_tell(tell, lane, WEFT_DONE_WRITABLE);
    }
    return false;
}

void weft_lane_tcp_drop_posts(struct weft_lane_tcp *lane)
{
    for (; lane->head != lane->tail; lane->head++) {
        free(weft_lane_tcp_post_at(lane, lane->head)->owned);
    }
    lane->next = lane->tail;
    lane->copies_head = lane->copies_tail;
    lane->queued = 0;
}

/* ---- what is wanted back ---- */

void weft_lane_tcp_relocate(struct weft_lane *base, void *memory)
{
    struct weft_lane_tcp *lane = weft_lane_tcp_of(base);
    struct weft_lane_tcp_post *post = weft_lane_tcp_post_at(lane, lane->tail - 1);
    if (post->zero_count == 0) { /* else the kernel reads where it was */
        post->slice.data = memory;
    }
    post->cookie = memory;
    post->is_silent = true;
}

/* What is left of a post moves into memory of ours: a frame that has begun must end. */
static bool take_copy(struct weft_lane_tcp_post *post)
{
    size_t skip = post->written > sizeof(post->header) ? post->written - sizeof(post->header) : 0;
    size_t len = post->slice.len - skip;
    if (len == 0 || post->owned != NULL || post->copied > 0) {
        return true;
    }
    post->owned = malloc(len);
    if (post->owned == NULL) {
        return false;
    }
    memcpy(post->owned, (uint8_t *)post->slice.data + skip, len);
    post->written -= skip;
    post->slice = (struct weft_slice){post->owned, len};
    return true;
}

/* What the kernel reads by itself cannot be taken from it except by ending the connection, unless the peer
 * has it: then it reads it only to send it once more for nothing. The same where there is no memory for the
 * copy. */
unsigned weft_lane_tcp_forget(struct weft_lane *base, const void *cookie, bool is_there)
{
    struct weft_lane_tcp *lane = weft_lane_tcp_of(base);
    unsigned count = 0;
    for (uint32_t i = lane->head; i != lane->tail; i++) {
        struct weft_lane_tcp_post *post = weft_lane_tcp_post_at(lane, i);
        if (post->cookie != cookie) {
            continue;
        }
        if (post->zero_left > 0 && !is_there) {
            weft_lane_tcp_lose(lane, WEFT_ERR_ABORTED,
                               "given up in the middle of a zero-copy send");
            break;
        }
        if (!take_copy(post)) {
            weft_lane_tcp_lose(lane, WEFT_ERR_MEMORY,
                               "no memory to finish frames that were given up");
            break;
        }
        count += !post->is_silent;
        post->cookie = NULL;
        post->is_silent = true;
        post->is_zerocopy = false;
    }
    return count;
}

bool weft_lane_tcp_replace(struct weft_lane *base, const void *cookie,
                           const struct weft_wire_data *frame)
{
    static uint8_t nothing[1];
    const struct weft_slice slice = {nothing, frame->len};
    struct weft_lane_tcp *lane = weft_lane_tcp_of(base);
    assert(frame->len <= sizeof(nothing));
    for (uint32_t i = lane->next; i != lane->tail; i++) {
        struct weft_lane_tcp_post *post = weft_lane_tcp_post_at(lane, i);
        if (post->cookie == cookie && post->written == 0) {
            lane->queued -= post->slice.len;
            lane->queued += slice.len;
            fill(lane, post, frame, &slice);
            post->cookie = NULL;
            post->is_silent = true;
            return true;
        }
    }
    return false;
}

size_t weft_lane_tcp_queued(const struct weft_lane *base)
{
    const struct weft_lane_tcp *lane = weft_lane_tcp_of(base);
    return lane->queued + (lane->seal != NULL ? weft_lane_tcp_seal_queued(lane) : 0);
}
