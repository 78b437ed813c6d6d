/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control plane after the start: frames from a neighbour that is let in and has gone mad. Rank 0 of six on three
 * hosts, which coordinates; nothing leaves it, for all its connections are closed. Input: frames one after the other,
 * each a few bytes (see next_frame()) and its payload. Nothing may crash, or hold more than its bounds.
 */
#include "fuzz.h"

#include "control/internal.h"

#define RANKS 6
#define HOSTS 3
#define COMM 77
#define PART 78
#define FRAMES_MAX 16
#define PAYLOAD_MAX 512

static bool is_lost; /* it was put out: nothing more of it is read */

void __wrap_weft_control_neighbour_lost(struct weft_control *control, struct weft_net_conn *conn,
                                        weft_status_t status, const char *why);

void __wrap_weft_control_neighbour_lost(struct weft_control *control, struct weft_net_conn *conn,
                                        weft_status_t status, const char *why)
{
    (void)control;
    (void)conn;
    FUZZ_CHECK(status != WEFT_OK && why != NULL);
    is_lost = true;
}

/* ---- rank 0 ---- */

static void open_table(struct weft_control *control)
{
    struct weft_wire_table *table = &control->table;
    FUZZ_CHECK(weft_wire_table_open(RANKS, HOSTS, table) == WEFT_OK);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        table->group_of[rank] = rank / (RANKS / HOSTS);
        table->pid[rank] = 100 + rank;
    }
    for (uint32_t host = 0; host < HOSTS; host++) {
        table->group[host].leader = host * (RANKS / HOSTS);
        snprintf(table->group[host].host, WEFT_WIRE_HOST_LEN, "node%u", host);
    }
    weft_control_tree_fans(HOSTS - 1, RANKS / HOSTS - 1, 2, &table->fan_groups, &table->fan_local);
    FUZZ_CHECK(weft_control_tree_open(table, &control->tree) == WEFT_OK);
}

static struct weft_control *control_open(struct weft_engine *engine,
                                         const struct weft_params *params)
{
    struct weft_control *control = calloc(1, sizeof(*control));
    uint32_t ranks[RANKS];
    FUZZ_CHECK(control != NULL);
    control->engine = engine;
    control->params = params;
    control->self = fuzz_self(0, RANKS);
    control->parent_rank = WEFT_WIRE_NO_RANK;
    control->is_top = true;
    weft_list_open(&control->parting);
    weft_list_open(&control->channels);
    weft_list_open(&control->early);
    weft_list_open(&control->early_calls);
    weft_engine_timer_open(&control->news, weft_control_news_fire);
    weft_engine_timer_open(&control->heart, NULL);
    open_table(control);
    control->child_count = weft_control_tree_children(&control->tree, 0, ranks, RANKS);
    control->children = calloc(control->child_count + 1, sizeof(*control->children));
    control->child_room = control->child_count + 1;
    control->is_gone = calloc(RANKS, sizeof(*control->is_gone));
    control->is_out = calloc(RANKS, sizeof(*control->is_out));
    FUZZ_CHECK(control->children != NULL && control->is_gone != NULL && control->is_out != NULL);
    for (uint32_t i = 0; i < control->child_count; i++) {
        control->children[i].rank = ranks[i];
    }
    return control;
}

/* ---- frames ---- */

struct source {
    const uint8_t *at;
    size_t len;
};

static uint8_t next_byte(struct source *source)
{
    if (source->len == 0) {
        return 0;
    }
    source->len--;
    return *source->at++;
}

/* Small, or one of those that overflow. */
static uint32_t next_number(struct source *source)
{
    static const uint32_t large[] = {UINT32_MAX, UINT32_MAX - 1, 1U << 31, WEFT_WIRE_NO_RANK};
    uint8_t byte = next_byte(source);
    return byte < 252 ? byte : large[byte - 252];
}

static struct weft_wire_frame next_frame(struct source *source)
{
    static const uint64_t comms[] = {0, COMM, PART, 79};
    static const uint8_t types[] = {WEFT_WIRE_HEARTBEAT, WEFT_WIRE_BYE,     WEFT_WIRE_CLOSED,
                                    WEFT_WIRE_REPORT,    WEFT_WIRE_VERDICT, WEFT_WIRE_BELOW,
                                    WEFT_WIRE_SHRINK,    WEFT_WIRE_SHRUNK,  WEFT_WIRE_GATHER,
                                    WEFT_WIRE_SPREAD,    WEFT_WIRE_MAIL,    WEFT_WIRE_MAIL_ACK,
                                    WEFT_WIRE_CALL};
    struct weft_wire_frame frame = {.type = types[next_byte(source) % sizeof(types)]};
    frame.flags = next_byte(source);
    frame.comm = comms[next_byte(source) % 4];
    frame.src = next_number(source);
    frame.dst = next_number(source);
    frame.number = next_number(source);
    frame.len = (uint32_t)next_byte(source) * 2;
    frame.len = frame.len < PAYLOAD_MAX ? frame.len : PAYLOAD_MAX;
    frame.len = frame.len < source->len ? frame.len : (uint32_t)source->len;
    return frame;
}

static void take_frames(struct weft_control *control, struct source *source)
{
    struct weft_net_conn from = {.peer_rank = 1, .state = WEFT_CONN_OPEN};
    from.peer_rank = 1 + next_byte(source) % (RANKS - 1);
    for (int i = 0; i < FRAMES_MAX && source->len > 0 && !is_lost; i++) {
        struct weft_wire_frame frame = next_frame(source);
        uint8_t *payload = malloc(frame.len + 1); /* of this length, so that a byte more is seen */
        FUZZ_CHECK(payload != NULL);
        memcpy(payload, source->at, frame.len);
        source->at += frame.len;
        source->len -= frame.len;
        weft_control_arrived(control, &from, &frame, payload);
        free(payload);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct weft_engine *engine;
    static struct weft_params params;
    static const uint32_t part[] = {0, 2, 5};
    struct source source = {.at = data, .len = size};
    struct weft_control_channel *all, *some;
    struct weft_control *control;
    if (engine == NULL) {
        weft_log_configure("off");
        FUZZ_CHECK(weft_params_load(&params) == WEFT_OK);
        weft_log_configure("off");
        FUZZ_CHECK(weft_engine_open(64, -1, &engine) == WEFT_OK);
    }
    is_lost = false;
    control = control_open(engine, &params);
    FUZZ_CHECK(weft_control_channel_open(control, COMM, NULL, RANKS, &all) == WEFT_OK);
    FUZZ_CHECK(weft_control_channel_open(control, PART, part, 3, &some) == WEFT_OK);
    weft_engine_lock(engine);
    take_frames(control, &source);
    weft_engine_unlock(engine);
    weft_control_channel_close(some);
    weft_control_channel_close(all);
    control->is_closing = true; /* no good-byes */
    weft_control_close(control);
    return 0;
}
