/* SPDX-License-Identifier: Apache-2.0 */
/* Messages: streams of one rank to another, many at a time, and everybody to everybody. */
#include "lanes.h"

#include <string.h>

#define LONG_COUNT 16 /* messages begun at one time */
#define LONG_ROOM (2 * MIB)
#define SHORT_COUNT 64
#define SHORT_ROOM ((size_t)65536)
#define COUNT_MAX 64
#define END_LEN ((size_t)3) /* of a message that is the last one; no other is so short */

struct stream {
    int count; /* at one time */
    size_t room;
    struct piece piece[COUNT_MAX];
    weft_request_t request[COUNT_MAX];
    weft_message_t message[COUNT_MAX];
    struct piece held[COUNT_MAX]; /* received before; looked at again before they are used again */
    uint64_t next, held_at;
};

static size_t len_of(size_t room, uint64_t round)
{
    static const size_t long_len[] = {MIB,        2 * MIB - 3, 700001,  65537,
                                      1536 * KIB, 300007,      2 * MIB, 512 * KIB + 1};
    static const size_t short_len[] = {8, 1000, 64, 20001, 61, 4096, 60000, 513, 333, 8192};
    if (room > SHORT_ROOM) {
        return long_len[round % (sizeof(long_len) / sizeof(long_len[0]))];
    }
    return short_len[round % (sizeof(short_len) / sizeof(short_len[0]))];
}

static void stream_open(struct stream *stream, size_t room, int count)
{
    memset(stream, 0, sizeof(*stream));
    stream->room = room;
    stream->count = count;
    for (int i = 0; i < count; i++) {
        stream->piece[i].data = lanes_allocate(room);
        stream->held[i].data = lanes_allocate(room);
    }
}

static bool send_next(struct traffic *traffic, struct stream *stream, int at, int to)
{
    struct piece *piece = &stream->piece[at];
    uint64_t round = stream->next++;
    piece->len = lanes_is_over() ? END_LEN : len_of(stream->room, round);
    lanes_fill(piece->data, piece->len, lanes_stamp(traffic, round, 'A'));
    return lanes_is_fine(
        traffic, "weft_send",
        weft_send(traffic->comm, piece->data, piece->len, to, traffic->tag, &stream->request[at]));
}

static bool wait_one(struct traffic *traffic, struct stream *stream, int *at_p)
{
    return lanes_is_fine(traffic, "weft_wait_any",
                         weft_wait_any(stream->request, stream->count, WEFT_NO_LIMIT, at_p));
}

static void send_all(struct traffic *traffic, struct stream *stream, int to)
{
    int at, going = stream->count;
    for (int i = 0; i < stream->count; i++) {
        if (!send_next(traffic, stream, i, to)) {
            return;
        }
    }
    while (going > 0 && wait_one(traffic, stream, &at)) {
        lanes_progress(traffic, stream->piece[at].len);
        if (stream->piece[at].len == END_LEN) {
            going--;
        } else if (!send_next(traffic, stream, at, to)) {
            return;
        }
    }
}

static bool receive_next(struct traffic *traffic, struct stream *stream, int at, int from)
{
    stream->piece[at].stamp = lanes_stamp(traffic, stream->next++, 'A');
    return lanes_is_fine(traffic, "weft_recv",
                         weft_recv(traffic->comm, stream->piece[at].data, stream->room, from,
                                   traffic->tag, &stream->message[at], &stream->request[at]));
}

/* The buffer rests, and the one that has rested longest takes its place. */
static void exchange(struct traffic *traffic, struct stream *stream, int at)
{
    struct piece *held = &stream->held[stream->held_at++ % (uint64_t)stream->count];
    struct piece got = stream->piece[at];
    lanes_check_again(traffic, held);
    stream->piece[at] = *held;
    *held = got;
}

static void receive_all(struct traffic *traffic, struct stream *stream, int from)
{
    int at, going = stream->count;
    for (int i = 0; i < stream->count; i++) {
        if (!receive_next(traffic, stream, i, from)) {
            return;
        }
    }
    while (going > 0 && wait_one(traffic, stream, &at)) {
        struct piece *piece = &stream->piece[at];
        piece->len = stream->message[at].len;
        lanes_check(traffic, piece, "on arrival");
        lanes_progress(traffic, piece->len);
        if (piece->len == END_LEN) {
            going--;
            continue;
        }
        exchange(traffic, stream, at);
        if (!receive_next(traffic, stream, at, from)) {
            return;
        }
    }
    for (int i = 0; i < stream->count && !traffic->has_failed; i++) {
        lanes_check_again(traffic, &stream->held[i]);
    }
}

static void run_stream(struct traffic *traffic, size_t room, int count, int from)
{
    struct stream stream;
    stream_open(&stream, room, count);
    if (traffic->rank == from) {
        send_all(traffic, &stream, 1 - from);
    } else if (traffic->rank == 1 - from) {
        receive_all(traffic, &stream, from);
    }
}

void lanes_long(struct traffic *traffic)
{
    run_stream(traffic, LONG_ROOM, LONG_COUNT, 0);
}

void lanes_back(struct traffic *traffic)
{
    run_stream(traffic, LONG_ROOM, LONG_COUNT, 1);
}

void lanes_short(struct traffic *traffic)
{
    run_stream(traffic, SHORT_ROOM, SHORT_COUNT, 0);
}

/* ---- everybody to everybody ---- */

/* Buffers of one round: at i what goes to rank i, at ranks + i what comes from there. */
struct exchange {
    struct piece *piece;
    weft_request_t *request;
    weft_message_t *message;
};

/* Both sides know it without a word. */
static size_t pair_len(uint64_t round, int from, int to)
{
    uint64_t number = round + (uint64_t)(from * 3 + to);
    return len_of(number % 3 == 0 ? SHORT_ROOM : LONG_ROOM, number);
}

static uint64_t pair_stamp(const struct traffic *traffic, uint64_t round, int from, int to)
{
    return lanes_stamp(traffic, round * 64 + (uint64_t)(from * 8 + to), 'A');
}

static bool begin_round(struct traffic *traffic, struct exchange *exchange, uint64_t round)
{
    bool is_last = traffic->rank == 0 && lanes_is_over();
    for (int i = 0; i < traffic->ranks; i++) {
        struct piece *out = &exchange->piece[i], *in = &exchange->piece[traffic->ranks + i];
        if (i == traffic->rank) {
            continue;
        }
        out->len = is_last ? END_LEN : pair_len(round, traffic->rank, i);
        lanes_fill(out->data, out->len, pair_stamp(traffic, round, traffic->rank, i));
        lanes_check_again(traffic, in);
        in->stamp = pair_stamp(traffic, round, i, traffic->rank);
        in->len = pair_len(round, i, traffic->rank);
        if (!lanes_is_fine(traffic, "weft_recv",
                           weft_recv(traffic->comm, in->data, LONG_ROOM, i, traffic->tag,
                                     &exchange->message[i],
                                     &exchange->request[traffic->ranks + i])) ||
            !lanes_is_fine(traffic, "weft_send",
                           weft_send(traffic->comm, out->data, out->len, i, traffic->tag,
                                     &exchange->request[i]))) {
            return false;
        }
    }
    return true;
}

/* False also when rank 0 has said that this was the last one. */
static bool end_round(struct traffic *traffic, struct exchange *exchange)
{
    int at = 0;
    bool goes_on = true;
    while (at >= 0) {
        if (!lanes_is_fine(
                traffic, "weft_wait_any",
                weft_wait_any(exchange->request, 2 * traffic->ranks, WEFT_NO_LIMIT, &at))) {
            return false;
        }
        if (at < 0) {
            break;
        }
        struct piece *piece = &exchange->piece[at];
        if (at >= traffic->ranks) {
            int from = at - traffic->ranks;
            if (exchange->message[from].len != END_LEN) {
                lanes_check_number(traffic, "length", exchange->message[from].len, piece->len);
            }
            piece->len = exchange->message[from].len;
            lanes_check(traffic, piece, "on arrival");
        }
        lanes_progress(traffic, piece->len);
        goes_on = goes_on && piece->len != END_LEN;
    }
    return goes_on;
}

void lanes_all(struct traffic *traffic)
{
    size_t count = (size_t)traffic->ranks * 2;
    struct exchange two[2]; /* in turn, so that one rests */
    for (int i = 0; i < 2; i++) {
        two[i].piece = lanes_allocate(count * sizeof(struct piece));
        two[i].request = lanes_allocate(count * sizeof(weft_request_t));
        two[i].message = lanes_allocate(count * sizeof(weft_message_t));
        for (size_t k = 0; k < count; k++) {
            two[i].piece[k].data = lanes_allocate(LONG_ROOM);
        }
    }
    bool goes_on = true;
    for (uint64_t round = 0; goes_on; round++) {
        goes_on =
            begin_round(traffic, &two[round % 2], round) && end_round(traffic, &two[round % 2]);
    }
}
