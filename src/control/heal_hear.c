/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who becomes coordinator hears the others out before it judges. The one before may have died while it told a
 * verdict: some have it, and have returned with it, others have not. Were it judged anew for the latter, there would be
 * two first verdicts. So reports wait until everybody who was not below us has come and has told what it knows (BELOW is
 * the end of that), is gone, or takes too long. What comes with a number is that verdict, and is passed on at once.
 *
 * The model in tests/model shows that survivors then have the same verdicts by the same numbers, when up to three of four
 * die and nobody takes too long. One who stands in for a stopped coordinator (aside.c) does not hear the others out: one
 * that is stopped while it tells a verdict may leave two.
 */
#include "control/heal.h"

#include <stdlib.h>

#define HEAR_MS 250 /* who has not come by then is stopped, cut off, or has never called anything */
#define LOOK_MS 10  /* has one of them died? */

void weft_heal_hear_close(struct weft_control_heal *heal)
{
    free(heal->is_awaited);
    heal->is_awaited = NULL;
    heal->hear_ns = 0;
}

bool weft_control_heal_is_hearing(const struct weft_control *control)
{
    return control->heal != NULL && control->heal->is_awaited != NULL;
}

void weft_heal_hear(struct weft_control_heal *heal)
{
    struct weft_control *control = heal->control;
    uint32_t count = 0;
    weft_heal_hear_close(heal);
    heal->is_awaited = calloc(control->self.ranks, 1);
    if (heal->is_awaited == NULL) {
        return; /* judged at once, and perhaps twice */
    }
    for (uint32_t rank = 0; rank < control->self.ranks; rank++) {
        const struct weft_net_conn *way = weft_control_way_to(control, rank);
        bool is_awaited = rank != control->self.rank && !control->is_out[rank] &&
                          (way == NULL || weft_control_is_telling(control, way));
        heal->is_awaited[rank] = is_awaited;
        count += is_awaited;
    }
    heal->awaited_count = count;
    heal->hear_until_ns = weft_clock_after_ms(HEAR_MS);
    heal->hear_ns = weft_clock_after_ms(LOOK_MS);
    if (count == 0) {
        weft_heal_hear_close(heal);
    }
}

static bool awaits(const struct weft_control_heal *heal, uint32_t rank)
{
    return heal->is_awaited != NULL && heal->is_awaited[rank];
}

static void forget(struct weft_control_heal *heal, uint32_t rank)
{
    if (awaits(heal, rank)) {
        heal->is_awaited[rank] = 0;
        heal->awaited_count--;
    }
}

static void check(struct weft_control_heal *heal, uint64_t now_ns)
{
    if (heal->awaited_count == 0 || now_ns >= heal->hear_until_ns) {
        weft_heal_hear_close(heal);
        weft_heal_report_again(heal, true);
    }
}

void weft_control_heal_told(struct weft_control *control, const uint8_t *ranks, size_t count)
{
    struct weft_control_heal *heal = control->heal;
    if (!weft_control_heal_is_hearing(control)) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        uint32_t rank = get32(ranks + 4 * i);
        if (rank < control->self.ranks) {
            forget(heal, rank);
        }
    }
    check(heal, weft_clock_ns());
}

/* Of this host nobody has to tell us that a process has ended (perhaps after it closed); of others whoever was above it
 * does. Who has a connection to us is seen to end there. */
static bool is_lost(struct weft_control *control, uint32_t rank)
{
    if (control->is_out[rank] || weft_control_heal_is_reported(control, rank)) {
        return true;
    }
    if (!weft_heal_is_near(control, rank) || weft_control_conn_to(control, rank) != NULL ||
        !weft_heal_has_ended(control, rank)) {
        return false;
    }
    weft_heal_absent(control, rank);
    return true;
}

void weft_heal_hear_due(struct weft_control_heal *heal, uint64_t now_ns)
{
    struct weft_control *control = heal->control;
    heal->hear_ns = now_ns + LOOK_MS * WEFT_NS_PER_MS;
    for (uint32_t rank = 0; rank < control->self.ranks; rank++) {
        if (awaits(heal, rank) && is_lost(control, rank)) {
            forget(heal, rank); /* its last words may have been the end of the hearing */
        }
    }
    if (weft_control_heal_is_hearing(control)) {
        check(heal, now_ns);
    }
}
