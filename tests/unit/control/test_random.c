/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random sequences of control operations on random splits, against a model that every rank computes
 * for itself from the seed: who is in which communicator, what everybody contributes, which message
 * is the next of its tag. A failing run prints its seed; WEFT_TEST_SEED (unset: fixed seeds) repeats
 * it.
 */
#include "unit/comm/comm_support.h"

enum { RANKS_MAX = 12, COMMS_MAX = 6, STEPS = 60 };

/* One communicator, as all ranks of the job know it. */
struct model_comm {
    bool is_open;
    int parent;             /* index, -1: the first */
    int count;              /* of members */
    int members[RANKS_MAX]; /* ranks of the job, in order */
    int children;           /* open ones */
};

struct model {
    uint64_t random; /* the same on all ranks */
    struct model_comm comm[COMMS_MAX];
};

struct world {
    struct model model;
    weft_comm_t handle[COMMS_MAX]; /* NULL: I am not in it */
};

static uint32_t draw(struct model *model, uint32_t below)
{
    model->random = mix(model->random);
    return (uint32_t)(model->random % below);
}

static int place_in(const struct model_comm *comm, int rank)
{
    for (int i = 0; i < comm->count; i++) {
        if (comm->members[i] == rank) {
            return i;
        }
    }
    return -1;
}

static int free_slot(const struct model *model)
{
    for (int i = 0; i < COMMS_MAX; i++) {
        if (!model->comm[i].is_open) {
            return i;
        }
    }
    return -1;
}

static int draw_open(struct model *model)
{
    int slot;
    do {
        slot = (int)draw(model, COMMS_MAX);
    } while (!model->comm[slot].is_open);
    return slot;
}

/* ---- steps: each is the same draw on all ranks; members act, the others only remember ---- */

static int step_split(struct world *world, int rank, struct harness_shared *shared)
{
    struct model *model = &world->model;
    int at = draw_open(model), slots[2];
    struct model_comm *comm = &model->comm[at];
    int colour[RANKS_MAX] = {0}, key[RANKS_MAX] = {0};
    for (int i = 0; i < comm->count; i++) {
        colour[i] = (int)draw(model, 4) - 1; /* -1: stays out; 2: a part nobody keeps */
        key[i] = (int)draw(model, 5) - 2;
    }
    for (int c = 0; c < 2; c++) {
        slots[c] = free_slot(model);
        if (slots[c] >= 0) {
            struct model_comm *part = &model->comm[slots[c]];
            *part = (struct model_comm){.parent = at};
            for (int k = -2; k <= 2; k++) {
                for (int i = 0; i < comm->count; i++) {
                    if (colour[i] == c && key[i] == k) {
                        part->members[part->count++] = comm->members[i];
                    }
                }
            }
            part->is_open = part->count > 0;
            comm->children += part->is_open;
        }
    }
    if (world->handle[at] != NULL) {
        int me = place_in(comm, rank);
        weft_comm_t part = NULL;
        EXPECT_OK(weft_comm_split(world->handle[at], colour[me], key[me], &part));
        EXPECT((part == NULL) == (colour[me] < 0));
        if (colour[me] >= 0 && colour[me] < 2 && slots[colour[me]] >= 0) {
            const struct model_comm *mine = &model->comm[slots[colour[me]]];
            int got_rank = -1, got_ranks = -1;
            world->handle[slots[colour[me]]] = part;
            EXPECT_OK(weft_comm_rank(part, &got_rank));
            EXPECT_OK(weft_comm_ranks(part, &got_ranks));
            EXPECT(got_rank == place_in(mine, rank) && got_ranks == mine->count);
        } else {
            EXPECT_OK(weft_comm_close(part));
        }
    }
    return 0;
}

static int step_close(struct world *world, int rank, struct harness_shared *shared)
{
    struct model *model = &world->model;
    int at = draw_open(model);
    struct model_comm *comm = &model->comm[at];
    if (comm->parent < 0 || comm->children > 0) {
        return 0;
    }
    if (world->handle[at] != NULL) {
        EXPECT_OK(weft_comm_close(world->handle[at]));
        world->handle[at] = NULL;
    }
    comm->is_open = false;
    model->comm[comm->parent].children--;
    return 0;
}

static int step_collective(struct world *world, int rank, struct harness_shared *shared)
{
    static const size_t lens[] = {0, 1, 17, 256, 5000, 65536};
    struct model *model = &world->model;
    int at = draw_open(model);
    const struct model_comm *comm = &model->comm[at];
    uint32_t kind = draw(model, 3);
    size_t len = lens[draw(model, sizeof(lens) / sizeof(lens[0]))];
    int root = (int)draw(model, (uint32_t)comm->count), me = place_in(comm, rank);
    uint64_t seed = model->random;
    if (world->handle[at] == NULL) {
        return 0;
    }
    if (kind == 0) {
        EXPECT_OK(weft_control_barrier(world->handle[at]));
        return 0;
    }
    return kind == 1 ? check_allgather(world->handle[at], me, comm->count, len, seed, rank, shared)
                     : check_broadcast(world->handle[at], me, root, len, seed, rank, shared);
}

/* A few messages between two members, received in another order than they were sent. */
static int step_mail(struct world *world, int rank, struct harness_shared *shared)
{
    enum { COUNT = 6, LEN = 3000 };
    struct model *model = &world->model;
    int at = draw_open(model);
    const struct model_comm *comm = &model->comm[at];
    int from = (int)draw(model, (uint32_t)comm->count);
    int to = (int)draw(model, (uint32_t)comm->count);
    int me = place_in(comm, rank);
    uint32_t tag[COUNT], len[COUNT];
    uint64_t seed = model->random;
    uint8_t data[LEN];
    for (int i = 0; i < COUNT; i++) {
        tag[i] = draw(model, 3);
        len[i] = draw(model, LEN + 1);
    }
    if (world->handle[at] == NULL) {
        return 0;
    }
    for (int i = 0; me == from && i < COUNT; i++) {
        fill_bytes(seed + (uint64_t)i, data, len[i]);
        EXPECT_OK(weft_control_send(world->handle[at], to, tag[i], data, len[i]));
    }
    for (uint32_t t = 3; me == to && t-- > 0;) {
        for (int i = 0; i < COUNT; i++) {
            size_t got = 0;
            if (tag[i] == t) {
                EXPECT_OK(weft_control_recv(world->handle[at], from, t, data, LEN, &got));
                EXPECT(got == len[i] && are_bytes(seed + (uint64_t)i, data, got));
            }
        }
    }
    return 0;
}

static int play(int rank, struct harness_shared *shared, void *arg)
{
    struct world world = {.model = {.random = *(const uint64_t *)arg}};
    struct model_comm *first = &world.model.comm[0];
    *first = (struct model_comm){.is_open = true, .parent = -1, .count = shared->ranks};
    for (int r = 0; r < shared->ranks; r++) {
        first->members[r] = r;
    }
    EXPECT_OK(job_join(rank, shared, NULL, &world.handle[0]));
    for (int step = 0; step < STEPS; step++) {
        uint32_t dice = draw(&world.model, 10);
        int result = dice < 2   ? step_split(&world, rank, shared)
                     : dice < 3 ? step_close(&world, rank, shared)
                     : dice < 7 ? step_collective(&world, rank, shared)
                                : step_mail(&world, rank, shared);
        if (result != 0) {
            return result;
        }
    }
    for (int i = COMMS_MAX - 1; i > 0;) { /* children before parents, in whatever slots */
        if (world.handle[i] != NULL && weft_comm_close(world.handle[i]) == WEFT_OK) {
            world.handle[i] = NULL;
            i = COMMS_MAX - 1;
        } else {
            i--;
        }
    }
    EXPECT_OK(weft_control_barrier(world.handle[0]));
    EXPECT_OK(weft_comm_close(world.handle[0]));
    return 0;
}

static void play_seed(uint64_t seed)
{
    int ranks = 2 + (int)(mix(seed) % (RANKS_MAX - 1));
    const char *degrees[] = {"2", "3", "64"};
    struct harness *harness;
    setenv("WEFT_TREE_DEGREE", degrees[mix(seed + 1) % 3], 1);
    harness = mix(seed + 2) % 2 == 0 ? harness_start(ranks, play, &seed)
                                     : harness_start_threads(ranks, play, &seed);
    unsetenv("WEFT_TREE_DEGREE");
    if (!harness_wait(harness, DEADLINE_MS) || !harness_check_status(harness, 0) ||
        !harness_check_clean(harness)) {
        harness_wait(harness, 0);
        fail_msg("WEFT_TEST_SEED=%llu (%d ranks): %s", (unsigned long long)seed, ranks,
                 harness_error(harness));
    }
    harness_close(harness);
}

static void random_operations_on_random_splits_agree_with_the_model(void **state)
{
    const char *given = getenv("WEFT_TEST_SEED");
    uint64_t seed = given != NULL ? strtoull(given, NULL, 10) : 0;
    (void)state;
    unsetenv("WEFT_TEST_SEED"); /* the library warns of variables it does not know */
    if (given != NULL) {
        play_seed(seed);
        return;
    }
    for (seed = 1; seed <= 12; seed++) {
        play_seed(seed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_operations_on_random_splits_agree_with_the_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
