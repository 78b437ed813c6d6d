/* SPDX-License-Identifier: Apache-2.0 */
#include "toy_plans.h"

#include <math.h>
#include <string.h>

#define NEAR(a, b) check_near(a, b, __LINE__)

static void check_near(double a, double b, int line)
{
    if (fabs(a - b) > 1e-9 * (fabs(a) + fabs(b))) {
        fail_msg("line %d: %.12g is not %.12g", line, a, b);
    }
}

/* Round numbers, so that the sums below can be done in the head. */
static struct weft_plan_facts round_facts(uint32_t hosts, uint32_t host_ranks, uint32_t cores)
{
    struct weft_plan_facts facts;

    weft_plan_facts_default(hosts * host_ranks, cores, &facts);
    facts.hosts = hosts;
    facts.host_ranks = host_ranks;
    facts.inside = WEFT_INSIDE_TCP;
    facts.cache = 1e15;
    facts.calibration = (struct weft_plan_calibration){
        .shm = {1e-7, 10e9, 1e-7, 1e-6},
        .loopback = {10e-6, 1e9, 1e-6, 3e-6},
        .net = {100e-6, 1e9, 2e-6, 3e-6},
        .flag_s = 1e-7,
        .copy_rate = 10e9,
        .reduce_rate = 2e9,
        .slot_write_rate = 5e9,
        .slot_read_rate = 5e9,
        .memory_rate = 40e9,
        .flag_wait_s = 1e-6,
        .duplex = 1,
    };
    return facts;
}

static struct weft_plan_cost run_plan(const struct weft_plan_facts *facts,
                                      const struct weft_plan_builder *builder, weft_coll_t coll,
                                      double bytes, bool is_full)
{
    struct weft_plan_sim *sim = weft_plan_sim_open();
    struct weft_plan_run run = {.bytes = bytes, .is_full = is_full, .path_max = 16};
    struct weft_plan_cost cost;
    struct weft_plan plan;

    assert_non_null(sim);
    assert_true(weft_plan_shape(builder, coll, facts->ranks, 0, 1, &plan));
    assert_int_equal(weft_plan_sim_run(sim, facts, &plan, &run, &cost), WEFT_RUN_DONE);
    NEAR(cost.parts.message + cost.parts.copy + cost.parts.reduce + cost.parts.wire +
             cost.parts.latency + cost.parts.wait,
         cost.time_s);
    weft_plan_sim_close(sim);
    return cost;
}

static void a_message_costs_what_its_path_says(void **state)
{
    struct weft_plan_facts facts = round_facts(1, 2, 2);
    struct weft_plan_cost cost;

    (void)state;
    /* 1000 bytes: 1 us + 1 us to send; there after 10 us; 1 us + 1 us to take */
    cost = run_plan(&facts, &toy_chain, WEFT_BROADCAST, 1000, true);
    NEAR(cost.time_s, 1e-6 + 10e-6 + 1e-6 + 1e-6);
    NEAR(cost.sent_inside, 1000);
    assert_true(cost.sent_between == 0);
    assert_int_equal(cost.messages, 1);
    facts = round_facts(2, 1, 2);
    cost = run_plan(&facts, &toy_chain, WEFT_BROADCAST, 1000, true);
    NEAR(cost.time_s, 2e-6 + 100e-6 + 2e-6 + 1e-6);
    NEAR(cost.nic_out, 1000);
    NEAR(cost.nic_in, 1000);
}

static void a_slow_wire_bounds_a_message(void **state)
{
    struct weft_plan_facts facts = round_facts(2, 1, 2);
    struct weft_plan_cost slow, two;

    (void)state;
    facts.nic_rate = 1e8; /* ten times slower than a core */
    facts.eager_max = 1e12;
    slow = run_plan(&facts, &toy_chain, WEFT_BROADCAST, 1e6, true);
    NEAR(slow.time_s, 2e-6 + 100e-6 + 1e6 / 1e8);
    facts.nics = 2;
    two = run_plan(&facts, &toy_chain, WEFT_BROADCAST, 1e6, true);
    NEAR(two.time_s, 2e-6 + 100e-6 + 1e6 / 2e8);
}

static void ranks_of_a_host_share_its_nic(void **state)
{
    struct weft_plan_facts facts = round_facts(2, 4, 8), alone = round_facts(2, 1, 8);

    (void)state;
    facts.nic_rate = alone.nic_rate = 1e8;
    /* the last round of doubling crosses: four messages of 1 MB at the same time */
    double crossing = run_plan(&facts, &toy_doubling, WEFT_ALLREDUCE, 1e6, true).time_s;
    double single = run_plan(&alone, &toy_doubling, WEFT_ALLREDUCE, 1e6, true).time_s;
    assert_true(crossing - single > 3 * 1e6 / 1e8 * 0.99);
}

static void a_host_takes_one_message_after_the_other(void **state)
{
    struct weft_plan_facts facts = round_facts(5, 1, 8);

    (void)state;
    facts.nic_rate = 1e8;
    facts.eager_max = 1e12;
    /* four messages to rank 0 at the same time, then four from it */
    double time_s = run_plan(&facts, &toy_star, WEFT_ALLREDUCE, 1e6, true).time_s;
    assert_true(time_s > 8 * 1e6 / 1e8 && time_s < 1.1 * 8 * 1e6 / 1e8);
}

static void two_that_send_to_each_other_are_slower(void **state)
{
    struct weft_plan_facts facts = round_facts(4, 1, 8);

    (void)state;
    facts.nic_rate = 1e7;
    double exchange = run_plan(&facts, &toy_doubling, WEFT_ALLREDUCE, 1e6, false).time_s;
    double ring = run_plan(&facts, &toy_ring, WEFT_ALLGATHER, 4e6, false).time_s;
    facts.calibration.duplex = 0.5;
    assert_true(run_plan(&facts, &toy_doubling, WEFT_ALLREDUCE, 1e6, false).time_s >
                1.9 * exchange);
    NEAR(run_plan(&facts, &toy_ring, WEFT_ALLGATHER, 4e6, false).time_s, ring);
}

static void a_long_message_waits_for_its_receive(void **state)
{
    struct weft_plan_facts facts = round_facts(1, 2, 2);

    (void)state;
    facts.eager_max = 100;
    double late = run_plan(&facts, &toy_chain, WEFT_BROADCAST, 1000, true).time_s;
    NEAR(late,
         10e-6 + 1e-6 + 10e-6 + 1e-6 + 1e-6); /* the word that it is ready, then the message */
}

static void ranks_without_a_core_wait_for_one(void **state)
{
    struct weft_plan_facts enough = round_facts(1, 8, 8), few = round_facts(1, 8, 2);

    (void)state;
    double fast = run_plan(&enough, &toy_ring, WEFT_ALLGATHER, 8e6, false).time_s;
    double slow = run_plan(&few, &toy_ring, WEFT_ALLGATHER, 8e6, false).time_s;
    assert_true(slow > 3 * fast);
    /* a star leaves most ranks idle: it suffers less */
    double star = run_plan(&enough, &toy_star, WEFT_ALLREDUCE, 1e6, false).time_s;
    double star_few = run_plan(&few, &toy_star, WEFT_ALLREDUCE, 1e6, false).time_s;
    assert_true(star_few > star && star_few < 3 * star);
}

static void shared_slots_cost_copies_and_a_flag(void **state)
{
    struct weft_plan_facts facts = round_facts(1, 4, 4);

    (void)state;
    facts.inside = WEFT_INSIDE_SHM;
    double near = run_plan(&facts, &toy_slots, WEFT_ALLREDUCE, 1e6, true).time_s;
    NEAR(near, 1e6 / 5e9 + 1e-7 + 1e6 * (4 + 1) / 3 / 2e9);
    facts.calibration.flag_s = 1e-6;
    NEAR(run_plan(&facts, &toy_slots, WEFT_ALLREDUCE, 1e6, true).time_s, near - 1e-7 + 1e-6);
}

struct classes {
    const struct weft_plan_builder *builder;
    weft_coll_t coll;
    uint32_t symmetry;
};

static void one_rank_per_class_gives_the_full_answer(void **state)
{
    static const struct classes all[] = {
        {&toy_ring, WEFT_ALLGATHER, WEFT_SYMMETRY_ROTATE},
        {&toy_doubling, WEFT_ALLREDUCE, WEFT_SYMMETRY_XOR},
        {&toy_slots, WEFT_ALLREDUCE, WEFT_SYMMETRY_ROTATE},
        {&toy_star, WEFT_ALLREDUCE, WEFT_SYMMETRY_NONE},
    };
    static const uint32_t layouts[][3] = {{1, 64, 64},  {1, 64, 8}, {64, 1, 4}, {16, 4, 8},
                                          {128, 8, 16}, {32, 8, 2}, {2, 2, 1}};

    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(all); i++) {
        for (size_t k = 0; k < WEFT_COUNT_OF(layouts); k++) {
            struct weft_plan_facts facts = round_facts(layouts[k][0], layouts[k][1], layouts[k][2]);
            bool is_shared = (all[i].builder->traits & WEFT_PLAN_SHARED) != 0;
            facts.nic_rate = 3e8;
            if (is_shared && facts.hosts > 1) {
                continue;
            }
            for (uint64_t size = 64; size < 100000000; size *= 1000) {
                double bytes = (double)size;
                struct weft_plan_cost full =
                    run_plan(&facts, all[i].builder, all[i].coll, bytes, true);
                struct weft_plan_cost part =
                    run_plan(&facts, all[i].builder, all[i].coll, bytes, false);
                assert_int_equal(part.symmetry, all[i].symmetry);
                assert_int_equal(full.classes, facts.ranks);
                assert_int_equal(part.classes, all[i].symmetry == WEFT_SYMMETRY_NONE ? facts.ranks
                                               : facts.hosts == 1                    ? 1
                                                                  : facts.host_ranks);
                NEAR(part.time_s, full.time_s);
                NEAR(part.total_inside, full.total_inside);
                NEAR(part.total_between, full.total_between);
                NEAR(part.nic_out, full.nic_out);
                assert_true(part.messages == full.messages);
            }
        }
    }
}

static void more_bytes_never_take_less_time(void **state)
{
    static const struct classes all[] = {{&toy_ring, WEFT_ALLGATHER, 0},
                                         {&toy_doubling, WEFT_ALLREDUCE, 0},
                                         {&toy_star, WEFT_ALLREDUCE, 0},
                                         {&toy_chain, WEFT_BROADCAST, 0}};

    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(all); i++) {
        struct weft_plan_facts facts = round_facts(4, 4, 2);
        double before = 0;
        facts.eager_max = 1e12; /* where the receive begins to be waited for, time jumps */
        for (uint64_t size = 0; size < 1000000000; size = size * 3 / 2 + 8) {
            double bytes = (double)size;
            double now = run_plan(&facts, all[i].builder, all[i].coll, bytes, false).time_s;
            assert_true(now >= before);
            before = now;
        }
    }
}

static void the_critical_path_follows_the_chain(void **state)
{
    struct weft_plan_facts facts = round_facts(1, 8, 8);
    struct weft_plan_sim *sim = weft_plan_sim_open();
    struct weft_plan_run run = {.bytes = 1000, .path_max = 16};
    struct weft_plan_cost cost;
    struct weft_plan plan;
    uint32_t count;

    (void)state;
    assert_true(weft_plan_shape(&toy_chain, WEFT_BROADCAST, 8, 0, 1, &plan));
    assert_int_equal(weft_plan_sim_run(sim, &facts, &plan, &run, &cost), WEFT_RUN_DONE);
    const struct weft_plan_hop *path = weft_plan_sim_path(sim, &count);
    assert_int_equal(cost.last_rank, 7);
    assert_int_equal(count, 7);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(path[i].from, i);
        assert_int_equal(path[i].to, i + 1);
        assert_true(i == 0 || path[i].time_s > path[i - 1].time_s);
    }
    /* in a ring run by one rank of its class the path still goes round */
    assert_true(weft_plan_shape(&toy_ring, WEFT_ALLGATHER, 8, 0, 1, &plan));
    assert_int_equal(weft_plan_sim_run(sim, &facts, &plan, &run, &cost), WEFT_RUN_DONE);
    path = weft_plan_sim_path(sim, &count);
    assert_int_equal(cost.classes, 1);
    assert_int_equal(count, 7);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(path[i].to, (path[i].from + 1) % 8);
        assert_int_equal(path[i].from, i == 0 ? path[0].from : path[i - 1].to);
    }
    weft_plan_sim_close(sim);
}

/* ---- plans that are wrong, and runs that are too long ---- */

static bool stuck_step(const struct weft_plan *plan, uint32_t rank, uint32_t round, uint32_t index,
                       struct weft_plan_step *step_p)
{
    bool is_there = toy_ring_step(plan, rank, round, index, step_p);
    if (rank == 2 && round == 1 && index == 0) { /* sends past its neighbour */
        step_p->peer = (rank + 2) % plan->ranks;
    }
    return is_there;
}

static void a_plan_that_waits_for_ever_is_said_to(void **state)
{
    struct weft_plan_builder stuck = toy_ring;
    struct weft_plan_facts facts = round_facts(1, 6, 6);
    struct weft_plan_sim *sim = weft_plan_sim_open();
    struct weft_plan_run run = {.bytes = 1000};
    struct weft_plan_cost cost;
    struct weft_plan plan;

    (void)state;
    stuck.step = stuck_step;
    assert_true(weft_plan_shape(&stuck, WEFT_ALLGATHER, 6, 0, 1, &plan));
    assert_int_equal(weft_plan_sim_run(sim, &facts, &plan, &run, &cost), WEFT_RUN_STUCK);
    run.steps_max = 10;
    run.is_full = true;
    assert_true(weft_plan_shape(&toy_ring, WEFT_ALLGATHER, 6, 0, 1, &plan));
    assert_int_equal(weft_plan_sim_run(sim, &facts, &plan, &run, &cost), WEFT_RUN_TOO_LONG);
    run.steps_max = 0;
    assert_int_equal(weft_plan_sim_run(sim, &facts, &plan, &run, &cost), WEFT_RUN_DONE);
    weft_plan_sim_close(sim);
}

static bool heavy_step(const struct weft_plan *plan, uint32_t rank, uint32_t round, uint32_t index,
                       struct weft_plan_step *step_p)
{
    bool is_there = toy_ring_step(plan, rank, round, index, step_p);
    if (rank == 1 && index == 1) { /* one rank does more than the others */
        step_p->kind = WEFT_STEP_RECV_REDUCE;
    }
    return is_there;
}

static bool long_step(const struct weft_plan *plan, uint32_t rank, uint32_t round, uint32_t index,
                      struct weft_plan_step *step_p)
{
    bool is_there = toy_ring_step(plan, rank, round, index, step_p);
    struct weft_plan_ref *ref = index == 0 ? &step_p->from : &step_p->to;
    if (rank == (index == 0 ? 1 : 2)) { /* rank 1 sends more, rank 2 gets it */
        ref->blocks *= 2;
    }
    return is_there;
}

static void a_rank_that_differs_is_seen(void **state)
{
    struct weft_plan_builder heavy = toy_ring, longer = toy_ring;
    struct weft_plan_facts facts = round_facts(1, 50, 50);

    (void)state;
    heavy.step = heavy_step;
    assert_int_equal(run_plan(&facts, &heavy, WEFT_ALLGATHER, 1e6, false).classes, 50);
    longer.step = long_step;
    assert_int_equal(run_plan(&facts, &longer, WEFT_ALLGATHER, 1e6, false).classes, 50);
}

static void a_hundred_thousand_ranks_are_quick(void **state)
{
    struct weft_plan_facts facts = round_facts(12500, 8, 64);

    (void)state;
    facts.nic_rate = 12.5e9;
    facts.nics = 4;
    struct weft_plan_cost cost = run_plan(&facts, &toy_ring, WEFT_ALLGATHER, 1e9, false);
    assert_int_equal(cost.classes, 8);
    /* every rank passes on all pieces but its own */
    NEAR(cost.total_inside + cost.total_between, 1e9 * 99999);
    NEAR(cost.total_between, 1e9 / 1e5 * 99999 * 12500);
    assert_true(cost.steps < 4000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_costs_what_its_path_says),
        cmocka_unit_test(a_slow_wire_bounds_a_message),
        cmocka_unit_test(ranks_of_a_host_share_its_nic),
        cmocka_unit_test(a_host_takes_one_message_after_the_other),
        cmocka_unit_test(two_that_send_to_each_other_are_slower),
        cmocka_unit_test(a_long_message_waits_for_its_receive),
        cmocka_unit_test(ranks_without_a_core_wait_for_one),
        cmocka_unit_test(shared_slots_cost_copies_and_a_flag),
        cmocka_unit_test(one_rank_per_class_gives_the_full_answer),
        cmocka_unit_test(more_bytes_never_take_less_time),
        cmocka_unit_test(the_critical_path_follows_the_chain),
        cmocka_unit_test(a_plan_that_waits_for_ever_is_said_to),
        cmocka_unit_test(a_rank_that_differs_is_seen),
        cmocka_unit_test(a_hundred_thousand_ranks_are_quick),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
