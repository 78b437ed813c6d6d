/* SPDX-License-Identifier: Apache-2.0 */
/* How a link gets its lanes: ports opened when first needed, calls over the control plane, the dial, and
 * the other way when one does not work. */
#include "link/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CALL_AGAIN_MS 200 /* then twice as long each time */
#define CALL_AGAIN_MAX_MS 5000

static bool is_local(const struct weft_links *links, uint32_t rank)
{
    for (uint32_t i = 0; i < links->spec.port.local_count; i++) {
        if (links->spec.port.local_ranks[i] == rank) {
            return true;
        }
    }
    return false;
}

/* A port could not be opened: says so, and keeps why for links that find no other way. */
static void note_no_way(struct weft_links *links, weft_status_t status, const char *what)
{
    weft_log(link, WARN, "%s: %s", what, weft_error_text());
    weft_lane_lacks(&links->lack, status, weft_error_text());
}

static bool open_shm(struct weft_links *links)
{
    weft_status_t status;
    if (links->shm != NULL || links->is_shm_broken) {
        return links->shm != NULL;
    }
    status = weft_lane_shm.port_open(&links->spec.port, &links->shm);
    if (status != WEFT_OK) {
        links->is_shm_broken = true;
        note_no_way(links, status,
                    links->spec.has_tcp ? "no shared memory here, tcp instead"
                                        : "no shared memory here");
    }
    return status == WEFT_OK;
}

static bool open_tcp(struct weft_links *links)
{
    const struct weft_links_spec *spec = &links->spec;
    weft_status_t status;
    uint32_t count = 0;
    if (links->tcp_count > 0) {
        return true;
    }
    status = spec->choose_nics(spec->nics_context, links->nics, &count);
    if (status != WEFT_OK) {
        note_no_way(links, status, "no tcp here");
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct weft_lane_port_spec port = spec->port;
        struct weft_link_nic *nic = &links->nics[links->tcp_count];
        *nic = links->nics[i]; /* first to where it stays: the port keeps what it is told */
        port.addr = &nic->addr;
        port.nic = nic->name;
        port.prefix_len = nic->prefix_len;
        status = links->tcp_ops->port_open(&port, &links->tcp[links->tcp_count]);
        if (status != WEFT_OK) {
            char what[64];
            snprintf(what, sizeof(what), "no tcp over %s", nic->name);
            note_no_way(links, status, what);
            continue;
        }
        links->tcp_count++;
    }
    if (links->tcp_count > 0) {
        weft_engine_set_costly(spec->port.engine);
    }
    if (links->tcp_count > 1) {
        weft_links_watch_carriers(links);
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
    if (weft_list_is_empty(&link->links->calling)) {
        link->links->call_pause_ms = CALL_AGAIN_MS;
        weft_engine_timer_set(spec->port.engine, &link->links->call_again,
                              weft_clock_after_ms(CALL_AGAIN_MS));
    }
    if (weft_list_is_empty(&link->calling)) {
        weft_list_append(&link->links->calling, &link->calling);
    }
    return true;
}

/* Neither here nor there: with what was missing here, if something was. */
static void fail_without_way(struct weft_link *link, weft_status_t status, const char *what,
                             const char *why)
{
    const struct weft_lane_lack *lack = &link->links->lack;
    char text[192];
    snprintf(text, sizeof(text), "%s: %s", what, lack->status != WEFT_OK ? lack->text : why);
    weft_link_fail(link, lack->status != WEFT_OK ? lack->status : status, text);
}

static void fail_both_ways(struct weft_link *link)
{
    fail_without_way(link, WEFT_ERR_SYSTEM, "no way to it",
                     "no shared memory here, and no tcp allowed or possible");
}

static void say_no(struct weft_links *links, uint32_t peer, weft_status_t status, const char *why)
{
    struct weft_wire_dialling no = {.kind = WEFT_DIALLING_NO, .tcp_len = 1};
    uint8_t bytes[WEFT_WIRE_DIALLING_MAX];
    no.tcp[0] = (uint8_t)(status != WEFT_OK ? status : WEFT_ERR_NETWORK);
    no.shm_len = (uint8_t)strnlen(why, sizeof(no.shm));
    memcpy(no.shm, why, no.shm_len);
    links->spec.call(links->spec.context, peer, bytes, weft_wire_dialling_encode(&no, bytes));
}

/* The one who found no way tells the other, who may wait for it. The link has failed already. */
void weft_link_give_up(struct weft_link *link)
{
    say_no(link->links, link->peer, link->status, link->text);
}

/* The peer found no way: for what it lacked, or we did. */
static void hear_no(struct weft_link *link, const struct weft_wire_dialling *no)
{
    char why[sizeof(no->shm) + 1] = "its log says why";
    if (no->shm_len > 0) {
        memcpy(why, no->shm, no->shm_len);
        why[no->shm_len] = '\0';
        weft_text_clean(why);
    }
    fail_without_way(link, no->tcp_len > 0 ? (weft_status_t)no->tcp[0] : WEFT_ERR_NETWORK,
                     "it found no way to us", why);
}

/* The lower rank says where it listens. */
static void say_here(struct weft_link *link, bool wants_tcp)
{
    struct weft_links *links = link->links;
    struct weft_wire_dialling call = {.kind = WEFT_DIALLING_HERE};
    struct weft_lane_address address;
    link->wants_tcp = wants_tcp;
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
        fail_both_ways(link);
        weft_link_give_up(link);
    } else {
        send_call(link, &call);
    }
}

static void ask(struct weft_link *link, bool wants_tcp)
{
    struct weft_wire_dialling call = {.kind = WEFT_DIALLING_ASK, .tcp_len = wants_tcp};
    link->wants_tcp = wants_tcp;
    send_call(link, &call);
}

/* A call, or the answer, was on its way over a rank that died. Twice is harmless. */
void weft_links_call_again(struct weft_engine_timer *timer, uint64_t now_ns)
{
    struct weft_links *links = WEFT_CONTAINER_OF(timer, struct weft_links, call_again);
    struct weft_list *node = links->calling.next;
    (void)now_ns;
    while (node != &links->calling) {
        struct weft_link *link = WEFT_CONTAINER_OF(node, struct weft_link, calling);
        node = node->next;
        if (link->state != WEFT_LINK_CALLING || link->lane != NULL || link->bundle != NULL) {
            weft_list_remove(&link->calling);
        } else if (links->spec.port.self->rank < link->peer) {
            say_here(link, link->wants_tcp);
        } else {
            ask(link, link->wants_tcp);
        }
    }
    if (!weft_list_is_empty(&links->calling)) {
        uint64_t pause_ms = 2 * links->call_pause_ms; /* it may be that the peer only computes */
        links->call_pause_ms = pause_ms < CALL_AGAIN_MAX_MS ? pause_ms : CALL_AGAIN_MAX_MS;
        weft_engine_timer_set(links->spec.port.engine, timer,
                              weft_clock_after_ms(links->call_pause_ms));
    }
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
    status = status == WEFT_OK ? weft_bundle_dial(link->bundle, call) : status;
    if (status != WEFT_OK) {
        weft_link_fail(link, status, weft_error_text());
        weft_link_give_up(link);
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
    weft_log(link, WARN, "no shared memory with rank %u, tcp instead: %s", link->peer, link->text);
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
        fail_both_ways(link);
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
        if (link == NULL) {
            weft_lane_lacks(&links->lack, WEFT_ERR_MEMORY, "no memory for a link");
            say_no(links, from, links->lack.status, links->lack.text);
        }
        return;
    }
    if (link->lane != NULL || link->bundle != NULL || link->state == WEFT_LINK_DOWN) {
        return; /* it is being dialled, or up */
    }
    if (call.kind == WEFT_DIALLING_NO) {
        hear_no(link, &call);
    } else if (call.kind == WEFT_DIALLING_ASK && is_lower) {
        say_here(link, call.tcp_len > 0);
    } else if (call.kind == WEFT_DIALLING_HERE && !is_lower) {
        dial_back(link, &call);
    }
}
