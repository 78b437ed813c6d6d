/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An intrusive queue of many producers and one consumer: a chain from head (oldest) to tail
 * (newest). A producer swaps itself in as the tail, then links its predecessor to itself; between
 * the two steps the chain is torn and the consumer sees nothing behind the tear.
 *
 * The stub stands in the chain exactly while the queue is empty: the consumer takes the last node
 * by swapping the tail from it to the stub. Hence "tail is the stub" is the same as "empty" for
 * every thread, and a driver that announced its sleep, then finds the queue empty, cannot miss a
 * push: the swap in push and the load in is_empty are sequentially consistent, as the sleep word
 * around them must be.
 */
#include "base/base.h"

void weft_queue_open(struct weft_queue *queue)
{
    atomic_init(&queue->stub.next, NULL);
    atomic_init(&queue->tail, &queue->stub);
    queue->head = &queue->stub;
}

void weft_queue_push(struct weft_queue *queue, struct weft_queue_node *node)
{
    struct weft_queue_node *before;

    atomic_store_explicit(&node->next, NULL, memory_order_relaxed);
    before = atomic_exchange_explicit(&queue->tail, node, memory_order_seq_cst);
    atomic_store_explicit(&before->next, node, memory_order_release);
}

struct weft_queue_node *weft_queue_pop(struct weft_queue *queue)
{
    struct weft_queue_node *head = queue->head;
    struct weft_queue_node *next = atomic_load_explicit(&head->next, memory_order_acquire);
    struct weft_queue_node *expected;

    if (head == &queue->stub) {
        if (!next) {
            return NULL;
        }
        /* the stub leaves the chain: whoever linked it is done with it */
        queue->head = head = next;
        next = atomic_load_explicit(&head->next, memory_order_acquire);
    }
    if (next) {
        queue->head = next;
        return head;
    }

    atomic_store_explicit(&queue->stub.next, NULL, memory_order_relaxed);
    expected = head;
    if (!atomic_compare_exchange_strong_explicit(&queue->tail, &expected, &queue->stub,
                                                 memory_order_seq_cst, memory_order_relaxed)) {
        return NULL; /* a producer has swapped, and is about to link head to its node */
    }
    queue->head = &queue->stub;
    return head;
}
