/* SPDX-License-Identifier: Apache-2.0 */
#include "cli_support.h"

#include "cli/tune_coll.h"

#include <math.h>

static void assert_about(double value, double expected)
{
    if (fabs(value / expected - 1) > 0.006) { /* three digits */
        fail_msg("%g is not %g", value, expected);
    }
}

/* ---- the fit ---- */

static void nothing_measured_is_the_default(void **state)
{
    struct tune_coll_seen seen = {.cores = 2, .crowd = 8};
    struct weft_plan_calibration fitted;
    char text[WEFT_PLAN_CALIBRATION_LEN];

    (void)state;
    weft_tune_coll_fit(&seen, &fitted);
    weft_plan_calibration_print(&fitted, text);
    /* between hosts the same cores do the same work */
    assert_string_equal(text, "");
}

static void half_a_round_trip_is_both_ends_and_the_way(void **state)
{
    struct tune_coll_seen seen = {.cores = 2,
                                  .crowd = 8,
                                  .tcp = {.half_s = 6e-6, .message_s = 1.5e-6, .rate = 4.5e9},
                                  .shm = {.half_s = 100e-9, .message_s = 90e-9, .rate = 12e9}};
    struct weft_plan_calibration fitted;

    (void)state;
    weft_tune_coll_fit(&seen, &fitted);
    assert_about(fitted.loopback.message_s, 1.5e-6);
    assert_about(fitted.loopback.latency_s, 3e-6);
    assert_about(fitted.loopback.rate, 4.5e9);
    assert_about(fitted.net.message_s, 1.5e-6);
    /* what many in a row cost can be more than one alone: then a tenth is left for the way */
    assert_about(fitted.shm.message_s, 45e-9);
    assert_about(fitted.shm.latency_s, 10e-9);
}

static void a_flag_takes_as_long_as_was_measured(void **state)
{
    struct tune_coll_seen near = {.cores = 2, .flag_s = 30e-9},
                          far = {.cores = 2, .flag_s = 300e-9};
    struct weft_plan_calibration fitted;

    (void)state;
    weft_tune_coll_fit(&near, &fitted);
    assert_about(fitted.flag_s, 30e-9);
    weft_tune_coll_fit(&far, &fitted);
    assert_about(fitted.flag_s, 300e-9);
}

static double predict(const struct weft_plan_calibration *calibration, const char *algo,
                      uint32_t inside, uint32_t ranks, uint32_t cores)
{
    struct weft_plan_facts facts;
    struct weft_plan_sim *sim = weft_plan_sim_open();
    struct weft_plan_run run = {.bytes = 8};
    struct weft_plan_cost cost;
    struct weft_plan plan;

    weft_plan_facts_default(ranks, cores, &facts);
    facts.inside = inside;
    facts.calibration = *calibration;
    assert_true(weft_plan_shape(weft_plan_find(algo), WEFT_ALLREDUCE, ranks, 0, 1, &plan));
    assert_int_equal(weft_plan_sim_run(sim, &facts, &plan, &run, &cost), WEFT_RUN_DONE);
    weft_plan_sim_close(sim);
    return cost.time_s;
}

static void the_model_then_predicts_the_crowd_that_was_measured(void **state)
{
    struct tune_coll_seen seen = {.cores = 2,
                                  .crowd = 8,
                                  .tcp = {.half_s = 5e-6, .message_s = 1e-6, .rate = 5e9},
                                  .crowd_tcp_s = 400e-6,
                                  .crowd_shm_s = 9e-6};
    struct weft_plan_calibration fitted;

    (void)state;
    weft_tune_coll_fit(&seen, &fitted);
    assert_about(predict(&fitted, "doubling", WEFT_INSIDE_TCP, 8, 2), 400e-6);
    assert_about(predict(&fitted, "oneshot", WEFT_INSIDE_SHM, 8, 2), 9e-6);
    /* faster than the messages alone: nothing can be learned, nothing becomes negative */
    seen.crowd_tcp_s = 1e-6;
    weft_tune_coll_fit(&seen, &fitted);
    assert_true(fitted.loopback.wait_s > 0);
}

static void what_is_fitted_fits_into_a_setting(void **state)
{
    struct tune_coll_seen seen = {.cores = 3,
                                  .crowd = 16,
                                  .tcp = {123.456e-6, 12.3456e-6, 123.456e6},
                                  .shm = {123.456e-9, 12.3456e-9, 123.456e6},
                                  .flag_s = 123.456e-9,
                                  .copy_rate = 123.456e6,
                                  .add_rate = 123.456e6,
                                  .write_rate = 123.456e6,
                                  .read_rate = 123.456e6,
                                  .memory_rate = 123.456e6,
                                  .crowd_tcp_s = 123.456e-3,
                                  .crowd_shm_s = 123.456e-3};
    struct weft_plan_calibration fitted, read;
    char text[WEFT_PLAN_CALIBRATION_LEN], again[WEFT_PLAN_CALIBRATION_LEN];
    const char *why = NULL;

    (void)state;
    weft_tune_coll_fit(&seen, &fitted);
    weft_plan_calibration_print(&fitted, text);
    assert_in_range(strlen(text), 150, WEFT_PARAM_TEXT_LEN - 1);
    assert_true(weft_plan_calibration_parse(text, &read, &why));
    weft_plan_calibration_print(&read, again);
    assert_string_equal(text, again);
}

/* ---- the command ---- */

static void a_profile_keeps_what_else_it_said(void **state)
{
    char path[] = "/tmp/weft-costs-XXXXXX";
    int fd = mkstemp(path);
    struct cli cli;

    (void)state;
    assert_true(fd >= 0);
    assert_true(dprintf(fd, "# mine\nWEFT_WINDOW = 32\nWEFT_COSTS = copy=1G\n") > 0);
    close(fd);
    cli_run(&cli, "tune", "collectives", "--output", path, "--json");
    assert_string_equal(cli.err, "");
    assert_int_equal(cli.status, 0);
    assert_int_equal(support_count(cli.out, "\n"), 1);
    assert_has(cli.out, "\"command\": \"tune collectives\"");
    assert_has(cli.out, "\"copy_gbs\": ");
    assert_has(cli.out, "\"costs\": \"");
    cli_close(&cli);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    char *text = support_slurp(fd);
    assert_has(text, "\nWEFT_WINDOW = 32\n");
    assert_int_equal(support_count(text, "\nWEFT_COSTS = "), 1);
    assert_null(strstr(text, "copy=1G\n"));
    free(text);
    close(fd);
    /* and it is read */
    setenv("WEFT_PROFILE", path, 1);
    cli_run(&cli, "params", "costs");
    assert_has(cli.out, "profile");
    cli_close(&cli);
    cli_run(&cli, "explain", "allreduce", "-n", "4", "--path", "tcp");
    unsetenv("WEFT_PROFILE");
    assert_int_equal(cli.status, 0);
    assert_string_equal(cli.err, "");
    cli_close(&cli);
    unlink(path);
}

static void words_and_help(void **state)
{
    struct cli cli;

    (void)state;
    cli_run(&cli, "tune", "collectives", "now");
    assert_int_equal(cli.status, 2);
    assert_has(cli.err, "weft tune collectives: \"now\" is one word too many");
    cli_close(&cli);
    cli_run(&cli, "tune", "collectives", "--help");
    assert_int_equal(cli.status, 0);
    assert_int_equal(support_count(cli.out, "\n  weft tune collectives"), 2);
    cli_close(&cli);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_measured_is_the_default),
        cmocka_unit_test(half_a_round_trip_is_both_ends_and_the_way),
        cmocka_unit_test(a_flag_takes_as_long_as_was_measured),
        cmocka_unit_test(the_model_then_predicts_the_crowd_that_was_measured),
        cmocka_unit_test(what_is_fitted_fits_into_a_setting),
        cmocka_unit_test(a_profile_keeps_what_else_it_said),
        cmocka_unit_test(words_and_help),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
