/* SPDX-License-Identifier: Apache-2.0 */
/* NICs that lose their carrier and get it back, as netlink says at once: what the tick would find late. */
#include "link/internal.h"

#include <string.h>

/* Called again when the NIC is back: what is on its way now is lost, and nobody would know for a while. */
static void stop_dialling(const struct weft_bundle *bundle, struct weft_slot *slot)
{
    if (slot->state == SLOT_DIALLING && slot->lane != NULL && bundle->link->was_up) {
        struct weft_lane *lane = slot->lane;
        slot->lane = NULL;
        slot->state = SLOT_DOWN;
        lane->ops->close(lane);
    }
}

/* The one who is dialled keeps the last, on which the peer may still call; the dialler does better with a new one
 * as soon as there is a carrier: the kernel tries an old one again after ever longer pauses. */
static void carrier_lost(struct weft_bundle *bundle, struct weft_slot *slot)
{
    if (slot->state == SLOT_UP && (bundle->is_dialler || !weft_bundle_is_last_up(bundle, slot))) {
        weft_bundle_drop(bundle, slot, "its NIC has no carrier");
    }
    stop_dialling(bundle, slot);
}

static void carrier_back(struct weft_bundle *bundle, struct weft_slot *slot, bool is_news)
{
    if (is_news) {
        stop_dialling(bundle, slot);
    }
    if (slot->state == SLOT_DOWN) {
        slot->retry_ns = 0;
        slot->pause_ms = 0;
        weft_engine_timer_set(bundle->link->links->spec.port.engine, &bundle->tick,
                              weft_clock_ns());
    }
}

void weft_links_carrier(struct weft_links *links, const char *nic, bool is_up)
{
    bool is_back = false;
    for (uint32_t i = 0; i < links->tcp_count; i++) {
        if (strcmp(links->nics[i].name, nic) == 0) {
            is_back |= is_up && links->down_ns[i] != 0;
            links->down_ns[i] = is_up ? 0 : weft_clock_ns();
        }
    }
    for (struct weft_list *node = links->bundles.next; node != &links->bundles; node = node->next) {
        struct weft_bundle *bundle = WEFT_CONTAINER_OF(node, struct weft_bundle, node);
        for (uint32_t i = bundle->count; i-- > 0;) { /* the lead last, when its heirs are known */
            if (strcmp(links->nics[bundle->slots[i].nic].name, nic) != 0) {
                continue;
            }
            if (is_up) {
                carrier_back(bundle, &bundle->slots[i], is_back);
            } else {
                carrier_lost(bundle, &bundle->slots[i]);
            }
        }
        for (uint32_t i = 0; i < bundle->count && !is_up; i++) {
            if (bundle->slots[i].state == SLOT_DOWN) {
                weft_bundle_tell_down(
                    bundle, &bundle->slots[i]); /* what was said by the dead ones is lost */
            }
        }
    }
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

/* What was lost before anybody listened is no news. */
static void ask_for_carriers(struct weft_links *links)
{
    for (uint32_t i = 0; i < links->tcp_count; i++) {
        bool is_up;
        if (weft_topo_carrier_ask(links->nics[i].name, &is_up) && !is_up) {
            links->down_ns[i] = weft_clock_ns();
            weft_log(link, INFO, "%s has no carrier now", links->nics[i].name);
        }
    }
}

void weft_links_watch_carriers(struct weft_links *links)
{
    int fd;
    links->carrier.ready = carrier_ready;
    if (weft_topo_carrier_open(&fd) != WEFT_OK) {
        weft_log(link, INFO, "no news of NICs: %s", weft_error_text());
    } else if (weft_engine_add(links->spec.port.engine, &links->carrier, fd, EPOLLIN) != WEFT_OK) {
        weft_fd_close(fd);
    } else {
        ask_for_carriers(links);
    }
}
