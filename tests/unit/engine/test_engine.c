/* SPDX-License-Identifier: Apache-2.0 */
/* Sources, timers, tasks: what one poll round delivers, and what it must not deliver any more. */
#include "engine_support.h"

/* ---- sources ---- */

static void a_source_that_is_ready_is_called_once_per_event(void **state)
{
    struct weft_engine *engine = engine_new(MANY_CPUS);
    _Atomic uint32_t word = 0;
    struct bell bell;
    (void)state;
    bell_open(engine, &bell);
    bell.word = &word;
    drive(engine, 1);
    assert_int_equal(bell.events, 0);
    bell_ring(&bell);
    assert_int_equal(weft_engine_wait(engine, &word, weft_clock_after_ms(DEADLINE_MS)), WEFT_OK);
    drive(engine, 1);
    assert_int_equal(bell.events, 1);
    bell_close(&bell);
    weft_engine_close(engine);
}

static void a_source_wanting_nothing_gets_no_event_until_it_wants_again(void **state)
{
    struct weft_engine *engine = engine_new(MANY_CPUS);
    _Atomic uint32_t word = 0;
    struct bell bell;
    (void)state;
    bell_open(engine, &bell);
    bell.word = &word;
    bell_ring(&bell);
    weft_engine_lock(engine);
    weft_engine_want(engine, &bell.source, 0);
    weft_engine_unlock(engine);
    drive(engine, 2);
    assert_int_equal(bell.events, 0);
    weft_engine_lock(engine);
    weft_engine_want(engine, &bell.source, EPOLLIN);
    weft_engine_unlock(engine);
    assert_int_equal(weft_engine_wait(engine, &word, weft_clock_after_ms(DEADLINE_MS)), WEFT_OK);
    assert_int_equal(bell.events, 1);
    bell_close(&bell);
    weft_engine_close(engine);
}

/* Both are ready when the round begins; whichever comes first removes the other. */
static void a_source_removed_by_another_handler_in_the_same_round_gets_no_event(void **state)
{
    struct weft_engine *engine = engine_new(MANY_CPUS);
    struct bell left, right;
    (void)state;
    bell_open(engine, &left);
    bell_open(engine, &right);
    left.to_remove = &right;
    right.to_remove = &left;
    bell_ring(&left);
    bell_ring(&right);
    drive(engine, 2);
    assert_int_equal(left.events + right.events, 1);
    bell_close(&left);
    bell_close(&right);
    weft_engine_close(engine);
}

static void a_handler_may_remove_its_own_source_and_removing_twice_is_harmless(void **state)
{
    struct weft_engine *engine = engine_new(MANY_CPUS);
    struct bell bell;
    (void)state;
    bell_open(engine, &bell);
    bell.to_remove = &bell;
    bell_ring(&bell);
    drive(engine, 2);
    bell_ring(&bell);
    drive(engine, 2);
    assert_int_equal(bell.events, 1);
    bell_close(&bell);
    weft_engine_close(engine);
}

/* More sources than one batch holds: none starves. */
static void every_one_of_two_hundred_ready_sources_is_served(void **state)
{
    enum { COUNT = 200 };
    static struct bell bells[COUNT];
    struct weft_engine *engine = engine_new(MANY_CPUS);
    (void)state;
    for (int i = 0; i < COUNT; i++) {
        bell_open(engine, &bells[i]);
        bell_ring(&bells[i]);
    }
    drive(engine, 10);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(bells[i].events, 1);
        bell_close(&bells[i]);
    }
    weft_engine_close(engine);
}

static void a_descriptor_that_cannot_be_polled_is_a_system_error(void **state)
{
    struct weft_engine *engine = engine_new(MANY_CPUS);
    struct bell bell = {.engine = engine, .source = {.ready = bell_ready_count}};
    (void)state;
    assert_int_equal(weft_engine_add(engine, &bell.source, 1 << 20, EPOLLIN), WEFT_ERR_SYSTEM);
    assert_int_equal(bell.source.fd, -1);
    weft_engine_remove(engine, &bell.source); /* harmless */
    weft_engine_close(engine);
}

static void opening_and_closing_leaves_no_descriptor(void **state)
{
    unsigned before = harness_count_fds();
    (void)state;
    for (int i = 0; i < 10; i++) {
        weft_engine_close(engine_new(MANY_CPUS));
    }
    weft_engine_close(NULL);
    assert_int_equal(harness_count_fds(), before);
    assert_int_equal(weft_fd_count(), 0);
}

/* ---- timers ---- */

struct alarm {
    struct weft_engine_timer timer;
    struct weft_engine *engine;
    unsigned fired;
    uint64_t fired_ns, number;
    struct alarm *to_cancel;
    uint64_t again_ns; /* sets itself again by so much, until it has fired three times */
    _Atomic uint32_t *word;
};

static uint64_t alarms_fired;

static void alarm_fired(struct weft_engine_timer *timer, uint64_t now_ns)
{
    struct alarm *alarm = WEFT_CONTAINER_OF(timer, struct alarm, timer);
    alarm->fired++;
    alarm->fired_ns = now_ns;
    alarm->number = ++alarms_fired;
    if (alarm->to_cancel != NULL) {
        weft_engine_timer_cancel(alarm->engine, &alarm->to_cancel->timer);
    }
    if (alarm->again_ns != 0 && alarm->fired < 3) {
        weft_engine_timer_set(alarm->engine, timer, now_ns + alarm->again_ns);
    } else if (alarm->word != NULL) {
        atomic_store(alarm->word, 1);
        weft_engine_completed(alarm->engine);
    }
}

static void alarm_open(struct weft_engine *engine, struct alarm *alarm)
{
    memset(alarm, 0, sizeof(*alarm));
    alarm->engine = engine;
    weft_engine_timer_open(&alarm->timer, alarm_fired);
}

static void alarm_set(struct alarm *alarm, uint64_t at_ns)
{
    weft_engine_lock(alarm->engine);
    weft_engine_timer_set(alarm->engine, &alarm->timer, at_ns);
    weft_engine_unlock(alarm->engine);
}

static void a_timer_fires_once_and_never_early(void **state)
{
    struct weft_engine *engine = engine_new(MANY_CPUS);
    uint64_t at_ns = weft_clock_after_ms(3);
    _Atomic uint32_t word = 0;
    struct alarm alarm;
    (void)state;
    alarm_open(engine, &alarm);
    alarm.word = &word;
    alarm_set(&alarm, at_ns);
    assert_int_equal(weft_engine_wait(engine, &word, weft_clock_after_ms(DEADLINE_MS)), WEFT_OK);
    assert_true(alarm.fired_ns >= at_ns);
    drive(engine, 2);
    assert_int_equal(alarm.fired, 1);
    weft_engine_close(engine);
}

/* Sleeping drivers must wake for timers, too. */
static void a_timer_wakes_a_driver_that_sleeps(void **state)
{
    struct weft_engine *engine = engine_new(ONE_CPU);
    _Atomic uint32_t word = 0;
    struct alarm alarm;
    (void)state;
    weft_engine_set_load(engine, 100);
    alarm_open(engine, &alarm);
    alarm.word = &word;
    alarm_set(&alarm, weft_clock_after_ms(20));
    assert_int_equal(weft_engine_wait(engine, &word, weft_clock_after_ms(DEADLINE_MS)), WEFT_OK);
    assert_true(weft_counter_read(weft_engine_counters(engine), WEFT_COUNTER_SLEEPS) > 0);
    weft_engine_close(engine);
}

static void a_cancelled_timer_never_fires_and_cancelling_twice_is_harmless(void **state)
{
    struct weft_engine *engine = engine_new(MANY_CPUS);
    struct alarm alarm;
    (void)state;
    alarm_open(engine, &alarm);
    alarm_set(&alarm, weft_clock_after_ms(1));
    weft_engine_timer_cancel(engine, &alarm.timer);
    weft_engine_timer_cancel(engine, &alarm.timer);
    drive(engine, 4);
    assert_int_equal(alarm.fired, 0);
    weft_engine_close(engine);
}

static void a_timer_cancelled_by_another_in_the_same_round_does_not_fire(void **state)
{
    struct weft_engine *engine = engine_new(MANY_CPUS);
    struct alarm left, right;
    (void)state;
    alarm_open(engine, &left);
    alarm_open(engine, &right);
    left.to_cancel = &right;
    right.to_cancel = &left;
    alarm_set(&left, 1);
    alarm_set(&right, 1);
    drive(engine, 2);
    assert_int_equal(left.fired + right.fired, 1);
    weft_engine_close(engine);
}

static void a_timer_may_set_itself_again(void **state)
{
    struct weft_engine *engine = engine_new(MANY_CPUS);
    _Atomic uint32_t word = 0;
    struct alarm alarm;
    (void)state;
    alarm_open(engine, &alarm);
    alarm.again_ns = 500000;
    alarm.word = &word;
    alarm_set(&alarm, weft_clock_ns());
    assert_int_equal(weft_engine_wait(engine, &word, weft_clock_after_ms(DEADLINE_MS)), WEFT_OK);
    assert_int_equal(alarm.fired, 3);
    weft_engine_close(engine);
}

static void a_timer_set_anew_moves(void **state)
{
    struct weft_engine *engine = engine_new(MANY_CPUS);
    uint64_t at_ns = weft_clock_after_ms(8);
    _Atomic uint32_t word = 0;
    struct alarm alarm;
    (void)state;
    alarm_open(engine, &alarm);
    alarm.word = &word;
    alarm_set(&alarm, weft_clock_after_ms(1));
    alarm_set(&alarm, at_ns);
    assert_int_equal(weft_engine_wait(engine, &word, weft_clock_after_ms(DEADLINE_MS)), WEFT_OK);
    assert_true(alarm.fired_ns >= at_ns);
    assert_int_equal(alarm.fired, 1);
    weft_engine_close(engine);
}

static void timers_due_at_different_times_fire_when_due(void **state)
{
    enum { COUNT = 20 };
    struct weft_engine *engine = engine_new(MANY_CPUS);
    struct alarm alarms[COUNT];
    uint64_t base_ns = weft_clock_ns();
    _Atomic uint32_t word = 0;
    (void)state;
    for (unsigned i = 0; i < COUNT; i++) { /* set in an order that is not that of time */
        unsigned k = i * 7 % COUNT;
        alarm_open(engine, &alarms[k]);
        alarm_set(&alarms[k], base_ns + (k + 1) * UINT64_C(300000));
    }
    alarms[COUNT - 1].word = &word;
    assert_int_equal(weft_engine_wait(engine, &word, weft_clock_after_ms(DEADLINE_MS)), WEFT_OK);
    drive(engine, 1);
    for (unsigned k = 0; k < COUNT; k++) {
        assert_int_equal(alarms[k].fired, 1);
        assert_true(alarms[k].fired_ns >= base_ns + (k + 1) * UINT64_C(300000));
    }
    weft_engine_close(engine);
}

/* ---- tasks ---- */

enum { POSTERS = 4, TASKS_EACH = 2000 };

struct poster {
    struct weft_engine *engine;
    struct counted_task {
        struct weft_engine_task task;
        struct poster *poster;
    } * tasks;
    unsigned run, out_of_order; /* under the lock only: a race here is for the thread sanitizer */
    unsigned *total;
    _Atomic uint32_t *word;
    pthread_t thread;
};

static void count_task(struct weft_engine_task *task)
{
    struct counted_task *self = WEFT_CONTAINER_OF(task, struct counted_task, task);
    struct poster *poster = self->poster;
    poster->out_of_order += self != &poster->tasks[poster->run];
    poster->run++;
    if (++*poster->total == POSTERS * TASKS_EACH) {
        atomic_store(poster->word, 1);
        weft_engine_completed(poster->engine);
    }
}

static void *post_all(void *arg)
{
    struct poster *poster = arg;
    for (int i = 0; i < TASKS_EACH; i++) {
        poster->tasks[i].poster = poster;
        poster->tasks[i].task.run = count_task;
        weft_engine_post(poster->engine, &poster->tasks[i].task);
    }
    return NULL;
}

static void tasks_of_four_threads_all_run_each_thread_s_in_order(void **state)
{
    static struct counted_task tasks[POSTERS][TASKS_EACH];
    struct weft_engine *engine = engine_new(ONE_CPU);
    struct poster posters[POSTERS] = {0};
    unsigned total = 0;
    _Atomic uint32_t word = 0;
    (void)state;
    weft_engine_set_load(engine, 100); /* the driver sleeps whenever there is nothing to do */
    for (int i = 0; i < POSTERS; i++) {
        posters[i].engine = engine;
        posters[i].tasks = tasks[i];
        posters[i].total = &total;
        posters[i].word = &word;
        assert_int_equal(pthread_create(&posters[i].thread, NULL, post_all, &posters[i]), 0);
    }
    assert_int_equal(weft_engine_wait(engine, &word, weft_clock_after_ms(DEADLINE_MS)), WEFT_OK);
    for (int i = 0; i < POSTERS; i++) {
        pthread_join(posters[i].thread, NULL);
        assert_int_equal(posters[i].run, TASKS_EACH);
        assert_int_equal(posters[i].out_of_order, 0);
    }
    weft_engine_close(engine);
}

/* The driver sleeps (its counter says so) before the task comes: without a bell it would sleep on. */
static void *post_when_asleep(void *arg)
{
    struct word_task *task = arg;
    const struct weft_counters *counters = weft_engine_counters(task->engine);
    uint64_t deadline_ns = weft_clock_after_ms(DEADLINE_MS);
    while (weft_counter_read(counters, WEFT_COUNTER_SLEEPS) == 0 && weft_clock_ns() < deadline_ns) {
    }
    weft_engine_post(task->engine, &task->task);
    return NULL;
}

static void a_task_wakes_a_driver_that_sleeps(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        struct weft_engine *engine = engine_new(ONE_CPU);
        _Atomic uint32_t word = 0;
        struct word_task task = {.task = {.run = word_task_run}, .engine = engine, .word = &word};
        pthread_t poster;
        weft_engine_set_load(engine, 100);
        assert_int_equal(pthread_create(&poster, NULL, post_when_asleep, &task), 0);
        assert_int_equal(weft_engine_wait(engine, &word, weft_clock_after_ms(DEADLINE_MS)),
                         WEFT_OK);
        pthread_join(poster, NULL);
        weft_engine_close(engine);
    }
}

/* ---- a producer is interrupted between the two steps of its push ---- */

struct torn {
    struct weft_engine *engine;
    struct word_task first, second; /* the chain is torn before the first */
    _Atomic uint32_t is_first_run, is_second_run;
    _Atomic uint32_t has_returned, was_second_run;
};

static void *run_tasks_under_the_lock(void *arg)
{
    struct torn *torn = arg;
    weft_engine_lock(torn->engine);
    weft_engine_run_tasks(torn->engine);
    atomic_store(&torn->was_second_run, atomic_load(&torn->is_second_run));
    weft_engine_unlock(torn->engine);
    atomic_store(&torn->has_returned, 1);
    return NULL;
}

/* Whoever frees a task afterwards relies on it. */
static void running_the_tasks_runs_also_those_behind_an_interrupted_producer(void **state)
{
    struct weft_engine *engine = engine_new(MANY_CPUS);
    struct weft_queue *queue = &engine->front.tasks;
    struct torn torn = {.engine = engine};
    struct weft_queue_node *before;
    pthread_t thread;
    (void)state;
    torn.first = (struct word_task){
        .task = {.run = word_task_run}, .engine = engine, .word = &torn.is_first_run};
    torn.second = (struct word_task){
        .task = {.run = word_task_run}, .engine = engine, .word = &torn.is_second_run};
    before = atomic_exchange(&queue->tail, &torn.first.task.node); /* the first half of a push */
    weft_engine_post(engine, &torn.second.task);
    assert_int_equal(pthread_create(&thread, NULL, run_tasks_under_the_lock, &torn), 0);
    assert_false(harness_wait_for(&torn.has_returned, 1, 20));
    atomic_store(&before->next, &torn.first.task.node); /* the second half */
    assert_true(harness_wait_for(&torn.has_returned, 1, DEADLINE_MS));
    pthread_join(thread, NULL);
    assert_int_equal(atomic_load(&torn.is_first_run), 1);
    assert_int_equal(atomic_load(&torn.was_second_run), 1);
    weft_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_source_that_is_ready_is_called_once_per_event),
        cmocka_unit_test(a_source_wanting_nothing_gets_no_event_until_it_wants_again),
        cmocka_unit_test(a_source_removed_by_another_handler_in_the_same_round_gets_no_event),
        cmocka_unit_test(a_handler_may_remove_its_own_source_and_removing_twice_is_harmless),
        cmocka_unit_test(every_one_of_two_hundred_ready_sources_is_served),
        cmocka_unit_test(a_descriptor_that_cannot_be_polled_is_a_system_error),
        cmocka_unit_test(opening_and_closing_leaves_no_descriptor),
        cmocka_unit_test(a_timer_fires_once_and_never_early),
        cmocka_unit_test(a_timer_wakes_a_driver_that_sleeps),
        cmocka_unit_test(a_cancelled_timer_never_fires_and_cancelling_twice_is_harmless),
        cmocka_unit_test(a_timer_cancelled_by_another_in_the_same_round_does_not_fire),
        cmocka_unit_test(a_timer_may_set_itself_again),
        cmocka_unit_test(a_timer_set_anew_moves),
        cmocka_unit_test(timers_due_at_different_times_fire_when_due),
        cmocka_unit_test(tasks_of_four_threads_all_run_each_thread_s_in_order),
        cmocka_unit_test(a_task_wakes_a_driver_that_sleeps),
        cmocka_unit_test(running_the_tasks_runs_also_those_behind_an_interrupted_producer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
