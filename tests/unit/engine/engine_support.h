/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests of engine: an engine to drive, and sources that count their events. */
#ifndef WEFT_TESTS_ENGINE_SUPPORT_H
#define WEFT_TESTS_ENGINE_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/internal.h"
#include "harness/harness.h"

#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define DEADLINE_MS 10000 /* never reached unless something is broken */
#define SOON_MS 1000      /* a wake-up that was lost would last until DEADLINE_MS */
#define LONG_MS 6         /* a wait that counts as long */
#define MANY_CPUS 64
#define ONE_CPU 1

/* A source on an eventfd; ready counts, empties it and sets the word that a driver waits for. */
struct bell {
    struct weft_engine_source source;
    struct weft_engine *engine;
    int fd;
    unsigned events;
    struct bell *to_remove; /* by the handler; NULL: nobody */
    _Atomic uint32_t *word;
};

static inline void bell_ready_count(struct weft_engine_source *source, uint32_t events)
{
    struct bell *bell = WEFT_CONTAINER_OF(source, struct bell, source);
    uint64_t rings;
    (void)events;
    bell->events++;
    if (read(bell->fd, &rings, sizeof(rings)) < 0) {
        bell->events += 1000; /* called without a reason: no test expects that many */
    }
    if (bell->to_remove != NULL) {
        weft_engine_remove(bell->engine, &bell->to_remove->source);
    }
    if (bell->word != NULL) {
        atomic_store(bell->word, 1);
        weft_engine_completed(bell->engine);
    }
}

static inline void bell_open(struct weft_engine *engine, struct bell *bell)
{
    memset(bell, 0, sizeof(*bell));
    bell->engine = engine;
    bell->source.ready = bell_ready_count;
    bell->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    assert_true(bell->fd >= 0);
    weft_engine_lock(engine);
    assert_int_equal(weft_engine_add(engine, &bell->source, bell->fd, EPOLLIN), WEFT_OK);
    weft_engine_unlock(engine);
}

static inline void bell_ring(struct bell *bell)
{
    const uint64_t one = 1;
    assert_int_equal(write(bell->fd, &one, sizeof(one)), sizeof(one));
}

static inline void bell_close(struct bell *bell)
{
    weft_engine_lock(bell->engine);
    weft_engine_remove(bell->engine, &bell->source);
    weft_engine_unlock(bell->engine);
    close(bell->fd);
}

static inline struct weft_engine *engine_new(unsigned cpus)
{
    struct weft_engine *engine = NULL;
    assert_int_equal(weft_engine_open(cpus, -1, &engine), WEFT_OK);
    weft_engine_set_load(engine, 1);
    return engine;
}

/* Drives for a while, whatever happens. */
static inline void drive(struct weft_engine *engine, unsigned ms)
{
    const _Atomic uint32_t never = 0;
    assert_int_equal(weft_engine_wait(engine, &never, weft_clock_after_ms(ms)), WEFT_ERR_TIMEOUT);
}

/* Memory that others write to: they ring when they are told that somebody sleeps, as the inbox of a rank
 * does. */
struct mail {
    struct weft_engine_poller poller;
    struct weft_engine *engine;
    _Atomic uint32_t is_here, is_armed, is_read;
};

static inline bool mail_poll(struct weft_engine_poller *poller)
{
    struct mail *mail = WEFT_CONTAINER_OF(poller, struct mail, poller);
    if (atomic_exchange(&mail->is_here, 0) == 0) {
        return false;
    }
    atomic_store(&mail->is_read, 1);
    weft_engine_completed(mail->engine);
    return true;
}

static inline bool mail_arm(struct weft_engine_poller *poller)
{
    struct mail *mail = WEFT_CONTAINER_OF(poller, struct mail, poller);
    atomic_store(&mail->is_armed, 1);
    return atomic_load(&mail->is_here) == 0;
}

static inline void mail_disarm(struct weft_engine_poller *poller)
{
    atomic_store(&WEFT_CONTAINER_OF(poller, struct mail, poller)->is_armed, 0);
}

static inline void mail_open(struct weft_engine *engine, struct mail *mail)
{
    memset(mail, 0, sizeof(*mail));
    mail->engine = engine;
    mail->poller.poll = mail_poll;
    mail->poller.arm = mail_arm;
    mail->poller.disarm = mail_disarm;
    weft_engine_lock(engine);
    weft_engine_poller_add(engine, &mail->poller);
    weft_engine_unlock(engine);
}

static inline void mail_send(struct mail *mail)
{
    atomic_store(&mail->is_here, 1);
    if (atomic_load(&mail->is_armed) != 0) {
        weft_engine_ring(mail->engine);
    }
}

static inline void mail_close(struct mail *mail)
{
    weft_engine_lock(mail->engine);
    weft_engine_poller_remove(mail->engine, &mail->poller);
    weft_engine_unlock(mail->engine);
}

/* A long copy that may be held up, and may lead to another. */
struct errand {
    struct weft_engine_work work;
    struct weft_engine *engine;
    const _Atomic uint32_t *may_end; /* NULL: at once */
    unsigned again;                  /* so often it is added again when done */
    struct errand *next;             /* added when done; NULL: none */
    struct mail *mail;               /* news for whoever polls, without a bell; NULL: none */
    _Atomic uint32_t begun, done;
};

static inline void errand_run(struct weft_engine_work *work)
{
    struct errand *errand = WEFT_CONTAINER_OF(work, struct errand, work);
    atomic_fetch_add(&errand->begun, 1);
    if (errand->may_end != NULL) {
        harness_wait_for(errand->may_end, 1, DEADLINE_MS);
    }
}

static inline void errand_done(struct weft_engine_work *work)
{
    struct errand *errand = WEFT_CONTAINER_OF(work, struct errand, work);
    if (errand->mail != NULL) {
        atomic_store(&errand->mail->is_here, 1);
    }
    if (errand->again > 0) {
        errand->again--;
        weft_engine_work_add(errand->engine, work);
    } else if (errand->next != NULL) {
        weft_engine_work_add(errand->engine, &errand->next->work);
    }
    atomic_fetch_add(&errand->done, 1);
}

static inline void errand_open(struct weft_engine *engine, struct errand *errand)
{
    memset(errand, 0, sizeof(*errand));
    errand->engine = engine;
    errand->work.run = errand_run;
    errand->work.done = errand_done;
}

/* A task that sets a word; optionally another one, too. */
struct word_task {
    struct weft_engine_task task;
    struct weft_engine *engine;
    _Atomic uint32_t *word, *second;
};

static inline void word_task_run(struct weft_engine_task *task)
{
    struct word_task *self = WEFT_CONTAINER_OF(task, struct word_task, task);
    struct weft_engine *engine = self->engine;
    _Atomic uint32_t *second = self->second;
    weft_engine_completed(engine);
    if (second != NULL) {
        atomic_store(second, 1);
    }
    atomic_store(self->word, 1); /* the owner may be gone from here on */
}

#endif
