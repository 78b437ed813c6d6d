/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank stands still for ever: whatever the others wait for, at the deadline they get ERR_TIMEOUT, and the words say
 * who is waited for, with process and host, and in which call. Every kind of call, by shared memory and by tcp.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/collectives.h"

#define RANKS 3
#define TIMEOUT_MS (300 * JOB_SLOWNESS)
#define LATE_MS (2000 * JOB_SLOWNESS) /* beyond the deadline, on a machine that others use too */
#define LEN ((size_t)4 << 20)

#define VICTIM 1 /* mostly */

#define READY 0
#define GO 1
#define RETURNED 2
#define BLAMED 3 /* + rank: whom weft_comm_get_error() names */

enum kind {
    KIND_COLLECTIVE, /* + weft_coll_t below */
    KIND_FIRST,      /* of a communicator: its ranks meet */
    KIND_FIRST_OWN,  /* the same, with a deadline of its own */
    KIND_SEND,
    KIND_RECV,
    KIND_PUT,
    KIND_GET,
    KIND_SIGNAL,
    KIND_CONTROL_BARRIER,
    KIND_CONTROL_ALLGATHER,
    KIND_CONTROL_BROADCAST,
    KIND_CONTROL_SEND,
    KIND_CONTROL_RECV,
    KIND_SPLIT,
    KIND_DUPLICATE,
    KIND_SHRINK,
};

struct plan {
    enum kind kind;
    int victim;
    weft_coll_t coll;
    const char *path;
    const char *call; /* what the words must say of it */
};

/* ---- ranks ---- */

struct scene {
    weft_comm_t comm;
    uint8_t *memory; /* LEN, registered */
    weft_mem_t mem[RANKS];
};

static weft_status_t set_up(struct scene *scene, const struct plan *plan)
{
    weft_mem_t mine;
    weft_status_t status = weft_mem_register(scene->comm, scene->memory, LEN, &mine);
    status = status == WEFT_OK
                 ? weft_control_allgather(scene->comm, &mine, sizeof(mine), scene->mem)
                 : status;
    if (status == WEFT_OK && plan->kind != KIND_FIRST && plan->kind != KIND_FIRST_OWN) {
        status = weft_barrier(scene->comm, NULL);
    }
    return status;
}

static weft_status_t call_collective(const struct scene *scene, const struct plan *plan)
{
    struct deed deed = {.coll = plan->coll, .len = 4096, .root = plan->victim};
    struct hands hands;
    weft_call_t own;
    weft_status_t status;
    /* where the root needs nobody it is another one, and where nobody needs the victim it is it */
    if (plan->coll == WEFT_REDUCE || plan->coll == WEFT_GATHER) {
        deed.root = RANKS - 1;
    }
    hands_open(&hands, &deed);
    own = deed_call(&deed, &hands, RANKS);
    own.timeout_ms = TIMEOUT_MS;
    status = plan->kind == KIND_FIRST_OWN ? weft_collective(scene->comm, &own, NULL)
                                          : deed_do(scene->comm, &deed, &hands, RANKS);
    status = status == WEFT_OK ? weft_barrier(scene->comm, NULL) : status;
    hands_close(&hands);
    return status;
}

static weft_status_t call_control(const struct scene *scene, const struct plan *plan)
{
    uint8_t data[RANKS * 8] = {0};
    weft_status_t status = WEFT_OK;
    static uint8_t full[WEFT_CONTROL_MAX];
    switch (plan->kind) {
    case KIND_CONTROL_BARRIER:
        return weft_control_barrier(scene->comm);
    case KIND_CONTROL_ALLGATHER:
        return weft_control_allgather(scene->comm, data, 8, data);
    case KIND_CONTROL_BROADCAST:
        return weft_control_broadcast(scene->comm, data, 8, plan->victim);
    case KIND_CONTROL_SEND: /* until nothing more fits */
        for (int i = 0; i < 3 && status == WEFT_OK; i++) {
            status = weft_control_send(scene->comm, plan->victim, 7, full, sizeof(full));
        }
        return status;
    default:
        return weft_control_recv(scene->comm, plan->victim, 7, data, sizeof(data), NULL);
    }
}

static weft_status_t call(struct scene *scene, const struct plan *plan)
{
    weft_comm_t other = NULL;
    weft_status_t status;
    switch (plan->kind) {
    case KIND_COLLECTIVE:
    case KIND_FIRST:
    case KIND_FIRST_OWN:
        return call_collective(scene, plan);
    case KIND_SEND:
        return weft_send(scene->comm, scene->memory, LEN, plan->victim, 7, NULL);
    case KIND_RECV:
        return weft_recv(scene->comm, scene->memory, LEN, plan->victim, 7, NULL, NULL);
    case KIND_PUT:
    case KIND_GET:
        status = plan->kind == KIND_PUT
                     ? weft_put(scene->comm, &scene->mem[plan->victim], 0, scene->memory, LEN)
                     : weft_get(scene->comm, &scene->mem[plan->victim], 0, scene->memory, LEN);
        return status == WEFT_OK ? weft_quiet(scene->comm) : status;
    case KIND_SIGNAL:
        return weft_wait_signal(scene->comm, (const uint64_t *)(const void *)scene->memory, 1,
                                WEFT_NO_LIMIT);
    case KIND_SPLIT:
        return weft_comm_split(scene->comm, 0, 0, &other);
    case KIND_DUPLICATE:
        return weft_comm_duplicate(scene->comm, &other);
    case KIND_SHRINK:
        return weft_comm_shrink(scene->comm, &other);
    default:
        return call_control(scene, plan);
    }
}

static int body(int rank, struct harness_shared *shared, void *arg)
{
    const struct plan *plan = arg;
    struct scene scene = {0};
    weft_error_t error;
    void *memory = NULL;
    weft_status_t status = messages_join(rank, shared, plan->path, 10000, &scene.comm);
    if (status != WEFT_OK || weft_alloc(LEN, &memory) != WEFT_OK) {
        return harness_say(shared, rank, -1, "could not start: %s", weft_error_text());
    }
    scene.memory = memory;
    status = set_up(&scene, plan);
    if (status != WEFT_OK) {
        return harness_say(shared, rank, -1, "could not begin: %s", weft_error_text());
    }
    if (plan->kind != KIND_FIRST_OWN) {
        weft_comm_set_timeout(scene.comm, TIMEOUT_MS);
    }
    atomic_fetch_add(&shared->word[READY], 1);
    if (rank != plan->victim) { /* which is stopped here */
        harness_wait_for(&shared->word[GO], 1, MESSAGES_WAIT_MS);
        job_calls(rank, shared);
        status = call(&scene, plan);
        job_returned(rank, shared, status);
        if (weft_comm_get_error(scene.comm, &error) == WEFT_OK && error.status != WEFT_OK) {
            atomic_store(&shared->word[BLAMED + rank], (uint32_t)error.rank);
        }
        atomic_fetch_add(&shared->word[RETURNED], 1);
    }
    harness_wait_reach(&shared->word[RETURNED], RANKS - 1, MESSAGES_WAIT_MS);
    job_close(rank, shared, scene.comm);
    weft_free(memory);
    return 0;
}

/* ---- the test ---- */

static void check_words(struct harness *harness, const struct plan *plan, int rank)
{
    const struct job_report *report = job_report(harness, rank);
    const char *text = harness_result(harness, rank)->text;
    double took_ms = messages_seconds(report->called_ns, report->returned_ns) * 1e3;
    int blamed = (int)atomic_load(&harness_shared(harness)->word[BLAMED + rank]);
    char host[72], name[160] = "";
    gethostname(host, sizeof(host));
    if (plan->kind != KIND_SIGNAL) { /* whoever may add to it */
        snprintf(name, sizeof(name), "rank %d (pid %d on %.64s)", plan->victim,
                 (int)harness_pid(harness, plan->victim), host);
    }
    if (report->status != WEFT_ERR_TIMEOUT || strstr(text, name) == NULL ||
        strstr(text, plan->call) == NULL) {
        fail_msg("%s over %s: rank %d does not say \"%s\" and \"%s\": %s", plan->call, plan->path,
                 rank, name, plan->call, text);
    }
    /* a signal is nobody's; shrinking does not end what it shrinks */
    if (plan->kind != KIND_SIGNAL && plan->kind != KIND_SHRINK && blamed != plan->victim) {
        fail_msg("%s over %s: rank %d blames rank %d", plan->call, plan->path, rank, blamed);
    }
    if (took_ms < TIMEOUT_MS - 50 || took_ms > TIMEOUT_MS + LATE_MS) {
        fail_msg("%s over %s: rank %d returned after %.0f ms", plan->call, plan->path, rank,
                 took_ms);
    }
}

static void check(struct plan plan)
{
    struct harness *harness = harness_start(RANKS, body, &plan);
    struct harness_shared *shared = harness_shared(harness);
    collectives_await(harness, &shared->word[READY], RANKS, plan.call);
    assert_harness(harness, harness_stop(harness, plan.victim));
    atomic_store(&shared->word[GO], 1);
    collectives_await(harness, &shared->word[RETURNED], RANKS - 1, plan.call);
    assert_harness(harness, harness_continue(harness, plan.victim));
    for (int rank = 0; rank < RANKS; rank++) {
        if (rank != plan.victim) {
            check_words(harness, &plan, rank);
        }
    }
    messages_wait(harness, MESSAGES_WAIT_MS, plan.call);
    messages_check_fine(harness, plan.call);
    harness_close(harness);
}

static void a_collective_names_the_rank_that_stands_still(void **state)
{
    for (int coll = 0; coll < WEFT_COLLS; coll++) {
        /* what needs no word of the victim, the barrier behind it does */
        bool needs = coll != WEFT_REDUCE && coll != WEFT_GATHER;
        check((struct plan){.victim = VICTIM,
                            .kind = KIND_COLLECTIVE,
                            .coll = (weft_coll_t)coll,
                            .path = *state,
                            .call = needs ? weft_coll_name((weft_coll_t)coll) : " #"});
    }
    check((struct plan){
        .victim = VICTIM, .kind = KIND_FIRST, .path = *state, .call = "first collective"});
    check((struct plan){
        .victim = VICTIM, .kind = KIND_FIRST_OWN, .path = *state, .call = "first collective"});
}

static void a_message_names_the_rank_that_stands_still(void **state)
{
    check((struct plan){
        .victim = VICTIM, .kind = KIND_SEND, .path = *state, .call = "message of 4194304 bytes"});
    check((struct plan){
        .victim = VICTIM, .kind = KIND_RECV, .path = *state, .call = "receive of up to 4194304"});
    check((struct plan){
        .victim = VICTIM, .kind = KIND_SIGNAL, .path = *state, .call = "it is 0, and 1 is waited"});
    if (strcmp(*state, "tcp") == 0) { /* by shared memory it is not needed */
        check((struct plan){
            .victim = VICTIM, .kind = KIND_PUT, .path = *state, .call = "one-sided operation"});
        check((struct plan){
            .victim = VICTIM, .kind = KIND_GET, .path = *state, .call = "one-sided operation"});
    }
}

static void a_control_call_names_the_rank_that_stands_still(void **state)
{
    static const struct {
        enum kind kind;
        const char *call;
    } calls[] = {
        {KIND_CONTROL_BARRIER, "control barrier"},
        {KIND_CONTROL_ALLGATHER, "control allgather"},
        {KIND_CONTROL_BROADCAST, "control broadcast"},
        {KIND_CONTROL_SEND, "receive a message"},
        {KIND_CONTROL_RECV, "send a message"},
        {KIND_SPLIT, "split"},
        {KIND_DUPLICATE, "duplicate"},
        {KIND_SHRINK, "weft_comm_shrink"},
    };
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        check((struct plan){
            .victim = VICTIM, .kind = calls[i].kind, .path = *state, .call = calls[i].call});
    }
}

/* Then everybody judges by itself. */
static void the_coordinator_is_named_when_it_stands_still(void **state)
{
    check((struct plan){.kind = KIND_COLLECTIVE, .path = *state, .call = "allreduce"});
    check((struct plan){.kind = KIND_RECV, .path = *state, .call = "receive of up to 4194304"});
    check((struct plan){.kind = KIND_CONTROL_BARRIER, .path = *state, .call = "control barrier"});
    check((struct plan){.kind = KIND_CONTROL_RECV, .path = *state, .call = "send a message"});
}

/* ---- who meets late, and stands still then ---- */

#define MEET_MS (JOB_SLOWNESS > 1 ? 6000 : 2500)
#define BOTH_MS (2 * MEET_MS)

static int first_body(int rank, struct harness_shared *shared, void *arg)
{
    struct deed deed = {.len = MESSAGES_LARGE};
    struct hands hands;
    weft_request_t request = NULL;
    weft_comm_t comm;
    weft_status_t status = messages_join(rank, shared, arg, 60000, &comm);
    if (status != WEFT_OK) {
        return harness_say(shared, rank, -1, "could not start: %s", weft_error_text());
    }
    hands_open(&hands, &deed);
    weft_call_t call = deed_call(&deed, &hands, RANKS);
    call.timeout_ms = BOTH_MS;
    atomic_fetch_add(&shared->word[READY], 1);
    if (rank == VICTIM) {
        harness_wait_for(&shared->word[GO], 1, MESSAGES_WAIT_MS);
        status = weft_collective(comm, &call, &request); /* all have met, and the call is begun */
        raise(SIGSTOP);
        (void)weft_wait(&request, WEFT_NO_LIMIT);
    } else {
        job_calls(rank, shared);
        status = weft_collective(comm, &call, NULL);
        job_returned(rank, shared, status);
        atomic_fetch_add(&shared->word[RETURNED], 1);
    }
    job_close(rank, shared, comm);
    hands_close(&hands);
    return rank == VICTIM ? (int)status : 0;
}

static void the_first_collective_has_one_deadline_for_meeting_and_for_the_rest(void **state)
{
    struct harness *harness = harness_start(RANKS, first_body, *state);
    struct harness_shared *shared = harness_shared(harness);
    collectives_await(harness, &shared->word[READY], RANKS, "first collective");
    messages_let_pass(MEET_MS);
    atomic_store(&shared->word[GO], 1);
    collectives_await(harness, &shared->word[RETURNED], RANKS - 1, "first collective");
    assert_harness(harness, harness_continue(harness, VICTIM));
    for (int rank = 0; rank < RANKS; rank++) {
        const struct job_report *report = job_report(harness, rank);
        double took_ms = messages_seconds(report->called_ns, report->returned_ns) * 1e3;
        if (rank != VICTIM && (report->status != WEFT_ERR_TIMEOUT || took_ms < BOTH_MS - 50 ||
                               took_ms > BOTH_MS + MEET_MS * 0.8)) {
            fail_msg("rank %d returned after %.0f ms: %s", rank, took_ms,
                     harness_result(harness, rank)->text);
        }
    }
    messages_wait(harness, MESSAGES_WAIT_MS, "first collective");
    messages_check_fine(harness, "first collective");
    harness_close(harness);
}

int main(void)
{
    static char shm[] = "shm", tcp[] = "tcp";
    const struct CMUnitTest tests[] = {
        {"a_collective_names_the_rank_that_stands_still",
         a_collective_names_the_rank_that_stands_still, NULL, NULL, shm},
        {"a_collective_over_tcp_names_the_rank_that_stands_still",
         a_collective_names_the_rank_that_stands_still, NULL, NULL, tcp},
        {"a_message_names_the_rank_that_stands_still", a_message_names_the_rank_that_stands_still,
         NULL, NULL, shm},
        {"a_message_over_tcp_names_the_rank_that_stands_still",
         a_message_names_the_rank_that_stands_still, NULL, NULL, tcp},
        {"a_control_call_names_the_rank_that_stands_still",
         a_control_call_names_the_rank_that_stands_still, NULL, NULL, shm},
        {"the_coordinator_is_named_when_it_stands_still",
         the_coordinator_is_named_when_it_stands_still, NULL, NULL, shm},
        {"the_first_collective_has_one_deadline_for_meeting_and_for_the_rest",
         the_first_collective_has_one_deadline_for_meeting_and_for_the_rest, NULL, NULL, tcp},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
