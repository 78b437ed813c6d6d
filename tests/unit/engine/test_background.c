/* SPDX-License-Identifier: Apache-2.0 */
/* The background thread serves engines while nobody drives them, and ends with the last one. */
#include "engine_support.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static unsigned threads_now(void)
{
    struct harness_holdings holdings;
    harness_count(&holdings);
    return holdings.threads;
}

static bool is_alone(void *arg)
{
    return threads_now() == *(const unsigned *)arg;
}

struct beat {
    struct weft_engine_timer timer;
    struct weft_engine *engine;
    _Atomic uint32_t fired;
};

static void beat_fired(struct weft_engine_timer *timer, uint64_t now_ns)
{
    struct beat *beat = WEFT_CONTAINER_OF(timer, struct beat, timer);
    atomic_fetch_add(&beat->fired, 1);
    weft_engine_timer_set(beat->engine, timer, now_ns + 2 * WEFT_NS_PER_MS);
}

static void beat_start(struct weft_engine *engine, struct beat *beat)
{
    beat->engine = engine;
    atomic_init(&beat->fired, 0);
    weft_engine_timer_open(&beat->timer, beat_fired);
    weft_engine_lock(engine);
    weft_engine_timer_set(engine, &beat->timer, weft_clock_after_ms(2));
    weft_engine_unlock(engine);
}

static void it_serves_timers_and_sources_and_tasks_while_nobody_drives(void **state)
{
    struct weft_engine *engine = engine_new(MANY_CPUS);
    _Atomic uint32_t rung = 0, run = 0;
    struct word_task task = {.task = {.run = word_task_run}, .engine = engine, .word = &run};
    struct bell bell;
    struct beat beat;
    (void)state;
    bell_open(engine, &bell);
    bell.word = &rung;
    beat_start(engine, &beat);
    assert_int_equal(weft_background_join(engine), WEFT_OK);
    assert_true(harness_wait_reach(&beat.fired, 5, DEADLINE_MS));
    bell_ring(&bell);
    assert_true(harness_wait_for(&rung, 1, DEADLINE_MS));
    weft_engine_post(engine, &task.task);
    assert_true(harness_wait_for(&run, 1, DEADLINE_MS));
    weft_background_leave(engine);
    bell_close(&bell);
    weft_engine_close(engine);
}

/* An engine that joins second brings timers the sleeping thread has never heard of. */
static void it_serves_every_engine_also_those_that_join_late(void **state)
{
    enum { COUNT = 20 };
    struct weft_engine *engines[COUNT];
    static struct beat beats[COUNT];
    (void)state;
    for (int i = 0; i < COUNT; i++) {
        engines[i] = engine_new(MANY_CPUS);
        beat_start(engines[i], &beats[i]);
        assert_int_equal(weft_background_join(engines[i]), WEFT_OK);
        assert_true(harness_wait_reach(&beats[i].fired, 1, DEADLINE_MS));
    }
    for (int i = 0; i < COUNT; i++) {
        uint32_t before = atomic_load(&beats[i].fired);
        assert_true(harness_wait_reach(&beats[i].fired, before + 2, DEADLINE_MS));
    }
    for (int i = 0; i < COUNT; i++) {
        weft_background_leave(engines[i]);
        weft_engine_close(engines[i]);
    }
}

/* The thread sleeps without end, because its only engine has nothing due. */
static void an_engine_that_joins_a_sleeping_thread_has_its_timers_served(void **state)
{
    struct weft_engine *idle = engine_new(MANY_CPUS), *late = engine_new(MANY_CPUS);
    _Atomic uint32_t run = 0;
    struct word_task task = {.task = {.run = word_task_run}, .engine = idle, .word = &run};
    struct beat beat;
    (void)state;
    assert_int_equal(weft_background_join(idle), WEFT_OK);
    weft_engine_post(idle, &task.task);
    assert_true(harness_wait_for(&run, 1, DEADLINE_MS)); /* it has looked, and sleeps */
    beat_start(late, &beat);
    assert_int_equal(weft_background_join(late), WEFT_OK);
    assert_true(harness_wait_reach(&beat.fired, 3, DEADLINE_MS));
    weft_background_leave(late);
    weft_background_leave(idle);
    weft_engine_close(late);
    weft_engine_close(idle);
}

static void it_ends_with_the_last_engine_and_starts_again_with_the_next(void **state)
{
    unsigned alone = threads_now(), fds = harness_count_fds();
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct weft_engine *first = engine_new(MANY_CPUS), *second = engine_new(MANY_CPUS);
        assert_int_equal(weft_background_join(first), WEFT_OK);
        assert_int_equal(weft_background_join(second), WEFT_OK);
        assert_int_equal(threads_now(), alone + 1);
        weft_background_leave(first);
        assert_int_equal(threads_now(), alone + 1);
        weft_background_leave(second);
        assert_true(harness_wait_until(is_alone, &alone, DEADLINE_MS));
        weft_engine_close(first);
        weft_engine_close(second);
    }
    assert_int_equal(harness_count_fds(), fds);
}

static void leaving_without_having_joined_and_leaving_twice_are_harmless(void **state)
{
    struct weft_engine *engine = engine_new(MANY_CPUS), *other = engine_new(MANY_CPUS);
    struct beat beat;
    uint32_t fired;
    (void)state;
    weft_background_leave(engine);
    beat_start(engine, &beat);
    assert_int_equal(weft_background_join(engine), WEFT_OK);
    assert_int_equal(weft_background_join(other), WEFT_OK);
    weft_background_leave(other);
    weft_background_leave(other);
    fired = atomic_load(&beat.fired);
    assert_true(harness_wait_reach(&beat.fired, fired + 3, DEADLINE_MS)); /* the thread lives */
    weft_background_leave(engine);
    weft_engine_close(engine);
    weft_engine_close(other);
}

/* After leave() nothing of the thread touches the engine: freeing it is safe (sanitizers see). */
static void after_leaving_the_engine_is_not_touched(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++) {
        struct weft_engine *stays = engine_new(MANY_CPUS), *goes = engine_new(MANY_CPUS);
        struct beat beat;
        uint32_t fired;
        assert_int_equal(weft_background_join(stays), WEFT_OK);
        beat_start(goes, &beat);
        assert_int_equal(weft_background_join(goes), WEFT_OK);
        weft_background_leave(goes);
        fired = atomic_load(&beat.fired);
        weft_engine_close(goes);
        assert_int_equal(atomic_load(&beat.fired), fired);
        weft_background_leave(stays);
        weft_engine_close(stays);
    }
}

/* Driver and background thread take turns; the counter is not atomic, the lock guards it. */
struct plain_count {
    struct weft_engine_task task;
    unsigned *count;
    _Atomic uint32_t *word;
};

static void count_plainly(struct weft_engine_task *task)
{
    struct plain_count *self = WEFT_CONTAINER_OF(task, struct plain_count, task);
    ++*self->count;
    atomic_store(self->word, 1);
}

static void a_driver_and_the_background_thread_never_run_at_once(void **state)
{
    struct weft_engine *engine = engine_new(ONE_CPU);
    struct beat beat;
    unsigned count = 0;
    (void)state;
    beat_start(engine, &beat);
    assert_int_equal(weft_background_join(engine), WEFT_OK);
    for (unsigned i = 0; i < 300; i++) {
        _Atomic uint32_t word = 0;
        struct plain_count task = {.task = {.run = count_plainly}, .count = &count, .word = &word};
        weft_engine_post(engine, &task.task);
        if (i % 10 == 0) { /* nobody drives: the thread must */
            assert_true(harness_wait_for(&word, 1, DEADLINE_MS));
        } else {
            assert_int_equal(weft_engine_wait(engine, &word, weft_clock_after_ms(DEADLINE_MS)),
                             WEFT_OK);
        }
    }
    weft_background_leave(engine);
    assert_int_equal(count, 300);
    weft_engine_close(engine);
}

/* It sleeps until a timer that is far away, or without end. */
static void a_nearer_timer_set_while_it_sleeps_fires_in_time(void **state)
{
    struct weft_engine *engine = engine_new(MANY_CPUS);
    _Atomic uint32_t run = 0;
    struct word_task task = {.task = {.run = word_task_run}, .engine = engine, .word = &run};
    struct beat beat;
    (void)state;
    assert_int_equal(weft_background_join(engine), WEFT_OK);
    weft_engine_post(engine, &task.task);
    assert_true(harness_wait_for(&run, 1, DEADLINE_MS)); /* it has looked */
    assert_true(harness_wait_for(&engine->armed, 1, DEADLINE_MS));
    beat_start(engine, &beat);
    assert_true(harness_wait_reach(&beat.fired, 3, SOON_MS));
    weft_background_leave(engine);
    weft_engine_close(engine);
}

/* ---- memory that is polled; no timer would come to the rescue ---- */

/* The driver had told the writers that it is awake. */
static void what_arrives_in_memory_after_a_long_wait_is_served(void **state)
{
    struct weft_engine *engine = engine_new(MANY_CPUS);
    struct mail mail;
    (void)state;
    assert_int_equal(weft_background_join(engine), WEFT_OK);
    mail_open(engine, &mail);
    for (int i = 0; i < 20; i++) {
        atomic_store(&mail.is_read, 0);
        drive(engine, LONG_MS);
        mail_send(&mail);
        assert_true(harness_wait_for(&mail.is_read, 1, SOON_MS));
    }
    weft_background_leave(engine);
    mail_close(&mail);
    weft_engine_close(engine);
}

static void what_arrives_in_memory_that_was_added_late_is_served(void **state)
{
    struct weft_engine *engine = engine_new(MANY_CPUS);
    struct mail first, second;
    (void)state;
    mail_open(engine, &first);
    assert_int_equal(weft_background_join(engine), WEFT_OK);
    mail_send(&first);
    assert_true(harness_wait_for(&first.is_read, 1, SOON_MS));
    assert_true(harness_wait_for(&engine->armed, 1, SOON_MS)); /* it sleeps */
    mail_open(engine, &second);
    mail_send(&second);
    assert_true(harness_wait_for(&second.is_read, 1, SOON_MS));
    weft_background_leave(engine);
    mail_close(&second);
    mail_close(&first);
    weft_engine_close(engine);
}

/* Whoever has the lock may just have told the writers that it is awake. */
static void it_does_not_sleep_on_an_engine_that_it_found_locked(void **state)
{
    struct weft_engine *engine = engine_new(MANY_CPUS);
    struct mail mail;
    (void)state;
    assert_int_equal(weft_background_join(engine), WEFT_OK);
    mail_open(engine, &mail);
    weft_engine_lock(engine);
    weft_engine_quick_round(engine);
    assert_false(harness_wait_for(&engine->armed, 1, 20));
    weft_engine_unlock(engine);
    mail_send(&mail);
    assert_true(harness_wait_for(&mail.is_read, 1, SOON_MS));
    weft_background_leave(engine);
    mail_close(&mail);
    weft_engine_close(engine);
}

/* Ranks that are threads of one process share no lock. */
static void leaving_a_long_wait_does_not_wait_for_a_copy_of_another_engine(void **state)
{
    struct weft_engine *busy = engine_new(MANY_CPUS), *mine = engine_new(MANY_CPUS);
    _Atomic uint32_t may_end = 0;
    struct errand copy;
    uint64_t begin_ns;
    (void)state;
    errand_open(busy, &copy);
    copy.may_end = &may_end;
    assert_int_equal(weft_background_join(mine), WEFT_OK);
    assert_int_equal(weft_background_join(busy), WEFT_OK);
    weft_engine_lock(busy);
    weft_engine_work_add(busy, &copy.work);
    weft_engine_unlock(busy);
    weft_engine_ring(busy);
    assert_true(harness_wait_for(&copy.begun, 1, DEADLINE_MS));
    begin_ns = weft_clock_ns();
    drive(mine, LONG_MS);
    assert_true(weft_clock_ns() - begin_ns < SOON_MS * WEFT_NS_PER_MS);
    atomic_store(&may_end, 1);
    assert_true(harness_wait_for(&copy.done, 1, DEADLINE_MS));
    weft_background_leave(busy);
    weft_background_leave(mine);
    weft_engine_close(busy);
    weft_engine_close(mine);
}

/* ---- the system refuses to watch a descriptor ---- */

/* For this thread alone, and as long as it lives. */
static bool refuse_epoll_add(void)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_epoll_ctl, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, EPOLL_CTL_ADD, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSPC),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = WEFT_COUNT_OF(rules), .filter = rules};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

struct refused {
    struct weft_engine *engine;
    bool is_possible;
    int victim; /* what the next descriptor is given to */
};

static void drive_once_it_sleeps(struct weft_engine *engine)
{
    harness_wait_for(&engine->armed, 1, DEADLINE_MS);
    weft_engine_lock(engine);
    weft_engine_quick_round(engine);
    weft_engine_unlock(engine);
}

static void *drive_without_watches(void *arg)
{
    struct refused *refused = arg;
    refused->is_possible = refuse_epoll_add();
    if (refused->is_possible) {
        drive_once_it_sleeps(refused->engine);
        refused->victim = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        weft_engine_ring(refused->engine);
        drive_once_it_sleeps(refused->engine);
    }
    return NULL;
}

static void a_bell_that_cannot_be_watched_is_not_rung_later(void **state)
{
    struct weft_engine *engine = engine_new(MANY_CPUS);
    struct refused refused = {.engine = engine};
    struct mail mail;
    pthread_t thread;
    uint64_t rings;
    (void)state;
    mail_open(engine, &mail);
    assert_int_equal(weft_background_join(engine), WEFT_OK);
    mail_send(&mail);
    assert_true(harness_wait_for(&mail.is_read, 1, DEADLINE_MS));
    assert_int_equal(pthread_create(&thread, NULL, drive_without_watches, &refused), 0);
    pthread_join(thread, NULL);
    if (refused.is_possible) {
        assert_true(refused.victim >= 0);
        assert_true(read(refused.victim, &rings, sizeof(rings)) < 0);
        close(refused.victim);
    }
    weft_background_leave(engine);
    mail_close(&mail);
    weft_engine_close(engine);
    if (!refused.is_possible) {
        skip();
    }
}

#ifndef __SANITIZE_THREAD__ /* which cannot follow threads of a child of many threads */
/* A forked child has the bookkeeping but not the thread; it gets its own with its first engine. */
static void a_forked_child_starts_its_own_thread(void **state)
{
    struct weft_engine *engine = engine_new(MANY_CPUS);
    int wait_status;
    pid_t child;
    (void)state;
    assert_int_equal(weft_background_join(engine), WEFT_OK);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct weft_engine *own = NULL;
        struct beat beat;
        bool is_served = weft_engine_open(MANY_CPUS, -1, &own) == WEFT_OK;
        if (is_served) {
            beat_start(own, &beat);
            is_served = weft_background_join(own) == WEFT_OK &&
                        harness_wait_reach(&beat.fired, 2, DEADLINE_MS / 2);
            weft_background_leave(own);
        }
        _exit(is_served ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &wait_status, 0), child);
    assert_true(WIFEXITED(wait_status));
    assert_int_equal(WEXITSTATUS(wait_status), 0);
    weft_background_leave(engine);
    weft_engine_close(engine);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_serves_timers_and_sources_and_tasks_while_nobody_drives),
        cmocka_unit_test(it_serves_every_engine_also_those_that_join_late),
        cmocka_unit_test(an_engine_that_joins_a_sleeping_thread_has_its_timers_served),
        cmocka_unit_test(it_ends_with_the_last_engine_and_starts_again_with_the_next),
        cmocka_unit_test(leaving_without_having_joined_and_leaving_twice_are_harmless),
        cmocka_unit_test(after_leaving_the_engine_is_not_touched),
        cmocka_unit_test(a_driver_and_the_background_thread_never_run_at_once),
        cmocka_unit_test(a_nearer_timer_set_while_it_sleeps_fires_in_time),
        cmocka_unit_test(what_arrives_in_memory_after_a_long_wait_is_served),
        cmocka_unit_test(what_arrives_in_memory_that_was_added_late_is_served),
        cmocka_unit_test(it_does_not_sleep_on_an_engine_that_it_found_locked),
        cmocka_unit_test(leaving_a_long_wait_does_not_wait_for_a_copy_of_another_engine),
        cmocka_unit_test(a_bell_that_cannot_be_watched_is_not_rung_later),
#ifndef __SANITIZE_THREAD__
        cmocka_unit_test(a_forked_child_starts_its_own_thread),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
