/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose memory is it, when a call has failed? A rank is stopped while it works on another one's buffers, the
 * other one's time is up, it uses its memory for something else, and the rank goes on. And ranks that stand
 * still, or have no memory, in the middle of an operation. The library's reductions, copies and scratch
 * come through here.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fault/collectives.h"
#include "mem/mem.h"
#include "p2p/p2p.h"
#include "reduce/reduce.h"

#define RANKS 2
#define LEN ((size_t)1 << 20)
#define COUNT (LEN / sizeof(int32_t))
#define TIMEOUT_MS 500
#define OTHER 0x55

enum word { INSIDE, RETURNED, OVER, POSTED, ENTER, GO };

void __real_weft_reduce_run(const struct weft_reduce *what, size_t count);
void __wrap_weft_reduce_run(const struct weft_reduce *what, size_t count);
void __real_weft_mem_copy(void *to, const void *from, size_t len, enum weft_mem_copy how);
void __wrap_weft_mem_copy(void *to, const void *from, size_t len, enum weft_mem_copy how);
void *__real_aligned_alloc(size_t alignment, size_t len);
void *__wrap_aligned_alloc(size_t alignment, size_t len);
weft_status_t __real_weft_p2p_map(struct weft_p2p_comm *comm, uint32_t rank,
                                  const struct weft_p2p_place *place, void **memory_p,
                                  struct weft_mem_mapping **mapping_p);
weft_status_t __wrap_weft_p2p_map(struct weft_p2p_comm *comm, uint32_t rank,
                                  const struct weft_p2p_place *place, void **memory_p,
                                  struct weft_mem_mapping **mapping_p);
weft_status_t __real_weft_mem_disown(void *memory, size_t len);
weft_status_t __wrap_weft_mem_disown(void *memory, size_t len);

/* ---- between the library and what it calls, in the ranks ---- */

static struct harness_shared *words; /* not NULL: the next one counts */
static int self;
static bool is_poor;
static struct harness_shared *mapping; /* not NULL: the next one takes long */
static int replaced;                   /* times that pages were */

/* Rank 1 says that it is in there, and waits to be stopped there; rank 0 takes nothing away from it. */
static void meet(void)
{
    struct harness_shared *shared = words;
    words = NULL;
    if (shared != NULL && self == 1) {
        atomic_store(&shared->word[INSIDE], 1);
        harness_wait_reach(&shared->word[RETURNED], 1, MESSAGES_WAIT_MS);
    } else if (shared != NULL) {
        harness_wait_reach(&shared->word[INSIDE], 1, MESSAGES_WAIT_MS);
    }
}

void __wrap_weft_reduce_run(const struct weft_reduce *what, size_t count)
{
    meet();
    __real_weft_reduce_run(what, count);
}

void __wrap_weft_mem_copy(void *to, const void *from, size_t len, enum weft_mem_copy how)
{
    meet();
    __real_weft_mem_copy(to, from, len, how);
}

void *__wrap_aligned_alloc(size_t alignment, size_t len)
{
    return is_poor ? NULL : __real_aligned_alloc(alignment, len);
}

weft_status_t __wrap_weft_p2p_map(struct weft_p2p_comm *comm, uint32_t rank,
                                  const struct weft_p2p_place *place, void **memory_p,
                                  struct weft_mem_mapping **mapping_p)
{
    struct harness_shared *shared = mapping;
    mapping = NULL;
    if (shared != NULL) {
        atomic_store(&shared->word[INSIDE], 1);
        harness_wait_reach(&shared->word[RETURNED], 1, MESSAGES_WAIT_MS);
    }
    return __real_weft_p2p_map(comm, rank, place, memory_p, mapping_p);
}

weft_status_t __wrap_weft_mem_disown(void *memory, size_t len)
{
    replaced++;
    return __real_weft_mem_disown(memory, len);
}

/* ---- stopped in somebody's memory ---- */

static bool is_all(const uint8_t *bytes, uint8_t value)
{
    size_t i = 0;
    while (i < LEN && bytes[i] == value) {
        i++;
    }
    return i == LEN;
}

/* The result is exact, or there is none. */
static bool is_right(const struct deed *deed, const struct hands *hands)
{
    const int32_t *out = (const int32_t *)(const void *)hands->out;
    int32_t expected = deed->coll == WEFT_ALLREDUCE ? 3 : 1;
    size_t i = 0;
    while (i < COUNT && out[i] == expected) {
        i++;
    }
    return i == COUNT;
}

static int intrude(int rank, struct harness_shared *shared, const struct deed *deed,
                   weft_comm_t comm, struct hands *hands)
{
    weft_status_t status;
    self = rank;
    for (size_t i = 0; i < COUNT; i++) {
        ((int32_t *)(void *)hands->in)[i] = rank + 1;
    }
    status = deed_do(comm, deed, hands, RANKS); /* lanes and mappings are there */
    status = status == WEFT_OK ? weft_barrier(comm, NULL) : status;
    status = status == WEFT_OK ? weft_comm_set_timeout(comm, TIMEOUT_MS) : status;
    if (status != WEFT_OK) {
        return harness_say(shared, rank, -1, "cannot begin: %s", weft_error_text());
    }
    words = deed->coll == WEFT_ALLREDUCE || rank == 1 ? shared : NULL;
    status = deed_do(comm, deed, hands, RANKS);
    if (rank == 1) {
        bool is_good = status != WEFT_OK || is_right(deed, hands);
        atomic_store(&shared->word[OVER], 1);
        return is_good ? 0 : harness_say(shared, rank, -1, "OK, and the result is wrong");
    }
    memset(hands->in, OTHER, LEN);
    memset(hands->out, OTHER, LEN);
    atomic_store(&shared->word[RETURNED], 1);
    if (status != WEFT_ERR_TIMEOUT || !messages_names(weft_error_text(), 1)) {
        return harness_say(shared, rank, -1, "%s: %s", weft_status_name(status), weft_error_text());
    }
    harness_wait_reach(&shared->word[OVER], 1, MESSAGES_WAIT_MS);
    return is_all(hands->in, OTHER) && is_all(hands->out, OTHER)
               ? 0
               : harness_say(shared, rank, -1, "somebody wrote to memory of a call that is over");
}

static int intrude_body(int rank, struct harness_shared *shared, void *arg)
{
    const struct deed *deed = arg;
    struct hands hands;
    weft_comm_t comm;
    int result;
    if (messages_join(rank, shared, "shm", MESSAGES_TIMEOUT_MS, &comm) != WEFT_OK) {
        return harness_say(shared, rank, -1, "could not join: %s", weft_error_text());
    }
    hands_open(&hands, deed);
    result = intrude(rank, shared, deed, comm, &hands);
    weft_comm_close(comm);
    hands_close(&hands);
    return result;
}

static void check_intruder(struct deed deed)
{
    struct harness *harness = harness_start(RANKS, intrude_body, &deed);
    struct harness_shared *shared = harness_shared(harness);
    collectives_await(harness, &shared->word[INSIDE], 1, "the other's memory");
    assert_harness(harness, harness_stop(harness, 1));
    collectives_await(harness, &shared->word[RETURNED], 1, "the deadline");
    assert_harness(harness, harness_continue(harness, 1));
    messages_wait(harness, MESSAGES_WAIT_MS, weft_coll_name(deed.coll));
    messages_check_fine(harness, weft_coll_name(deed.coll));
    harness_close(harness);
}

static void nobody_writes_to_memory_of_a_call_that_failed(void **state)
{
    (void)state;
    check_intruder((struct deed){WEFT_ALLREDUCE, LEN, MANNER_BLOCKING, true, 0});
    check_intruder((struct deed){WEFT_ALLREDUCE, LEN, MANNER_REQUEST, true, 0});
}

static void nobody_takes_for_data_what_a_failed_call_left(void **state)
{
    (void)state;
    check_intruder((struct deed){WEFT_BROADCAST, LEN, MANNER_BLOCKING, true, 0});
}

/* ---- on the way to somebody's memory ---- */

/* Rank 1 has a step to do, and no mapping yet: rank 0 need not fear for its pages. */
static int linger(int rank, struct harness_shared *shared, weft_comm_t comm, struct hands *hands)
{
    const struct deed deed = {WEFT_ALLREDUCE, LEN, MANNER_BLOCKING, true, 0};
    weft_status_t status = deed_do(comm, &deed, hands, RANKS);
    self = rank;
    status = status == WEFT_OK ? weft_barrier(comm, NULL) : status;
    status = status == WEFT_OK ? weft_comm_set_timeout(comm, TIMEOUT_MS) : status;
    if (status != WEFT_OK) {
        return harness_say(shared, rank, -1, "cannot begin: %s", weft_error_text());
    }
    *(rank == 0 ? &words : &mapping) = shared;
    status = deed_do(comm, &deed, hands, RANKS);
    atomic_store(&shared->word[rank == 0 ? RETURNED : OVER], 1);
    if (status != WEFT_ERR_TIMEOUT) {
        return harness_say(shared, rank, -1, "%s: %s", weft_status_name(status), weft_error_text());
    }
    harness_wait_reach(&shared->word[OVER], 1, MESSAGES_WAIT_MS);
    return replaced == 0 ? 0 : harness_say(shared, rank, -1, "pages were replaced");
}

static int linger_body(int rank, struct harness_shared *shared, void *arg)
{
    const struct deed deed = {WEFT_ALLREDUCE, LEN, MANNER_BLOCKING, true, 0};
    struct hands hands;
    weft_comm_t comm;
    int result;
    (void)arg;
    if (messages_join(rank, shared, "shm", MESSAGES_TIMEOUT_MS, &comm) != WEFT_OK) {
        return harness_say(shared, rank, -1, "could not join: %s", weft_error_text());
    }
    hands_open(&hands, &deed);
    result = linger(rank, shared, comm, &hands);
    weft_comm_close(comm);
    hands_close(&hands);
    return result;
}

static void who_waits_for_a_mapping_is_not_taken_for_a_writer(void **state)
{
    struct harness *harness = harness_start(RANKS, linger_body, NULL);
    (void)state;
    messages_wait(harness, MESSAGES_WAIT_MS, "a long way");
    messages_check_fine(harness, "a long way");
    harness_close(harness);
}

/* ---- stopped before it has shown its memory ---- */

static int show_late(int rank, struct harness_shared *shared, weft_comm_t comm, struct hands *hands)
{
    weft_request_t request = NULL;
    weft_status_t status;
    int is_done;
    for (size_t i = 0; i < COUNT; i++) {
        ((int32_t *)(void *)hands->in)[i] = rank + 1;
    }
    status = weft_barrier(comm, NULL);
    if (rank == 0) {
        harness_wait_reach(&shared->word[ENTER], 1, MESSAGES_WAIT_MS);
    }
    status = status == WEFT_OK
                 ? weft_allreduce(comm, hands->in, hands->out, COUNT, WEFT_I32, WEFT_SUM, &request)
                 : status;
    if (rank == 1 && status == WEFT_OK) {
        status = weft_test(&request, &is_done);
        atomic_store(&shared->word[POSTED], 1);
        harness_wait_reach(&shared->word[GO], 1, MESSAGES_WAIT_MS);
    }
    status = status == WEFT_OK ? weft_wait(&request, WEFT_NO_LIMIT) : status;
    if (status != WEFT_OK) {
        return harness_say(shared, rank, -1, "%s: %s", weft_status_name(status), weft_error_text());
    }
    return ((int32_t *)(void *)hands->out)[COUNT - 1] == 3
               ? 0
               : harness_say(shared, rank, -1, "the sum is wrong");
}

static int show_late_body(int rank, struct harness_shared *shared, void *arg)
{
    const struct deed deed = {WEFT_ALLREDUCE, LEN, MANNER_REQUEST, true, 0};
    struct hands hands;
    weft_comm_t comm;
    int result;
    (void)arg;
    if (messages_join(rank, shared, "shm", MESSAGES_TIMEOUT_MS, &comm) != WEFT_OK) {
        return harness_say(shared, rank, -1, "could not join: %s", weft_error_text());
    }
    hands_open(&hands, &deed);
    result = show_late(rank, shared, comm, &hands);
    weft_control_barrier(comm);
    weft_comm_close(comm);
    hands_close(&hands);
    return result;
}

static void who_is_stopped_before_its_memory_is_mapped_is_waited_for(void **state)
{
    struct harness *harness = harness_start(RANKS, show_late_body, NULL);
    struct harness_shared *shared = harness_shared(harness);
    (void)state;
    collectives_await(harness, &shared->word[POSTED], 1, "the call");
    assert_harness(harness, harness_stop(harness, 1));
    atomic_store(&shared->word[ENTER], 1);
    messages_let_pass(1500); /* longer than any limit but the operation's own */
    atomic_store(&shared->word[GO], 1);
    assert_harness(harness, harness_continue(harness, 1));
    messages_wait(harness, MESSAGES_WAIT_MS, "a late one");
    messages_check_fine(harness, "a late one");
    harness_close(harness);
}

/* ---- no memory for a collective ---- */

static int poor_body(int rank, struct harness_shared *shared, void *arg)
{
    const struct deed deed = {WEFT_REDUCE_SCATTER, LEN, MANNER_BLOCKING, false, 0};
    enum manner manner = *(enum manner *)arg;
    struct hands hands;
    weft_comm_t comm;
    weft_call_t call;
    weft_status_t status;
    char text[512];
    if (messages_join(rank, shared, "tcp", MESSAGES_TIMEOUT_MS, &comm) != WEFT_OK) {
        return harness_say(shared, rank, -1, "could not join: %s", weft_error_text());
    }
    hands_open(&hands, &deed);
    status = weft_barrier(comm, NULL);
    call = deed_call(&deed, &hands, RANKS);
    call.algorithm = "direct"; /* whose messages wait in scratch */
    is_poor = rank == 1;
    status = status != WEFT_OK           ? status
             : manner == MANNER_BLOCKING ? weft_collective(comm, &call, NULL)
                                         : deed_as_request(comm, &call, false);
    snprintf(text, sizeof(text), "%s", weft_error_text());
    harness_say(shared, rank, -1, "%s: %s", weft_status_name(status), text);
    status = status == WEFT_ERR_MEMORY && messages_names(text, 1) ? weft_comm_status(comm) : status;
    weft_comm_close(comm);
    hands_close(&hands);
    return status == WEFT_ERR_MEMORY ? 0 : -1;
}

static void one_without_memory_ends_the_call_for_everybody(void **state)
{
    enum manner manners[] = {MANNER_BLOCKING, MANNER_REQUEST};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct harness *harness = harness_start(RANKS, poor_body, &manners[i]);
        messages_wait(harness, 5000, manner_names[manners[i]]);
        messages_check_fine(harness, manner_names[manners[i]]);
        harness_close(harness);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_writes_to_memory_of_a_call_that_failed),
        cmocka_unit_test(nobody_takes_for_data_what_a_failed_call_left),
        cmocka_unit_test(who_waits_for_a_mapping_is_not_taken_for_a_writer),
        cmocka_unit_test(who_is_stopped_before_its_memory_is_mapped_is_waited_for),
        cmocka_unit_test(one_without_memory_ends_the_call_for_everybody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
