/* SPDX-License-Identifier: Apache-2.0 */
/*
 * listen, accept, and those who come. All listeners of a process share one port per NIC: who comes proves the process's
 * key (net does that; strangers get no further) and then the listener's token. The first lane of a connection makes
 * it; others name it and join.
 */
#include "nccl.h"

#include <stdlib.h>
#include <string.h>

/* ---- listening ---- */

static bool has_port(const struct weft_nccl_device *device)
{
    bool is_any = false;
    for (uint32_t i = 0; i < device->count; i++) {
        is_any |= weft_nccl_core.acceptors[device->nics[i]] != NULL;
    }
    return is_any;
}

int weft_nccl_listen(int device, void *handle, void **listener_p)
{
    const struct weft_nccl_device *own = weft_nccl_device(device);
    struct weft_nccl_listener *listener;
    struct weft_nccl_handle parts = {0};
    weft_status_t status;
    if (own == NULL) {
        return NCCL_INVALID_ARGUMENT;
    }
    status = weft_nccl_core_take();
    if (status != WEFT_OK) {
        return weft_nccl_result(status);
    }
    listener = calloc(1, sizeof(*listener));
    status = !has_port(own) ? weft_fail(WEFT_ERR_NETWORK, "%s: no NIC of it can be used", own->name)
             : listener != NULL ? weft_random(listener->token, sizeof(listener->token))
                                : weft_fail(WEFT_ERR_MEMORY, "no memory for a listener");
    if (status != WEFT_OK) {
        free(listener);
        weft_nccl_core_give();
        return weft_nccl_result(status);
    }
    listener->device = own;
    listener->process = weft_nccl_core.process;
    weft_list_open(&listener->pending);
    memcpy(parts.key, weft_nccl_core.key, sizeof(parts.key));
    memcpy(parts.token, listener->token, sizeof(parts.token));
    for (uint32_t i = 0; i < own->count; i++) {
        if (weft_nccl_core.acceptors[own->nics[i]] != NULL) {
            parts.addrs[parts.count++] = weft_nccl_core.addrs[own->nics[i]];
        }
    }
    weft_nccl_handle_encode(&parts, handle);
    weft_secret_wipe(&parts, sizeof(parts));
    weft_engine_lock(weft_nccl_core.engine);
    weft_list_append(&weft_nccl_core.listeners, &listener->node);
    weft_engine_unlock(weft_nccl_core.engine);
    *listener_p = listener;
    return NCCL_SUCCESS;
}

int weft_nccl_close_listen(void *handle)
{
    struct weft_nccl_listener *listener = handle;
    struct weft_list orphans;
    struct weft_list *node;
    if (listener == NULL) {
        return NCCL_SUCCESS;
    }
    if (weft_nccl_is_foreign(listener->process)) {
        return NCCL_SYSTEM_ERROR;
    }
    weft_engine_lock(weft_nccl_core.engine);
    weft_list_remove(&listener->node);
    weft_list_move(&listener->pending, &orphans);
    weft_engine_unlock(weft_nccl_core.engine);
    while ((node = weft_list_take(&orphans)) != NULL) { /* nobody will accept them */
        weft_nccl_comm_free(WEFT_CONTAINER_OF(node, struct weft_nccl_comm, pending));
    }
    weft_secret_wipe(listener->token, sizeof(listener->token));
    free(listener);
    weft_nccl_core_give();
    return NCCL_SUCCESS;
}

int weft_nccl_accept(void *handle, void **comm_p)
{
    struct weft_nccl_listener *listener = handle;
    struct weft_list *node;
    *comm_p = NULL;
    if (weft_nccl_is_foreign(listener->process)) {
        return NCCL_SYSTEM_ERROR;
    }
    weft_engine_poll(weft_nccl_core.engine);
    weft_engine_lock(weft_nccl_core.engine);
    node = weft_list_take(&listener->pending);
    weft_engine_unlock(weft_nccl_core.engine);
    if (node != NULL) {
        weft_status_t status = weft_nccl_core_take(); /* open already: this only counts */
        if (status != WEFT_OK) {
            return weft_nccl_result(status);
        }
        *comm_p = WEFT_CONTAINER_OF(node, struct weft_nccl_comm, pending);
    }
    return NCCL_SUCCESS;
}

/* ---- those who come ---- */

static struct weft_nccl_listener *find_listener(const uint8_t token[WEFT_NCCL_TOKEN_LEN])
{
    struct weft_list *all = &weft_nccl_core.listeners;
    for (struct weft_list *node = all->next; node != all; node = node->next) {
        struct weft_nccl_listener *listener =
            WEFT_CONTAINER_OF(node, struct weft_nccl_listener, node);
        if (weft_wire_is_equal(listener->token, token, WEFT_NCCL_TOKEN_LEN)) {
            return listener;
        }
    }
    return NULL;
}

static struct weft_nccl_comm *find_comm(const struct weft_nccl_greeting *greeting)
{
    struct weft_list *all = &weft_nccl_core.comms;
    for (struct weft_list *node = all->next; node != all; node = node->next) {
        struct weft_nccl_comm *comm = WEFT_CONTAINER_OF(node, struct weft_nccl_comm, node);
        if (!comm->is_sender && comm->id == greeting->comm &&
            weft_wire_is_equal(comm->token, greeting->token, WEFT_NCCL_TOKEN_LEN)) {
            return comm;
        }
    }
    return NULL;
}

static struct weft_nccl_comm *new_comm(const struct weft_nccl_greeting *greeting)
{
    struct weft_nccl_listener *listener = find_listener(greeting->token);
    struct weft_nccl_comm *comm =
        listener != NULL ? weft_nccl_comm_new(false, listener->device) : NULL;
    if (comm != NULL) {
        comm->id = greeting->comm;
        memcpy(comm->token, greeting->token, sizeof(comm->token));
        weft_list_append(&weft_nccl_core.comms, &comm->node);
        weft_list_append(&listener->pending, &comm->pending);
    }
    return comm;
}

/* What the sender has given up is given up here before the first byte of a later lane is read: what it carried may
 * come again. */
static void bury(struct weft_nccl_comm *comm, const struct weft_nccl_greeting *greeting)
{
    for (uint32_t i = 0; i < atomic_load(&comm->lane_count); i++) {
        struct weft_nccl_lane *lane = comm->lanes[i];
        bool is_alive = lane->id >= greeting->id || (weft_nccl_comm_up(comm) >> i & 1) == 0;
        for (uint32_t j = 0; j < greeting->count; j++) {
            is_alive |= greeting->alive[j] == lane->id;
        }
        if (!is_alive) {
            weft_nccl_lane_stop(lane);
            weft_nccl_count(WEFT_NCCL_COUNT_LANES_LOST, 1);
        }
    }
}

static uint8_t nic_of(const struct weft_net_conn *conn)
{
    struct sockaddr_storage here;
    socklen_t len = sizeof(here);
    const struct weft_nccl_devices *devices = &weft_nccl_core.devices;
    for (uint8_t i = 0; getsockname(conn->source.fd, (struct sockaddr *)&here, &len) == 0 &&
                        i < devices->nic_count;
         i++) {
        if (weft_topo_is_same_addr(&devices->nics[i].addr, &here)) {
            return i;
        }
    }
    return 0;
}

static void join(struct weft_net_conn *conn, struct weft_nccl_comm *comm,
                 const struct weft_nccl_greeting *greeting)
{
    uint8_t keys[2][WEFT_WIRE_KEY_LEN];
    struct weft_nccl_lane *lane;
    int fd;
    bury(comm, greeting);
    lane = weft_nccl_lane_new(comm);
    if (lane == NULL) {
        weft_net_conn_refuse(conn, WEFT_ERR_MEMORY, "no memory for a lane");
        return;
    }
    lane->id = greeting->id;
    lane->slot = greeting->slot;
    lane->nic = nic_of(conn);
    if (comm->peer_text[0] == '\0') {
        memcpy(comm->peer_text, conn->peer_text, sizeof(comm->peer_text));
    }
    weft_net_conn_accept(conn);
    fd = weft_net_conn_detach(conn, keys[0], keys[1]);
    weft_secret_wipe(keys, sizeof(keys));
    if (fd < 0) {
        weft_nccl_lane_drop(lane); /* `lost` closes the connection */
        return;
    }
    weft_nccl_lane_begin(lane, fd);
    weft_nccl_heal_up(lane);
}

static void server_hello(struct weft_net_conn *conn)
{
    const struct weft_wire_handshake *hello = weft_net_conn_hello(conn);
    struct weft_nccl_greeting greeting;
    struct weft_nccl_comm *comm;
    if (conn->purpose != WEFT_WIRE_LANE ||
        weft_nccl_greeting_decode(hello->payload, hello->payload_len, &greeting) != WEFT_OK) {
        weft_net_conn_refuse(conn, WEFT_ERR_PROTOCOL, "only lanes of NCCL are served here");
        return;
    }
    comm = find_comm(&greeting);
    if (greeting.is_last) {
        if (comm != NULL) {
            weft_nccl_recv_left(comm);
        }
        weft_net_conn_refuse(conn, WEFT_ERR_PEER, "farewell");
        return;
    }
    comm = comm == NULL && greeting.is_first ? new_comm(&greeting) : comm;
    if (comm == NULL || atomic_load(&comm->result) != NCCL_SUCCESS) {
        weft_net_conn_refuse(conn, WEFT_ERR_PEER,
                             comm == NULL ? "the receiver has closed" : "the receiver has failed");
        return;
    }
    join(conn, comm, &greeting);
}

static void server_lost(struct weft_net_conn *conn, weft_status_t status, const char *why)
{
    weft_log(net, DEBUG, "%s: %s: %s", conn->peer_text, weft_status_name(status), why);
    weft_net_conn_close(conn);
}

/* Calls that cannot come: a client has no hello, a server is never opened, frames are read by lanes. */
void weft_nccl_never(struct weft_net_conn *conn)
{
    (void)conn;
    assert(false);
}

void weft_nccl_never_frame(struct weft_net_conn *conn, const struct weft_wire_frame *frame,
                           const uint8_t *payload)
{
    (void)frame;
    (void)payload;
    weft_nccl_never(conn);
}

const struct weft_net_conn_ops weft_nccl_server_ops = {.hello = server_hello,
                                                       .opened = weft_nccl_never,
                                                       .frame = weft_nccl_never_frame,
                                                       .lost = server_lost};
