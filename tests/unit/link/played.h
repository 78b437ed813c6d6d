/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests of link: lanes that are played. Each test says what one poll of them brings, which is
 * how several things come to happen "at once". */
#ifndef WEFT_TESTS_LINK_PLAYED_H
#define WEFT_TESTS_LINK_PLAYED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "link/internal.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#define LANES 4
#define SCRIPT 8
#define NICS 4
#define LEN 4096u

struct player {
    struct weft_lane lane;
    unsigned places;
    void *into; /* of the latest place() */
    bool is_closed;
    unsigned opens, closes; /* the place is used again for the slot's next one */
};

static struct stage {
    struct weft_engine *engine;
    struct weft_params params;
    struct weft_wire_self self;
    struct weft_links *links;
    struct weft_link link;
    struct player player[LANES];
    struct weft_done script[SCRIPT];
    unsigned scripted;
    unsigned unplaced;
    struct weft_wire_data down; /* the latest that we said */
    uint32_t leads;
    struct weft_done seen[SCRIPT];
    unsigned count; /* of seen */
    uint8_t memory[LEN];
    struct weft_lane_port_spec ports[NICS]; /* as they were opened */
    unsigned port_count;
} stage;

/* Who plays, set before the stage opens; by itself NICs a and b, without addresses. */
static struct cast {
    uint32_t nics;
    char deaf;    /* the NIC that cannot listen */
    bool is_flat; /* all in 10.0.0.0/24 */
} cast;

/* ---- lanes that do what the test says ---- */

static inline struct player *player_of(struct weft_lane *lane)
{
    return WEFT_CONTAINER_OF(lane, struct player, lane);
}

/* Of NIC a (0), b (1), … */
static inline struct weft_lane_port *port_of(unsigned nic)
{
    return (struct weft_lane_port *)(void *)&stage.memory[nic];
}

static weft_status_t play_port_open(const struct weft_lane_port_spec *spec,
                                    struct weft_lane_port **port_p)
{
    if (spec->nic[0] == cast.deaf) {
        return WEFT_ERR_BUSY;
    }
    stage.ports[stage.port_count++] = *spec;
    *port_p = port_of((unsigned)(spec->nic[0] - 'a'));
    return WEFT_OK;
}

static void play_port_close(struct weft_lane_port *port)
{
    (void)port;
}

static void play_address(const struct weft_lane_port *port, struct weft_lane_address *address_p)
{
    (void)port;
    *address_p = (struct weft_lane_address){.len = WEFT_WIRE_ADDR_LEN};
}

static weft_status_t play_open(struct weft_lane_port *port, const struct weft_lane_call *lane,
                               struct weft_lane **lane_p)
{
    struct player *player = &stage.player[lane->slot];
    assert_true(lane->slot < LANES);
    *player = (struct player){.lane = {.ops = &weft_lane_tcp,
                                       .port = port,
                                       .peer = 1,
                                       .slot = lane->slot,
                                       .generation = lane->generation},
                              .opens = player->opens + 1,
                              .closes = player->closes};
    *lane_p = &player->lane;
    return WEFT_OK;
}

static unsigned play_poll(struct weft_lane_port *port, struct weft_done *done, unsigned room)
{
    unsigned count = stage.scripted;
    (void)port;
    assert_true(count <= room);
    memcpy(done, stage.script, count * sizeof(*done));
    stage.scripted = 0;
    return count;
}

static enum weft_post play_post(struct weft_lane *lane, const struct weft_wire_data *frame,
                                const struct weft_slice *slice, void *cookie)
{
    (void)lane;
    (void)slice;
    (void)cookie;
    if ((frame->flags & WEFT_DATA_DOWN) != 0) {
        stage.down = *frame;
    }
    return WEFT_POST_SENT;
}

static void play_place(struct weft_lane *lane, const struct weft_slice *slice)
{
    player_of(lane)->places++;
    player_of(lane)->into = slice->data;
}

static uint32_t play_silent_ms(struct weft_lane *lane)
{
    (void)lane;
    return 0;
}

static void play_close(struct weft_lane *lane)
{
    player_of(lane)->is_closed = true;
    player_of(lane)->closes++;
    /* once: then it is gone; a peer's was not opened by us */
    assert_true(player_of(lane)->closes <=
                (player_of(lane)->opens > 0 ? player_of(lane)->opens : 1));
}

const struct weft_lane_ops weft_lane_shm = {.name = "played", .port_close = play_port_close};
const struct weft_lane_ops weft_lane_tcp = {.name = "played",
                                            .port_open = play_port_open,
                                            .port_close = play_port_close,
                                            .address = play_address,
                                            .poll = play_poll,
                                            .open = play_open,
                                            .post = play_post,
                                            .place = play_place,
                                            .silent_ms = play_silent_ms,
                                            .close = play_close};

/* ---- the link's own user ---- */

static weft_status_t choose_nics(void *context, struct weft_link_nic nics[WEFT_LINK_NICS],
                                 uint32_t *count_p)
{
    (void)context;
    *count_p = cast.nics > 0 ? cast.nics : 2;
    for (uint32_t i = 0; i < *count_p; i++) {
        struct sockaddr_in *addr = (struct sockaddr_in *)&nics[i].addr;
        nics[i] = (struct weft_link_nic){.name = {(char)('a' + i)}};
        if (cast.is_flat) {
            nics[i].prefix_len = 24;
            addr->sin_family = AF_INET;
            addr->sin_addr.s_addr = htonl(0x0a000001 + i);
        }
    }
    return WEFT_OK;
}

static bool call(void *context, uint32_t to, const void *payload, size_t len)
{
    (void)context;
    (void)to;
    (void)payload;
    (void)len;
    return true;
}

static struct weft_link *find(void *context, uint32_t rank)
{
    (void)context;
    (void)rank;
    return &stage.link;
}

static void unplace(void *context, struct weft_link *link, uint32_t slot)
{
    (void)context;
    (void)link;
    (void)slot;
    stage.unplaced++;
}

/* The peer is rank 1. */
static inline void stage_open_as(uint32_t rank)
{
    struct weft_links_spec spec = {.has_tcp = true,
                                   .choose_nics = choose_nics,
                                   .call = call,
                                   .find = find,
                                   .unplace = unplace};
    memset(&stage, 0, sizeof(stage));
    assert_int_equal(weft_params_load(&stage.params), WEFT_OK);
    weft_log_configure("off");
    assert_int_equal(weft_engine_open(8, -1, &stage.engine), WEFT_OK);
    stage.self = (struct weft_wire_self){.rank = rank, .ranks = 3};
    spec.port.engine = stage.engine;
    spec.port.params = &stage.params;
    spec.port.self = &stage.self;
    assert_int_equal(weft_links_open(&spec, &stage.links), WEFT_OK);
    weft_link_open(stage.links, 1, &stage.link);
    weft_link_want(&stage.link);
    assert_int_equal(stage.link.state, WEFT_LINK_CALLING);
}

/* The peer dials. */
static inline int stage_open(void **state)
{
    (void)state;
    stage_open_as(0);
    return 0;
}

static inline int stage_close(void **state)
{
    (void)state;
    weft_link_close(&stage.link);
    weft_links_close(stage.links);
    weft_engine_close(stage.engine);
    return 0;
}

/* ---- what happens ---- */

static inline struct weft_done *add(uint16_t slot, enum weft_done_kind kind)
{
    struct weft_done *done = &stage.script[stage.scripted++];
    assert_true(stage.scripted <= SCRIPT);
    *done = (struct weft_done){.kind = kind, .lane = &stage.player[slot].lane};
    return done;
}

static inline void opens(uint16_t slot)
{
    stage.player[slot] = (struct player){.lane = {.ops = &weft_lane_tcp,
                                                  .port = port_of(slot % 2 == 0),
                                                  .peer = 1,
                                                  .slot = slot,
                                                  .generation = 1,
                                                  .is_up = true}};
    add(slot, WEFT_DONE_OPENED);
}

/* The peer's numbered frames come by this one from now on. */
static inline void leads(uint16_t slot)
{
    add(slot, WEFT_DONE_ARRIVED)->frame = (struct weft_wire_data){
        .type = WEFT_DATA_ACK, .flags = WEFT_DATA_LEAD, .seq = ++stage.leads};
}

static inline void gives_up(uint16_t slot, uint16_t over)
{
    add(over, WEFT_DONE_ARRIVED)->frame = (struct weft_wire_data){
        .type = WEFT_DATA_ACK, .flags = WEFT_DATA_DOWN, .tag = slot, .seq = 1};
}

static inline void envelope(uint16_t slot, enum weft_done_kind kind, uint32_t number)
{
    add(slot, kind)->frame =
        (struct weft_wire_data){.type = WEFT_DATA_EAGER, .len = LEN, .number = number};
}

static inline void chunk(uint16_t slot, enum weft_done_kind kind, uint32_t number, uint32_t epoch)
{
    add(slot, kind)->frame = (struct weft_wire_data){
        .type = WEFT_DATA_CHUNK, .len = LEN, .number = number, .seq = epoch};
}

/* Lanes 1 … count are up, the first leads: as when slot 0 is late. */
static inline void begin(uint16_t count)
{
    for (uint16_t slot = 1; slot <= count; slot++) {
        opens(slot);
    }
    leads(1);
    assert_int_equal(weft_links_poll(stage.links, stage.seen, SCRIPT), count);
}

static inline void poll(void)
{
    stage.count = weft_links_poll(stage.links, stage.seen, SCRIPT);
}

static inline void assert_saw(unsigned at, enum weft_done_kind kind, uint16_t slot)
{
    assert_true(at < stage.count);
    assert_int_equal(stage.seen[at].kind, kind);
    assert_ptr_equal(stage.seen[at].lane, &stage.player[slot].lane);
}

static inline void answer(unsigned at)
{
    const struct weft_slice slice = {.data = stage.memory, .len = LEN};
    weft_link_place(&stage.link, &stage.seen[at], &slice);
}

static inline void assert_sinks(uint16_t slot)
{
    assert_int_equal(stage.player[slot].places, 1);
    assert_null(stage.player[slot].into);
}

#endif
