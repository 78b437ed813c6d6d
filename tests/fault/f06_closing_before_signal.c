/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank waits for a signal, which any other may send. It waits as long as one of them is left; when the last one has
 * closed it hears so, long before its deadline, and signals that were sent before count. The same with a message that
 * any other may send.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/messages.h"

#define RANKS 3
#define WAITER 0
#define LAST 2 /* the one who leaves last */
#define LEN ((size_t)1 << 20)

#define INSIDE 0
#define GO 1
#define RETURNED 2

enum end { END_CLOSE, END_EXIT, END_SPLIT, ENDS };
static const char *const end_names[ENDS] = {"close", "exit", "close what was split"};

struct plan {
    const char *path;
    enum end end;
    uint32_t timeout_ms; /* of the wait */
    bool is_spoken;      /* the last one sends the signal when the other one has left */
    bool is_message;     /* a receive from anybody is the same */
    bool is_repeated;    /* … and so are many short waits */
};

struct seat {
    int rank;
    struct harness_shared *shared;
    const struct plan *plan;
    weft_comm_t job, comm; /* the same, unless it was split */
    weft_mem_t mem;        /* of who waits */
};

struct memory {
    uint64_t signal;
    uint8_t data[LEN];
};

static weft_status_t take_seat(struct seat *seat, struct memory *memory)
{
    weft_mem_t mine, all[RANKS];
    weft_status_t status =
        messages_join(seat->rank, seat->shared, seat->plan->path, MESSAGES_TIMEOUT_MS, &seat->job);
    seat->comm = seat->job;
    if (status == WEFT_OK && seat->plan->end == END_SPLIT) {
        status = weft_comm_split(seat->job, 0, seat->rank, &seat->comm);
    }
    status =
        status == WEFT_OK ? weft_mem_register(seat->comm, memory, sizeof(*memory), &mine) : status;
    status =
        status == WEFT_OK ? weft_control_allgather(seat->comm, &mine, sizeof(mine), all) : status;
    seat->mem = all[WAITER];
    return status;
}

/* Rank 1 leaves; the last one hears of it before it speaks. */
static weft_status_t speak(const struct seat *seat)
{
    static uint8_t data[LEN];
    uint8_t byte;
    weft_status_t status;
    if (seat->rank != LAST || !seat->plan->is_spoken) {
        return WEFT_OK;
    }
    status = weft_recv(seat->comm, &byte, 1, 1, 0, NULL, NULL);
    if (status != WEFT_ERR_PEER) {
        return WEFT_ERR_PROTOCOL;
    }
    messages_fill(data, LEN, 7);
    return weft_put_signal(seat->comm, &seat->mem, offsetof(struct memory, data), data, LEN,
                           &seat->mem, offsetof(struct memory, signal), 1);
}

static int leave(const struct seat *seat)
{
    weft_status_t status;
    if (!harness_wait_for(&seat->shared->word[GO], 1, MESSAGES_WAIT_MS)) {
        return -1;
    }
    status = speak(seat);
    harness_say(seat->shared, seat->rank, 0, "%s", weft_error_text());
    if (seat->plan->end == END_EXIT) {
        exit((int)status); /* without closing */
    }
    status = status == WEFT_OK ? weft_comm_close(seat->comm) : status;
    if (seat->plan->end == END_SPLIT) { /* its ranks live on in the job */
        bool is_heard = harness_wait_for(&seat->shared->word[RETURNED], 1, MESSAGES_WAIT_MS / 2);
        weft_comm_close(seat->job);
        return is_heard ? (int)status : -1;
    }
    return (int)status;
}

static weft_status_t wait_once(const struct seat *seat, const struct memory *memory)
{
    weft_status_t status;
    uint8_t byte;
    if (seat->plan->is_repeated) {
        do {
            status = weft_wait_signal(seat->comm, &memory->signal, 1, 1);
        } while (status == WEFT_ERR_TIMEOUT);
        return status;
    }
    return seat->plan->is_message
               ? weft_recv(seat->comm, &byte, 1, WEFT_ANY_SOURCE, WEFT_ANY_TAG, NULL, NULL)
               : weft_wait_signal(seat->comm, &memory->signal, 1, seat->plan->timeout_ms);
}

static int wait_for_it(const struct seat *seat, const struct memory *memory)
{
    weft_status_t status = wait_once(seat, memory);
    bool is_right = status != WEFT_OK || messages_are_right(memory->data, LEN, 7);
    if (status == WEFT_OK && is_right) { /* nobody can send another one */
        is_right = weft_wait_signal(seat->comm, &memory->signal, 2, seat->plan->timeout_ms) ==
                   WEFT_ERR_PEER;
    }
    job_returned(seat->rank, seat->shared, status);
    atomic_store(&seat->shared->word[RETURNED], 1);
    if (seat->comm != seat->job) {
        weft_comm_close(seat->comm);
    }
    weft_comm_close(seat->job);
    return is_right ? 0 : -1;
}

static int body(int rank, struct harness_shared *shared, void *arg)
{
    static struct memory memory;
    struct seat seat = {.rank = rank, .shared = shared, .plan = arg};
    if (take_seat(&seat, &memory) != WEFT_OK) {
        return harness_say(shared, rank, -1, "could not start: %s", weft_error_text());
    }
    atomic_fetch_add(&shared->word[INSIDE], 1);
    return rank == WAITER ? wait_for_it(&seat, &memory) : leave(&seat);
}

static void check(struct plan plan, weft_status_t expected, const char *word)
{
    char what[96];
    snprintf(what, sizeof(what), "over %s, the others %s, %s", plan.path, end_names[plan.end],
             plan.timeout_ms == WEFT_NO_LIMIT ? "no limit" : "a limit");
    struct harness *harness = harness_start(RANKS, body, &plan);
    struct harness_shared *shared = harness_shared(harness);
    assert_harness(harness, harness_wait_for(&shared->word[INSIDE], RANKS, MESSAGES_WAIT_MS));
    messages_let_pass(5); /* so that the call stands, most of the time; right either way */
    atomic_store(&shared->word[GO], 1);
    messages_wait(harness, MESSAGES_WAIT_MS, what);
    if (plan.end != END_EXIT) { /* those do not return */
        messages_check_fine(harness, what);
    }
    assert_harness(harness, harness_check_clean(harness));
    assert_int_equal(harness_result(harness, WAITER)->status, 0);
    const char *text = harness_result(harness, WAITER)->text;
    if (job_report(harness, WAITER)->status != (int32_t)expected || strstr(text, word) == NULL) {
        fail_msg("%s: should be %s with \"%s\": %s", what, weft_status_name(expected), word, text);
    }
    harness_close(harness);
}

static void a_wait_ends_when_the_last_one_has_closed(void **state)
{
    (void)state;
    for (size_t path = 0; path < MESSAGES_PATHS; path++) {
        for (enum end end = 0; end < ENDS; end++) {
            struct plan plan = {messages_paths[path], end, WEFT_NO_LIMIT, false, false, false};
            check(plan, WEFT_ERR_PEER, "closed");
            plan.timeout_ms = MESSAGES_TIMEOUT_MS;
            check(plan, WEFT_ERR_PEER, "closed");
            plan.is_message = true;
            check(plan, WEFT_ERR_PEER, "closed");
            plan.is_repeated = true;
            check(plan, WEFT_ERR_PEER, "closed");
        }
    }
}

static void it_goes_on_while_one_is_left_whose_last_signal_counts(void **state)
{
    (void)state;
    for (size_t path = 0; path < MESSAGES_PATHS; path++) {
        check((struct plan){messages_paths[path], END_CLOSE, WEFT_NO_LIMIT, true, false, false},
              WEFT_OK, "");
        check((struct plan){messages_paths[path], END_SPLIT, WEFT_NO_LIMIT, true, false, false},
              WEFT_OK, "");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wait_ends_when_the_last_one_has_closed),
        cmocka_unit_test(it_goes_on_while_one_is_left_whose_last_signal_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
