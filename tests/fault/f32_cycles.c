/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs that come and go, a thousand times: no drift of descriptors, threads or memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/job.h"

#include <malloc.h>

#define RANKS 2
#define SLOTS 8
/* Over all cycles but the first ones, in bytes. Whole pages come and go; what is allocated and not
 * freed does not: 16 bytes per job would show. */
#define RESIDENT_GROWTH_MAX (UINT64_C(1) << 20)
#define IN_USE_GROWTH_MAX (UINT64_C(16) << 10)

#define STARTED 0 /* jobs whose id is there */
#define CLOSED 1  /* how often a rank has closed */

struct plan {
    uint32_t cycles, settled; /* until then memory may still grow: pools, arenas */
    bool counts_memory;
};

static uint64_t resident_bytes(void)
{
    char line[128] = "";
    FILE *file = fopen("/proc/self/statm", "re");
    if (file == NULL || fgets(line, sizeof(line), file) == NULL) {
        line[0] = '\0';
    }
    if (file != NULL) {
        fclose(file);
    }
    const char *second = strchr(line, ' '); /* total, resident, … in pages */
    return second == NULL ? 0 : strtoul(second, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
}

struct memory {
    uint64_t resident, in_use;
};

static struct memory count_memory(void)
{
    return (struct memory){resident_bytes(), mallinfo2().uordblks};
}

static int cycle(int rank, struct harness_shared *shared, uint32_t number)
{
    weft_config_t config = job_config(10000, 10000);
    weft_id_t *slot = (weft_id_t *)(void *)shared->scratch + number % SLOTS;
    weft_id_t id;
    weft_comm_t comm;
    weft_status_t status = WEFT_OK;
    if (rank == 0) {
        status = weft_id_create(&config, slot);
        atomic_store(&shared->word[STARTED], number + 1);
    } else if (!harness_wait_reach(&shared->word[STARTED], number + 1, 20000)) {
        return harness_say(shared, rank, -1, "no id for job %u", number);
    }
    id = *slot;
    status = status == WEFT_OK ? weft_comm_create(&id, rank, RANKS, &config, &comm) : status;
    if (status == WEFT_OK) {
        status = weft_control_barrier(comm);
        weft_comm_close(comm);
    }
    if (status != WEFT_OK) {
        return harness_say(shared, rank, -1, "job %u: %s", number, weft_error_text());
    }
    atomic_fetch_add(&shared->word[CLOSED], 1);
    return 0;
}

static int body(int rank, struct harness_shared *shared, void *arg)
{
    const struct plan *plan = arg;
    struct memory early = {0, 0};
    for (uint32_t number = 0; number < plan->cycles; number++) {
        if (number == plan->settled) {
            harness_wait_reach(&shared->word[CLOSED], RANKS * number, 20000);
            early = count_memory();
        }
        if (cycle(rank, shared, number) != 0) {
            return -1;
        }
    }
    harness_wait_reach(&shared->word[CLOSED], RANKS * plan->cycles, 20000);
    struct memory late = count_memory();
    if (plan->counts_memory && (late.resident > early.resident + RESIDENT_GROWTH_MAX ||
                                late.in_use > early.in_use + IN_USE_GROWTH_MAX)) {
        return harness_say(shared, rank, -1, "resident: %lu, then %lu; in use: %lu, then %lu bytes",
                           (unsigned long)early.resident, (unsigned long)late.resident,
                           (unsigned long)early.in_use, (unsigned long)late.in_use);
    }
    return 0;
}

static void check(struct harness *harness)
{
    assert_harness(harness, harness_wait(harness, 100000));
    assert_harness(harness, harness_check_status(harness, 0));
    assert_harness(harness, harness_check_clean(harness));
    harness_close(harness);
}

static void a_thousand_jobs_of_threads_leave_nothing(void **state)
{
    struct plan plan = {1000 / (JOB_SLOWNESS * JOB_SLOWNESS), 20, JOB_SLOWNESS == 1};
    (void)state;
    check(harness_start_threads(RANKS, body, &plan));
}

static void a_hundred_jobs_of_processes_leave_nothing(void **state)
{
    struct plan plan = {100 / JOB_SLOWNESS, 10, JOB_SLOWNESS == 1};
    (void)state;
    check(harness_start(RANKS, body, &plan));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thousand_jobs_of_threads_leave_nothing),
        cmocka_unit_test(a_hundred_jobs_of_processes_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
