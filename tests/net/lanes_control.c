/* SPDX-License-Identifier: Apache-2.0 */
/* The control plane: what it carries is as exact as messages are, whatever its connections go through. */
#include "lanes.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define SHORT_LEN ((size_t)1000)
#define LONG_LEN (64 * KIB) /* the most that it takes */
#define MAIL_ROOM (60 * KIB)
#define PAUSE_MS 2 /* or the control plane alone would fill two cores */

struct buffers {
    uint8_t *mine, *all, *mail;
};

static uint64_t stamp_of(const struct traffic *traffic, uint64_t round, int rank, char kind)
{
    return lanes_stamp(traffic, round * 64 + (uint64_t)rank, kind);
}

/* Everybody hears from rank 0 whether this is the last one. */
static bool begin_round(struct traffic *traffic, uint64_t round, bool *goes_on_p)
{
    uint64_t said[2] = {round, traffic->rank == 0 && lanes_is_over()};
    if (!lanes_is_fine(traffic, "weft_control_broadcast",
                       weft_control_broadcast(traffic->comm, said, sizeof(said), 0))) {
        return false;
    }
    lanes_check_number(traffic, "round", said[0], round);
    *goes_on_p = said[1] == 0;
    return true;
}

static bool gather(struct traffic *traffic, struct buffers *buffers, uint64_t round)
{
    size_t len = round % 5 == 4 ? LONG_LEN : SHORT_LEN;
    lanes_fill(buffers->mine, len, stamp_of(traffic, round, traffic->rank, 'G'));
    if (!lanes_is_fine(traffic, "weft_control_allgather",
                       weft_control_allgather(traffic->comm, buffers->mine, len, buffers->all))) {
        return false;
    }
    for (int rank = 0; rank < traffic->ranks; rank++) {
        const struct piece piece = {.data = buffers->all + (size_t)rank * len,
                                    .len = len,
                                    .stamp = stamp_of(traffic, round, rank, 'G')};
        lanes_check(traffic, &piece, "gathered");
    }
    lanes_progress(traffic, len);
    return true;
}

/* Several to the next rank, before any is received. */
static bool exchange_mail(struct traffic *traffic, struct buffers *buffers, uint64_t round)
{
    int to = (traffic->rank + 1) % traffic->ranks;
    int from = (traffic->rank + traffic->ranks - 1) % traffic->ranks;
    size_t lens[] = {8, round % 7 * 1234, 20 * KIB};
    for (uint32_t i = 0; i < 3; i++) {
        lanes_fill(buffers->mail, lens[i], stamp_of(traffic, round * 4 + i, traffic->rank, 'M'));
        if (!lanes_is_fine(traffic, "weft_control_send",
                           weft_control_send(traffic->comm, to, 7, buffers->mail, lens[i]))) {
            return false;
        }
    }
    for (uint32_t i = 0; i < 3; i++) {
        struct piece piece = {.data = buffers->mail,
                              .stamp = stamp_of(traffic, round * 4 + i, from, 'M')};
        if (!lanes_is_fine(
                traffic, "weft_control_recv",
                weft_control_recv(traffic->comm, from, 7, buffers->mail, MAIL_ROOM, &piece.len))) {
            return false;
        }
        lanes_check_number(traffic, "length of mail", piece.len, lens[i]);
        lanes_check(traffic, &piece, "mail");
    }
    lanes_progress(traffic, lens[0] + lens[1] + lens[2]);
    return true;
}

/* A communicator in the opposite order, used and closed. */
static bool split(struct traffic *traffic)
{
    weft_comm_t part = NULL;
    int rank = -1;
    if (!lanes_is_fine(traffic, "weft_comm_split",
                       weft_comm_split(traffic->comm, 0, -traffic->rank, &part))) {
        return false;
    }
    weft_comm_rank(part, &rank);
    lanes_check_number(traffic, "rank after a split", (uint64_t)rank,
                       (uint64_t)(traffic->ranks - 1 - traffic->rank));
    bool is_fine = lanes_is_fine(traffic, "weft_control_barrier", weft_control_barrier(part));
    weft_comm_close(part);
    lanes_progress(traffic, 0);
    return is_fine;
}

void lanes_control(struct traffic *traffic)
{
    struct buffers buffers = {.mine = lanes_allocate(LONG_LEN),
                              .all = lanes_allocate(LONG_LEN * (size_t)traffic->ranks),
                              .mail = lanes_allocate(MAIL_ROOM)};
    bool goes_on = true;
    lanes_progress(traffic, 0);
    for (uint64_t round = 0;
         goes_on && begin_round(traffic, round, &goes_on) && gather(traffic, &buffers, round) &&
         exchange_mail(traffic, &buffers, round) && (round % 8 != 7 || split(traffic));
         round++) {
        poll(NULL, 0, PAUSE_MS);
    }
}
