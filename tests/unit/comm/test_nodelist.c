/* SPDX-License-Identifier: Apache-2.0 */
#include "launch_support.h"

static void assert_first(const char *list, const char *expected)
{
    char host[WEFT_LAUNCH_HOST_LEN];

    assert_int_equal(weft_launch_first_host(list, host, sizeof(host)), WEFT_OK);
    assert_string_equal(host, expected);
}

static void plain_names_are_taken_whole(void **state)
{
    (void)state;
    assert_first("login1", "login1");
    assert_first("a.b-c_d,e", "a.b-c_d");
}

static void first_number_of_a_group_is_taken(void **state)
{
    (void)state;
    assert_first("gpu[7-9]", "gpu7");
    assert_first("gpu[3,5-9]", "gpu3");
    assert_first("gpu[12],login1", "gpu12");
    assert_first("[1-3]", "1");
}

static void leading_zeros_stay(void **state)
{
    (void)state;
    assert_first("gpu[07-09,12],login1", "gpu07");
    assert_first("n[000-127]", "n000");
}

static void several_groups_and_suffixes_are_joined(void **state)
{
    (void)state;
    assert_first("rack[2-3]node[01-16]", "rack2node01");
    assert_first("cn[1,3-5]-ib[0-1].site", "cn1-ib0.site");
}

static void malformed_lists_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",        ",",        "a,",    ",a",      "a,,b",    "a[",
        "a[1",     "a[1-",     "a[1-]", "a[]",     "a]",      "a[1",
        "a[x]",    "a[-3]",    "a[1,]", "a[,1]",   "a[1--2]", "a[3-1]",
        "a[1[2]]", "a[1-2-3]", "a b",   "a[1],b[", "a\n",     "a[99999999999999999999]",
    };
    char host[WEFT_LAUNCH_HOST_LEN] = "untouched";

    for (size_t i = 0; i < WEFT_COUNT_OF(bad); i++) {
        if (weft_launch_first_host(bad[i], host, sizeof(host)) != WEFT_ERR_INVALID) {
            fail_msg("\"%s\" was taken as \"%s\"", bad[i], host);
        }
        assert_string_equal(host, "untouched");
    }
}

static void a_host_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    char host[6] = "";
    char list[2 * WEFT_LAUNCH_HOST_LEN];

    assert_int_equal(weft_launch_first_host("abcde", host, sizeof(host)), WEFT_OK);
    assert_int_equal(weft_launch_first_host("abcd[12]", host, sizeof(host)), WEFT_ERR_INVALID);
    assert_string_equal(host, "abcde");
    memset(list, 'x', sizeof(list) - 1);
    list[sizeof(list) - 1] = '\0';
    assert_int_equal(weft_launch_first_host(list, host, sizeof(host)), WEFT_ERR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_names_are_taken_whole),
        cmocka_unit_test(first_number_of_a_group_is_taken),
        cmocka_unit_test(leading_zeros_stay),
        cmocka_unit_test(several_groups_and_suffixes_are_joined),
        cmocka_unit_test(malformed_lists_are_refused),
        cmocka_unit_test(a_host_that_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
