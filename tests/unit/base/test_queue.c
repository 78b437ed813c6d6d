/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"

#include "capture.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#define PRODUCERS 4U
#define EACH 20000U
#define DEADLINE_MS 30000

struct item {
    struct weft_queue_node node;
    unsigned producer, number;
};

static struct item *item_of(struct weft_queue_node *node)
{
    return WEFT_CONTAINER_OF(node, struct item, node);
}

static void an_empty_queue_gives_nothing(void **state)
{
    struct weft_queue queue;

    (void)state;
    weft_queue_open(&queue);
    assert_true(weft_queue_is_empty(&queue));
    assert_null(weft_queue_pop(&queue));
    assert_null(weft_queue_pop(&queue));
    assert_true(weft_queue_is_empty(&queue));
}

static void nodes_come_in_the_order_of_pushes(void **state)
{
    struct weft_queue queue;
    struct item items[5];

    (void)state;
    weft_queue_open(&queue);
    for (unsigned i = 0; i < 5; i++) {
        weft_queue_push(&queue, &items[i].node);
        assert_false(weft_queue_is_empty(&queue));
    }
    for (unsigned i = 0; i < 5; i++) {
        assert_false(weft_queue_is_empty(&queue));
        assert_ptr_equal(weft_queue_pop(&queue), &items[i].node);
    }
    assert_true(weft_queue_is_empty(&queue));
    assert_null(weft_queue_pop(&queue));
}

static void a_popped_node_may_be_pushed_at_once(void **state)
{
    struct weft_queue queue;
    struct item item;

    (void)state;
    weft_queue_open(&queue);
    for (unsigned i = 0; i < 100; i++) {
        weft_queue_push(&queue, &item.node);
        assert_ptr_equal(weft_queue_pop(&queue), &item.node);
        memset(&item, 0xff, sizeof(item)); /* the queue keeps no hold on it */
        assert_true(weft_queue_is_empty(&queue));
    }
}

/* The two steps of a push, taken apart. */
static void a_torn_push_hides_its_node_until_it_is_linked(void **state)
{
    struct weft_queue queue;
    struct item first, second;
    struct weft_queue_node *before;

    (void)state;
    weft_queue_open(&queue);
    weft_queue_push(&queue, &first.node);
    atomic_store(&second.node.next, NULL);
    before = atomic_exchange(&queue.tail, &second.node);
    assert_null(weft_queue_pop(&queue));
    assert_false(weft_queue_is_empty(&queue));
    atomic_store(&before->next, &second.node);
    assert_ptr_equal(weft_queue_pop(&queue), &first.node);
    assert_ptr_equal(weft_queue_pop(&queue), &second.node);
    assert_true(weft_queue_is_empty(&queue));
}

struct producer {
    struct weft_queue *queue;
    struct item *items;
    unsigned number;
};

static void *produce(void *context)
{
    struct producer *producer = context;

    for (unsigned i = 0; i < EACH; i++) {
        producer->items[i].producer = producer->number;
        producer->items[i].number = i;
        weft_queue_push(producer->queue, &producer->items[i].node);
    }
    return NULL;
}

static void many_producers_lose_nothing_and_keep_their_order(void **state)
{
    struct weft_queue queue;
    struct producer producers[PRODUCERS];
    pthread_t threads[PRODUCERS];
    unsigned next[PRODUCERS] = {0};
    uint64_t deadline = weft_clock_after_ms(DEADLINE_MS);

    (void)state;
    weft_queue_open(&queue);
    for (unsigned i = 0; i < PRODUCERS; i++) {
        producers[i] = (struct producer){&queue, calloc(EACH, sizeof(struct item)), i};
        assert_non_null(producers[i].items);
        assert_int_equal(pthread_create(&threads[i], NULL, produce, &producers[i]), 0);
    }
    for (unsigned got = 0; got < PRODUCERS * EACH;) {
        struct weft_queue_node *node = weft_queue_pop(&queue);

        if (node) {
            struct item *item = item_of(node);

            assert_int_equal(item->number, next[item->producer]);
            next[item->producer]++;
            got++;
        } else {
            assert_true(weft_clock_ns() < deadline);
            sched_yield();
        }
    }
    assert_true(weft_queue_is_empty(&queue));
    assert_null(weft_queue_pop(&queue));
    for (unsigned i = 0; i < PRODUCERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        free(producers[i].items);
    }
}

struct meeting {
    struct weft_queue queue;
    _Atomic unsigned pushed, popped;
};

#define MEETINGS 20000U

static void *push_one_at_a_time(void *context)
{
    struct meeting *meeting = context;
    static struct item items[2];

    for (unsigned i = 0; i < MEETINGS; i++) {
        weft_queue_push(&meeting->queue, &items[i % 2].node);
        atomic_store(&meeting->pushed, i + 1);
        while (atomic_load(&meeting->popped) < i) {
            sched_yield();
        }
    }
    return NULL;
}

/* What a driver relies on before it sleeps: a push that has returned is never taken for none. */
static void a_pushed_node_never_looks_like_an_empty_queue(void **state)
{
    struct meeting meeting;
    pthread_t thread;
    uint64_t deadline = weft_clock_after_ms(DEADLINE_MS);

    (void)state;
    atomic_init(&meeting.pushed, 0);
    atomic_init(&meeting.popped, 0);
    weft_queue_open(&meeting.queue);
    assert_int_equal(pthread_create(&thread, NULL, push_one_at_a_time, &meeting), 0);
    for (unsigned got = 0; got < MEETINGS;) {
        if (atomic_load(&meeting.pushed) > got) {
            assert_false(weft_queue_is_empty(&meeting.queue));
        }
        if (weft_queue_pop(&meeting.queue)) {
            atomic_store(&meeting.popped, ++got);
        } else {
            assert_true(weft_clock_ns() < deadline);
            sched_yield();
        }
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void a_list_keeps_order_and_forgives_a_second_removal(void **state)
{
    struct weft_list list, a, b;

    (void)state;
    weft_list_open(&list);
    assert_true(weft_list_is_empty(&list));
    weft_list_append(&list, &a);
    weft_list_append(&list, &b);
    assert_ptr_equal(list.next, &a);
    assert_ptr_equal(list.next->next, &b);
    assert_ptr_equal(list.prev, &b);
    weft_list_remove(&a);
    weft_list_remove(&a);
    assert_ptr_equal(list.next, &b);
    weft_list_remove(&b);
    assert_true(weft_list_is_empty(&list));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_queue_gives_nothing),
        cmocka_unit_test(nodes_come_in_the_order_of_pushes),
        cmocka_unit_test(a_popped_node_may_be_pushed_at_once),
        cmocka_unit_test(a_torn_push_hides_its_node_until_it_is_linked),
        cmocka_unit_test(many_producers_lose_nothing_and_keep_their_order),
        cmocka_unit_test(a_pushed_node_never_looks_like_an_empty_queue),
        cmocka_unit_test(a_list_keeps_order_and_forgives_a_second_removal),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
