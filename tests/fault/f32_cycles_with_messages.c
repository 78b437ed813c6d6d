/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs that come, exchange messages and go, again and again: no drift of descriptors, threads,
 * mappings or memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/messages.h"

#include <malloc.h>

#define RANKS 2
#define SLOTS 8
#define CYCLES (200 / JOB_SLOWNESS)
#define SETTLED 20 /* until then memory may still grow: pools, arenas */
#define TAG 8
#define LONG ((size_t)300000)

/* Over all cycles but the first ones. Whole pages come and go; what is allocated and not freed does
 * not: 200 bytes per job would show. */
#define RESIDENT_GROWTH_MAX (UINT64_C(1) << 20)
#define IN_USE_GROWTH_MAX                                                                          \
    (UINT64_C(32) << 10) /* freed pieces that malloc keeps at hand count too */

#define STARTED 0 /* jobs whose id is there */
#define CLOSED 1  /* how often a rank has closed */
#define COUNTED 2 /* how often a rank has counted what it holds */

struct plan {
    const char *path, *cma;
};

/* ---- what a process holds ---- */

struct holdings {
    uint64_t resident, in_use, maps;
    unsigned fds;
};

static uint64_t count_lines(const char *path)
{
    uint64_t lines = 0;
    int byte;
    FILE *file = fopen(path, "re");
    while (file != NULL && (byte = fgetc(file)) != EOF) {
        lines += byte == '\n';
    }
    if (file != NULL) {
        fclose(file);
    }
    return lines;
}

static uint64_t resident_bytes(void)
{
    unsigned long resident = 0;
    char line[128];
    char *end = line;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        strtoul(line, &end, 10); /* the whole size comes first */
        resident = strtoul(end, NULL, 10);
    }
    if (file != NULL) {
        fclose(file);
    }
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* When no job is open anywhere, one after the other: ranks may be threads of one process. */
static struct holdings count_holdings(int rank, struct harness_shared *shared, uint32_t closed,
                                      uint32_t counted)
{
    harness_wait_reach(&shared->word[CLOSED], closed, MESSAGES_WAIT_MS);
    harness_wait_reach(&shared->word[COUNTED], counted - RANKS + (uint32_t)rank, MESSAGES_WAIT_MS);
    struct holdings holdings = {resident_bytes(), mallinfo2().uordblks,
                                count_lines("/proc/self/maps"), harness_count_fds()};
    atomic_fetch_add(&shared->word[COUNTED], 1);
    harness_wait_reach(&shared->word[COUNTED], counted, MESSAGES_WAIT_MS);
    return holdings;
}

/* ---- one job ---- */

static weft_status_t exchange(weft_comm_t comm, int rank, size_t len, uint8_t *out, uint8_t *in)
{
    weft_status_t status = weft_group_begin(comm);
    messages_fill(out, len, (uint64_t)rank + len);
    status = status == WEFT_OK ? weft_send(comm, out, len, 1 - rank, TAG, NULL) : status;
    status = status == WEFT_OK ? weft_recv(comm, in, len, 1 - rank, TAG, NULL, NULL) : status;
    weft_status_t end = weft_group_end(comm);
    status = status == WEFT_OK ? end : status;
    return status == WEFT_OK && !messages_are_right(in, len, (uint64_t)(1 - rank) + len)
               ? WEFT_ERR_PROTOCOL
               : status;
}

/* Short and long messages, memory that is mapped at the other side, a request that is cancelled. */
static weft_status_t work(weft_comm_t comm, int rank)
{
    void *out, *in;
    weft_mem_t mine, mem[RANKS];
    weft_request_t request;
    weft_status_t status = weft_alloc(LONG, &out);
    status = status == WEFT_OK ? weft_alloc(LONG, &in) : status;
    status = status == WEFT_OK ? weft_mem_register(comm, in, LONG, &mine) : status;
    status = status == WEFT_OK ? weft_control_allgather(comm, &mine, sizeof(mine), mem) : status;
    if (status != WEFT_OK) {
        return status;
    }
    status = exchange(comm, rank, 20, out, in);
    status = status == WEFT_OK ? exchange(comm, rank, 5000, out, in) : status;
    status = status == WEFT_OK ? exchange(comm, rank, LONG, out, in) : status;
    /* The other may still look at what it has received. */
    status = status == WEFT_OK ? weft_control_barrier(comm) : status;
    status = status == WEFT_OK ? weft_put(comm, &mem[1 - rank], 0, out, LONG) : status;
    status = status == WEFT_OK ? weft_quiet(comm) : status;
    status = status == WEFT_OK ? weft_recv(comm, in, 8, 1 - rank, 99, NULL, &request) : status;
    status = status == WEFT_OK ? weft_cancel(&request) : status;
    status = status == WEFT_OK ? weft_control_barrier(comm) : status;
    weft_mem_deregister(comm, &mine);
    weft_free(out);
    weft_free(in);
    return status;
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
    } else if (!harness_wait_reach(&shared->word[STARTED], number + 1, MESSAGES_WAIT_MS)) {
        return harness_say(shared, rank, -1, "no id for job %u", number);
    }
    id = *slot;
    status = status == WEFT_OK ? weft_comm_create(&id, rank, RANKS, &config, &comm) : status;
    if (status == WEFT_OK) {
        status = work(comm, rank);
        harness_say(shared, rank, 0, "job %u: %s: %s", number, weft_status_name(status),
                    weft_error_text());
        weft_comm_close(comm);
    }
    atomic_fetch_add(&shared->word[CLOSED], 1);
    return status == WEFT_OK ? 0 : -1;
}

static int body(int rank, struct harness_shared *shared, void *arg)
{
    const struct plan *plan = arg;
    struct holdings early = {0}, late;
    setenv("WEFT_PATH", plan->path, 1);
    setenv("WEFT_CMA", plan->cma, 1);
    setenv("WEFT_LOG", "error", 1);
    for (uint32_t number = 0; number < CYCLES; number++) {
        if (number == SETTLED) {
            early = count_holdings(rank, shared, RANKS * number, RANKS);
        }
        if (cycle(rank, shared, number) != 0) {
            return -1;
        }
    }
    late = count_holdings(rank, shared, RANKS * CYCLES, 2 * RANKS);
    bool has_grown = JOB_SLOWNESS == 1 &&
                     (late.resident > early.resident + RESIDENT_GROWTH_MAX ||
                      late.in_use > early.in_use + IN_USE_GROWTH_MAX || late.maps > early.maps + 4);
    if (late.fds != early.fds || has_grown) {
        return harness_say(shared, rank, -1,
                           "resident %lu, then %lu; in use %lu, then %lu; maps %lu, then %lu; "
                           "descriptors %u, then %u",
                           early.resident, late.resident, early.in_use, late.in_use, early.maps,
                           late.maps, early.fds, late.fds);
    }
    return 0;
}

static void check(struct plan plan, bool is_threads)
{
    struct harness *harness =
        is_threads ? harness_start_threads(RANKS, body, &plan) : harness_start(RANKS, body, &plan);
    messages_wait(harness, 60000, plan.path);
    messages_check_fine(harness, plan.path);
    harness_close(harness);
}

static void jobs_of_processes_leave_nothing(void **state)
{
    (void)state;
    check((struct plan){"shm", "on"}, false);
    check((struct plan){"tcp", "auto"}, false);
}

static void jobs_of_threads_leave_nothing(void **state)
{
    (void)state;
    check((struct plan){"shm", "off"}, true);
    check((struct plan){"tcp", "auto"}, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_of_processes_leave_nothing),
        cmocka_unit_test(jobs_of_threads_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
