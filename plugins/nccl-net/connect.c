/* SPDX-License-Identifier: Apache-2.0 */
/*
 * connect, and every lane that is dialled: the first one makes the connection at the other end, others join it.
 */
#include "nccl.h"

#include <errno.h>
#include <string.h>

/* ---- dialling ---- */

static void client_opened(struct weft_net_conn *conn)
{
    struct weft_nccl_lane *lane = conn->owner;
    uint8_t keys[2][WEFT_WIRE_KEY_LEN];
    int fd;
    if (lane->comm->peer_text[0] == '\0') {
        memcpy(lane->comm->peer_text, conn->peer_text, sizeof(conn->peer_text));
    }
    fd = weft_net_conn_detach(conn, keys[0], keys[1]);
    weft_secret_wipe(keys, sizeof(keys));
    if (fd < 0) {
        return; /* lost comes */
    }
    lane->conn = NULL;
    weft_nccl_lane_begin(lane, fd);
    weft_nccl_heal_up(lane);
}

static void client_lost(struct weft_net_conn *conn, weft_status_t status, const char *why)
{
    struct weft_nccl_lane *lane = conn->owner;
    /* Only the listener itself can say that it has closed. Whoever else answers has its port, or it is in need. */
    enum weft_nccl_answer answer =
        conn->is_proved && status == WEFT_ERR_PEER ? WEFT_NCCL_CLOSED
        : conn->is_proved                          ? WEFT_NCCL_BUSY
        : conn->is_refused || status == WEFT_ERR_PEER || conn->error == ECONNREFUSED
            ? WEFT_NCCL_NOBODY
            : WEFT_NCCL_SILENT;
    weft_nccl_say(NCCL_LOG_TRACE, "lane %u did not come up: %s", lane->id, why);
    lane->conn = NULL;
    weft_net_conn_close(conn);
    weft_nccl_lane_drop(lane);
    weft_nccl_heal_lost(lane, answer);
}

static const struct weft_net_conn_ops client_ops = {.hello = weft_nccl_never,
                                                    .opened = client_opened,
                                                    .frame = weft_nccl_never_frame,
                                                    .lost = client_lost};

static void greet(struct weft_nccl_comm *comm, struct weft_nccl_lane *lane,
                  struct weft_nccl_greeting *greeting_p)
{
    *greeting_p = (struct weft_nccl_greeting){
        .comm = comm->id, .is_first = !atomic_load(&comm->is_up), .slot = lane->slot};
    memcpy(greeting_p->token, comm->handle->token, WEFT_NCCL_TOKEN_LEN);
    pthread_mutex_lock(&comm->lock);
    for (uint32_t i = 0; i < atomic_load(&comm->lane_count); i++) {
        if (comm->lanes[i] != lane && comm->lanes[i]->state != WEFT_NCCL_LANE_DEAD) {
            greeting_p->alive[greeting_p->count++] = comm->lanes[i]->id;
        }
    }
    lane->id = greeting_p->id = comm->next_id++;
    pthread_mutex_unlock(&comm->lock);
}

weft_status_t weft_nccl_call(const struct weft_nccl_call *call,
                             const struct weft_nccl_greeting *greeting,
                             struct weft_net_conn **conn_p)
{
    const struct weft_nccl_nic *nic = &weft_nccl_core.devices.nics[call->pair->nic];
    uint8_t payload[WEFT_NCCL_GREETING_MAX];
    struct sockaddr_storage addr;
    struct weft_net_dial dial;
    weft_status_t status = weft_net_addr_from_wire(&call->handle->addrs[call->pair->there], &addr);
    if (status == WEFT_OK) {
        status = weft_nccl_core.devices.nic_count > 1
                     ? weft_net_connect_from(&nic->addr, nic->name, &addr, &dial)
                     : weft_net_connect(&addr, &dial);
    }
    if (status != WEFT_OK) {
        return status;
    }
    dial.self = call->self;
    dial.purpose = WEFT_WIRE_LANE;
    dial.lane = (uint16_t)greeting->id; /* only said: the greeting counts */
    dial.payload = payload;
    dial.payload_len = weft_nccl_greeting_encode(greeting, payload);
    dial.ops = call->ops;
    dial.owner = call->owner;
    status = weft_net_conn_open(weft_nccl_core.engine, &dial, conn_p);
    weft_secret_wipe(payload, sizeof(payload));
    return status;
}

weft_status_t weft_nccl_dial(struct weft_nccl_comm *comm, uint16_t slot, uint32_t pair)
{
    struct weft_nccl_lane *lane = weft_nccl_lane_new(comm);
    struct weft_nccl_call call = {.handle = comm->handle,
                                  .pair = &comm->pairs[pair],
                                  .self = &comm->self,
                                  .ops = &client_ops,
                                  .owner = lane};
    struct weft_nccl_greeting greeting;
    weft_status_t status;
    if (lane == NULL) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory for a lane");
    }
    if (comm->next_id == UINT32_MAX) {
        weft_nccl_lane_drop(lane);
        return weft_fail(WEFT_ERR_NETWORK, "there are no more ids for lanes");
    }
    lane->slot = slot;
    lane->nic = comm->pairs[pair].nic;
    lane->there = comm->pairs[pair].there;
    lane->dialled_ns = weft_clock_ns();
    greet(comm, lane, &greeting);
    status = weft_nccl_call(&call, &greeting, &lane->conn);
    weft_secret_wipe(&greeting, sizeof(greeting));
    if (status != WEFT_OK) {
        weft_nccl_lane_drop(lane);
    }
    return status;
}

/* ---- connecting ---- */

/* Which of our NICs with which of the peer's: those that share a network, each with another one where several do; if
 * none does, in turn. */
static void pair_nics(struct weft_nccl_comm *comm)
{
    const struct weft_nccl_device *device = comm->device;
    uint32_t uses[WEFT_NCCL_ADDRS] = {0};
    for (uint32_t i = 0; i < device->count; i++) {
        const struct weft_nccl_nic *nic = &weft_nccl_core.devices.nics[device->nics[i]];
        uint32_t best = WEFT_NCCL_ADDRS;
        for (uint32_t j = 0; j < comm->handle->count; j++) {
            struct sockaddr_storage there;
            if (weft_net_addr_from_wire(&comm->handle->addrs[j], &there) == WEFT_OK &&
                weft_net_addr_is_same_net(&nic->addr, &there, nic->prefix_len) &&
                (best == WEFT_NCCL_ADDRS || uses[j] < uses[best])) {
                best = j;
            }
        }
        if (best < WEFT_NCCL_ADDRS) {
            uses[best]++;
            comm->pairs[comm->pair_count++] =
                (struct weft_nccl_pair){.nic = device->nics[i], .there = (uint8_t)best};
        }
    }
    for (uint32_t i = 0; comm->pair_count == 0 && i < device->count && comm->handle->count > 0;
         i++) {
        comm->pairs[i] = (struct weft_nccl_pair){.nic = device->nics[i],
                                                 .there = (uint8_t)(i % comm->handle->count)};
    }
    comm->pair_count = comm->pair_count > 0 ? comm->pair_count : device->count;
}

static uint32_t count_slots(const struct weft_nccl_comm *comm)
{
    int64_t lanes = weft_nccl_core.params.number[WEFT_PARAM_LANES];
    uint32_t count = lanes > 0 ? (uint32_t)lanes * comm->pair_count
                     : comm->pair_count > weft_nccl_core.helper_count + 1
                         ? comm->pair_count
                         : weft_nccl_core.helper_count + 1;
    return count < WEFT_NCCL_LANES / 2 ? count : WEFT_NCCL_LANES / 2; /* the rest: for new ones */
}

static weft_status_t connect_new(const void *context, const struct weft_nccl_device *device,
                                 struct weft_nccl_handle *handle, struct weft_nccl_comm **comm_p)
{
    struct weft_nccl_comm *comm = weft_nccl_comm_new(true, device);
    weft_status_t status;
    if (comm == NULL) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory for a connection");
    }
    status = weft_random(&comm->id, sizeof(comm->id));
    status = status == WEFT_OK ? weft_random(&comm->ticket, sizeof(comm->ticket)) : status;
    comm->ticket |= 1; /* not 0 */
    comm->context = context;
    *comm->handle = *handle;
    comm->self = (struct weft_wire_self){
        .key = comm->handle->key, .is_authenticated = true, .rank = 1, .ranks = 2};
    weft_nccl_core_job(comm->handle->key, comm->self.job);
    comm->deadline_ns =
        weft_clock_after_ms((uint64_t)weft_nccl_core.params.number[WEFT_PARAM_START_TIMEOUT]);
    weft_engine_lock(weft_nccl_core.engine);
    pair_nics(comm);
    comm->slot_count = count_slots(comm);
    weft_list_append(&weft_nccl_core.comms, &comm->node);
    weft_nccl_tend(comm, weft_clock_ns());
    weft_engine_unlock(weft_nccl_core.engine);
    if (status != WEFT_OK) {
        weft_nccl_comm_free(comm);
        return status;
    }
    *comm_p = comm;
    return WEFT_OK;
}

static struct weft_nccl_comm *find_ticket(uint64_t ticket)
{
    struct weft_list *all = &weft_nccl_core.comms;
    struct weft_nccl_comm *found = NULL;
    weft_engine_lock(weft_nccl_core.engine);
    for (struct weft_list *node = all->next; node != all; node = node->next) {
        struct weft_nccl_comm *comm = WEFT_CONTAINER_OF(node, struct weft_nccl_comm, node);
        found = comm->is_sender && comm->ticket == ticket ? comm : found;
    }
    weft_engine_unlock(weft_nccl_core.engine);
    return found;
}

/* Until it is up, the connection is ours, and the handle says which one it is: NCCL gives us the same bytes again. */
int weft_nccl_connect(const void *context, int device, void *handle, void **comm_p)
{
    const struct weft_nccl_device *own = weft_nccl_device(device);
    struct weft_nccl_handle parts;
    struct weft_nccl_comm *comm = NULL;
    weft_status_t status;
    int result;
    *comm_p = NULL;
    if (own == NULL) {
        return NCCL_INVALID_ARGUMENT;
    }
    status = weft_nccl_handle_decode(handle, &parts);
    status = status == WEFT_OK ? weft_nccl_core_take() : status;
    if (status != WEFT_OK) {
        return weft_nccl_result(status);
    }
    comm = parts.ticket != 0 ? find_ticket(parts.ticket) : NULL;
    if (comm != NULL) {
        weft_nccl_core_give(); /* it was counted when it was made */
    } else {
        status = connect_new(context, own, &parts, &comm);
        if (status == WEFT_OK) {
            parts.ticket = comm->ticket;
            weft_nccl_handle_encode(&parts, handle);
        }
    }
    weft_secret_wipe(&parts, sizeof(parts));
    if (status != WEFT_OK) {
        weft_nccl_core_give();
        return weft_nccl_result(status);
    }
    weft_engine_poll(weft_nccl_core.engine);
    result = atomic_load(&comm->result);
    if (result != NCCL_SUCCESS) {
        weft_nccl_close(comm);
    } else if (atomic_load(&comm->is_up)) {
        weft_engine_lock(weft_nccl_core.engine);
        comm->ticket = 0; /* the same handle again is another connection */
        weft_engine_unlock(weft_nccl_core.engine);
        *comm_p = comm;
    }
    return result;
}

static struct weft_nccl_comm *find_unfinished(const void *context)
{
    struct weft_list *all = &weft_nccl_core.comms;
    struct weft_nccl_comm *found = NULL;
    weft_engine_lock(weft_nccl_core.engine);
    for (struct weft_list *node = all->next; node != all; node = node->next) {
        struct weft_nccl_comm *comm = WEFT_CONTAINER_OF(node, struct weft_nccl_comm, node);
        found = comm->is_sender && comm->ticket != 0 && comm->context == context ? comm : found;
    }
    weft_engine_unlock(weft_nccl_core.engine);
    return found;
}

void weft_nccl_connect_end(const void *context)
{
    struct weft_nccl_comm *comm;
    if (weft_nccl_core_take_open()) {
        while ((comm = find_unfinished(context)) != NULL) {
            weft_nccl_close(comm);
        }
        weft_nccl_core_give();
    }
}
