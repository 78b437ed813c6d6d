/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"

#include "capture.h"

#include <stdlib.h>

static struct weft_params params;
/* what weft_params_differ() fills */
static char name[WEFT_PARAM_TEXT_LEN], left[WEFT_PARAM_TEXT_LEN], right[WEFT_PARAM_TEXT_LEN];

static int load_defaults(void **state)
{
    char **saved = environ;
    weft_status_t status;

    (void)state;
    environ = NULL;
    status = weft_params_load(&params);
    environ = saved;
    return status == WEFT_OK ? 0 : -1;
}

static void set(enum weft_param param, const char *value)
{
    assert_int_equal(weft_params_set(&params, param, value), WEFT_OK);
}

static void defaults_need_no_text(void **state)
{
    char text[256] = "x";

    (void)state;
    assert_int_equal(weft_params_agreed(&params, text, sizeof(text)), WEFT_OK);
    assert_string_equal(text, "");
}

static void settings_that_may_differ_stay_out(void **state)
{
    char text[256];

    (void)state;
    set(WEFT_PARAM_RANK, "3");
    set(WEFT_PARAM_TIMEOUT, "1s");
    set(WEFT_PARAM_ID, "weft1:sesame");
    assert_int_equal(weft_params_agreed(&params, text, sizeof(text)), WEFT_OK);
    assert_string_equal(text, "");
}

static void changed_agreed_settings_come_in_table_order(void **state)
{
    char text[256];

    (void)state;
    set(WEFT_PARAM_HEARTBEAT, "1s");
    set(WEFT_PARAM_TREE_DEGREE, "8");
    assert_int_equal(weft_params_agreed(&params, text, sizeof(text)), WEFT_OK);
    assert_string_equal(text, "WEFT_TREE_DEGREE=8;WEFT_HEARTBEAT=1s");
}

static void two_spellings_of_one_value_agree(void **state)
{
    char text[256], other[256];

    (void)state;
    set(WEFT_PARAM_HEARTBEAT, "0.25"); /* the default, 250ms */
    assert_int_equal(weft_params_agreed(&params, text, sizeof(text)), WEFT_OK);
    assert_string_equal(text, "");
    set(WEFT_PARAM_HEARTBEAT, "1000ms");
    assert_int_equal(weft_params_agreed(&params, text, sizeof(text)), WEFT_OK);
    set(WEFT_PARAM_HEARTBEAT, "1");
    assert_int_equal(weft_params_agreed(&params, other, sizeof(other)), WEFT_OK);
    assert_string_equal(text, other);
}

static void a_text_that_does_not_fit_is_refused(void **state)
{
    const char *whole = "WEFT_TREE_DEGREE=8;WEFT_HEARTBEAT=1s";
    char text[256];

    (void)state;
    set(WEFT_PARAM_HEARTBEAT, "1s");
    set(WEFT_PARAM_TREE_DEGREE, "8");
    for (size_t room = 0; room <= strlen(whole); room++) {
        memset(text, '#', sizeof(text));
        assert_int_equal(weft_params_agreed(&params, text, room), WEFT_ERR_INVALID);
        assert_int_equal(text[room], '#');
    }
    assert_int_equal(weft_params_agreed(&params, text, strlen(whole) + 1), WEFT_OK);
    assert_string_equal(text, whole);
}

static void equal_texts_do_not_differ(void **state)
{
    (void)state;
    assert_false(weft_params_differ("", "", name, left, right));
    assert_false(weft_params_differ("WEFT_HEARTBEAT=1s", "WEFT_HEARTBEAT=1s", name, left, right));
}

static void the_first_difference_in_table_order_is_shown(void **state)
{
    static const struct {
        const char *mine, *theirs, *name, *mine_value, *theirs_value;
    } cases[] = {
        {"WEFT_HEARTBEAT=1s", "", "WEFT_HEARTBEAT", "1s", "the default"},
        {"", "WEFT_HEARTBEAT=1s", "WEFT_HEARTBEAT", "the default", "1s"},
        {"WEFT_HEARTBEAT=1s", "WEFT_HEARTBEAT=2s", "WEFT_HEARTBEAT", "1s", "2s"},
        {"WEFT_TREE_DEGREE=8;WEFT_HEARTBEAT=1s", "WEFT_TREE_DEGREE=8;WEFT_HEARTBEAT=2s",
         "WEFT_HEARTBEAT", "1s", "2s"},
        {"WEFT_HEARTBEAT=1s", "WEFT_TREE_DEGREE=8;WEFT_HEARTBEAT=2s", "WEFT_TREE_DEGREE",
         "the default", "8"},
        {"", "WEFT_FUTURE=1", "WEFT_FUTURE", "the default", "1"},
        {"WEFT_FUTURE=1", "WEFT_FUTURE=2", "WEFT_FUTURE", "1", "2"},
    };

    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(cases); i++) {
        assert_true(weft_params_differ(cases[i].mine, cases[i].theirs, name, left, right));
        assert_string_equal(name, cases[i].name);
        assert_string_equal(left, cases[i].mine_value);
        assert_string_equal(right, cases[i].theirs_value);
    }
}

static void foreign_bytes_are_cut_and_cleaned(void **state)
{
    char rubbish[3000];

    (void)state;
    assert_true(weft_params_differ("", "WEFT_HEARTBEAT=\x1b[2J\n", name, left, right));
    assert_string_equal(right, "?[2J?");

    memset(rubbish, 'y', sizeof(rubbish));
    rubbish[1500] = '=';
    rubbish[sizeof(rubbish) - 1] = '\0';
    assert_true(weft_params_differ("", rubbish, name, left, right));
    assert_int_equal(strlen(name), WEFT_PARAM_TEXT_LEN - 1);
    assert_int_equal(strlen(right), WEFT_PARAM_TEXT_LEN - 1);
}

/* Any bytes: no crash, and what comes out is terminated and printable (asan watches the rest). */
static void random_texts_are_survived(void **state)
{
    static const char letters[] = "WEFT_HEARTBEAT=;=;\n\x1b\xc2\x9b";
    uint64_t seed = 5;

    (void)state;
    for (unsigned i = 0; i < 20000; i++) {
        char rubbish[40];
        size_t len = i % sizeof(rubbish);

        for (size_t j = 0; j < len; j++) {
            seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
            rubbish[j] = letters[(seed >> 33) % (sizeof(letters) - 1)];
        }
        rubbish[len == sizeof(rubbish) ? len - 1 : len] = '\0';
        if (weft_params_differ("WEFT_HEARTBEAT=1s", rubbish, name, left, right)) {
            assert_null(strpbrk(name, "\n\x1b"));
            assert_null(strpbrk(right, "\n\x1b"));
        }
    }
}

static void the_nearest_name_is_found(void **state)
{
    static const struct {
        const char *unknown, *nearest;
    } cases[] = {
        {"WEFT_HARTBEAT", "WEFT_HEARTBEAT"},
        {"WEFT_HEARTBEATS", "WEFT_HEARTBEAT"},
        {"WEFT_RNAK", "WEFT_RANK"}, /* neighbours swapped */
        {"WEFT_LOGS", "WEFT_LOG"},
        {"WEFT_SOCKET_IF_NAME", "WEFT_SOCKET_IFNAME"},
        {"WEFT_STARTTIMEOUT", "WEFT_START_TIMEOUT"},
        {"WEFT_RANK", "WEFT_RANK"},
        {"WEFT_XYZZY", NULL},
        {"WEFT_QJQ", NULL},
        {"WEFT_", NULL},
        {"", NULL},
    };

    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(cases); i++) {
        const char *nearest = weft_params_nearest(cases[i].unknown);

        if (cases[i].nearest) {
            assert_non_null(nearest);
            assert_string_equal(nearest, cases[i].nearest);
        } else {
            assert_null(nearest);
        }
    }
}

static void a_very_long_name_is_near_to_nothing(void **state)
{
    char big[1000];

    (void)state;
    memset(big, 'A', sizeof(big));
    big[sizeof(big) - 1] = '\0';
    assert_null(weft_params_nearest(big));
}

int main(void)
{
#define TEST(test) cmocka_unit_test_setup(test, load_defaults)
    const struct CMUnitTest tests[] = {
        TEST(defaults_need_no_text),
        TEST(settings_that_may_differ_stay_out),
        TEST(changed_agreed_settings_come_in_table_order),
        TEST(two_spellings_of_one_value_agree),
        TEST(a_text_that_does_not_fit_is_refused),
        TEST(equal_texts_do_not_differ),
        TEST(the_first_difference_in_table_order_is_shown),
        TEST(foreign_bytes_are_cut_and_cleaned),
        TEST(random_texts_are_survived),
        TEST(the_nearest_name_is_found),
        TEST(a_very_long_name_is_near_to_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
