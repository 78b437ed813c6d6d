/* SPDX-License-Identifier: Apache-2.0 */
/* How a link gets its lanes: ports opened when first needed, calls over the control plane, the dial, and
 * the other way when one does not work. */
#include "link/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_local(const struct weft_links *links, uint32_t rank)
{
    for (uint32_t i = 0; i < links->spec.port.local_count; i++) {
        if (links->spec.port.local_ranks[i] == rank) {
            return true;
        }
    }
    return false;
}

static bool open_shm(struct weft_links *links)
{
    if (links->shm == NULL && !links->is_shm_broken &&
        weft_lane_shm.port_open(&links->spec.port, &links->shm) != WEFT_OK) {
        links->is_shm_broken = true;
        weft_log(link, WARN, "no shared memory here%s: %s",
                 links->spec.has_tcp ? ", tcp instead" : "", weft_error_text());
    }
    return links->shm != NULL;
}

static void carrier_ready(struct weft_engine_source *source, uint32_t events)
{
    struct weft_links *links = WEFT_CONTAINER_OF(source, struct weft_links, carrier);
    struct weft_topo_carrier news[16];
    unsigned count = weft_topo_carrier_read(source->fd, news, WEFT_COUNT_OF(news));
    (void)events;
    for (unsigned i = 0; i < count; i++) {
        weft_links_carrier(links, news[i].name, news[i].is_up);
    }
}

/* Without it a dead NIC is noticed later, by its silence. */
static void watch_carriers(struct weft_links *links)
{
    int fd;
    links->carrier.ready = carrier_ready;
    if (weft_topo_carrier_open(&fd) != WEFT_OK) {
        weft_log(link, INFO, "no news of NICs: %s", weft_error_text());
    } else if (weft_engine_add(links->spec.port.engine, &links->carrier, fd, EPOLLIN) != WEFT_OK) {
        weft_fd_close(fd);
    }
}

static bool open_tcp(struct weft_links *links)
{
    const struct weft_links_spec *spec = &links->spec;
    uint32_t count = 0;
    if (links->tcp_count > 0) {
        return true;
    }
    if (spec->choose_nics(spec->nics_context, links->nics, &count) != WEFT_OK) {
        weft_log(link, WARN, "no tcp here: %s", weft_error_text());
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct weft_lane_port_spec port = spec->port;
        struct weft_link_nic *nic = &links->nics[links->tcp_count];
        *nic = links->nics[i]; /* first to where it stays: the port keeps what it is told */
        port.addr = &nic->addr;
        port.nic = nic->name;
        port.prefix_len = nic->prefix_len;
        if (links->tcp_ops->port_open(&port, &links->tcp[links->tcp_count]) != WEFT_OK) {
            weft_log(link, WARN, "no tcp over %s: %s", nic->name, weft_error_text());
            continue;
        }
        links->tcp_count++;
    }
    if (links->tcp_count > 0) {
        weft_engine_set_costly(spec->port.engine);
    }
    if (links->tcp_count > 1) {
        watch_carriers(links);
    }
    return links->tcp_count > 0;
}

void weft_link_fail(struct weft_link *link, weft_status_t status, const char *text)
{
    link->state = WEFT_LINK_DOWN;
    link->status = status;
    snprintf(link->text, sizeof(link->text), "%s", text);
}

static bool send_call(struct weft_link *link, const struct weft_wire_dialling *call)
{
    const struct weft_links_spec *spec = &link->links->spec;
    uint8_t bytes[WEFT_WIRE_DIALLING_MAX];
    size_t len = weft_wire_dialling_encode(call, bytes);
    if (!spec->call(spec->context, link->peer, bytes, len)) {
        weft_link_fail(link, WEFT_ERR_NETWORK, "the control plane does not reach it any more");
        return false;
    }
    link->state = WEFT_LINK_CALLING;
    return true;
}

/* The one who found no way tells the other, who may wait for it. The link has failed already. */
void weft_link_give_up(struct weft_link *link)
{
    const struct weft_wire_dialling no = {.kind = WEFT_DIALLING_NO};
    uint8_t bytes[WEFT_WIRE_DIALLING_MAX];
    size_t len = weft_wire_dialling_encode(&no, bytes);
    link->links->spec.call(link->links->spec.context, link->peer, bytes, len);
}

/* The lower rank says where it listens. */
static void say_here(struct weft_link *link, bool wants_tcp)
{
    struct weft_links *links = link->links;
    struct weft_wire_dialling call = {.kind = WEFT_DIALLING_HERE};
    struct weft_lane_address address;
    if (links->spec.has_shm && !wants_tcp && is_local(links, link->peer) && open_shm(links)) {
        weft_lane_shm.address(links->shm, &address);
        call.shm_len = (uint8_t)address.len;
        memcpy(call.shm, address.bytes, address.len);
    } else if (links->spec.has_tcp && open_tcp(links)) {
        uint32_t count = links->share + 1 < links->tcp_count ? links->share + 1 : links->tcp_count;
        for (uint32_t i = 0; i < count; i++) { /* as many as this peer may have lanes */
            uint32_t nic = i == 0 ? 0 : 1 + (weft_link_turn(link) + i - 1) % (links->tcp_count - 1);
            links->tcp_ops->address(links->tcp[nic], &address);
            memcpy(call.tcp + call.tcp_len, address.bytes, address.len);
            call.tcp_len = (uint8_t)(call.tcp_len + address.len);
        }
    }
    if (call.shm_len == 0 && call.tcp_len == 0) {
        weft_link_fail(link, WEFT_ERR_SYSTEM,
                       "no way to it: no shared memory here, and no tcp allowed or possible");
        weft_link_give_up(link);
    } else {
        send_call(link, &call);
    }
}

static void ask(struct weft_link *link, bool wants_tcp)
{
    struct weft_wire_dialling call = {.kind = WEFT_DIALLING_ASK, .tcp_len = wants_tcp};
    send_call(link, &call);
}

void weft_link_want(struct weft_link *link)
{
    const struct weft_links *links = link->links;
    if (link->state != WEFT_LINK_IDLE) {
        return;
    }
    if (!links->spec.has_tcp && !is_local(links, link->peer)) {
        weft_link_fail(link, WEFT_ERR_NETWORK, "it is on another host, and WEFT_PATH is shm");
    } else if (links->spec.port.self->rank < link->peer) {
        say_here(link, false);
    } else {
        ask(link, false);
    }
}

static bool dial_shm(struct weft_link *link, const struct weft_wire_dialling *call)
{
    struct weft_lane_address address = {.len = call->shm_len};
    const struct weft_lane_call shm = {.peer = link->peer, .address = &address};
    weft_status_t status;
    memcpy(address.bytes, call->shm, call->shm_len);
    status = weft_lane_shm.open(link->links->shm, &shm, &link->lane);
    if (status != WEFT_OK) {
        link->lane = NULL;
        weft_link_fail(link, status, weft_error_text());
        return false;
    }
    link->lane->owner = link;
    link->state = WEFT_LINK_CALLING;
    return true;
}

static void dial_tcp(struct weft_link *link, const struct weft_wire_dialling *call)
{
    weft_status_t status = link->bundle == NULL ? weft_bundle_open(link) : WEFT_OK;
    if (status != WEFT_OK || !weft_bundle_dial(link->bundle, call)) {
        weft_link_fail(link, status != WEFT_OK ? status : WEFT_ERR_NETWORK, weft_error_text());
    } else {
        link->state = WEFT_LINK_CALLING;
    }
}

bool weft_link_try_elsewhere(struct weft_link *link)
{
    const struct weft_links *links = link->links;
    if (!link->is_shm_tried || !links->spec.has_tcp || links->spec.port.self->rank < link->peer) {
        return false;
    }
    link->is_shm_tried = false;
    weft_log(link, WARN, "no shared memory with rank %u, tcp instead", link->peer);
    ask(link, true);
    return link->state == WEFT_LINK_CALLING;
}

/* The higher rank was told where the lower one listens. */
static void dial_back(struct weft_link *link, const struct weft_wire_dialling *call)
{
    struct weft_links *links = link->links;
    if (call->shm_len > 0 && links->spec.has_shm && open_shm(links)) {
        link->is_shm_tried = true;
        if (!dial_shm(link, call) && !weft_link_try_elsewhere(link)) {
            weft_link_give_up(link);
        }
    } else if (call->tcp_len >= WEFT_WIRE_ADDR_LEN && links->spec.has_tcp && open_tcp(links)) {
        dial_tcp(link, call);
    } else if (call->shm_len > 0 && links->spec.has_tcp) {
        ask(link, true);
    } else {
        weft_link_fail(link, WEFT_ERR_SYSTEM,
                       "no way to it: no shared memory here, and no tcp allowed or possible");
        weft_link_give_up(link);
    }
}

void weft_links_called(struct weft_links *links, uint32_t from, const uint8_t *payload, size_t len)
{
    struct weft_wire_dialling call;
    struct weft_link *link = links->spec.find(links->spec.context, from);
    bool is_lower = links->spec.port.self->rank < from;
    if (link == NULL || weft_wire_dialling_decode(payload, len, &call) != WEFT_OK) {
        weft_log(link, ERROR, "cannot answer a call of rank %u: %s", from, weft_error_text());
        return;
    }
    if (link->lane != NULL || link->bundle != NULL || link->state == WEFT_LINK_DOWN) {
        return; /* it is being dialled, or up */
    }
    if (call.kind == WEFT_DIALLING_NO) {
        weft_link_fail(link, WEFT_ERR_NETWORK, "it found no way to us (its log says why)");
    } else if (call.kind == WEFT_DIALLING_ASK && is_lower) {
        say_here(link, call.tcp_len > 0);
    } else if (call.kind == WEFT_DIALLING_HERE && !is_lower) {
        dial_back(link, &call);
    }
}
