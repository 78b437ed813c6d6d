/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two links in every situation that chance finds: lanes die on one side or both, come back, rest, are overtaken;
 * frames stay in the pipe or leave in part; memory is wanted back. Afterwards everything has come once.
 */
#include "unit/link/user.h"

#define SEEDS 400
#define STEPS 1500
#define NICS 3

static uint64_t chance_state, current;

static uint32_t chance(uint32_t below)
{
    chance_state = chance_state * 6364136223846793005U + 1442695040888963407U;
    return (uint32_t)(chance_state >> 33) % below;
}

static bool move_by_chance(struct fake_lane *fake)
{
    switch (chance(6)) {
    case 0:
        return chance(2) == 0 ? fake_begin(fake) : fake_leave(fake);
    case 1:
    case 2:
        return fake_arrive(fake);
    case 3:
        return fake_body(fake);
    default:
        return false;
    }
}

static bool connect_by_chance(struct fake_lane *fake)
{
    return chance(3) == 0 && fake_connect(fake);
}

/* Not the last one: that would only be a pause, which is no fault of this kind. */
static void lose_a_lane(struct end *end)
{
    struct fake_lane *fake = lane_of(end, chance(end->link.bundle->count));
    if (fake == NULL || !fake->lane.is_up) {
        return;
    }
    switch (chance(4)) {
    case 0: /* this side knows first */
        fake_end(fake);
        break;
    case 1: /* both know at once */
        if (fake->other != NULL && fake->other->lane.is_up) {
            fake_end(fake->other);
        }
        fake_end(fake);
        break;
    case 2: /* a path that is silent: the tick finds it */
        fake->silent_ms = 700;
        break;
    default: /* its NIC has no carrier */
        weft_links_carrier(end->links, end->links->nics[chance(NICS)].name, false);
        break;
    }
}

static void overtake(struct end *end)
{
    struct weft_bundle *bundle = end->link.bundle;
    struct weft_slot *slot = &bundle->slots[chance(bundle->count)];
    if (slot->state != SLOT_UP) {
        return;
    }
    for (struct weft_list *node = slot->flying.next; node != &slot->flying; node = node->next) {
        WEFT_CONTAINER_OF(node, struct weft_link_chunk, node)->due_ns = 0;
    }
    fake_of(slot->lane)->is_held = true;
    slot->overdue = 1;
    bundle->tick_ns = weft_clock_ns();
    weft_chunks_overtake(bundle, bundle->tick_ns + 1);
    fake_of(slot->lane)->is_held = false;
}

static void rest(struct end *end)
{
    struct weft_bundle *bundle = end->link.bundle;
    uint64_t was_ns = bundle->bulk_ns;
    bundle->bulk_ns = 0;
    weft_bundle_rest(bundle, weft_clock_ns());
    bundle->bulk_ns = was_ns;
}

static void step(struct end *end, bool may_forget)
{
    struct user *user = user_of(end);
    uint32_t what = chance(100);
    if (what < 20 && user->said < 1000) {
        say(end);
    } else if (what < 40 && user->chunks < CHUNKS_MAX) {
        stream(end);
    } else if (what < 70) {
        each_lane(end, move_by_chance);
    } else if (what < 88) {
        take(end);
    } else if (what < 92) {
        dial_now(end);
        tick(end);
    } else if (what < 94) {
        each_lane(end, connect_by_chance);
    } else if (what < 96) {
        lose_a_lane(end);
    } else if (what < 98) {
        overtake(end);
    } else if (what < 99) {
        rest(end);
    } else if (may_forget && user->chunks > 0) {
        forget(end, chance(user->chunks));
    }
}

/* Nobody takes for landed what has not. */
static void check_always(struct end *end)
{
    assert_true((int32_t)(end->link.bundle->acked - end->other->link.bundle->landed) <= 0);
    assert_true((int32_t)(end->link.acked - end->other->link.received) <= 0);
}

static void run(uint64_t seed)
{
    static struct pair pair;
    uint32_t pool;
    chance_state = seed * 977;
    pool = pair_up(&pair, NICS);
    for (int i = 0; i < STEPS; i++) {
        step(&pair.end[chance(2)], seed % 4 == 0);
        check_always(&pair.end[0]);
        check_always(&pair.end[1]);
    }
    settle(&pair);
    check_settled(&pair, pool);
    pair_down(&pair);
}

static void everything_comes_once_whatever_happens(void **state)
{
    const char *one = getenv("LINK_SEED");
    (void)state;
    if (one != NULL) {
        run(strtoull(one, NULL, 10));
        return;
    }
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        current = seed;
        run(seed);
    }
}

static int say_seed(void **state)
{
    (void)state;
    if (current < SEEDS) {
        fprintf(stderr, "LINK_SEED=%llu\n", (unsigned long long)current);
    }
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(everything_comes_once_whatever_happens, say_seed),
    };
    setenv("WEFT_LOG", "error", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
