/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of what a peer gets, where payloads are checked (WEFT_CHECKSUM). The memory is its owner's, who may write it
 * meanwhile, and so may other ranks: then the answer is of before or after, but it is not damaged. So what is
 * checked is what is sent: a copy, in a ring that the lane has from its opening to its end. Posts leave in order, so
 * copies do. An answer that finds no room is refused like one that finds the ring of posts full.
 *
 *            head            tail   room
 *    |         | held         |      |      one that does not fit before the end begins at 0
 */
#include "lane/tcp/tcp.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define CHUNKS 2 /* while one leaves the next is made */

weft_status_t weft_lane_tcp_copies_open(struct weft_lane_tcp *lane)
{
    const struct weft_params *params = weft_lane_tcp_port_of(lane->lane.port)->spec.params;
    size_t longest = (size_t)params->number[WEFT_PARAM_CHUNK];
    longest = longest > WEFT_LANE_CHUNK ? longest : WEFT_LANE_CHUNK;
    lane->copies = malloc(CHUNKS * longest);
    if (lane->copies == NULL) {
        return weft_fail(WEFT_ERR_MEMORY, "no memory for copies of what peers get");
    }
    lane->copies_room = CHUNKS * longest;
    return WEFT_OK;
}

void weft_lane_tcp_copies_close(struct weft_lane_tcp *lane)
{
    free(lane->copies);
    lane->copies = NULL;
}

/* How much of the ring a copy takes, with what it leaves unused at the end; 0: there is no room. */
static size_t needed(const struct weft_lane_tcp *lane, size_t len)
{
    size_t held = lane->copies_tail - lane->copies_head;
    size_t to_end = lane->copies_room - (held > 0 ? lane->copies_tail % lane->copies_room : 0);
    size_t size = len <= to_end ? len : to_end + len;
    return size <= lane->copies_room - held ? size : 0;
}

bool weft_lane_tcp_copies_fit(const struct weft_lane_tcp *lane)
{
    return needed(lane, lane->lacked) > 0;
}

bool weft_lane_tcp_copies_add(struct weft_lane_tcp *lane, struct weft_lane_tcp_post *post)
{
    size_t len = post->slice.len;
    uint8_t *copy;
    assert(len <= lane->copies_room);
    post->copied = needed(lane, len);
    if (post->copied == 0) {
        return false;
    }
    if (lane->copies_head == lane->copies_tail) {
        lane->copies_head = lane->copies_tail = 0;
    }
    lane->copies_tail += post->copied;
    copy = lane->copies + (lane->copies_tail - len) % lane->copies_room;
    memcpy(copy, post->slice.data, len);
    post->slice.data = copy;
    return true;
}
