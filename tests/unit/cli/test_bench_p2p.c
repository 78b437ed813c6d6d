/* SPDX-License-Identifier: Apache-2.0 */
/* weft bench p2p: what it plans, checks and reports; then the command itself, briefly. */
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
    assert_float_equal(weft_bench_p2p_median(odd, 3), 5, 1e-12);
    assert_float_equal(weft_bench_p2p_median(even, 4), 3, 1e-12);
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

/* ---- the command ---- */

static void bad_usage_is_two_and_says_what(void **state)
{
    static const struct {
        const char *option, *value, *words;
    } cases[] = {
        {"--mode", "lat,bandwidth", "\"bandwidth\" is none of lat"},
        {"--path", "udp", "expected auto, shm or tcp"},
        {"--alloc", "mine", "expected private or shared"},
        {"-n", "1", "from 2 to 1024"},
        {"-f", "1", "--stepfactor 1"},
        {"-b", "128M", "is more than --maxbytes"},
        {"-c", "2", "--check 2"},
        {"--", "operand", "is not an option"},
        {"--strategy", "zigzag", "--strategy zigzag: expected split, rr or auto"},
        {"--lanes", "9", "--lanes 9"},
        {"--window", "129", "--window 129"},
        {"--chunk", "17M", "--chunk 17M"},
    };
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(cases); i++) {
        struct cli cli;
        cli_run(&cli, "bench", "p2p", cases[i].option, cases[i].value);
        assert_int_equal(cli.status, 2);
        assert_has(cli.err, cases[i].words);
        assert_string_equal(cli.out, "");
        cli_close(&cli);
    }
}

static void help_has_two_examples(void **state)
{
    struct cli cli;
    (void)state;
    cli_run(&cli, "bench", "p2p", "--help");
    assert_int_equal(cli.status, 0);
    assert_int_equal(support_count(cli.out, "\n  weft bench p2p "), 1);
    assert_int_equal(support_count(cli.out, "\n  weft lab "), 1);
    cli_close(&cli);
}

static void every_mode_runs_and_checks_its_bytes(void **state)
{
    static const char *const paths[] = {"shm", "tcp"}, *const allocs[] = {"shared", "private"};
    static const char *const keys[] = {
        "\"bench\": \"p2p\"", "\"probe_ns\": [",  "\"limit_pct\": ",    "\"lanes\": 1",
        "\"chunk\": 1048576", "\"nic_bytes\": {", "\"threads\": 0",     "\"strategy\": \"auto\"",
        "\"time_us\": {",     "\"algbw_gbs\": ",  "\"cpu_s_per_gb\": ", "\"inflight\": 3",
        "\"window\": 16",
    };
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(paths); i++) {
        struct cli cli;
        cli_run(&cli, "bench", "p2p", "--mode", "all", "-b", "1", "-e", "1M", "-f", "1024",
                "--iters", "5", "--inflight", "3", "--path", paths[i], "--alloc", allocs[i],
                "--json");
        assert_string_equal(cli.err, "");
        assert_int_equal(cli.status, 0);
        for (enum p2p_op op = P2P_LAT; op < P2P_OPS; op++) {
            char part[64];
            snprintf(part, sizeof(part), "\"op\": \"%s\"", weft_bench_p2p_op_name(op));
            assert_int_equal(support_count(cli.out, part), op == P2P_MESH ? 1 : 3);
        }
        for (size_t k = 0; k < WEFT_COUNT_OF(keys); k++) {
            assert_has(cli.out, keys[k]);
        }
        assert_int_equal(support_count(cli.out, "\"wrong\": 0"), 22);
        cli_close(&cli);
    }
}

static void ranks_may_be_threads(void **state)
{
    struct cli cli;
    (void)state;
    cli_run(&cli, "bench", "p2p", "--mode", "all", "-e", "64K", "-f", "8192", "--iters", "5",
            "--inflight", "3", "--threads", "--json");
    assert_string_equal(cli.err, "");
    assert_int_equal(cli.status, 0);
    assert_int_equal(support_count(cli.out, "\"threads\": 1"), 15);
    assert_int_equal(support_count(cli.out, "\"wrong\": 0"), 15);
    cli_close(&cli);
}

static void lanes_are_set_for_the_ranks(void **state)
{
    struct cli cli;
    (void)state;
    cli_run(&cli, "bench", "p2p", "-m", "bw", "-b", "1M", "-e", "1M", "--iters", "2", "--path",
            "tcp", "--lanes", "2", "--window", "5", "--chunk", "64K", "--strategy", "rr", "--json");
    assert_string_equal(cli.err, "");
    assert_int_equal(cli.status, 0);
    assert_has(cli.out, "\"lanes\": 2, \"window\": 5, \"chunk\": 65536, \"strategy\": \"rr\"");
    assert_has(cli.out, "\"nic_bytes\": {\"lo\": ");
    assert_true(support_number(cli.out, "\"nic_bytes\": {\"lo\": ", 0) > 2 * 64 << 20);
    cli_close(&cli);
}

static void a_rank_of_a_job_joins_it(void **state)
{
    struct cli cli;
    (void)state;
    cli_run(&cli, "run", "-n", "3", "--", WEFT_CLI_PATH, "bench", "p2p", "--mode", "all", "-e",
            "64K", "-f", "8192", "--iters", "5", "--json");
    assert_string_equal(cli.err, "");
    assert_int_equal(cli.status, 0);
    assert_int_equal(support_count(cli.out, "\"bench\": \"p2p\""), 1); /* rank 0's alone */
    assert_int_equal(support_count(cli.out, "\"ranks\": 3,"), 15);
    assert_int_equal(support_count(cli.out, "\"wrong\": 0"), 15);
    assert_int_equal(support_count(cli.out, "\"probe_ns\": null"), 15);
    assert_int_equal(support_number(cli.out, "\"pairs\": ", 0), 3);
    assert_null(strstr(cli.out, "\"min\": 0,"));     /* a pair whose time did not come to rank 0 */
    assert_null(strstr(cli.out, "\"pass_us\": 0,")); /* nor the slowest rank's */
    cli_close(&cli);
}

static void a_job_on_one_host_has_the_bare_socket_beside_it(void **state)
{
    struct cli cli;
    (void)state;
    cli_run(&cli, "run", "-n", "2", "--", WEFT_CLI_PATH, "bench", "p2p", "-m", "bw,lat", "-b",
            "64K", "-e", "64K", "--iters", "5", "--path", "tcp");
    assert_string_equal(cli.err, "");
    assert_int_equal(cli.status, 0);
    assert_has(cli.out, "p2p on 1 host; ranks are processes of a job");
    assert_has(cli.out, "limit: bare loopback sockets");
    for (const char *line = cli.out; *line != '\0'; line += strcspn(line, "\n") + 1) {
        assert_true(strcspn(line, "\n") <= WEFT_CLI_WIDTH);
    }
    cli_close(&cli);
}

static void a_job_keeps_its_ranks(void **state)
{
    static const struct {
        const char *option, *value, *words;
    } cases[] = {{"--threads", "--json", "--threads: this is rank "},
                 {"-n", "3", "--ranks 3: this is rank "},
                 {"-n", "2,3", "--ranks 3: this is rank "}};
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(cases); i++) {
        struct cli cli;
        cli_run(&cli, "run", "-n", "2", "--", WEFT_CLI_PATH, "bench", "p2p", cases[i].option,
                cases[i].value);
        assert_int_equal(cli.status, 1);
        assert_has(cli.err, cases[i].words);
        assert_string_equal(cli.out, "");
        cli_close(&cli);
    }
}

/* `srun --pty bash` is a job of one rank: its benchmarks fork theirs. */
static void a_job_of_one_rank_is_none(void **state)
{
    struct cli cli;
    (void)state;
    cli_run(&cli, "run", "-n", "1", "--", WEFT_CLI_PATH, "bench", "p2p", "-m", "lat", "-e", "8",
            "--iters", "5", "--json");
    assert_string_equal(cli.err, "");
    assert_int_equal(cli.status, 0);
    assert_has(cli.out, "\"ranks\": 2,");
    assert_has(cli.out, "\"probe_ns\": [");
    cli_close(&cli);
}

static void a_job_that_is_said_wrongly_is_an_error(void **state)
{
    struct cli cli;
    (void)state;
    assert_int_equal(setenv("WEFT_RANK", "1", 1), 0);
    cli_run(&cli, "bench", "p2p", "-m", "lat", "-e", "8", "--iters", "5");
    unsetenv("WEFT_RANK");
    assert_int_equal(cli.status, 1);
    assert_has(cli.err, "WEFT_RANK=1 is set, but WEFT_RANKS is not");
    assert_string_equal(cli.out, "");
    cli_close(&cli);
}

static void a_mesh_reports_every_pair(void **state)
{
    struct cli cli;
    (void)state;
    cli_run(&cli, "bench", "p2p", "-n", "2,5", "--mode", "mesh", "--iters", "4", "--json");
    assert_string_equal(cli.err, "");
    assert_int_equal(cli.status, 0);
    assert_int_equal(support_number(cli.out, "\"pairs\": ", 0), 1);
    assert_int_equal(support_number(cli.out, "\"pairs\": ", 1), 10);
    assert_int_equal(support_number(cli.out, "\"iters\": ", 2), 40);
    assert_null(strstr(cli.out, "\"min\": 0,")); /* a pair that was forgotten */
    cli_close(&cli);
}

static void the_table_fits_and_names_the_mesh(void **state)
{
    struct cli cli;
    (void)state;
    cli_run(&cli, "bench", "p2p", "-n", "3", "--mode", "lat,put_quiet,mesh", "-e", "8", "--iters",
            "10", "--path", "tcp");
    assert_int_equal(cli.status, 0);
    assert_has(cli.out, "CPU s/GB");
    assert_has(cli.out, "all 3 pairs once: ");
    for (const char *line = cli.out; *line != '\0'; line += strcspn(line, "\n") + 1) {
        assert_true(strcspn(line, "\n") <= WEFT_CLI_WIDTH);
    }
    cli_close(&cli);
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
        cmocka_unit_test(samples_become_figures),
        cmocka_unit_test(wrong_bytes_are_counted_and_named),
        cmocka_unit_test(the_median_is_the_middle),
        cmocka_unit_test(what_each_nic_sent_is_the_difference),
        cmocka_unit_test(lines_that_are_no_nic_are_left_out),
        cmocka_unit_test(bad_usage_is_two_and_says_what),
        cmocka_unit_test(help_has_two_examples),
        cmocka_unit_test(every_mode_runs_and_checks_its_bytes),
        cmocka_unit_test(ranks_may_be_threads),
        cmocka_unit_test(lanes_are_set_for_the_ranks),
        cmocka_unit_test(a_rank_of_a_job_joins_it),
        cmocka_unit_test(a_job_on_one_host_has_the_bare_socket_beside_it),
        cmocka_unit_test(a_job_keeps_its_ranks),
        cmocka_unit_test(a_job_of_one_rank_is_none),
        cmocka_unit_test(a_job_that_is_said_wrongly_is_an_error),
        cmocka_unit_test(a_mesh_reports_every_pair),
        cmocka_unit_test(the_table_fits_and_names_the_mesh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
