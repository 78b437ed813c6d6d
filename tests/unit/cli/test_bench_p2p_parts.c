/* SPDX-License-Identifier: Apache-2.0 */
/* weft bench p2p: what it plans, checks and reports, without running anything. */
#include "cli_support.h"

#include <math.h>

#include "cli/bench_p2p.h"

/* ---- the bytes ---- */

static void bytes_arrive_as_they_were_filled(void **state)
{
    static const size_t lens[] = {1, 7, 8, 9, 4096, 100003};
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(lens); i++) {
        uint8_t *data = calloc(1, lens[i] + 1);
        size_t at = 77;
        assert_non_null(data);
        data[lens[i]] = 0x5a;
        weft_bench_p2p_fill(data, lens[i], 42);
        assert_int_equal(data[lens[i]], 0x5a);
        assert_int_equal(weft_bench_p2p_differ(data, lens[i], 42, &at), 0);
        assert_int_equal(at, 77);
        free(data);
    }
}

static void every_wrong_byte_is_counted_and_the_first_found(void **state)
{
    uint8_t data[100];
    size_t at = 0;
    (void)state;
    for (size_t first = 0; first < sizeof(data); first++) {
        weft_bench_p2p_fill(data, sizeof(data), 7);
        data[first] ^= 1;
        assert_int_equal(weft_bench_p2p_differ(data, sizeof(data), 7, &at), 1);
        assert_int_equal(at, first);
        data[99] ^= 0x80;
        assert_int_equal(weft_bench_p2p_differ(data, sizeof(data), 7, &at), first == 99 ? 1 : 2);
        assert_int_equal(at, first);
    }
}

/* A message of another size, batch or sender, or one shifted by a word, must not pass. */
static void bytes_of_elsewhere_are_wrong(void **state)
{
    uint8_t data[64];
    size_t at = 0;
    uint64_t seed = weft_bench_p2p_seed(64, 3, 0);
    const uint64_t others[] = {weft_bench_p2p_seed(64, 4, 0), weft_bench_p2p_seed(64, 3, 1),
                               weft_bench_p2p_seed(32, 3, 0)};
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(others); i++) {
        weft_bench_p2p_fill(data, sizeof(data), others[i]);
        assert_true(weft_bench_p2p_differ(data, sizeof(data), seed, &at) > 32);
    }
    weft_bench_p2p_fill(data, sizeof(data), seed);
    assert_true(weft_bench_p2p_differ(data + 8, sizeof(data) - 8, seed, &at) > 32);
}

/* ---- the plan ---- */

static struct p2p_arguments arguments_of(const char *modes)
{
    struct p2p_arguments arguments = {
        .modes = modes,
        .alloc = "private",
        .min_bytes = 8,
        .max_bytes = 64 << 20,
        .factor = 2,
        .warmup = -1,
        .check = 1,
    };
    const char *word = NULL;
    assert_true(weft_bench_p2p_read_modes(modes, arguments.is_wanted, &word));
    return arguments;
}

static void modes_are_names_or_all(void **state)
{
    bool wanted[P2P_OPS];
    const char *word = NULL;
    (void)state;
    assert_true(weft_bench_p2p_read_modes("bw,put_nbi", wanted, &word));
    assert_true(wanted[P2P_BW] && wanted[P2P_PUT_NBI]);
    assert_false(wanted[P2P_LAT] || wanted[P2P_BIBW] || wanted[P2P_MESH]);
    assert_true(weft_bench_p2p_read_modes("all", wanted, &word));
    for (int op = 0; op < P2P_OPS; op++) {
        assert_true(wanted[op]);
    }
    assert_false(weft_bench_p2p_read_modes("lat,b", wanted, &word));
    assert_string_equal(word, "b");
    assert_true(wanted[P2P_MESH]); /* nothing written */
    assert_false(weft_bench_p2p_read_modes("lat,", wanted, &word));
    assert_false(weft_bench_p2p_read_modes("", wanted, &word));
}

static void sizes_go_from_min_to_max(void **state)
{
    struct p2p_arguments arguments = arguments_of("lat");
    struct p2p_plan plan;
    (void)state;
    arguments.max_bytes = 100;
    arguments.factor = 3;
    weft_bench_p2p_plan(&arguments, 2, &plan);
    assert_int_equal(plan.count, 3);
    assert_int_equal(plan.series[0].bytes, 8);
    assert_int_equal(plan.series[1].bytes, 24);
    assert_int_equal(plan.series[2].bytes, 72);
    assert_int_equal(plan.series[2].first, plan.series[0].samples + plan.series[1].samples);
    free(plan.series);
}

static void windows_and_iterations_shrink_with_the_size(void **state)
{
    struct p2p_arguments arguments = arguments_of("lat,bw");
    struct p2p_plan plan;
    size_t samples = 0;
    (void)state;
    weft_bench_p2p_plan(&arguments, 2, &plan);
    for (size_t i = 0; i < plan.count; i++) {
        const struct p2p_series *series = &plan.series[i];
        size_t in_flight = series->bytes * (size_t)series->inflight;
        assert_true(in_flight <= 64 << 20 || series->inflight == 2);
        assert_true(series->op == P2P_LAT || series->inflight >= 2);
        assert_true(series->slots >= 1 && series->slots <= series->inflight);
        assert_true(plan.buffer_len >= series->bytes * (size_t)series->slots);
        assert_true(series->batch >= 1 && series->batch <= series->iters);
        if (series->op == P2P_LAT && series->bytes <= 65536) {
            assert_int_equal(series->iters, 2000);
        }
        if (series->bytes == 64 << 20) {
            assert_int_equal(series->iters, 10);
        }
        samples += series->samples;
    }
    assert_int_equal(plan.samples, samples);
    assert_int_equal(plan.inflight_max, 64);
    free(plan.series);
}

static void the_command_line_overrides(void **state)
{
    struct p2p_arguments arguments = arguments_of("bw");
    struct p2p_plan plan;
    (void)state;
    arguments.iters = 3;
    arguments.warmup = 0;
    arguments.inflight = 100;
    weft_bench_p2p_plan(&arguments, 2, &plan);
    for (size_t i = 0; i < plan.count; i++) {
        assert_int_equal(plan.series[i].iters, 3);
        assert_int_equal(plan.series[i].warmup, 0);
        assert_int_equal(plan.series[i].inflight, 100);
    }
    free(plan.series);
}

static void a_mesh_has_a_sample_per_pair_and_a_buffer_per_rank(void **state)
{
    struct p2p_arguments arguments = arguments_of("mesh");
    struct p2p_plan plan;
    (void)state;
    weft_bench_p2p_plan(&arguments, 7, &plan);
    assert_int_equal(plan.count, 1);
    assert_int_equal(plan.series[0].samples, 21 * plan.series[0].iters);
    assert_int_equal(plan.buffer_len, 7 * 8);
    free(plan.series);
}

static void meshbw_has_a_sample_each_way_and_sends_one_buffer(void **state)
{
    struct p2p_arguments arguments = arguments_of("meshbw");
    struct p2p_plan plan;
    (void)state;
    arguments.min_bytes = 1000;
    arguments.max_bytes = 2000;
    weft_bench_p2p_plan(&arguments, 5, &plan);
    assert_int_equal(plan.count, 2);
    assert_int_equal(plan.series[0].samples, 20 * plan.series[0].iters);
    assert_int_equal(plan.buffer_len, 5 * 2000);
    assert_int_equal(plan.send_len, 2000);
    assert_int_equal(plan.inflight_max, 5);
    free(plan.series);
}

/* The parts of all ranks together are one iteration, each sample once. */
static void samples_of_a_mesh_belong_to_one_rank_each(void **state)
{
    static const enum p2p_op ops[] = {P2P_MESH, P2P_MESHBW};
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(ops); i++) {
        for (int ranks = 2; ranks < 9; ranks++) {
            const struct p2p_series series = {.op = ops[i]};
            size_t first = 0, count = 0, all = 0;
            for (int rank = 0; rank < ranks; rank++) {
                weft_bench_p2p_mesh_own(&series, rank, ranks, &first, &count);
                assert_int_equal(first, all);
                all += count;
            }
            assert_int_equal(all, ranks * (ranks - 1) / (ops[i] == P2P_MESH ? 2 : 1));
        }
    }
}

/* ---- the report ---- */

/* One series of 8000 bytes whose samples take 1, 2 and 3 us. */
static struct p2p_shared *shared_of(const char *mode, struct p2p_plan *plan_p)
{
    struct p2p_arguments arguments = arguments_of(mode);
    arguments.min_bytes = arguments.max_bytes = 8000;
    arguments.iters = 3;
    weft_bench_p2p_plan(&arguments, 2, plan_p);
    struct p2p_shared *shared =
        aligned_alloc(64, (weft_bench_p2p_shared_len(plan_p) + 63) / 64 * 64);
    assert_non_null(shared);
    memset(shared, 0, weft_bench_p2p_shared_len(plan_p));
    for (unsigned i = 0; i < 3; i++) {
        weft_bench_p2p_samples(shared, plan_p)[i] = (i + 1) * UINT64_C(1000000);
    }
    *weft_bench_p2p_outcomes(shared) = (struct p2p_outcome){
        .probe_ns = {50, 60}, .limit_us = 1.5, .cpu_ns = 12000, .moved = 24000};
    return shared;
}

static void samples_become_figures(void **state)
{
    static const struct {
        const char *mode;
        double gbs;
    } cases[] = {{"lat", 4}, {"bw", 4}, {"bibw", 8}, {"rtt", 8}, {"put_quiet", 4}};
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(cases); i++) {
        struct p2p_plan plan;
        struct p2p_report report = {0};
        struct p2p_shared *shared = shared_of(cases[i].mode, &plan);
        weft_bench_p2p_report_add(&report, &plan, shared);
        assert_int_equal(report.count, 1);
        assert_float_equal(report.row[0].figures.p50, 2, 1e-9);
        assert_float_equal(report.row[0].figures.max, 3, 1e-9);
        assert_float_equal(report.row[0].gbs, cases[i].gbs, 1e-9);
        assert_float_equal(report.row[0].limit_pct, 75, 1e-9);
        assert_float_equal(report.row[0].cpu_s_per_gb, 0.5, 1e-9);
        assert_float_equal(report.row[0].probe_ns[1], 60, 1e-9);
        assert_int_equal(report.wrong, 0);
        free(report.row);
        free(shared);
        free(plan.series);
    }
}

/* Three ranks, two rounds; a message of 8000 bytes from i to j takes 1 + i + 3 j us. */
static unsigned us_between(unsigned from, unsigned to)
{
    return 1 + from + 3 * to;
}

static void a_matrix_has_every_pair_and_the_total(void **state)
{
    struct p2p_arguments arguments = arguments_of("meshbw");
    struct p2p_plan plan;
    struct p2p_report report = {0};
    (void)state;
    arguments.min_bytes = arguments.max_bytes = 8000;
    arguments.iters = 2;
    weft_bench_p2p_plan(&arguments, 3, &plan);
    struct p2p_shared *shared =
        aligned_alloc(64, (weft_bench_p2p_shared_len(&plan) + 63) / 64 * 64);
    assert_non_null(shared);
    memset(shared, 0, weft_bench_p2p_shared_len(&plan));
    uint64_t *samples = weft_bench_p2p_samples(shared, &plan);
    for (unsigned i = 0; i < 9; i++) {
        if (i / 3 != i % 3) {
            size_t index = weft_bench_p2p_flood_index((int)i / 3, (int)i % 3, 3);
            samples[index] = samples[6 + index] = us_between(i / 3, i % 3) * UINT64_C(1000000);
        }
    }
    *weft_bench_p2p_outcomes(shared) = (struct p2p_outcome){.pass_us = 12, .moved = 96000};
    weft_bench_p2p_report_add(&report, &plan, shared);
    const double *gbs = report.row[0].pair_gbs;
    assert_non_null(gbs);
    for (unsigned i = 0; i < 9; i++) {
        if (i / 3 == i % 3) {
            assert_true(isnan(gbs[i]));
        } else {
            assert_true(fabs(gbs[i] - 8.0 / us_between(i / 3, i % 3)) < 1e-9);
        }
    }
    assert_float_equal(report.row[0].gbs, 6 * 8.0 / 12, 1e-9);
    weft_bench_p2p_report_close(&report);
    free(shared);
    free(plan.series);
}

static void wrong_bytes_are_counted_and_named(void **state)
{
    struct p2p_plan plan;
    struct p2p_report report = {0};
    uint8_t recv[16000] = {[8003] = 0xee};
    struct p2p_shared *shared = shared_of("bw", &plan);
    struct p2p_rank rank = {
        .ground = &weft_bench_p2p_crew_ground,
        .plan = &plan,
        .shared = shared,
        .rank = 1,
        .recv = recv,
    };
    (void)state;
    weft_bench_p2p_found_wrong(&rank, plan.series, 8003, 5);
    weft_bench_p2p_found_wrong(&rank, plan.series, 1, 2);
    weft_bench_p2p_report_add(&report, &plan, shared);
    assert_int_equal(report.wrong, 7);
    assert_int_equal(report.row[0].wrong, 7);
    assert_has(report.wrong_text, "bw of 8000 bytes: 5 bytes at rank 1");
    assert_has(report.wrong_text, "the first at 3 of buffer 1 (0xee)");
    free(report.row);
    free(shared);
    free(plan.series);
}

static void the_median_is_the_middle(void **state)
{
    double odd[] = {9, 1, 5}, even[] = {4, 1, 2, 9};
    (void)state;
    assert_float_equal(weft_bench_median(odd, 3), 5, 1e-12);
    assert_float_equal(weft_bench_median(even, 4), 3, 1e-12);
}

/* ---- NICs ---- */

#define DEV_HEAD "Inter-|   Receive\n face |bytes packets\n"

static void what_each_nic_sent_is_the_difference(void **state)
{
    struct p2p_nics before, after, sum = {0};
    (void)state;
    weft_bench_p2p_nics_parse(DEV_HEAD "    lo: 500 1 0 0 0 0 0 0 500 1 0 0 0 0 0 0\n"
                                       "  eth0:7 1 0 0 0 0 0 0 1000 1 0 0 0 0 0 0\n"
                                       "  eth1: 9 1 0 0 0 0 0 0 0 1 0 0 0 0 0 0\n",
                              &before);
    assert_int_equal(before.count, 2);
    assert_string_equal(before.nic[1].name, "eth0");
    assert_int_equal(before.nic[1].sent, 1000);
    weft_bench_p2p_nics_parse(DEV_HEAD "    lo: 500 1 0 0 0 0 0 0 500 1 0 0 0 0 0 0\n"
                                       "  eth0: 7 1 0 0 0 0 0 0 4000000000000 1 0 0 0 0 0 0\n"
                                       "  eth1: 9 1 0 0 0 0 0 0 70 1 0 0 0 0 0 0\n",
                              &after);
    weft_bench_p2p_nics_add(&sum, &before, &after);
    weft_bench_p2p_nics_add(&sum, &before, &before); /* nothing, and nothing less */
    weft_bench_p2p_nics_add(&sum, &before, &after);
    assert_int_equal(sum.count, 3);
    assert_false(weft_bench_p2p_nics_counts(&sum.nic[0])); /* lo, nothing */
    assert_int_equal(sum.nic[1].sent, 2 * (4000000000000 - 1000));
    assert_string_equal(sum.nic[2].name, "eth1");
    assert_int_equal(sum.nic[2].sent, 140);
}

static void lines_that_are_no_nic_are_left_out(void **state)
{
    static const char *const texts[] = {
        "",
        DEV_HEAD,
        "eth0",
        "eth0:",
        "eth0: 1 2 3\n4 5 6 7 8 9 10\n",
        "eth0: a b c d e f g h i j\n",
        "a_name_that_is_too_long: 1 1 1 1 1 1 1 1 1 1\n",
        ": 1\n",
    };
    struct p2p_nics nics;
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(texts); i++) {
        weft_bench_p2p_nics_parse(texts[i], &nics);
        assert_int_equal(nics.count, 0);
    }
    weft_bench_p2p_nics_read(-1, &nics);
    assert_int_equal(nics.count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_arrive_as_they_were_filled),
        cmocka_unit_test(every_wrong_byte_is_counted_and_the_first_found),
        cmocka_unit_test(bytes_of_elsewhere_are_wrong),
        cmocka_unit_test(modes_are_names_or_all),
        cmocka_unit_test(sizes_go_from_min_to_max),
        cmocka_unit_test(windows_and_iterations_shrink_with_the_size),
        cmocka_unit_test(the_command_line_overrides),
        cmocka_unit_test(a_mesh_has_a_sample_per_pair_and_a_buffer_per_rank),
        cmocka_unit_test(meshbw_has_a_sample_each_way_and_sends_one_buffer),
        cmocka_unit_test(samples_of_a_mesh_belong_to_one_rank_each),
        cmocka_unit_test(samples_become_figures),
        cmocka_unit_test(a_matrix_has_every_pair_and_the_total),
        cmocka_unit_test(wrong_bytes_are_counted_and_named),
        cmocka_unit_test(the_median_is_the_middle),
        cmocka_unit_test(what_each_nic_sent_is_the_difference),
        cmocka_unit_test(lines_that_are_no_nic_are_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
