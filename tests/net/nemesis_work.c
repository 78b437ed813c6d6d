/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations of the nemesis. Which one comes, how long it is and by which manner of calling follows from the seed
 * and its number; so does what every rank contributes, so that everybody can tell whether what came out is right.
 */
#include "nemesis_data.h"

/* ---- messages ---- */

struct turn {
    int to, from; /* ranks of the communicator */
    size_t count;
    int tag;
};

static struct turn draw_turn(const struct rank *rank, const struct team *team, struct dice *dice,
                             size_t most)
{
    int shift = (int)roll(dice, (uint64_t)team->ranks);
    return (struct turn){.to = (team->me + shift) % team->ranks,
                         .from = (team->me + team->ranks - shift) % team->ranks,
                         .count = roll_count(dice, most),
                         .tag = (int)(rank->next & 0xffffff)};
}

static weft_status_t do_exchange(struct rank *rank, struct team *team, struct dice *dice)
{
    struct turn turn = draw_turn(rank, team, dice, BUFFER_LEN / sizeof(uint32_t));
    size_t len = turn.count * sizeof(uint32_t);
    weft_request_t requests[2] = {NULL, NULL};
    bool in_group = roll(dice, 2) == 0;
    weft_status_t status;
    fill(rank->in, rank->next, rank->number, 0, turn.count);
    if (in_group) {
        weft_group_begin(team->comm);
    }
    status = NEMESIS_CALL(rank, "recv",
                          weft_recv(team->comm, rank->out, len, turn.from, turn.tag, NULL,
                                    in_group ? NULL : &requests[0]));
    if (status == WEFT_OK) {
        status = NEMESIS_CALL(rank, "send",
                              weft_send(team->comm, rank->in, len, turn.to, turn.tag,
                                        in_group ? NULL : &requests[1]));
    }
    weft_status_t end =
        in_group ? NEMESIS_CALL(rank, "group_end", weft_group_end(team->comm))
                 : NEMESIS_CALL(rank, "wait_all", weft_wait_all(requests, 2, WEFT_NO_LIMIT));
    status = status != WEFT_OK ? status : end;
    if (status == WEFT_OK) {
        is_filled(rank, "exchange", rank->out, team->member[turn.from], 0, turn.count);
    }
    return status;
}

/* Everybody sends to one rank, which takes them as they come. */
static weft_status_t do_fan_in(struct rank *rank, struct team *team, struct dice *dice)
{
    int root = (int)roll(dice, (uint64_t)team->ranks), tag = (int)(rank->next & 0xffffff);
    size_t count = roll_count(dice, 65536), len = count * sizeof(uint32_t);
    weft_status_t status = WEFT_OK;
    uint64_t seen = 0;
    if (team->me != root) {
        fill(rank->in, rank->next, rank->number, 0, count);
        return NEMESIS_CALL(rank, "send", weft_send(team->comm, rank->in, len, root, tag, NULL));
    }
    for (int k = 1; k < team->ranks && status == WEFT_OK; k++) {
        weft_message_t message = {0};
        status = NEMESIS_CALL(
            rank, "recv",
            weft_recv(team->comm, rank->out, len, WEFT_ANY_SOURCE, tag, &message, NULL));
        if (status == WEFT_OK &&
            (message.len != len || message.tag != tag || (seen >> message.source & 1) != 0)) {
            complain(rank, "fan-in, what it was", message.len);
        } else if (status == WEFT_OK) {
            seen |= UINT64_C(1) << message.source;
            is_filled(rank, "fan-in", rank->out, team->member[message.source], 0, count);
        }
    }
    return status;
}

/* ---- one-sided ---- */

static weft_status_t do_put(struct rank *rank, struct team *team, struct dice *dice)
{
    struct turn turn = draw_turn(rank, team, dice, WINDOW_LEN / sizeof(uint32_t));
    size_t len = turn.count * sizeof(uint32_t);
    weft_status_t status;
    fill(rank->in, rank->next, rank->number, 0, turn.count);
    status = NEMESIS_CALL(rank, "put_signal",
                          weft_put_signal(team->comm, &team->mem[turn.to], 0, rank->in, len,
                                          &team->mem[turn.to], WINDOW_LEN, 1));
    if (status == WEFT_OK) {
        status = NEMESIS_CALL(
            rank, "wait_signal",
            weft_wait_signal(team->comm,
                             (const uint64_t *)(const void *)(team->window + WINDOW_LEN),
                             team->puts + 1, WEFT_NO_LIMIT));
    }
    if (status == WEFT_OK) {
        team->puts++;
        is_filled(rank, "put", team->window, team->member[turn.from], 0, turn.count);
        status = NEMESIS_CALL(rank, "quiet", weft_quiet(team->comm));
    }
    /* nobody puts again before all have looked */
    return status == WEFT_OK ? NEMESIS_CALL(rank, "barrier", weft_barrier(team->comm, NULL))
                             : status;
}

static weft_status_t do_get(struct rank *rank, struct team *team, struct dice *dice)
{
    struct turn turn = draw_turn(rank, team, dice, WINDOW_LEN / sizeof(uint32_t));
    weft_status_t status;
    fill(team->window, rank->next, rank->number, 0, turn.count);
    status = NEMESIS_CALL(rank, "barrier", weft_barrier(team->comm, NULL));
    if (status == WEFT_OK) {
        status = NEMESIS_CALL(rank, "get",
                              weft_get(team->comm, &team->mem[turn.from], 0, rank->out,
                                       turn.count * sizeof(uint32_t)));
    }
    if (status == WEFT_OK) {
        status = NEMESIS_CALL(rank, "quiet", weft_quiet(team->comm));
    }
    if (status == WEFT_OK) {
        is_filled(rank, "get", rank->out, team->member[turn.from], 0, turn.count);
        status = NEMESIS_CALL(rank, "barrier", weft_barrier(team->comm, NULL));
    }
    return status;
}

/* ---- control ---- */

static weft_status_t do_control(struct rank *rank, struct team *team, struct dice *dice)
{
    size_t count = roll_count(dice, 1024), len = count * sizeof(uint32_t);
    uint64_t which = roll(dice, 3);
    int root = (int)roll(dice, (uint64_t)team->ranks);
    weft_status_t status;
    fill(rank->in, rank->next, rank->number, 0, count);
    if (which == 0) {
        return NEMESIS_CALL(rank, "control_barrier", weft_control_barrier(team->comm));
    }
    if (which == 1) {
        status = NEMESIS_CALL(rank, "control_broadcast",
                              weft_control_broadcast(team->comm, rank->in, len, root));
        if (status == WEFT_OK) {
            is_filled(rank, "control_broadcast", rank->in, team->member[root], 0, count);
        }
        return status;
    }
    status = NEMESIS_CALL(rank, "control_allgather",
                          weft_control_allgather(team->comm, rank->in, len, rank->out));
    for (int k = 0; k < team->ranks && status == WEFT_OK; k++) {
        is_filled(rank, "control_allgather", rank->out + (size_t)k * len, team->member[k], 0,
                  count);
    }
    return status;
}

static weft_status_t do_control_mail(struct rank *rank, struct team *team, struct dice *dice)
{
    struct turn turn = draw_turn(rank, team, dice, 2048);
    size_t len = turn.count * sizeof(uint32_t), got = 0;
    weft_status_t status;
    fill(rank->in, rank->next, rank->number, 0, turn.count);
    status =
        NEMESIS_CALL(rank, "control_send",
                     weft_control_send(team->comm, turn.to, (uint32_t)turn.tag, rank->in, len));
    if (status == WEFT_OK) {
        status = NEMESIS_CALL(rank, "control_recv",
                              weft_control_recv(team->comm, turn.from, (uint32_t)turn.tag,
                                                rank->out, BUFFER_LEN, &got));
    }
    if (status == WEFT_OK && got != len) {
        complain(rank, "control_recv, its length", got);
    } else if (status == WEFT_OK) {
        is_filled(rank, "control_recv", rank->out, team->member[turn.from], 0, turn.count);
    }
    return status;
}

/* A part of the ranks sums by itself. */
static weft_status_t do_split(struct rank *rank, struct team *team, struct dice *dice)
{
    int parts = 1 + (int)roll(dice, 2), colour = team->me % parts;
    uint32_t in = element(rank->next, rank->number, 0), out = 0, want = 0;
    weft_comm_t part = NULL;
    weft_status_t status =
        NEMESIS_CALL(rank, "split", weft_comm_split(team->comm, colour, 0, &part));
    if (status != WEFT_OK) {
        return status;
    }
    status = NEMESIS_CALL(rank, "allreduce",
                          weft_allreduce(part, &in, &out, 1, WEFT_U32, WEFT_SUM, NULL));
    for (int k = colour; k < team->ranks; k += parts) {
        want += element(rank->next, team->member[k], 0);
    }
    if (status == WEFT_OK && out != want) {
        complain(rank, "allreduce of a part", 0);
    }
    if (status == WEFT_OK) {
        status = NEMESIS_CALL(rank, "barrier", weft_barrier(part, NULL));
    }
    weft_status_t end = NEMESIS_CALL(rank, "close", weft_comm_close(part));
    return status != WEFT_OK ? status : end;
}

/* ---- all of it ---- */

weft_status_t nemesis_operate(struct rank *rank, struct team *team)
{
    static weft_status_t (*const kinds[])(struct rank *, struct team *, struct dice *) = {
        do_exchange, do_fan_in, do_put, do_get, do_control, do_control_mail, do_split};
    struct dice dice = {.key = mix(rank->seed) + mix(rank->next)};
    uint64_t kind = roll(&dice, 16), pause = roll(&dice, 64);
    weft_status_t status;
    /* A rank that computes: all for a moment, seldom one for longer. */
    nemesis_pause_us(pause == 0 && roll(&dice, 8) == (uint64_t)rank->number % 8 ? 200000 : 500);
    status = kind < 7 ? kinds[kind](rank, team, &dice) : nemesis_collective(rank, team, &dice);
    if (status == WEFT_OK) {
        rank->next++;
        atomic_fetch_add(&rank->doing.ops, 1);
    }
    return status;
}

weft_status_t nemesis_agree(struct rank *rank, struct team *team, bool wants, bool *any_p)
{
    uint32_t in = wants, out = 0;
    weft_status_t status = NEMESIS_CALL(
        rank, "allreduce", weft_allreduce(team->comm, &in, &out, 1, WEFT_U32, WEFT_MAX, NULL));
    *any_p = status == WEFT_OK && out != 0;
    return status;
}

weft_status_t nemesis_differ(struct rank *rank, struct team *team)
{
    memset(rank->in, 1, 44);
    return NEMESIS_CALL(
        rank, "allreduce",
        weft_allreduce(team->comm, rank->in, rank->out, 11, WEFT_I32, WEFT_MIN, NULL));
}

/* ---- teams ---- */

struct card { /* what each tells the others of itself */
    uint64_t next;
    int32_t number;
    int32_t unused;
    weft_mem_t mem;
};

weft_status_t nemesis_team_open(struct rank *rank, struct team *team)
{
    struct card mine = {.number = rank->number, .next = rank->next}, all[RANKS_MAX];
    void *window = NULL;
    weft_status_t status = weft_comm_rank(team->comm, &team->me);
    status = status == WEFT_OK ? weft_comm_ranks(team->comm, &team->ranks) : status;
    status = status == WEFT_OK ? NEMESIS_CALL(rank, "alloc", weft_alloc(WINDOW_LEN + 8, &window))
                               : status;
    if (status != WEFT_OK || team->ranks > RANKS_MAX) {
        return status;
    }
    team->window = window;
    team->puts = 0;
    status = NEMESIS_CALL(rank, "mem_register",
                          weft_mem_register(team->comm, window, WINDOW_LEN + 8, &mine.mem));
    if (status == WEFT_OK) {
        status = NEMESIS_CALL(rank, "control_allgather",
                              weft_control_allgather(team->comm, &mine, sizeof(mine), all));
    }
    team->own = mine.mem;
    for (int k = 0; status == WEFT_OK && k < team->ranks; k++) {
        team->member[k] = all[k].number;
        team->mem[k] = all[k].mem;
        rank->next = all[k].next > rank->next ? all[k].next : rank->next;
    }
    rank->next++; /* somebody may have been in the middle of that one */
    return status;
}

void nemesis_team_close(struct team *team)
{
    if (team->window != NULL) {
        weft_mem_deregister(team->comm, &team->own);
        weft_free(team->window);
        team->window = NULL;
    }
}
