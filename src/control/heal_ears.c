/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where those listen who may be asked to be somebody's parent: on its host every rank by a local socket, which is opened
 * soon after the start; for other hosts whoever leads a host, at the port that everybody heard of in the start.
 */
#include "control/heal.h"

/* So soon the kernel gives away what a process had that has ended; who looks for us waits as long. */
#define INHERIT_MS 500

static weft_status_t serve(struct weft_control *control, int fd,
                           struct weft_net_acceptor **acceptor_p)
{
    weft_status_t status =
        weft_net_acceptor_open(control->engine, fd, &control->self,
                               (uint64_t)control->params->number[WEFT_PARAM_HANDSHAKE_TIMEOUT],
                               &weft_control_conn_ops, control, acceptor_p);
    if (status != WEFT_OK) {
        *acceptor_p = NULL;
    }
    return status;
}

void weft_heal_local_name(const struct weft_control *control, uint32_t rank,
                          char name[WEFT_WIRE_NAME_LEN])
{
    weft_wire_local_name(control->self.key, control->self.job, control->self.epoch, "heal", rank,
                         name);
}

void weft_heal_serve_local(struct weft_control_heal *heal)
{
    char name[WEFT_WIRE_NAME_LEN];
    int fd;
    heal->serve_ns = 0;
    if (heal->local != NULL) {
        return;
    }
    weft_heal_local_name(heal->control, heal->control->self.rank, name);
    if (weft_net_listen_local(name, &fd) != WEFT_OK ||
        serve(heal->control, fd, &heal->local) != WEFT_OK) {
        weft_log(control, INFO, "nobody can attach to this rank yet: %s", weft_error_text());
        heal->serve_ns = weft_clock_after_ms(ALONE_MS); /* memory and descriptors may come back */
    }
}

void weft_control_heal_open_port(struct weft_control *control, struct weft_wire_addr *addr)
{
    struct weft_control_heal *heal = weft_heal_of(control);
    struct sockaddr_storage here;
    struct weft_control_door door = {.tcp = -1, .local = -1};
    weft_status_t status = WEFT_ERR_MEMORY;
    if (heal != NULL && heal->tcp == NULL) {
        status = weft_net_addr_from_wire(addr, &here);
    }
    if (status == WEFT_OK) {
        weft_net_addr_set_port(&here, 0);
        status = weft_control_door_open(&here, control->params->text[WEFT_PARAM_PORT_RANGE], NULL,
                                        &door);
    }
    status = status == WEFT_OK ? serve(control, door.tcp, &heal->tcp) : status;
    if (status == WEFT_OK) {
        *addr = door.addr;
    } else {
        addr->port = 0; /* there is none that others could know */
    }
}

static weft_status_t serve_port(struct weft_control_heal *heal)
{
    struct weft_control *control = heal->control;
    const struct weft_wire_addr *addr =
        &control->table.group[control->table.group_of[control->self.rank]].addr;
    struct sockaddr_storage here;
    struct weft_control_door door = {.tcp = -1, .local = -1};
    weft_status_t status = weft_net_addr_from_wire(addr, &here);
    status = status == WEFT_OK ? weft_control_door_open(&here, "", NULL, &door) : status;
    return status == WEFT_OK ? serve(control, door.tcp, &heal->tcp) : status;
}

static bool is_early(const struct weft_control_heal *heal)
{
    return weft_clock_ns() < heal->heir_ns + INHERIT_MS * WEFT_NS_PER_MS;
}

/* Who led this host is gone, and we lead it now. The kernel gives the port away when that process has ended. At the same port of
 * our other NICs those come who know of them (ways_hosts.c), also when the first one cannot be listened at any more. */
void weft_heal_take_over_port(struct weft_control_heal *heal)
{
    struct weft_control *control = heal->control;
    bool is_done;
    heal->port_ns = 0;
    if (control->tree.groups < 2 || !weft_heal_has_port(control, control->self.rank)) {
        return;
    }
    if (heal->tcp == NULL && heal->heir_ns == 0) {
        heal->heir_ns = weft_clock_ns();
    }
    if (heal->heir_ns == 0) {
        return; /* we led it from the start on */
    }
    is_done = heal->tcp != NULL || serve_port(heal) == WEFT_OK;
    is_done = weft_control_ways_inherit(control) && is_done;
    if (!is_done) {
        heal->port_ns = weft_clock_after_ms(is_early(heal) ? RETRY_MS : ALONE_MS);
    }
}

bool weft_heal_is_inheriting(const struct weft_control_heal *heal)
{
    return heal != NULL && heal->heir_ns != 0 && heal->port_ns != 0 && is_early(heal);
}

void weft_control_heal_take(struct weft_control *control, struct weft_net_acceptor *acceptor)
{
    struct weft_control_heal *heal = acceptor != NULL ? weft_heal_of(control) : NULL;
    if (heal != NULL) {
        heal->tcp = acceptor;
    } else {
        weft_net_acceptor_close(acceptor);
    }
}
