/* SPDX-License-Identifier: Apache-2.0 */
/* What the rooms that carry data hear from the control plane: calls for lanes, who is gone, which
 * communicator has ended. */
#include "control/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct early_call {
    struct weft_list node;
    uint32_t from;
    uint32_t len;
    uint8_t payload[];
};

void weft_control_call_arrived(struct weft_control *control, const struct weft_wire_frame *frame,
                               const uint8_t *payload)
{
    struct early_call *early;
    if (control->observer != NULL) {
        control->observer->called(control->observer, frame->src, payload, frame->len);
        return;
    }
    early = frame->len <= WEFT_WIRE_DIALLING_MAX ? malloc(sizeof(*early) + frame->len) : NULL;
    if (early == NULL) {
        weft_log(control, ERROR, "a call of rank %u for a lane is lost", frame->src);
        return;
    }
    early->from = frame->src;
    early->len = frame->len;
    memcpy(early->payload, payload, frame->len);
    weft_list_append(&control->early_calls, &early->node);
}

void weft_control_calls_close(struct weft_control *control)
{
    struct weft_list *node;
    while ((node = weft_list_take(&control->early_calls)) != NULL) {
        free(WEFT_CONTAINER_OF(node, struct early_call, node));
    }
}

void weft_control_observe(struct weft_control *control, struct weft_control_observer *observer)
{
    struct weft_list *node;
    weft_engine_lock(control->engine);
    control->observer = observer;
    while (observer != NULL && (node = weft_list_take(&control->early_calls)) != NULL) {
        struct early_call *early = WEFT_CONTAINER_OF(node, struct early_call, node);
        observer->called(observer, early->from, early->payload, early->len);
        free(early);
    }
    if (observer != NULL && control->start == NULL) {
        weft_control_ways_beat(control); /* a path may die before the first heartbeat */
    }
    weft_engine_unlock(control->engine);
}

bool weft_control_call(struct weft_control *control, uint32_t to, const void *payload, size_t len)
{
    struct weft_wire_frame frame = {.type = WEFT_WIRE_CALL, .src = control->self.rank, .dst = to};
    if (control->is_gone[to]) {
        return false;
    }
    (void)weft_control_route(control, &frame, payload, len); /* lost, if there is no way now */
    return true;
}

bool weft_control_is_gone(const struct weft_control *control, uint32_t rank)
{
    return control->is_gone[rank] != 0;
}

bool weft_control_is_ending(struct weft_control *control, uint32_t rank)
{
    char name[128], text[TEXT_LEN];
    if (weft_control_aside_is_leaving(control, rank) && control->observer != NULL) {
        weft_control_name_rank(control, rank, name, sizeof(name));
        snprintf(text, sizeof(text), "%s closed its communicator", name);
        control->observer->gone(control->observer, rank, WEFT_ERR_PEER, text);
        return true;
    }
    return weft_control_heal_is_reported(control, rank) || weft_control_heal_check(control, rank);
}

void weft_control_fail(struct weft_control *control, const struct weft_control_failure *failure,
                       bool is_final)
{
    struct weft_control_channel *channel = weft_control_channel_find(control, failure->channel);
    struct weft_wire_notice notice = {.status = failure->status, .rank = failure->rank};
    char name[128];
    if (channel == NULL) {
        return;
    }
    if (is_final) {
        weft_control_channel_end(channel, failure->status, failure->rank, failure->text);
        return;
    }
    if (failure->status == WEFT_ERR_NETWORK && weft_control_heal_check(control, failure->rank)) {
        return; /* who should have told us stands still, perhaps */
    }
    snprintf(notice.text, sizeof(notice.text), "%s", failure->text);
    if (failure->status == WEFT_ERR_NETWORK &&
        weft_control_aside_is_leaving(control, failure->rank)) {
        weft_control_name_rank(control, failure->rank, name, sizeof(name));
        notice.status = WEFT_ERR_PEER;
        snprintf(notice.text, sizeof(notice.text), "%s closed its communicator", name);
    }
    weft_control_report_own(control, failure->channel, &notice);
}
