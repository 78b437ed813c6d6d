/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one rank of `weft bench bootstrap` does. In every iteration the control and each way of
 * starting are run once, in turning order, so that whatever the machine does meanwhile hits all of
 * them alike. All ranks leave a barrier together; then each takes its own time around its own call,
 * and the slowest counts. Opening the listener before, checking and closing after, are outside the
 * clock.
 */
#include "bench_bootstrap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Shorter than the parent's patience, so that Weft's own error, which names ranks, is the one
 * shown. */
#define TIMEOUT_MS 20000

struct rank_state {
    struct weft_crew *crew;
    const struct bootstrap_plan *plan;
    struct bootstrap_shared *shared;
    int rank;
    struct weft_bench_star star;
    uint8_t *mine, *all; /* owned; of the allgather */
};

static bool fail_status(struct rank_state *state, const char *what, weft_status_t status)
{
    return weft_crew_fail(state->crew, "%s: %s: %s", what, weft_status_name(status),
                          weft_error_text());
}

static void keep(struct rank_state *state, const struct bootstrap_series *series, int index,
                 uint64_t ns)
{
    if (index >= 0) {
        weft_bench_keep_slowest(&state->shared->sample_ns[series->first + (size_t)index], ns);
    }
}

/* ---- the control ---- */

static bool run_control(struct rank_state *state, const struct bootstrap_series *series, int index)
{
    uint32_t stamp = (uint32_t)(index + state->plan->warmup);
    if (!weft_crew_barrier(state->crew)) {
        return false;
    }
    uint64_t begin_ns = weft_clock_ns();
    bool is_met = weft_bench_star_meet(&state->star, state->shared->star_port, stamp);
    uint64_t end_ns = weft_clock_ns();
    if (!is_met) {
        return weft_crew_fail(state->crew, "bare star: %s", strerror(errno));
    }
    keep(state, series, index, end_ns - begin_ns);
    if (!weft_bench_star_is_right(&state->star, stamp)) {
        return weft_crew_fail(state->crew, "bare star: the table is wrong");
    }
    if (!weft_crew_barrier(state->crew)) {
        return false;
    }
    if (state->rank == 0) {
        weft_bench_star_part(&state->star);
    }
    if (!weft_crew_barrier(state->crew)) {
        return false;
    }
    weft_bench_star_part(&state->star);
    return true;
}

/* ---- allgather with its check ---- */

static uint8_t expected_byte(int rank, uint32_t operation, size_t at)
{
    return (uint8_t)((unsigned)rank * 131u + operation * 31u + (unsigned)at * 7u);
}

static bool is_block_right(const struct rank_state *state, int rank, uint32_t operation)
{
    const uint8_t *block = state->all + (size_t)rank * state->plan->len;
    for (size_t at = 0; at < state->plan->len; at++) {
        if (block[at] != expected_byte(rank, operation, at)) {
            return false;
        }
    }
    return true;
}

/* Checks one block of a running series, every time another one: a whole check of a big job between
 * two operations would be waited for by all the others, within their clocks. */
static bool check_allgather(struct rank_state *state, uint32_t operation, bool is_whole)
{
    int ranks = state->plan->ranks;
    int from = is_whole ? 0 : (int)((operation + (uint32_t)state->rank) % (uint32_t)ranks);
    int to = is_whole ? ranks : from + 1;
    for (int rank = from; rank < to; rank++) {
        if (!is_block_right(state, rank, operation)) {
            return weft_crew_fail(state->crew, "allgather %u brought wrong bytes of rank %d",
                                  operation, rank);
        }
    }
    return true;
}

static bool gather_once(struct rank_state *state, weft_comm_t comm, uint32_t operation,
                        uint64_t *ns_p)
{
    for (size_t at = 0; at < state->plan->len; at++) {
        state->mine[at] = expected_byte(state->rank, operation, at);
    }
    uint64_t begin_ns = weft_clock_ns();
    weft_status_t status = weft_control_allgather(comm, state->mine, state->plan->len, state->all);
    *ns_p = weft_clock_ns() - begin_ns;
    return status == WEFT_OK || fail_status(state, "weft_control_allgather", status);
}

/* ---- starts ---- */

static bool publish_id(struct rank_state *state)
{
    if (state->rank != 0) {
        return true;
    }
    weft_status_t status = weft_id_create(NULL, &state->shared->id);
    return status == WEFT_OK || fail_status(state, "weft_id_create", status);
}

/* All ranks leave the barrier together, then join; *ns_p is this rank's time. */
static bool start(struct rank_state *state, const char *join, weft_comm_t *comm_p, uint64_t *ns_p)
{
    weft_config_t config = WEFT_CONFIG_INIT;
    config.start_timeout_ms = TIMEOUT_MS;
    config.timeout_ms = TIMEOUT_MS;
    setenv("WEFT_JOIN", join, 1);
    if (!publish_id(state) || !weft_crew_barrier(state->crew)) {
        return false;
    }
    uint64_t begin_ns = weft_clock_ns();
    weft_status_t status =
        weft_comm_create(&state->shared->id, state->rank, state->plan->ranks, &config, comm_p);
    *ns_p = weft_clock_ns() - begin_ns;
    return status == WEFT_OK || fail_status(state, "weft_comm_create", status);
}

static bool check_start(struct rank_state *state, weft_comm_t comm, uint32_t stamp)
{
    int rank = -1, ranks = -1;
    uint64_t unused_ns;
    if (weft_comm_rank(comm, &rank) != WEFT_OK || weft_comm_ranks(comm, &ranks) != WEFT_OK ||
        rank != state->rank || ranks != state->plan->ranks) {
        return weft_crew_fail(state->crew, "started as rank %d of %d", rank, ranks);
    }
    return gather_once(state, comm, stamp, &unused_ns) && check_allgather(state, stamp, true);
}

static bool finish(struct rank_state *state, weft_comm_t comm)
{
    if (!weft_crew_barrier(state->crew)) { /* nobody closes while another one still needs it */
        return false;
    }
    weft_status_t status = weft_comm_close(comm);
    if (status != WEFT_OK) {
        return fail_status(state, "weft_comm_close", status);
    }
    return weft_crew_barrier(state->crew);
}

static bool run_start(struct rank_state *state, const struct bootstrap_series *series, int index)
{
    weft_comm_t comm = NULL;
    uint64_t ns;
    if (!start(state, series->join, &comm, &ns)) {
        return false;
    }
    keep(state, series, index, ns);
    return check_start(state, comm, (uint32_t)(index + state->plan->warmup)) && finish(state, comm);
}

static bool run_starts(struct rank_state *state)
{
    const struct bootstrap_plan *plan = state->plan;
    for (int i = 0; i < plan->warmup + plan->iters; i++) {
        for (int k = 0; k < plan->starts; k++) {
            const struct bootstrap_series *series = &plan->series[(i + k) % plan->starts];
            bool is_control = series->kind == BOOTSTRAP_CONTROL;
            weft_crew_step(state->crew, is_control ? "the bare star" : "a start");
            if (!(is_control ? run_control : run_start)(state, series, i - plan->warmup)) {
                return false;
            }
        }
    }
    return true;
}

/* ---- operations on one communicator, back to back ---- */

static bool run_allgathers(struct rank_state *state, weft_comm_t comm,
                           const struct bootstrap_series *series)
{
    int count = state->plan->warmup_operations + state->plan->operations;
    for (int i = 0; i < count; i++) {
        uint64_t ns;
        bool is_end = i == 0 || i == count - 1;
        weft_crew_step(state->crew, "an allgather");
        if (!gather_once(state, comm, (uint32_t)i, &ns) ||
            !check_allgather(state, (uint32_t)i, is_end)) {
            return false;
        }
        keep(state, series, i - state->plan->warmup_operations, ns);
    }
    return true;
}

static bool run_barriers(struct rank_state *state, weft_comm_t comm,
                         const struct bootstrap_series *series)
{
    int count = state->plan->warmup_operations + state->plan->operations;
    for (int i = 0; i < count; i++) {
        weft_crew_step(state->crew, "a barrier");
        uint64_t begin_ns = weft_clock_ns();
        weft_status_t status = weft_control_barrier(comm);
        uint64_t end_ns = weft_clock_ns();
        if (status != WEFT_OK) {
            return fail_status(state, "weft_control_barrier", status);
        }
        keep(state, series, i - state->plan->warmup_operations, end_ns - begin_ns);
    }
    return true;
}

static bool run_operations(struct rank_state *state)
{
    const struct bootstrap_plan *plan = state->plan;
    weft_comm_t comm = NULL;
    uint64_t unused_ns;
    if (plan->starts == plan->count) {
        return true;
    }
    weft_crew_step(state->crew, "a start");
    if (!start(state, plan->series[plan->starts].join, &comm, &unused_ns)) {
        return false;
    }
    for (int k = plan->starts; k < plan->count; k++) {
        const struct bootstrap_series *series = &plan->series[k];
        if (!(series->kind == BOOTSTRAP_ALLGATHER ? run_allgathers : run_barriers)(state, comm,
                                                                                   series)) {
            return false;
        }
    }
    return finish(state, comm);
}

bool weft_bench_bootstrap_rank(struct weft_crew *crew, int rank, void *context)
{
    const struct bootstrap_plan *plan = context;
    struct rank_state state = {
        .crew = crew,
        .plan = plan,
        .shared = weft_crew_shared(crew),
        .rank = rank,
        .mine = weft_cli_alloc(plan->len, 1),
        .all = weft_cli_alloc((size_t)plan->ranks, plan->len),
    };
    if (!weft_bench_star_open(&state.star, rank, plan->ranks, &state.shared->star_port)) {
        return weft_crew_fail(crew, "bare star: cannot listen: %s", strerror(errno));
    }
    bool is_fine = weft_crew_barrier(crew) && run_starts(&state) && run_operations(&state);
    weft_bench_star_close(&state.star);
    free(state.mine);
    free(state.all);
    return is_fine;
}

uint64_t weft_bench_bootstrap_steps(const struct bootstrap_plan *plan)
{
    uint64_t starts = (uint64_t)plan->starts * (uint64_t)(plan->warmup + plan->iters);
    uint64_t operations = (uint64_t)(plan->count - plan->starts) *
                          (uint64_t)(plan->warmup_operations + plan->operations);
    return starts + operations + (operations > 0 ? 1 : 0);
}
