/* SPDX-License-Identifier: Apache-2.0 */
#include "mem/mem.h"

#include "../base/capture.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE ((size_t)4096)
#define DEADLINE_MS 20000

static void *alloc(size_t len)
{
    void *memory = NULL;

    assert_int_equal(weft_mem_alloc(len, &memory), WEFT_OK);
    assert_non_null(memory);
    return memory;
}

static uint64_t id_of(const void *memory)
{
    struct weft_mem_place place;

    assert_true(weft_mem_find(memory, 1, &place));
    return place.id;
}

static void every_address_of_an_allocation_is_found_and_none_beside_it(void **state)
{
    size_t len = 3 * PAGE + 100;
    uint8_t *memory = alloc(len);
    struct weft_mem_place place;
    struct stat stat;

    (void)state;
    assert_true(weft_mem_find(memory, len, &place));
    assert_true(place.id != 0);
    assert_int_equal(place.len, len);
    assert_int_equal(place.offset, 0);
    assert_int_equal(fstat(place.fd, &stat), 0);
    assert_true(weft_mem_find(memory + 777, len - 777, &place));
    assert_int_equal(place.offset, 777);
    assert_true(weft_mem_find(memory + len - 1, 1, &place));
    assert_int_equal(place.offset, len - 1);
    assert_true(weft_mem_find(memory + 5, 0, &place));

    assert_false(weft_mem_find(memory, len + 1, &place));
    assert_false(weft_mem_find(memory + 1, len, &place));
    assert_false(weft_mem_find(memory + len, 0, &place));
    assert_false(weft_mem_find(memory + 1, SIZE_MAX, &place));
    assert_false(weft_mem_find(memory - 1, 2, &place));
    assert_false(weft_mem_find(&place, sizeof(place), &place));
    assert_false(weft_mem_find(NULL, 1, &place));
    assert_int_equal(weft_mem_free(memory), WEFT_OK);
    assert_false(weft_mem_find(memory, 1, &place));
}

static void two_allocations_do_not_make_one(void **state)
{
    struct weft_mem_place place;
    uint8_t *low = alloc(PAGE), *high = alloc(PAGE);

    (void)state;
    if (high < low) {
        uint8_t *swap = low;

        low = high;
        high = swap;
    }
    assert_true(weft_mem_find(low, PAGE, &place));
    assert_false(weft_mem_find(low, (size_t)(high - low) + 1, &place)); /* neighbours or not */
    weft_mem_free(low);
    weft_mem_free(high);
}

static void only_what_was_allocated_can_be_freed_and_once(void **state)
{
    uint8_t *memory = alloc(2 * PAGE);
    void *none = &none;

    (void)state;
    assert_int_equal(weft_mem_free(memory + 1), WEFT_ERR_INVALID);
    assert_int_equal(weft_mem_free(memory + PAGE), WEFT_ERR_INVALID);
    assert_int_equal(weft_mem_free(&memory), WEFT_ERR_INVALID);
    assert_int_equal(weft_mem_free(NULL), WEFT_OK);
    assert_int_equal(weft_mem_free(memory), WEFT_OK);
    assert_int_equal(weft_mem_free(memory), WEFT_ERR_INVALID);
    assert_int_equal(weft_mem_alloc(0, &none), WEFT_ERR_INVALID);
    assert_int_equal(weft_mem_alloc(SIZE_MAX, &none), WEFT_ERR_MEMORY);
    assert_ptr_equal(none, &none);
    assert_int_equal(weft_fd_count(), 0);
}

static void ids_are_found_until_freed_and_never_come_back(void **state)
{
    struct weft_mem_place place;
    uint64_t latest = 0;

    (void)state;
    assert_false(weft_mem_find_id(0, &place));
    for (int i = 0; i < 50; i++) {
        void *memory = alloc(PAGE);
        uint64_t id = id_of(memory);

        assert_true(id > latest); /* grows, though the address is mostly the same */
        latest = id;
        assert_true(weft_mem_find_id(id, &place));
        assert_int_equal(place.id, id);
        assert_int_equal(place.len, PAGE);
        assert_int_equal(place.offset, 0);
        weft_mem_free(memory);
        assert_false(weft_mem_find_id(id, &place));
    }
}

#define MANY 200
static void many_are_told_apart_whatever_order_they_go_in(void **state)
{
    uint8_t *memory[MANY];
    uint64_t ids[MANY];
    struct weft_mem_place place;

    (void)state;
    for (size_t i = 0; i < MANY; i++) {
        memory[i] = alloc(PAGE + i);
        ids[i] = id_of(memory[i]);
    }
    for (size_t step = 0; step < MANY; step++) {
        size_t gone = step * 77 % MANY; /* each once: 77 and 200 have no common factor */

        assert_int_equal(weft_mem_free(memory[gone]), WEFT_OK);
        memory[gone] = NULL;
        for (size_t i = 0; i < MANY; i++) {
            assert_int_equal(weft_mem_find_id(ids[i], &place), memory[i] != NULL);
            if (memory[i]) {
                assert_true(weft_mem_find(memory[i] + i, PAGE, &place));
                assert_int_equal(place.id, ids[i]);
                assert_int_equal(place.len, PAGE + i);
            }
        }
    }
    assert_int_equal(weft_fd_count(), 0);
}

struct witness {
    struct weft_mem_watcher watcher;
    const uint8_t *memory; /* still mapped when told */
    _Atomic uint64_t told, times;
    _Atomic bool may_return; /* a slow one waits for it */
    bool is_leaving;         /* unwatches itself */
    struct witness *other;   /* unwatched when told */
};

static void note(struct weft_mem_watcher *watcher, uint64_t id)
{
    struct witness *witness = WEFT_CONTAINER_OF(watcher, struct witness, watcher);
    struct weft_mem_place place;

    assert_false(weft_mem_find_id(id, &place));
    assert_true(!witness->memory || witness->memory[0] == 7);
    if (witness->is_leaving) {
        weft_mem_unwatch(watcher);
    }
    if (witness->other) {
        weft_mem_unwatch(&witness->other->watcher);
    }
    witness->told = id;
    witness->times++;
}

static void watchers_are_told_before_the_memory_goes(void **state)
{
    uint8_t *memory = alloc(PAGE);
    uint64_t id = id_of(memory);
    struct witness first = {.watcher.freed = note, .memory = memory};
    struct witness second = {.watcher.freed = note, .memory = memory};

    (void)state;
    memory[0] = 7;
    weft_mem_watch(&first.watcher);
    weft_mem_watch(&second.watcher);
    weft_mem_free(memory + 1); /* nothing was freed: nobody is told */
    assert_int_equal(first.times, 0);
    weft_mem_free(memory);
    assert_int_equal(first.told, id);
    assert_int_equal(second.told, id);
    weft_mem_unwatch(&first.watcher);
    first.memory = second.memory = NULL;
    weft_mem_free(alloc(PAGE));
    assert_int_equal(first.times, 1);
    assert_int_equal(second.times, 2);
    weft_mem_unwatch(&second.watcher);
}

static void a_watcher_may_leave_and_send_others_away_while_told(void **state)
{
    struct witness third = {.watcher.freed = note};
    struct witness second = {.watcher.freed = note};
    struct witness first = {.watcher.freed = note, .is_leaving = true, .other = &second};

    (void)state;
    weft_mem_watch(&first.watcher);
    weft_mem_watch(&second.watcher); /* next in the round when it is sent away */
    weft_mem_watch(&third.watcher);
    weft_mem_free(alloc(PAGE));
    assert_int_equal(first.times, 1);
    assert_int_equal(second.times, 0);
    assert_int_equal(third.times, 1);
    weft_mem_free(alloc(PAGE));
    assert_int_equal(first.times, 1);
    assert_int_equal(third.times, 2);
    weft_mem_unwatch(&third.watcher);
}

static void wait_for(_Atomic uint64_t *word)
{
    uint64_t deadline = weft_clock_after_ms(DEADLINE_MS);

    while (*word == 0) {
        assert_true(weft_clock_ns() < deadline);
        sched_yield();
    }
}

static void linger(struct weft_mem_watcher *watcher, uint64_t id)
{
    struct witness *witness = WEFT_CONTAINER_OF(watcher, struct witness, watcher);
    uint64_t deadline = weft_clock_after_ms(DEADLINE_MS);

    witness->told = id;
    while (!witness->may_return && weft_clock_ns() < deadline) {
        sched_yield();
    }
    witness->times++;
}

static void *free_it(void *memory)
{
    return weft_mem_free(memory) == WEFT_OK ? memory : NULL;
}

struct leaver {
    struct witness *witness;
    _Atomic uint64_t is_gone;
};

static void *leave(void *context)
{
    struct leaver *leaver = context;

    weft_mem_unwatch(&leaver->witness->watcher);
    leaver->is_gone = 1;
    return NULL;
}

/* What unwatching is for: afterwards the watcher's memory may go. */
static void unwatching_waits_for_a_running_watcher(void **state)
{
    void *memory = alloc(PAGE), *other = alloc(PAGE);
    struct witness witness = {.watcher.freed = linger};
    struct leaver leaver = {.witness = &witness};
    struct weft_mem_place place;
    pthread_t freeing, leaving;
    uint64_t id = id_of(memory), until;

    (void)state;
    weft_mem_watch(&witness.watcher);
    assert_int_equal(pthread_create(&freeing, NULL, free_it, memory), 0);
    wait_for(&witness.told);
    assert_int_equal(witness.told, id);
    assert_int_equal(pthread_create(&leaving, NULL, leave, &leaver), 0);
    until = weft_clock_after_ms(50); /* long enough for one that does not wait to be caught */
    while (weft_clock_ns() < until) {
        assert_int_equal(leaver.is_gone, 0);
        assert_true(weft_mem_find(other, 1, &place)); /* no lock is held meanwhile */
        sched_yield();
    }
    witness.may_return = true;
    wait_for(&leaver.is_gone);
    assert_int_equal(witness.times, 1);
    assert_int_equal(pthread_join(leaving, NULL), 0);
    assert_int_equal(pthread_join(freeing, NULL), 0);
    weft_mem_free(other);
}

#define WORKERS 4
#define TURNS 300
static void *come_and_go(void *context)
{
    struct witness witness = {.watcher.freed = note};
    struct weft_mem_place place;
    size_t own = *(const size_t *)context;

    for (size_t i = 0; i < TURNS; i++) {
        size_t len = PAGE * (1 + (i + own) % 3);
        uint8_t *memory = NULL;

        weft_mem_watch(&witness.watcher);
        if (weft_mem_alloc(len, (void **)&memory) != WEFT_OK ||
            !weft_mem_find(memory + 10, len - 10, &place) || place.offset != 10 ||
            place.len != len || weft_mem_free(memory) != WEFT_OK ||
            weft_mem_find_id(place.id, &place)) {
            return NULL;
        }
        weft_mem_unwatch(&witness.watcher);
        if (witness.times < i + 1) { /* at least of its own */
            return NULL;
        }
    }
    return context;
}

static void threads_do_not_disturb_each_other(void **state)
{
    pthread_t threads[WORKERS];
    size_t numbers[WORKERS];

    (void)state;
    for (size_t i = 0; i < WORKERS; i++) {
        numbers[i] = i;
        assert_int_equal(pthread_create(&threads[i], NULL, come_and_go, &numbers[i]), 0);
    }
    for (size_t i = 0; i < WORKERS; i++) {
        void *result;

        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_ptr_equal(result, &numbers[i]);
    }
    assert_int_equal(weft_fd_count(), 0);
}

static int wait_child(pid_t child)
{
    int status = 0;

    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* Our descriptors are closed in it, and their numbers are soon somebody else's. */
static int free_in_child(uint8_t *memory, const struct witness *witness, int number)
{
    int others = open("/dev/null", O_RDONLY | O_CLOEXEC);
    uint8_t *new = NULL;

    alarm(10);
    while (others >= 0 && others < number) {
        others = open("/dev/null", O_RDONLY | O_CLOEXEC);
    }
    if (others != number || memory[0] != 7 || weft_mem_free(memory) != WEFT_OK) {
        return 1;
    }
    if (fcntl(number, F_GETFD) < 0) {
        return 2;
    }
    if (witness->times != 0) {
        return 3;
    }
    if (weft_mem_free(memory) != WEFT_ERR_INVALID || weft_mem_alloc(PAGE, (void **)&new) ||
        weft_mem_free(new) != WEFT_OK) {
        return 4;
    }
    return 0;
}

static void a_forked_child_frees_its_copy_and_tells_nobody(void **state)
{
    uint8_t *memory = alloc(PAGE);
    struct witness witness = {.watcher.freed = note};
    struct weft_mem_place place;
    pid_t child;

    (void)state;
    memory[0] = 7;
    assert_true(weft_mem_find(memory, 1, &place));
    weft_mem_watch(&witness.watcher);
    child = fork();
    if (child == 0) {
        _exit(free_in_child(memory, &witness, place.fd));
    }
    assert_int_equal(wait_child(child), 0);
    assert_int_equal(memory[0], 7);
    assert_int_equal(id_of(memory), place.id);
    assert_int_equal(weft_mem_free(memory), WEFT_OK);
    assert_int_equal(witness.times, 1);
    weft_mem_unwatch(&witness.watcher);
}

static _Atomic bool is_enough;

static void *come_and_go_until_enough(void *context)
{
    size_t own = 0;

    while (!is_enough && come_and_go(&own)) {
    }
    return context;
}

static void a_child_forked_while_others_allocate_can_free(void **state)
{
    pthread_t threads[2];

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, come_and_go_until_enough, NULL), 0);
    }
    for (int i = 0; i < 300; i++) {
        uint8_t *memory = alloc(PAGE);
        pid_t child = fork();

        if (child == 0) {
            alarm(10);
            _exit(weft_mem_free(memory) == WEFT_OK ? 0 : 1);
        }
        assert_int_equal(wait_child(child), 0);
        assert_int_equal(weft_mem_free(memory), WEFT_OK);
    }
    is_enough = true;
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
}

/* Somebody has the memory mapped, and writes to it whenever he likes. */
static void what_is_disowned_nobody_else_reaches(void **state)
{
    size_t len = 8 * PAGE;
    uint8_t *memory = alloc(len);
    struct weft_mem_region other;
    struct weft_mem_place place;

    (void)state;
    assert_true(weft_mem_find(memory, len, &place));
    assert_int_equal(weft_mem_region_map(weft_fd_own(dup(place.fd)), len, &other), WEFT_OK);
    memset(memory, 1, len);
    assert_int_equal(weft_mem_disown(memory + 2 * PAGE + 7, PAGE), WEFT_OK); /* of two pages */
    memset(other.base, 2, len);
    for (size_t i = 0; i < len; i++) {
        assert_int_equal(memory[i], i / PAGE == 2 || i / PAGE == 3 ? 1 : 2);
    }
    assert_true(weft_mem_find(memory, 2 * PAGE, &place));
    assert_true(weft_mem_find(memory + 4 * PAGE, 4 * PAGE, &place));
    assert_false(weft_mem_find(memory, 2 * PAGE + 1, &place));
    assert_false(weft_mem_find(memory + 4 * PAGE - 1, 1, &place));
    assert_int_equal(weft_mem_disown(memory + 3 * PAGE, 5 * PAGE), WEFT_OK); /* some are already */
    memset(other.base, 3, len);
    assert_int_equal(memory[2 * PAGE - 1], 3);
    assert_int_equal(memory[3 * PAGE], 1);
    assert_int_equal(memory[len - 1], 2);
    assert_false(weft_mem_find(memory + len - 1, 1, &place));
    assert_int_equal(weft_mem_disown(&place, sizeof(place)), WEFT_OK); /* nobody else's anyway */
    weft_mem_region_close(&other);
    assert_int_equal(weft_mem_free(memory), WEFT_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_address_of_an_allocation_is_found_and_none_beside_it),
        cmocka_unit_test(two_allocations_do_not_make_one),
        cmocka_unit_test(what_is_disowned_nobody_else_reaches),
        cmocka_unit_test(only_what_was_allocated_can_be_freed_and_once),
        cmocka_unit_test(ids_are_found_until_freed_and_never_come_back),
        cmocka_unit_test(many_are_told_apart_whatever_order_they_go_in),
        cmocka_unit_test(watchers_are_told_before_the_memory_goes),
        cmocka_unit_test(a_watcher_may_leave_and_send_others_away_while_told),
        cmocka_unit_test(unwatching_waits_for_a_running_watcher),
        cmocka_unit_test(threads_do_not_disturb_each_other),
        cmocka_unit_test(a_forked_child_frees_its_copy_and_tells_nobody),
        cmocka_unit_test(a_child_forked_while_others_allocate_can_free),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
