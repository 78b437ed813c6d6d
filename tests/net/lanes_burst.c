/* SPDX-License-Identifier: Apache-2.0 */
/* Long messages now and then, so that the lanes between them have nothing to do; short ones go on. */
#include "lanes.h"

#include <poll.h>
#include <stdlib.h>

#define COUNT 12 /* long messages of one burst */
#define LEN (MIB + 13)
#define PINGS 25 /* between two bursts */
#define PING_MS 100

struct burst {
    struct piece piece[COUNT];
    weft_request_t request[COUNT];
    weft_message_t message[COUNT];
};

static bool wait_all(struct traffic *traffic, struct burst *burst)
{
    int at = 0;
    while (at >= 0) {
        if (!lanes_is_fine(traffic, "weft_wait_any",
                           weft_wait_any(burst->request, COUNT, WEFT_NO_LIMIT, &at))) {
            return false;
        }
        if (at >= 0) {
            lanes_progress(traffic, burst->piece[at].len);
        }
    }
    return true;
}

static bool send_burst(struct traffic *traffic, struct burst *burst, uint64_t round)
{
    for (uint64_t i = 0; i < COUNT; i++) {
        struct piece *piece = &burst->piece[i];
        lanes_fill(piece->data, piece->len, lanes_stamp(traffic, round * COUNT + i, 'A'));
        if (!lanes_is_fine(traffic, "weft_send",
                           weft_send(traffic->comm, piece->data, piece->len, 1 - traffic->rank,
                                     traffic->tag, &burst->request[i]))) {
            return false;
        }
    }
    return wait_all(traffic, burst);
}

static bool receive_burst(struct traffic *traffic, struct burst *burst, uint64_t round)
{
    for (uint64_t i = 0; i < COUNT; i++) {
        struct piece *piece = &burst->piece[i];
        lanes_check_again(traffic, piece);
        piece->stamp = lanes_stamp(traffic, round * COUNT + i, 'A');
        if (!lanes_is_fine(traffic, "weft_recv",
                           weft_recv(traffic->comm, piece->data, piece->len, 1 - traffic->rank,
                                     traffic->tag, &burst->message[i], &burst->request[i]))) {
            return false;
        }
    }
    if (!wait_all(traffic, burst)) {
        return false;
    }
    for (int i = 0; i < COUNT; i++) {
        lanes_check(traffic, &burst->piece[i], "on arrival");
    }
    return true;
}

static bool transfer(struct traffic *traffic, uint64_t word[2], int from)
{
    weft_request_t request;
    weft_message_t message;
    int at, tag = traffic->tag + 100;
    weft_status_t status = traffic->rank == from
                               ? weft_send(traffic->comm, word, 16, 1 - from, tag, &request)
                               : weft_recv(traffic->comm, word, 16, from, tag, &message, &request);
    return lanes_is_fine(traffic, "ping", status) &&
           lanes_is_fine(traffic, "ping", weft_wait_any(&request, 1, WEFT_NO_LIMIT, &at));
}

/* There and back; rank 0 says whether it goes on. */
static bool ping(struct traffic *traffic, uint64_t number, bool *goes_on_p)
{
    uint64_t word[2] = {number, traffic->rank == 0 && !lanes_is_over()};
    if (!transfer(traffic, word, 0) || !transfer(traffic, word, 1)) {
        return false;
    }
    lanes_check_number(traffic, "ping", word[0], number);
    *goes_on_p = word[1] != 0;
    lanes_progress(traffic, sizeof(word));
    return true;
}

void lanes_burst(struct traffic *traffic)
{
    struct burst burst = {0};
    bool goes_on = true;
    for (int i = 0; i < COUNT; i++) {
        burst.piece[i].data = lanes_allocate(LEN);
        burst.piece[i].len = LEN;
    }
    for (uint64_t round = 0; goes_on && traffic->rank < 2; round++) {
        bool is_sender = (int)(round % 2) == traffic->rank;
        goes_on =
            is_sender ? send_burst(traffic, &burst, round) : receive_burst(traffic, &burst, round);
        for (uint64_t i = 0; goes_on && i < PINGS; i++) {
            goes_on = ping(traffic, round * PINGS + i, &goes_on) && goes_on;
            poll(NULL, 0, PING_MS);
        }
        if (is_sender) {
            for (int i = 0; i < COUNT; i++) {
                burst.piece[i].stamp = 0; /* it is written anew, and nobody else may */
            }
        }
    }
}
