/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matching of one communicator: which receive gets which message. Pure data structure, no I/O, no
 * allocation after open; its nodes are embedded in requests and in kept arrivals.
 *
 * Rules: a message goes to the receive posted first among those that fit (source and tag equal, or
 * any); a receive gets the message that arrived first among those that fit. Exact ones are hashed by
 * (source, tag), so that neither many receives nor many kept messages slow a match down; wildcard
 * receives are in a list of their own, compared by the order of posting.
 */
#ifndef WEFT_P2P_MATCH_H
#define WEFT_P2P_MATCH_H

#include "base/base.h"

#define WEFT_MATCH_ANY UINT32_MAX /* source or tag of a receive */
#define WEFT_MATCH_BUCKETS 64

struct weft_match_receive {
    struct weft_list node; /* in its bucket, or among the wildcards */
    uint32_t source, tag;  /* or ANY */
    uint64_t order;        /* of posting; set here */
};

struct weft_match_arrival {
    struct weft_list node;  /* in its bucket */
    struct weft_list older; /* among all, in the order of arrival */
    uint32_t source, tag;
};

struct weft_match {
    struct weft_list receives[WEFT_MATCH_BUCKETS];
    struct weft_list wild;
    struct weft_list arrivals[WEFT_MATCH_BUCKETS];
    struct weft_list all_arrivals;
    uint64_t posted; /* receives so far */
    uint32_t receive_count, arrival_count;
};

void weft_match_open(struct weft_match *match);
/* The receive that gets a message of this source and tag, taken out; NULL: nobody waits for it. */
struct weft_match_receive *weft_match_take_receive(struct weft_match *match, uint32_t source,
                                                   uint32_t tag);
/* A message that nobody waits for. */
void weft_match_keep(struct weft_match *match, struct weft_match_arrival *arrival);
/* The kept message that a receive of this source and tag (or ANY) gets, taken out; NULL: none. */
struct weft_match_arrival *weft_match_take_arrival(struct weft_match *match, uint32_t source,
                                                   uint32_t tag);
/* The same, left in. */
struct weft_match_arrival *weft_match_peek(const struct weft_match *match, uint32_t source,
                                           uint32_t tag);
/* A receive for which take_arrival gave nothing. */
void weft_match_post(struct weft_match *match, struct weft_match_receive *receive);
/* Takes it out before it was matched. */
void weft_match_withdraw(struct weft_match *match, struct weft_match_receive *receive);
void weft_match_drop(struct weft_match *match, struct weft_match_arrival *arrival);
/* Any receive (any arrival), for closing and for failing; NULL: none left. source != ANY: one that
 * only this source can satisfy (that came from it). Left in. */
struct weft_match_receive *weft_match_any_receive(struct weft_match *match, uint32_t source);
struct weft_match_arrival *weft_match_any_arrival(struct weft_match *match, uint32_t source);

#endif
