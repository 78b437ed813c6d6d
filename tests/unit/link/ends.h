/* SPDX-License-Identifier: Apache-2.0 */
/* Two ranks and their links, over lanes that move when the test says so (fake.h). */
#ifndef WEFT_TESTS_LINK_ENDS_H
#define WEFT_TESTS_LINK_ENDS_H

#include "unit/link/fake.h"

struct end {
    struct weft_engine *engine;
    struct weft_params params;
    struct weft_wire_self self;
    struct weft_links *links;
    struct weft_link link; /* to the other */
    struct end *other;
    uint32_t nics;
    /* the user of the link: see take() of each test */
    void *user;
    unsigned opened, lost, writable;
    struct {
        struct weft_wire_data frame;
        bool is_there;
    } pieces[WEFT_LINK_SLOTS]; /* placed, by slot */
};

struct pair {
    struct end end[2]; /* 1 dials 0 */
};

static inline weft_status_t end_choose_nics(void *context,
                                            struct weft_link_nic nics[WEFT_LINK_NICS],
                                            uint32_t *count_p)
{
    const struct end *end = context;
    for (uint32_t i = 0; i < end->nics; i++) {
        struct sockaddr_in *in = (struct sockaddr_in *)&nics[i].addr;
        nics[i] = (struct weft_link_nic){.prefix_len = 24};
        snprintf(nics[i].name, sizeof(nics[i].name), "n%u", i);
        in->sin_family = AF_INET;
        in->sin_addr.s_addr = htonl(10u << 24 | (i + 1) << 16 | (end->self.rank + 1));
    }
    *count_p = end->nics;
    return WEFT_OK;
}

static inline bool end_call(void *context, uint32_t to, const void *payload, size_t len)
{
    struct end *end = context;
    assert_int_equal(to, end->other->self.rank);
    weft_links_called(end->other->links, end->self.rank, payload, len);
    return true;
}

static inline struct weft_link *end_find(void *context, uint32_t rank)
{
    struct end *end = context;
    assert_int_equal(rank, end->other->self.rank);
    return &end->link;
}

static inline void end_unplace(void *context, struct weft_link *link, uint32_t slot)
{
    struct end *end = context;
    assert_ptr_equal(link, &end->link);
    assert_true(end->pieces[slot].is_there); /* only what its user knows of is taken back */
    end->pieces[slot].is_there = false;
}

static inline void end_open(struct pair *pair, uint32_t rank, uint32_t nics)
{
    struct end *end = &pair->end[rank];
    struct weft_links_spec spec;
    end->other = &pair->end[1 - rank];
    end->nics = nics;
    end->self = (struct weft_wire_self){.rank = rank, .ranks = 2};
    assert_int_equal(weft_params_load(&end->params), WEFT_OK);
    assert_int_equal(weft_engine_open(64, -1, &end->engine), WEFT_OK);
    spec = (struct weft_links_spec){
        .port = {.engine = end->engine, .params = &end->params, .self = &end->self},
        .tcp = &fake_ops,
        .has_tcp = true,
        .choose_nics = end_choose_nics,
        .nics_context = end,
        .call = end_call,
        .context = end,
        .find = end_find,
        .unplace = end_unplace};
    assert_int_equal(weft_links_open(&spec, &end->links), WEFT_OK);
    weft_link_open(end->links, 1 - rank, &end->link);
}

static inline void pair_open(struct pair *pair, uint32_t nics)
{
    memset(pair, 0, sizeof(*pair));
    for (uint32_t rank = 0; rank < 2; rank++) {
        end_open(pair, rank, nics);
    }
}

static inline void pair_close(struct pair *pair)
{
    for (int i = 0; i < 2; i++) {
        weft_link_close(&pair->end[i].link);
    }
    for (int i = 0; i < 2; i++) {
        weft_links_close(pair->end[i].links);
        weft_engine_close(pair->end[i].engine);
    }
}

/* The lane of a slot; NULL: none. */
static inline struct fake_lane *lane_of(struct end *end, uint32_t slot)
{
    struct weft_bundle *bundle = end->link.bundle;
    return bundle != NULL && bundle->slots[slot].lane != NULL ? fake_of(bundle->slots[slot].lane)
                                                              : NULL;
}

/* Every lane of this end, in any state: calls `act` with each; returns how often it was true. */
static inline unsigned each_lane(struct end *end, bool (*act)(struct fake_lane *))
{
    unsigned count = 0;
    for (uint32_t nic = 0; nic < NICS_MAX; nic++) {
        struct fake_port *port = fake_ports[end->self.rank][nic];
        struct weft_list *node = port != NULL ? port->lanes.next : NULL;
        while (node != NULL && node != &port->lanes) {
            struct weft_list *next = node->next;
            count += act(WEFT_CONTAINER_OF(node, struct fake_lane, node));
            node = next;
        }
    }
    return count;
}

static inline void tick(struct end *end)
{
    end->link.bundle->tick.fire(&end->link.bundle->tick, weft_clock_ns());
}

#endif
