/* SPDX-License-Identifier: Apache-2.0 */
/* The verifier must not only say that plans are right: here they are wrong, one mistake each, at every place
 * where it can be made. */
#include "planted.h"

static const char *const bug_texts[] = {
#define BUG_TEXT(name, text) text,
    BUGS(BUG_TEXT)
#undef BUG_TEXT
};

/* ---- one mistake in a builder ---- */

struct size {
    uint32_t ranks, segments;
};

static uint32_t planted_count[BUG_COUNT];

static void expect_caught(const struct weft_plan *wrong, uint64_t seed)
{
    struct weft_plan_verdict verdict;

    weft_plan_verify(wrong, wrong->coll == WEFT_BARRIER ? 2 : 1, seed, &verdict);
    planted_count[planted.bug]++;
    if (verdict.is_right) {
        fail_msg("%s %s of %u, rank %u, round %u, step %u: %s, and nobody saw it",
                 planted.builder->name, weft_coll_name((weft_coll_t)wrong->coll), wrong->ranks,
                 planted.rank, planted.round, planted.index, bug_texts[planted.bug]);
    }
    assert_true(strlen(verdict.text) > 10);
}

/* At every step of every round of every rank. */
static uint32_t plant_everywhere(const struct weft_plan *plan, enum bug bug)
{
    struct weft_plan_builder builder = *plan->builder;
    struct weft_plan wrong = *plan;
    uint32_t count = 0;

    builder.rounds = planted_rounds;
    builder.step = planted_step;
    wrong.builder = &builder;
    for (uint32_t rank = 0; rank < plan->ranks; rank++) {
        uint32_t rounds = plan->builder->rounds(plan, rank);
        for (uint32_t round = 0; round < rounds; round++) {
            struct weft_plan_step step;
            for (uint32_t i = 0; plan->builder->step(plan, rank, round, i, &step); i++) {
                planted = (struct planted){plan->builder, bug, rank, round, i, 0, 0, 0};
                if (plant(plan, &step)) {
                    expect_caught(&wrong, count++);
                }
            }
        }
    }
    return count;
}

static void plant_all(const struct weft_plan_builder *builder, weft_coll_t coll)
{
    static const struct size sizes[] = {{2, 2}, {3, 1}, {4, 3}, {5, 2}, {6, 1}, {8, 1}};
    uint32_t dropped = 0;

    for (size_t i = 0; i < WEFT_COUNT_OF(sizes); i++) {
        struct weft_plan plan;
        assert_true(weft_plan_shape(builder, coll, sizes[i].ranks, has_root(coll) ? 1 : 0,
                                    sizes[i].segments, &plan));
        for (unsigned bug = 0; bug < BUG_COUNT; bug++) {
            uint32_t count = plant_everywhere(&plan, (enum bug)bug);
            dropped += bug == BUG_DROPPED ? count : 0;
        }
    }
    assert_true(dropped > 0);
}

static void every_mistake_in_every_builder_is_caught(void **state)
{
    (void)state;
    for_every_pair(plant_all);
    for (unsigned bug = 0; bug < BUG_COUNT; bug++) { /* each could be made */
        print_message("    %5u times: %s\n", planted_count[bug], bug_texts[bug]);
        assert_true(planted_count[bug] > 10);
    }
}

/* ---- small plans of our own ---- */

#define TOY_STEPS 4

/* Both ranks do the same, with each other. */
struct toy {
    uint32_t rounds;
    struct weft_plan_step steps[2][TOY_STEPS]; /* [round]; ended by one without a kind */
};

#define END                                                                                        \
    {                                                                                              \
        .kind = UINT8_MAX                                                                          \
    }
#define IN(first, count)                                                                           \
    {                                                                                              \
        .space = WEFT_SPACE_IN, .block = (first), .blocks = (count)                                \
    }
#define OUT(first, count)                                                                          \
    {                                                                                              \
        .space = WEFT_SPACE_OUT, .block = (first), .blocks = (count)                               \
    }
#define TMP(unit, first, count)                                                                    \
    {                                                                                              \
        .space = WEFT_SPACE_TMP, .at = (unit), .origin = (first), .block = (first),                \
        .blocks = (count)                                                                          \
    }

static const struct toy *toy;

static uint32_t toy_rounds(const struct weft_plan *plan, uint32_t rank)
{
    (void)plan;
    (void)rank;
    return toy->rounds;
}

static bool toy_step(const struct weft_plan *plan, uint32_t rank, uint32_t round, uint32_t index,
                     struct weft_plan_step *step_p)
{
    (void)plan;
    *step_p = toy->steps[round][index];
    step_p->peer = 1 - rank;
    return step_p->kind != UINT8_MAX;
}

static bool toy_shape(struct weft_plan *plan)
{
    plan->parts = 2;
    plan->tmp_units = 4;
    return true;
}

static struct weft_plan_verdict verify_toy(const struct toy *it, uint32_t traits)
{
    const struct weft_plan_builder builder = {.name = "toy",
                                              .summary = "two ranks",
                                              .colls = 1u << WEFT_ALLREDUCE,
                                              .traits = traits,
                                              .shape = toy_shape,
                                              .rounds = toy_rounds,
                                              .step = toy_step};
    struct weft_plan_verdict verdict;
    struct weft_plan plan;

    toy = it;
    assert_true(weft_plan_shape(&builder, WEFT_ALLREDUCE, 2, 0, 1, &plan));
    weft_plan_verify(&plan, 2, 1, &verdict);
    return verdict;
}

static void expect_wrong(const struct toy *it, uint32_t traits, const char *why)
{
    struct weft_plan_verdict verdict = verify_toy(it, traits);

    assert_false(verdict.is_right);
    if (strstr(verdict.text, why) == NULL) {
        fail_msg("\"%s\" was to be caught, not: %s", why, verdict.text);
    }
}

/* Each gives the other all it has, and adds up for itself. */
static const struct toy exchange = {2,
                                    {{{.kind = WEFT_STEP_SEND, .from = IN(0, 2)},
                                      {.kind = WEFT_STEP_RECV, .to = TMP(0, 0, 2)},
                                      END},
                                     {{.kind = WEFT_STEP_REDUCE,
                                       .flags = WEFT_STEP_FINAL,
                                       .to = OUT(0, 2),
                                       .from = TMP(0, 0, 2),
                                       .from2 = IN(0, 2),
                                       .sources = 2,
                                       .self = 0},
                                      END}}};

static void a_plan_by_hand_is_right(void **state)
{
    struct weft_plan_verdict verdict = verify_toy(&exchange, 0);

    (void)state;
    assert_true(verdict.is_right);
    assert_string_equal(verdict.text, "");
}

/* self = 0 on both ranks: rank 1 adds its own first. */
static void only_rank_order_is_rank_order(void **state)
{
    (void)state;
    expect_wrong(&exchange, WEFT_PLAN_IN_RANK_ORDER, "not added in rank order");
}

static void a_write_to_what_is_being_sent_waits_and_may_wait_for_ever(void **state)
{
    static const struct toy wrong = {
        2,
        {{{.kind = WEFT_STEP_COPY, .to = TMP(0, 0, 2), .from = IN(0, 2)},
          {.kind = WEFT_STEP_SEND, .from = TMP(0, 0, 2)},
          {.kind = WEFT_STEP_COPY, .to = TMP(0, 0, 2), .from = IN(0, 2)},
          END},
         {{.kind = WEFT_STEP_RECV_REDUCE,
           .flags = WEFT_STEP_FINAL,
           .to = OUT(0, 2),
           .from = IN(0, 2)},
          END}}};

    (void)state;
    expect_wrong(&wrong, 0, "deadlock: it waits for earlier sends");
}

static void what_a_round_receives_is_not_read_in_it(void **state)
{
    struct toy wrong = exchange;

    (void)state;
    wrong.rounds = 1;
    wrong.steps[0][2] = exchange.steps[1][0];
    wrong.steps[0][3].kind = UINT8_MAX;
    expect_wrong(&wrong, 0, "reads what its own round receives");
}

static void input_is_never_written(void **state)
{
    struct toy wrong = exchange;

    (void)state;
    wrong.steps[1][0].to.space = WEFT_SPACE_IN;
    expect_wrong(&wrong, 0, "writes to IN");
    wrong = exchange;
    wrong.steps[0][1].to = wrong.steps[0][0].from;
    expect_wrong(&wrong, 0, "writes to IN");
}

static void tmp_has_an_end(void **state)
{
    struct toy wrong = exchange;

    (void)state;
    wrong.steps[0][1].to.at = 3;
    expect_wrong(&wrong, 0, "beyond the end of TMP");
    wrong.steps[0][1].to.at = 4;
    expect_wrong(&wrong, 0, "does not exist");
}

static void messages_have_the_length_that_is_expected(void **state)
{
    struct toy wrong = exchange;

    (void)state;
    wrong.steps[0][0].from.blocks = 1;
    expect_wrong(&wrong, 0, "sent 1 elements");
}

/* In place OUT is IN: what is sent would be overwritten by what comes. Apart this plan is right. */
static void in_place_is_tried_too(void **state)
{
    static const struct toy wrong = {1,
                                     {{{.kind = WEFT_STEP_SEND, .from = IN(0, 2)},
                                       {.kind = WEFT_STEP_RECV_REDUCE,
                                        .flags = WEFT_STEP_FINAL,
                                        .to = OUT(0, 2),
                                        .from = IN(0, 2)},
                                       END}}};

    (void)state;
    expect_wrong(&wrong, 0, "reads what its own round receives");
}

/* Three ranks: everybody gives all to all, and adds up for itself: in rank order, or its own first. */
static bool is_own_first;

static bool everybody_step(const struct weft_plan *plan, uint32_t rank, uint32_t round,
                           uint32_t index, struct weft_plan_step *step_p)
{
    uint32_t peer = (rank + index % 2 + 1) % 3;
    uint32_t unit = peer < rank ? peer : peer - 1;

    (void)plan;
    if (round == 0) {
        *step_p = index < 2
                      ? (struct weft_plan_step){.kind = WEFT_STEP_SEND, .from = IN(0, 1)}
                      : (struct weft_plan_step){.kind = WEFT_STEP_RECV, .to = TMP(unit, 0, 1)};
        step_p->peer = peer;
        return index < 4;
    }
    *step_p = (struct weft_plan_step){.kind = WEFT_STEP_REDUCE,
                                      .flags = WEFT_STEP_FINAL,
                                      .to = OUT(0, 1),
                                      .from = TMP(0, 0, 1),
                                      .from2 = IN(0, 1),
                                      .sources = 3,
                                      .self = is_own_first ? 0 : rank};
    return index == 0;
}

static void every_rank_must_get_the_same_bits(void **state)
{
    const struct weft_plan_builder builder = {.name = "everybody",
                                              .colls = 1u << WEFT_ALLREDUCE,
                                              .shape = toy_shape,
                                              .rounds = toy_rounds,
                                              .step = everybody_step};
    struct weft_plan plan = {.builder = &builder, .ranks = 3, .parts = 1, .tmp_units = 2};
    struct weft_plan_verdict verdict;

    (void)state;
    toy = &exchange; /* two rounds */
    is_own_first = false;
    weft_plan_verify(&plan, 1, 1, &verdict);
    assert_true(verdict.is_right);
    is_own_first = true; /* (2 + 0) + 1 is not (0 + 1) + 2 */
    weft_plan_verify(&plan, 1, 1, &verdict);
    assert_false(verdict.is_right);
    assert_non_null(strstr(verdict.text, "bits of ranks may differ"));
}

static void messages_and_shared_memory_do_not_mix(void **state)
{
    struct toy wrong = exchange;

    (void)state;
    expect_wrong(&exchange, WEFT_PLAN_SHARED, "a message in a plan of shared memory");
    wrong.steps[0][0] = (struct weft_plan_step){.kind = WEFT_STEP_SHOW, .value = 1};
    expect_wrong(&wrong, 0, "a flag in a plan of messages");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_mistake_in_every_builder_is_caught),
        cmocka_unit_test(a_plan_by_hand_is_right),
        cmocka_unit_test(only_rank_order_is_rank_order),
        cmocka_unit_test(a_write_to_what_is_being_sent_waits_and_may_wait_for_ever),
        cmocka_unit_test(what_a_round_receives_is_not_read_in_it),
        cmocka_unit_test(input_is_never_written),
        cmocka_unit_test(tmp_has_an_end),
        cmocka_unit_test(messages_have_the_length_that_is_expected),
        cmocka_unit_test(in_place_is_tried_too),
        cmocka_unit_test(every_rank_must_get_the_same_bits),
        cmocka_unit_test(messages_and_shared_memory_do_not_mix),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
