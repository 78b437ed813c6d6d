/* SPDX-License-Identifier: Apache-2.0 */
/* All links: opened and closed together, polled together. */
#include "link/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- lanes that nobody wants ---- */

void weft_link_refuse(struct weft_links *links, struct weft_lane *lane)
{
    lane->owner = NULL;
    lane->next_refused = links->refused;
    links->refused = lane;
}

static void close_refused(struct weft_links *links)
{
    while (links->refused != NULL) {
        struct weft_lane *lane = links->refused;
        links->refused = lane->next_refused;
        lane->ops->close(lane);
    }
}

/* ---- the poll ---- */

bool weft_links_withdraw(struct weft_links *links, const struct weft_lane *lane)
{
    for (unsigned i = 0; i < links->batch_count; i++) {
        struct weft_done *done = &links->batch[i];
        if (done->kind == WEFT_DONE_HEADER && done->lane == lane) {
            links->batch_count--;
            memmove(done, done + 1, (links->batch_count - i) * sizeof(*done));
            return true;
        }
    }
    return false;
}

/* The lane had room all along, but the keep or the window had not. */
static unsigned report_roomy(struct weft_links *links, struct weft_done *done)
{
    struct weft_list *node = weft_list_take(&links->roomy);
    struct weft_link *link;
    if (node == NULL) {
        return 0;
    }
    link = WEFT_CONTAINER_OF(node, struct weft_link, roomy);
    if (!weft_link_writable(link)) {
        return 0;
    }
    *done = (struct weft_done){.kind = WEFT_DONE_WRITABLE, .lane = link->lane, .owner = link};
    return 1;
}

/* Chunks that the peer has. */
static unsigned report_acked(struct weft_links *links, struct weft_done *done, unsigned room)
{
    unsigned count = 0;
    struct weft_list *node;
    while (count < room && (node = weft_list_take(&links->acked)) != NULL) {
        struct weft_link_chunk *chunk = WEFT_CONTAINER_OF(node, struct weft_link_chunk, node);
        done[count++] = (struct weft_done){
            .kind = WEFT_DONE_SENT, .owner = chunk->link, .cookie = chunk->cookie};
        weft_list_append(&chunk->link->bundle->free, &chunk->node);
    }
    return count;
}

static unsigned report_broken(struct weft_links *links, struct weft_done *done)
{
    struct weft_list *node = weft_list_take(&links->broken);
    struct weft_link *link;
    char nics[64];
    if (node == NULL) {
        return 0;
    }
    link = WEFT_CONTAINER_OF(node, struct weft_link, broken);
    if (link->status == WEFT_OK) { /* no other reason was found before */
        weft_bundle_name_nics(link->bundle, nics, sizeof(nics));
        snprintf(link->text, sizeof(link->text), "no path is left (%s): %.96s", nics,
                 link->bundle->broken_text);
        link->status = WEFT_ERR_NETWORK;
    }
    link->state = WEFT_LINK_DOWN;
    *done = (struct weft_done){
        .kind = WEFT_DONE_LOST, .owner = link, .status = link->status, .text = link->text};
    return 1;
}

unsigned weft_links_poll(struct weft_links *links, struct weft_done *done, unsigned room)
{
    unsigned count;
    close_refused(links);
    count = report_roomy(links, done);
    count += report_broken(links, done + count);
    count += report_acked(links, done + count, room - count);
    if (count > 0) {
        return count;
    }
    links->batch = done;
    links->batch_count = 0;
    if (links->shm != NULL) {
        weft_links_filter(links, weft_lane_shm.poll(links->shm, done, room));
    }
    for (uint32_t i = 0; i < links->tcp_count && room - links->batch_count >= 4; i++) {
        weft_links_filter(links, links->tcp_ops->poll(links->tcp[i], done + links->batch_count,
                                                      room - links->batch_count));
    }
    count = links->batch_count;
    links->batch_count = 0;
    return count;
}

/* ---- all links ---- */

weft_status_t weft_links_open(const struct weft_links_spec *spec, struct weft_links **links_p)
{
    struct weft_links *links = calloc(1, sizeof(*links));
    size_t eager = (size_t)spec->port.params->number[WEFT_PARAM_EAGER];
    if (links == NULL) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory for links");
    }
    links->spec = *spec;
    links->spec.port.lack = &links->lack;
    links->tcp_ops = spec->tcp != NULL ? spec->tcp : &weft_lane_tcp;
    /* However the ring lies, the longest message finds a place in one piece while the peer keeps less
     * than tell_len to itself; and one such message alone is not worth an acknowledgement, because an
     * answer carries it. */
    links->keep_room = eager * 4 > WEFT_LINK_KEEP ? eager * 4 : WEFT_LINK_KEEP;
    links->tell_len = (uint32_t)(links->keep_room / 8 * 3);
    weft_list_open(&links->roomy);
    weft_list_open(&links->acked);
    weft_list_open(&links->broken);
    weft_list_open(&links->calling);
    weft_engine_timer_open(&links->call_again, weft_links_call_again);
    weft_list_open(&links->bundles);
    links->carrier.fd = -1;
    links->share = WEFT_LINK_SLOTS;
    *links_p = links;
    return WEFT_OK;
}

void weft_links_close(struct weft_links *links)
{
    if (links == NULL) {
        return;
    }
    close_refused(links);
    weft_engine_timer_cancel(links->spec.port.engine, &links->call_again);
    if (links->carrier.fd >= 0) {
        int fd = links->carrier.fd;
        weft_engine_remove(links->spec.port.engine, &links->carrier);
        weft_fd_close(fd);
    }
    weft_lane_shm.port_close(links->shm);
    for (uint32_t i = 0; i < links->tcp_count; i++) {
        links->tcp_ops->port_close(links->tcp[i]);
    }
    free(links);
}

bool weft_links_hear(struct weft_links *links, struct weft_lane_word *word_p)
{
    return links->shm != NULL && weft_lane_shm.hear(links->shm, word_p);
}

const _Atomic uint32_t *weft_links_ear(const struct weft_links *links, uint32_t *value_p)
{
    return links->shm != NULL ? weft_lane_shm.watch(links->shm, value_p) : NULL;
}

static bool has_news(const struct weft_links *links)
{
    return !weft_list_is_empty(&links->roomy) || !weft_list_is_empty(&links->acked) ||
           !weft_list_is_empty(&links->broken);
}

const _Atomic uint32_t *weft_links_watch(const struct weft_links *links, uint32_t *value_p)
{
    return links->tcp_count == 0 && links->shm != NULL && !has_news(links)
               ? weft_lane_shm.watch(links->shm, value_p)
               : NULL;
}

bool weft_links_arm(struct weft_links *links)
{
    bool is_quiet = !has_news(links) && (links->shm == NULL || weft_lane_shm.arm(links->shm));
    for (uint32_t i = 0; i < links->tcp_count; i++) {
        is_quiet = is_quiet && links->tcp_ops->arm(links->tcp[i]);
    }
    return is_quiet;
}

void weft_links_disarm(struct weft_links *links)
{
    if (links->shm != NULL) {
        weft_lane_shm.disarm(links->shm);
    }
    for (uint32_t i = 0; i < links->tcp_count; i++) {
        links->tcp_ops->disarm(links->tcp[i]);
    }
}
