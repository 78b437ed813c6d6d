/* SPDX-License-Identifier: Apache-2.0 */
#include "topo_support.h"

static void lists_are_read_as_the_kernel_writes_them(void **state)
{
    static const struct {
        const char *text;
        int count;
    } cases[] = {{"0\n", 1}, {"0-3\n", 4}, {"0-3,8,10-11", 7}, {"\n", 0}, {"", 0}, {"1023", 1}};

    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(cases); i++) {
        cpu_set_t cpus = cpus_of(cases[i].text);

        assert_int_equal(CPU_COUNT(&cpus), cases[i].count);
    }
}

static void what_is_no_list_is_refused_and_writes_nothing(void **state)
{
    static const char *const texts[] = {"a",  "1-",   "-1",   "3-1",     "1,,2", "1;2",
                                        " 1", "0x10", "1 -2", "1-2-3\n", "+1",   "99999999999"};
    cpu_set_t cpus = cpus_of("5");

    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(texts); i++) {
        if (weft_topo_cpulist_read(texts[i], &cpus)) {
            fail_msg("\"%s\" was taken for a list", texts[i]);
        }
    }
    assert_cpus(&cpus, "5");
}

static void cpus_beyond_a_set_are_left_out(void **state)
{
    cpu_set_t cpus = cpus_of("1020-2000,3000");

    (void)state;
    assert_cpus(&cpus, "1020-1023");
}

static void printing_gives_back_what_was_read(void **state)
{
    static const char *const texts[] = {"0", "0-3", "0-3,8,10-11", "0-1023", "1,3,5,7"};
    cpu_set_t empty;

    (void)state;
    for (size_t i = 0; i < WEFT_COUNT_OF(texts); i++) {
        cpu_set_t cpus = cpus_of(texts[i]);

        assert_cpus(&cpus, texts[i]);
    }
    CPU_ZERO(&empty);
    assert_cpus(&empty, "none");
}

static void a_long_list_is_cut_with_dots(void **state)
{
    cpu_set_t cpus = cpus_of("0,2,4,6,8,10,12,14,16,18,20");
    char text[512];

    (void)state;
    for (size_t room = 8; room < 40; room++) {
        memset(text, 'x', sizeof(text));
        weft_topo_cpulist_print(&cpus, text, room);
        assert_true(strlen(text) < room);
        assert_int_equal(text[room], 'x');
        if (strlen(text) < strlen("0,2,4,6,8,10,12,14,16,18,20")) {
            assert_string_equal(text + strlen(text) - 3, "...");
        }
    }
}

static void affinity_is_the_threads_own(void **state)
{
    cpu_set_t before, single, seen;
    int cpu = sched_getcpu();

    (void)state;
    assert_int_equal(weft_topo_affinity(&before), WEFT_OK);
    assert_true(cpu >= 0 && CPU_ISSET((size_t)cpu, &before));
    CPU_ZERO(&single);
    CPU_SET((size_t)cpu, &single);
    assert_int_equal(sched_setaffinity(0, sizeof(single), &single), 0);
    assert_int_equal(weft_topo_affinity(&seen), WEFT_OK);
    assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
    assert_true(CPU_EQUAL(&seen, &single));
}

static void online_is_what_sysfs_says(void **state)
{
    cpu_set_t cpus;

    (void)state;
    assert_false(weft_topo_online(root, &cpus));
    plant_file("/sys/devices/system/cpu/online", "0-5,7\n");
    assert_true(weft_topo_online(root, &cpus));
    assert_cpus(&cpus, "0-5,7");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_are_read_as_the_kernel_writes_them),
        cmocka_unit_test(what_is_no_list_is_refused_and_writes_nothing),
        cmocka_unit_test(cpus_beyond_a_set_are_left_out),
        cmocka_unit_test(printing_gives_back_what_was_read),
        cmocka_unit_test(a_long_list_is_cut_with_dots),
        cmocka_unit_test(affinity_is_the_threads_own),
        cmocka_unit_test_setup_teardown(online_is_what_sysfs_says, make_root, remove_root),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
