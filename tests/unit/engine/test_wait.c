/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting: one drives, the others sleep, nobody sleeps through its own completion. */
#include "engine_support.h"

static void a_word_that_is_set_already_returns_at_once(void **state)
{
    struct weft_engine *engine = engine_new(MANY_CPUS);
    const _Atomic uint32_t word = 7;
    (void)state;
    assert_int_equal(weft_engine_wait(engine, &word, 0), WEFT_OK);
    weft_engine_close(engine);
}

static void the_deadline_ends_a_wait_and_is_not_early(void **state)
{
    static const unsigned loads[] = {1, 100}; /* spinning, sleeping */
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(loads); i++) {
        struct weft_engine *engine = engine_new(ONE_CPU);
        const _Atomic uint32_t word = 0;
        uint64_t deadline_ns = weft_clock_after_ms(20), end_ns;
        weft_engine_set_load(engine, loads[i]);
        assert_int_equal(weft_engine_wait(engine, &word, deadline_ns), WEFT_ERR_TIMEOUT);
        end_ns = weft_clock_ns();
        assert_true(end_ns >= deadline_ns);
        assert_true(end_ns < deadline_ns + SOON_MS * WEFT_NS_PER_MS);
        weft_engine_close(engine);
    }
}

/* One poll round before it gives up: what is there already counts. */
static void a_deadline_in_the_past_still_takes_what_is_ready(void **state)
{
    struct weft_engine *engine = engine_new(MANY_CPUS);
    _Atomic uint32_t word = 0;
    struct bell bell;
    (void)state;
    bell_open(engine, &bell);
    bell.word = &word;
    bell_ring(&bell);
    assert_int_equal(weft_engine_wait(engine, &word, 1), WEFT_OK);
    bell_close(&bell);
    weft_engine_close(engine);
}

static void ranks_that_fit_on_the_cpus_do_not_sleep_at_once_and_crowds_do(void **state)
{
    struct weft_engine *engine = engine_new(4);
    (void)state;
    weft_engine_set_load(engine, 4);
    assert_true(atomic_load(&engine->spin_ns) > 0);
    weft_engine_set_load(engine, 5);
    assert_int_equal(atomic_load(&engine->spin_ns), 0);
    assert_true(atomic_load(&engine->yield_ns) > 0);
    weft_engine_set_load(engine, 100);
    assert_int_equal(atomic_load(&engine->yield_ns), 0);
    weft_engine_close(engine);
    assert_int_equal(weft_engine_open(4, 250, &engine), WEFT_OK);
    weft_engine_set_load(engine, 100); /* the setting wins over the load */
    assert_int_equal(atomic_load(&engine->spin_ns), 250000);
    weft_engine_close(engine);
}

/* ---- several threads on one engine ---- */

enum { WAITERS = 4, ROUNDS = 40 };

struct waiter {
    struct weft_engine *engine;
    _Atomic uint32_t word[ROUNDS];
    uint64_t done_ns[ROUNDS];
    weft_status_t status;
    _Atomic uint32_t round; /* which word it waits for now */
    pthread_t thread;
};

static void *wait_for_each(void *arg)
{
    struct waiter *waiter = arg;
    for (uint32_t i = 0; i < ROUNDS && waiter->status == WEFT_OK; i++) {
        waiter->status =
            weft_engine_wait(waiter->engine, &waiter->word[i], weft_clock_after_ms(DEADLINE_MS));
        waiter->done_ns[i] = weft_clock_ns();
        atomic_store(&waiter->round, i + 1);
    }
    return NULL;
}

static bool has_round(const struct waiter *waiter, uint32_t round)
{
    return harness_wait_reach(&waiter->round, round, DEADLINE_MS);
}

/* Words are set in an order that has nothing to do with who drives. */
static void four_threads_on_one_engine_each_hear_of_their_own_word_soon(void **state)
{
    struct weft_engine *engine = engine_new(ONE_CPU);
    static struct waiter waiters[WAITERS];
    (void)state;
    weft_engine_set_load(engine, 100);
    memset(waiters, 0, sizeof(waiters));
    for (int i = 0; i < WAITERS; i++) {
        waiters[i].engine = engine;
        assert_int_equal(pthread_create(&waiters[i].thread, NULL, wait_for_each, &waiters[i]), 0);
    }
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t k = 0; k < WAITERS; k++) {
            struct waiter *waiter = &waiters[(k + round) % WAITERS];
            struct word_task task = {
                .task = {.run = word_task_run}, .engine = engine, .word = &waiter->word[round]};
            uint64_t begin_ns = weft_clock_ns();
            weft_engine_post(engine, &task.task);
            assert_true(has_round(waiter, round + 1));
            assert_true(waiter->done_ns[round] - begin_ns < SOON_MS * WEFT_NS_PER_MS);
        }
    }
    for (int i = 0; i < WAITERS; i++) {
        pthread_join(waiters[i].thread, NULL);
        assert_int_equal(waiters[i].status, WEFT_OK);
    }
    weft_engine_close(engine);
}

static bool is_asleep(void *arg)
{
    struct weft_engine *engine = arg;
    return atomic_load(&engine->asleep) != 0 && atomic_load(&engine->waiters) >= WAITERS - 1;
}

/* The one in epoll leaves; one of those on the futex must take its place, or events go unseen. */
static void a_driver_that_leaves_passes_the_turn(void **state)
{
    struct weft_engine *engine = engine_new(ONE_CPU);
    static struct waiter waiters[WAITERS];
    struct bell bells[WAITERS];
    (void)state;
    weft_engine_set_load(engine, 100);
    memset(waiters, 0, sizeof(waiters));
    for (int i = 0; i < WAITERS; i++) {
        bell_open(engine, &bells[i]);
        bells[i].word = &waiters[i].word[0];
        for (int k = 1; k < ROUNDS; k++) {
            waiters[i].word[k] = 1;
        }
        waiters[i].engine = engine;
        assert_int_equal(pthread_create(&waiters[i].thread, NULL, wait_for_each, &waiters[i]), 0);
    }
    assert_true(harness_wait_until(is_asleep, engine, DEADLINE_MS));
    for (int i = 0; i < WAITERS; i++) { /* each leaves with its bell, also the one who drives */
        uint64_t begin_ns = weft_clock_ns();
        bell_ring(&bells[i]);
        assert_true(has_round(&waiters[i], 1));
        assert_true(waiters[i].done_ns[0] - begin_ns < SOON_MS * WEFT_NS_PER_MS);
    }
    for (int i = 0; i < WAITERS; i++) {
        pthread_join(waiters[i].thread, NULL);
        assert_int_equal(waiters[i].status, WEFT_OK);
        bell_close(&bells[i]);
    }
    weft_engine_close(engine);
}

/* ---- two threads: one in epoll, one behind it ---- */

static bool is_one_asleep(void *arg)
{
    return atomic_load(&((struct weft_engine *)arg)->asleep) != 0;
}

struct leaver {
    struct weft_engine *engine;
    uint64_t deadline_ns;
};

static void *wait_in_vain(void *arg)
{
    const struct leaver *leaver = arg;
    const _Atomic uint32_t never = 0;
    weft_engine_wait(leaver->engine, &never, leaver->deadline_ns);
    return NULL;
}

static bool is_one_behind(void *arg)
{
    return atomic_load(&((struct weft_engine *)arg)->waiters) != 0;
}

/* It leaves by its deadline, nothing completes: the one behind it must take over in epoll, and not
 * only when its own nap of a second is over. */
static void a_driver_that_gives_up_passes_the_turn_too(void **state)
{
    struct weft_engine *engine = engine_new(ONE_CPU);
    struct leaver leaver = {.engine = engine, .deadline_ns = weft_clock_after_ms(60)};
    static struct waiter waiter;
    struct bell bell;
    pthread_t thread;
    uint64_t begin_ns;
    (void)state;
    weft_engine_set_load(engine, 100);
    memset(&waiter, 0, sizeof(waiter));
    bell_open(engine, &bell);
    bell.word = &waiter.word[0];
    for (int k = 1; k < ROUNDS; k++) {
        waiter.word[k] = 1;
    }
    waiter.engine = engine;
    assert_int_equal(pthread_create(&thread, NULL, wait_in_vain, &leaver), 0);
    assert_true(harness_wait_until(is_one_asleep, engine, DEADLINE_MS));
    assert_int_equal(pthread_create(&waiter.thread, NULL, wait_for_each, &waiter), 0);
    harness_wait_until(is_one_behind, engine, 50); /* at the latest when the first one leaves */
    pthread_join(thread, NULL);
    begin_ns = weft_clock_ns();
    bell_ring(&bell);
    pthread_join(waiter.thread, NULL);
    assert_int_equal(waiter.status, WEFT_OK);
    assert_true(waiter.done_ns[0] - begin_ns < 700 * WEFT_NS_PER_MS);
    bell_close(&bell);
    weft_engine_close(engine);
}

/* A round of another thread completes the call of the thread that sleeps in epoll, and eats the
 * event that would have woken it: an abort from a second thread looks like this. */
static void a_sleeper_hears_that_another_thread_s_round_completed_its_word(void **state)
{
    struct weft_engine *engine = engine_new(ONE_CPU);
    (void)state;
    weft_engine_set_load(engine, 100);
    for (int i = 0; i < 50; i++) {
        static struct waiter sleeper;
        _Atomic uint32_t mine = 0;
        struct word_task task = {.task = {.run = word_task_run},
                                 .engine = engine,
                                 .word = &mine,
                                 .second = &sleeper.word[0]};
        uint64_t begin_ns;
        memset(&sleeper, 0, sizeof(sleeper));
        for (int k = 1; k < ROUNDS; k++) {
            sleeper.word[k] = 1;
        }
        sleeper.engine = engine;
        assert_int_equal(pthread_create(&sleeper.thread, NULL, wait_for_each, &sleeper), 0);
        assert_true(harness_wait_until(is_one_asleep, engine, DEADLINE_MS));
        begin_ns = weft_clock_ns();
        weft_engine_post(engine, &task.task);
        assert_int_equal(weft_engine_wait(engine, &mine, weft_clock_after_ms(DEADLINE_MS)),
                         WEFT_OK);
        pthread_join(sleeper.thread, NULL);
        assert_int_equal(sleeper.status, WEFT_OK);
        assert_true(sleeper.done_ns[0] - begin_ns < SOON_MS * WEFT_NS_PER_MS);
    }
    weft_engine_close(engine);
}

/* As a timeout or an abort does it: under the lock, but in nobody's round. */
static void a_word_completed_outside_a_round_wakes_the_sleeper_at_once(void **state)
{
    struct weft_engine *engine = engine_new(ONE_CPU);
    (void)state;
    weft_engine_set_load(engine, 100);
    for (int i = 0; i < 20; i++) {
        static struct waiter sleeper;
        uint64_t begin_ns;
        memset(&sleeper, 0, sizeof(sleeper));
        for (int k = 1; k < ROUNDS; k++) {
            sleeper.word[k] = 1;
        }
        sleeper.engine = engine;
        assert_int_equal(pthread_create(&sleeper.thread, NULL, wait_for_each, &sleeper), 0);
        assert_true(harness_wait_until(is_one_asleep, engine, DEADLINE_MS));
        begin_ns = weft_clock_ns();
        weft_engine_lock(engine);
        atomic_store(&sleeper.word[0], 1);
        weft_engine_completed(engine);
        weft_engine_unlock(engine);
        pthread_join(sleeper.thread, NULL);
        assert_int_equal(sleeper.status, WEFT_OK);
        assert_true(sleeper.done_ns[0] - begin_ns < SOON_MS * WEFT_NS_PER_MS);
    }
    weft_engine_close(engine);
}

struct deadline {
    struct weft_engine_timer timer;
    struct weft_engine *engine;
    _Atomic uint32_t *word;
};

static void deadline_fired(struct weft_engine_timer *timer, uint64_t now_ns)
{
    struct deadline *deadline = WEFT_CONTAINER_OF(timer, struct deadline, timer);
    (void)now_ns;
    atomic_store(deadline->word, 1);
    weft_engine_completed(deadline->engine);
}

/* A second thread gives a request a nearer deadline. */
static void a_nearer_timer_set_by_another_thread_wakes_the_sleeper_in_time(void **state)
{
    struct weft_engine *engine = engine_new(ONE_CPU);
    struct deadline far = {.engine = engine};
    _Atomic uint32_t never = 0;
    (void)state;
    weft_engine_set_load(engine, 100);
    far.word = &never;
    weft_engine_timer_open(&far.timer, deadline_fired);
    weft_engine_timer_set(engine, &far.timer, weft_clock_after_ms(UINT64_C(10) * DEADLINE_MS));
    for (int i = 0; i < 10; i++) {
        static struct waiter sleeper;
        struct deadline near = {.engine = engine, .word = &sleeper.word[0]};
        uint64_t begin_ns;
        memset(&sleeper, 0, sizeof(sleeper));
        for (int k = 1; k < ROUNDS; k++) {
            sleeper.word[k] = 1;
        }
        sleeper.engine = engine;
        weft_engine_timer_open(&near.timer, deadline_fired);
        assert_int_equal(pthread_create(&sleeper.thread, NULL, wait_for_each, &sleeper), 0);
        assert_true(harness_wait_until(is_one_asleep, engine, DEADLINE_MS));
        begin_ns = weft_clock_ns();
        weft_engine_lock(engine);
        weft_engine_timer_set(engine, &near.timer, weft_clock_after_ms(2));
        weft_engine_unlock(engine);
        pthread_join(sleeper.thread, NULL);
        assert_int_equal(sleeper.status, WEFT_OK);
        assert_true(sleeper.done_ns[0] - begin_ns < SOON_MS * WEFT_NS_PER_MS);
    }
    weft_engine_close(engine);
}

/* ---- a stream: what is waited for is always there already ---- */

static void note_fired(struct weft_engine_timer *timer, uint64_t now_ns)
{
    (void)now_ns;
    timer->at_ns = 0; /* has fired */
}

struct stream {
    struct weft_engine *engine;
    struct weft_engine_timer timer;
    struct bell bell;
    struct mail mail;
};

static void stream_open(struct stream *stream)
{
    stream->engine = engine_new(MANY_CPUS);
    mail_open(stream->engine, &stream->mail);
    drive(stream->engine, 1); /* whatever was due is over */
    bell_open(stream->engine, &stream->bell);
    weft_engine_timer_open(&stream->timer, note_fired);
}

static void stream_call(struct stream *stream)
{
    weft_engine_lock(stream->engine);
    weft_engine_timer_set(stream->engine, &stream->timer, 1);
    weft_engine_unlock(stream->engine);
    bell_ring(&stream->bell);
}

static bool stream_has_looked_up(struct stream *stream)
{
    bool has_looked;
    weft_engine_lock(stream->engine);
    has_looked = stream->bell.events == 1 && stream->timer.at_ns == 0;
    weft_engine_unlock(stream->engine);
    return has_looked;
}

static void stream_close(struct stream *stream)
{
    bell_close(&stream->bell);
    mail_close(&stream->mail);
    weft_engine_close(stream->engine);
}

/* The next one, by the short way if may_look. */
static void stream_next(struct stream *stream, bool may_look)
{
    const _Atomic uint32_t here = 1;
    bool is_seen = false;
    if (may_look) {
        weft_engine_lock(stream->engine);
        is_seen = weft_engine_look(stream->engine, &here, 1);
        weft_engine_unlock(stream->engine);
    }
    if (!is_seen) {
        atomic_store(&stream->mail.is_read, 0);
        atomic_store(&stream->mail.is_here, 1);
        assert_int_equal(weft_engine_wait(stream->engine, &stream->mail.is_read,
                                          weft_clock_after_ms(DEADLINE_MS)),
                         WEFT_OK);
    }
}

/* Heartbeats, verdicts and deadlines come by timers and descriptors. */
static void a_stream_of_quick_waits_serves_timers_and_descriptors_now_and_then(void **state)
{
    (void)state;
    for (int may_look = 0; may_look <= 1; may_look++) {
        struct stream stream;
        unsigned count = 0;
        stream_open(&stream);
        stream_call(&stream);
        while (!stream_has_looked_up(&stream)) {
            stream_next(&stream, may_look);
            assert_true(++count < 2 * WEFT_ENGINE_FULL_EVERY);
        }
        assert_true(count > 10); /* or the quick way is not quick */
        stream_close(&stream);
    }
}

/* Too slow for a count, too fast for the background thread to believe that nobody drives. */
static void a_slow_stream_serves_them_before_it_has_counted_so_far(void **state)
{
    enum { CALLED = 20, COUNT = CALLED + WEFT_ENGINE_FULL_EVERY / 4 };
    struct stream stream;
    unsigned count = 0;
    (void)state;
    stream_open(&stream);
    assert_int_equal(weft_background_join(stream.engine), WEFT_OK);
    while (!stream_has_looked_up(&stream)) {
        uint64_t next_ns = weft_clock_ns() + UINT64_C(500000);
        stream_next(&stream, true);
        assert_true(++count < COUNT);
        if (count == CALLED) {
            stream_call(&stream);
        }
        while (weft_clock_ns() < next_ns) {
        }
    }
    weft_background_leave(stream.engine);
    stream_close(&stream);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_word_that_is_set_already_returns_at_once),
        cmocka_unit_test(the_deadline_ends_a_wait_and_is_not_early),
        cmocka_unit_test(a_deadline_in_the_past_still_takes_what_is_ready),
        cmocka_unit_test(ranks_that_fit_on_the_cpus_do_not_sleep_at_once_and_crowds_do),
        cmocka_unit_test(four_threads_on_one_engine_each_hear_of_their_own_word_soon),
        cmocka_unit_test(a_driver_that_leaves_passes_the_turn),
        cmocka_unit_test(a_driver_that_gives_up_passes_the_turn_too),
        cmocka_unit_test(a_sleeper_hears_that_another_thread_s_round_completed_its_word),
        cmocka_unit_test(a_word_completed_outside_a_round_wakes_the_sleeper_at_once),
        cmocka_unit_test(a_nearer_timer_set_by_another_thread_wakes_the_sleeper_in_time),
        cmocka_unit_test(a_stream_of_quick_waits_serves_timers_and_descriptors_now_and_then),
        cmocka_unit_test(a_slow_stream_serves_them_before_it_has_counted_so_far),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
