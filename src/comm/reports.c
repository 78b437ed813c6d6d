/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who waits long in a collective tells the coordinator (the lowest living rank of the communicator) what it
 * called and whom it waits for. The coordinator compares: two calls with the same number that differ are a
 * mismatch, and both are named. When somebody's time is up it follows the chain of who waits for whom to a
 * rank that has not said anything: that one has not come.
 */
#include "comm/collectives.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_LEN 400

static void print_call(const struct weft_comm_note *note, char *text, size_t room)
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

static uint32_t job_rank(const struct weft_comm *comm, uint32_t rank)
{
    return comm->members != NULL ? comm->members[rank] : rank;
}

static uint32_t coordinator(const struct weft_comm *comm)
{
    for (uint32_t rank = 0; rank < comm->ranks; rank++) {
        if (rank == comm->rank || !weft_control_is_gone(comm->job->control, job_rank(comm, rank))) {
            return rank;
        }
    }
    return comm->rank;
}

/* ---- the coordinator, under the lock ---- */

static void fail(struct weft_collectives *it, weft_status_t status, uint32_t rank, const char *text,
                 bool is_final)
{
    const struct weft_control_failure failure = {
        .channel = it->comm->id,
        .status = status,
        .rank = rank < it->comm->ranks ? job_rank(it->comm, rank) : WEFT_WIRE_NO_RANK,
        .text = text};
    weft_control_fail(it->comm->job->control, &failure, is_final);
}

static void name_mismatch(struct weft_collectives *it, const struct weft_comm_note *one,
                          uint32_t one_rank, const struct weft_comm_note *other,
                          uint32_t other_rank)
{
    char text[TEXT_LEN], left[96], right[96];
    print_call(one, left, sizeof(left));
    print_call(other, right, sizeof(right));
    snprintf(text, sizeof(text),
             "rank %u called %s, rank %u called %s%s; all ranks must make the same calls", one_rank,
             left, other_rank, right,
             strcmp(left, right) == 0 ? " with another scale, algorithm or setting" : "");
    fail(it, WEFT_ERR_MISMATCH, other_rank, text, false);
}

/* What the rank itself called with this number; NULL: it is not there yet, or long past. */
static const struct weft_comm_note *own_note(const struct weft_collectives *it, uint32_t number)
{
    const struct weft_comm_note *note = &it->notes[number % WEFT_COLLECTIVE_KEPT];
    return number < it->number && note->number == number ? note : NULL;
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
            name_mismatch(it, &report->note, i, note, rank);
            return true;
        }
    }
    return false;
}

/* Whom everybody waits for in the end, beginning with one that somebody waits for. */
static uint32_t find_absent(const struct weft_collectives *it, uint32_t rank, uint32_t number)
{
    for (uint32_t i = 0; i < it->comm->ranks && rank < it->comm->ranks; i++) {
        const struct weft_comm_report *report = &it->reports[rank];
        if (!report->is_there || report->note.number != number ||
            report->missing >= it->comm->ranks) {
            return rank;
        }
        rank = report->missing;
    }
    return rank;
}

static void print_late(const struct weft_collectives *it, const struct weft_comm_note *note,
                       uint32_t absent, uint64_t timeout_ms, char *text)
{
    char call[96], name[128] = "a rank";
    print_call(note, call, sizeof(call));
    if (absent < it->comm->ranks) {
        weft_p2p_comm_name(it->messages, absent, name, sizeof(name));
    }
    snprintf(text, TEXT_LEN, "%s has not %s %s within %llu ms", name,
             absent < it->comm->ranks ? "entered" : "done its part of", call,
             (unsigned long long)timeout_ms);
}

static void take_report(struct weft_collectives *it, const struct weft_wire_calling *calling)
{
    const struct weft_comm_note note = {.number = calling->number,
                                        .signature = calling->signature,
                                        .coll = calling->coll,
                                        .dtype = calling->dtype,
                                        .op = calling->op,
                                        .root = calling->root,
                                        .count = calling->count};
    char text[TEXT_LEN];
    uint32_t absent;
    const struct weft_comm_note *own = own_note(it, note.number);
    if (own != NULL && is_other(own, &note)) {
        name_mismatch(it, own, it->comm->rank, &note, calling->rank);
        return;
    }
    if (coordinator(it->comm) != it->comm->rank) {
        return;
    }
    if (it->reports == NULL) {
        it->reports = calloc(it->comm->ranks, sizeof(*it->reports));
    }
    if (it->reports == NULL || calling->rank >= it->comm->ranks) {
        return;
    }
    it->reports[calling->rank] =
        (struct weft_comm_report){.note = note, .missing = calling->missing, .is_there = true};
    if (find_mismatch(it, &note, calling->rank) || !calling->is_late) {
        return;
    }
    absent = find_absent(it, calling->missing, note.number);
    print_late(it, &note, absent, calling->timeout_ms, text);
    fail(it, WEFT_ERR_TIMEOUT, absent, text, false);
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
            job_rank(it->comm, calling.rank) == from) {
            take_report(it, &calling);
            return;
        }
    }
    /* Not here yet: it will say it again. */
}

/* ---- those who wait ---- */

void weft_comm_name_job(void *owner, const struct weft_exec_job *job, char *text, size_t room)
{
    const struct weft_collectives *it = owner;
    print_call(&it->notes[job->number % WEFT_COLLECTIVE_KEPT], text, room);
}

bool weft_comm_has_gone(void *owner, const struct weft_exec_group *group, uint32_t *rank_p,
                        char *text, size_t room)
{
    const struct weft_collectives *it = owner;
    const struct weft_comm *comm = it->comm;
    bool is_gone = false;
    weft_engine_lock(comm->job->engine);
    for (uint32_t i = 0; i < group->ranks && !is_gone; i++) {
        uint32_t rank = group->members != NULL ? group->members[i] : i;
        char name[128];
        if (weft_control_is_gone(comm->job->control, job_rank(comm, rank))) {
            is_gone = true;
            *rank_p = rank;
            weft_p2p_comm_name(it->messages, rank, name, sizeof(name));
            snprintf(text, room, "%s has closed before it did its part", name);
        }
    }
    weft_engine_unlock(comm->job->engine);
    return is_gone;
}

static void tell(struct weft_collectives *it, const struct weft_exec_job *job, uint32_t missing,
                 bool is_late)
{
    struct weft_comm *comm = it->comm;
    const struct weft_comm_note *note = &it->notes[job->number % WEFT_COLLECTIVE_KEPT];
    const struct weft_wire_calling calling = {.is_late = is_late,
                                              .coll = note->coll,
                                              .dtype = note->dtype,
                                              .op = note->op,
                                              .channel = comm->id,
                                              .rank = comm->rank,
                                              .missing = missing,
                                              .number = job->number,
                                              .root = note->root,
                                              .signature = note->signature,
                                              .count = note->count,
                                              .timeout_ms = job->timeout_ms};
    uint8_t bytes[WEFT_WIRE_CALLING_LEN];
    uint32_t to = coordinator(comm);
    weft_wire_calling_encode(&calling, bytes);
    weft_engine_lock(comm->job->engine);
    if (to == comm->rank) {
        take_report(it, &calling);
    } else {
        (void)weft_control_call(comm->job->control, job_rank(comm, to), bytes, sizeof(bytes));
    }
    /* Whom we wait for may have called something else, ended it, and gone on. */
    if (missing < comm->ranks && missing != to && missing != comm->rank) {
        (void)weft_control_call(comm->job->control, job_rank(comm, missing), bytes, sizeof(bytes));
    }
    weft_engine_unlock(comm->job->engine);
}

void weft_comm_stuck(void *owner, const struct weft_exec_job *job, uint32_t missing, bool is_late)
{
    struct weft_collectives *it = owner;
    char text[TEXT_LEN];
    if (!is_late || !it->is_late) {
        it->is_late = is_late;
        tell(it, job, missing, is_late);
        return;
    }
    /* The coordinator was asked, and its word has not come. */
    print_late(it, &it->notes[job->number % WEFT_COLLECTIVE_KEPT], missing, job->timeout_ms, text);
    weft_engine_lock(it->comm->job->engine);
    fail(it, WEFT_ERR_TIMEOUT, missing, text, true);
    weft_engine_unlock(it->comm->job->engine);
}

void weft_comm_differs(void *owner, const struct weft_exec_job *job, uint32_t rank)
{
    tell(owner, job, rank, false);
}
