/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who waits long in a collective tells the coordinator (the lowest living rank of the communicator) and whom
 * it waits for what it called. Whoever hears of a call with its own number that differs from its own names
 * both: a mismatch. The same, when a message has another length than was expected, or lies where nobody
 * receives it: then its sender is asked for its call. What a rank shows and sends is signed with the chain of
 * all its calls, so that one that differed is found out by the next that needs the others: then the calls
 * before it are compared.
 */
#include "comm/collectives.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_LEN 400
#define HISTORY 16                        /* calls that are looked at when the chains differ */
#define RECENT (WEFT_COLLECTIVE_KEPT / 2) /* calls whose notes nobody writes to meanwhile */

void weft_comm_print_call(const struct weft_comm_note *note, char *text, size_t room)
{
    const char *coll = weft_coll_name((weft_coll_t)note->coll);
    bool is_rooted = note->coll == WEFT_BROADCAST || note->coll == WEFT_REDUCE ||
                     note->coll == WEFT_GATHER || note->coll == WEFT_SCATTER;
    bool is_summed = note->coll == WEFT_ALLREDUCE || note->coll == WEFT_REDUCE ||
                     note->coll == WEFT_REDUCE_SCATTER;
    int at = snprintf(text, room, "%s #%u", coll, note->number);
    if (note->coll == WEFT_BARRIER || at < 0 || (size_t)at >= room) {
        return;
    }
    at += snprintf(text + at, room - (size_t)at, " (%s x %llu%s%s",
                   weft_dtype_name((weft_dtype_t)note->dtype), (unsigned long long)note->count,
                   is_summed ? ", " : "", is_summed ? weft_redop_name((weft_redop_t)note->op) : "");
    if (is_rooted && (size_t)at < room) {
        at += snprintf(text + at, room - (size_t)at, ", root %u", note->root);
    }
    if ((size_t)at < room) {
        snprintf(text + at, room - (size_t)at, ")");
    }
}

void weft_comm_name_call(const weft_call_t *call, uint32_t number, char *text, size_t room)
{
    const struct weft_comm_note note = {.number = number,
                                        .coll = (uint8_t)call->coll,
                                        .dtype = (uint8_t)call->dtype,
                                        .op = (uint8_t)call->op,
                                        .root = (uint32_t)call->root,
                                        .count = call->count};
    weft_comm_print_call(&note, text, room);
}

static bool is_kept(const struct weft_collectives *it, const struct weft_exec_job *job)
{
    return atomic_load(&it->number) - job->number <= RECENT;
}

/* Of a job that is not over. So many may be begun that its note is gone: then there are words for it, but
 * nothing to compare. */
static struct weft_comm_note note_of(const struct weft_collectives *it,
                                     const struct weft_exec_job *job)
{
    const struct weft_exec_stage *first = &job->stage[0];
    if (is_kept(it, job)) {
        return it->notes[job->number % WEFT_COLLECTIVE_KEPT];
    }
    return (struct weft_comm_note){.number = job->number,
                                   .signature = job->signature,
                                   .coll =
                                       job->stages > 1 ? WEFT_ALLREDUCE : (uint8_t)first->plan.coll,
                                   .dtype = (uint8_t)first->data.dtype,
                                   .op = (uint8_t)first->data.op,
                                   .root = job->stages > 1 ? 0 : first->plan.root,
                                   .count = first->data.count};
}

uint32_t weft_comm_coordinator(const struct weft_comm *comm)
{
    for (uint32_t rank = 0; rank < comm->ranks; rank++) {
        if (rank == comm->rank ||
            !weft_control_is_gone(comm->job->control, weft_comm_job_rank(comm, rank))) {
            return rank;
        }
    }
    return comm->rank;
}

/* ---- the coordinator, under the lock ---- */

void weft_comm_report_failure(struct weft_collectives *it, weft_status_t status, uint32_t rank,
                              const char *text, bool is_final)
{
    const struct weft_control_failure failure = {
        .channel = it->comm->id,
        .status = status,
        .rank = rank < it->comm->ranks ? weft_comm_job_rank(it->comm, rank) : WEFT_WIRE_NO_RANK,
        .text = text};
    weft_control_fail(it->comm->job->control, &failure, is_final);
}

struct caller {
    uint32_t rank;
    const struct weft_comm_note *note;
};

static const char *print_rank(const struct weft_collectives *it, uint32_t rank,
                              char text[WEFT_CONTROL_RANK_LEN])
{
    return weft_control_print_rank(
        rank, rank < it->comm->ranks ? weft_comm_job_rank(it->comm, rank) : rank, text);
}

static void name_mismatch(struct weft_collectives *it, struct caller one, struct caller other,
                          const char *more)
{
    char text[TEXT_LEN], left[96], right[96], a[WEFT_CONTROL_RANK_LEN], b[WEFT_CONTROL_RANK_LEN];
    weft_comm_print_call(one.note, left, sizeof(left));
    weft_comm_print_call(other.note, right, sizeof(right));
    snprintf(text, sizeof(text), "%s called %s, %s called %s%s%s", print_rank(it, one.rank, a),
             left, print_rank(it, other.rank, b), right,
             strcmp(left, right) == 0 ? " with other pieces, scale, algorithm or settings" : "",
             more);
    weft_comm_report_failure(it, WEFT_ERR_MISMATCH, other.rank, text, false);
}

/* What the rank itself called with this number; NULL: it is not there yet, or long past. */
static const struct weft_comm_note *own_note(const struct weft_collectives *it, uint32_t number)
{
    uint32_t next = atomic_load_explicit(&it->number, memory_order_acquire);
    const struct weft_comm_note *note = &it->notes[number % WEFT_COLLECTIVE_KEPT];
    return number < next && next - number <= RECENT && note->number == number ? note : NULL;
}

static bool is_other(const struct weft_comm_note *a, const struct weft_comm_note *b)
{
    return a->number == b->number && a->signature != b->signature;
}

static bool find_mismatch(struct weft_collectives *it, const struct weft_comm_note *note,
                          uint32_t rank)
{
    for (uint32_t i = 0; i < it->comm->ranks; i++) {
        const struct weft_comm_report *report = &it->reports[i];
        if (i != rank && report->is_there && is_other(&report->note, note)) {
            name_mismatch(it, (struct caller){i, &report->note}, (struct caller){rank, note}, "");
            return true;
        }
    }
    return false;
}

/* ---- saying it ---- */

static void take_report(struct weft_collectives *it, const struct weft_wire_calling *calling);

struct weft_wire_calling weft_comm_calling_of(const struct weft_collectives *it,
                                              const struct weft_comm_note *note,
                                              enum weft_wire_calling_about about)
{
    return (struct weft_wire_calling){.about = (uint8_t)about,
                                      .coll = note->coll,
                                      .dtype = note->dtype,
                                      .op = note->op,
                                      .channel = it->comm->id,
                                      .rank = it->comm->rank,
                                      .missing = WEFT_WIRE_NO_RANK,
                                      .number = note->number,
                                      .root = note->root,
                                      .signature = note->signature,
                                      .chain = note->chain,
                                      .controls = note->controls,
                                      .count = note->count};
}

void weft_comm_say(struct weft_collectives *it, uint32_t to,
                   const struct weft_wire_calling *calling)
{
    uint8_t bytes[WEFT_WIRE_CALLING_LEN];
    if (to == it->comm->rank) {
        take_report(it, calling);
        return;
    }
    weft_wire_calling_encode(calling, bytes);
    (void)weft_control_call(it->comm->job->control, weft_comm_job_rank(it->comm, to), bytes,
                            sizeof(bytes));
}

/* ---- hearing it ---- */

static void compare(struct weft_collectives *it, const struct weft_comm_note *note,
                    const struct weft_wire_calling *calling)
{
    struct weft_comm_report *report;
    if (weft_comm_coordinator(it->comm) != it->comm->rank) {
        return;
    }
    if (it->reports == NULL) {
        it->reports = calloc(it->comm->ranks, sizeof(*it->reports));
    }
    if (it->reports == NULL) {
        return;
    }
    report = &it->reports[calling->rank];
    *report = (struct weft_comm_report){.note = *note,
                                        .missing = calling->missing,
                                        .inquiry = it->inquiry.number,
                                        .is_there = true};
    if (!find_mismatch(it, note, calling->rank) && calling->about == WEFT_CALLING_LATE) {
        weft_comm_inquire(it, note, calling);
    }
}

/* The calls are alike, but one before them was not. */
static void tell_history(struct weft_collectives *it, uint32_t to, uint32_t number)
{
    for (uint32_t i = 1; i <= HISTORY && i <= number; i++) {
        const struct weft_comm_note *note = own_note(it, number - i);
        if (note != NULL) {
            const struct weft_wire_calling calling =
                weft_comm_calling_of(it, note, WEFT_CALLING_HISTORY);
            weft_comm_say(it, to, &calling);
        }
    }
}

static void answer_stray(struct weft_collectives *it, const struct weft_wire_calling *question)
{
    uint32_t next = atomic_load_explicit(&it->number, memory_order_acquire);
    for (uint32_t i = 1; i <= RECENT && i <= next; i++) {
        const struct weft_comm_note *note = own_note(it, next - i);
        for (uint32_t stage = 0; note != NULL && stage < WEFT_EXEC_STAGES; stage++) {
            if (weft_exec_tag(note->chain, note->number, stage) == question->tag) {
                const struct weft_wire_calling answer =
                    weft_comm_calling_of(it, note, WEFT_CALLING_REPORT);
                weft_comm_say(it, question->rank, &answer);
                return;
            }
        }
    }
}

/* Are we in a call of the control plane that came, where the others are, after the collective they wait in? It
 * cannot end, nor can theirs. Who only began theirs may come all the same, until the time is up. */
static bool name_disorder(struct weft_collectives *it, const struct weft_wire_calling *calling,
                          const struct weft_comm_note *note)
{
    const struct weft_control_channel *channel = it->comm->channel;
    bool is_asked = calling->about == WEFT_CALLING_WHERE; /* for somebody else */
    bool is_certain = calling->about == WEFT_CALLING_LATE || is_asked || calling->is_waiting;
    uint32_t rank = is_asked ? calling->missing : calling->rank;
    char text[TEXT_LEN], theirs[96], ours[96], a[WEFT_CONTROL_RANK_LEN], b[WEFT_CONTROL_RANK_LEN];
    if (!is_certain || note->number < atomic_load(&it->number) ||
        note->controls > weft_control_channel_calls(channel) ||
        !weft_control_channel_is_in_call(channel, ours, sizeof(ours))) {
        return false;
    }
    weft_comm_print_call(note, theirs, sizeof(theirs));
    snprintf(text, sizeof(text), "%s called %s, %s called %s; all ranks must make the same calls",
             print_rank(it, rank, a), theirs, print_rank(it, it->comm->rank, b), ours);
    weft_comm_report_failure(it, WEFT_ERR_MISMATCH, it->comm->rank, text, false);
    return true;
}

/* calling->rank is one of ours. */
static void take_report(struct weft_collectives *it, const struct weft_wire_calling *calling)
{
    const struct weft_comm_note note = {.number = calling->number,
                                        .signature = calling->signature,
                                        .chain = calling->chain,
                                        .coll = calling->coll,
                                        .dtype = calling->dtype,
                                        .op = calling->op,
                                        .root = calling->root,
                                        .controls = calling->controls,
                                        .count = calling->count};
    const struct weft_comm_note *own = own_note(it, note.number);
    const struct caller me = {it->comm->rank, own}, them = {calling->rank, &note};
    char more[96];
    if (calling->about == WEFT_CALLING_STRAY) {
        answer_stray(it, calling);
        return;
    }
    if (own != NULL && is_other(own, &note)) {
        name_mismatch(it, me, them, "");
    } else if (name_disorder(it, calling, &note)) {
        return;
    } else if (calling->about == WEFT_CALLING_HISTORY) {
        return;
    } else if (own != NULL && own->chain != note.chain) {
        tell_history(it, calling->rank, note.number);
    } else if (own != NULL && calling->about == WEFT_CALLING_LENGTH) {
        snprintf(more, sizeof(more), ": %llu bytes came where %llu were expected",
                 (unsigned long long)calling->came, (unsigned long long)calling->expected);
        name_mismatch(it, me, them, more);
    } else if (calling->about == WEFT_CALLING_WHERE) {
        own = own != NULL ? own : own_note(it, atomic_load(&it->number) - 1); /* how far we are */
        if (own != NULL) {
            const struct weft_wire_calling here =
                weft_comm_calling_of(it, own, WEFT_CALLING_REPORT);
            weft_comm_say(it, calling->rank, &here);
        }
    } else {
        compare(it, &note, calling);
    }
}

void weft_comm_calling_arrived(struct weft_job *job, uint32_t from, const uint8_t *payload,
                               size_t len)
{
    struct weft_wire_calling calling;
    if (weft_wire_calling_decode(payload, len, &calling) != WEFT_OK) {
        weft_log(comm, ERROR, "rank %u: %s", from, weft_error_text());
        return;
    }
    for (struct weft_list *node = job->collectives.next; node != &job->collectives;
         node = node->next) {
        struct weft_collectives *it = WEFT_CONTAINER_OF(node, struct weft_collectives, node);
        if (it->comm->id == calling.channel && calling.rank < it->comm->ranks &&
            weft_comm_job_rank(it->comm, calling.rank) == from) {
            take_report(it, &calling);
            return;
        }
    }
    /* Not here yet: it will say it again. */
}

/* ---- those who wait ---- */

void weft_comm_name_job(void *owner, const struct weft_exec_job *job, char *text, size_t room)
{
    const struct weft_comm_note note = note_of(owner, job);
    weft_comm_print_call(&note, text, room);
}

/* Under the lock. */
static bool is_gone(const struct weft_collectives *it, uint32_t rank, struct weft_exec_gone *gone_p)
{
    char name[128];
    if (rank == it->comm->rank ||
        !weft_control_is_gone(it->comm->job->control, weft_comm_job_rank(it->comm, rank))) {
        return false;
    }
    gone_p->rank = rank;
    weft_p2p_comm_name(it->messages, rank, name, sizeof(name));
    snprintf(gone_p->text, sizeof(gone_p->text), "%s has closed before it did its part", name);
    return true;
}

bool weft_comm_has_gone(void *owner, const struct weft_exec_group *group, uint32_t rank,
                        struct weft_exec_gone *gone_p)
{
    const struct weft_collectives *it = owner;
    uint32_t count = group != NULL ? group->ranks : it->comm->ranks;
    bool has_gone = false;
    weft_engine_lock(it->comm->job->engine);
    if (rank != WEFT_WIRE_NO_RANK) {
        has_gone = is_gone(it, rank, gone_p);
    }
    for (uint32_t i = 0; rank == WEFT_WIRE_NO_RANK && i < count && !has_gone; i++) {
        has_gone =
            is_gone(it, group != NULL && group->members != NULL ? group->members[i] : i, gone_p);
    }
    weft_engine_unlock(it->comm->job->engine);
    return has_gone;
}

/* To the coordinator, and to whom we wait for: it may have called something else, ended it, and gone on. */
static void tell(struct weft_collectives *it, const struct weft_wire_calling *calling)
{
    struct weft_comm *comm = it->comm;
    uint32_t to;
    weft_engine_lock(comm->job->engine);
    to = weft_comm_coordinator(comm);
    weft_comm_say(it, to, calling);
    if (calling->missing < comm->ranks && calling->missing != to &&
        calling->missing != comm->rank) {
        weft_comm_say(it, calling->missing, calling);
    }
    weft_engine_unlock(comm->job->engine);
}

void weft_comm_stuck(void *owner, const struct weft_exec_job *job,
                     const struct weft_exec_stuck *stuck)
{
    struct weft_collectives *it = owner;
    const struct weft_comm_note note = note_of(it, job);
    struct weft_wire_calling calling =
        weft_comm_calling_of(it, &note, stuck->is_late ? WEFT_CALLING_LATE : WEFT_CALLING_REPORT);
    weft_recorder_note(it->recorder, job->record, stuck->missing, stuck->percent);
    bool is_asked = stuck->is_late && it->late == job->number + 1;
    if (!is_asked) {
        it->late = stuck->is_late ? job->number + 1 : 0;
        it->late_ns = weft_clock_ns();
    }
    if (stuck->is_late && weft_comm_give_up(it, &note, stuck, is_asked)) {
        return;
    }
    calling.missing = stuck->missing;
    calling.timeout_ms = stuck->timeout_ms;
    calling.is_waiting = stuck->is_waiting;
    if (is_kept(it, job)) {
        tell(it, &calling);
    }
}

void weft_comm_differs(void *owner, const struct weft_exec_job *job, uint32_t rank)
{
    struct weft_collectives *it = owner;
    const struct weft_comm_note note = note_of(it, job);
    struct weft_wire_calling calling = weft_comm_calling_of(it, &note, WEFT_CALLING_REPORT);
    calling.missing = rank;
    if (is_kept(it, job)) {
        tell(it, &calling);
    }
}

void weft_comm_differs_in_length(void *owner, const struct weft_exec_job *job, uint32_t rank,
                                 const struct weft_exec_lengths *lengths)
{
    struct weft_collectives *it = owner;
    const struct weft_comm_note note = note_of(it, job);
    struct weft_wire_calling calling = weft_comm_calling_of(it, &note, WEFT_CALLING_LENGTH);
    calling.came = lengths->came;
    calling.expected = lengths->expected;
    if (is_kept(it, job)) {
        weft_engine_lock(it->comm->job->engine);
        weft_comm_say(it, rank, &calling);
        weft_engine_unlock(it->comm->job->engine);
    }
}

void weft_comm_stray(void *owner, uint32_t rank, uint32_t tag)
{
    struct weft_collectives *it = owner;
    const struct weft_comm_note none = {0};
    struct weft_wire_calling question = weft_comm_calling_of(it, &none, WEFT_CALLING_STRAY);
    question.tag = tag;
    weft_comm_say(it, rank, &question);
}
