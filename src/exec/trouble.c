/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a long wait comes to. Its communicator may have ended; a rank that it waits for may have closed, or
 * have failed and have no way to say so but here; its time may be up. Who waits long says so, so that ranks
 * that made different calls, or have not come, are named.
 */
#include "exec/internal.h"

#include <stdio.h>
#include <string.h>

#define TELL_NS UINT64_C(500000000)
#define LATE_NS UINT64_C(200000000)    /* how often one whose time is up says so again */
#define VERDICT_NS UINT64_C(600000000) /* the same, when others have failed already */
#define DISPUTE_NS UINT64_C(1000000000)
#define GLANCE_NS UINT64_C(25000000)

/* ---- failures ---- */

static uint32_t missing_rank(const struct weft_exec_run *run)
{
    const struct weft_exec_group *group = run->group;
    if (run->await.rank == WEFT_WIRE_NO_RANK) {
        return WEFT_WIRE_NO_RANK;
    }
    return group->members != NULL ? group->members[run->await.rank] : run->await.rank;
}

void weft_exec_show_failure(struct weft_exec_run *run)
{
    uint32_t failed = (uint32_t)(run->status != WEFT_OK ? run->status : WEFT_ERR_PEER);
    for (uint32_t i = 0; i < run->job->stages; i++) {
        struct weft_exec_group *group = run->job->stage[i].group;
        if (group->board != NULL) {
            atomic_store(&group->board->seats[group->board->rank].failed, failed);
        }
    }
}

static unsigned percent_done(const struct weft_exec_run *run)
{
    uint64_t rounds = run->is_begun && run->rounds > 0 ? run->rounds : 1;
    uint64_t round = run->is_begun ? run->round : 0;
    return (unsigned)(100 * (run->stage * rounds + round) / (run->job->stages * rounds));
}

/* The call, and how far it got: "allreduce #7 (f32 x 4194304, sum), 43 % done". */
static void name_call(const struct weft_exec_run *run, char *text, size_t room)
{
    const struct weft_exec *exec = run->exec;
    unsigned percent = percent_done(run);
    size_t len;
    exec->spec.name(exec->spec.owner, run->job, text, room);
    len = strlen(text);
    if (percent > 0) {
        snprintf(text + len, room - len, ", %u %% done", percent);
    }
}

void weft_exec_fail(struct weft_exec_run *run, weft_status_t status, uint32_t rank,
                    const char *text)
{
    struct weft_exec *exec = run->exec;
    char name[128];
    if (run->state == WEFT_RUN_DRAINS) {
        return;
    }
    name_call(run, name, sizeof(name));
    run->status = status;
    snprintf(exec->text, sizeof(exec->text), "%s: %s", name, text);
    run->state = WEFT_RUN_DRAINS;
    weft_exec_show_failure(run);
    if (atomic_load(exec->ended) == WEFT_OK) { /* the others count on us */
        run->judge_ns = weft_clock_ns() + VERDICT_NS;
        run->blamed = rank;
        run->why = strlen(name) + 2;
        weft_p2p_comm_fail(exec->spec.messages, status, rank, text, false);
    }
}

bool weft_exec_is_judged(struct weft_exec_run *run)
{
    struct weft_exec *exec = run->exec;
    weft_status_t ended = atomic_load_explicit(exec->ended, memory_order_acquire);
    char name[128];
    if (run->judge_ns == 0) {
        return true;
    }
    if (ended == WEFT_OK && weft_clock_ns() < run->judge_ns) {
        weft_exec_await_verdict(run);
        return false;
    }
    run->judge_ns = 0;
    if (ended == WEFT_OK) {
        char why[WEFT_ERROR_TEXT_LEN];
        snprintf(why, sizeof(why), "%s",
                 run->why < strlen(exec->text) ? exec->text + run->why : exec->text);
        weft_p2p_comm_fail(exec->spec.messages, run->status, run->blamed, why, true);
        return true;
    }
    name_call(run, name, sizeof(name));
    run->status = ended;
    snprintf(exec->text, sizeof(exec->text), "%s: %s", name,
             weft_p2p_comm_text(exec->spec.messages));
    return true;
}

/* After the communicator's end: with the verdict's words. */
bool weft_exec_check_end(struct weft_exec_run *run)
{
    struct weft_exec *exec = run->exec;
    weft_status_t ended = atomic_load_explicit(exec->ended, memory_order_acquire);
    if (ended == WEFT_OK || run->state == WEFT_RUN_DRAINS) {
        return false;
    }
    weft_exec_fail(run, ended, WEFT_WIRE_NO_RANK, weft_p2p_comm_text(exec->spec.messages));
    return true;
}

/* Has a member whom somebody may wait for given up? *rank_p: of the communicator, or NO_RANK; *status_p: what others say
 * for it. What it cannot reach is not dead: nobody makes that of it. */
static bool has_member_failed(const struct weft_exec_run *run, uint32_t *rank_p,
                              weft_status_t *status_p)
{
    const struct weft_board *board = run->board;
    for (uint32_t i = 0; board != NULL && i < board->ranks; i++) {
        uint32_t failed = i != board->rank ? atomic_load(&board->seats[i].failed) : 0;
        if (failed != 0) {
            *status_p = failed == WEFT_ERR_NETWORK ? WEFT_ERR_NETWORK : WEFT_ERR_PEER;
            *rank_p = run->group->members != NULL ? run->group->members[i] : i;
            return true;
        }
    }
    *rank_p = WEFT_WIRE_NO_RANK;
    return atomic_load(weft_p2p_comm_told(run->exec->spec.messages)) != WEFT_OK;
}

/* Its verdict says more, if there is a way for it. */
static bool is_verdict_missing(struct weft_exec *exec, uint64_t now_ns)
{
    exec->heard_ns = exec->heard_ns == 0 ? now_ns : exec->heard_ns;
    return now_ns - exec->heard_ns >= VERDICT_NS;
}

/* A rank that has closed or died shows nothing any more: what it has shown before counts, and so does what
 * others show who had no need of it. Whoever has given up says so. (Messages of a rank that is gone end by
 * themselves.) */
static bool check_gone(struct weft_exec_run *run, uint64_t now_ns)
{
    struct weft_exec *exec = run->exec;
    struct weft_exec_gone gone = {.rank = WEFT_WIRE_NO_RANK};
    weft_status_t status = WEFT_ERR_PEER;
    if (run->state == WEFT_RUN_DRAINS) {
        return false;
    }
    if (run->await.word == NULL ||
        !exec->spec.is_gone(exec->spec.owner, run->group, missing_rank(run), &gone)) {
        uint32_t told = atomic_load(weft_p2p_comm_told(exec->spec.messages));
        if (!has_member_failed(run, &gone.rank, &status) || !is_verdict_missing(exec, now_ns)) {
            return false;
        }
        snprintf(gone.text, sizeof(gone.text), "a rank has failed, and the verdict does not come");
        if (!exec->spec.is_gone(exec->spec.owner, NULL, WEFT_WIRE_NO_RANK, &gone) && told != 0) {
            status = (weft_status_t)told;
        }
    }
    if (weft_exec_is_reached(exec, &run->await)) {
        return false;
    }
    weft_exec_fail(run, status, gone.rank, gone.text);
    return true;
}

/* ---- time ---- */

/* Nobody answers for a message of the wrong length. */
static bool is_dispute_over(const struct weft_exec_run *run, uint64_t now_ns)
{
    const struct weft_exec *exec = run->exec;
    return exec->disputed == run->job->number + 1 && now_ns - exec->disputed_ns > DISPUTE_NS;
}

/* The run's own, or the nearest of its owners'. */
static uint64_t find_deadline(const struct weft_exec_run *run, uint64_t *timeout_ms_p)
{
    struct weft_exec *exec = run->exec;
    uint64_t deadline_ns;
    *timeout_ms_p = run->job->timeout_ms;
    deadline_ns = *timeout_ms_p == WEFT_NO_LIMIT ? WEFT_NEVER
                                                 : exec->began_ns + *timeout_ms_p * WEFT_NS_PER_MS;
    if (run == &exec->active) {
        weft_exec_find_limit(exec, &deadline_ns, timeout_ms_p);
    }
    return deadline_ns;
}

/* Who waits long says so; at the deadline the coordinator is asked to end it. */
static void keep_time(struct weft_exec_run *run, uint64_t now_ns)
{
    struct weft_exec *exec = run->exec;
    struct weft_exec_stuck stuck = {.missing = missing_rank(run),
                                    .is_waiting = run != &exec->active,
                                    .percent = percent_done(run)};
    uint64_t deadline_ns = find_deadline(run, &stuck.timeout_ms);
    if (is_dispute_over(run, now_ns)) {
        weft_exec_fail(run, WEFT_ERR_MISMATCH, stuck.missing,
                       "what a rank sent has another length than was expected: the ranks "
                       "made different calls");
        return;
    }
    stuck.is_late = now_ns >= deadline_ns;
    if (now_ns - exec->told_ns < (stuck.is_late ? LATE_NS : TELL_NS) &&
        stuck.is_late == exec->is_late) {
        return;
    }
    exec->told_ns = now_ns;
    exec->is_late = stuck.is_late;
    exec->spec.stuck(exec->spec.owner, run->job, &stuck);
}

/* A wait begins: the call's time began with its first one that was long, or with its first long work, or
 * before it came here. */
void weft_exec_begin_time(struct weft_exec_run *run)
{
    struct weft_exec *exec = run->exec;
    uint64_t now_ns = weft_clock_ns();
    if (exec->timed != run->job->number + 1) {
        exec->timed = run->job->number + 1;
        exec->began_ns = exec->since_ns != 0 ? exec->since_ns : now_ns;
        exec->since_ns = 0;
        exec->is_late = false;
        exec->heard_ns = 0;
    }
    exec->told_ns = exec->looked_ns = now_ns;
}

/* A look at the world, from time to time; true: the run has failed. */
bool weft_exec_look_around(struct weft_exec_run *run)
{
    uint64_t now_ns = weft_clock_ns();
    if (run->state != WEFT_RUN_DRAINS && !weft_exec_check_end(run) && !check_gone(run, now_ns) &&
        !weft_exec_has_lost_recv(run)) {
        keep_time(run, now_ns);
    }
    return run->state == WEFT_RUN_DRAINS;
}

/* Mostly it is a message that has come, and nothing else to see. */
void weft_exec_glance(struct weft_exec_run *run)
{
    struct weft_exec *exec = run->exec;
    uint64_t now_ns = weft_clock_ns();
    if (!weft_exec_check_end(run) && now_ns - exec->looked_ns >= GLANCE_NS) {
        exec->looked_ns = now_ns;
        (void)weft_exec_look_around(run);
    }
}

/* Who works long does not wait, and looks at clock and communicator in between. What is overdue is told like a
 * wait that is late, and does nothing any more until the verdict comes. */
bool weft_exec_is_in_time(struct weft_exec_run *run)
{
    struct weft_exec *exec = run->exec;
    uint64_t now_ns = weft_clock_ns(), timeout_ms;
    run->worked = 0;
    if (run->state == WEFT_RUN_DRAINS || run->is_overdue || weft_exec_check_end(run)) {
        return false;
    }
    if (exec->timed != run->job->number + 1) {
        weft_exec_begin_time(run);
    }
    if (now_ns < find_deadline(run, &timeout_ms)) {
        return true;
    }
    run->is_overdue = true;
    weft_exec_await_verdict(run);
    keep_time(run, now_ns);
    return false;
}
