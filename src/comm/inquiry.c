/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Somebody's time in a collective is up. The coordinator asks all ranks whether they have come; those who
 * have not, or do not answer, are named. If all have, it follows the chain of who waits for whom. Should the
 * coordinator itself be silent, each rank names it and whom it waited for: to the control plane first, which makes one
 * verdict of it if it can.
 */
#include "comm/collectives.h"

#include <stdio.h>

#define TEXT_LEN 400
#define ANSWER_MS 80  /* of an inquiry */
#define MARGIN_MS 100 /* whose time is up says so again every 0.2 s: not once too often */
#define NAMED 4       /* ranks, at most */

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

/* "rank 1 (pid 7 on node1), rank 3 (pid 9 on node2)"; its length */
static size_t print_names(const struct weft_collectives *it, const uint32_t *ranks, uint32_t count,
                          char *text, size_t room)
{
    size_t len = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < count && i < NAMED && len < room; i++) {
        char name[128];
        weft_p2p_comm_name(it->messages, ranks[i], name, sizeof(name));
        len += (size_t)snprintf(text + len, room - len, "%s%s", i > 0 ? ", " : "", name);
    }
    if (count > NAMED && len < room) {
        len += (size_t)snprintf(text + len, room - len, " and %u more", count - NAMED);
    }
    return len < room ? len : room - 1;
}

struct lateness {
    const struct weft_comm_note *note; /* of the call */
    const uint32_t *ranks;             /* who is missing, the first NAMED of them */
    uint32_t count;
    bool has_entered, is_silent;         /* the first of them */
    const struct weft_comm_note *latest; /* its latest call; NULL: not known, or of no interest */
    uint64_t timeout_ms;
};

/* " has not …" */
static const char *print_lack(const struct lateness *late)
{
    bool is_one = late->count == 1;
    return late->has_entered ? (is_one ? "done its part of" : "done their parts of")
           : late->is_silent ? (is_one ? "answered, and is not known to be in"
                                       : "answered, and are not known to be in")
                             : "entered";
}

static void print_late(const struct weft_collectives *it, const struct lateness *late, char *text)
{
    char call[96];
    size_t len = print_names(it, late->ranks, late->count, text, TEXT_LEN - 160);
    weft_comm_print_call(late->note, call, sizeof(call));
    if (late->count == 0) {
        snprintf(text, TEXT_LEN, "all ranks are in %s, but it has not ended within %llu ms", call,
                 (unsigned long long)late->timeout_ms);
        return;
    }
    len += (size_t)snprintf(text + len, TEXT_LEN - len, " %s not %s %s within %llu ms",
                            late->count == 1 ? "has" : "have", print_lack(late), call,
                            (unsigned long long)late->timeout_ms);
    if (late->latest != NULL && len < TEXT_LEN) {
        weft_comm_print_call(late->latest, call, sizeof(call));
        snprintf(text + len, TEXT_LEN - len, "; its latest collective was %s", call);
    }
}

/* Has it ever said that it is in the call? */
static bool has_entered(const struct weft_collectives *it, uint32_t rank)
{
    const struct weft_comm_report *report = &it->reports[rank];
    uint32_t number = it->inquiry.note.number;
    return rank == it->comm->rank ? atomic_load(&it->number) > number
                                  : report->is_there && report->note.number >= number;
}

static bool has_answered(const struct weft_collectives *it, uint32_t rank)
{
    return rank == it->comm->rank || it->reports[rank].inquiry == it->inquiry.number;
}

static bool has_come(const struct weft_collectives *it, uint32_t rank)
{
    return has_entered(it, rank) && has_answered(it, rank);
}

static void end_inquiry(struct weft_engine_timer *timer, uint64_t now_ns)
{
    struct weft_comm_inquiry *inquiry = WEFT_CONTAINER_OF(timer, struct weft_comm_inquiry, timer);
    struct weft_collectives *it = WEFT_CONTAINER_OF(inquiry, struct weft_collectives, inquiry);
    uint32_t absent[NAMED], count = 0;
    struct lateness late = {
        .note = &inquiry->note, .ranks = absent, .timeout_ms = inquiry->timeout_ms};
    char text[TEXT_LEN];
    (void)now_ns;
    for (uint32_t rank = 0; rank < it->comm->ranks; rank++) {
        if (!has_come(it, rank)) {
            if (count < NAMED) {
                absent[count] = rank;
            }
            count++;
        }
    }
    if (count == 0) {
        absent[0] = find_absent(it, inquiry->missing, inquiry->note.number);
        count = absent[0] < it->comm->ranks;
    }
    late.count = count;
    late.has_entered = count > 0 && has_entered(it, absent[0]);
    late.is_silent = count > 0 && !has_answered(it, absent[0]);
    if (count == 1 && !late.has_entered && !late.is_silent && absent[0] != it->comm->rank) {
        late.latest = &it->reports[absent[0]].note;
    }
    print_late(it, &late, text);
    weft_comm_report_failure(it, WEFT_ERR_TIMEOUT, count > 0 ? absent[0] : WEFT_WIRE_NO_RANK, text,
                             false);
}

void weft_comm_inquire(struct weft_collectives *it, const struct weft_comm_note *note,
                       const struct weft_wire_calling *late)
{
    struct weft_comm_inquiry *inquiry = &it->inquiry;
    struct weft_wire_calling where = weft_comm_calling_of(it, note, WEFT_CALLING_WHERE);
    if (!weft_list_is_empty(&inquiry->timer.node)) {
        return;
    }
    where.missing = late->rank; /* on whose behalf */
    inquiry->number++;
    inquiry->note = *note;
    inquiry->missing = late->missing;
    inquiry->timeout_ms = late->timeout_ms;
    it->reports[late->rank].inquiry = inquiry->number;
    for (uint32_t rank = 0; rank < it->comm->ranks; rank++) {
        if (rank != it->comm->rank && rank != late->rank) {
            weft_comm_say(it, rank, &where);
        }
    }
    weft_engine_timer_set(it->comm->job->engine, &inquiry->timer, weft_clock_after_ms(ANSWER_MS));
}

/* The coordinator was asked (and its word has not come), or cannot be: it stands still. Then the control plane is, and at
 * last it ends here. */
bool weft_comm_give_up(struct weft_collectives *it, const struct weft_comm_note *note,
                       const struct weft_exec_stuck *stuck, bool is_asked)
{
    struct weft_control *control = it->comm->job->control;
    uint32_t missing[2] = {0}, count = 0;
    char text[TEXT_LEN];
    weft_engine_lock(it->comm->job->engine);
    uint64_t final_ns = (weft_control_verdict_ms(control) - MARGIN_MS) * WEFT_NS_PER_MS;
    uint32_t silent = weft_comm_coordinator(it->comm);
    bool is_still = weft_control_stands_still(control, weft_comm_job_rank(it->comm, silent));
    if (is_asked || is_still) {
        if (stuck->missing < it->comm->ranks && (!is_still || stuck->missing == silent)) {
            missing[count++] = stuck->missing;
        }
        if (silent != it->comm->rank && (count == 0 || silent != missing[0])) {
            missing[count++] = silent;
        }
        const struct lateness late = {.note = note,
                                      .ranks = missing,
                                      .count = count,
                                      .has_entered = true, /* who knows */
                                      .timeout_ms = stuck->timeout_ms};
        print_late(it, &late, text);
        weft_comm_report_failure(it, WEFT_ERR_TIMEOUT, count > 0 ? missing[0] : WEFT_WIRE_NO_RANK,
                                 text, weft_clock_ns() >= it->late_ns + final_ns);
    }
    weft_engine_unlock(it->comm->job->engine);
    return is_asked || is_still;
}

void weft_comm_inquiry_open(struct weft_collectives *it)
{
    weft_engine_timer_open(&it->inquiry.timer, end_inquiry);
}

void weft_comm_inquiry_close(struct weft_collectives *it)
{
    struct weft_engine *engine = it->comm->job->engine;
    weft_engine_lock(engine);
    weft_engine_timer_cancel(engine, &it->inquiry.timer);
    weft_engine_unlock(engine);
}
