/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors run out at each call that makes one: the rank that has none left says so, with the
 * limit, nobody waits beyond the deadline, nothing leaks, and the same processes start a job as
 * soon as the limit is raised.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/job.h"

#include <sys/resource.h>

#define START_MS 400
#define ROOM_MAX 48 /* more than a rank of two ever opens */
#define COUNT 50000

struct plan {
    int victim;
    unsigned room; /* how many more descriptors the victim may open */
    const char *join;
    const char *path; /* of an allreduce after the start; NULL: none */
};

/* From now on exactly `room` more fit: holes below the highest descriptor are counted too, as the
 * kernel gives out the lowest number first. */
static bool limit_descriptors(unsigned room, struct rlimit *before_p)
{
    struct rlimit limit;
    unsigned holes = 0;
    int fd = 0;
    if (getrlimit(RLIMIT_NOFILE, before_p) != 0) {
        return false;
    }
    for (; holes < room || fcntl(fd, F_GETFD) >= 0; fd++) {
        holes += fcntl(fd, F_GETFD) < 0;
    }
    limit = *before_p;
    limit.rlim_cur = (rlim_t)fd;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

static weft_status_t start(int rank, struct harness_shared *shared, unsigned number,
                           weft_comm_t *comm_p)
{
    weft_config_t config = job_config(START_MS, 2000);
    struct job_board *board = job_board(shared);
    weft_id_t *id = &board->id + number; /* the reports' room, unused here */
    weft_status_t status = WEFT_OK;
    if (rank == 0) {
        status = weft_id_create(&config, id);
        atomic_store(&shared->word[number], status == WEFT_OK ? 1 : 2);
    } else if (!harness_wait_reach(&shared->word[number], 1, 5000) ||
               atomic_load(&shared->word[number]) != 1) {
        return WEFT_ERR_PEER;
    }
    return status == WEFT_OK ? weft_comm_create(id, rank, shared->ranks, &config, comm_p) : status;
}

/* Memory that the other one maps, and descriptors of it that come over a socket. */
static weft_status_t reduce(weft_comm_t comm)
{
    static int32_t in[COUNT], out[COUNT];
    weft_status_t status;
    for (int32_t i = 0; i < COUNT; i++) {
        in[i] = i;
    }
    status = weft_allreduce(comm, in, out, COUNT, WEFT_I32, WEFT_SUM, NULL);
    for (int32_t i = 0; i < COUNT && status == WEFT_OK; i++) {
        status = out[i] == 2 * i ? WEFT_OK : WEFT_ERR_BUSY;
    }
    return status;
}

static int body(int rank, struct harness_shared *shared, void *arg)
{
    const struct plan *plan = arg;
    struct rlimit before;
    weft_comm_t comm = NULL;
    setenv("WEFT_JOIN", plan->join, 1);
    setenv("WEFT_PATH", plan->path != NULL ? plan->path : "auto", 1);
    setenv("WEFT_LOG", "error", 0);
    if (rank == plan->victim && !limit_descriptors(plan->room, &before)) {
        return harness_say(shared, rank, -1, "cannot limit descriptors");
    }
    /* the first call too: a leaf starts its thread with it */
    weft_status_t status = start(rank, shared, 0, &comm);
    status = status == WEFT_OK ? weft_control_barrier(comm) : status;
    status = status == WEFT_OK && plan->path != NULL ? reduce(comm) : status;
    harness_say(shared, rank, 0, "%s: %s", weft_status_name(status),
                status == WEFT_OK ? "" : weft_error_text());
    weft_comm_close(comm);
    if (rank == plan->victim) {
        setrlimit(RLIMIT_NOFILE, &before);
    }
    /* both are through with the first job before the second one begins */
    atomic_fetch_add(&shared->word[2], 1);
    harness_wait_for(&shared->word[2], 2, 5000);
    weft_status_t again = start(rank, shared, 1, &comm);
    again = again == WEFT_OK ? weft_control_barrier(comm) : again;
    if (again != WEFT_OK) {
        return harness_say(shared, rank, -1, "with room again: %s", weft_error_text());
    }
    weft_comm_close(comm);
    return (int)status;
}

/* What the victim returned; checks everything else. */
static int run(const struct plan *plan)
{
    struct harness *harness = harness_start(2, body, (void *)plan);
    assert_harness(harness, harness_wait(harness, 10000));
    const struct harness_result *victim = harness_result(harness, plan->victim);
    const struct harness_result *other = harness_result(harness, 1 - plan->victim);
    int status = victim->status;
    if (status < 0 || other->status < 0 || !victim->is_returned || !other->is_returned) {
        fail_msg("room for %u: victim: %s; the other: %s", plan->room, victim->text, other->text);
    }
    if (status != WEFT_OK &&
        (status != WEFT_ERR_SYSTEM || strstr(victim->text, "limit ") == NULL)) {
        fail_msg("room for %u: the victim does not say that descriptors ran out: %s", plan->room,
                 victim->text);
    }
    if (status == WEFT_OK && other->status != WEFT_OK) {
        fail_msg("room for %u: the victim started, the other one: %s", plan->room, other->text);
    }
    assert_harness(harness, harness_check_clean(harness));
    harness_close(harness);
    return status;
}

/* One more each time, until it is enough. */
static void run_all(struct plan plan)
{
    unsigned failures = 0;
    for (plan.room = 0; plan.room < ROOM_MAX; plan.room++) {
        if (run(&plan) == WEFT_OK) {
            assert_true(failures >= 2); /* or the limit limited nothing */
            return;
        }
        failures++;
    }
    fail_msg("%u descriptors are not enough", ROOM_MAX);
}

static void a_rank_that_joins_says_which_limit_was_reached(void **state)
{
    (void)state;
    run_all((struct plan){.victim = 1, .join = "auto"});
}

static void a_rank_that_joins_over_tcp_says_which_limit_was_reached(void **state)
{
    (void)state;
    run_all((struct plan){.victim = 1, .join = "direct"});
}

static void the_root_says_which_limit_was_reached(void **state)
{
    (void)state;
    run_all((struct plan){.victim = 0, .join = "auto"});
}

static void collectives_over_shared_memory_say_which_limit_was_reached(void **state)
{
    (void)state;
    run_all((struct plan){.victim = 0, .join = "auto", .path = "shm"});
    run_all((struct plan){.victim = 1, .join = "auto", .path = "shm"});
}

static void collectives_over_tcp_say_which_limit_was_reached(void **state)
{
    (void)state;
    run_all((struct plan){.victim = 0, .join = "direct", .path = "tcp"});
    run_all((struct plan){.victim = 1, .join = "direct", .path = "tcp"});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_joins_says_which_limit_was_reached),
        cmocka_unit_test(a_rank_that_joins_over_tcp_says_which_limit_was_reached),
        cmocka_unit_test(the_root_says_which_limit_was_reached),
        cmocka_unit_test(collectives_over_shared_memory_say_which_limit_was_reached),
        cmocka_unit_test(collectives_over_tcp_say_which_limit_was_reached),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
