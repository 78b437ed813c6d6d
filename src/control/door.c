/* SPDX-License-Identifier: Apache-2.0 */
/* The listeners of a root: opened when the id is made, so that no port is ever closed and bound
 * again. */
#include "control/control.h"
#include "net/net.h"

weft_status_t weft_control_door_open(const struct sockaddr_storage *addr, const char *ports,
                                     const char *local_name, struct weft_control_door *door_p)
{
    struct weft_control_door door = {.tcp = -1, .local = -1};
    struct sockaddr_storage bound;
    uint16_t first, last;
    weft_status_t status = weft_net_port_range(ports, &first, &last);
    if (status != WEFT_OK) {
        return status;
    }
    if (addr != NULL) {
        status = weft_net_listen(addr, first, last, &door.tcp, &bound);
        if (status != WEFT_OK) {
            return status;
        }
        weft_net_addr_to_wire(&bound, &door.addr);
    }
    if (local_name != NULL) {
        status = weft_net_listen_local(local_name, &door.local);
        if (status != WEFT_OK) {
            weft_fd_close(door.tcp);
            return status == WEFT_ERR_BUSY
                       ? weft_fail(WEFT_ERR_BUSY,
                                   "another process on this host already is the root of this job")
                       : status;
        }
    }
    *door_p = door;
    return WEFT_OK;
}

void weft_control_door_close(struct weft_control_door *door)
{
    weft_fd_close(door->tcp);
    if (!door->is_inherited) {
        weft_fd_close(door->local);
    }
    door->tcp = door->local = -1;
}

weft_status_t weft_control_root_addr(const struct weft_wire_addr *wire,
                                     struct sockaddr_storage *addr_p)
{
    return weft_net_addr_from_wire(wire, addr_p);
}

weft_status_t weft_control_root_resolve(const char *host, uint16_t port, int family,
                                        struct sockaddr_storage *addr_p)
{
    return weft_net_addr_resolve(host, port, family, addr_p);
}

void weft_control_root_port(struct sockaddr_storage *addr, uint16_t port)
{
    weft_net_addr_set_port(addr, port);
}
