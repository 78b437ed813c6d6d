/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When the network falls apart, each part has somebody on top who would judge the others. Only more than half of those
 * who may live are the job (at exactly half: the part with the lowest rank); the others say that they cannot reach
 * them, and their words have no number.
 */
#include "control/heal.h"

#define PART_MS 10 /* many reports may ask at once */

/* Are our words acknowledged there? A rank that stands still is no rank that is cut off. */
static bool is_answered(struct weft_control *control, struct weft_net_conn *conn)
{
    uint64_t path_ms = (uint64_t)control->params->number[WEFT_PARAM_PATH_TIMEOUT];
    return !weft_net_conn_is_path_dead(conn, path_ms / 2);
}

/* Those of one host are never in two parts. */
static bool is_reached(struct weft_control *control, uint32_t rank)
{
    const struct weft_net_conn *way =
        control->is_out[rank] ? NULL : weft_control_way_to(control, rank);
    return weft_heal_is_near(control, rank) || (way != NULL && way->is_answered);
}

bool weft_control_is_majority(uint32_t count, uint32_t of, bool has_lowest)
{
    return 2 * count > of || (2 * count == of && has_lowest);
}

static bool has_majority(struct weft_control *control)
{
    uint32_t reached = 0, maybe_alive = 0;
    bool has_lowest = false;
    for (uint32_t i = 0; i < control->child_count; i++) {
        struct weft_net_conn *conn = control->children[i].conn;
        if (conn != NULL) {
            conn->is_answered = is_answered(control, conn);
        }
    }
    for (uint32_t rank = 0; rank < control->self.ranks; rank++) {
        uint8_t how = control->is_gone[rank];
        bool is = how == 0 && is_reached(control, rank);
        if (how == 0 || how == WEFT_GONE_UNREACHED) {
            has_lowest = maybe_alive == 0 ? is : has_lowest;
            maybe_alive++;
            reached += is;
        }
    }
    return weft_control_is_majority(reached, maybe_alive, has_lowest);
}

/* Those who lost their way to us may be about to find it. */
enum weft_control_part weft_control_part_of(struct weft_control *control)
{
    struct weft_control_heal *heal = control->heal;
    uint64_t now_ns = weft_clock_ns();
    if (heal == NULL) {
        return WEFT_PART_MOST; /* there was no memory for it: a tree that is not mended is of one part */
    }
    if (now_ns < heal->part_ns + PART_MS * WEFT_NS_PER_MS) {
        return heal->part;
    }
    heal->part_ns = now_ns;
    heal->part = WEFT_PART_MOST;
    if (has_majority(control)) {
        heal->few_ns = 0;
    } else {
        heal->few_ns = heal->few_ns == 0 ? now_ns : heal->few_ns;
        heal->part =
            now_ns - heal->few_ns < HOST_MS * WEFT_NS_PER_MS ? WEFT_PART_UNKNOWN : WEFT_PART_FEW;
    }
    return heal->part;
}
