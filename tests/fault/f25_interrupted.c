/* SPDX-License-Identifier: Apache-2.0 */
/* Signals without SA_RESTART all the time: no system call that they interrupt may show. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/job.h"

#include <signal.h>
#include <sys/time.h>

#define RANKS 3
#define STARTS 10
#define BARRIERS 200

static volatile sig_atomic_t interruptions;

static void interrupt(int signal)
{
    (void)signal;
    interruptions++;
}

static void storm(long every_us)
{
    const struct sigaction action = {.sa_handler = interrupt}; /* no SA_RESTART */
    const struct itimerval timer = {{0, every_us}, {0, every_us}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &timer, NULL);
}

static int start_and_work(int rank, struct harness_shared *shared, unsigned number)
{
    weft_config_t config = job_config(10000, 10000);
    weft_id_t *id = (weft_id_t *)(void *)shared->scratch + number;
    weft_comm_t comm;
    weft_status_t status = WEFT_OK;
    if (rank == 0) {
        status = weft_id_create(&config, id);
        atomic_store(&shared->word[number], 1);
    } else if (!harness_wait_for(&shared->word[number], 1, 10000)) {
        return -1;
    }
    status = status == WEFT_OK ? weft_comm_create(id, rank, RANKS, &config, &comm) : status;
    if (status != WEFT_OK) {
        return harness_say(shared, rank, (int)status, "start %u: %s", number, weft_error_text());
    }
    for (uint32_t i = 0; i < BARRIERS && status == WEFT_OK; i++) {
        uint32_t mine = i * 100 + (uint32_t)rank, all[RANKS] = {0};
        status = weft_control_allgather(comm, &mine, sizeof(mine), all);
        for (uint32_t from = 0; from < RANKS && status == WEFT_OK; from++) {
            status = all[from] == i * 100 + from ? WEFT_OK : WEFT_ERR_PROTOCOL;
        }
        status = status == WEFT_OK ? weft_control_barrier(comm) : status;
    }
    harness_say(shared, rank, 0, "%s", weft_error_text());
    weft_comm_close(comm);
    return (int)status;
}

static int body(int rank, struct harness_shared *shared, void *arg)
{
    const char *join = arg;
    setenv("WEFT_JOIN", join, 1);
    storm(1000);
    for (unsigned i = 0; i < STARTS; i++) {
        int status = start_and_work(rank, shared, i);
        if (status != WEFT_OK) {
            return status;
        }
    }
    storm(0);
    return interruptions > 0 ? 0 : harness_say(shared, rank, -1, "no signal came");
}

static void check(const char *join)
{
    struct harness *harness = harness_start(RANKS, body, (void *)join);
    assert_harness(harness, harness_wait(harness, 60000));
    assert_harness(harness, harness_check_status(harness, 0));
    assert_harness(harness, harness_check_clean(harness));
    harness_close(harness);
}

static void interrupted_calls_do_not_show(void **state)
{
    (void)state;
    check("auto");
}

static void interrupted_calls_do_not_show_over_tcp(void **state)
{
    (void)state;
    check("direct");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(interrupted_calls_do_not_show),
        cmocka_unit_test(interrupted_calls_do_not_show_over_tcp),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
