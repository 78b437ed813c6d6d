/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random programs over several communicators. All ranks make the calls of a program in one order; how they
 * make each of them (blocking, begun, in a group, as an operation), when they wait for what is in flight,
 * and where their memory comes from is each rank's own choice. Every result is known beforehand.
 *
 * MODEL_SEED=n runs one program; MODEL_SEEDS=n runs that many.
 */
#include "unit/api/collectives_flight.h"

#include <pthread.h>

#define COMMS 5
#define FLIGHTS 10
#define STEPS (IS_THREAD_SANITIZED ? 40 : 120)
#define MOST (IS_THREAD_SANITIZED ? 2000 : 30000)

/* A communicator, as this rank sees it; comm NULL: it is not in it. */
struct member {
    weft_comm_t comm;
    int me, ranks;
};

struct program {
    struct member members[COMMS];
    struct flight flights[FLIGHTS];
    int group; /* the communicator that has a group open; -1: none */
    int group_flights[FLIGHTS], group_count;
    uint64_t random; /* this rank's own */
    int rank;
    struct harness_shared *shared;
};

static uint64_t program_seed; /* set before the ranks are forked */

static uint64_t draw(uint64_t *random)
{
    return *random = values_mix(*random);
}

/* ---- communicators ---- */

static int open_member(struct member *member, weft_comm_t comm, int rank,
                       struct harness_shared *shared)
{
    *member = (struct member){.comm = comm};
    if (comm != NULL) {
        EXPECT_OK(weft_comm_rank(comm, &member->me));
        EXPECT_OK(weft_comm_ranks(comm, &member->ranks));
    }
    return 0;
}

/* The job, the same again, the same backwards, its halves, and all but one rank. */
static int open_members(struct program *program, weft_comm_t comm)
{
    int rank = program->rank, ranks = program->shared->ranks;
    struct harness_shared *shared = program->shared;
    weft_comm_t comms[COMMS] = {comm, NULL, NULL, NULL, NULL};
    EXPECT_OK(weft_comm_duplicate(comm, &comms[1]));
    EXPECT_OK(weft_comm_split(comm, 0, ranks - rank, &comms[2]));
    EXPECT_OK(weft_comm_split(comms[1], rank % 2, rank, &comms[3]));
    EXPECT_OK(weft_comm_split(comm, rank == ranks - 1 ? -1 : 0, rank, &comms[4]));
    for (int i = 0; i < COMMS; i++) {
        EXPECT_PASS(open_member(&program->members[i], comms[i], rank, shared));
    }
    return 0;
}

static int close_members(struct program *program)
{
    int rank = program->rank;
    struct harness_shared *shared = program->shared;
    for (int i = COMMS - 1; i > 0; i--) { /* children before parents */
        weft_comm_t comm = program->members[i].comm;
        if (comm != NULL) {
            EXPECT_OK(weft_barrier(comm, NULL));
            EXPECT_OK(weft_comm_close(comm));
        }
    }
    return 0;
}

/* ---- steps ---- */

static int end_group(struct program *program)
{
    int rank = program->rank;
    struct harness_shared *shared = program->shared;
    if (program->group < 0) {
        return 0;
    }
    EXPECT_OK(weft_group_end(program->members[program->group].comm));
    for (int i = 0; i < program->group_count; i++) {
        struct flight *flight = &program->flights[program->group_flights[i]];
        EXPECT_PASS(flight_end(flight, WEFT_OK, rank, shared));
    }
    program->group = -1;
    program->group_count = 0;
    return 0;
}

/* A place for one more: if there is none, somebody's end is waited for (those of a group have no requests
 * of their own). */
static int free_flight(struct program *program, int *at_p)
{
    int rank = program->rank;
    struct harness_shared *shared = program->shared;
    for (int tries = 0; tries < 2; tries++) {
        for (int i = 0; i < FLIGHTS; i++) {
            if (!program->flights[i].is_up) {
                *at_p = i;
                return 0;
            }
        }
        EXPECT_PASS(end_group(program));
    }
    *at_p = flight_pick(program->flights, FLIGHTS, draw(&program->random));
    weft_status_t status = weft_wait(&program->flights[*at_p].request, WAIT_MS);
    return flight_end(&program->flights[*at_p], status, rank, shared);
}

static int run_as_op(struct flight *flight, weft_comm_t comm, int rank,
                     struct harness_shared *shared)
{
    flight->trial.desk = &flight->desk;
    trial_prepare(&flight->trial);
    EXPECT_OK(weft_op_create(comm, &flight->trial.call, &flight->op));
    EXPECT_OK(weft_op_start(flight->op));
    flight->is_up = true;
    weft_status_t status = weft_op_wait(flight->op, WAIT_MS);
    EXPECT_OK(weft_op_destroy(flight->op));
    return flight_end(flight, status, rank, shared);
}

/* Into a group that is open on this communicator, or that opens now; it ends with the next step that is
 * not in it. */
static int begin_in_group(struct program *program, int which, int at)
{
    int rank = program->rank;
    struct harness_shared *shared = program->shared;
    struct flight *flight = &program->flights[at];
    if (program->group < 0) {
        EXPECT_OK(weft_group_begin(program->members[which].comm));
        program->group = which;
    }
    flight->trial.desk = &flight->desk;
    trial_prepare(&flight->trial);
    EXPECT_PASS(trial_expect_ok(&flight->trial,
                                trial_begin(&flight->trial, program->members[which].comm, NULL),
                                rank, shared));
    flight->is_up = true;
    program->group_flights[program->group_count++] = at;
    return 0;
}

/* A ring of messages beside it all. */
static int pass_round(const struct member *member, uint64_t seed, int rank,
                      struct harness_shared *shared)
{
    int next = (member->me + 1) % member->ranks;
    int before = (member->me + member->ranks - 1) % member->ranks;
    size_t len = (size_t)(values_mix(seed) % (seed % 4 == 0 ? 100000 : 500));
    struct expected want = {before, 5, len, seed + (uint64_t)before};
    uint8_t *bytes = make_bytes(seed + (uint64_t)member->me, len);
    weft_request_t request = NULL;
    EXPECT_OK(weft_send(member->comm, bytes, len, next, 5, &request));
    EXPECT_PASS(check_recv(member->comm, before, 5, &want, rank, shared));
    EXPECT_OK(weft_wait(&request, WAIT_MS));
    free(bytes);
    return 0;
}

/* The control plane has an order of its own, beside what is in flight. */
static int control(const struct member *member, uint64_t seed, int rank,
                   struct harness_shared *shared)
{
    if (seed % 3 == 0) {
        EXPECT_OK(weft_control_barrier(member->comm));
        return 0;
    }
    return check_allgather(member->comm, member->me, member->ranks, 100, seed, rank, shared);
}

static int run_step(struct program *program, uint64_t seed)
{
    int which = (int)(values_mix(seed) % COMMS), rank = program->rank;
    struct harness_shared *shared = program->shared;
    const struct member *member = &program->members[which];
    uint64_t kind = values_mix(seed + 1) % 16;
    bool is_message = kind < 2, is_control = kind == 2;
    uint64_t style = draw(&program->random) % 8;
    if (program->group >= 0 &&
        (program->group != which || kind < 3 || style > 3 || program->group_count > 3)) {
        EXPECT_PASS(end_group(program));
    }
    if (member->comm == NULL) {
        return 0;
    }
    if (is_message) {
        return pass_round(member, seed, rank, shared);
    }
    if (is_control) {
        return control(member, seed, rank, shared);
    }
    int at = -1;
    EXPECT_PASS(free_flight(program, &at));
    flight_draw(&program->flights[at], seed, MOST, member->me, member->ranks);
    if (program->group >= 0 || style == 0) {
        return begin_in_group(program, which, at);
    }
    if (style == 1) {
        return run_as_op(&program->flights[at], member->comm, rank, shared);
    }
    EXPECT_PASS(flight_begin(&program->flights[at], member->comm, rank, shared));
    if (style == 2) {
        weft_status_t status = weft_wait(&program->flights[at].request, WAIT_MS);
        return flight_end(&program->flights[at], status, rank, shared);
    }
    return 0;
}

static int run_program(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    struct program *program = allocate(sizeof(*program));
    program->group = -1;
    program->rank = rank;
    program->shared = shared;
    program->random = values_mix(program_seed * 64 + (uint64_t)rank);
    EXPECT_PASS(open_members(program, comm));
    for (uint64_t step = 0; step < STEPS; step++) {
        EXPECT_PASS(run_step(program, program_seed * 100000 + step));
    }
    EXPECT_PASS(end_group(program));
    EXPECT_PASS(flight_end_all(program->flights, FLIGHTS, draw(&program->random), rank, shared));
    EXPECT_PASS(close_members(program));
    free(program);
    return 0;
}

static void random_programs_over_several_communicators_are_right(void **state)
{
    const char *one = getenv("MODEL_SEED"), *many = getenv("MODEL_SEEDS");
    uint64_t first = one != NULL ? strtoull(one, NULL, 10) : 1;
    uint64_t count = one != NULL ? 1 : many != NULL ? strtoull(many, NULL, 10) : 16;
    (void)state;
    for (program_seed = first; program_seed < first + count; program_seed++) {
        snprintf(run_note, sizeof(run_note), ", MODEL_SEED=%llu", (unsigned long long)program_seed);
        run_ways(1 << program_seed % 4, 2 + (int)(program_seed / 4 % 4), run_program);
    }
    run_note[0] = '\0';
}

/* ---- threads, each with a communicator of its own ---- */

#define THREADS 3

struct worker {
    weft_comm_t comm;
    int number, rank, ranks, result;
    struct harness_shared *shared;
    pthread_t thread;
};

static int work(const struct worker *worker)
{
    int rank = worker->rank;
    struct harness_shared *shared = worker->shared;
    for (uint64_t step = 0; step < STEPS / 2; step++) {
        uint64_t seed = (uint64_t)worker->number * 1000 + step;
        struct flight flight;
        flight_draw(&flight, seed, MOST / 4, rank, worker->ranks);
        EXPECT_PASS(flight_begin(&flight, worker->comm, rank, shared));
        weft_status_t status = weft_wait(&flight.request, WAIT_MS);
        EXPECT_PASS(flight_end(&flight, status, rank, shared));
    }
    return 0;
}

static void *run_worker(void *arg)
{
    struct worker *worker = arg;
    worker->result = work(worker);
    return NULL;
}

static int run_threads_of_rank(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    struct worker workers[THREADS];
    int result = 0;
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){NULL, i, rank, shared->ranks, 0, shared, 0};
        EXPECT_OK(weft_comm_duplicate(comm, &workers[i].comm));
    }
    for (int i = 0; i < THREADS; i++) {
        EXPECT(pthread_create(&workers[i].thread, NULL, run_worker, &workers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        EXPECT(pthread_join(workers[i].thread, NULL) == 0);
        result = result != 0 ? result : workers[i].result;
    }
    EXPECT_PASS(result);
    EXPECT_OK(weft_barrier(comm, NULL));
    for (int i = 0; i < THREADS; i++) {
        EXPECT_OK(weft_comm_close(workers[i].comm));
    }
    return 0;
}

static void threads_each_with_a_communicator_are_right(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 2, run_threads_of_rank);
    run_ways(PROCESSES, 4, run_threads_of_rank);
}

/* ---- communicators that come and go ---- */

static int run_coming_and_going(weft_comm_t comm, int rank, struct harness_shared *shared)
{
    for (uint64_t round = 0; round < 12; round++) {
        weft_comm_t again = NULL, half = NULL;
        struct flight flights[2];
        int me = -1, ranks = 0;
        EXPECT_OK(weft_comm_duplicate(comm, &again));
        EXPECT_OK(weft_comm_rank(again, &me));
        EXPECT_OK(weft_comm_ranks(again, &ranks));
        EXPECT(me == rank && ranks == shared->ranks);
        EXPECT_OK(weft_comm_split(again, rank % 2, -rank, &half));
        flight_draw(&flights[0], round, 3000, rank, ranks);
        EXPECT_PASS(flight_begin(&flights[0], again, rank, shared));
        EXPECT_OK(weft_comm_rank(half, &me));
        EXPECT_OK(weft_comm_ranks(half, &ranks));
        flight_draw(&flights[1], round + 50, 3000, me, ranks);
        EXPECT_PASS(flight_begin(&flights[1], half, rank, shared));
        EXPECT(weft_comm_close(again) == WEFT_ERR_BUSY); /* its child is open */
        EXPECT_PASS(flight_end_all(flights, 2, values_mix(round + (uint64_t)rank), rank, shared));
        EXPECT_OK(weft_barrier(again, NULL));
        EXPECT_OK(weft_comm_close(half));
        EXPECT_OK(weft_comm_close(again));
    }
    return 0;
}

static void communicators_may_come_and_go(void **state)
{
    (void)state;
    run_ways(EVERY_WAY, 3, run_coming_and_going);
    run_ways(PROCESSES, 6, run_coming_and_going);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_programs_over_several_communicators_are_right),
        cmocka_unit_test(threads_each_with_a_communicator_are_right),
        cmocka_unit_test(communicators_may_come_and_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
