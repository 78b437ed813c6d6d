/* SPDX-License-Identifier: Apache-2.0 */
/* One rank per class is the full run: every builder, every operation, up to 1,000 ranks. */
#include "plan/sim.h"
#include "toy_plans.h"

#include <math.h>
#include <string.h>

#define STEPS_MAX 250000 /* of a full run: longer ones would take the test minutes */

struct layout {
    uint32_t hosts, host_ranks, cores;
};

struct tally {
    unsigned runs, by_class;
};

static struct weft_plan_facts facts_of(const struct layout *layout)
{
    struct weft_plan_facts facts;

    weft_plan_facts_default(layout->hosts * layout->host_ranks, layout->cores, &facts);
    facts.hosts = layout->hosts;
    facts.host_ranks = layout->host_ranks;
    facts.inside = WEFT_INSIDE_TCP;
    facts.nics = 2;
    facts.nic_rate = 1e9;
    return facts;
}

static void check_near(double part, double full, const struct weft_plan *plan, double bytes)
{
    if (fabs(part - full) > 1e-9 * fabs(full)) {
        fail_msg("%s by %s, %u ranks, %g bytes: %.9g with classes, %.9g in full",
                 weft_coll_name((weft_coll_t)plan->coll), plan->builder->name, plan->ranks, bytes,
                 part, full);
    }
}

static void compare(struct weft_plan_sim *sim, const struct weft_plan_facts *facts,
                    const struct weft_plan *plan, double bytes, uint64_t steps_max,
                    struct tally *tally)
{
    struct weft_plan_run run = {.bytes = bytes, .steps_max = steps_max};
    struct weft_plan_cost part, full;
    enum weft_plan_run_end end = weft_plan_sim_run(sim, facts, plan, &run, &part);

    assert_true(end == WEFT_RUN_DONE || end == WEFT_RUN_TOO_LONG);
    if (end != WEFT_RUN_DONE || part.classes == facts->ranks) {
        return; /* it is a full run */
    }
    run.is_full = true;
    end = weft_plan_sim_run(sim, facts, plan, &run, &full);
    if (end == WEFT_RUN_TOO_LONG) {
        return;
    }
    assert_int_equal(end, WEFT_RUN_DONE);
    assert_int_equal(full.classes, facts->ranks);
    check_near(part.time_s, full.time_s, plan, bytes);
    check_near(part.total_inside, full.total_inside, plan, bytes);
    check_near(part.total_between, full.total_between, plan, bytes);
    check_near(part.nic_out, full.nic_out, plan, bytes);
    check_near(part.nic_in, full.nic_in, plan, bytes);
    assert_true(part.messages == full.messages);
    tally->by_class++;
}

static void compare_all(const struct layout *layout, double bytes, struct tally *tally)
{
    struct weft_plan_facts facts = facts_of(layout);
    struct weft_plan_sim *sim = weft_plan_sim_open();
    struct weft_plan plan;

    for (const struct weft_plan_builder *const *at = weft_plan_builders; *at != NULL; at++) {
        bool is_shared = ((*at)->traits & WEFT_PLAN_SHARED) != 0;
        facts.inside = is_shared ? WEFT_INSIDE_SHM : WEFT_INSIDE_TCP;
        for (unsigned coll = 0; coll < WEFT_COLLS; coll++) {
            for (uint32_t segments = 1; segments <= 3; segments += 2) {
                if ((is_shared && facts.hosts > 1) ||
                    !weft_plan_shape(*at, (weft_coll_t)coll, facts.ranks, 0, segments, &plan)) {
                    continue;
                }
                compare(sim, &facts, &plan, bytes, STEPS_MAX, tally);
                tally->runs++;
            }
        }
    }
    weft_plan_sim_close(sim);
}

static void every_builder_on_few_ranks(void **state)
{
    static const double sizes[] = {1000, 3e6};
    struct tally tally = {0, 0};

    (void)state;
    for (uint32_t ranks = 1; ranks <= 17; ranks++) {
        for (size_t i = 0; i < WEFT_COUNT_OF(sizes); i++) {
            compare_all(&(struct layout){1, ranks, 64}, sizes[i], &tally);
            compare_all(&(struct layout){1, ranks, 2}, sizes[i], &tally);
            compare_all(&(struct layout){ranks, 1, 4}, sizes[i], &tally);
        }
    }
    assert_true(tally.runs > 5000 && tally.by_class > tally.runs / 4);
}

static void every_builder_on_hosts_of_several_ranks(void **state)
{
    static const struct layout layouts[] = {{2, 2, 4}, {3, 2, 4}, {2, 3, 2}, {4, 4, 4},
                                            {5, 3, 1}, {7, 4, 2}, {8, 8, 4}, {3, 5, 8}};
    struct tally tally = {0, 0};

    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(layouts); i++) {
        compare_all(&layouts[i], 100, &tally);
        compare_all(&layouts[i], 5e6, &tally);
    }
    assert_true(tally.by_class > tally.runs / 4);
}

static void every_builder_up_to_a_thousand_ranks(void **state)
{
    static const struct layout layouts[] = {{1, 100, 100}, {32, 4, 8}, {61, 5, 2}, {125, 8, 64}};
    struct tally tally = {0, 0};

    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(layouts); i++) {
        compare_all(&layouts[i], 1e6, &tally);
    }
    assert_true(tally.by_class > tally.runs / 5);
}

static void a_ring_of_a_thousand_ranks(void **state)
{
    static const struct layout layout = {125, 8, 64};
    struct weft_plan_facts facts = facts_of(&layout);
    struct weft_plan_sim *sim = weft_plan_sim_open();
    struct weft_plan plan;
    struct tally tally = {0, 0};

    (void)state;
    assert_true(weft_plan_shape(weft_plan_find("ring"), WEFT_ALLREDUCE, 1000, 0, 1, &plan));
    compare(sim, &facts, &plan, 1e8, 20000000, &tally);
    assert_int_equal(tally.by_class, 1);
    weft_plan_sim_close(sim);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_builder_on_few_ranks),
        cmocka_unit_test(every_builder_on_hosts_of_several_ranks),
        cmocka_unit_test(every_builder_up_to_a_thousand_ranks),
        cmocka_unit_test(a_ring_of_a_thousand_ranks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
