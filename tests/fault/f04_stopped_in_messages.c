/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank that is stopped is not dead. For two seconds: a large transfer waits and arrives exactly.
 * For ever: at the operation's deadline, wherever that was set, ERR_TIMEOUT names the rank that
 * stood.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/messages.h"

#include <signal.h>

#define STOP_MS 2000
#define SLACK_MS 300 /* of the deadline, as promised */
#define TIMEOUT_MS 900

#define INSIDE 0
#define ROUNDS 1
#define ENOUGH 2 /* the stream may end */
#define SAFE 3   /* the test has what it needs: late ranks may close */

/* ---- two seconds ---- */

enum { TAG_MORE = 1, TAG_LAST = 2 };

struct stream {
    const char *path, *cma;
    int sender, receiver, victim;
};

static int send_stream(weft_comm_t comm, struct harness_shared *shared, const struct stream *stream)
{
    uint8_t *data = messages_buffer(MESSAGES_LARGE);
    weft_status_t status = WEFT_OK;
    int tag = TAG_MORE;
    for (uint64_t round = 0; status == WEFT_OK && tag == TAG_MORE; round++) {
        tag = atomic_load(&shared->word[ENOUGH]) != 0 ? TAG_LAST : TAG_MORE;
        messages_fill(data, MESSAGES_LARGE, round);
        status = weft_send(comm, data, MESSAGES_LARGE, stream->receiver, tag, NULL);
    }
    free(data);
    return harness_say(shared, stream->sender, (int)status, "%s", weft_error_text());
}

static int receive_stream(weft_comm_t comm, struct harness_shared *shared,
                          const struct stream *stream)
{
    uint8_t *data = messages_buffer(MESSAGES_LARGE);
    weft_message_t message = {.tag = TAG_MORE};
    weft_status_t status = WEFT_OK;
    size_t wrong = MESSAGES_LARGE;
    uint64_t round;
    for (round = 0; status == WEFT_OK && wrong == MESSAGES_LARGE && message.tag == TAG_MORE;
         round++) {
        status =
            weft_recv(comm, data, MESSAGES_LARGE, stream->sender, WEFT_ANY_TAG, &message, NULL);
        wrong = status == WEFT_OK ? messages_wrong(data, MESSAGES_LARGE, round) : wrong;
        atomic_fetch_add(&shared->word[ROUNDS], 1);
    }
    free(data);
    if (status == WEFT_OK && wrong != MESSAGES_LARGE) {
        return harness_say(shared, stream->receiver, -1, "message %lu is wrong from byte %zu on",
                           (unsigned long)round, wrong);
    }
    return harness_say(shared, stream->receiver, (int)status, "%s", weft_error_text());
}

static int stream_body(int rank, struct harness_shared *shared, void *arg)
{
    const struct stream *stream = arg;
    weft_comm_t comm;
    setenv("WEFT_CMA", stream->cma, 1);
    if (messages_join(rank, shared, stream->path, MESSAGES_TIMEOUT_MS, &comm) != WEFT_OK) {
        return harness_say(shared, rank, -1, "could not join: %s", weft_error_text());
    }
    int status = rank == stream->sender ? send_stream(comm, shared, stream)
                                        : receive_stream(comm, shared, stream);
    weft_control_barrier(comm);
    weft_comm_close(comm);
    return status;
}

/* All of them stand during the same two seconds. */
static void check_streams(struct stream *streams, size_t count)
{
    struct harness *harness[8];
    for (size_t i = 0; i < count; i++) {
        harness[i] = harness_start(2, stream_body, &streams[i]);
    }
    for (size_t i = 0; i < count; i++) {
        struct harness_shared *shared = harness_shared(harness[i]);
        assert_harness(harness[i], harness_wait_reach(&shared->word[ROUNDS], 1, MESSAGES_WAIT_MS));
        assert_harness(harness[i], harness_stop(harness[i], streams[i].victim));
    }
    messages_let_pass(STOP_MS);
    for (size_t i = 0; i < count; i++) {
        struct harness_shared *shared = harness_shared(harness[i]);
        atomic_store(&shared->word[ENOUGH], 1);
        assert_harness(harness[i], harness_continue(harness[i], streams[i].victim));
    }
    for (size_t i = 0; i < count; i++) {
        messages_wait(harness[i], MESSAGES_WAIT_MS, streams[i].path);
        messages_check_fine(harness[i], streams[i].path);
        harness_close(harness[i]);
    }
}

static void a_transfer_waits_for_a_stopped_sender_or_receiver(void **state)
{
    struct stream streams[] = {{"shm", "auto", 0, 1, 0},
                               {"shm", "off", 1, 0, 0},
                               {"shm", "on", 0, 1, 1},
                               {"tcp", "auto", 1, 0, 1},
                               {"tcp", "auto", 0, 1, 1}};
    (void)state;
    check_streams(streams, 5);
}

/* ---- for ever ---- */

enum deed { DEED_RECV, DEED_SEND_LARGE, DEED_SEND_SMALL, DEED_QUIET, DEED_BYSTANDER };
enum source { BY_ENVIRONMENT, BY_CONFIG, BY_COMM, BY_REQUEST };

struct plan {
    const char *path;
    enum deed deed;
    enum source source;
    int victim;
};

static weft_status_t limit(weft_comm_t comm, enum source source)
{
    if (source == BY_COMM) {
        return weft_comm_set_timeout(comm, TIMEOUT_MS);
    }
    return WEFT_OK;
}

static weft_status_t wait_limited(weft_status_t status, weft_request_t request)
{
    status = status == WEFT_OK ? weft_request_set_timeout(request, TIMEOUT_MS) : status;
    return status == WEFT_OK ? weft_wait(&request, WEFT_NO_LIMIT) : status;
}

/* Sends until the credit is spent and one call stands; only that one counts. */
static weft_status_t send_many(weft_comm_t comm, int rank, struct harness_shared *shared,
                               const struct plan *plan)
{
    uint8_t data[256] = {0};
    weft_status_t status;
    do {
        job_calls(rank, shared);
        status = weft_send(comm, data, sizeof(data), plan->victim, 1, NULL);
    } while (status == WEFT_OK);
    return status;
}

static weft_status_t do_deed(weft_comm_t comm, int rank, struct harness_shared *shared,
                             const struct plan *plan, const weft_mem_t *mem)
{
    static uint8_t data[1 << 20];
    bool is_limited = plan->source == BY_REQUEST && (plan->deed != DEED_BYSTANDER || rank == 0);
    weft_request_t request = NULL, *request_p = is_limited ? &request : NULL;
    weft_status_t status;
    job_calls(rank, shared);
    switch (plan->deed) {
    case DEED_RECV:
        status = weft_recv(comm, data, sizeof(data), plan->victim, 1, NULL, request_p);
        break;
    case DEED_SEND_LARGE:
        status = weft_send(comm, data, sizeof(data), plan->victim, 1, request_p);
        break;
    case DEED_SEND_SMALL:
        return send_many(comm, rank, shared, plan);
    case DEED_QUIET:
        status = weft_put(comm, &mem[plan->victim], 0, data, sizeof(data));
        return status == WEFT_OK ? weft_quiet(comm) : status;
    default: /* rank 1 waits for rank 0 and has time, rank 0 for the victim and has not */
        status =
            weft_recv(comm, data, sizeof(data), rank == 0 ? plan->victim : 0, 1, NULL, request_p);
    }
    return is_limited ? wait_limited(status, request) : status;
}

static weft_status_t start(int rank, struct harness_shared *shared, const struct plan *plan,
                           weft_comm_t *comm_p, weft_mem_t *mem)
{
    static uint8_t memory[1 << 20];
    uint8_t hello = 0;
    weft_mem_t mine;
    weft_status_t status;
    setenv("WEFT_TIMEOUT", plan->source == BY_ENVIRONMENT ? "900ms" : "25s", 1);
    status =
        messages_join(rank, shared, plan->path, plan->source == BY_CONFIG ? TIMEOUT_MS : 0, comm_p);
    status = status == WEFT_OK ? weft_mem_register(*comm_p, memory, sizeof(memory), &mine) : status;
    status = status == WEFT_OK ? weft_control_allgather(*comm_p, &mine, sizeof(mine), mem) : status;
    /* lanes are up before anybody stands */
    if (status == WEFT_OK && rank == plan->victim) {
        for (int peer = 0; peer < shared->ranks && status == WEFT_OK; peer++) {
            status = weft_send(*comm_p, &hello, 1, peer, 9, NULL);
        }
    }
    status =
        status == WEFT_OK ? weft_recv(*comm_p, &hello, 1, plan->victim, 9, NULL, NULL) : status;
    return status == WEFT_OK ? limit(*comm_p, plan->source) : status;
}

static int body(int rank, struct harness_shared *shared, void *arg)
{
    const struct plan *plan = arg;
    weft_mem_t mem[4];
    weft_comm_t comm;
    if (start(rank, shared, plan, &comm, mem) != WEFT_OK) {
        return harness_say(shared, rank, -1, "could not start: %s", weft_error_text());
    }
    atomic_fetch_add(&shared->word[INSIDE], 1);
    harness_wait_for(&shared->word[ENOUGH], 1, MESSAGES_WAIT_MS); /* the victim stands */
    if (rank == plan->victim) {
        return -1;
    }
    job_returned(rank, shared, do_deed(comm, rank, shared, plan, mem));
    weft_status_t status = messages_final_status(comm);
    atomic_fetch_add(&shared->word[SAFE], 1);
    harness_wait_reach(&shared->word[SAFE], (uint32_t)shared->ranks - 1, MESSAGES_WAIT_MS);
    job_close(rank, shared, comm);
    return (int)status;
}

static void check_timeout(struct harness *harness, const struct plan *plan, int rank)
{
    const struct job_report *report = job_report(harness, rank);
    const struct harness_result *result = harness_result(harness, rank);
    int64_t late_ns =
        (int64_t)(report->returned_ns - report->called_ns) - (int64_t)(TIMEOUT_MS * JOB_MS_NS);
    if (report->status != WEFT_ERR_TIMEOUT || result->status != WEFT_ERR_TIMEOUT ||
        !messages_names(result->text, plan->victim)) {
        fail_msg("over %s, deed %d: rank %d should get ERR_TIMEOUT for rank %d; it got (and the "
                 "communicator has %d) %s",
                 plan->path, (int)plan->deed, rank, plan->victim, result->status, result->text);
    }
    if (late_ns < -(int64_t)(JOB_MS_NS * SLACK_MS) ||
        late_ns > (int64_t)(JOB_MS_NS * SLACK_MS * JOB_SLOWNESS)) {
        fail_msg("over %s, deed %d: rank %d returned %.3f s off the deadline", plan->path,
                 (int)plan->deed, rank, (double)late_ns / 1e9);
    }
    if (report->closed_ns - report->closing_ns > JOB_CLOSE_NS * JOB_SLOWNESS) {
        fail_msg("over %s, deed %d: rank %d closed in %.3f s", plan->path, (int)plan->deed, rank,
                 messages_seconds(report->closing_ns, report->closed_ns));
    }
}

static void release(struct harness *harness, const struct plan *plan)
{
    for (int rank = 0; rank < 3; rank++) {
        if (rank != plan->victim) {
            assert_harness(harness, harness_wait_rank(harness, rank, MESSAGES_WAIT_MS));
        }
    }
    assert_harness(harness, harness_kill(harness, plan->victim, SIGKILL));
    assert_harness(harness, harness_wait(harness, 2000));
    for (int rank = 0; rank < 3; rank++) {
        if (rank != plan->victim) {
            check_timeout(harness, plan, rank);
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
        harness[i] = harness_start(3, body, &plans[i]);
    }
    for (size_t i = 0; i < count; i++) {
        struct harness_shared *shared = harness_shared(harness[i]);
        assert_harness(harness[i], harness_wait_for(&shared->word[INSIDE], 3, MESSAGES_WAIT_MS));
        assert_harness(harness[i], harness_stop(harness[i], plans[i].victim));
        atomic_store(&shared->word[ENOUGH], 1);
    }
    for (size_t i = 0; i < count; i++) {
        release(harness[i], &plans[i]);
    }
}

static void operations_end_at_the_deadline_wherever_it_was_set(void **state)
{
    struct plan plans[] = {
        {"shm", DEED_RECV, BY_ENVIRONMENT, 2}, {"tcp", DEED_RECV, BY_ENVIRONMENT, 2},
        {"shm", DEED_SEND_LARGE, BY_COMM, 1},  {"tcp", DEED_SEND_LARGE, BY_COMM, 1},
        {"shm", DEED_RECV, BY_CONFIG, 1},
    };
    (void)state;
    stand(plans, sizeof(plans) / sizeof(plans[0]));
}

static void a_request_ends_at_its_own_deadline(void **state)
{
    struct plan plans[] = {
        {"shm", DEED_SEND_LARGE, BY_REQUEST, 2},
        {"tcp", DEED_SEND_LARGE, BY_REQUEST, 2},
        {"shm", DEED_RECV, BY_REQUEST, 1},
        {"tcp", DEED_RECV, BY_REQUEST, 1},
    };
    (void)state;
    stand(plans, sizeof(plans) / sizeof(plans[0]));
}

static void small_sends_and_quiet_end_at_the_deadline(void **state)
{
    struct plan plans[] = {
        {"shm", DEED_SEND_SMALL, BY_COMM, 2},
        {"tcp", DEED_SEND_SMALL, BY_COMM, 2},
        {"shm", DEED_QUIET, BY_CONFIG, 1},
        {"tcp", DEED_QUIET, BY_CONFIG, 1},
    };
    (void)state;
    stand(plans, sizeof(plans) / sizeof(plans[0]));
}

/* Nobody can ask the coordinator; and who waits for one that waits hears who stands. */
static void also_when_the_root_stands_or_somebody_waits_in_between(void **state)
{
    struct plan plans[] = {
        {"shm", DEED_RECV, BY_COMM, 0},
        {"tcp", DEED_RECV, BY_COMM, 0},
        {"shm", DEED_BYSTANDER, BY_REQUEST, 2},
        {"tcp", DEED_BYSTANDER, BY_REQUEST, 2},
    };
    (void)state;
    stand(plans, sizeof(plans) / sizeof(plans[0]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_transfer_waits_for_a_stopped_sender_or_receiver),
        cmocka_unit_test(operations_end_at_the_deadline_wherever_it_was_set),
        cmocka_unit_test(a_request_ends_at_its_own_deadline),
        cmocka_unit_test(small_sends_and_quiet_end_at_the_deadline),
        cmocka_unit_test(also_when_the_root_stands_or_somebody_waits_in_between),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
