/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that do not come. Stopped for two seconds: the operation waits and is exact. For ever, or never
 * called at all: at the operation's deadline, wherever that was set, everybody gets ERR_TIMEOUT and the
 * text names who was missing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/collectives.h"

#define STOP_MS 2000
#define SLACK_MS 300 /* of the deadline, as promised */
#define BUSY_MS 200  /* more, on a machine that others use too */
#define TIMEOUT_MS 900
#define RANKS 4

#define INSIDE 0
#define ENOUGH 1
#define SAFE 2 /* the test has what it needs: late ranks may close */
#define ROUNDS 3

/* ---- two seconds ---- */

struct stream {
    const char *path;
    struct deed deed;
    int victim;
};

/* Sums whose result everybody knows, until the test has seen enough; the last one says so. */
static int stream_body(int rank, struct harness_shared *shared, void *arg)
{
    const struct stream *stream = arg;
    struct hands hands;
    weft_comm_t comm;
    weft_status_t status = messages_join(rank, shared, stream->path, MESSAGES_TIMEOUT_MS, &comm);
    size_t count = stream->deed.len / sizeof(int32_t);
    int32_t is_last = 0;
    if (status != WEFT_OK) {
        return harness_say(shared, rank, -1, "could not join: %s", weft_error_text());
    }
    hands_open(&hands, &stream->deed);
    for (int32_t round = 0; status == WEFT_OK && is_last == 0; round++) {
        int32_t *in = (int32_t *)(void *)hands.in, *out = (int32_t *)(void *)hands.out;
        for (size_t i = 0; i < count; i++) {
            in[i] = round + (int32_t)i + rank;
        }
        status = weft_allreduce(comm, in, out, count, WEFT_I32, WEFT_SUM, NULL);
        for (size_t i = 0; i < count && status == WEFT_OK; i++) {
            if (out[i] != RANKS * (round + (int32_t)i) + RANKS * (RANKS - 1) / 2) {
                status = WEFT_ERR_PROTOCOL;
            }
        }
        is_last = atomic_load(&shared->word[ENOUGH]) != 0;
        status = status == WEFT_OK ? weft_broadcast(comm, &is_last, &is_last, 1, WEFT_I32, 1, NULL)
                                   : status;
        atomic_fetch_add(&shared->word[ROUNDS], 1);
    }
    harness_say(shared, rank, 0, "%s: %s", weft_status_name(status), weft_error_text());
    weft_control_barrier(comm);
    weft_comm_close(comm);
    hands_close(&hands);
    return (int)status;
}

/* All of them stand during the same two seconds. */
static void an_operation_waits_for_a_stopped_rank(void **state)
{
    struct stream streams[] = {
        {"shm", {WEFT_ALLREDUCE, 32, MANNER_BLOCKING, false, 0}, 2},
        {"shm", {WEFT_ALLREDUCE, 4 << 20, MANNER_BLOCKING, false, 0}, 1},
        {"tcp", {WEFT_ALLREDUCE, 32, MANNER_BLOCKING, false, 0}, 3},
        {"tcp", {WEFT_ALLREDUCE, 4 << 20, MANNER_BLOCKING, false, 0}, 0},
    };
    struct harness *harness[4];
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        harness[i] = harness_start(RANKS, stream_body, &streams[i]);
    }
    for (size_t i = 0; i < 4; i++) {
        struct harness_shared *shared = harness_shared(harness[i]);
        collectives_await(harness[i], &shared->word[ROUNDS], RANKS, streams[i].path);
        assert_harness(harness[i], harness_stop(harness[i], streams[i].victim));
    }
    messages_let_pass(STOP_MS);
    for (size_t i = 0; i < 4; i++) {
        atomic_store(&harness_shared(harness[i])->word[ENOUGH], 1);
        assert_harness(harness[i], harness_continue(harness[i], streams[i].victim));
    }
    for (size_t i = 0; i < 4; i++) {
        messages_wait(harness[i], MESSAGES_WAIT_MS, streams[i].path);
        messages_check_fine(harness[i], streams[i].path);
        harness_close(harness[i]);
    }
}

/* ---- for ever ---- */

enum source { BY_ENVIRONMENT, BY_CONFIG, BY_COMM, BY_CALL, BY_REQUEST };

struct plan {
    const char *path;
    struct deed deed;
    enum source source;
    int missing;    /* bits: who does not come */
    bool is_absent; /* they are awake and do something else; else they are stopped */
};

static bool is_missing(const struct plan *plan, int rank)
{
    return (plan->missing >> rank & 1) != 0;
}

static weft_status_t start(int rank, struct harness_shared *shared, const struct plan *plan,
                           weft_comm_t *comm_p)
{
    weft_status_t status;
    setenv("WEFT_TIMEOUT", plan->source == BY_ENVIRONMENT ? "900ms" : "25s", 1);
    status =
        messages_join(rank, shared, plan->path, plan->source == BY_CONFIG ? TIMEOUT_MS : 0, comm_p);
    return status == WEFT_OK ? weft_barrier(*comm_p, NULL) : status; /* lanes are up */
}

static weft_status_t do_limited(weft_comm_t comm, const struct plan *plan,
                                const struct hands *hands)
{
    weft_call_t call = deed_call(&plan->deed, hands, RANKS);
    weft_request_t request = NULL;
    weft_status_t status;
    if (plan->source == BY_COMM) {
        status = weft_comm_set_timeout(comm, TIMEOUT_MS);
        return status == WEFT_OK ? deed_do(comm, &plan->deed, hands, RANKS) : status;
    }
    if (plan->source == BY_REQUEST) {
        status = weft_collective(comm, &call, &request);
        status = status == WEFT_OK ? weft_request_set_timeout(request, TIMEOUT_MS) : status;
        return status == WEFT_OK ? weft_wait(&request, WEFT_NO_LIMIT) : status;
    }
    if (plan->source == BY_CALL) {
        call.timeout_ms = TIMEOUT_MS;
        return weft_collective(comm, &call, NULL);
    }
    return deed_do(comm, &plan->deed, hands, RANKS);
}

/* Its part may be done without the one that is missing; then the barrier waits for it. Only the call that
 * stands counts. */
static weft_status_t call_until_it_stands(weft_comm_t comm, int rank, struct harness_shared *shared,
                                          const struct plan *plan, const struct hands *hands)
{
    weft_status_t status;
    do {
        job_calls(rank, shared);
        status = do_limited(comm, plan, hands);
    } while (status == WEFT_OK);
    return status;
}

static int body(int rank, struct harness_shared *shared, void *arg)
{
    const struct plan *plan = arg;
    struct hands hands;
    weft_comm_t comm;
    if (start(rank, shared, plan, &comm) != WEFT_OK) {
        return harness_say(shared, rank, -1, "could not start: %s", weft_error_text());
    }
    atomic_fetch_add(&shared->word[INSIDE], 1);
    harness_wait_for(&shared->word[ENOUGH], 1, MESSAGES_WAIT_MS); /* they stand */
    if (is_missing(plan, rank)) {
        harness_wait_reach(&shared->word[SAFE], 99, MESSAGES_WAIT_MS);
        return -1; /* killed before */
    }
    hands_open(&hands, &plan->deed);
    job_returned(rank, shared, call_until_it_stands(comm, rank, shared, plan, &hands));
    weft_status_t status = messages_final_status(comm);
    atomic_fetch_add(&shared->word[SAFE], 1);
    harness_wait_reach(&shared->word[SAFE],
                       (uint32_t)(RANKS - __builtin_popcount((unsigned)plan->missing)),
                       MESSAGES_WAIT_MS);
    job_close(rank, shared, comm);
    hands_close(&hands);
    return (int)status;
}

/* "rank 3", "ranks 1, 3", "ranks 0-2". */
static bool is_named(const char *text, int rank)
{
    for (const char *at = strstr(text, "rank"); at != NULL; at = strstr(at, "rank")) {
        long first = -1;
        at += 4 + (at[4] == 's');
        while (*at == ' ' || *at == ',' || *at == '-') {
            bool is_range = *at == '-';
            char *end;
            long number = strtol(at + (is_range ? 1 : strspn(at, ", ")), &end, 10);
            if (end == at + (is_range ? 1 : strspn(at, ", "))) {
                break;
            }
            if (number == rank || (is_range && first <= rank && rank <= number)) {
                return true;
            }
            first = number;
            at = end;
        }
    }
    return false;
}

static void check_timeout(struct harness *harness, const struct plan *plan, int rank,
                          const char *what)
{
    const struct job_report *report = job_report(harness, rank);
    const struct harness_result *result = harness_result(harness, rank);
    int64_t late_ns =
        (int64_t)(report->returned_ns - report->called_ns) - (int64_t)(TIMEOUT_MS * JOB_MS_NS);
    if (report->status != WEFT_ERR_TIMEOUT || result->status != WEFT_ERR_TIMEOUT) {
        fail_msg("%s: rank %d should get ERR_TIMEOUT; it got (and the communicator has %d) %s",
                 what, rank, result->status, result->text);
    }
    for (int missing = 0; missing < RANKS; missing++) {
        if (is_missing(plan, missing) && !is_named(result->text, missing)) {
            fail_msg("%s: rank %d does not hear of rank %d: %s", what, rank, missing, result->text);
        }
    }
    /* Who is awake says where it is; of whom nobody hears, nobody says that it has not come. */
    if (plan->missing > 1 && strstr(result->text, " has not ") != NULL) {
        bool is_told = strstr(result->text, "has not entered") != NULL;
        if (is_told != plan->is_absent ||
            (is_told && strstr(result->text, "its latest collective was barrier #") == NULL)) {
            fail_msg("%s: rank %d hears %s", what, rank, result->text);
        }
    }
    if (late_ns < -(int64_t)(JOB_MS_NS * SLACK_MS) ||
        late_ns > (int64_t)(JOB_MS_NS * (SLACK_MS + BUSY_MS) * JOB_SLOWNESS)) {
        fail_msg("%s: rank %d returned %.3f s off the deadline", what, rank, (double)late_ns / 1e9);
    }
    if (report->closed_ns - report->closing_ns > JOB_CLOSE_NS * JOB_SLOWNESS) {
        fail_msg("%s: rank %d closed in %.3f s", what, rank,
                 messages_seconds(report->closing_ns, report->closed_ns));
    }
}

static void release(struct harness *harness, const struct plan *plan)
{
    char what[128];
    deed_describe(&plan->deed, plan->path, what, sizeof(what));
    for (int rank = 0; rank < RANKS; rank++) {
        if (!is_missing(plan, rank)) {
            assert_harness(harness, harness_wait_rank(harness, rank, MESSAGES_WAIT_MS));
        }
    }
    for (int rank = 0; rank < RANKS; rank++) {
        if (is_missing(plan, rank)) {
            harness_kill(harness, rank, SIGKILL);
        }
    }
    assert_harness(harness, harness_wait(harness, 2000));
    for (int rank = 0; rank < RANKS; rank++) {
        if (!is_missing(plan, rank)) {
            check_timeout(harness, plan, rank, what);
        }
    }
    assert_harness(harness, harness_check_clean(harness));
    harness_close(harness);
}

/* All at once: they sleep most of the time. */
static void stand(struct plan *plans, size_t count)
{
    struct harness *harness[8];
    for (size_t i = 0; i < count; i++) {
        harness[i] = harness_start(RANKS, body, &plans[i]);
    }
    for (size_t i = 0; i < count; i++) {
        struct harness_shared *shared = harness_shared(harness[i]);
        collectives_await(harness[i], &shared->word[INSIDE], RANKS, plans[i].path);
        for (int rank = 0; rank < RANKS; rank++) {
            if (is_missing(&plans[i], rank) && !plans[i].is_absent) {
                assert_harness(harness[i], harness_stop(harness[i], rank));
            }
        }
        atomic_store(&shared->word[ENOUGH], 1);
    }
    for (size_t i = 0; i < count; i++) {
        release(harness[i], &plans[i]);
    }
}

static void the_deadline_holds_wherever_it_was_set(void **state)
{
    struct deed small = {WEFT_ALLREDUCE, 32, MANNER_BLOCKING, false, 0};
    struct deed large = {WEFT_ALLREDUCE, 4 << 20, MANNER_BLOCKING, false, 0};
    struct plan plans[] = {
        {"shm", small, BY_ENVIRONMENT, 2, false}, {"tcp", small, BY_CONFIG, 4, false},
        {"shm", large, BY_COMM, 8, false},        {"tcp", large, BY_CALL, 4, false},
        {"shm", small, BY_REQUEST, 4, false},     {"tcp", large, BY_REQUEST, 2, false},
        {"shm", large, BY_CALL, 8, false},        {"tcp", small, BY_COMM, 8, false},
    };
    (void)state;
    stand(plans, sizeof(plans) / sizeof(plans[0]));
}

static void every_collective_has_its_deadline(void **state)
{
    (void)state;
    for (size_t path = 0; path < MESSAGES_PATHS; path++) {
        struct plan plans[8];
        for (size_t i = 0; i < 8; i++) {
            weft_coll_t coll = (weft_coll_t)(i + 1); /* allreduce had its turn */
            struct deed deed = {coll, i % 2 == 0 ? 64 : 1 << 20, MANNER_BLOCKING, false, 2};
            plans[i] = (struct plan){messages_paths[path], deed, BY_COMM, 4, i % 3 == 0};
        }
        stand(plans, 8);
    }
}

static void all_that_are_missing_are_named(void **state)
{
    struct deed small = {WEFT_BARRIER, 32, MANNER_BLOCKING, false, 0};
    struct deed large = {WEFT_ALLGATHER, 1 << 20, MANNER_REQUEST, false, 0};
    struct plan plans[] = {
        {"shm", small, BY_COMM, 2 | 8, false}, {"tcp", small, BY_COMM, 2 | 8, true},
        {"shm", large, BY_COMM, 4 | 8, true},  {"tcp", large, BY_COMM, 2 | 4, false},
        {"shm", small, BY_COMM, 1, false},     {"tcp", small, BY_COMM, 1, true},
        {"shm", large, BY_COMM, 1, true},      {"tcp", large, BY_COMM, 1, false},
    };
    (void)state;
    stand(plans, sizeof(plans) / sizeof(plans[0]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_operation_waits_for_a_stopped_rank),
        cmocka_unit_test(the_deadline_holds_wherever_it_was_set),
        cmocka_unit_test(every_collective_has_its_deadline),
        cmocka_unit_test(all_that_are_missing_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
