/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matching: see match.h for the rules.
 *
 * A list keeps the order of posting or of arrival, so the first that fits is the right one. Only a
 * message has two lists to look at, its bucket and the wildcards; the earlier of the two first fits
 * wins. The counts come first of all: a short message mostly finds either nobody waiting or exactly
 * the one, and an empty side is then known without touching its bucket.
 */
#include "p2p/match.h"

#define BUCKET_BITS 6
_Static_assert(WEFT_MATCH_BUCKETS == 1 << BUCKET_BITS, "a hash picks one of the buckets");

/* Multiples of the golden ratio spread consecutive numbers evenly: neighbouring tags hardly meet in
 * a bucket, nor do neighbouring ranks. */
static unsigned bucket_of(uint32_t source, uint32_t tag)
{
    return (tag * UINT32_C(0x9e3779b1) + source * UINT32_C(0x85ebca77)) >> (32 - BUCKET_BITS);
}

static struct weft_match_receive *receive_of(struct weft_list *node)
{
    return WEFT_CONTAINER_OF(node, struct weft_match_receive, node);
}

static struct weft_match_arrival *arrival_of(struct weft_list *node)
{
    return WEFT_CONTAINER_OF(node, struct weft_match_arrival, node);
}

static struct weft_match_arrival *arrival_of_older(struct weft_list *node)
{
    return WEFT_CONTAINER_OF(node, struct weft_match_arrival, older);
}

static bool is_wild(uint32_t source, uint32_t tag)
{
    return source == WEFT_MATCH_ANY || tag == WEFT_MATCH_ANY;
}

static bool fits(uint32_t wanted, uint32_t got)
{
    return wanted == got || wanted == WEFT_MATCH_ANY;
}

void weft_match_open(struct weft_match *match)
{
    for (unsigned i = 0; i < WEFT_MATCH_BUCKETS; i++) {
        weft_list_open(&match->receives[i]);
        weft_list_open(&match->arrivals[i]);
    }
    weft_list_open(&match->wild);
    weft_list_open(&match->all_arrivals);
    match->posted = 0;
    match->receive_count = 0;
    match->arrival_count = 0;
}

static struct weft_match_receive *find_exact(struct weft_match *match, uint32_t source,
                                             uint32_t tag)
{
    struct weft_list *bucket = &match->receives[bucket_of(source, tag)];

    for (struct weft_list *node = bucket->next; node != bucket; node = node->next) {
        struct weft_match_receive *receive = receive_of(node);

        if (receive->source == source && receive->tag == tag) {
            return receive;
        }
    }
    return NULL;
}

static struct weft_match_receive *find_wild(struct weft_match *match, uint32_t source, uint32_t tag)
{
    struct weft_list *wild = &match->wild;

    for (struct weft_list *node = wild->next; node != wild; node = node->next) {
        struct weft_match_receive *receive = receive_of(node);

        if (fits(receive->source, source) && fits(receive->tag, tag)) {
            return receive;
        }
    }
    return NULL;
}

struct weft_match_receive *weft_match_take_receive(struct weft_match *match, uint32_t source,
                                                   uint32_t tag)
{
    struct weft_match_receive *receive;

    if (match->receive_count == 0) {
        return NULL;
    }
    receive = find_exact(match, source, tag);
    if (!weft_list_is_empty(&match->wild)) {
        struct weft_match_receive *wild = find_wild(match, source, tag);

        if (wild && (!receive || wild->order < receive->order)) {
            receive = wild;
        }
    }
    if (receive) {
        weft_match_withdraw(match, receive);
    }
    return receive;
}

void weft_match_keep(struct weft_match *match, struct weft_match_arrival *arrival)
{
    weft_list_append(&match->arrivals[bucket_of(arrival->source, arrival->tag)], &arrival->node);
    weft_list_append(&match->all_arrivals, &arrival->older);
    match->arrival_count++;
}

static struct weft_match_arrival *first_arrival(const struct weft_match *match, uint32_t source,
                                                uint32_t tag)
{
    const struct weft_list *all = &match->all_arrivals;

    for (struct weft_list *node = all->next; node != all; node = node->next) {
        struct weft_match_arrival *arrival = arrival_of_older(node);

        if (fits(source, arrival->source) && fits(tag, arrival->tag)) {
            return arrival;
        }
    }
    return NULL;
}

struct weft_match_arrival *weft_match_peek(const struct weft_match *match, uint32_t source,
                                           uint32_t tag)
{
    const struct weft_list *bucket;

    if (match->arrival_count == 0) {
        return NULL;
    }
    if (is_wild(source, tag)) {
        return first_arrival(match, source, tag);
    }
    bucket = &match->arrivals[bucket_of(source, tag)];
    for (struct weft_list *node = bucket->next; node != bucket; node = node->next) {
        struct weft_match_arrival *arrival = arrival_of(node);

        if (arrival->source == source && arrival->tag == tag) {
            return arrival;
        }
    }
    return NULL;
}

struct weft_match_arrival *weft_match_take_arrival(struct weft_match *match, uint32_t source,
                                                   uint32_t tag)
{
    struct weft_match_arrival *arrival = weft_match_peek(match, source, tag);

    if (arrival) {
        weft_match_drop(match, arrival);
    }
    return arrival;
}

void weft_match_post(struct weft_match *match, struct weft_match_receive *receive)
{
    struct weft_list *list = is_wild(receive->source, receive->tag)
                                 ? &match->wild
                                 : &match->receives[bucket_of(receive->source, receive->tag)];

    receive->order = ++match->posted;
    weft_list_append(list, &receive->node);
    match->receive_count++;
}

void weft_match_withdraw(struct weft_match *match, struct weft_match_receive *receive)
{
    weft_list_remove(&receive->node);
    match->receive_count--;
}

void weft_match_drop(struct weft_match *match, struct weft_match_arrival *arrival)
{
    weft_list_remove(&arrival->node);
    weft_list_remove(&arrival->older);
    match->arrival_count--;
}

static struct weft_match_receive *first_of_source(struct weft_list *list, uint32_t source)
{
    for (struct weft_list *node = list->next; node != list; node = node->next) {
        if (fits(source, receive_of(node)->source)) {
            return receive_of(node);
        }
    }
    return NULL;
}

struct weft_match_receive *weft_match_any_receive(struct weft_match *match, uint32_t source)
{
    struct weft_match_receive *receive = first_of_source(&match->wild, source);

    for (unsigned i = 0; i < WEFT_MATCH_BUCKETS && !receive; i++) {
        receive = first_of_source(&match->receives[i], source);
    }
    return receive;
}

struct weft_match_arrival *weft_match_any_arrival(struct weft_match *match, uint32_t source)
{
    return first_arrival(match, source, WEFT_MATCH_ANY);
}
