/* SPDX-License-Identifier: Apache-2.0 */
/* Virtual time for the simulation of the start: messages, in a heap by time and in inboxes. */
#ifndef WEFT_TESTS_SIM_QUEUE_H
#define WEFT_TESTS_SIM_QUEUE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define NOBODY UINT32_MAX

enum kind {
    STEP,      /* a process has time for its next thing */
    START,     /* the application calls */
    DIAL,      /* a connection request; arg: tries */
    CHALLENGE, /* server to client, TCP only */
    HELLO,     /* arg: is it an attach? */
    ACCEPTED,  /* a gatherer may send its members */
    FLUSH,     /* to oneself: what came in this round goes up */
    MEMBERS,   /* arg: how many records */
    ANSWER,    /* arg: for whom */
    TABLE,
    CLOSE, /* the other end of a first connection */
};

struct message {
    uint64_t at_ns;
    uint32_t next; /* in an inbox, or in the list of free ones */
    uint32_t from, to, arg;
    enum kind kind;
    bool is_attach;
};

static struct {
    struct message *pool;
    uint32_t pool_len, pool_room, free_first;
    uint32_t *heap;
    uint32_t heap_len, heap_room;
} queue;

static inline bool is_earlier(uint32_t a, uint32_t b)
{
    const struct message *left = &queue.pool[a], *right = &queue.pool[b];
    return left->at_ns < right->at_ns || (left->at_ns == right->at_ns && a < b);
}

static inline void heap_push(uint32_t message)
{
    uint32_t at = queue.heap_len++;
    if (queue.heap_len > queue.heap_room) {
        queue.heap_room = queue.heap_room == 0 ? 1 << 18 : queue.heap_room * 2;
        queue.heap = realloc(queue.heap, queue.heap_room * sizeof(*queue.heap));
        assert_non_null(queue.heap);
    }
    while (at > 0 && is_earlier(message, queue.heap[(at - 1) / 2])) {
        queue.heap[at] = queue.heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    queue.heap[at] = message;
}

static inline uint32_t heap_pop(void)
{
    uint32_t top = queue.heap[0], last = queue.heap[--queue.heap_len], at = 0;
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= queue.heap_len) {
            break;
        }
        if (child + 1 < queue.heap_len && is_earlier(queue.heap[child + 1], queue.heap[child])) {
            child++;
        }
        if (is_earlier(last, queue.heap[child])) {
            break;
        }
        queue.heap[at] = queue.heap[child];
        at = child;
    }
    queue.heap[at] = last;
    return top;
}

static inline void post(uint64_t at_ns, enum kind kind, uint32_t from, uint32_t to, uint32_t arg,
                        bool is_attach)
{
    uint32_t message = queue.free_first;
    if (message != NOBODY) {
        queue.free_first = queue.pool[message].next;
    } else {
        message = queue.pool_len++;
        if (queue.pool_len > queue.pool_room) {
            queue.pool_room = queue.pool_room == 0 ? 1 << 18 : queue.pool_room * 2;
            queue.pool = realloc(queue.pool, queue.pool_room * sizeof(*queue.pool));
            assert_non_null(queue.pool);
        }
    }
    queue.pool[message] = (struct message){.at_ns = at_ns,
                                           .next = NOBODY,
                                           .from = from,
                                           .to = to,
                                           .arg = arg,
                                           .kind = kind,
                                           .is_attach = is_attach};
    heap_push(message);
}

/* ---- inboxes ---- */

static inline void enqueue(uint32_t *first, uint32_t *last, uint32_t message)
{
    if (*first == NOBODY) {
        *first = message;
    } else {
        queue.pool[*last].next = message;
    }
    *last = message;
}

static struct message dequeue(uint32_t *first)
{
    uint32_t at = *first;
    struct message message = queue.pool[at];
    *first = message.next;
    queue.pool[at].next = queue.free_first;
    queue.free_first = at;
    return message;
}

static inline void queue_open(void)
{
    memset(&queue, 0, sizeof(queue));
    queue.free_first = NOBODY;
}

static inline void queue_close(void)
{
    free(queue.pool);
    free(queue.heap);
}

/* ---- small change ---- */

static inline uint64_t next_random(uint64_t *seed)
{
    uint64_t z = (*seed += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static inline void keep_most(uint32_t *most, uint32_t value)
{
    *most = value > *most ? value : *most;
}

#endif
