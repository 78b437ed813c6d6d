/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/choose.h"
#include "toy_plans.h"

#include <math.h>
#include <string.h>

static struct weft_plan_facts facts_of(uint32_t hosts, uint32_t host_ranks, uint32_t cores,
                                       uint32_t inside)
{
    struct weft_plan_facts facts;

    weft_plan_facts_default(hosts * host_ranks, cores, &facts);
    facts.hosts = hosts;
    facts.host_ranks = host_ranks;
    facts.inside = inside;
    return facts;
}

static struct weft_plan_ask ask_for(weft_coll_t coll, double bytes)
{
    return (struct weft_plan_ask){.coll = coll, .bytes = bytes, .is_equal = true, .algo = ""};
}

static const char *name_of(const struct weft_plan_facts *facts, const struct weft_plan_ask *ask)
{
    struct weft_plan plan;

    assert_int_equal(weft_plan_choose(facts, ask, &plan, NULL), WEFT_OK);
    assert_int_equal(plan.coll, ask->coll);
    assert_int_equal(plan.ranks, facts->ranks);
    return plan.builder->name;
}

/* ---- every operation has a plan ---- */

static void every_operation_has_a_plan_everywhere(void **state)
{
    static const uint32_t layouts[][3] = {{1, 1, 2},  {1, 2, 2},  {1, 3, 2},  {1, 8, 2},
                                          {1, 8, 16}, {2, 1, 2},  {2, 4, 8},  {3, 5, 2},
                                          {7, 1, 1},  {1, 64, 2}, {16, 8, 16}};
    static const double sizes[] = {0, 8, 1e3, 1e5, 1e7, 1e10};

    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(layouts); i++) {
        for (uint32_t inside = 0; inside < 2; inside++) {
            struct weft_plan_facts facts =
                facts_of(layouts[i][0], layouts[i][1], layouts[i][2], inside);
            for (unsigned k = 0; k < WEFT_COLLS * WEFT_COUNT_OF(sizes); k++) {
                struct weft_plan_ask ask =
                    ask_for((weft_coll_t)(k % WEFT_COLLS), sizes[k / WEFT_COLLS]);
                name_of(&facts, &ask);
                ask.is_equal = false;
                name_of(&facts, &ask);
            }
        }
    }
}

static void an_explanation_changes_nothing(void **state)
{
    (void)state;
    for (unsigned k = 0; k < 4 * WEFT_COLLS; k++) {
        struct weft_plan_facts facts = facts_of(k % 2 + 1, 6, 4, k / 2 % 2);
        struct weft_plan_ask ask = ask_for((weft_coll_t)(k % WEFT_COLLS), 3e6);
        struct weft_plan without, with, predicted;
        struct weft_plan_choice choice;
        double time_s;

        assert_int_equal(weft_plan_choose(&facts, &ask, &without, NULL), WEFT_OK);
        assert_int_equal(weft_plan_choose(&facts, &ask, &with, &choice), WEFT_OK);
        assert_int_equal(weft_plan_predict(&facts, &ask, &predicted, &time_s), WEFT_OK);
        assert_memory_equal(&without, &with, sizeof(with));
        assert_memory_equal(&without, &predicted, sizeof(with));
        assert_string_equal(choice.option[0].name, with.builder->name);
        assert_true(choice.option[0].time_s == time_s);
        assert_null(choice.option[0].why_not);
    }
}

/* ---- what was measured is what is chosen ---- */

static void one_host_follows_the_rule_for_shared_memory(void **state)
{
    struct weft_plan_facts facts = facts_of(1, 4, 2, WEFT_INSIDE_SHM);
    struct weft_plan_ask ask = ask_for(WEFT_ALLREDUCE, 65536);
    struct weft_plan plan;

    (void)state;
    assert_string_equal(name_of(&facts, &ask), "oneshot");
    ask.bytes = 65537;
    assert_string_equal(name_of(&facts, &ask), "staged");
    /* what a rank shows counts: a quarter of it here */
    ask = ask_for(WEFT_ALLGATHER, 4 * 65536);
    assert_string_equal(name_of(&facts, &ask), "oneshot");
    ask = ask_for(WEFT_BARRIER, 0);
    assert_string_equal(name_of(&facts, &ask), "oneshot");
    ask = ask_for(WEFT_ALLREDUCE, 2000);
    assert_string_equal(name_of(&facts, &ask), "oneshot");
    facts.calibration.oneshot_max = 1000;
    assert_string_equal(name_of(&facts, &ask), "staged");
    /* chunks: 256K while all fits the cache, 1M beyond, less where the slots are small */
    ask = ask_for(WEFT_ALLREDUCE, 2 << 20);
    assert_int_equal(weft_plan_choose(&facts, &ask, &plan, NULL), WEFT_OK);
    assert_int_equal(plan.segments, 8);
    ask.bytes = 64 << 20;
    assert_int_equal(weft_plan_choose(&facts, &ask, &plan, NULL), WEFT_OK);
    assert_int_equal(plan.segments, 64);
    facts.slot_room = 1 << 20;
    assert_int_equal(weft_plan_choose(&facts, &ask, &plan, NULL), WEFT_OK);
    assert_int_equal(plan.segments, 256);
}

static void slots_always_fit_their_room(void **state)
{
    (void)state;
    for (uint32_t ranks = 2; ranks <= 65; ranks += 7) {
        struct weft_plan_facts facts = facts_of(1, ranks, 2, WEFT_INSIDE_SHM);
        facts.slot_room = 65536;
        for (uint64_t size = 1; size < UINT64_C(10000000000); size *= 7) {
            double bytes = (double)size;
            for (unsigned coll = 0; coll < WEFT_COLLS; coll++) {
                struct weft_plan_ask ask = ask_for((weft_coll_t)coll, bytes);
                struct weft_plan plan;
                assert_int_equal(weft_plan_choose(&facts, &ask, &plan, NULL), WEFT_OK);
                if (plan.slots > 0) {
                    double blocks =
                        plan.parts > 0 ? plan.parts : (double)plan.ranks * plan.segments;
                    assert_true(ceil(bytes / blocks / 64) * 64 * plan.slots * plan.slot_blocks <=
                                facts.slot_room);
                }
            }
        }
    }
}

static bool is_one_of(const char *name, const char *const *names)
{
    while (*names != NULL && strcmp(*names, name) != 0) {
        names++;
    }
    return *names != NULL;
}

/* The model has them within 1 %: with a core for each rank it may be either. */
static void where_ranks_share_cores_few_long_messages_at_once_win_a_tie(void **state)
{
    struct weft_plan_facts facts = facts_of(1, 8, 2, WEFT_INSIDE_TCP);
    struct weft_plan_ask ask = ask_for(WEFT_ALLTOALL, 64 << 20);

    (void)state;
    assert_string_equal(name_of(&facts, &ask), "pairwise");
    ask = ask_for(WEFT_BROADCAST, 4 << 20);
    assert_string_equal(name_of(&facts, &ask), "chain");
    ask = ask_for(WEFT_BROADCAST, 256 << 10); /* short ones do not mind */
    assert_string_not_equal(name_of(&facts, &ask), "chain");
    facts = facts_of(1, 8, 16, WEFT_INSIDE_TCP);
    ask = ask_for(WEFT_ALLTOALL, 64 << 20);
    assert_string_equal(name_of(&facts, &ask), "spread");
}

static void a_crowded_host_over_tcp_sends_few_messages(void **state)
{
    static const char *const few[] = {"star", "binomial", NULL};
    static const char *const straight[] = {"direct", "halving", "pairwise", NULL};
    struct weft_plan_facts facts = facts_of(1, 8, 2, WEFT_INSIDE_TCP);
    struct weft_plan_ask ask = ask_for(WEFT_ALLREDUCE, 8);

    (void)state;
    assert_true(is_one_of(name_of(&facts, &ask), few));
    ask.bytes = 64 << 20;
    assert_true(is_one_of(name_of(&facts, &ask), straight));
    ask = ask_for(WEFT_ALLTOALL, 8 * 64);
    assert_string_equal(name_of(&facts, &ask), "bruck");
    ask.bytes = 64 << 20;
    assert_string_not_equal(name_of(&facts, &ask), "bruck");
}

static void several_hosts_of_several_ranks_go_by_slices(void **state)
{
    struct weft_plan_facts facts = facts_of(2, 4, 8, WEFT_INSIDE_SHM);
    struct weft_plan_ask ask = ask_for(WEFT_ALLREDUCE, 64 << 20);
    struct weft_plan plan;

    (void)state;
    facts.nic_rate = 125e6;
    assert_int_equal(weft_plan_choose(&facts, &ask, &plan, NULL), WEFT_OK);
    assert_ptr_equal(plan.builder, &weft_plan_hierarchical);
    assert_int_equal(plan.radix, 4);
    facts.composed = 0;
    assert_string_not_equal(name_of(&facts, &ask), "hierarchical");
}

static void a_list_of_hosts_in_order_changes_nothing(void **state)
{
    uint32_t host_of[2048];

    (void)state;
    for (uint32_t rank = 0; rank < 2048; rank++) {
        host_of[rank] = rank / 4;
    }
    for (unsigned coll = 0; coll < WEFT_COLLS; coll++) {
        struct weft_plan_facts facts = facts_of(512, 4, 8, WEFT_INSIDE_SHM), listed = facts;
        struct weft_plan_ask ask = ask_for((weft_coll_t)coll, 1e6);
        struct weft_plan plan, same;
        double time_s, same_s;
        listed.host_of = host_of;
        assert_int_equal(weft_plan_predict(&facts, &ask, &plan, &time_s), WEFT_OK);
        assert_int_equal(weft_plan_predict(&listed, &ask, &same, &same_s), WEFT_OK);
        assert_memory_equal(&plan, &same, sizeof(plan));
        assert_true(time_s > 0 && time_s == same_s);
    }
}

/* ---- phases ---- */

static void phases_divide_the_data_and_the_nics(void **state)
{
    struct weft_plan_facts facts = facts_of(3, 4, 8, WEFT_INSIDE_SHM);
    struct weft_plan_ask ask = ask_for(WEFT_ALLREDUCE, 1200);
    struct weft_plan_phase phase[WEFT_PLAN_PHASES];

    (void)state;
    facts.nics = 2;
    facts.nic_rate = 100;
    assert_int_equal(weft_plan_phases(&facts, &ask, phase), 3);
    assert_int_equal(phase[0].ask.coll, WEFT_REDUCE_SCATTER);
    assert_int_equal(phase[1].ask.coll, WEFT_ALLREDUCE);
    assert_int_equal(phase[2].ask.coll, WEFT_ALLGATHER);
    assert_true(phase[0].ask.bytes == 1200 && phase[1].ask.bytes == 300);
    assert_int_equal(phase[0].facts.ranks, 4);
    assert_int_equal(phase[0].facts.hosts, 1);
    assert_int_equal(phase[1].facts.ranks, 3);
    assert_int_equal(phase[1].facts.hosts, 3);
    assert_int_equal(phase[1].facts.host_ranks, 1);
    assert_true(phase[1].facts.nic_rate * phase[1].facts.nics == 50);
    facts.ranks = 11; /* one host has fewer */
    assert_int_equal(weft_plan_phases(&facts, &ask, phase), 0);
    facts = facts_of(1, 4, 8, WEFT_INSIDE_SHM);
    assert_int_equal(weft_plan_phases(&facts, &ask, phase), 0);
}

/* ---- deterministic mode ---- */

static void deterministic_mode_takes_only_what_adds_in_rank_order(void **state)
{
    (void)state;
    for (unsigned k = 0; k < 60; k++) {
        struct weft_plan_facts facts = facts_of(k % 3 + 1, k % 5 + 1, 4, k % 2);
        struct weft_plan_ask ask = ask_for((weft_coll_t)(k % WEFT_COLLS), k % 7 == 0 ? 8 : 5e6);
        struct weft_plan_choice choice;
        struct weft_plan plan;
        ask.is_deterministic = true;
        assert_int_equal(weft_plan_choose(&facts, &ask, &plan, &choice), WEFT_OK);
        if (!weft_plan_is_reduction(ask.coll)) {
            continue;
        }
        assert_true((plan.builder->traits & WEFT_PLAN_IN_RANK_ORDER) != 0);
        for (uint32_t i = 0; i < choice.count; i++) {
            const struct weft_plan_builder *other = weft_plan_find(choice.option[i].name);
            assert_true(choice.option[i].why_not != NULL ||
                        (other != NULL && (other->traits & WEFT_PLAN_IN_RANK_ORDER) != 0));
        }
    }
}

static void deterministic_mode_refuses_another_by_name(void **state)
{
    struct weft_plan_facts facts = facts_of(1, 4, 4, WEFT_INSIDE_TCP);
    struct weft_plan_ask ask = ask_for(WEFT_ALLREDUCE, 1e6);
    struct weft_plan plan;

    (void)state;
    ask.algo = "ring";
    assert_string_equal(name_of(&facts, &ask), "ring");
    ask.is_deterministic = true;
    assert_int_equal(weft_plan_choose(&facts, &ask, &plan, NULL), WEFT_ERR_UNSUPPORTED);
    assert_non_null(strstr(weft_error_text(), "allreduce with 4 ranks: ring does not add in rank "
                                              "order, as deterministic mode demands; possible: "));
    assert_non_null(strstr(weft_error_text(), "direct"));
    assert_null(strstr(weft_error_text(), "halving"));
    ask.coll = WEFT_ALLGATHER; /* nothing is added there */
    assert_string_equal(name_of(&facts, &ask), "ring");
}

/* ---- names ---- */

static void a_name_is_taken_or_refused_with_those_that_can(void **state)
{
    struct weft_plan_facts facts = facts_of(1, 8, 4, WEFT_INSIDE_TCP);
    struct weft_plan_ask ask = ask_for(WEFT_ALLTOALL, 1e6);
    struct weft_plan plan;

    (void)state;
    ask.algo = "alltoall:ring";
    assert_int_equal(weft_plan_choose(&facts, &ask, &plan, NULL), WEFT_ERR_UNSUPPORTED);
    assert_string_equal(weft_error_text(),
                        "alltoall with 8 ranks: ring does not do this operation; "
                        "possible: bruck, pairwise, spread");
    ask.algo = "staged";
    assert_int_equal(weft_plan_choose(&facts, &ask, &plan, NULL), WEFT_ERR_UNSUPPORTED);
    assert_non_null(strstr(weft_error_text(), "staged needs all ranks on one host"));
    /* a bare name is for the operations that it can do */
    ask.algo = "ring";
    assert_string_not_equal(name_of(&facts, &ask), "ring");
    ask.is_demanded = true; /* … unless it was said of this one */
    assert_int_equal(weft_plan_choose(&facts, &ask, &plan, NULL), WEFT_ERR_UNSUPPORTED);
    assert_non_null(strstr(weft_error_text(), "ring does not do this operation"));
    ask.is_demanded = false;
    ask.algo = "pairwise";
    assert_string_equal(name_of(&facts, &ask), "pairwise");
    ask.algo = "ring,alltoall:bruck,broadcast:chain";
    assert_string_equal(name_of(&facts, &ask), "bruck");
    ask.algo = "alltoall:bruck,spread"; /* its own word counts, wherever it stands */
    assert_string_equal(name_of(&facts, &ask), "bruck");
    ask = ask_for(WEFT_ALLREDUCE, 1e6);
    ask.algo = "alltoall:bruck,ring";
    assert_string_equal(name_of(&facts, &ask), "ring");
    ask.algo = "hierarchical"; /* there is one host */
    assert_string_not_equal(name_of(&facts, &ask), "hierarchical");
    ask.algo = "allreduce:hierarchical";
    assert_int_equal(weft_plan_choose(&facts, &ask, &plan, NULL), WEFT_ERR_UNSUPPORTED);
}

/* A root's pieces are its own business: whatever their lengths, the same plan is taken, and they only say how
 * long it takes. */
static void lengths_that_not_all_ranks_know_do_not_choose(void **state)
{
    static const weft_coll_t colls[] = {WEFT_GATHER, WEFT_SCATTER, WEFT_ALLTOALL};

    (void)state;
    for (unsigned i = 0; i < 2 * WEFT_COUNT_OF(colls); i++) {
        struct weft_plan_facts facts =
            facts_of(1, 8, 2, i % 2 == 0 ? WEFT_INSIDE_SHM : WEFT_INSIDE_TCP);
        struct weft_plan_ask ask = ask_for(colls[i / 2], 0);
        struct weft_plan empty, plan;
        double first_s, time_s = 0;
        weft_plan_ask_lengths(&ask, 0, true);
        assert_true(ask.is_private && !ask.is_equal);
        assert_int_equal(weft_plan_predict(&facts, &ask, &empty, &first_s), WEFT_OK);
        for (uint64_t bytes = 100; bytes < 1000000000; bytes *= 10) {
            struct weft_plan_choice choice;
            weft_plan_ask_lengths(&ask, (double)bytes, true);
            assert_int_equal(weft_plan_predict(&facts, &ask, &plan, &time_s), WEFT_OK);
            assert_ptr_equal(plan.builder, empty.builder);
            assert_int_equal(plan.segments, empty.segments);
            assert_int_equal(weft_plan_choose(&facts, &ask, &plan, &choice), WEFT_OK);
            assert_ptr_equal(plan.builder, empty.builder);
            assert_true(choice.option[0].time_s == time_s);
        }
        assert_true(time_s > 10 * first_s);
    }
}

static void the_lengths_of_others_are_known(void **state)
{
    (void)state;
    for (unsigned coll = 0; coll < WEFT_COLLS; coll++) {
        bool is_rooted = coll == WEFT_GATHER || coll == WEFT_SCATTER;
        struct weft_plan_ask ask = {.coll = (weft_coll_t)coll};
        weft_plan_ask_lengths(&ask, 1000, false);
        assert_int_equal(ask.is_private, is_rooted);
        assert_int_equal(ask.is_equal, !is_rooted);
        assert_true(ask.bytes == (coll == WEFT_BARRIER ? 0 : 1000));
    }
}

static void pieces_of_different_sizes_leave_some_out(void **state)
{
    struct weft_plan_facts facts = facts_of(1, 4, 4, WEFT_INSIDE_SHM);
    struct weft_plan_ask ask = ask_for(WEFT_ALLGATHER, 1000);
    struct weft_plan plan;

    (void)state;
    ask.algo = "oneshot";
    assert_string_equal(name_of(&facts, &ask), "oneshot");
    ask.is_equal = false;
    assert_int_equal(weft_plan_choose(&facts, &ask, &plan, NULL), WEFT_ERR_UNSUPPORTED);
    assert_non_null(strstr(weft_error_text(), "oneshot needs pieces of one size; possible: ring"));
    ask.algo = "";
    assert_int_equal(weft_plan_choose(&facts, &ask, &plan, NULL), WEFT_OK);
    assert_int_equal(plan.builder->traits & WEFT_PLAN_EQUAL_ONLY, 0);
}

static void words_that_are_no_names_are_said(void **state)
{
    static const struct {
        const char *algo, *text;
    } bad[] = {
        {"rong", "there is no algorithm \"rong\""},
        {",", "nothing before the comma in \",\""},
        {"ring,,allgather:bruck", "nothing before the comma in \",allgather:bruck\""},
        {"ring,chain", "a second algorithm for every operation at \"chain\""},
        {"allreduce:ring,allreduce:ring", "a second algorithm for allreduce at \"allreduce:ring\""},
        {"allreduce:rong", "there is no algorithm \"rong\""},
        {"allredcue:ring", "there is no operation \"allredcue\""},
        {"ring,broadcast:", "there is no algorithm \"\""},
        {":ring", "there is no operation \"\""},
        {"ring:allreduce", "there is no operation \"ring\""},
    };
    char name[WEFT_PLAN_NAME_LEN] = "untouched";

    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(bad); i++) {
        assert_int_equal(weft_plan_algo_of(bad[i].algo, WEFT_ALLREDUCE, name), WEFT_ERR_INVALID);
        assert_non_null(strstr(weft_error_text(), bad[i].text));
        assert_string_equal(name, "untouched");
    }
    assert_int_equal(weft_plan_algo_of(" ring , broadcast:chain,", WEFT_ALLREDUCE, name), WEFT_OK);
    assert_string_equal(name, "ring");
    assert_int_equal(weft_plan_algo_of("", WEFT_ALLREDUCE, name), WEFT_OK);
    assert_string_equal(name, "");
}

/* Who asked in a call has set no variable. */
static void an_error_says_where_the_name_stands(void **state)
{
    struct weft_plan_facts facts = facts_of(1, 4, 4, WEFT_INSIDE_SHM);
    struct weft_plan_ask ask = ask_for(WEFT_ALLREDUCE, 1000);
    struct weft_plan plan;

    (void)state;
    ask.algo = "rong";
    assert_int_equal(weft_plan_choose(&facts, &ask, &plan, NULL), WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_text(), "WEFT_ALGO: there is no algorithm \"rong\""));
    ask.is_demanded = true;
    assert_int_equal(weft_plan_choose(&facts, &ask, &plan, NULL), WEFT_ERR_INVALID);
    assert_null(strstr(weft_error_text(), "WEFT_ALGO"));
    assert_non_null(strstr(weft_error_text(), "algorithm: there is no algorithm \"rong\""));
}

/* ---- predictions ---- */

static void more_bytes_never_take_less_time(void **state)
{
    struct weft_plan_facts facts = facts_of(4, 1, 4, WEFT_INSIDE_SHM);

    (void)state;
    facts.eager_max = 1e15; /* where the receive begins to be waited for, time jumps */
    for (const struct weft_plan_builder *const *at = weft_plan_builders; *at != NULL; at++) {
        for (unsigned coll = 0; coll < WEFT_COLLS; coll++) {
            struct weft_plan_ask ask = ask_for((weft_coll_t)coll, 0);
            double before = 0, now;
            struct weft_plan plan;
            ask.algo = (*at)->name;
            if ((*at)->colls >> coll == 0 || ((*at)->colls & 1u << coll) == 0 ||
                ((*at)->traits & WEFT_PLAN_SHARED) != 0) {
                continue;
            }
            for (uint64_t size = 0; size < 1000000000; size = size * 3 + 8) {
                ask.bytes = (double)size;
                assert_int_equal(weft_plan_predict(&facts, &ask, &plan, &now), WEFT_OK);
                if (now < before * 0.999) { /* another number of segments may cost a little */
                    fail_msg("%s by %s of %g bytes: %g after %g", weft_coll_name(ask.coll),
                             (*at)->name, ask.bytes, now, before);
                }
                before = now;
            }
        }
    }
}

/* Predicted from fewer segments, or fewer hosts, against the whole run. */
static void check_close(const struct weft_plan_facts *facts, const struct weft_plan *plan,
                        double bytes, double tolerance)
{
    struct weft_plan_sim *sim = weft_plan_sim_open();
    struct weft_plan_run run = {.bytes = bytes};
    struct weft_plan_cost cost;
    double predicted = weft_choose_predict(sim, facts, plan, bytes, 0);

    assert_int_equal(weft_plan_sim_run(sim, facts, plan, &run, &cost), WEFT_RUN_DONE);
    if (fabs(predicted / cost.time_s - 1) > tolerance) {
        fail_msg("%s by %s, %u ranks, %u segments: predicted %g, run %g",
                 weft_coll_name((weft_coll_t)plan->coll), plan->builder->name, plan->ranks,
                 plan->segments, predicted, cost.time_s);
    }
    weft_plan_sim_close(sim);
}

static void what_is_too_long_to_run_is_predicted_well(void **state)
{
    static const struct {
        const char *name;
        weft_coll_t coll;
        uint32_t segments;
    } plans[] = {{"chain", WEFT_BROADCAST, 64},     {"binary", WEFT_BROADCAST, 50},
                 {"ring", WEFT_ALLREDUCE, 1},       {"doubling", WEFT_ALLREDUCE, 1},
                 {"halving", WEFT_ALLREDUCE, 1},    {"direct", WEFT_ALLREDUCE, 1},
                 {"pairwise", WEFT_ALLTOALL, 1},    {"spread", WEFT_ALLGATHER, 1},
                 {"star", WEFT_REDUCE, 1},          {"binomial", WEFT_BROADCAST, 1},
                 {"linear", WEFT_GATHER, 1},        {"bruck", WEFT_ALLTOALL, 1},
                 {"dissemination", WEFT_BARRIER, 1}};
    struct weft_plan_facts facts = facts_of(256, 4, 8, WEFT_INSIDE_SHM);

    (void)state;
    facts.nic_rate = 3e9;
    for (size_t i = 0; i < WEFT_COUNT_OF(plans); i++) {
        struct weft_plan plan;
        assert_true(weft_plan_shape(weft_plan_find(plans[i].name), plans[i].coll, 1024, 0,
                                    plans[i].segments, &plan));
        check_close(&facts, &plan, 1e6, 0.2);
        check_close(&facts, &plan, 1e9, 0.2);
    }
}

static void sizes_of_a_bucket_are_near_each_other(void **state)
{
    (void)state;
    assert_int_equal(weft_plan_bucket(0), 0);
    for (uint64_t size = 100; size < UINT64_C(1000000000000); size = size * 101 / 100 + 1) {
        double bytes = (double)size;
        uint32_t bucket = weft_plan_bucket(bytes);
        assert_true(bucket < 256);
        assert_true(weft_plan_bucket(bytes * 1.3) > bucket);
        assert_true(weft_plan_bucket(bytes * 1.01) - bucket <= 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operation_has_a_plan_everywhere),
        cmocka_unit_test(an_explanation_changes_nothing),
        cmocka_unit_test(one_host_follows_the_rule_for_shared_memory),
        cmocka_unit_test(slots_always_fit_their_room),
        cmocka_unit_test(where_ranks_share_cores_few_long_messages_at_once_win_a_tie),
        cmocka_unit_test(a_crowded_host_over_tcp_sends_few_messages),
        cmocka_unit_test(several_hosts_of_several_ranks_go_by_slices),
        cmocka_unit_test(a_list_of_hosts_in_order_changes_nothing),
        cmocka_unit_test(phases_divide_the_data_and_the_nics),
        cmocka_unit_test(deterministic_mode_takes_only_what_adds_in_rank_order),
        cmocka_unit_test(deterministic_mode_refuses_another_by_name),
        cmocka_unit_test(a_name_is_taken_or_refused_with_those_that_can),
        cmocka_unit_test(pieces_of_different_sizes_leave_some_out),
        cmocka_unit_test(lengths_that_not_all_ranks_know_do_not_choose),
        cmocka_unit_test(the_lengths_of_others_are_known),
        cmocka_unit_test(words_that_are_no_names_are_said),
        cmocka_unit_test(an_error_says_where_the_name_stands),
        cmocka_unit_test(more_bytes_never_take_less_time),
        cmocka_unit_test(what_is_too_long_to_run_is_predicted_well),
        cmocka_unit_test(sizes_of_a_bucket_are_near_each_other),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
