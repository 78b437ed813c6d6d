/* SPDX-License-Identifier: Apache-2.0 */
/* Whose groups there are on a communicator, and that closing it ends those of all threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "p2p/internal.h"

#include <pthread.h>
#include <semaphore.h>
#include <time.h>

#define DEADLINE_S 10

static struct weft_p2p_comm comm; /* of it only the groups are looked at */

/* A thread that does one thing after the other. */
struct other {
    pthread_t thread;
    sem_t go, done;
    weft_status_t (*act)(struct weft_p2p_comm *comm); /* NULL: it ends */
    weft_status_t status;
    bool has_group;
};

static bool await(sem_t *sem)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += DEADLINE_S;
    return sem_timedwait(sem, &until) == 0;
}

static void *run(void *arg)
{
    struct other *other = arg;
    while (await(&other->go) && other->act != NULL) {
        other->status = other->act(&comm);
        other->has_group = weft_p2p_group_is_open(&comm);
        sem_post(&other->done);
    }
    return NULL;
}

static void other_open(struct other *other)
{
    sem_init(&other->go, 0, 0);
    sem_init(&other->done, 0, 0);
    assert_int_equal(pthread_create(&other->thread, NULL, run, other), 0);
}

static void other_does(struct other *other, weft_status_t (*act)(struct weft_p2p_comm *comm))
{
    other->act = act;
    sem_post(&other->go);
    assert_true(await(&other->done));
}

static void other_close(struct other *other)
{
    other->act = NULL;
    sem_post(&other->go);
    pthread_join(other->thread, NULL);
    sem_destroy(&other->go);
    sem_destroy(&other->done);
}

static weft_status_t look(struct weft_p2p_comm *at)
{
    (void)at;
    return WEFT_OK;
}

static void each_thread_has_its_own(void **state)
{
    struct other other;
    (void)state;
    other_open(&other);
    other_does(&other, weft_p2p_group_begin);
    assert_true(other.has_group);
    assert_false(weft_p2p_group_is_open(&comm));
    assert_int_equal(weft_p2p_group_end(&comm), WEFT_ERR_INVALID);
    assert_int_equal(weft_p2p_group_begin(&comm), WEFT_OK);
    other_does(&other, weft_p2p_group_end); /* not the first in the list */
    assert_int_equal(other.status, WEFT_OK);
    assert_false(other.has_group);
    assert_true(weft_p2p_group_is_open(&comm));
    assert_int_equal(weft_p2p_group_end(&comm), WEFT_OK);
    assert_false(weft_p2p_group_is_open(&comm));
    other_close(&other);
}

/* A new communicator may lie where the old one lay: nobody has a group on it. */
static void closing_ends_the_groups_of_all_threads(void **state)
{
    struct other other;
    (void)state;
    other_open(&other);
    other_does(&other, weft_p2p_group_begin);
    assert_int_equal(weft_p2p_group_begin(&comm), WEFT_OK);
    weft_p2p_groups_forget(&comm);
    other_does(&other, look);
    assert_false(other.has_group);
    assert_false(weft_p2p_group_is_open(&comm));
    other_does(&other, weft_p2p_group_end);
    assert_int_equal(other.status, WEFT_ERR_INVALID);
    other_close(&other);
}

static void groups_nest(void **state)
{
    (void)state;
    assert_int_equal(weft_p2p_group_begin(&comm), WEFT_OK);
    assert_int_equal(weft_p2p_group_begin(&comm), WEFT_OK);
    assert_int_equal(weft_p2p_group_end(&comm), WEFT_OK);
    assert_true(weft_p2p_group_is_open(&comm));
    assert_int_equal(weft_p2p_group_end(&comm), WEFT_OK);
    assert_false(weft_p2p_group_is_open(&comm));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_thread_has_its_own),
        cmocka_unit_test(closing_ends_the_groups_of_all_threads),
        cmocka_unit_test(groups_nest),
    };
    weft_log_configure("off");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
