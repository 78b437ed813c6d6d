/* SPDX-License-Identifier: Apache-2.0 */
/* Private to link: the ports that all links share, and what its files do for each other. */
#ifndef WEFT_LINK_INTERNAL_H
#define WEFT_LINK_INTERNAL_H

#include "link/link.h"

struct weft_links {
    struct weft_links_spec spec;
    struct weft_lane_port *shm, *tcp; /* owned; NULL: not opened */
    bool is_shm_broken;               /* it could not be opened here */
    size_t keep_room;                 /* bytes of each keep */
    uint32_t tell_len;                /* so many came since we told the peer last: tell it now */
    struct weft_list roomy;           /* links that are due a WRITABLE */
    struct weft_lane *refused;        /* lanes nobody wants, closed when the events are through */
};

/* ---- connect.c ---- */
/* A dial failed, or the lane was lost before it was up: is there another way? */
bool weft_link_try_elsewhere(struct weft_link *link);
void weft_link_give_up(struct weft_link *link);
void weft_link_fail(struct weft_link *link, weft_status_t status, const char *text);

/* ---- keep.c ---- */
/* Room for one frame of this payload? */
bool weft_link_keep_has_room(const struct weft_link *link, size_t len);
/* ERR_MEMORY: there is no ring yet and no memory for one. */
weft_status_t weft_link_keep_open(struct weft_link *link);
/* Returns where the payload lies now. */
void *weft_link_keep_add(struct weft_link *link, const struct weft_wire_data *frame,
                         const struct weft_slice *slice, bool is_sent);
/* Gives what was kept unsent to the lane; false: it is full. */
bool weft_link_keep_flush(struct weft_link *link);
/* Everything up to this number has arrived there. */
void weft_link_keep_acked(struct weft_link *link, uint32_t number);

#endif
