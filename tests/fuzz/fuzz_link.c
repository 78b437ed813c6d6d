/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Links and messages: frames of a peer that is let in and has gone mad, over two lanes that need no network
 * (unit/link/fake.h). Rank 0 has receives, sends, a get and registered memory under way. Input: frames of a few bytes
 * each (see next_frame()). Whatever comes, nothing is written but what was lent for it, and all memory comes back.
 *
 * Up to the first frame all inputs are the same: the ranks, their links and their work are made once, and put back
 * (arena.h) with the clock. How they are closed depends on the frames, and is each input's own.
 */
#include "fuzz.h"

#include "arena.h"
#include "unit/p2p/two.h"

#include <time.h>

#define FRAMES_MAX 8
#define FENCE 64
#define ROOM 512
#define EAGER 1024 /* longer ones are announced; bytes cost time here */
#define LONG ((size_t)3 * EAGER)
#define TAG 3

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

static uint64_t next_number(struct source *source)
{
    static const uint64_t large[] = {UINT64_MAX, UINT64_MAX - 7, UINT64_C(1) << 63,
                                     LONG,       UINT32_MAX,     UINT64_C(1) << 32};
    uint8_t byte = next_byte(source);
    return byte < 250 ? byte : large[byte - 250];
}

/* As it passes the lane: what does not decode never gets here. */
static bool next_frame(struct source *source, struct weft_wire_data *frame_p)
{
    static const uint64_t comms[] = {WORLD, DUP, 0, 999};
    struct weft_wire_data frame = {.type =
                                       (uint8_t)(1 + next_byte(source) % (WEFT_DATA_TYPE_END - 1))};
    uint8_t bytes[WEFT_WIRE_DATA_LEN];
    frame.flags = next_byte(source) & (uint8_t)~WEFT_DATA_CHECKED;
    frame.len = (uint32_t)next_byte(source) * 33;
    frame.comm = comms[next_byte(source) % 4];
    frame.tag = (uint32_t)next_number(source);
    frame.seq = (uint32_t)next_number(source);
    frame.a = next_number(source);
    frame.b = next_number(source);
    frame.c = next_number(source);
    frame.number = (uint32_t)next_number(source);
    frame.ack = (uint32_t)next_number(source);
    weft_wire_data_encode(&frame, bytes);
    return weft_wire_data_decode(bytes, frame_p) == WEFT_OK;
}

/* ---- two ranks, whose engines live longer than they do ---- */

weft_status_t __wrap_weft_topo_carrier_open(int *fd_p);

/* In place of a socket to the kernel for each input, which has no news of these NICs. */
weft_status_t __wrap_weft_topo_carrier_open(int *fd_p)
{
    (void)fd_p;
    return weft_fail(WEFT_ERR_UNSUPPORTED, "nobody tells of NICs here");
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *now_p);

/* How late it is must not depend on how fast the inputs before this one were. */
static uint64_t now_ns;

int __wrap_clock_gettime(clockid_t clock, struct timespec *now_p)
{
    (void)clock;
    now_ns += 1000;
    *now_p = (struct timespec){.tv_sec = (time_t)(now_ns / 1000000000),
                               .tv_nsec = (long)(now_ns % 1000000000)};
    return 0;
}

static void rank_begin(struct two *two, uint32_t number, struct weft_engine *engine)
{
    struct rank *rank = &two->rank[number];
    struct end *end = &rank->end;
    struct weft_p2p_spec spec;
    rank->other = &two->rank[1 - number];
    end->nics = 2;
    end->self = (struct weft_wire_self){.rank = number, .ranks = 2};
    end->engine = engine;
    spec = (struct weft_p2p_spec){
        .links = {.port = {.engine = engine, .params = &end->params, .self = &end->self},
                  .tcp = &fake_ops,
                  .has_tcp = true,
                  .choose_nics = end_choose_nics,
                  .nics_context = end},
        .context = rank,
        .call = two_call,
        .name = two_name,
        .is_gone = two_is_gone,
        .fail = two_fail,
        .verdict_ms = 600};
    FUZZ_CHECK(weft_p2p_open(&spec, &rank->p2p) == WEFT_OK);
    FUZZ_CHECK(weft_p2p_comm_open(rank->p2p, WORLD, number, 2, NULL, &rank->world) == WEFT_OK);
    FUZZ_CHECK(weft_p2p_comm_open(rank->p2p, DUP, number, 2, NULL, &rank->dup) == WEFT_OK);
}

static void rank_end(struct rank *rank)
{
    weft_p2p_ended(rank->p2p, WORLD, WEFT_ERR_ABORTED, "over");
    weft_p2p_ended(rank->p2p, DUP, WEFT_ERR_ABORTED, "over");
}

/* False: there was nothing to do. */
static bool poll_all(struct rank *rank)
{
    bool was_busy = false;
    while (rank->p2p->poller.poll(&rank->p2p->poller)) {
        was_busy = true;
    }
    return was_busy;
}

static bool move_rank(struct rank *rank)
{
    bool was_busy = each_lane(&rank->end, fake_connect) > 0;
    was_busy |= poll_all(rank);
    if (each_lane(&rank->end, two_move) > 0) {
        was_busy = true;
        poll_rank(rank);
    }
    return was_busy;
}

/* Until nothing moves, but a few rounds only: a peer gone mad may keep us busy for ever. */
static void move(struct two *two)
{
    bool is_busy = true;
    for (int i = 0; i < 3 && is_busy; i++) {
        is_busy = move_rank(&two->rank[0]);
        is_busy |= move_rank(&two->rank[1]);
    }
}

/* ---- what is under way ---- */

struct work {
    weft_request_t request[4];
    uint8_t fence_0[FENCE], room[ROOM], fence_1[FENCE];
    uint8_t registered[ROOM], fence_2[FENCE];
    uint8_t got[ROOM], fence_3[FENCE];
};
static uint8_t long_in[LONG], long_out[LONG], there[ROOM];

static void begin_work(struct two *two, struct work *work)
{
    struct rank *rank = &two->rank[0];
    const struct weft_slice room = {work->room, ROOM}, space = {long_in, LONG};
    weft_mem_t mine, theirs;
    const struct weft_p2p_target target = {&theirs, 0};
    memset(work, 0xee, sizeof(*work));
    memset(work->request, 0, sizeof(work->request));
    FUZZ_CHECK(weft_p2p_register(rank->world, work->registered, ROOM, &mine) == WEFT_OK);
    FUZZ_CHECK(weft_p2p_register(two->rank[1].world, there, ROOM, &theirs) == WEFT_OK);
    weft_p2p_recv(rank->world, &room, 1, TAG, NULL, &work->request[0]);
    weft_p2p_recv(rank->world, &space, 1, TAG + 1, NULL, &work->request[1]);
    weft_p2p_send(rank->world, long_out, LONG, 1, TAG, &work->request[2]);
    weft_p2p_recv(rank->dup, &room, WEFT_MATCH_ANY, WEFT_MATCH_ANY, NULL, &work->request[3]);
    (void)weft_p2p_get(rank->world, &target, work->got, ROOM);
}

static bool is_fenced(const uint8_t *fence)
{
    for (size_t i = 0; i < FENCE; i++) {
        if (fence[i] != 0xee) {
            return false;
        }
    }
    return true;
}

static void end_work(struct work *work)
{
    for (size_t i = 0; i < 4; i++) {
        if (work->request[i] != NULL && weft_p2p_is_done(work->request[i])) {
            (void)weft_p2p_wait(&work->request[i], 0);
        }
        FUZZ_CHECK(work->request[i] == NULL);
    }
    FUZZ_CHECK(is_fenced(work->fence_0) && is_fenced(work->fence_1) && is_fenced(work->fence_2) &&
               is_fenced(work->fence_3));
}

/* ---- the mad peer ---- */

static void inject(struct two *two, uint32_t slot, const struct weft_wire_data *frame)
{
    struct fake_lane *lane = lane_at(&two->rank[0], slot);
    struct fake_frame *one;
    if (lane == NULL || !lane->lane.is_up) {
        return;
    }
    one = calloc(1, sizeof(*one));
    FUZZ_CHECK(one != NULL);
    one->owned = calloc(1, frame->len + 1);
    FUZZ_CHECK(one->owned != NULL);
    one->frame = *frame;
    one->slice = (struct weft_slice){one->owned, frame->len};
    one->has_begun = one->has_left = true;
    weft_list_append(&lane->pipe, &one->node);
}

/* ---- one input ---- */

/* All that an input changes, but for the lent memory: what begin() makes, and where it is put back from. */
static struct {
    struct two *two;
    struct work *work;
    struct fake_port *ports[2][NICS_MAX];
    uint64_t now_ns;
    size_t live; /* blocks before there were ranks */
    bool is_kept;
} start;

int LLVMFuzzerInitialize(int *argc, char ***argv);

static void begin(void)
{
    struct two *two = start.two;
    now_ns = UINT64_C(1000000000000);
    rank_begin(two, 0, two->rank[0].end.engine);
    rank_begin(two, 1, two->rank[1].end.engine);
    weft_link_want(link_of(&two->rank[0]));
    move(two);
    begin_work(two, start.work);
}

/* Here, and not with the first input, so that no input is said to cover it. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    weft_log_configure("off");
    fake_parts_change = true; /* by a put or a signal, which is its right */
    start.is_kept = arena_open();
    start.two = calloc(1, sizeof(*start.two));
    start.work = calloc(1, sizeof(*start.work));
    FUZZ_CHECK(start.two != NULL && start.work != NULL);
    for (int i = 0; i < 2; i++) {
        struct end *end = &start.two->rank[i].end;
        FUZZ_CHECK(weft_params_load(&end->params) == WEFT_OK);
        end->params.number[WEFT_PARAM_EAGER] = EAGER;
        FUZZ_CHECK(weft_engine_open(64, -1, &end->engine) == WEFT_OK);
    }
    start.live = arena_live();
    if (start.is_kept) {
        begin();
        arena_keep();
        memcpy(start.ports, fake_ports, sizeof(fake_ports));
        start.now_ns = now_ns;
    }
    return 0;
}

static void begin_again(void)
{
    if (!start.is_kept) {
        begin();
        return;
    }
    arena_restore();
    memcpy(fake_ports, start.ports, sizeof(fake_ports));
    now_ns = start.now_ns;
}

static void end(void)
{
    struct two *two = start.two;
    rank_end(&two->rank[0]);
    rank_end(&two->rank[1]);
    poll_rank(&two->rank[0]);
    end_work(start.work);
    for (int i = 0; i < 2; i++) {
        weft_p2p_comm_close(two->rank[i].world);
        weft_p2p_comm_close(two->rank[i].dup);
    }
    for (int i = 0; i < 2; i++) {
        weft_p2p_close(two->rank[i].p2p);
    }
    FUZZ_CHECK(arena_live() == start.live);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct source source = {.at = data, .len = size};
    begin_again();
    for (int i = 0; i < FRAMES_MAX && source.len > 0; i++) {
        uint8_t how = next_byte(&source);
        struct weft_wire_data frame;
        if (next_frame(&source, &frame)) {
            inject(start.two, how & 1, &frame);
        }
        if ((how & 2) != 0) {
            move(start.two);
        }
    }
    move(start.two);
    end();
    return 0;
}
