/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Long copies: run without the lock by whoever drives, one after each of its rounds.
 *
 * Whoever sleeps has seen under the lock that none waits. So whoever adds one wakes a sleeper when it
 * lets go of the lock and the copy still waits: the one in epoll, or the background thread. It is not
 * enough that somebody drives just now, because that one may leave with its own word set.
 */
#include "engine/internal.h"

#include <sched.h>

#define ROUNDS_AFTER 64 /* a stream of short messages must not keep us */

void weft_engine_work_add(struct weft_engine *engine, struct weft_engine_work *work)
{
    weft_list_append(&engine->works, &work->node);
    engine->front.news |= WEFT_ENGINE_WORKS;
}

void weft_engine_announce_works(struct weft_engine *engine)
{
    if ((engine->front.news & WEFT_ENGINE_WORKS) != 0) {
        engine->front.news &= ~(uint32_t)WEFT_ENGINE_WORKS;
        if (!weft_list_is_empty(&engine->works) &&
            (atomic_load_explicit(&engine->asleep, memory_order_relaxed) != 0 ||
             atomic_load_explicit(&engine->armed, memory_order_relaxed) != 0)) {
            weft_engine_ring(engine);
        }
    }
}

bool weft_engine_work_run(struct weft_engine *engine)
{
    struct weft_list *node = weft_list_take(&engine->works);
    struct weft_engine_work *work;
    if (node == NULL) {
        return false;
    }
    work = WEFT_CONTAINER_OF(node, struct weft_engine_work, node);
    engine->works_running++;
    weft_engine_unlock(engine);
    work->run(work);
    weft_engine_lock(engine);
    engine->works_running--;
    work->done(work);
    return true;
}

bool weft_engine_work_follow(struct weft_engine *engine)
{
    if (!weft_engine_work_run(engine)) {
        return false;
    }
    for (int i = 0; i < ROUNDS_AFTER && weft_engine_quick_round(engine); i++) {
    }
    return true;
}

bool weft_engine_has_works(const struct weft_engine *engine)
{
    return !weft_list_is_empty(&engine->works) || engine->works_running > 0;
}

void weft_engine_work_flush(struct weft_engine *engine)
{
    while (weft_engine_has_works(engine)) { /* one that runs may lead to another */
        if (!weft_engine_work_run(engine)) {
            weft_engine_unlock(engine);
            sched_yield();
            weft_engine_lock(engine);
        }
    }
}
