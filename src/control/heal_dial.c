/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How one who is gone is replaced by another: connections of our own, to who is above us now, is to be below us, or around
 * one who stands still. Everybody heard of one address per host in the start. Of hosts above a rank may know others, too
 * (ways_hosts.c).
 */
#include "control/heal.h"

static weft_status_t connect_far(struct weft_control *control, uint32_t rank,
                                 enum weft_wire_purpose purpose, struct weft_net_dial *dial_p)
{
    const struct weft_wire_addr *table_addr =
        &control->table.group[control->table.group_of[rank]].addr;
    uint32_t way = purpose == WEFT_WIRE_HEAL ? control->heal->way : 0;
    struct sockaddr_storage addr;
    if (way > 0 && way <= weft_control_ways_count(control, rank)) {
        return weft_control_ways_connect(control, rank, way, dial_p);
    }
    weft_status_t status = weft_net_addr_from_wire(table_addr, &addr);
    return status == WEFT_OK ? weft_net_connect(&addr, dial_p) : status;
}

weft_status_t weft_heal_dial(struct weft_control *control, uint32_t rank,
                             enum weft_wire_purpose purpose, struct weft_net_conn **conn_p,
                             bool *is_refused_p)
{
    struct weft_net_dial dial;
    char name[WEFT_WIRE_NAME_LEN];
    weft_status_t status;
    *is_refused_p = false;
    if (weft_heal_is_near(control, rank)) {
        weft_heal_local_name(control, rank, name);
        status = weft_net_connect_local(name, weft_clock_ns(), &dial);
        *is_refused_p = status == WEFT_ERR_NETWORK && weft_heal_has_ended(control, rank);
    } else {
        status = connect_far(control, rank, purpose, &dial);
    }
    if (status != WEFT_OK) {
        return status;
    }
    dial.self = &control->self;
    dial.purpose = purpose;
    dial.ops = &weft_control_conn_ops;
    dial.owner = control;
    status = weft_net_conn_open(control->engine, &dial, conn_p);
    if (status == WEFT_OK) {
        (*conn_p)->tag = purpose == WEFT_WIRE_ASIDE  ? ROLE_ASIDE
                         : purpose == WEFT_WIRE_HEAL ? ROLE_HEALING
                                                     : ROLE_ADOPTING;
    } else {
        *conn_p = NULL;
    }
    return status;
}
