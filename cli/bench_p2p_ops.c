/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations of `weft bench p2p` between ranks 0 and 1, as their timed loops. Rank 0 reads the
 * clock once per sample, from the end of one to the end of the next, so that nothing lies between
 * two samples. Messages in flight share a few buffers in turn, as in other benchmarks: a window of
 * 64 buffers would measure memory, not messages. Each buffer always gets the same bytes within a
 * batch, so the order in which receives end does not matter to the check.
 */
#include "bench_p2p.h"

enum tag { TAG_DATA = 1, TAG_ANSWER = 2, TAG_READY = 3, TAG_END = 4 };

static uint8_t *slot_of(uint8_t *buffer, const struct p2p_series *series, int index)
{
    return buffer + (size_t)(index % series->slots) * series->bytes;
}

static int other(const struct p2p_rank *rank)
{
    return 1 - rank->rank;
}

static void keep(uint64_t *ticks, int index, uint64_t *before)
{
    uint64_t now = weft_bench_ticks();
    if (ticks != NULL) {
        ticks[index] = now - *before;
    }
    *before = now;
}

static bool send_one(struct p2p_rank *rank, const void *data, size_t len, int tag)
{
    weft_status_t status = weft_send(rank->comm, data, len, other(rank), tag, NULL);
    return status == WEFT_OK || weft_bench_p2p_fail_status(rank, "weft_send", status);
}

static bool is_long_enough(struct p2p_rank *rank, const weft_message_t *message, size_t len)
{
    return message->len == len ||
           weft_bench_p2p_fail(rank, "a message of %zu bytes came as %zu", len, message->len);
}

static bool recv_one(struct p2p_rank *rank, void *data, size_t len, int tag)
{
    weft_message_t message;
    weft_status_t status = weft_recv(rank->comm, data, len, other(rank), tag, &message, NULL);
    if (status != WEFT_OK) {
        return weft_bench_p2p_fail_status(rank, "weft_recv", status);
    }
    return is_long_enough(rank, &message, len);
}

/* ---- ping-pong ---- */

static bool ping_pong(struct p2p_rank *rank, const struct p2p_series *series, int count,
                      uint64_t *ticks)
{
    bool is_first = rank->rank == 0;
    uint64_t before = weft_bench_ticks();
    for (int i = 0; i < count; i++) {
        if (is_first && !send_one(rank, rank->send, series->bytes, TAG_DATA)) {
            return false;
        }
        if (!recv_one(rank, rank->recv, series->bytes, TAG_DATA)) {
            return false;
        }
        if (!is_first && !send_one(rank, rank->send, series->bytes, TAG_DATA)) {
            return false;
        }
        keep(ticks, i, &before);
    }
    return true;
}

/* ---- windows ---- */

static bool post_sends(struct p2p_rank *rank, const struct p2p_series *series,
                       weft_request_t *requests)
{
    for (int i = 0; i < series->inflight; i++) {
        weft_status_t status = weft_send(rank->comm, slot_of(rank->send, series, i), series->bytes,
                                         other(rank), TAG_DATA, &requests[i]);
        if (status != WEFT_OK) {
            return weft_bench_p2p_fail_status(rank, "weft_send", status);
        }
    }
    return true;
}

static bool post_recvs(struct p2p_rank *rank, const struct p2p_series *series,
                       weft_request_t *requests)
{
    for (int i = 0; i < series->inflight; i++) {
        weft_status_t status = weft_recv(rank->comm, slot_of(rank->recv, series, i), series->bytes,
                                         other(rank), TAG_DATA, &rank->messages[i], &requests[i]);
        if (status != WEFT_OK) {
            return weft_bench_p2p_fail_status(rank, "weft_recv", status);
        }
    }
    return true;
}

static bool wait_all(struct p2p_rank *rank, int count)
{
    weft_status_t status = weft_wait_all(rank->requests, count, WEFT_NO_LIMIT);
    return status == WEFT_OK || weft_bench_p2p_fail_status(rank, "weft_wait_all", status);
}

static bool are_long_enough(struct p2p_rank *rank, const struct p2p_series *series)
{
    for (int i = 0; i < series->inflight; i++) {
        if (!is_long_enough(rank, &rank->messages[i], series->bytes)) {
            return false;
        }
    }
    return true;
}

static bool window_one_way(struct p2p_rank *rank, const struct p2p_series *series, int count,
                           uint64_t *ticks)
{
    uint8_t answer = 0;
    uint64_t before = weft_bench_ticks();
    for (int i = 0; i < count; i++) {
        bool is_fine;
        if (rank->rank == 0) {
            is_fine = post_sends(rank, series, rank->requests) &&
                      wait_all(rank, series->inflight) &&
                      recv_one(rank, &answer, sizeof(answer), TAG_ANSWER);
        } else {
            is_fine = post_recvs(rank, series, rank->requests) &&
                      wait_all(rank, series->inflight) &&
                      send_one(rank, &answer, sizeof(answer), TAG_ANSWER) &&
                      are_long_enough(rank, series);
        }
        if (!is_fine) {
            return false;
        }
        keep(ticks, i, &before);
    }
    return true;
}

/* Both send at once: neither may block in its send before it receives. */
static bool exchange_answers(struct p2p_rank *rank)
{
    uint8_t mine = 0, theirs = 0;
    weft_request_t request = NULL;
    weft_status_t status =
        weft_send(rank->comm, &mine, sizeof(mine), other(rank), TAG_ANSWER, &request);
    if (status != WEFT_OK) {
        return weft_bench_p2p_fail_status(rank, "weft_send", status);
    }
    if (!recv_one(rank, &theirs, sizeof(theirs), TAG_ANSWER)) {
        return false;
    }
    status = weft_wait(&request, WEFT_NO_LIMIT);
    return status == WEFT_OK || weft_bench_p2p_fail_status(rank, "weft_wait", status);
}

static bool window_both_ways(struct p2p_rank *rank, const struct p2p_series *series, int count,
                             uint64_t *ticks)
{
    uint64_t before = weft_bench_ticks();
    for (int i = 0; i < count; i++) {
        bool is_fine = post_recvs(rank, series, rank->requests) &&
                       post_sends(rank, series, rank->requests + series->inflight) &&
                       wait_all(rank, 2 * series->inflight) && exchange_answers(rank) &&
                       are_long_enough(rank, series);
        if (!is_fine) {
            return false;
        }
        keep(ticks, i, &before);
    }
    return true;
}

/* ---- puts ---- */

static bool put_and_quiet(struct p2p_rank *rank, const struct p2p_series *series)
{
    for (int i = 0; i < series->per_clock; i++) {
        size_t offset = (size_t)(i % series->slots) * series->bytes;
        weft_status_t status =
            weft_put(rank->comm, &rank->shared->mem, offset, rank->send + offset, series->bytes);
        if (status != WEFT_OK) {
            return weft_bench_p2p_fail_status(rank, "weft_put", status);
        }
    }
    weft_status_t status = weft_quiet(rank->comm);
    return status == WEFT_OK || weft_bench_p2p_fail_status(rank, "weft_quiet", status);
}

/* Rank 1 says that its buffer may be written, then only waits for the end, in a call: whoever waits,
 * drives. */
static bool put_all(struct p2p_rank *rank, const struct p2p_series *series, int count,
                    uint64_t *ticks)
{
    uint8_t note = 0;
    if (rank->rank == 1) {
        return send_one(rank, &note, sizeof(note), TAG_READY) &&
               recv_one(rank, &note, sizeof(note), TAG_END);
    }
    if (!recv_one(rank, &note, sizeof(note), TAG_READY)) {
        return false;
    }
    uint64_t before = weft_bench_ticks();
    for (int i = 0; i < count; i++) {
        if (!put_and_quiet(rank, series)) {
            return false;
        }
        keep(ticks, i, &before);
    }
    return send_one(rank, &note, sizeof(note), TAG_END);
}

p2p_op_fn weft_bench_p2p_op(enum p2p_op op)
{
    static const p2p_op_fn ops[P2P_OPS] = {
        [P2P_LAT] = ping_pong,         [P2P_RTT] = ping_pong,   [P2P_BW] = window_one_way,
        [P2P_BIBW] = window_both_ways, [P2P_PUT_NBI] = put_all, [P2P_PUT_QUIET] = put_all,
        [P2P_PUT_BATCH] = put_all,     [P2P_MESH] = NULL,       [P2P_MESHBW] = NULL,
    };
    return ops[op];
}
