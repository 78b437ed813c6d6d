/* SPDX-License-Identifier: Apache-2.0 */
/* Who goes on, on the coordinator: it hears who asks (shrink.c), and decides when every member has asked or is gone. */
#include "control/shrink.h"

#include <stdlib.h>

#define NAMED_MAX 8

/* What the members of a channel ask for. */
struct petition {
    struct weft_list node;
    uint64_t comm;
    uint32_t number, count;
    uint32_t *members; /* owned */
    uint8_t *has_asked;
};

static void petition_close(struct petition *petition)
{
    weft_list_remove(&petition->node);
    free(petition->members);
    free(petition->has_asked);
    free(petition);
}

static struct petition *petition_of(struct weft_control *control,
                                    const struct weft_wire_frame *frame, const uint8_t *payload)
{
    struct weft_control_shrinks *shrinks = weft_shrinks_of(control);
    struct petition *petition;
    for (struct weft_list *node = shrinks != NULL ? shrinks->petitions.next : NULL;
         node != NULL && node != &shrinks->petitions; node = node->next) {
        petition = WEFT_CONTAINER_OF(node, struct petition, node);
        if (petition->comm == frame->comm && petition->number == frame->number) {
            return petition;
        }
    }
    petition = shrinks != NULL ? calloc(1, sizeof(*petition)) : NULL;
    if (petition == NULL) {
        return NULL; /* it asks again */
    }
    weft_list_open(&petition->node);
    petition->comm = frame->comm;
    petition->number = frame->number;
    petition->count = frame->len / 4;
    petition->members = malloc(((size_t)petition->count + 1) * sizeof(*petition->members));
    petition->has_asked = calloc((size_t)petition->count + 1, 1);
    if (petition->members == NULL || petition->has_asked == NULL) {
        petition_close(petition);
        return NULL;
    }
    for (uint32_t i = 0; i < petition->count; i++) {
        petition->members[i] = get32(payload + 4 * (size_t)i);
    }
    weft_list_append(&shrinks->petitions, &petition->node);
    return petition;
}

struct tally {
    uint32_t asked, missing, maybe_alive;
    bool has_lowest; /* of those who may live */
};

static bool goes_on(const struct weft_control *control, const struct petition *petition, uint32_t i)
{
    return petition->has_asked[i] != 0 && control->is_gone[petition->members[i]] == 0;
}

/* One that has asked may have lost its parent since, and is on its way to another: the decision would not reach it, nor
 * what the others then send. */
static bool is_awaited(struct weft_control *control, const struct petition *petition, uint32_t i)
{
    uint32_t rank = petition->members[i];
    return control->is_gone[rank] == 0 &&
           (!petition->has_asked[i] ||
            (rank != control->self.rank && weft_control_way_to(control, rank) == NULL));
}

static struct tally count(struct weft_control *control, const struct petition *petition)
{
    struct tally tally = {0};
    uint32_t lowest = WEFT_WIRE_NO_RANK;
    for (uint32_t i = 0; i < petition->count; i++) {
        uint32_t rank = petition->members[i];
        uint8_t how = control->is_gone[rank];
        tally.asked += goes_on(control, petition, i);
        tally.missing += is_awaited(control, petition, i);
        if (how == 0 || how == WEFT_GONE_UNREACHED) {
            tally.maybe_alive++;
            if (rank < lowest) {
                lowest = rank;
                tally.has_lowest = goes_on(control, petition, i);
            }
        }
    }
    return tally;
}

static void decide(struct weft_control *control, struct petition *petition,
                   const struct tally *tally)
{
    bool is_majority =
        weft_control_is_majority(tally->asked, tally->maybe_alive, tally->has_lowest);
    uint32_t count = is_majority ? tally->asked : 0;
    size_t len = 8 + 4 * (size_t)count;
    const struct weft_shrink_word word = {petition->comm, petition->number, NULL, len};
    uint8_t *bytes = malloc(len);
    uint32_t at = 0;
    if (bytes == NULL) {
        return; /* they ask again */
    }
    put32(bytes, is_majority ? WEFT_OK : WEFT_ERR_NETWORK);
    put32(bytes + 4, count);
    for (uint32_t i = 0; i < petition->count && at < count; i++) {
        if (goes_on(control, petition, i)) {
            put32(bytes + 8 + 4 * (size_t)at++, petition->members[i]);
        }
    }
    petition_close(petition);
    weft_shrink_take(control, &(struct weft_shrink_word){word.comm, word.number, bytes, len}, NULL);
    free(bytes);
}

void weft_control_shrink_check(struct weft_control *control)
{
    struct weft_list *node;
    if (control->shrinks == NULL || !control->is_top) {
        return;
    }
    for (node = control->shrinks->petitions.next; node != &control->shrinks->petitions;) {
        struct petition *petition = WEFT_CONTAINER_OF(node, struct petition, node);
        struct tally tally = count(control, petition);
        node = node->next;
        if (tally.missing == 0) {
            decide(control, petition, &tally);
        }
    }
}

static void tell_withdrawn(struct weft_control *control, const struct weft_wire_frame *to)
{
    struct weft_wire_frame frame = {.type = WEFT_WIRE_SHRUNK,
                                    .flags = WITHDRAWN,
                                    .comm = to->comm,
                                    .src = control->self.rank,
                                    .dst = to->src,
                                    .number = to->number};
    const uint8_t bytes[8] = {0};
    if (to->src == control->self.rank) {
        weft_shrink_told_withdrawn(control, &frame);
    } else {
        weft_control_route(control, &frame, bytes, sizeof(bytes));
    }
}

/* Who is waited for, to one who asks. */
static void tell_pending(struct weft_control *control, const struct petition *petition, uint32_t to)
{
    struct weft_wire_frame frame = {.type = WEFT_WIRE_SHRUNK,
                                    .flags = PENDING,
                                    .comm = petition->comm,
                                    .src = control->self.rank,
                                    .dst = to,
                                    .number = petition->number};
    uint8_t bytes[8 + 4 * NAMED_MAX] = {0};
    uint32_t named = 0;
    for (uint32_t i = 0; i < petition->count && named < NAMED_MAX; i++) {
        if (is_awaited(control, petition, i)) {
            put32(bytes + 8 + 4 * (size_t)named++, petition->members[i]);
        }
    }
    put32(bytes, WEFT_OK);
    put32(bytes + 4, named);
    if (to == control->self.rank) {
        weft_shrink_told_pending(control, &frame, bytes);
    } else {
        weft_control_route(control, &frame, bytes, 8 + 4 * (size_t)named);
    }
}

void weft_shrink_asked(struct weft_control *control, const struct weft_wire_frame *frame,
                       const uint8_t *payload)
{
    const struct weft_shrink_decision *known =
        weft_shrink_find(control, frame->comm, frame->number);
    struct petition *petition = known == NULL ? petition_of(control, frame, payload) : NULL;
    if (known != NULL) {
        struct weft_wire_frame answer = {.type = WEFT_WIRE_SHRUNK,
                                         .comm = frame->comm,
                                         .src = control->self.rank,
                                         .dst = frame->src,
                                         .number = frame->number};
        weft_control_route(control, &answer, known->bytes, known->word.len);
        return;
    }
    for (uint32_t i = 0; petition != NULL && i < petition->count; i++) {
        if (petition->members[i] == frame->src) {
            petition->has_asked[i] = (frame->flags & WITHDRAW) == 0;
        }
    }
    if (petition != NULL && (frame->flags & WITHDRAW) != 0) {
        if (count(control, petition).asked == 0) {
            petition_close(petition); /* nobody asks any more */
        }
        tell_withdrawn(control, frame);
    } else if (petition != NULL) {
        if (count(control, petition).missing > 0) {
            tell_pending(control, petition, frame->src);
        }
        weft_control_shrink_check(control);
    }
}

void weft_shrink_petitions_close(struct weft_control_shrinks *shrinks)
{
    struct weft_list *node;
    while ((node = weft_list_take(&shrinks->petitions)) != NULL) {
        petition_close(WEFT_CONTAINER_OF(node, struct petition, node));
    }
}
