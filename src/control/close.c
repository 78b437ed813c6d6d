/* SPDX-License-Identifier: Apache-2.0 */
/* A rank leaves in good order: its last words go to its neighbours and are known to be through. */
#include "control/internal.h"

#include <stdlib.h>

#define RESEND_MS 2000
#define OWED_MS 500
#define ASIDE_MS 500
#define ORPHANS_MS 400 /* orphans have found their next parent by then */

void weft_control_close_list(struct weft_list *list)
{
    while (!weft_list_is_empty(list)) {
        struct weft_net_conn *conn = WEFT_CONTAINER_OF(list->next, struct weft_net_conn, node);
        weft_list_remove(&conn->node);
        weft_net_conn_close(conn);
    }
}

/* Everything queued leaves, or half a second passes. */
static void flush(struct weft_control *control)
{
    uint64_t deadline_ns = weft_clock_after_ms(500);
    const _Atomic uint32_t never = 0;
    bool is_queued = true;
    while (is_queued && weft_clock_ns() < deadline_ns) {
        weft_engine_lock(control->engine);
        is_queued = control->parent != NULL && weft_net_conn_queued(control->parent) > 0;
        for (uint32_t i = 0; i < control->child_count; i++) {
            is_queued |= control->children[i].conn != NULL &&
                         weft_net_conn_queued(control->children[i].conn) > 0;
        }
        weft_engine_unlock(control->engine);
        if (is_queued) {
            weft_engine_wait(control->engine, &never, weft_clock_after_ms(1));
        }
    }
}

static void say_bye(struct weft_control *control)
{
    struct weft_wire_frame frame = {
        .type = WEFT_WIRE_BYE, .src = control->self.rank, .dst = WEFT_WIRE_NO_RANK};
    weft_engine_lock(control->engine);
    control->is_closing = true;
    weft_control_news_flush(control);
    if (control->parent != NULL) {
        weft_control_say(control->parent, &frame, NULL, 0);
    }
    weft_control_flood(control, &frame, NULL, 0);
    weft_engine_unlock(control->engine);
    flush(control);
}

/* Who leaves right after a verdict, as most programs do, may be the only one who knows it, and those who look for a parent
 * would judge anew: it waits until all others have it, as far as it hears (word.c). */
void weft_control_await_word(struct weft_control *control)
{
    uint64_t deadline_ns, since_ns;
    _Atomic uint32_t never = 0;
    bool is_expecting;
    weft_engine_lock(control->engine);
    since_ns = weft_control_heal_is_hearing(control) ? weft_clock_ns() : control->judged_ns;
    weft_engine_unlock(control->engine);
    deadline_ns = since_ns + ORPHANS_MS * WEFT_NS_PER_MS;
    is_expecting = since_ns != 0;
    while (is_expecting && weft_clock_ns() < deadline_ns) {
        weft_engine_lock(control->engine);
        weft_control_word_check(control); /* our children wait, too */
        /* who had it may be an orphan since, because those above have left for the same */
        is_expecting =
            weft_control_heal_is_hearing(control) || control->word_ns <= control->judged_ns;
        weft_engine_unlock(control->engine);
        if (is_expecting) {
            weft_engine_wait(control->engine, &never, weft_clock_after_ms(1));
        }
    }
}

/* Our parent may stand still. Then somebody else must know, for our process ends before it hears of it. */
static void await_aside(struct weft_control *control)
{
    /* who else is below the stopped one has found out by then */
    uint64_t deadline_ns =
        weft_clock_after_ms(ASIDE_MS) + 2 * weft_control_heart_overdue_ns(control);
    _Atomic uint32_t never = 0;
    bool has_left = false;
    while (!has_left && weft_clock_ns() < deadline_ns) {
        weft_engine_lock(control->engine);
        has_left = weft_control_aside_has_left(control);
        weft_engine_unlock(control->engine);
        if (!has_left) {
            weft_engine_wait(control->engine, &never, weft_clock_after_ms(5));
        }
    }
}

static bool is_resending(const struct weft_control *control)
{
    bool is = control->parent != NULL && weft_net_conn_is_resending(control->parent);
    for (uint32_t i = 0; i < control->child_count; i++) {
        const struct weft_net_conn *conn = control->children[i].conn;
        is |= conn != NULL && weft_net_conn_is_resending(conn);
    }
    return is;
}

/* Where paths may be replaced, our last words are kept until they are known to be through. */
static bool is_owed(const struct weft_control *control)
{
    bool is = control->parent != NULL && !control->is_gone[control->parent_rank] &&
              weft_control_mend_is_owed(control->parent);
    for (uint32_t i = 0; i < control->child_count; i++) {
        const struct weft_control_child *child = &control->children[i];
        is |= child->conn != NULL && !control->is_gone[child->rank] &&
              weft_control_mend_is_owed(child->conn);
    }
    return is;
}

/* A path is dead, or was, and our last words are not through yet. */
static void await_resent(struct weft_control *control)
{
    uint64_t owed_ns = weft_clock_after_ms(OWED_MS);
    uint64_t deadline_ns = weft_clock_after_ms(RESEND_MS);
    _Atomic uint32_t never = 0;
    bool is;
    do {
        weft_engine_lock(control->engine);
        is = is_resending(control) || weft_control_ways_is_seeking(control) ||
             (is_owed(control) && weft_clock_ns() < owed_ns);
        weft_engine_unlock(control->engine);
        if (is) {
            weft_engine_wait(control->engine, &never, weft_clock_after_ms(1));
        }
    } while (is && weft_clock_ns() < deadline_ns);
}

void weft_control_close(struct weft_control *control)
{
    if (control == NULL) {
        return;
    }
    if (!control->is_closing) {
        weft_control_await_word(control);
        await_aside(control);
        say_bye(control);
        await_resent(control);
    }
    weft_engine_lock(control->engine);
    weft_control_heart_close(control);
    weft_engine_timer_cancel(control->engine, &control->news);
    weft_net_conn_close(control->parent);
    for (uint32_t i = 0; i < control->child_count; i++) {
        weft_net_conn_close(control->children[i].conn);
    }
    weft_control_ways_close(control);
    weft_control_heal_close(control);
    weft_control_aside_close(control);
    weft_control_history_close(control);
    weft_control_shrinks_close(control);
    weft_control_close_list(&control->parting);
    weft_control_early_close(control);
    weft_control_calls_close(control);
    weft_engine_unlock(control->engine);
    weft_control_tree_close(&control->tree);
    weft_wire_table_close(&control->table);
    free(control->children);
    free(control->closed);
    free(control->is_gone);
    free(control->is_out);
    free(control->via);
    free(control);
}
