/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a call has been made often enough, making it again allocates nothing: no memory and no mapping, in no thread of
 * any rank. (Often enough: how far ranks run ahead of each other differs, and what comes early needs a place.) Every
 * collective, short and long, messages and gets, over shared memory and tcp, and over tcp with checked payloads. The
 * library's calls come through here.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/collectives.h"

#define RANKS 3
#define TAG 9
#define TIMES                                                                                      \
    8 /* calls that are counted together: no more may come early than memory is kept for */
#define WINDOWS 40 /* by one of them, of the second on, no rank may make any */
#define WAIT_MS 60000
#define MESSAGES (WEFT_BARRIER + 1) /* beside the collectives */
#define GETS (WEFT_BARRIER + 2)
#define ARRIVED(coll) (coll)
#define UNCLEAN(coll, window) (16u + 2 * (uint32_t)(coll) + (window) % 2)

static _Atomic unsigned allocations;
static _Atomic size_t last_len;

static void note(size_t len)
{
    atomic_fetch_add(&allocations, 1);
    atomic_store(&last_len, len);
}

void *__real_malloc(size_t len);
void *__wrap_malloc(size_t len);
void *__wrap_malloc(size_t len)
{
    note(len);
    return __real_malloc(len);
}

void *__real_calloc(size_t count, size_t len);
void *__wrap_calloc(size_t count, size_t len);
void *__wrap_calloc(size_t count, size_t len)
{
    note(count * len);
    return __real_calloc(count, len);
}

void *__real_realloc(void *old, size_t len);
void *__wrap_realloc(void *old, size_t len);
void *__wrap_realloc(void *old, size_t len)
{
    note(len);
    return __real_realloc(old, len);
}

void *__real_aligned_alloc(size_t alignment, size_t len);
void *__wrap_aligned_alloc(size_t alignment, size_t len);
void *__wrap_aligned_alloc(size_t alignment, size_t len)
{
    note(len);
    return __real_aligned_alloc(alignment, len);
}

void *__real_mmap(void *at, size_t len, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t len, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t len, int prot, int flags, int fd, off_t offset)
{
    note(len);
    return __real_mmap(at, len, prot, flags, fd, offset);
}

/* ---- ranks ---- */

struct plan {
    const char *path;
    const char *checksum;
    size_t len;
};

/* Everybody to the next one, from the one before. */
static weft_status_t pass_round(weft_comm_t comm, int rank, const struct hands *hands, size_t len)
{
    weft_status_t status = weft_group_begin(comm), end;
    status = status == WEFT_OK
                 ? weft_recv(comm, hands->out, len, (rank + RANKS - 1) % RANKS, TAG, NULL, NULL)
                 : status;
    status =
        status == WEFT_OK ? weft_send(comm, hands->in, len, (rank + 1) % RANKS, TAG, NULL) : status;
    end = weft_group_end(comm);
    return status == WEFT_OK ? end : status;
}

/* From the next one, who does nothing for it. */
static weft_status_t get_once(weft_comm_t comm, const weft_mem_t *mem, const struct hands *hands,
                              size_t len)
{
    weft_status_t status = weft_get(comm, mem, 0, hands->out, len);
    return status == WEFT_OK ? weft_quiet(comm) : status;
}

static weft_status_t do_once(weft_comm_t comm, int rank, const struct deed *deed,
                             const struct hands *hands, const weft_mem_t *mem)
{
    switch ((int)deed->coll) {
    case MESSAGES:
        return pass_round(comm, rank, hands, deed->len);
    case GETS:
        return get_once(comm, mem, hands, deed->len);
    default:
        return deed_do(comm, deed, hands, RANKS);
    }
}

static const char *name_of(const struct deed *deed)
{
    static const char *const names[] = {[MESSAGES] = "messages", [GETS] = "gets"};
    return deed->coll > WEFT_BARRIER ? names[deed->coll] : weft_coll_name(deed->coll);
}

/* What others get, and what this rank gets from. */
static weft_status_t show_memory(weft_comm_t comm, int rank, const struct hands *hands,
                                 weft_mem_t *mine_p, weft_mem_t *next_p)
{
    weft_mem_t all[RANKS];
    weft_status_t status = weft_mem_register(comm, hands->in, hands->len, mine_p);
    status = status == WEFT_OK ? weft_allgather(comm, mine_p, all, sizeof(*mine_p), WEFT_U8, NULL)
                               : status;
    if (status == WEFT_OK) {
        *next_p = all[(rank + 1) % RANKS];
    }
    return status;
}

/* When all ranks have ended this window: did none of them allocate in it? The latest window with any is written down;
 * nobody is more than one window ahead, so two words do. */
static bool is_clean_everywhere(struct harness_shared *shared, int coll, uint32_t window,
                                bool is_clean)
{
    if (!is_clean) {
        atomic_store(&shared->word[UNCLEAN(coll, window)], window + 1);
    }
    atomic_fetch_add(&shared->word[ARRIVED(coll)], 1);
    return harness_wait_reach(&shared->word[ARRIVED(coll)], (window + 1) * RANKS, WAIT_MS) &&
           atomic_load(&shared->word[UNCLEAN(coll, window)]) != window + 1;
}

/* 0: nothing was allocated */
static int count_one(weft_comm_t comm, int rank, struct harness_shared *shared,
                     const struct deed *deed)
{
    struct hands hands;
    weft_mem_t mine, next;
    weft_status_t status;
    unsigned made = 0;
    bool is_clean = false;
    hands_open(&hands, deed);
    status = show_memory(comm, rank, &hands, &mine, &next);
    for (uint32_t window = 0; window < WINDOWS && !is_clean; window++) {
        unsigned before = atomic_load(&allocations);
        for (int i = 0; i < TIMES && status == WEFT_OK; i++) {
            status = do_once(comm, rank, deed, &hands, &next);
        }
        made = atomic_load(&allocations) - before;
        is_clean = is_clean_everywhere(shared, (int)deed->coll, window,
                                       window > 0 && made == 0 && status == WEFT_OK);
    }
    if (status != WEFT_OK) {
        return harness_say(shared, rank, -1, "%s: %s", name_of(deed), weft_error_text());
    }
    weft_mem_deregister(comm, &mine); /* nobody is in a call any more */
    hands_close(&hands);
    return is_clean ? 0
                    : harness_say(shared, rank, -1,
                                  "%u allocations even in the last of %d times %d %s of %zu bytes, "
                                  "the last of %zu bytes",
                                  made, WINDOWS, TIMES, name_of(deed), deed->len,
                                  atomic_load(&last_len));
}

static int body(int rank, struct harness_shared *shared, void *arg)
{
    const struct plan *plan = arg;
    weft_comm_t comm;
    int result = 0, one;
    messages_set("WEFT_CHECKSUM", plan->checksum);
    weft_status_t status = messages_join(rank, shared, plan->path, MESSAGES_TIMEOUT_MS, &comm);
    if (status != WEFT_OK) {
        return harness_say(shared, rank, -1, "could not start: %s", weft_error_text());
    }
    for (int coll = WEFT_ALLREDUCE; coll <= GETS; coll++) {
        struct deed deed = {.coll = (weft_coll_t)coll, .len = plan->len, .root = 1};
        one = count_one(comm, rank, shared, &deed); /* all ranks make all calls */
        result = one != 0 ? one : result;
    }
    /* nobody leaves while others still count */
    weft_barrier(comm, NULL);
    weft_comm_close(comm);
    return result;
}

static void check(const char *path, const char *checksum)
{
    static const size_t lens[] = {16, 5000, 200000, (size_t)3 << 20};
    for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
        struct plan plan = {path, checksum, lens[i]};
        struct harness *harness = harness_start(RANKS, body, &plan);
        messages_wait(harness, 4 * MESSAGES_WAIT_MS, path);
        messages_check_fine(harness, path);
        harness_close(harness);
    }
}

static void over_shared_memory(void **state)
{
    (void)state;
    check("shm", "off");
}

static void over_tcp(void **state)
{
    (void)state;
    check("tcp", "off");
}

static void over_tcp_with_checked_payloads(void **state)
{
    (void)state;
    check("tcp", "on");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(over_shared_memory),
        cmocka_unit_test(over_tcp),
        cmocka_unit_test(over_tcp_with_checked_payloads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
