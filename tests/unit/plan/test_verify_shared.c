/* SPDX-License-Identifier: Apache-2.0 */
/* Plans of shared memory, small ones of our own, right and wrong. Those that are wrong go well in most runs
 * of a real machine; the verifier must see them in every run. */
#include "support.h"

#define RANKS 4
#define STEPS_MOST 24

static struct weft_plan_step steps[STEPS_MOST]; /* of the rank at hand, in one round */
static uint32_t step_count;

/* What is different from the right plan. */
enum variant {
    RIGHT,
    TWO_AREAS,     /* AWAIT_FREE(2) */
    NOT_FREE,      /* without AWAIT_FREE */
    FREE_LATE,     /* AWAIT_FREE after the slot was written */
    END_TOGETHER,  /* without it, but nobody ends before all have read */
    NO_AWAIT,      /* nobody waits for the others' input */
    AWAIT_ONE,     /* only for the next rank */
    SHOW_EARLY,    /* before the slot is written */
    NO_SHOW,       /* by one rank */
    SHOW_BACK,     /* counts do not rise */
    SHOW_LESS,     /* the last count is not the plan's */
    WRONG_SLOT,    /* a rank's slot twice */
    SLOT_TOO_LONG, /* beyond its end */
    NOT_ALSO,      /* the result is not put into the slot */
    ALSO_EARLY,    /* the result overwrites the input that others still read */
    NO_AWAIT_ANY,
    SHOW_INSTEAD,  /* of AWAIT_ANY: everybody says that its part is done */
    ANY_OVERLAP,   /* two ANY steps write the same block */
    ANY_OWN,       /* an ANY step reads what only one rank has */
    ANY_DIFFERENT, /* not the same on every rank */
};
static enum variant variant;

static void add(struct weft_plan_step step)
{
    assert_true(step_count < STEPS_MOST);
    steps[step_count++] = step;
}

static struct weft_plan_ref ref(enum weft_plan_space space, uint32_t block, uint32_t blocks)
{
    return (struct weft_plan_ref){.space = (uint8_t)space, .block = block, .blocks = blocks};
}

static struct weft_plan_ref slot(uint32_t at, uint32_t block, uint32_t blocks)
{
    struct weft_plan_ref it = ref(WEFT_SPACE_SLOT, block, blocks);
    it.at = at;
    return it;
}

static void add_flag(enum weft_step_kind kind, uint32_t peer, uint32_t value)
{
    add((struct weft_plan_step){.kind = (uint8_t)kind, .peer = peer, .value = value});
}

static void add_copy(struct weft_plan_ref to, uint32_t peer, struct weft_plan_ref from)
{
    add((struct weft_plan_step){.kind = WEFT_STEP_COPY, .peer = peer, .to = to, .from = from});
}

static void add_reduce(struct weft_plan_ref to, struct weft_plan_ref from, uint32_t self,
                       struct weft_plan_ref own, struct weft_plan_ref also)
{
    add((struct weft_plan_step){.kind = WEFT_STEP_REDUCE,
                                .flags = WEFT_STEP_FINAL,
                                .to = to,
                                .from = from,
                                .from2 = own,
                                .also = also,
                                .sources = RANKS,
                                .self = self});
}

/* ---- one shot: everybody shows its input and adds up all ---- */

static void build_one_shot(uint32_t rank)
{
    struct weft_plan_ref nothing = ref(WEFT_SPACE_NONE, 0, 0);
    uint32_t shows = variant == END_TOGETHER ? 2 : 1;

    if (variant != NOT_FREE && variant != END_TOGETHER && variant != FREE_LATE) {
        add_flag(WEFT_STEP_AWAIT_FREE, 0, variant == TWO_AREAS ? 2 : 1);
    }
    if (variant == SHOW_EARLY) {
        add_flag(WEFT_STEP_SHOW, 0, 1);
    }
    add_copy(slot(0, 0, variant == SLOT_TOO_LONG ? 2 : 1), rank,
             ref(WEFT_SPACE_IN, 0, variant == SLOT_TOO_LONG ? 2 : 1));
    if (variant == FREE_LATE) {
        add_flag(WEFT_STEP_AWAIT_FREE, 0, 1);
    }
    if (variant != SHOW_EARLY && !(variant == NO_SHOW && rank == 2)) {
        add_flag(WEFT_STEP_SHOW, 0, 1);
    }
    if (variant == AWAIT_ONE) {
        add_flag(WEFT_STEP_AWAIT, (rank + 1) % RANKS, 1);
    } else if (variant != NO_AWAIT) {
        add_flag(WEFT_STEP_AWAIT, WEFT_PLAN_ALL, 1);
    }
    add_reduce(ref(WEFT_SPACE_OUT, 0, 1), slot(0, 0, 1),
               variant == WRONG_SLOT ? (rank + 1) % RANKS : rank, ref(WEFT_SPACE_IN, 0, 1),
               nothing);
    if (variant == SHOW_BACK) {
        add_flag(WEFT_STEP_SHOW, 0, 1);
    }
    if (shows == 2) {
        add_flag(WEFT_STEP_SHOW, 0, 2);
        add_flag(WEFT_STEP_AWAIT, WEFT_PLAN_ALL, 2);
    }
}

/* ---- staged: everybody adds up its part, for itself and in a slot for the others ---- */

static void build_staged(uint32_t rank)
{
    uint32_t result = variant == ALSO_EARLY ? 0 : 1; /* the slot of results, or of inputs */

    if (variant != NOT_FREE) {
        add_flag(WEFT_STEP_AWAIT_FREE, 0, 1);
    }
    add_copy(slot(0, 0, RANKS), rank, ref(WEFT_SPACE_IN, 0, RANKS));
    add_flag(WEFT_STEP_SHOW, 0, 1);
    add_flag(WEFT_STEP_AWAIT, WEFT_PLAN_ALL, 1);
    add_reduce(ref(WEFT_SPACE_OUT, rank, 1), slot(0, rank, 1), rank, ref(WEFT_SPACE_IN, rank, 1),
               variant == NOT_ALSO ? ref(WEFT_SPACE_NONE, 0, 0) : slot(result, rank, 1));
    add_flag(WEFT_STEP_SHOW, 0, 2);
    for (uint32_t i = 1; i < RANKS; i++) {
        uint32_t peer = (rank + i) % RANKS;
        add_flag(WEFT_STEP_AWAIT, variant == AWAIT_ONE ? (rank + 1) % RANKS : peer,
                 variant == NO_AWAIT ? 1 : 2);
        add_copy(ref(WEFT_SPACE_OUT, peer, 1), peer, slot(result, peer, 1));
    }
}

/* ---- mapped: whoever comes first adds up a block for everybody ---- */

static void build_mapped(uint32_t rank)
{
    for (uint32_t i = 0; i < 2 * RANKS; i++) {
        uint32_t block = variant == ANY_OVERLAP && i == 3        ? 2
                         : variant == ANY_DIFFERENT && rank == 1 ? 2 * RANKS - 1 - i
                                                                 : i;
        add_reduce(ref(WEFT_SPACE_ALL_OUT, block, 1), ref(WEFT_SPACE_THEIR_IN, block, 1),
                   variant == ANY_OWN ? rank : RANKS, ref(WEFT_SPACE_IN, block, 1),
                   ref(WEFT_SPACE_NONE, 0, 0));
        steps[step_count - 1].flags |= WEFT_STEP_ANY;
    }
    if (variant == SHOW_INSTEAD) {
        add_flag(WEFT_STEP_SHOW, 0, 1);
        add_flag(WEFT_STEP_AWAIT, WEFT_PLAN_ALL, 1);
    } else if (variant != NO_AWAIT_ANY) {
        add_flag(WEFT_STEP_AWAIT_ANY, 0, 0);
    }
}

/* ---- the builder ---- */

static void (*build)(uint32_t rank);

static bool shape(struct weft_plan *plan)
{
    plan->parts = build == build_mapped ? 2 * RANKS : build == build_staged ? RANKS : 2;
    plan->parts = build == build_one_shot && variant != SLOT_TOO_LONG ? 1 : plan->parts;
    plan->slots = build == build_mapped ? 0 : 2;
    plan->slot_blocks = build == build_staged ? RANKS : 1;
    plan->shows = build == build_staged || variant == END_TOGETHER || variant == SHOW_LESS ? 2
                  : build == build_mapped && variant != SHOW_INSTEAD                       ? 0
                                                                                           : 1;
    return true;
}

static uint32_t rounds(const struct weft_plan *plan, uint32_t rank)
{
    (void)plan;
    (void)rank;
    return 1;
}

static bool step(const struct weft_plan *plan, uint32_t rank, uint32_t round, uint32_t index,
                 struct weft_plan_step *step_p)
{
    (void)plan;
    (void)round;
    step_count = 0;
    build(rank);
    if (index >= step_count) {
        return false;
    }
    *step_p = steps[index];
    return true;
}

static struct weft_plan_verdict verify(void (*what)(uint32_t rank), enum variant how, uint64_t seed)
{
    const struct weft_plan_builder builder = {
        .name = "toy",
        .colls = 1u << WEFT_ALLREDUCE,
        .traits = WEFT_PLAN_SHARED | (what == build_mapped ? (uint32_t)WEFT_PLAN_MAPPED : 0) |
                  WEFT_PLAN_IN_RANK_ORDER,
        .shape = shape,
        .rounds = rounds,
        .step = step};
    struct weft_plan_verdict verdict;
    struct weft_plan plan;

    build = what;
    variant = how;
    assert_true(weft_plan_shape(&builder, WEFT_ALLREDUCE, RANKS, 0, 1, &plan));
    weft_plan_verify(&plan, 4, seed, &verdict);
    return verdict;
}

static void expect_wrong(void (*what)(uint32_t rank), enum variant how)
{
    for (uint64_t seed = 1; seed <= 40; seed++) {
        assert_false(verify(what, how, seed).is_right);
    }
}

/* why NULL: it is right */
static void expect(void (*what)(uint32_t rank), enum variant how, const char *why)
{
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct weft_plan_verdict verdict = verify(what, how, seed);
        if (why == NULL && !verdict.is_right) {
            fail_msg("variant %d, seed %u: %s", (int)how, (unsigned)seed, verdict.text);
        }
        if (why != NULL && (verdict.is_right || strstr(verdict.text, why) == NULL)) {
            fail_msg("variant %d, seed %u: \"%s\" was to be caught, not: %s", (int)how,
                     (unsigned)seed, why, verdict.text);
        }
    }
}

/* ---- tests ---- */

static void one_shot_with_free_slots_is_right(void **state)
{
    (void)state;
    expect(build_one_shot, RIGHT, NULL);
    expect(build_one_shot, TWO_AREAS, NULL);
    expect(build_one_shot, END_TOGETHER, NULL);
}

/* Operation k + 1 overwrites what a slow rank still reads in operation k. */
static void a_slot_that_a_slow_rank_still_reads_is_not_free(void **state)
{
    static const char why[] = "and nothing says that it was before";

    (void)state;
    expect(build_one_shot, NOT_FREE, why);
    expect(build_one_shot, FREE_LATE, why);
    /* Here nobody needs to ask: who has shown its part of an operation no longer reads inputs of it, and who
     * has shown anything of the next one no longer reads results. */
    expect(build_staged, NOT_FREE, NULL);
}

/* By chance it is not written, or written but not ordered. */
static void what_nobody_waited_for_is_not_there(void **state)
{
    (void)state;
    expect_wrong(build_one_shot, AWAIT_ONE);
    expect_wrong(build_one_shot, SHOW_EARLY);
    expect_wrong(build_one_shot, NO_AWAIT);
    expect_wrong(build_one_shot, WRONG_SLOT);
}

static void counts_rise_to_what_the_plan_says(void **state)
{
    (void)state;
    expect(build_one_shot, NO_SHOW, "waits for another rank's count");
    expect(build_one_shot, SHOW_BACK, "shows 1 after 1");
    expect(build_one_shot, SHOW_LESS, "ends at count 1; the plan has 2");
}

static void slots_have_an_end(void **state)
{
    (void)state;
    expect(build_one_shot, SLOT_TOO_LONG, "beyond the end of the slot");
}

static void results_go_through_slots(void **state)
{
    (void)state;
    expect(build_staged, RIGHT, NULL);
    expect_wrong(build_staged, NOT_ALSO);
    /* The result lies where only the owner's own share was: nobody else reads that. */
    expect(build_staged, ALSO_EARLY, NULL);
    expect_wrong(build_staged, NO_AWAIT);
    expect_wrong(build_staged, AWAIT_ONE);
}

static void steps_for_anybody_are_right_whoever_does_them(void **state)
{
    (void)state;
    expect(build_mapped, RIGHT, NULL);
    expect(build_mapped, SHOW_INSTEAD, NULL);
}

static void steps_for_anybody_are_disjoint_and_the_same_everywhere(void **state)
{
    (void)state;
    expect_wrong(build_mapped, ANY_OVERLAP); /* even if one rank did both */
    expect(build_mapped, ANY_OWN, "depends on who does it");
    expect(build_mapped, ANY_DIFFERENT, "not the same on every rank");
}

/* After a rank has ended its buffers are the user's. */
static void buffers_are_touched_only_while_they_are_lent(void **state)
{
    (void)state;
    expect_wrong(build_mapped, NO_AWAIT_ANY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_shot_with_free_slots_is_right),
        cmocka_unit_test(a_slot_that_a_slow_rank_still_reads_is_not_free),
        cmocka_unit_test(what_nobody_waited_for_is_not_there),
        cmocka_unit_test(counts_rise_to_what_the_plan_says),
        cmocka_unit_test(slots_have_an_end),
        cmocka_unit_test(results_go_through_slots),
        cmocka_unit_test(steps_for_anybody_are_right_whoever_does_them),
        cmocka_unit_test(steps_for_anybody_are_disjoint_and_the_same_everywhere),
        cmocka_unit_test(buffers_are_touched_only_while_they_are_lent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
