/* SPDX-License-Identifier: Apache-2.0 */
/* The collectives of the nemesis: every kind, any size, by any manner of calling, checked element by element. */
#include "nemesis_data.h"

struct collective {
    weft_call_t call;
    bool is_float;
    unsigned manner;
};

static bool has_pieces(weft_coll_t coll)
{
    return coll != WEFT_ALLREDUCE && coll != WEFT_REDUCE && coll != WEFT_BROADCAST &&
           coll != WEFT_BARRIER;
}

static bool reduces(weft_coll_t coll)
{
    return coll == WEFT_ALLREDUCE || coll == WEFT_REDUCE || coll == WEFT_REDUCE_SCATTER;
}

static struct collective draw_collective(struct rank *rank, const struct team *team,
                                         struct dice *dice)
{
    static const weft_redop_t ops[] = {WEFT_SUM, WEFT_MAX, WEFT_BXOR};
    struct collective one = {.call = WEFT_CALL_INIT};
    size_t most = BUFFER_LEN / sizeof(uint32_t);
    one.call.coll = (weft_coll_t)roll(dice, WEFT_COLLS);
    one.is_float = reduces(one.call.coll) && roll(dice, 2) == 0;
    one.call.dtype = one.is_float ? WEFT_F32 : WEFT_U32;
    one.call.op = one.is_float ? WEFT_SUM : ops[roll(dice, 3)];
    one.call.root = (int)roll(dice, (uint64_t)team->ranks);
    one.call.in = rank->in;
    one.call.out = rank->out;
    one.call.count = roll_count(dice, most);
    if (has_pieces(one.call.coll)) {
        size_t each = most / (size_t)team->ranks;
        one.call.count = one.call.count < each ? one.call.count : each;
    }
    one.manner = (unsigned)roll(dice, 5);
    return one;
}

static void fill_collective(struct rank *rank, const struct team *team,
                            const struct collective *one)
{
    weft_coll_t coll = one->call.coll;
    bool is_many = coll == WEFT_REDUCE_SCATTER || coll == WEFT_SCATTER || coll == WEFT_ALLTOALL;
    size_t count = one->call.count * (is_many ? (size_t)team->ranks : 1);
    for (size_t i = 0; coll != WEFT_BARRIER && i < count; i++) {
        uint32_t word = element(rank->next, rank->number, i);
        float real = (float)word;
        if (one->is_float) {
            memcpy(&word, &real, sizeof(word));
        }
        write_u32(rank->in, i, word);
    }
}

static uint32_t reduced(const struct rank *rank, const struct team *team, weft_redop_t op, size_t i)
{
    uint32_t value = element(rank->next, team->member[0], i);
    for (int k = 1; k < team->ranks; k++) {
        uint32_t other = element(rank->next, team->member[k], i);
        value = op == WEFT_SUM   ? value + other
                : op == WEFT_MAX ? (value > other ? value : other)
                                 : value ^ other;
    }
    return value;
}

static bool is_reduced(struct rank *rank, const struct team *team, const struct collective *one)
{
    size_t first = one->call.coll == WEFT_REDUCE_SCATTER ? one->call.count * (size_t)team->me : 0;
    for (size_t i = 0; i < one->call.count; i++) {
        uint32_t want = reduced(rank, team, one->call.op, first + i), got = read_u32(rank->out, i);
        float real = (float)want;
        if (one->is_float) {
            memcpy(&want, &real, sizeof(want));
        }
        if (got != want) {
            return complain(rank, weft_coll_name(one->call.coll), i);
        }
    }
    return true;
}

static bool is_collected(struct rank *rank, const struct team *team, const struct collective *one)
{
    size_t count = one->call.count;
    const char *name = weft_coll_name(one->call.coll);
    bool is_root = one->call.root == team->me, is_right = true;
    switch (one->call.coll) {
    case WEFT_BARRIER:
        return true;
    case WEFT_BROADCAST:
        return is_filled(rank, name, rank->out, team->member[one->call.root], 0, count);
    case WEFT_SCATTER:
        return is_filled(rank, name, rank->out, team->member[one->call.root],
                         count * (size_t)team->me, count);
    case WEFT_REDUCE:
        return !is_root || is_reduced(rank, team, one);
    case WEFT_ALLREDUCE:
    case WEFT_REDUCE_SCATTER:
        return is_reduced(rank, team, one);
    default: /* a piece from everybody */
        for (int k = 0; k < team->ranks && is_right && (is_root || one->call.coll != WEFT_GATHER);
             k++) {
            size_t first = one->call.coll == WEFT_ALLTOALL ? count * (size_t)team->me : 0;
            is_right = is_filled(rank, name, rank->out + (size_t)k * count * sizeof(uint32_t),
                                 team->member[k], first, count);
        }
        return is_right;
    }
}

static weft_status_t by_request(struct rank *rank, struct team *team, const weft_call_t *call,
                                bool tests)
{
    const char *name = weft_coll_name(call->coll);
    weft_request_t request = NULL;
    weft_status_t status = NEMESIS_CALL(rank, name, weft_collective(team->comm, call, &request));
    int is_done = request == NULL;
    nemesis_calls(rank, name);
    while (status == WEFT_OK && tests && !is_done) {
        status = weft_test(&request, &is_done);
    }
    if (status == WEFT_OK && !tests) {
        status = weft_wait(&request, WEFT_NO_LIMIT);
    }
    return nemesis_returned(rank, status);
}

static weft_status_t by_op(struct rank *rank, struct team *team, const weft_call_t *call)
{
    const char *name = weft_coll_name(call->coll);
    weft_op_t op = NULL;
    weft_status_t status = NEMESIS_CALL(rank, name, weft_op_create(team->comm, call, &op));
    if (status != WEFT_OK) {
        return status;
    }
    status = NEMESIS_CALL(rank, name, weft_op_start(op));
    if (status == WEFT_OK) {
        status = NEMESIS_CALL(rank, name, weft_op_wait(op, WEFT_NO_LIMIT));
    }
    weft_op_destroy(op);
    return status;
}

static weft_status_t by_group(struct rank *rank, struct team *team, const weft_call_t *call)
{
    weft_status_t status = weft_group_begin(team->comm);
    if (status == WEFT_OK) {
        status =
            NEMESIS_CALL(rank, weft_coll_name(call->coll), weft_collective(team->comm, call, NULL));
        weft_status_t end = NEMESIS_CALL(rank, "group_end", weft_group_end(team->comm));
        status = status != WEFT_OK ? status : end;
    }
    return status;
}

weft_status_t nemesis_collective(struct rank *rank, struct team *team, struct dice *dice)
{
    struct collective one = draw_collective(rank, team, dice);
    weft_status_t status;
    fill_collective(rank, team, &one);
    rank->in[0] ^= rank->plant == PLANT_WRONG;
    switch (one.manner) {
    case 0:
    case 1:
        status = by_request(rank, team, &one.call, one.manner == 1);
        break;
    case 2:
        status = by_op(rank, team, &one.call);
        break;
    case 3:
        status = by_group(rank, team, &one.call);
        break;
    default:
        status = NEMESIS_CALL(rank, weft_coll_name(one.call.coll),
                              weft_collective(team->comm, &one.call, NULL));
    }
    if (status == WEFT_OK) {
        is_collected(rank, team, &one);
    }
    return status;
}
