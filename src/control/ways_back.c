/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parent's half of ways.c: where its children on other hosts may come again, and how it takes them back. At the same
 * doors whoever leads this host next is found by those who were told of them (ways_hosts.c).
 */
#include "control/heal.h"
#include "control/ways.h"

#include <string.h>

/* ---- doors ---- */

/* Best at the port that everybody heard of in the start: who leads this host next listens there, too, and is found. At the
 * address that everybody heard of we listen already; this is another port there. */
static weft_status_t listen_at(const struct weft_control *control,
                               const struct weft_control_nic *nic, bool is_for_heirs,
                               struct weft_control_door *door_p)
{
    const struct weft_wire_addr *main =
        &control->table.group[control->table.group_of[control->self.rank]].addr;
    struct sockaddr_storage here = nic->addr;
    struct weft_wire_addr addr;
    weft_status_t status = WEFT_ERR_UNSUPPORTED;
    weft_net_addr_to_wire(&here, &addr);
    if (main->port != 0 && nic->name[0] != '\0' &&
        memcmp(addr.bytes, main->bytes, sizeof(addr.bytes)) != 0) {
        weft_net_addr_set_port(&here, main->port);
        status = weft_control_door_open(&here, "", NULL, door_p);
    }
    if (status != WEFT_OK && !is_for_heirs) {
        status = weft_control_door_open(&nic->addr, control->params->text[WEFT_PARAM_PORT_RANGE],
                                        NULL, door_p);
    }
    return status;
}

static weft_status_t open_door(struct weft_control_ways *ways, uint32_t i, bool is_for_heirs)
{
    struct weft_control *control = ways->control;
    const struct weft_control_nic *nic = &ways->nics[i];
    struct weft_control_door door;
    weft_status_t status = listen_at(control, nic, is_for_heirs, &door);
    if (status == WEFT_OK) {
        status =
            weft_net_acceptor_open(control->engine, door.tcp, &control->self,
                                   (uint64_t)control->params->number[WEFT_PARAM_HANDSHAKE_TIMEOUT],
                                   &weft_control_conn_ops, control, &ways->doors[i]);
    }
    if (status != WEFT_OK) {
        ways->doors[i] = NULL;
        return status;
    }
    if (nic->name[0] != '\0') {
        weft_net_acceptor_keep_to(ways->doors[i], nic->name, nic->prefix_len);
    }
    ways->door_addrs[i] = door.addr;
    return WEFT_OK;
}

bool weft_control_ways_inherit(struct weft_control *control)
{
    struct weft_control_ways *ways = weft_ways_with_nics(control);
    bool is_done = true;
    for (uint32_t i = 0; ways != NULL && i < ways->nic_count; i++) {
        weft_status_t status = ways->doors[i] != NULL ? WEFT_OK : open_door(ways, i, true);
        is_done &= status == WEFT_OK || status == WEFT_ERR_UNSUPPORTED; /* it wants no door */
    }
    return is_done;
}

static void serve(struct weft_control_ways *ways)
{
    for (uint32_t i = 0; i < ways->nic_count; i++) {
        if (ways->doors[i] == NULL && open_door(ways, i, false) != WEFT_OK) {
            weft_log(control, INFO, "no way back over %s: %s", ways->nics[i].name,
                     weft_error_text());
        }
    }
}

void weft_ways_doors_close(struct weft_control_ways *ways)
{
    for (uint32_t i = 0; i < ways->nic_count; i++) {
        weft_net_acceptor_close(ways->doors[i]);
    }
}

/* ---- a child asks ---- */

static struct weft_control_child *find_child(struct weft_control *control, uint32_t rank)
{
    for (uint32_t i = 0; i < control->child_count; i++) {
        if (control->children[i].rank == rank) {
            return &control->children[i];
        }
    }
    return NULL;
}

static void answer(struct weft_control *control, struct weft_control_child *child)
{
    struct weft_control_ways *ways = weft_ways_with_nics(control);
    struct weft_wire_frame frame = {
        .type = WEFT_WIRE_WAYS, .src = control->self.rank, .dst = child->rank};
    uint8_t bytes[WEFT_CONTROL_NICS * WEFT_WIRE_ADDR_LEN];
    size_t len = 0;
    if (ways == NULL || child->conn == NULL || weft_heal_is_inheriting(control->heal)) {
        return; /* with the next beat */
    }
    child->mend->is_asking = false;
    if (ways->nic_count > 1 || child->mend->nics_there > 1) {
        serve(ways);
    }
    for (uint32_t i = 0; i < ways->nic_count; i++) {
        if (ways->doors[i] != NULL) {
            weft_wire_addr_encode(&ways->door_addrs[i], bytes + len);
            len += WEFT_WIRE_ADDR_LEN;
        }
    }
    if (weft_net_conn_send(child->conn, &frame, bytes, len) == WEFT_OK && len > 0) {
        child->mend->counts_out = true;
        return;
    }
    child->conn->edge = NULL;
    weft_control_mend_close(child->mend);
    child->mend = NULL;
}

/* Answered at once, or with the next beat: while we start there is nobody to ask for our NICs. */
void weft_ways_asked(struct weft_control *control, struct weft_net_conn *from, uint32_t nic_count)
{
    struct weft_control_child *child = find_child(control, from->peer_rank);
    if (child == NULL || child->mend != NULL) {
        return;
    }
    child->mend = weft_control_mend_open(control, child->rank);
    if (child->mend != NULL) {
        child->mend->counts_in = child->mend->is_asking = true;
        child->mend->nics_there = nic_count;
        from->edge = child->mend;
        answer(control, child);
    }
}

void weft_ways_answer_all(struct weft_control *control)
{
    for (uint32_t i = 0; i < control->child_count; i++) {
        if (control->children[i].mend != NULL && control->children[i].mend->is_asking) {
            answer(control, &control->children[i]);
        }
    }
}

/* ---- it comes back ---- */

/* It is the child's connection from now on. */
static void promote(struct weft_control *control, struct weft_control_child *child)
{
    struct weft_net_conn *conn = child->mend->returning;
    struct weft_net_conn *old = child->conn;
    char name[128];
    child->mend->returning = NULL;
    child->conn = conn;
    conn->tag = ROLE_CHILD;
    conn->is_beating = old->is_beating;
    weft_net_conn_persist(conn);
    weft_control_mend_move(child->mend, conn);
    old->edge = NULL;
    weft_net_conn_close(old);
    weft_control_name_rank(control, child->rank, name, sizeof(name));
    weft_log(control, INFO, "the control connection of %s comes from %s now", name,
             conn->peer_text);
}

void weft_control_ways_hello(struct weft_control *control, struct weft_net_conn *conn)
{
    const struct weft_wire_handshake *shake = weft_net_conn_hello(conn);
    struct weft_control_child *child = find_child(control, conn->peer_rank);
    uint32_t round = shake->payload_len == WEFT_WAYS_CALL_LEN ? get32(shake->payload) : 0;
    if (child == NULL || child->mend == NULL || !child->mend->counts_out || child->conn == NULL) {
        weft_net_conn_refuse(conn, WEFT_ERR_PROTOCOL, "nobody here waits for this rank");
        return;
    }
    if ((int32_t)(round - child->mend->round) <= 0) {
        weft_net_conn_refuse(conn, WEFT_ERR_DUPLICATE, "a call of this round or later was taken");
        return;
    }
    if (child->mend->returning != NULL && get32(shake->payload + 4) == child->mend->round) {
        promote(control, child); /* the child uses it, though its RESUME has not come */
    }
    child->mend->round = round;
    weft_net_conn_close(child->mend->returning);
    child->mend->returning = conn;
    conn->tag = ROLE_RETURNING;
    conn->edge = child->mend;
    weft_net_conn_watch(conn);
    weft_net_conn_accept(conn);
}

bool weft_control_ways_replace(struct weft_control *control, struct weft_net_conn *conn)
{
    struct weft_control_child *child = find_child(control, conn->peer_rank);
    if (child == NULL || child->conn != conn || child->mend == NULL ||
        child->mend->returning == NULL) {
        return false;
    }
    promote(control, child);
    return true;
}

void weft_control_ways_resumed(struct weft_control *control, struct weft_net_conn *conn,
                               const struct weft_wire_frame *frame)
{
    bool is_child = conn != control->parent;
    if (conn->tag == ROLE_RETURNING) {
        promote(control, find_child(control, conn->peer_rank));
    }
    if (is_child && conn->edge != NULL) {
        weft_control_mend_resume(conn);
    }
    if (!weft_control_mend_resumed(conn, frame->number)) {
        weft_control_neighbour_lost(control, conn, WEFT_ERR_PROTOCOL,
                                    "cannot say what has come by its former connection");
    }
}

void weft_control_ways_left(struct weft_net_conn *conn)
{
    struct weft_control_mend *mend = conn->edge;
    mend->returning = NULL;
    weft_net_conn_close(conn);
}

void weft_ways_forget_child(struct weft_control *control, uint32_t rank)
{
    struct weft_control_child *child = find_child(control, rank);
    if (child != NULL) {
        weft_control_mend_close(child->mend);
        child->mend = NULL;
    }
}
