/* SPDX-License-Identifier: Apache-2.0 */
/* The search on made-up rates and a made-up clock; then the command itself, on this host. */
#include "cli_support.h"

#include "cli/tune.h"

#include <ftw.h>
#include <math.h>
#include <sys/stat.h>

/* ---- a made-up machine ---- */

#define BATCH_MS 30 /* what one sample takes here */

struct world {
    struct tune_space space;
    double (*rate)(const uint32_t *value);
    double scatter; /* of a sample, as a part of it */
    uint64_t now_ns, random;
    unsigned measured;
    bool is_broken;
};

static double next_random(struct world *world)
{
    world->random = world->random * UINT64_C(6364136223846793005) + 1;
    return (double)(world->random >> 33) / (double)(UINT64_C(1) << 31) * 2 - 1; /* -1 … 1 */
}

static double true_rate(const struct world *world, const struct tune_setting *setting)
{
    struct tune_values values;
    weft_tune_values(&world->space, setting, &values);
    return world->rate(values.value);
}

static uint64_t made_up_clock(void *context)
{
    return ((struct world *)context)->now_ns;
}

static bool made_up_measure(void *context, const struct tune_setting *setting, uint64_t ms,
                            double hopeless_gbs, struct tune_point *point)
{
    struct world *world = context;
    uint64_t until_ns = world->now_ns + ms * WEFT_NS_PER_MS;
    world->measured++;
    world->now_ns += 10 * WEFT_NS_PER_MS;
    do {
        double gbs = true_rate(world, setting) * (1 + world->scatter * next_random(world));
        world->now_ns += BATCH_MS * WEFT_NS_PER_MS;
        if (point->sample_count < TUNE_SAMPLES_MAX) {
            point->samples[point->sample_count++] = (float)gbs;
        }
        if (gbs < hopeless_gbs) {
            break;
        }
    } while (world->now_ns < until_ns);
    return !world->is_broken;
}

static double best_rate(const struct world *world)
{
    double best = 0;
    for (unsigned n = 0; n < weft_tune_space_size(&world->space); n++) {
        struct tune_setting setting;
        unsigned left = n;
        for (unsigned axis = 0; axis < TUNE_AXES; axis++) {
            setting.at[axis] = (uint8_t)(left % world->space.count[axis]);
            left /= world->space.count[axis];
        }
        best = fmax(best, true_rate(world, &setting));
    }
    return best;
}

static void open_world(struct world *world, double (*rate)(const uint32_t *), double scatter,
                       uint64_t seed)
{
    *world = (struct world){.rate = rate, .scatter = scatter, .random = seed * 7919 + 1};
    weft_tune_space(&world->space);
}

static bool search_world(struct world *world, struct tune_search *search, uint64_t budget_ms)
{
    *search = (struct tune_search){
        .space = &world->space,
        .budget_ms = budget_ms,
        .measure = made_up_measure,
        .clock = made_up_clock,
        .context = world,
    };
    return weft_tune_search(search);
}

static double off(uint32_t value, double best)
{
    return fabs(log2(value / best));
}

/* A hill: one best setting, everything falls off from it. */
static double hill(const uint32_t *value)
{
    return 4 - 0.4 * off(value[TUNE_WINDOW], 64) - 0.3 * off(value[TUNE_CHUNK], 1 << 20) -
           0.2 * off(value[TUNE_LANES], 2) - (value[TUNE_STRATEGY] == TUNE_RR ? 0.3 : 0);
}

/* A corner: only the largest window times chunk is fast, and only with four lanes, in turn. */
static double corner(const uint32_t *value)
{
    double flying = (double)value[TUNE_WINDOW] * value[TUNE_CHUNK] * value[TUNE_LANES];
    double rate = fmin(1, flying / (128.0 * (4 << 20) * 4));
    return 0.2 + rate * (value[TUNE_STRATEGY] == TUNE_RR ? 3 : 2);
}

/* Two hills: a broad low one, and a higher one where lanes are many and chunks small. */
static double two_hills(const uint32_t *value)
{
    double low = 3 - 0.1 * off(value[TUNE_WINDOW], 16) - 0.1 * off(value[TUNE_CHUNK], 4 << 20) -
                 0.1 * off(value[TUNE_LANES], 1);
    double high = 3.6 - 0.2 * off(value[TUNE_WINDOW], 128) -
                  0.25 * off(value[TUNE_CHUNK], 64 << 10) - 0.5 * off(value[TUNE_LANES], 4);
    return fmax(low, high);
}

static double plain(const uint32_t *value)
{
    (void)value;
    return 2;
}

/* ---- the search ---- */

static void the_search_ends_within_five_percent_of_the_best(void **state)
{
    static double (*const rates[])(const uint32_t *) = {hill, corner, two_hills};
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(rates); i++) {
        for (uint64_t seed = 0; seed < 30; seed++) {
            struct world world;
            struct tune_search search;
            open_world(&world, rates[i], 0.04, seed);
            assert_true(search_world(&world, &search, 30000));
            double found = true_rate(&world, &search.point[search.best].setting);
            if (found < 0.95 * best_rate(&world)) {
                fail_msg("world %zu, seed %u: %.3f of %.3f", i, (unsigned)seed, found,
                         best_rate(&world));
            }
            weft_tune_search_close(&search);
        }
    }
}

static void the_search_stays_within_its_time(void **state)
{
    static const uint64_t budgets_ms[] = {1000, 5000, 30000, 120000};
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(budgets_ms); i++) {
        struct world world;
        struct tune_search search;
        open_world(&world, hill, 0.04, i);
        assert_true(search_world(&world, &search, budgets_ms[i]));
        assert_true(world.now_ns / WEFT_NS_PER_MS <= budgets_ms[i] + 1000);
        assert_true(search.count < weft_tune_space_size(&world.space));
        assert_int_equal(search.is_cut, i == 0 || search.is_cut);
        weft_tune_search_close(&search);
    }
}

static void where_everything_is_alike_the_usual_setting_wins(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 30; seed++) {
        struct world world;
        struct tune_search search;
        open_world(&world, plain, 0.01, seed);
        assert_true(search_world(&world, &search, 30000));
        assert_memory_equal(&search.point[search.best].setting, &world.space.usual,
                            sizeof(struct tune_setting));
        weft_tune_search_close(&search);
    }
}

static void hopeless_settings_cost_one_sample(void **state)
{
    struct world world;
    struct tune_search search;
    unsigned given_up = 0;
    (void)state;
    open_world(&world, hill, 0, 1);
    assert_true(search_world(&world, &search, 30000));
    for (unsigned i = 0; i < search.count; i++) {
        if (search.point[i].is_hopeless) {
            assert_int_equal(search.point[i].sample_count, 1);
            given_up++;
        }
    }
    assert_true(given_up > 5);
    weft_tune_search_close(&search);
}

static void an_exhaustive_search_tries_every_setting_equally_long(void **state)
{
    struct world world;
    struct tune_search search = {0};
    (void)state;
    open_world(&world, two_hills, 0, 1);
    search.space = &world.space;
    search.budget_ms = UINT64_C(210) * 300;
    search.is_exhaustive = true;
    search.measure = made_up_measure;
    search.clock = made_up_clock;
    search.context = &world;
    assert_true(weft_tune_search(&search));
    assert_int_equal(search.count, 210);
    for (unsigned i = 0; i < search.count; i++) {
        assert_int_equal(search.point[i].sample_count, search.point[0].sample_count);
        for (unsigned j = 0; j < i; j++) {
            assert_memory_not_equal(&search.point[i].setting, &search.point[j].setting,
                                    sizeof(struct tune_setting));
        }
    }
    assert_true(search.point[search.top].gbs > 0.999 * best_rate(&world));
    weft_tune_search_close(&search);
}

static void a_failed_measurement_ends_the_search(void **state)
{
    struct world world;
    struct tune_search search;
    (void)state;
    open_world(&world, hill, 0, 1);
    world.is_broken = true;
    assert_false(search_world(&world, &search, 30000));
    assert_int_equal(world.measured, 1);
    weft_tune_search_close(&search);
}

static void the_rate_is_the_median_and_noise_shrinks_with_samples(void **state)
{
    struct tune_point point = {.sample_count = 3, .samples = {1.0f, 9.0f, 1.1f}};
    double few;
    (void)state;
    weft_tune_point_rate(&point);
    assert_true(fabs(point.gbs - 1.1) < 1e-6);
    few = point.noise;
    for (point.sample_count = 0; point.sample_count < 99; point.sample_count++) {
        point.samples[point.sample_count] = point.sample_count % 2 ? 1.0f : 1.2f;
    }
    weft_tune_point_rate(&point);
    assert_true(point.noise < few);
    assert_true(point.noise >= 0.01);
}

/* ---- the profile that is written ---- */

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/weft-tune-XXXXXX");
    return mkdtemp(folder) != NULL ? 0 : -1;
}

static int remove_entry(const char *entry, const struct stat *facts, int kind, struct FTW *where)
{
    (void)facts;
    (void)kind;
    (void)where;
    return remove(entry);
}

static int drop_folder(void **state)
{
    (void)state;
    return nftw(folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static void path_in_folder(const char *name, char path[128])
{
    snprintf(path, 128, "%s/%s", folder, name);
}

static void what_is_written_is_loaded(void **state)
{
    static struct weft_params params;
    struct tune_values values = {.value = {64, 256 << 10, 2, TUNE_RR}};
    char path[WEFT_PROFILE_PATH_LEN], body[1024], why[TUNE_TEXT_LEN] = "";
    struct stat facts;
    (void)state;
    setenv("XDG_CONFIG_HOME", folder, 1); /* our own place: folders are made */
    assert_true(weft_profile_path(path));
    weft_tune_profile_body(&values, "by hand", body, sizeof(body));
    if (!weft_tune_profile_write(path, body, why)) {
        fail_msg("%s", why);
    }
    assert_true(weft_tune_profile_write(path, body, why)); /* again, over the first */
    unsetenv("XDG_CONFIG_HOME");
    assert_int_equal(stat(path, &facts), 0);
    assert_int_equal(facts.st_mode & 07777, 0644);
    setenv("WEFT_PROFILE", path, 1);
    assert_int_equal(weft_params_load(&params), WEFT_OK);
    unsetenv("WEFT_PROFILE");
    assert_int_equal(params.origin[WEFT_PARAM_CHUNK], WEFT_ORIGIN_PROFILE);
    assert_int_equal(params.number[WEFT_PARAM_CHUNK], 256 << 10);
    assert_int_equal(params.number[WEFT_PARAM_WINDOW], 64);
    assert_int_equal(params.number[WEFT_PARAM_LANES], 2);
    assert_string_equal(params.text[WEFT_PARAM_STRATEGY], "rr");
}

static void a_profile_that_cannot_be_written_says_why_and_leaves_nothing(void **state)
{
    char path[128], why[TUNE_TEXT_LEN];
    (void)state;
    assert_false(weft_tune_profile_write("/proc/weft/profile", "", why));
    assert_has(why, "/proc/weft");
    path_in_folder("x", path);
    assert_true(weft_tune_profile_write(path, "", why));
    path_in_folder("x/profile", path); /* x is a file */
    assert_false(weft_tune_profile_write(path, "", why));
    assert_has(why, "Not a directory");
}

/* ---- the command ---- */

static void a_folder_that_is_missing_is_said_before_anything_is_measured(void **state)
{
    static const char *const what[] = {"p2p", "collectives"};
    char path[128], above[128];
    struct stat facts;
    struct cli cli;
    (void)state;
    path_in_folder("no/such/profile", path);
    path_in_folder("no", above);
    for (size_t i = 0; i < WEFT_COUNT_OF(what); i++) {
        cli_run(&cli, "tune", what[i], "--output", path);
        assert_int_equal(cli.status, 2);
        assert_has(cli.err, "no/such: No such file or directory");
        assert_string_equal(cli.out, "");
        cli_close(&cli);
        assert_int_not_equal(stat(above, &facts), 0);
    }
}

static void the_command_finds_a_setting_and_later_runs_load_it(void **state)
{
    char path[128];
    struct cli cli;
    (void)state;
    path_in_folder("profile", path);
    cli_run(&cli, "tune", "p2p", "--time", "1", "--bytes", "256K", "--output", path);
    if (cli.status != 0) {
        fail_msg("%s", cli.err);
    }
    assert_has(cli.out, "sweet spot: window ");
    assert_has(cli.out, "<- sweet spot");
    assert_has(cli.out, path);
    assert_null(strchr(cli.err, '\r')); /* no progress in a pipe */
    for (char *line = strtok(cli.out, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        assert_in_range(strlen(line), 1, 100);
    }
    cli_close(&cli);
    setenv("WEFT_PROFILE", path, 1);
    cli_run(&cli, "params", "window");
    unsetenv("WEFT_PROFILE");
    assert_int_equal(cli.status, 0);
    assert_has(cli.out, "  profile  16 ");
    cli_close(&cli);
}

static void ranks_of_a_launcher_measure_between_themselves(void **state)
{
    char path[128];
    struct cli cli;
    (void)state;
    path_in_folder("launched", path);
    cli_run(&cli, "run", "-n", "2", "--", WEFT_CLI_PATH, "tune", "--time", "1", "--bytes", "256K",
            "--json", "--output", path);
    if (cli.status != 0) {
        fail_msg("%s", cli.err);
    }
    assert_int_equal(support_count(cli.out, "\n"), 1);
    assert_int_equal(support_count(cli.out, "\"command\": \"tune\""), 1);
    assert_has(cli.out, "\"best\": {\"window\": ");
    assert_has(cli.out, "\"of\": 210");
    assert_int_equal(access(path, R_OK), 0);
    cli_close(&cli);
}

static void three_ranks_are_refused(void **state)
{
    struct cli cli;
    (void)state;
    cli_run(&cli, "run", "-n", "3", "--", WEFT_CLI_PATH, "tune", "--time", "1");
    assert_int_equal(cli.status, 1);
    assert_has(cli.err, "started 3 ranks: tuning takes two");
    cli_close(&cli);
}

static void a_lab_leaves_this_machines_profile_alone(void **state)
{
    char path[128];
    struct cli cli;
    (void)state;
    path_in_folder("config", path);
    setenv("XDG_CONFIG_HOME", path, 1);
    setenv("WEFT_LAB", "weft-lab-1", 1);
    cli_run(&cli, "tune", "--time", "1", "--bytes", "256K", "--json");
    unsetenv("WEFT_LAB");
    assert_int_equal(cli.status, 0);
    assert_has(cli.err, "this is a lab: --output FILE");
    assert_has(cli.out, "\"profile\": null");
    assert_int_not_equal(access(path, F_OK), 0);
    cli_close(&cli);
}

static void wrong_words_are_two(void **state)
{
    struct cli cli;
    (void)state;
    cli_run(&cli, "tune", "guitars");
    assert_int_equal(cli.status, 2);
    assert_has(cli.err, "\"guitars\" cannot be tuned: p2p and collectives can");
    cli_close(&cli);
    cli_run(&cli, "tune", "p2p", "p2p");
    assert_int_equal(cli.status, 2);
    cli_close(&cli);
    cli_run(&cli, "tune", "--bytes", "1");
    assert_int_equal(cli.status, 2);
    cli_close(&cli);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_search_ends_within_five_percent_of_the_best),
        cmocka_unit_test(the_search_stays_within_its_time),
        cmocka_unit_test(where_everything_is_alike_the_usual_setting_wins),
        cmocka_unit_test(hopeless_settings_cost_one_sample),
        cmocka_unit_test(an_exhaustive_search_tries_every_setting_equally_long),
        cmocka_unit_test(a_failed_measurement_ends_the_search),
        cmocka_unit_test(the_rate_is_the_median_and_noise_shrinks_with_samples),
        cmocka_unit_test(what_is_written_is_loaded),
        cmocka_unit_test(a_profile_that_cannot_be_written_says_why_and_leaves_nothing),
        cmocka_unit_test(a_folder_that_is_missing_is_said_before_anything_is_measured),
        cmocka_unit_test(the_command_finds_a_setting_and_later_runs_load_it),
        cmocka_unit_test(ranks_of_a_launcher_measure_between_themselves),
        cmocka_unit_test(three_ranks_are_refused),
        cmocka_unit_test(a_lab_leaves_this_machines_profile_alone),
        cmocka_unit_test(wrong_words_are_two),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
